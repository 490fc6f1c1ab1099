/* SPDX-License-Identifier: Apache-2.0 */
/* Client connections: reads HTTP/1 requests, writes responses, detects that a client has gone. All
 * functions must be called on the thread of the event loop. */
#ifndef ANTIGRAVITY_SERVE_HTTP_CONNECTION_H
#define ANTIGRAVITY_SERVE_HTTP_CONNECTION_H

#include "../threads/account.h"
#include "peer_address.h"
#include "request_head.h"
#include "tls.h"

#include <event2/event.h>
#include <event2/util.h>

typedef struct connection connection;
typedef struct connection_set connection_set;

typedef struct connection_limits {
    size_t max_head, max_body; /* bytes of one request */
    size_t max_bodies;         /* bytes of all bodies that are being read */
    size_t max_unread;         /* bytes of a stream that wait in the output buffer */
    uint32_t max_connections;
    uint32_t idle_s; /* seconds between two requests */
    /* Seconds to send a head. A body has this time plus one second for each 16 KiB: of its
     * announced length, or, if chunked, of the bytes received. */
    uint32_t read_s;
    uint32_t write_s; /* seconds in which a client may read nothing of its response */
    /* Address ranges without a limit of their own; borrowed [n_trusted]. Any other address, except
     * loopback, may have a quarter of max_connections. */
    const peer_range *trusted;
    size_t n_trusted;
} connection_limits;

/* Callbacks to the owner of a set of connections. */
typedef struct connection_events {
    /* A head has arrived. Returns false if the owner has replied; the body is not read then. */
    bool (*head)(void *user, connection *c);
    /* The request is complete. The owner replies now or later. */
    void (*request)(void *user, connection *c);
    /* The head is malformed, or the rest of the request did not arrive. The owner replies at once;
     * request() is not called. */
    void (*malformed)(void *user, connection *c, int status, const char *reason);
    /* The client has gone, or the response has been written. The owner must not use the connection
     * until its next request. */
    void (*ended)(void *user, connection *c, bool complete);
    void *user;
} connection_events;

/* Returns a new set, or NULL without memory. tls: for sockets that are not local, borrowed; NULL:
 * plain HTTP. pool: borrowed; each request gets an account of it. */
connection_set *connection_set_create(struct event_base *base, const connection_limits *limits,
                                      const connection_events *events, tls_files *tls,
                                      account_pool *pool);
/* Closes all connections. NULL is allowed. */
void connection_set_destroy(connection_set *set);
/* Takes ownership of a socket. If max_connections are open, closes the connection that has waited
 * longest for a complete request. Closes the socket if no connection waits, or if its address has
 * reached its limit. is_local: a Unix socket, which browsers cannot reach. */
void connection_accept(connection_set *set, evutil_socket_t fd, bool is_local);
/* Does the same with the client's address; NULL: a Unix socket. */
void connection_accept_from(connection_set *set, evutil_socket_t fd, const peer_address *from);
size_t connection_count(const connection_set *set);
size_t connection_tls_count(const connection_set *set); /* open connections with TLS */
/* Return how many connections were closed for a new one, and how many new sockets were closed
 * because a limit was reached. */
uint64_t connection_n_evicted(const connection_set *set);
uint64_t connection_n_rejected(const connection_set *set);
/* Closes every connection after its current response, and idle ones at once. */
void connection_set_drain(connection_set *set);
/* Rejects with 503 all requests whose body is being read. */
void connection_set_reject_unread(connection_set *set);

/* ---- the request ---- */

/* Returns the head. The caller must call request_head_free(). */
request_head connection_take_head(connection *c);
/* Returns the account of the request. The caller must call account_release(). */
account *connection_take_account(connection *c);
/* Returns the body, which ends in a NUL. The caller must call account_free(). */
char *connection_take_body(connection *c, size_t *n);
bool connection_is_local(const connection *c);
evutil_socket_t connection_socket(const connection *c);
/* Stores a pointer of the owner's; NULL at the start of each request. */
void connection_set_owner(connection *c, void *owner);
void *connection_owner(const connection *c);
size_t connection_sent(const connection *c); /* body bytes of the current response */

/* ---- the response ---- */

/* Sends a complete response. headers: further lines, each ended by CR LF, or "". */
void connection_reply(connection *c, int status, const char *type, const char *headers,
                      const char *body, size_t n);
/* Sends the head of a stream, for connection_stream() and connection_end_stream(). */
void connection_begin_stream(connection *c, int status, const char *type, const char *headers);
/* Sends n bytes of a stream. Fails without memory, if more than max_unread bytes wait for the
 * client, or if n exceeds 32 MiB; the connection is closed then. */
bool connection_stream(connection *c, const char *bytes, size_t n);
void connection_end_stream(connection *c);
/* Closes the connection without the end of the stream, so that the client detects the loss. */
void connection_abort(connection *c);

#endif
