/* SPDX-License-Identifier: Apache-2.0 */
/* Request queue: the waiting and the running requests, and the clients that share both.
 *
 * While other clients wait, one client has at most half of the queue's places and bytes. The same
 * holds for running answers and for the prompt rows of a step. A client without competitors may use
 * everything. */
#ifndef AG_SERVING_REQUEST_QUEUE_H
#define AG_SERVING_REQUEST_QUEUE_H

#include "serving/model.h"
#include "serving/request.h"

/* A client that has requests. It is freed with the last of them. */
struct ag_serving_client {
    ag_serving_client *next;
    char *name; /* "": of requests without one */
    /* Guarded by the engine's mutex. */
    uint32_t n_requests, n_waiting;
    uint64_t waiting_bytes;
    /* Engine thread. */
    size_t n_answers; /* answers of running requests */
    size_t n_reading; /* requests whose prompts are incomplete, in this round */
    size_t n_rows;    /* rows of prompts in this step */
    uint64_t served;  /* the turn of its last chunk; 0: none yet */
};

typedef struct ag_request_queue {
    const ag_serving_params *params; /* the engine's; borrowed */
    ag_mutex *mutex;                 /* the engine's; borrowed */
    ag_condition *work;              /* wakes the engine thread; borrowed */
    /* Guarded by `mutex`. Only the engine thread changes `running`, so it may read that list
     * without the mutex. */
    bool is_closed; /* the engine is being destroyed */
    ag_served_request *waiting, *running;
    uint32_t n_waiting;                 /* without displaced requests */
    atomic_uint_fast64_t waiting_bytes; /* bytes of their copies; may be read without the mutex */
    ag_serving_client *clients;
    ag_request_id last_id;
    uint64_t n_submitted, n_rejected;
    uint64_t n_seen; /* n_submitted when the engine thread last read the queue */
    /* Engine thread. */
    size_t n_answers; /* answers of running requests */
    uint64_t n_turns; /* chunks that clients were given rows for */
} ag_request_queue;

/* Returns the tokens of a prompt that one step reads at most. */
static inline uint32_t ag_prompt_chunk(const ag_serving_params *p) {
    return p->step_rows / 2 / 16 * 16;
}

/* Returns the bytes that waiting requests may take together. */
uint64_t ag_request_queue_max_bytes(uint64_t memory_limit);

/* Reserves a place for a request of `bytes` of the named client. AG_BUSY: no place; AG_LIMIT: it
 * exceeds the queue; AG_CANCELLED: the queue is closed. */
ag_status ag_request_queue_reserve(ag_request_queue *q, const char *client_name, uint64_t bytes,
                                   ag_serving_client **client, ag_error *err);
/* Gives a reserved place back. */
void ag_request_queue_release(ag_request_queue *q, ag_serving_client *client, uint64_t bytes);
/* Appends to the waiting requests. Its place has been reserved. */
ag_status ag_request_queue_append(ag_request_queue *q, ag_served_request *r, ag_request_id *id,
                                  ag_error *err);
/* Marks a request as cancelled, if it has not ended, and wakes the engine thread. */
void ag_request_queue_cancel(ag_request_queue *q, ag_request_id id);
/* Returns an id that no request or cached session has had. */
uint64_t ag_request_queue_new_id(ag_request_queue *q);
/* Engine thread. Removes a request from `list`, which is &q->waiting or &q->running. */
void ag_request_queue_remove(ag_request_queue *q, ag_served_request **list, ag_served_request *r);
/* Engine thread. Moves a request from the waiting to the end of the running ones. */
void ag_request_queue_start(ag_request_queue *q, ag_served_request *r);

/* clients.c. The caller of the first four functions holds the mutex. */
/* Returns the client of this name, for one request more. NULL: out of memory. */
ag_serving_client *ag_client_acquire(ag_request_queue *q, const char *name);
/* Ends one request of the client. Frees the client after its last one. */
void ag_client_release(ag_request_queue *q, ag_serving_client *c);
/* Reserves a place in the queue. Fails with AG_BUSY if the client has its share, or all places are
 * taken and no other client exceeds its share. */
ag_status ag_client_reserve_place(ag_request_queue *q, ag_serving_client *c, uint64_t bytes,
                                  ag_error *err);
/* Frees the request's place, unless it has been displaced. */
void ag_client_release_place(ag_request_queue *q, const ag_served_request *r);
/* Returns whether the request must leave the free places of running answers to other clients. */
bool ag_client_must_wait(ag_request_queue *q, const ag_served_request *r);
/* Clears the prompt rows of every client. */
void ag_client_begin_step(ag_request_queue *q);
/* Returns the number of requests that still read a prompt, and sets n_reading of each client. */
size_t ag_client_count_readers(ag_request_queue *q, const ag_served_model *m);
/* Counts n prompt rows of the request. Returns false if they exceed the share of its client while
 * others of the n_readers are of other clients. */
bool ag_client_reserve_rows(ag_request_queue *q, const ag_served_request *r, size_t n_readers,
                            size_t n);

#endif
