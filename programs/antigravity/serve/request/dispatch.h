/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of requests: from the head to a handler or the model, and the end of a request. All
 * functions run on the thread of the event loop. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_DISPATCH_H
#define ANTIGRAVITY_SERVE_REQUEST_DISPATCH_H

#include "http_request.h"

/* Creates the request of a connection and becomes its owner. Returns NULL without memory. */
serve_http_request *http_request_create(server *s, connection *c);
/* Starts the handler or the job of a request whose body is complete. */
void http_request_start(serve_http_request *http);
/* Ends a request: the client has gone, or the response has been sent. */
void http_request_end(serve_http_request *http, bool complete);

/* admission.c. Returns whether the head admits the request; if not, *e is the error. OPTIONS is
 * admitted with route NULL and a reply. */
bool http_request_admit(serve_http_request *http, serve_error *e);

#endif
