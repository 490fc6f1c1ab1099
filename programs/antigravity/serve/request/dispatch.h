/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a request: from its head to a handler or to the model, and its end. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_DISPATCH_H
#define ANTIGRAVITY_SERVE_REQUEST_DISPATCH_H

#include "http_request.h"

/* Takes the head of the connection, whose owner it becomes. NULL: out of memory. */
serve_http_request *http_request_create(server *s, connection *c);
/* The body is there: to the handler, or to the model. */
void http_request_start(serve_http_request *http);
/* The client has gone, or has its response. */
void http_request_end(serve_http_request *http, bool complete);

/* admission.c: whether the head alone is reason to refuse; then *e says why. True with route NULL:
 * it was an OPTIONS, and is replied to. */
bool http_request_admit(serve_http_request *http, serve_error *e);

#endif
