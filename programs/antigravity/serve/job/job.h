/* SPDX-License-Identifier: Apache-2.0 */
/* A request on its way through the model: made on a worker's thread, then fed by the events of the
 * engine on the thread of the loop. */
#ifndef ANTIGRAVITY_SERVE_JOB_JOB_H
#define ANTIGRAVITY_SERVE_JOB_JOB_H

#include "serve/protocol/protocol.h"

/* On a worker's thread: from the body of the call to its call->run, or to a reply that says what is
 * wrong. */
void job_prepare(serve_http_request *http);

/* The rest on the loop's. */
/* Bytes that it may take beyond its body and its answers' text: probabilities, and answers that
 * were recalled. */
size_t job_memory_bytes(const serve_job *job);
void job_start(serve_job *job);
/* The client has gone, or the server ends. */
void job_cancel(serve_job *job);
/* Once a second: what keeps a connection alive while nothing else is sent. */
void job_tick(serve_job *job, double now);
void job_destroy(serve_job *job); /* NULL is fine */

const serve_job_view *job_view(const serve_job *job);
serve_job *job_next(const serve_job *job);

#endif
