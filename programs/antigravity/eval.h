/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval: its measures, one file each. */
#ifndef ANTIGRAVITY_EVAL_H
#define ANTIGRAVITY_EVAL_H

#include "model_options.h"
#include "prompt.h"

typedef struct eval_options {
    model_options model;
    prompt_options text;
    uint32_t max_windows; /* 0: all */
    bool json;
} eval_options;

/* Perplexity; returns an exit code. */
int eval_ppl(const eval_options *o);

#endif
