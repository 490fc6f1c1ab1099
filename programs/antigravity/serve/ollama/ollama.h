/* SPDX-License-Identifier: Apache-2.0 */
/* ollama's API: chat, generate and embed with replies as lines of JSON, and queries about models.
 * serve/models/management.h has the requests that change models. */
#ifndef ANTIGRAVITY_SERVE_OLLAMA_OLLAMA_H
#define ANTIGRAVITY_SERVE_OLLAMA_OLLAMA_H

#include "../protocol/protocol.h"
#include "../request/route.h"

/* parse() of the protocols. */
bool ollama_parse_chat(const json_t *body, serve_request *r, serve_error *e);
bool ollama_parse_generate(const json_t *body, serve_request *r, serve_error *e);
bool ollama_parse_embed(const json_t *body, serve_request *r, serve_error *e);
bool ollama_parse_embeddings(const json_t *body, serve_request *r, serve_error *e);
/* Numbers of calls and results in earlier messages. They become the ids of the next ones. */
typedef struct ollama_counts {
    size_t n_calls, n_results;
} ollama_counts;
/* Converts a message and appends it to r->messages. */
bool ollama_read_message(const json_t *message, ollama_counts *before, serve_request *r,
                         serve_error *e);
/* Reads the members of "options" into the request. */
bool ollama_read_options(const json_t *o, serve_request *r, serve_error *e);
/* Reads "model" or "name"; *name stays NULL if both are missing or empty. */
bool ollama_read_name(const json_t *body, const char **name, serve_error *e);

json_t *ollama_error(const serve_error *e); /* {"error": TEXT} */
/* reply() and event() of the protocols. */
json_t *ollama_chat_reply(serve_job_view *view);
json_t *ollama_generate_reply(serve_job_view *view);
json_t *ollama_embed_reply(serve_job_view *view);
json_t *ollama_embeddings_reply(serve_job_view *view);
void ollama_chat_event(serve_job_view *view, const serve_event *e);
void ollama_generate_event(serve_job_view *view, const serve_event *e);

/* Writes a time as "2026-11-22T17:00:00.123456Z". seconds: since 1970. */
void ollama_time(char text[static 32], double seconds);

/* Handlers of routes. */
void ollama_version(serve_http_request *http);
void ollama_tags(serve_http_request *http);
void ollama_ps(serve_http_request *http);
void ollama_show(serve_http_request *http);
void ollama_reject(serve_http_request *http); /* replies 403 to requests for files of models */

#endif
