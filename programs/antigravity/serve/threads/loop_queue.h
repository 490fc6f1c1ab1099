/* SPDX-License-Identifier: Apache-2.0 */
/* Queue of tasks that other threads send to the event loop. Tasks run in the order in which they
 * were sent. */
#ifndef ANTIGRAVITY_SERVE_THREADS_LOOP_QUEUE_H
#define ANTIGRAVITY_SERVE_THREADS_LOOP_QUEUE_H

#include <event2/event.h>
#include <stdbool.h>

/* Must be the first member of the sender's structure. run() may free it. */
typedef struct loop_task {
    struct loop_task *next;
    void (*run)(struct loop_task *task);
} loop_task;

typedef struct loop_queue loop_queue;

/* Returns a new queue, or NULL on failure. */
loop_queue *loop_queue_create(struct event_base *base);
/* Runs the remaining tasks first. No thread may send afterwards. */
void loop_queue_destroy(loop_queue *q);
/* Sends a task. May be called from any thread; does not block and cannot fail. */
void loop_queue_send(loop_queue *q, loop_task *task);

#endif
