/* SPDX-License-Identifier: Apache-2.0 */
/* What connection.c and connection_reply.c know of a connection. */
#ifndef ANTIGRAVITY_SERVE_CONNECTION_IMPL_H
#define ANTIGRAVITY_SERVE_CONNECTION_IMPL_H

#include "body_chunks.h"
#include "connection.h"

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
    connection *next, *before; /* in the set's list */
    struct bufferevent *events;
    struct event *deadline; /* of what is being read */
    connection_state state;
    bool is_local, is_tls;
    bool is_open; /* is_open: the owner knows of a request that is not over */
    bool close_after;
    bool is_reading; /* the first byte of a request has come, its last one has not */
    bool owes_body;  /* what follows in the input belongs to a body */
    bool is_head, is_http_1_0;
    bool is_chunked;  /* the response is */
    account *account; /* of the request; NULL: none */
    bool owns_account;
    request_head head; /* text NULL once the owner took it */
    bool body_is_chunked;
    uint64_t body_length;
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
    tls_files *tls;
    account_pool *pool;
    size_t n, n_tls, body_bytes;
    bool draining;
};

/* Frees the connection; the owner is told first, if it has a request of it. */
void connection_close(connection *c, bool complete);
/* The response has left: the next request, or the end. */
void connection_next(connection *c);
/* Reads what has come, as far as the state allows. */
void connection_read(connection *c);
void connection_set_deadline(connection *c, uint32_t seconds); /* 0: none */

#endif
