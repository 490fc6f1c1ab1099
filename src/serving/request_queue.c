/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/request_queue.h"

#include "core/fail.h"

/* The caller holds the mutex. */
static void unlink_from(ag_request_queue *q, ag_served_request **list, ag_served_request *r) {
    ag_served_request **at = list;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    r->next = NULL;
    if (list == &q->waiting) ag_client_release_place(q, r);
}

void ag_request_queue_remove(ag_request_queue *q, ag_served_request **list, ag_served_request *r) {
    ag_mutex_lock(q->mutex);
    unlink_from(q, list, r);
    ag_mutex_unlock(q->mutex);
}

/* ag_request_queue_cancel() always finds the request in one of the lists. */
void ag_request_queue_start(ag_request_queue *q, ag_served_request *r) {
    ag_mutex_lock(q->mutex);
    unlink_from(q, &q->waiting, r);
    r->is_displaced = false;
    ag_served_request **end = &q->running;
    while (*end) end = &(*end)->next;
    *end = r;
    ag_mutex_unlock(q->mutex);
}

uint64_t ag_request_queue_max_bytes(uint64_t memory_limit) {
    const uint64_t min = 2 << 20, max = 64 << 20;
    if (!memory_limit || memory_limit / 64 > max) return max;
    return memory_limit / 64 > min ? memory_limit / 64 : min;
}

ag_status ag_request_queue_reserve(ag_request_queue *q, const char *client_name, uint64_t bytes,
                                   ag_serving_client **client, ag_error *err) {
    const uint64_t max = ag_request_queue_max_bytes(q->params->memory_limit);
    ag_status st = AG_OK;
    if (bytes > max)
        return AG_FAIL(err, LIMIT, "the request is too large: %llu bytes, the queue holds %llu",
                       (unsigned long long)bytes, (unsigned long long)max);
    ag_mutex_lock(q->mutex);
    ag_serving_client *c = ag_client_acquire(q, client_name);
    if (!c) st = AG_FAIL(err, NOMEM, "client of a request");
    else if (q->is_closed) st = AG_FAIL(err, CANCELLED, "the engine is being destroyed");
    else st = ag_client_reserve_place(q, c, bytes, err);
    q->n_rejected += st == AG_BUSY;
    if (st != AG_OK && c) ag_client_release(q, c);
    ag_mutex_unlock(q->mutex);
    *client = c;
    return st;
}

void ag_request_queue_release(ag_request_queue *q, ag_serving_client *c, uint64_t bytes) {
    const ag_served_request place = {.client = c, .bytes = bytes};
    ag_mutex_lock(q->mutex);
    ag_client_release_place(q, &place);
    ag_client_release(q, c);
    ag_mutex_unlock(q->mutex);
}

ag_status ag_request_queue_append(ag_request_queue *q, ag_served_request *r, ag_request_id *id,
                                  ag_error *err) {
    ag_status st = AG_OK;
    ag_mutex_lock(q->mutex);
    if (q->is_closed) {
        st = AG_FAIL(err, CANCELLED, "the engine is being destroyed");
    } else {
        ag_served_request **end = &q->waiting;
        while (*end) end = &(*end)->next;
        *end = r;
        q->n_submitted++;
        r->id = ++q->last_id;
        if (id) *id = r->id;
        ag_condition_signal(q->work);
    }
    ag_mutex_unlock(q->mutex);
    return st;
}

static bool cancel_in(ag_served_request *list, ag_request_id id) {
    for (ag_served_request *r = list; r; r = r->next) {
        if (r->id != id) continue;
        atomic_store_explicit(&r->cancelled, true, memory_order_relaxed);
        return true;
    }
    return false;
}

void ag_request_queue_cancel(ag_request_queue *q, ag_request_id id) {
    ag_mutex_lock(q->mutex);
    if (!cancel_in(q->waiting, id)) cancel_in(q->running, id);
    ag_condition_signal(q->work);
    ag_mutex_unlock(q->mutex);
}

uint64_t ag_request_queue_new_id(ag_request_queue *q) {
    ag_mutex_lock(q->mutex);
    const uint64_t id = ++q->last_id;
    ag_mutex_unlock(q->mutex);
    return id;
}
