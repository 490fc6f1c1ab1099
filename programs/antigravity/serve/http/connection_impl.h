/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a connection, for connection.c, connection_places.c and connection_reply.c. */
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
    CONNECTION_WAITING, /* the request is with the owner */
    CONNECTION_STREAMING,
    CONNECTION_FLUSHING,  /* the response is complete, but for the socket */
    CONNECTION_LINGERING, /* replied before the request was read: what else comes is dropped */
} connection_state;

struct connection {
    connection_set *set;
    connection *next, *previous; /* in the set's list */
    /* In the set's list of waiting connections: the neighbours that began to wait later and
     * earlier. */
    connection *next_waiting, *previous_waiting;
    peer_count *peer; /* NULL: not counted by address */
    struct bufferevent *events;
    struct event *deadline; /* of what is being read */
    connection_state state;
    bool is_local, is_tls, is_waiting;
    bool has_request; /* has_request: the owner knows of a request that is not over */
    bool close_after;
    bool is_reading;      /* the first byte of a request has come, its last one has not */
    bool has_unread_body; /* what follows in the input belongs to a body */
    bool is_head, is_http_1_0;
    bool is_chunked;  /* the response is */
    account *account; /* account of the request; NULL: none */
    bool owns_account;
    request_head head; /* text NULL once the owner took it */
    bool body_is_chunked;
    uint64_t body_length;
    double body_began; /* on the clock of clock.h */
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

/* Frees the connection; the owner is told first, if it has a request of it. */
void connection_close(connection *c, bool complete);
/* The response has left: the next request, or the end. */
void connection_finish_reply(connection *c);
/* Reads what has come, as far as the state allows. */
void connection_read(connection *c);
void connection_set_deadline(connection *c, uint32_t seconds); /* 0: none */
/* Returns whether the first byte of a request has arrived and its last byte has not. */
bool connection_has_begun(const connection *c);
/* Replies with an error to a request that has not arrived completely. */
void connection_reject(connection *c, int status, const char *reason);

/* connection_reply.c. Writes the reply without waiting. Returns whether the socket took all of it.
 * The connection must be closed next. */
bool connection_write_now(connection *c);

/* connection_places.c */
/* Changes the state. A connection that waits in the new state goes to the end of the list of
 * waiting connections; another one leaves the list. */
void connection_enter(connection *c, connection_state state);
void connection_stop_waiting(connection *c);
/* Ensures a place for one more connection: closes the one that has waited longest if all places are
 * taken. Fails if none waits. */
bool connection_ensure_capacity(connection_set *set);
/* Counts a connection from this address; NULL: a Unix socket. *out: the entry to remove when the
 * connection closes; NULL for addresses that are not counted. Fails if the address has its share of
 * the places. */
bool connection_count_peer(connection_set *set, const peer_address *from, peer_count **out);

#endif
