/* SPDX-License-Identifier: Apache-2.0 */
/* Where OpenAI's interface is found. Without "/v1" a model need not be named. */
#include "openai.h"
#include "routes.h"

static const serve_route openai_paths[] = {
    {.method = "POST", .path = "/v1/chat/completions", .protocol = &openai_chat, .needs_key = true},
    {.method = "POST",
     .path = "/v1/completions",
     .protocol = &openai_completions,
     .needs_key = true},
    {.method = "POST",
     .path = "/v1/chat/completions/input_tokens",
     .protocol = &openai_chat_count,
     .needs_key = true},
    {.method = "POST",
     .path = "/chat/completions/input_tokens",
     .protocol = &openai_chat_count,
     .needs_key = true,
     .model_optional = true},
    {.method = "POST", .path = "/v1/embeddings", .protocol = &openai_embeddings, .needs_key = true},
    {.method = "POST",
     .path = "/chat/completions",
     .protocol = &openai_chat,
     .needs_key = true,
     .model_optional = true},
    {.method = "POST",
     .path = "/embeddings",
     .protocol = &openai_embeddings,
     .needs_key = true,
     .model_optional = true},
};

const serve_route_list openai_routes = {openai_paths, sizeof openai_paths / sizeof openai_paths[0]};
