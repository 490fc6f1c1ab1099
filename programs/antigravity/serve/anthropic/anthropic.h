/* SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's Messages API: parsers of requests and writers of replies. */
#ifndef ANTIGRAVITY_SERVE_ANTHROPIC_ANTHROPIC_H
#define ANTIGRAVITY_SERVE_ANTHROPIC_ANTHROPIC_H

#include "../protocol/protocol.h"
#include "../request/route.h"

/* parse() of the protocols: messages, and the number of their tokens. */
bool anthropic_parse(const json_t *body, serve_request *r, serve_error *e);
bool anthropic_parse_count(const json_t *body, serve_request *r, serve_error *e);
/* Converts message i of the body and appends it to r->messages. A message with tool results
 * becomes several. */
bool anthropic_read_message(const json_t *message, size_t i, serve_request *r, serve_error *e);

/* Returns {"type": "error", "error": {"type", "message"}}. */
json_t *anthropic_error(const serve_error *e);
/* reply() and event() of the protocols. */
json_t *anthropic_reply(serve_job_view *view);
json_t *anthropic_count(serve_job_view *view);
void anthropic_event(serve_job_view *view, const serve_event *e);

/* State of a stream: the content block that is open. */
typedef struct anthropic_stream {
    enum { ANTHROPIC_NONE, ANTHROPIC_TEXT, ANTHROPIC_THINKING, ANTHROPIC_TOOL } open;
    size_t n_blocks; /* blocks opened so far */
} anthropic_stream;

#endif
