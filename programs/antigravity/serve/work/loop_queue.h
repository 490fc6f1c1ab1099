/* SPDX-License-Identifier: Apache-2.0 */
/* What other threads want done on the thread of the event loop, in the order in which they said so.
 */
#ifndef ANTIGRAVITY_SERVE_WORK_LOOP_QUEUE_H
#define ANTIGRAVITY_SERVE_WORK_LOOP_QUEUE_H

#include <event2/event.h>
#include <stdbool.h>

/* First in a structure of the sender's. run() may free it. */
typedef struct loop_task {
    struct loop_task *next;
    void (*run)(struct loop_task *task);
} loop_task;

typedef struct loop_queue loop_queue;

loop_queue *loop_queue_create(struct event_base *base);
/* Runs what is left first. No thread may send any more. */
void loop_queue_destroy(loop_queue *q);
/* From any thread; waits for nothing and cannot fail. */
void loop_queue_send(loop_queue *q, loop_task *task);

#endif
