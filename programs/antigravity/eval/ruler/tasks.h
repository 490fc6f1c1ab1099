/* SPDX-License-Identifier: Apache-2.0 */
/* The 11 tasks of RULER (arXiv:2404.06654) that need no data from elsewhere, with its wording and
 * its numbers of needles, hops and words, so that scores can be compared; the words and the
 * haystack are others. */
#ifndef ANTIGRAVITY_RULER_TASKS_H
#define ANTIGRAVITY_RULER_TASKS_H

#include "../../support/text_buffer.h"
#include "../sentences.h"
#include "words.h"

enum { RULER_REFERENCES = 10 };

/* One prompt. The context ends in a newline; what follows it is said later where the question is
 * unseen. The answer goes on behind answer_prefix. */
typedef struct ruler_text {
    text_buffer context, question, answer_prefix;       /* owned */
    char references[RULER_REFERENCES][RULER_WORD_SIZE]; /* what the answer is to name */
    size_t n_references;
} ruler_text;
void ruler_text_release(ruler_text *t);

/* What a prompt is written from. */
typedef struct ruler_source {
    const char *haystack; /* borrowed; NULL: made-up tales */
    size_t n_haystack;
    uint32_t n_tokens; /* of the prompt and its answer: examples are longer in long prompts */
} ruler_source;

typedef struct ruler_task ruler_task;
struct ruler_task {
    const char *name;
    uint32_t n_answer; /* tokens that an answer may have */
    size_t min_units;  /* least n_units */
    /* n_units: how much of what the needles lie in, in pieces of the task's own. The same text for
     * the same random state; memory may be short (text_buffer.failed). */
    void (*write)(const ruler_task *task, const ruler_source *source, seeded *random,
                  size_t n_units, ruler_text *out);
    /* Of the needles in a haystack. */
    enum { RULER_NOISE, RULER_ESSAY, RULER_NEEDLES } haystack;
    ruler_kind keys, values;
    size_t n_keys, n_values, n_queries;
};

/* NULL past the last. */
const ruler_task *ruler_task_at(size_t i);
const ruler_task *ruler_task_find(const char *name); /* NULL: there is none */

/* ruler_niah.c, ruler_chains.c, ruler_lists.c: the tasks' write(). */
void ruler_write_needles(const ruler_task *task, const ruler_source *source, seeded *random,
                         size_t n_units, ruler_text *out);
void ruler_write_chain(const ruler_task *task, const ruler_source *source, seeded *random,
                       size_t n_units, ruler_text *out);
void ruler_write_common_words(const ruler_task *task, const ruler_source *source, seeded *random,
                              size_t n_units, ruler_text *out);
void ruler_write_coded_words(const ruler_task *task, const ruler_source *source, seeded *random,
                             size_t n_units, ruler_text *out);

/* What stands around needles where nothing else does. */
extern const char ruler_noise[];

#endif
