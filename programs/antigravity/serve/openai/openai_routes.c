/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of OpenAI's API. Paths without "/v1" do not require a model name. */
#include "../request/routes.h"
#include "openai.h"

const serve_route openai_routes[] = {
    {"POST", "/v1/chat/completions", .protocol = &openai_chat},
    {"POST", "/v1/completions", .protocol = &openai_completions},
    {"POST", "/v1/chat/completions/input_tokens", .protocol = &openai_chat_count},
    {"POST", "/chat/completions/input_tokens", .protocol = &openai_chat_count,
     .model_optional = true},
    {"POST", "/v1/embeddings", .protocol = &openai_embeddings},
    {"POST", "/chat/completions", .protocol = &openai_chat, .model_optional = true},
    {"POST", "/embeddings", .protocol = &openai_embeddings, .model_optional = true},
    {0},
};
