/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of routes, one for each protocol. */
#ifndef ANTIGRAVITY_SERVE_ROUTES_H
#define ANTIGRAVITY_SERVE_ROUTES_H

#include "route.h"

extern const serve_route_list openai_routes;      /* chat completions, completions, embeddings */
extern const serve_route_list model_routes;       /* /v1/models */
extern const serve_route_list token_routes;       /* /tokenize, /detokenize, /apply-template */
extern const serve_route_list state_routes;       /* /health, /metrics, /v1/kv */
extern const serve_route_list kv_routes;          /* /v1/kv/ID */
extern const serve_route_list page_routes;        /* / and what the page consists of */
extern const serve_route_list anthropic_routes;   /* /v1/messages */
extern const serve_route_list responses_routes;   /* /v1/responses */
extern const serve_route_list ollama_routes;      /* /api/... */
extern const serve_route_list llama_routes;       /* /completion */
extern const serve_route_list llama_state_routes; /* /props, /slots */

#endif
