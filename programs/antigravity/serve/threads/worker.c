/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct item_list {
    work_item *first, **last;
} item_list;

struct workers {
    loop_queue *queue;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    item_list small, large;
    size_t n_waiting, max_waiting;
    uint64_t n_added;
    bool is_stopping;
    size_t n_threads, n_large_busy;
    pthread_t threads[];
};

static void finish_item(loop_task *task) {
    work_item *item = (work_item *)task;
    item->done(item);
}

/* Returns the list whose first item a worker may take next, the older one first; NULL: none. One
 * worker always stays free for small items, unless there is only one. */
static item_list *next_list(workers *w) {
    const bool may_take_large = w->n_large_busy + 1 < w->n_threads || w->n_threads == 1;
    const work_item *small = w->small.first, *large = may_take_large ? w->large.first : NULL;
    if (!small) return large ? &w->large : NULL;
    return large && large->order < small->order ? &w->large : &w->small;
}

static work_item *next_item(workers *w) {
    item_list *list;
    work_item *item = NULL;
    pthread_mutex_lock(&w->lock);
    while (!(list = next_list(w)) && !(w->is_stopping && !w->large.first))
        pthread_cond_wait(&w->changed, &w->lock);
    if (list) {
        item = list->first;
        list->first = item->next;
        if (!list->first) list->last = &list->first;
        w->n_waiting--;
        w->n_large_busy += item->is_large;
    }
    pthread_mutex_unlock(&w->lock);
    return item;
}

static void finish_large(workers *w) {
    pthread_mutex_lock(&w->lock);
    w->n_large_busy--;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void *run_worker(void *user) {
    workers *w = user;
    for (work_item *item; (item = next_item(w)) != NULL;) {
        const bool is_large = item->is_large;
        item->work(item);
        if (is_large) finish_large(w);
        item->task.run = finish_item;
        loop_queue_send(w->queue, &item->task);
    }
    return NULL;
}

workers *workers_create(loop_queue *queue, size_t n, size_t max_items) {
    workers *w = calloc(1, sizeof *w + n * sizeof w->threads[0]);
    if (!w) return NULL;
    w->queue = queue;
    w->max_waiting = max_items;
    w->small.last = &w->small.first;
    w->large.last = &w->large.first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    pthread_mutex_lock(&w->lock); /* threads read n_threads */
    for (size_t i = 0; i < n; i++)
        if (pthread_create(&w->threads[w->n_threads], NULL, run_worker, w) == 0) w->n_threads++;
    pthread_mutex_unlock(&w->lock);
    if (w->n_threads) return w;
    workers_destroy(w);
    return NULL;
}

void workers_destroy(workers *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->is_stopping = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < w->n_threads; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

bool workers_add(workers *w, work_item *item) {
    item->next = NULL;
    pthread_mutex_lock(&w->lock);
    const bool fits = w->n_waiting < w->max_waiting && !w->is_stopping;
    if (fits) {
        item_list *list = item->is_large ? &w->large : &w->small;
        item->order = w->n_added++;
        *list->last = item;
        list->last = &item->next;
        w->n_waiting++;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return fits;
}
