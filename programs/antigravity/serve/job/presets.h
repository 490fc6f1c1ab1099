/* SPDX-License-Identifier: Apache-2.0 */
/* Presets that requests name as their model. */
#ifndef ANTIGRAVITY_SERVE_JOB_PRESETS_H
#define ANTIGRAVITY_SERVE_JOB_PRESETS_H

#include "../protocol/protocol.h"

typedef struct serve_presets serve_presets;

/* Reads all presets of the user. Reports those with faults and leaves them out. NULL: there are
 * none. */
serve_presets *serve_presets_read(void);
void serve_presets_free(serve_presets *p);

/* If r->model names a preset and no served model, replaces it by the preset's model and fills the
 * fields that the request does not set: system prompt, sampling, max_tokens, reasoning, KV cache.
 * Returns false with *e without memory, or if that model is not served. p may be NULL. */
bool serve_presets_apply(const serve_presets *p, serve_request *r, serve_error *e);

/* Returns a list of {"name", "options"}; NULL without memory. */
json_t *serve_presets_list(const serve_presets *p);

#endif
