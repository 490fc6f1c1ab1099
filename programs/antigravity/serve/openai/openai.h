/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's API: chat completions, completions, embeddings. */
#ifndef ANTIGRAVITY_SERVE_OPENAI_OPENAI_H
#define ANTIGRAVITY_SERVE_OPENAI_OPENAI_H

#include "../request/route.h"

extern const serve_protocol openai_chat;
extern const serve_protocol openai_chat_count; /* number of tokens of the messages */
extern const serve_protocol openai_completions;
extern const serve_protocol openai_embeddings;

bool openai_chat_parse(const json_t *body, serve_request *r, serve_error *e);

#endif
