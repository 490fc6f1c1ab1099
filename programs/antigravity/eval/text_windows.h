/* SPDX-License-Identifier: Apache-2.0 */
/* Text windows: a text that is predicted token by token, window by window. */
#ifndef ANTIGRAVITY_TEXT_WINDOWS_H
#define ANTIGRAVITY_TEXT_WINDOWS_H

#include "../model/engine.h"
#include "../model/prompt.h"

typedef struct text_options {
    prompt_options prompt;
    uint32_t max_windows; /* 0: all */
    uint32_t max_tokens;  /* 0: all */
} text_options;

option_group windows_group(text_options *o); /* follows prompt_group(&o->prompt) */
/* Takes the operand, if any, as the file. Returns an exit code. */
int text_operand(const command_line *line, text_options *o);
/* Sets eviction after each chunk of the text. Returns EXIT_USAGE for --kv-prefill whole. */
int text_evict_in_chunks(ag_eviction_params *p);

typedef struct eval_text {
    prompt text;                /* ids without BOS, cut to what is read */
    ag_ids bos;                 /* prefix of each window */
    size_t window;              /* tokens of the longest window, including BOS */
    size_t n_windows, n_tokens; /* total of all windows, including BOS */
    int32_t *ids;               /* [window] ids of the last text_window() */
} eval_text;

/* Reads the text, inspects the model and divides the text into windows of the context's length.
 * one_window: the text is one window. Returns an exit code. */
int text_open(eval_text *t, const text_options *o, engine *e, const model_options *m,
              bool one_window);
/* Returns the ids of the i-th window, *n of them. Valid until the next call. */
const int32_t *text_window(eval_text *t, size_t i, size_t *n);
void text_free(eval_text *t);

#endif
