/* SPDX-License-Identifier: Apache-2.0 */
/* What the requests of OpenAI's interface, and of those like it, have in common. */
#ifndef ANTIGRAVITY_SERVE_OPENAI_OPENAI_FIELDS_H
#define ANTIGRAVITY_SERVE_OPENAI_OPENAI_FIELDS_H

#include "serve/protocol/protocol.h"

/* model, temperature, top_p, ..., seed, stop, n, logit_bias, stream, stream_options, and what this
 * server has beside OpenAI's: top_k, min_p, kv_type, ... */
bool openai_read_common(const json_t *body, serve_request *r, serve_error *e);
/* response_format {"type": "json_schema"|"json_object"|"text"}, and grammar, regex, choice. */
bool openai_read_format(const json_t *body, serve_request *r, serve_error *e);
/* A text, a list of texts, a list of ids, or a list of such lists: r->prompts becomes a list. */
bool openai_read_prompts(const json_t *body, const char *name, serve_request *r, serve_error *e);
/* tool_choice: a word, or a function. is_nested: its name is in an object "function". */
bool openai_read_tool_choice(const json_t *body, bool is_nested, serve_request *r, serve_error *e);
/* Contents of messages that are no text: refused, naming the message. */
bool openai_check_parts(const json_t *messages, serve_error *e);

#endif
