/* SPDX-License-Identifier: Apache-2.0 */
/* --load-cache, --save-cache and --prompt-cache of generate: a session's cache in a file. */
#ifndef ANTIGRAVITY_SAVED_CACHE_H
#define ANTIGRAVITY_SAVED_CACHE_H

#include "model/engine.h"
#include "model/prompt.h"

typedef struct saved_options {
    const char *load, *save, *prompt; /* files; NULL: not given */
} saved_options;

option_group saved_group(saved_options *o);
/* Checks the options together and that the files can be read and written. Returns an exit code. */
int saved_check(const saved_options *o);

/* Tokens of the conversation, in order. The session has consumed a prefix of them, but not the last
 * token of a generation. */
typedef struct saved_cache {
    ag_ids ids;
    bool ids_are_unknown; /* the loaded file has no token ids */
    size_t n_reused;      /* tokens of the prompt that are cached */
} saved_cache;

void saved_free(saved_cache *k);
/* Called before the prompt is consumed. Fills the session as the options say, passes its tokens to
 * the sampler, and adds the prompt's ids. Returns an exit code. */
int saved_begin(saved_cache *k, const saved_options *o, const engine *e, const prompt *p,
                ag_sampler *sampler, const model_options *m);
/* Called after the prompt was consumed. Saves --prompt-cache. Returns an exit code. */
int saved_after_prompt(saved_cache *k, const saved_options *o, const engine *e, const prompt *p);
/* Called after the generation. Saves --save-cache. Returns an exit code. */
int saved_end(saved_cache *k, const saved_options *o, const engine *e, bool verbose);

#endif
