/* SPDX-License-Identifier: Apache-2.0 */
/* Threads for what takes too long for the event loop and does not need the model: reading bodies,
 * rendering templates, compiling constraints. */
#ifndef ANTIGRAVITY_SERVE_WORK_WORKER_H
#define ANTIGRAVITY_SERVE_WORK_WORKER_H

#include "loop_queue.h"

#include <stddef.h>
#include <stdint.h>

typedef struct workers workers;

/* First in a structure of the sender's. work() runs on a worker's thread, then done() on the
 * loop's. */
typedef struct work_item {
    loop_task task; /* the worker's own */
    struct work_item *next;
    uint64_t order; /* the workers' own: of arrival */
    bool is_large;  /* set by the sender: it may take long */
    void (*work)(struct work_item *item);
    void (*done)(struct work_item *item);
} work_item;

/* n threads; at most max_items wait. Of several threads one takes small jobs only. */
workers *workers_create(loop_queue *queue, size_t n, size_t max_items);
/* Waits for the jobs that are there; their done() is left to the queue. */
void workers_destroy(workers *w);
/* False: too many are waiting. */
bool workers_add(workers *w, work_item *item);

#endif
