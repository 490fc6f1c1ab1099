/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of routes, one for each protocol. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_ROUTES_H
#define ANTIGRAVITY_SERVE_REQUEST_ROUTES_H

#include "route.h"

extern const serve_route openai_routes[];      /* chat completions, completions, embeddings */
extern const serve_route model_routes[];       /* /v1/models */
extern const serve_route token_routes[];       /* /tokenize, /detokenize, /apply-template */
extern const serve_route state_routes[];       /* /health, /v1/kv */
extern const serve_route metrics_routes[];     /* /metrics */
extern const serve_route kv_routes[];          /* /v1/kv/ID */
extern const serve_route page_routes[];        /* / and what the page consists of */
extern const serve_route anthropic_routes[];   /* /v1/messages */
extern const serve_route responses_routes[];   /* /v1/responses */
extern const serve_route ollama_routes[];      /* /api/... */
extern const serve_route llama_routes[];       /* /completion */
extern const serve_route llama_state_routes[]; /* /props, /slots */

/* The route of a path; NULL: none. *allowed: the methods that it has, for another one. */
const serve_route *route_find(const char *method, const char *path, const char **tail,
                              const char **allowed);

#endif
