/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.h"

#include <pthread.h>
#include <stdlib.h>

struct workers {
    loop_queue *queue;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    worker_job *first, **last;
    size_t n_waiting, max_waiting;
    bool stops;
    size_t n_threads;
    pthread_t threads[];
};

static void finish_job(loop_task *task) {
    worker_job *job = (worker_job *)task;
    job->done(job);
}

static worker_job *next_job(workers *w) {
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stops) pthread_cond_wait(&w->changed, &w->lock);
    worker_job *job = w->first;
    if (job) {
        w->first = job->next;
        if (!w->first) w->last = &w->first;
        w->n_waiting--;
    }
    pthread_mutex_unlock(&w->lock);
    return job;
}

static void *work_on(void *user) {
    workers *w = user;
    for (worker_job *job; (job = next_job(w)) != NULL;) {
        job->work(job);
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
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    for (size_t i = 0; i < n; i++)
        if (pthread_create(&w->threads[w->n_threads], NULL, work_on, w) == 0) w->n_threads++;
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
        *w->last = job;
        w->last = &job->next;
        w->n_waiting++;
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return fits;
}
