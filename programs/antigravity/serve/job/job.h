/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: the generation that a request starts. A worker prepares a job; the event loop then feeds it
 * with the engine's events. */
#ifndef ANTIGRAVITY_SERVE_JOB_JOB_H
#define ANTIGRAVITY_SERVE_JOB_JOB_H

#include "../protocol/protocol.h"

/* Prepares http->job from the body, or sets an error reply. Called on a worker's thread; the
 * functions below are called on the thread of the event loop. */
void job_prepare(serve_http_request *http);

/* Returns the bytes that the job may need beyond its body and its answers' text: probabilities,
 * restored answers and the reply as JSON. */
size_t job_memory_bytes(const serve_job *job);
/* Submits the prompts to the engine. Sends the reply when all have ended. */
void job_start(serve_job *job);
/* Cancels all prompts of the job: the client has gone, or the server stops. */
void job_cancel(serve_job *job);
/* Called once a second. Sends an idle event if the stream has been silent for five seconds. */
void job_tick(serve_job *job, double now);
/* Frees a job that has ended, or that was not started. NULL is allowed. May be called on any
 * thread. */
void job_destroy(serve_job *job);

/* Returns the view for protocols; it belongs to the job. */
const serve_job_view *job_view(const serve_job *job);
/* Returns the next job in the server's list, or NULL. */
serve_job *job_next(const serve_job *job);

#endif
