/* SPDX-License-Identifier: Apache-2.0 */
/* Which request goes where, and what a handler may do with it. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_ROUTE_H
#define ANTIGRAVITY_SERVE_REQUEST_ROUTE_H

#include "serve/protocol/protocol.h"

#include <antigravity/serving.h>

/* One line of a list, which a line without a path ends. Either `protocol` is given, and the request
 * goes through the model, or `handle`, which answers by itself with one of the call_reply
 * functions: a GET on the thread of the connections, so it must be quick, unless it `waits`; others
 * on a worker's. */
typedef struct serve_route {
    const char *method; /* "GET" also answers HEAD */
    const char
        *path; /* an end of "/" and "*" stands for one more part, or several: http_path_tail() */
    void (*handle)(serve_http_request *http);
    const serve_protocol *protocol;
    bool is_public;                         /* needs no key, because it tells nothing of anybody */
    json_t *(*error)(const serve_error *e); /* NULL: the protocol's, or else OpenAI's */
    bool model_optional;                    /* a request without a model takes the first one */
    bool waits;                             /* a GET that is not quick, and goes to a worker */
} serve_route;

/* ---- what a request says ---- */

/* NULL: no such header; name in small letters. The value is borrowed from the call. */
const char *http_header(const serve_http_request *http, const char *name);
const char *http_query(const serve_http_request *http); /* what follows a '?', or "" */
const char *
http_path_tail(const serve_http_request *http); /* what the '*' of the route stands for */
/* The body's JSON, an object, of a request that is not GET; borrowed. */
const json_t *http_body(const serve_http_request *http);
/* Frees the body: what is needed of it has been taken. */
void http_drop_body(serve_http_request *http);
/* Whose request it is: a number made of its key, "" without keys. */
const char *http_scope(const serve_http_request *http);

/* ---- what there is to tell ---- */

ag_serving *http_serving(const serve_http_request *http);
/* The model of that name. NULL: *e says that there is none (404), or, of a name that is NULL, that
 * one is needed (400), unless the route goes without. */
ag_served_model *http_model(const serve_http_request *http, const char *name, serve_error *e);
/* All names that requests may give, aliases included. */
const char *const *http_model_names(const serve_http_request *http, size_t *n);
int64_t
http_server_started(const serve_http_request *http); /* when the server was, seconds since 1970 */

/* The ids of messages in the model's template, as a request with them would have them; *text, which
 * may be NULL, gets them spelled out. Not on the thread of the connections. */
bool serve_render(const serve_http_request *http, ag_served_model *model, serve_request *r,
                  ag_ids *ids, ag_text *text, serve_error *e);

/* ---- replies: one of them, once ---- */

void http_reply_json(serve_http_request *http, int status,
                     json_t *value); /* transferred; NULL: 503 */
void http_reply_text(serve_http_request *http, int status, const char *type, const char *text,
                     size_t n);
void http_reply_error(serve_http_request *http, const serve_error *e); /* in the route's shape */
/* A header of the reply besides: before it. */
void http_reply_header(serve_http_request *http, const char *name, const char *value);

#endif
