/* SPDX-License-Identifier: Apache-2.0 */
/* Routes, and the functions that handlers may call. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_ROUTE_H
#define ANTIGRAVITY_SERVE_REQUEST_ROUTE_H

#include "../models/model_list.h"
#include "../protocol/protocol.h"

#include <antigravity/serving.h>

/* A route. A list of routes ends with one whose path is NULL. A route has a `protocol`, which runs
 * the model, or `handle`, which must call one of the http_reply functions. GET handlers run on the
 * thread of the event loop and must be quick, unless `waits` is set; all others run on a worker's
 * thread. */
typedef struct serve_route {
    const char *method; /* "GET" also matches HEAD */
    const char *path;   /* a final "*" matches one or more characters: http_path_tail() */
    void (*handle)(serve_http_request *http);
    const serve_protocol *protocol;
    bool is_public; /* no key needed: the reply reveals nothing about any client */
    json_t *(*error)(const serve_error *e); /* NULL: the protocol's, or OpenAI's */
    bool model_optional;                    /* without a model name the first model is used */
    bool changes_models;                    /* needs --allow-pull and an admin: see api_keys.h */
    bool waits; /* a slow GET, or a request without a body: it runs on a worker's thread */
} serve_route;

/* ---- the request ---- */

/* Returns a header, borrowed, or NULL. name: lower case. */
const char *http_header(const serve_http_request *http, const char *name);
/* Returns whether the client uses Anthropic's API: it sends anthropic-version. */
bool http_is_anthropic(const serve_http_request *http);
const char *http_query(const serve_http_request *http); /* after the '?', or "" */
const char *
http_path_tail(const serve_http_request *http); /* after the last '/' of a route with '*' */
/* Returns the parsed body, a JSON object, borrowed; NULL for GET. */
const json_t *http_body(const serve_http_request *http);
/* Frees the body. */
void http_drop_body(serve_http_request *http);
/* Returns the scope of the client's cached sessions: digits of its key's hash; "" without keys or
 * with --share-prefixes. */
const char *http_scope(const serve_http_request *http);

/* Returns the client's name: digits of its key's hash; "" without keys. */
const char *http_client(const serve_http_request *http);

/* ---- the server ---- */

ag_serving *http_serving(const serve_http_request *http);
/* Returns the model of that name; NULL: the first one if the route allows that. Returns NULL with
 * *e if there is no such model (404) or a name is required (400). */
ag_served_model *http_model(const serve_http_request *http, const char *name, serve_error *e);
/* Does the same for the model's entry in the list. */
const model_entry *http_model_entry(const serve_http_request *http, const char *name,
                                    serve_error *e);
/* Returns the list of models. */
model_list *http_models(const serve_http_request *http);
/* Returns the store of responses. */
struct response_store *http_responses(const serve_http_request *http);
int64_t http_server_started(const serve_http_request *http); /* seconds since 1970 */

/* Renders r->messages with the model's template into ids, and into *text unless it is NULL. Frees
 * r->messages and r->tools. Must not be called on the thread of the event loop. */
bool serve_render(ag_served_model *model, serve_request *r, ag_ids *ids, ag_text *text,
                  serve_error *e);

/* ---- replies: exactly one for each request ---- */

/* Replies with a value, which is transferred; NULL: 503. */
void http_reply_json(serve_http_request *http, int status, json_t *value);
/* Replies with a copy of text[0..n). type: media type; NULL: none. */
void http_reply_text(serve_http_request *http, int status, const char *type, const char *text,
                     size_t n);
/* Replies with an error in the route's format. */
void http_reply_error(serve_http_request *http, const serve_error *e);
/* Adds a header. Must be called before the reply is sent. */
void http_reply_header(serve_http_request *http, const char *name, const char *value);

#endif
