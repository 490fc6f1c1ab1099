/* SPDX-License-Identifier: Apache-2.0 */
/* A task's prompt of so many tokens. */
#ifndef ANTIGRAVITY_RULER_PROMPT_H
#define ANTIGRAVITY_RULER_PROMPT_H

#include "../prompt_writer.h"
#include "tasks.h"

typedef struct ruler_prompt {
    written_prompt written; /* owned; answer prefix included */
    ruler_text text;        /* owned */
    size_t n_units;
} ruler_prompt;

typedef struct ruler_maker {
    prompt_writer *writer; /* borrowed */
    const ruler_task *task;
    ruler_source source;
    uint64_t seed;
} ruler_maker;

/* The prompt of that number, the same on every machine: the longest one that has no more than
 * source.n_tokens tokens, those of its answer included. AG_LIMIT if the shortest has more. *out,
 * which is zeroed at first, needs ruler_prompt_free() also after a failure, and may be used again.
 */
ag_status ruler_prompt_make(const ruler_maker *m, uint64_t number, ruler_prompt *out,
                            ag_error *err);
void ruler_prompt_free(ruler_prompt *p);

#endif
