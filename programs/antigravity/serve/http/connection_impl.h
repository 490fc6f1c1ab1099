/* SPDX-License-Identifier: Apache-2.0 */
/* State of a connection, shared by connection.c, connection_capacity.c and connection_reply.c. */
#ifndef ANTIGRAVITY_SERVE_HTTP_CONNECTION_IMPL_H
#define ANTIGRAVITY_SERVE_HTTP_CONNECTION_IMPL_H

#include "body_chunks.h"
#include "connection.h"
#include "peer_counts.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>

typedef enum connection_state {
    CONNECTION_HEAD,    /* waits for a head, or the rest of one */
    CONNECTION_BODY,    /* reads a body */
    CONNECTION_WAITING, /* the owner has the request */
    CONNECTION_STREAMING,
    CONNECTION_FLUSHING,  /* the response is complete and waits for the socket */
    CONNECTION_LINGERING, /* replied before the request was read; further input is dropped */
} connection_state;

struct connection {
    connection_set *set;
    connection *next, *previous; /* in the list of the set */
    /* In the list of waiting connections, in the order in which they began to wait. */
    connection *next_waiting, *previous_waiting;
    peer_count *peer; /* NULL: not counted by address */
    struct bufferevent *events;
    struct event *deadline; /* timer of the head or body that is being read */
    connection_state state;
    bool is_local, is_tls, is_waiting;
    bool has_request; /* the owner has a request that has not ended */
    bool close_after;
    bool is_reading;      /* the first byte of a request has arrived, its last has not */
    bool has_unread_body; /* the input continues with a body */
    bool is_head, is_http_1_0;
    bool is_chunked;  /* the response is chunked */
    account *account; /* the request's; NULL: none */
    bool owns_account;
    request_head head; /* text is NULL once the owner has taken it */
    bool body_is_chunked;
    uint64_t body_length;
    double body_began; /* seconds of clock_s() */
    body_chunks chunks;
    char *body;
    size_t n_body, body_cap;
    size_t n_sent, n_dropped;
    void *owner;
};

struct connection_set {
    struct event_base *base;
    connection_limits limits;
    connection_events events;
    connection *first;
    connection *first_waiting, *last_waiting; /* the first has waited longest */
    peer_counts peers;
    tls_files *tls;
    account_pool *pool;
    size_t n, n_tls, body_bytes;
    uint64_t n_evicted, n_rejected;
    bool is_draining;
};

/* Frees the connection. Calls ended() first if the owner has a request of it. */
void connection_close(connection *c, bool complete);
void connection_set_deadline(connection *c, uint32_t seconds); /* 0: none */
/* Returns whether the first byte of a request has arrived and its last byte has not. */
bool connection_has_begun(const connection *c);
/* Replies with an error to a request that has not arrived completely. */
void connection_reject(connection *c, int status, const char *reason);

/* connection_reply.c. Writes the reply without waiting. Returns whether the socket took all of it.
 * The connection must be closed next. */
bool connection_write_now(connection *c);

/* connection_capacity.c. Changes the state. Appends the connection to the list of waiting
 * connections if it waits in the new state, and removes it from the list if not. */
void connection_enter(connection *c, connection_state state);
/* Removes the connection from that list, if it is in it. */
void connection_stop_waiting(connection *c);
/* Ensures that one more connection may be opened: closes the one that has waited longest if the
 * limit is reached. Fails if none waits. */
bool connection_ensure_capacity(connection_set *set);
/* Counts a connection from this address; NULL: a Unix socket. *out: the entry to remove when the
 * connection closes; NULL for addresses that are not counted. Fails if the address has reached its
 * limit. */
bool connection_count_peer(connection_set *set, const peer_address *from, peer_count **out);

#endif
