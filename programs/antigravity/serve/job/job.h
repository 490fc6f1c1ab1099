/* SPDX-License-Identifier: Apache-2.0 */
/* A request on its way through the model: made on a worker's thread, then fed by the events of the
 * engine on the thread of the loop. */
#ifndef ANTIGRAVITY_SERVE_JOB_JOB_H
#define ANTIGRAVITY_SERVE_JOB_JOB_H

#include "serve/protocol/protocol.h"

/* On a worker's thread: from the body of the call to its call->run, or to a reply that says what is
 * wrong. */
void run_prepare(serve_call *call);

/* The rest on the loop's. */
/* Bytes that it may take beyond its body and its answers' text: probabilities, and answers that
 * were recalled. */
size_t run_cost(const serve_run *run);
void run_start(serve_run *run);
/* The client has gone, or the server ends. */
void run_cancel(serve_run *run);
/* Once a second: what keeps a connection alive while nothing else is sent. */
void run_tick(serve_run *run, double now);
void run_destroy(serve_run *run); /* NULL is fine */

const serve_exchange *run_exchange(const serve_run *run);
serve_run *run_next(const serve_run *run);

#endif
