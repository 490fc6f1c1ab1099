/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is predicted token by token, in windows. */
#ifndef ANTIGRAVITY_EVAL_TEXT_H
#define ANTIGRAVITY_EVAL_TEXT_H

#include "engine.h"
#include "prompt.h"

typedef struct text_options {
    prompt_options prompt;
    uint32_t max_windows; /* 0: all */
    uint32_t max_tokens;  /* 0: all */
} text_options;

option_group windows_group(text_options *o); /* beside prompt_group(&o->prompt) */
/* The word after the measure, if there is one, is the file. Returns an exit code. */
int text_operand(const command_line *line, text_options *o);

typedef struct eval_text {
    prompt text;                /* its ids are without BOS; cut to what is read */
    ag_ids bos;                 /* what each window begins with */
    size_t window;              /* tokens of the longest, BOS included */
    size_t n_windows, n_tokens; /* of all windows together, BOS included */
    int32_t *ids;               /* [window] of the window last asked for */
} eval_text;

/* Reads the text before the model is looked at: what may be wrong with it is said first. */
int text_read(eval_text *t, const text_options *o);
/* Windows of at most `window` tokens; 0: one for all of the text. */
int text_prepare(eval_text *t, const text_options *o, const engine *e, size_t window);
/* The i-th window's ids; *n of them. */
const int32_t *text_window(eval_text *t, size_t i, size_t *n);
void text_free(eval_text *t);

/* log(sum(exp(logits))), in double: logits[id] minus it is the token's log-probability. */
double log_sum_exp(const float *logits, size_t n);

typedef struct mean_error {
    double mean, error; /* standard error of the mean; 0 for a single value */
} mean_error;
mean_error mean_of(const double *x, size_t n);

#endif
