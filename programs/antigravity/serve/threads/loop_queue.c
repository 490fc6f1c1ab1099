/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_queue.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct loop_queue {
    pthread_mutex_t lock;
    loop_task *first, **last;
    int wake; /* an eventfd, readable while there are tasks */
    struct event *readable;
};

static loop_task *take_all(loop_queue *q) {
    pthread_mutex_lock(&q->lock);
    loop_task *first = q->first;
    q->first = NULL;
    q->last = &q->first;
    pthread_mutex_unlock(&q->lock);
    return first;
}

static void run_all(loop_queue *q) {
    for (loop_task *task = take_all(q), *next; task; task = next) {
        next = task->next;
        task->run(task);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *user) {
    (void)what;
    uint64_t count;
    /* Nothing to read: an earlier call has run the tasks. */
    if (read(fd, &count, sizeof count) != (ssize_t)sizeof count) return;
    run_all(user);
}

loop_queue *loop_queue_create(struct event_base *base) {
    loop_queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->last = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    q->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    q->readable = q->wake >= 0 ? event_new(base, q->wake, EV_READ | EV_PERSIST, on_wake, q) : NULL;
    if (q->readable && event_add(q->readable, NULL) == 0) return q;
    loop_queue_destroy(q);
    return NULL;
}

void loop_queue_destroy(loop_queue *q) {
    if (!q) return;
    run_all(q);
    if (q->readable) event_free(q->readable);
    if (q->wake >= 0) close(q->wake);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void loop_queue_send(loop_queue *q, loop_task *task) {
    const uint64_t one = 1;
    task->next = NULL;
    pthread_mutex_lock(&q->lock);
    const bool was_empty = !q->first;
    *q->last = task;
    q->last = &task->next;
    /* Writing to an eventfd with a small count never fails. */
    if (was_empty && write(q->wake, &one, sizeof one) < 0) { /* the eventfd is readable already */
    }
    pthread_mutex_unlock(&q->lock);
}
