/* SPDX-License-Identifier: Apache-2.0 */
/* The 11 RULER tasks (arXiv:2404.06654) that need no external data. Wording and numbers of needles,
 * hops and words are RULER's, so scores are comparable. The vocabulary and the haystack differ. */
#ifndef ANTIGRAVITY_RULER_TASKS_H
#define ANTIGRAVITY_RULER_TASKS_H

#include "../../support/text_buffer.h"
#include "../sentences.h"
#include "words.h"

enum { RULER_REFERENCES = 10 };

/* Text of one prompt. The context ends in a newline. If the question is unseen, it is read after
 * the eviction. The answer continues answer_prefix. */
typedef struct ruler_text {
    text_buffer context, question, answer_prefix;       /* owned */
    char references[RULER_REFERENCES][RULER_WORD_SIZE]; /* texts that the answer must contain */
    size_t n_references;
} ruler_text;
void ruler_text_release(ruler_text *t);

/* Input of a task. */
typedef struct ruler_source {
    const char *haystack; /* borrowed; NULL: generated tales */
    size_t n_haystack;
    uint32_t n_tokens; /* prompt and answer; longer prompts have longer examples */
} ruler_source;

typedef struct ruler_task ruler_task;
struct ruler_task {
    const char *name;
    uint32_t n_answer; /* maximum tokens of an answer */
    size_t min_units;  /* minimum of n_units */
    /* Writes a prompt with n_units units of filler. The same random state gives the same text. Out
     * of memory sets text_buffer.failed. */
    void (*write)(const ruler_task *task, const ruler_source *source, seeded *random,
                  size_t n_units, ruler_text *out);
    /* Filler around the needles. */
    enum { RULER_NOISE, RULER_ESSAY, RULER_NEEDLES } haystack;
    ruler_kind keys, values;
    size_t n_keys, n_values, n_queries;
};

/* Returns NULL after the last task. */
const ruler_task *ruler_task_at(size_t i);
const ruler_task *ruler_task_find(const char *name); /* NULL: there is none */

/* ---- needles.c, chains.c, lists.c: write() of the tasks ---- */

void ruler_write_needles(const ruler_task *task, const ruler_source *source, seeded *random,
                         size_t n_units, ruler_text *out);
void ruler_write_chain(const ruler_task *task, const ruler_source *source, seeded *random,
                       size_t n_units, ruler_text *out);
void ruler_write_common_words(const ruler_task *task, const ruler_source *source, seeded *random,
                              size_t n_units, ruler_text *out);
void ruler_write_coded_words(const ruler_task *task, const ruler_source *source, seeded *random,
                             size_t n_units, ruler_text *out);

/* Sentences between needles in a haystack of noise. */
extern const char ruler_noise[];

#endif
