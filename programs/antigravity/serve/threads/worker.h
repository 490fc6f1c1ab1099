/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads for work that is too slow for the event loop and does not run the model: parsing
 * bodies, rendering templates, compiling constraints. */
#ifndef ANTIGRAVITY_SERVE_THREADS_WORKER_H
#define ANTIGRAVITY_SERVE_THREADS_WORKER_H

#include "loop_queue.h"

#include <stddef.h>
#include <stdint.h>

typedef struct workers workers;

/* Must be the first member of the sender's structure. work() runs on a worker's thread, then done()
 * on the event loop's. */
typedef struct work_item {
    loop_task task; /* the worker's own */
    struct work_item *next;
    uint64_t order; /* order of arrival; the workers' own */
    bool is_large;  /* set by the sender: it may take long */
    void (*work)(struct work_item *item);
    void (*done)(struct work_item *item);
} work_item;

/* Starts n threads; at most max_items may wait. With several threads, one always stays free for
 * small items. Returns NULL if no thread could be started. */
workers *workers_create(loop_queue *queue, size_t n, size_t max_items);
/* Waits for the remaining items. Their done() runs in the queue. */
void workers_destroy(workers *w);
/* Adds an item. Fails if max_items are waiting. */
bool workers_add(workers *w, work_item *item);

#endif
