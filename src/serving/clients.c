/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "core/fail.h"
#include "serving/request_queue.h"

#include <string.h>

/* ---- clients with requests ---- */

ag_serving_client *ag_client_acquire(ag_request_queue *q, const char *name) {
    ag_serving_client *c = q->clients;
    while (c && strcmp(c->name, name) != 0) c = c->next;
    if (!c) {
        c = ag_calloc(1, sizeof *c);
        char *copy = c ? ag_strdup(name) : NULL;
        if (!copy) {
            ag_free(c);
            return NULL;
        }
        *c = (ag_serving_client){.next = q->clients, .name = copy};
        q->clients = c;
    }
    c->n_requests++;
    return c;
}

void ag_client_release(ag_request_queue *q, ag_serving_client *c) {
    if (--c->n_requests) return;
    ag_serving_client **at = &q->clients;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    ag_free(c->name);
    ag_free(c);
}

/* ---- places in the queue ---- */

static bool exceeds_share(const ag_request_queue *q, uint32_t n, uint64_t bytes) {
    const uint32_t share = q->params->max_waiting / 2;
    return n > (share ? share : 1) ||
           bytes > ag_request_queue_max_bytes(q->params->memory_limit) / 2;
}

static bool has_place(const ag_request_queue *q, uint64_t bytes) {
    return q->n_waiting < q->params->max_waiting &&
           q->waiting_bytes + bytes <= ag_request_queue_max_bytes(q->params->memory_limit);
}

/* Frees the place of the newest waiting request of a client, other than c, that exceeds its share.
 * The engine thread may be starting that request now, so the engine thread ends it. */
static bool displace_newest(ag_request_queue *q, const ag_serving_client *c) {
    ag_served_request *newest = NULL;
    for (ag_served_request *r = q->waiting; r; r = r->next) {
        const ag_serving_client *owner = r->client;
        if (owner != c && !r->is_displaced &&
            exceeds_share(q, owner->n_waiting, owner->waiting_bytes))
            newest = r;
    }
    if (!newest) return false;
    ag_client_release_place(q, newest);
    newest->is_displaced = true;
    return true;
}

ag_status ag_client_reserve_place(ag_request_queue *q, ag_serving_client *c, uint64_t bytes,
                                  ag_error *err) {
    const uint64_t max_bytes = ag_request_queue_max_bytes(q->params->memory_limit);
    const bool is_within =
        !c->n_waiting || !exceeds_share(q, c->n_waiting + 1, c->waiting_bytes + bytes);
    if (!is_within && q->n_waiting > c->n_waiting) {
        return AG_FAIL(err, BUSY,
                       "this client has %u waiting requests (%llu bytes): while others wait, one "
                       "client may use half of the queue's %u places and %llu bytes; retry later",
                       c->n_waiting, (unsigned long long)c->waiting_bytes, q->params->max_waiting,
                       (unsigned long long)max_bytes);
    }
    while (is_within && !has_place(q, bytes) && displace_newest(q, c)) {}
    if (!has_place(q, bytes)) {
        return AG_FAIL(err, BUSY,
                       "the queue is full: %u of %u requests are waiting, with %llu of %llu bytes; "
                       "retry later",
                       q->n_waiting, q->params->max_waiting, (unsigned long long)q->waiting_bytes,
                       (unsigned long long)max_bytes);
    }
    q->n_waiting++;
    q->waiting_bytes += bytes;
    c->n_waiting++;
    c->waiting_bytes += bytes;
    return AG_OK;
}

void ag_client_release_place(ag_request_queue *q, const ag_served_request *r) {
    if (r->is_displaced) return;
    q->n_waiting--;
    q->waiting_bytes -= r->bytes;
    r->client->n_waiting--;
    r->client->waiting_bytes -= r->bytes;
}

/* ---- engine thread ---- */

bool ag_client_must_wait(ag_request_queue *q, const ag_served_request *r) {
    const ag_serving_client *c = r->client;
    if (!c->n_answers || c->n_answers + r->p.n_answers <= q->params->max_running / 2) return false;
    ag_mutex_lock(q->mutex);
    const bool others_wait = q->n_waiting > c->n_waiting;
    ag_mutex_unlock(q->mutex);
    return others_wait;
}

void ag_client_begin_step(ag_request_queue *q) {
    for (ag_served_request *r = q->running; r; r = r->next) r->client->n_rows = 0;
}

size_t ag_client_count_readers(ag_request_queue *q, const ag_served_model *m) {
    size_t n = 0;
    for (ag_served_request *r = q->running; r; r = r->next) r->client->n_reading = 0;
    for (ag_served_request *r = q->running; r; r = r->next) {
        if (r->p.model != m || !r->session || r->status != AG_OK) continue;
        r->client->n_reading++;
        n++;
    }
    return n;
}

bool ag_client_reserve_rows(ag_request_queue *q, const ag_served_request *r, size_t n_readers,
                            size_t n) {
    ag_serving_client *c = r->client;
    if (n_readers > c->n_reading && c->n_rows + n > q->params->step_rows / 2) return false;
    c->n_rows += n;
    c->served = ++q->n_turns;
    return true;
}
