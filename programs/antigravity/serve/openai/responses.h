/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's Responses API: the parser of requests, the response object, and the events of a
 * stream. */
#ifndef ANTIGRAVITY_SERVE_OPENAI_RESPONSES_H
#define ANTIGRAVITY_SERVE_OPENAI_RESPONSES_H

#include "../protocol/protocol.h"
#include "../request/route.h"

/* parse() of the protocols: a response, and the number of its input tokens. */
bool responses_parse(const json_t *body, serve_request *r, serve_error *e);
bool responses_parse_count(const json_t *body, serve_request *r, serve_error *e);
/* Converts "input", a string or a list of items, and appends the messages to r->messages. */
bool responses_read_input(json_t *input, serve_request *r, serve_error *e);

/* ---- stored responses ---- */

/* Appends the conversation of a stored response of this client, and its output, to items. */
bool responses_read_history(const char *id, const serve_request *r, json_t *items, serve_error *e);
/* Appends the input (NULL: none) to items, and keeps them in r->stored_text unless they are too
 * large for the store. */
bool responses_keep_conversation(json_t *input, json_t *items, serve_request *r, serve_error *e);
/* Stores a complete response if the client wants that; else its "store" becomes false. */
void responses_store(const serve_job_view *view, json_t *response);
/* Handlers of GET and DELETE /v1/responses/ID. */
void responses_retrieve(serve_http_request *http);
void responses_delete(serve_http_request *http);

/* ---- items of the output ---- */

/* Return an item of answers[0]. status: "in_progress", "completed" or "incomplete". `index` makes
 * the id unique within the response. content is transferred. */
json_t *responses_message(const serve_job_view *view, size_t index, json_t *content,
                          const char *status);
json_t *responses_text_part(const char *text, size_t len, json_t *logprobs);
json_t *responses_reasoning(const serve_job_view *view, size_t index, json_t *content);
json_t *responses_reasoning_part(const char *text, size_t len);
json_t *responses_call(const serve_job_view *view, size_t index, const serve_tool_call *c,
                       const char *status);
/* Returns the tokens with their probabilities; an empty list if the client did not request them. */
json_t *responses_logprobs(const serve_job_view *view, const serve_token *tokens, size_t n);
/* Writes PREFIX, "_", and an id that is unique. prefix: "msg", "fc" or "rs". */
void responses_item_id(char id[static 56], const char *prefix, const serve_job_view *view,
                       size_t index);

/* Returns the response itself. output and error are transferred; NULL: none. */
json_t *responses_object(const serve_job_view *view, const char *status, json_t *output,
                         json_t *error);
/* Returns "completed", or "incomplete" if the answer was truncated. */
const char *responses_status(const serve_job_view *view);
/* reply(), event() and close() of the protocol. */
json_t *responses_reply(serve_job_view *view);

/* ---- events ---- */

typedef struct responses_stream {
    enum { RESPONSES_NONE, RESPONSES_TEXT, RESPONSES_REASONING, RESPONSES_CALL } open;
    size_t sequence;              /* number of the next event */
    size_t index;                 /* index of the open item, or of the next */
    size_t from;                  /* TEXT, REASONING: start of the item in the answer's text */
    size_t first_token, n_tokens; /* TEXT: range of answers[0].tokens, with logprobs */
    size_t call;                  /* CALL: index of the call */
    json_t *output;               /* items that are complete */
} responses_stream;

void responses_event(serve_job_view *view, const serve_event *e);
void responses_close(void *state);

#endif
