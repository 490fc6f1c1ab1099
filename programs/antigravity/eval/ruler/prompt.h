/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt of a RULER task with a given number of tokens. */
#ifndef ANTIGRAVITY_RULER_PROMPT_H
#define ANTIGRAVITY_RULER_PROMPT_H

#include "../prompt_writer.h"
#include "tasks.h"

typedef struct ruler_prompt {
    written_prompt written; /* owned; includes the answer prefix */
    ruler_text text;        /* owned */
    size_t n_units;
} ruler_prompt;

typedef struct ruler_maker {
    prompt_writer *writer; /* borrowed */
    const ruler_task *task;
    ruler_source source;
    uint64_t seed;
} ruler_maker;

/* Makes prompt `number`; it is the same on every machine. The prompt is the longest that, with its
 * answer, fits in source.n_tokens. Returns AG_LIMIT if the shortest one does not fit. Zero *out
 * before the first call; it may be reused, and needs ruler_prompt_free() also after a failure. */
ag_status ruler_prompt_make(const ruler_maker *m, uint64_t number, ruler_prompt *out,
                            ag_error *err);
void ruler_prompt_free(ruler_prompt *p);

#endif
