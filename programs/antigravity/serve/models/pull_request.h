/* SPDX-License-Identifier: Apache-2.0 */
/* A running POST /api/pull. All functions run on the thread of the event loop. */
#ifndef ANTIGRAVITY_SERVE_MODELS_PULL_REQUEST_H
#define ANTIGRAVITY_SERVE_MODELS_PULL_REQUEST_H

#include "../protocol/protocol.h"

typedef struct pull_request pull_request; /* one block of memory until it starts */

/* Starts the pull of the request, http->pull, and its reply. */
void pull_start(serve_http_request *http);
/* Ends the pull early: its reply is an error. NULL: nothing. */
void pull_cancel(pull_request *p);
/* Ends the pull that `http` started, because its client has gone. */
void pull_client_gone(const serve_http_request *http);

#endif
