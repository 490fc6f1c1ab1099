/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a request: from its head to a handler or to the model, and its end. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_DISPATCH_H
#define ANTIGRAVITY_SERVE_REQUEST_DISPATCH_H

#include "http_request.h"

/* Takes the head of the connection, whose owner it becomes. NULL: out of memory. */
serve_call *call_create(server *s, connection *c);
/* The body is there: to the handler, or to the model. */
void call_start(serve_call *call);
/* The client has gone, or has its response. */
void call_over(serve_call *call, bool complete);

/* admission.c: whether the head alone is reason to refuse; then *e says why. True with route NULL:
 * it was an OPTIONS, and is replied to. */
bool call_admit(serve_call *call, serve_error *e);

#endif
