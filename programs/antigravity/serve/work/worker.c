/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct job_list {
    worker_job *first, **last;
} job_list;

struct workers {
    loop_queue *queue;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job_list small, large;
    size_t n_waiting, max_waiting;
    uint64_t n_added;
    bool stops;
    size_t n_threads, n_busy_with_large;
    pthread_t threads[];
};

static void finish_job(loop_task *task) {
    worker_job *job = (worker_job *)task;
    job->done(job);
}

/* The list whose first job this worker may take next, the older one first; NULL: neither. One
 * worker is always left to small jobs, unless there is only one. */
static job_list *next_list(workers *w) {
    const bool may_take_large = w->n_busy_with_large + 1 < w->n_threads || w->n_threads == 1;
    const worker_job *small = w->small.first, *large = may_take_large ? w->large.first : NULL;
    if (!small) return large ? &w->large : NULL;
    return large && large->order < small->order ? &w->large : &w->small;
}

static worker_job *next_job(workers *w) {
    job_list *list;
    worker_job *job = NULL;
    pthread_mutex_lock(&w->lock);
    while (!(list = next_list(w)) && !(w->stops && !w->large.first))
        pthread_cond_wait(&w->changed, &w->lock);
    if (list) {
        job = list->first;
        list->first = job->next;
        if (!list->first) list->last = &list->first;
        w->n_waiting--;
        w->n_busy_with_large += job->is_large;
    }
    pthread_mutex_unlock(&w->lock);
    return job;
}

static void end_large(workers *w) {
    pthread_mutex_lock(&w->lock);
    w->n_busy_with_large--;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void *work_on(void *user) {
    workers *w = user;
    for (worker_job *job; (job = next_job(w)) != NULL;) {
        const bool is_large = job->is_large;
        job->work(job);
        if (is_large) end_large(w);
        job->task.run = finish_job;
        loop_queue_send(w->queue, &job->task);
    }
    return NULL;
}

workers *workers_create(loop_queue *queue, size_t n, size_t max_jobs) {
    workers *w = calloc(1, sizeof *w + n * sizeof w->threads[0]);
    if (!w) return NULL;
    w->queue = queue;
    w->max_waiting = max_jobs;
    w->small.last = &w->small.first;
    w->large.last = &w->large.first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    pthread_mutex_lock(&w->lock); /* threads look at n_threads */
    for (size_t i = 0; i < n; i++)
        if (pthread_create(&w->threads[w->n_threads], NULL, work_on, w) == 0) w->n_threads++;
    pthread_mutex_unlock(&w->lock);
    if (w->n_threads) return w;
    workers_destroy(w);
    return NULL;
}

void workers_destroy(workers *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stops = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < w->n_threads; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

bool workers_add(workers *w, worker_job *job) {
    job->next = NULL;
    pthread_mutex_lock(&w->lock);
    const bool fits = w->n_waiting < w->max_waiting && !w->stops;
    if (fits) {
        job_list *list = job->is_large ? &w->large : &w->small;
        job->order = w->n_added++;
        *list->last = job;
        list->last = &job->next;
        w->n_waiting++;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return fits;
}
