/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that change the models of the store, in ollama's API: copy, create, delete and pull.
 * Their routes need --allow-pull and an admin. */
#ifndef ANTIGRAVITY_SERVE_MODELS_MANAGEMENT_H
#define ANTIGRAVITY_SERVE_MODELS_MANAGEMENT_H

#include "../request/route.h"
#include "served_models.h"

/* Handler of POST /api/pull; pull_request.h continues it. */
void manage_pull(serve_http_request *http);

/* Makes `name` another name of the model: an alias, which lists omit. Returns false with
 * reason[256]. */
bool manage_add_alias(served_models *s, const model_entry *of, const char *name, char *reason);

#endif
