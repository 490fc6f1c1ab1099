/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is predicted token by token, in windows. */
#ifndef ANTIGRAVITY_TEXT_WINDOWS_H
#define ANTIGRAVITY_TEXT_WINDOWS_H

#include "../model/engine.h"
#include "../model/prompt.h"

typedef struct text_options {
    prompt_options prompt;
    uint32_t max_windows; /* 0: all */
    uint32_t max_tokens;  /* 0: all */
} text_options;

option_group windows_group(text_options *o); /* beside prompt_group(&o->prompt) */
/* The word after the measure, if there is one, is the file. Returns an exit code. */
int text_operand(const command_line *line, text_options *o);
/* What leaves the cache leaves while the text is read. Returns an exit code. */
int text_evict_in_chunks(ag_eviction_params *p);

typedef struct eval_text {
    prompt text;                /* its ids are without BOS; cut to what is read */
    ag_ids bos;                 /* what each window begins with */
    size_t window;              /* tokens of the longest, BOS included */
    size_t n_windows, n_tokens; /* of all windows together, BOS included */
    int32_t *ids;               /* [window] of the window last asked for */
} eval_text;

/* Reads the text, then inspects the model, then divides the text into windows of the context's
 * length, or `whole` makes one. */
int text_open(eval_text *t, const text_options *o, engine *e, const model_options *m,
              bool one_window);
/* The i-th window's ids; *n of them. */
const int32_t *text_window(eval_text *t, size_t i, size_t *n);
void text_free(eval_text *t);

#endif
