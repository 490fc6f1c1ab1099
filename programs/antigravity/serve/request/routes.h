/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of routes, and the search in all of them. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_ROUTES_H
#define ANTIGRAVITY_SERVE_REQUEST_ROUTES_H

#include "route.h"

extern const serve_route openai_routes[];      /* chat completions, completions, embeddings */
extern const serve_route model_routes[];       /* /v1/models */
extern const serve_route token_routes[];       /* /tokenize, /detokenize, /apply-template */
extern const serve_route state_routes[];       /* /health, /v1/kv */
extern const serve_route metrics_routes[];     /* /metrics */
extern const serve_route kv_routes[];          /* /v1/kv/ID */
extern const serve_route page_routes[];        /* the page and its files */
extern const serve_route anthropic_routes[];   /* /v1/messages */
extern const serve_route responses_routes[];   /* /v1/responses */
extern const serve_route ollama_routes[];      /* /api/... */
extern const serve_route management_routes[];  /* /api/pull and others that change models */
extern const serve_route llama_routes[];       /* /completion, /infill */
extern const serve_route llama_state_routes[]; /* /props, /slots */

/* Returns the route of a path, or NULL. Then *allowed lists the methods that the path has, or is
 * NULL. */
const serve_route *route_find(const char *method, const char *path, const char **tail,
                              const char **allowed);

#endif
