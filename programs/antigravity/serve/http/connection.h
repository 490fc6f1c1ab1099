/* SPDX-License-Identifier: Apache-2.0 */
/* A client's connection: reads requests of HTTP/1, writes responses, notices when the client goes.
 * All of it on the thread of the event loop. */
#ifndef ANTIGRAVITY_SERVE_HTTP_CONNECTION_H
#define ANTIGRAVITY_SERVE_HTTP_CONNECTION_H

#include "peer_address.h"
#include "request_head.h"
#include "serve/work/account.h"
#include "tls.h"

#include <event2/event.h>
#include <event2/util.h>

typedef struct connection connection;
typedef struct connection_set connection_set;

typedef struct connection_limits {
    size_t max_head, max_body; /* bytes */
    size_t max_bodies;         /* of all requests that are being read */
    size_t max_unread;         /* bytes that a client leaves unread of a stream */
    uint32_t max_connections;
    uint32_t idle_s; /* between two requests */
    /* To send a head. A body has this time, and one second more for each 16 KiB that are announced,
     * or, of a chunked body, that have arrived. */
    uint32_t read_s;
    uint32_t write_s; /* in which a client takes nothing of what it is sent */
    /* Borrowed [n_trusted]. Any other address, except loopback, may have a quarter of
     * max_connections. */
    const peer_range *trusted;
    size_t n_trusted;
} connection_limits;

/* What the owner of a set is told. */
typedef struct connection_events {
    /* There is a head. False: it has been replied to, and the body will not be read. */
    bool (*head)(void *user, connection *c);
    /* There is all of a request: it is to be replied to, now or later. */
    void (*request)(void *user, connection *c);
    /* The head could not be read, or the rest of the request did not come: nothing else is told of
     * it. It is replied to here. */
    void (*malformed)(void *user, connection *c, int status, const char *reason);
    /* The client has gone, or the response has been written, complete or not: no call with this
     * connection is allowed any more until its next request. */
    void (*ended)(void *user, connection *c, bool complete);
    void *user;
} connection_events;

/* tls: what sockets of a network speak, borrowed; NULL: HTTP as it is. pool: borrowed; each request
 * gets an account of it. */
connection_set *connection_set_create(struct event_base *base, const connection_limits *limits,
                                      const connection_events *events, tls_files *tls,
                                      account_pool *pool);
/* Ends all at once. */
void connection_set_destroy(connection_set *set);
/* Takes a socket. If max_connections are open, the connection that has waited longest for a
 * complete request is closed for it. The socket is closed if none waits, or if its address has its
 * share of the places. is_local: a Unix socket, so no browser can be at its other end. */
void connection_accept(connection_set *set, evutil_socket_t fd, bool is_local);
/* The same, with the client's address; NULL: a Unix socket. */
void connection_accept_from(connection_set *set, evutil_socket_t fd, const peer_address *from);
size_t connection_count(const connection_set *set);
size_t connection_tls_count(const connection_set *set); /* of these */
/* Connections that were closed for a new one, and sockets that were closed for want of a place. */
uint64_t connection_n_evicted(const connection_set *set);
uint64_t connection_n_rejected(const connection_set *set);
/* From now on every connection ends behind its request; those without one do at once. */
void connection_set_drain(connection_set *set);
/* Requests that are still being read are refused. */
void connection_set_reject_unread(connection_set *set);

/* ---- the request ---- */

/* The head, which becomes the caller's to request_head_free(). */
request_head connection_take_head(connection *c);
/* The account of the request, which becomes the caller's to account_release(). */
account *connection_take_account(connection *c);
/* The body, which becomes the caller's to account_free(); ended by a NUL. */
char *connection_take_body(connection *c, size_t *n);
bool connection_is_local(const connection *c);
evutil_socket_t connection_socket(const connection *c);
/* What the owner keeps with it: NULL at first, and again with every request. */
void connection_set_owner(connection *c, void *owner);
void *connection_owner(const connection *c);
size_t connection_sent(const connection *c); /* bytes of this response's body */

/* ---- the response ---- */

/* headers: further lines, each ended by CR LF, or "". */
void connection_reply(connection *c, int status, const char *type, const char *headers,
                      const char *body, size_t n);
void connection_begin_stream(connection *c, int status, const char *type, const char *headers);
/* False: the client reads too slowly, and the connection is over. */
bool connection_stream(connection *c, const char *bytes, size_t n);
void connection_end_stream(connection *c);
/* Without the end of the stream, so that a client sees that something is missing. */
void connection_abort(connection *c);

#endif
