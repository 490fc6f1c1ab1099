/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that requests of OpenAI's API and similar protocols share. */
#ifndef ANTIGRAVITY_SERVE_OPENAI_OPENAI_FIELDS_H
#define ANTIGRAVITY_SERVE_OPENAI_OPENAI_FIELDS_H

#include "../protocol/protocol.h"

/* Reads model, temperature, top_p, ..., seed, stop, n, logit_bias, stream, stream_options, and this
 * server's own fields: top_k, min_p, kv_type, ... */
bool openai_read_common(const json_t *body, serve_request *r, serve_error *e);
/* Reads response_format {"type": "json_schema"|"json_object"|"text"}, json_schema, grammar, regex
 * and choice. */
bool openai_read_format(const json_t *body, serve_request *r, serve_error *e);
/* Reads a text, a list of texts, a list of ids, or a list of such lists. r->prompts becomes a
 * list. */
bool openai_read_prompts(const json_t *body, const char *name, serve_request *r, serve_error *e);
/* Reads tool_choice, a word or a function. is_nested: the function's name is in an object
 * "function". */
bool openai_read_tool_choice(const json_t *body, bool is_nested, serve_request *r, serve_error *e);
/* Fails with 400 if a message has a part that is not text. */
bool openai_check_parts(const json_t *messages, serve_error *e);

#endif
