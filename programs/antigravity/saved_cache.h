/* SPDX-License-Identifier: Apache-2.0 */
/* generate's --load-cache, --save-cache and --prompt-cache: a conversation's cache in a file. */
#ifndef ANTIGRAVITY_SAVED_CACHE_H
#define ANTIGRAVITY_SAVED_CACHE_H

#include "model/engine.h"
#include "model/prompt.h"

typedef struct saved_options {
    const char *load, *save, *prompt; /* files; NULL: not wanted */
} saved_options;

option_group saved_group(saved_options *o);
/* Whether the options go together and the files can be read and written. Returns an exit code. */
int saved_check(const saved_options *o);

/* Tokens of the conversation, in order. The session has consumed the first ones of them; the last
 * token of a generation it has not. */
typedef struct saved_cache {
    ag_ids ids;
    bool ids_are_unknown; /* a loaded cache came without its tokens */
    size_t n_reused;      /* of the prompt, that need no reading */
} saved_cache;

void saved_free(saved_cache *k);
/* Before the prompt is consumed: fills the session as the options say, tells the sampler of the
 * tokens it holds, and adds the prompt's to the list. Returns an exit code, as all here. */
int saved_begin(saved_cache *k, const saved_options *o, const engine *e, const prompt *p,
                ag_sampler *sampler, const model_options *m);
/* The prompt has been consumed: for the next run with --prompt-cache. */
int saved_after_prompt(saved_cache *k, const saved_options *o, const engine *e, const prompt *p);
/* The generation has ended: for --save-cache. */
int saved_end(saved_cache *k, const saved_options *o, const engine *e, bool verbose);

#endif
