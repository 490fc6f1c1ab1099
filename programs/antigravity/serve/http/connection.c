/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: from the socket to complete requests. */
#include "connection_impl.h"

#include "../threads/account.h"
#include "clock.h"
#include "socket.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PIPELINED = 65536, LINGER_S = 2, LINGER_BYTES = 64 << 20 };
static const double MIN_BODY_RATE = 16384; /* minimum, in bytes a second */

/* ---- the set ---- */

connection_set *connection_set_create(struct event_base *base, const connection_limits *limits,
                                      const connection_events *events, tls_files *tls,
                                      account_pool *pool) {
    connection_set *set = calloc(1, sizeof *set);
    if (!set) return NULL;
    *set = (connection_set){
        .base = base, .limits = *limits, .events = *events, .tls = tls, .pool = pool};
    if (peer_counts_init(&set->peers, limits->max_connections)) return set;
    free(set);
    return NULL;
}

void connection_set_destroy(connection_set *set) {
    if (!set) return;
    while (set->first) connection_close(set->first, false);
    peer_counts_free(&set->peers);
    free(set);
}

size_t connection_count(const connection_set *set) { return set->n; }
size_t connection_tls_count(const connection_set *set) { return set->n_tls; }
uint64_t connection_n_evicted(const connection_set *set) { return set->n_evicted; }
uint64_t connection_n_rejected(const connection_set *set) { return set->n_rejected; }

void connection_set_drain(connection_set *set) {
    set->is_draining = true;
    for (connection *c = set->first, *next; c; c = next) {
        next = c->next;
        c->close_after = true;
        if (c->state == CONNECTION_HEAD || c->state == CONNECTION_LINGERING)
            connection_close(c, false);
    }
}

/* ---- functions for the owner ---- */

request_head connection_take_head(connection *c) {
    request_head head = c->head;
    c->head = (request_head){.text = NULL};
    return head;
}

account *connection_take_account(connection *c) {
    c->owns_account = false;
    return c->account;
}

bool connection_is_local(const connection *c) { return c->is_local; }
evutil_socket_t connection_socket(const connection *c) { return bufferevent_getfd(c->events); }
void connection_set_owner(connection *c, void *owner) { c->owner = owner; }
void *connection_owner(const connection *c) { return c->owner; }
size_t connection_sent(const connection *c) { return c->n_sent; }

char *connection_take_body(connection *c, size_t *n) {
    char *body = c->body;
    *n = c->n_body;
    c->body = NULL;
    c->set->body_bytes -= c->body_cap;
    c->n_body = c->body_cap = 0;
    return body;
}

/* ---- a request ends ---- */

static void forget_request(connection *c) {
    request_head_free(&c->head);
    account_free(c->body);
    c->body = NULL;
    c->set->body_bytes -= c->body_cap;
    c->n_body = c->body_cap = c->n_sent = 0;
    c->chunks = (body_chunks){.state = CHUNK_SIZE};
    c->owner = NULL;
    if (c->owns_account) account_release(c->account);
    c->account = NULL;
    c->owns_account = false;
    c->is_chunked = c->is_reading = c->has_unread_body = false;
}

static void report_end(connection *c, bool complete) {
    if (!c->has_request) return;
    c->has_request = false;
    c->set->events.ended(c->set->events.user, c, complete);
}

void connection_close(connection *c, bool complete) {
    report_end(c, complete);
    if (c->previous) c->previous->next = c->next;
    else c->set->first = c->next;
    if (c->next) c->next->previous = c->previous;
    connection_stop_waiting(c);
    c->set->n--;
    if (c->is_tls) c->set->n_tls--;
    if (c->peer) peer_counts_remove(&c->set->peers, c->peer);
    forget_request(c);
    if (c->deadline) event_free(c->deadline);
    /* A truncated response must not end with close_notify. */
    if (complete || c->state == CONNECTION_HEAD) tls_end(c->events);
    bufferevent_free(c->events);
    free(c);
}

void connection_set_deadline(connection *c, uint32_t seconds) {
    const struct timeval t = {.tv_sec = (time_t)seconds};
    if (seconds) evtimer_add(c->deadline, &t);
    else evtimer_del(c->deadline);
}

/* ---- reading ---- */

bool connection_has_begun(const connection *c) {
    return c->is_reading && (c->state == CONNECTION_HEAD || c->state == CONNECTION_BODY);
}

void connection_reject(connection *c, int status, const char *reason) {
    c->close_after = c->has_request = c->has_unread_body = true;
    c->set->events.malformed(c->set->events.user, c, status, reason);
}

/* Returns the limit on the memory of all bodies, for a body that grows to `cap` bytes. The last 1/8
 * is for small bodies: slow large uploads must not block them. */
static size_t body_limit(const connection_limits *limits, size_t cap) {
    enum { SMALL = 16384, SHARE = 8 };
    return cap > SMALL ? limits->max_bodies - limits->max_bodies / SHARE : limits->max_bodies;
}

static bool add_to_body(void *user, const char *bytes, size_t n) {
    connection *c = user;
    if (n > c->set->limits.max_body - c->n_body) return false;
    if (c->n_body + n + 1 > c->body_cap) {
        size_t cap = c->body_cap ? 2 * c->body_cap : 4096;
        if (cap < c->n_body + n + 1) cap = c->n_body + n + 1;
        if (c->set->body_bytes + (cap - c->body_cap) > body_limit(&c->set->limits, cap))
            return false;
        account *previous = account_enter(c->account);
        char *grown = account_realloc(c->body, cap);
        account_enter(previous);
        if (!grown) return false;
        c->set->body_bytes += cap - c->body_cap;
        c->body = grown;
        c->body_cap = cap;
    }
    memcpy(c->body + c->n_body, bytes, n);
    c->n_body += n;
    c->body[c->n_body] = '\0';
    return true;
}

static void deliver_request(connection *c) {
    connection_set_deadline(c, 0);
    c->is_reading = c->has_unread_body = false;
    connection_enter(c, CONNECTION_WAITING);
    /* Keeps reading, to detect that the client has gone. Pipelined input stays in the buffer. */
    bufferevent_setwatermark(c->events, EV_READ, 0, MAX_PIPELINED);
    c->set->events.request(c->set->events.user, c);
}

/* Reads a body of known length. Returns whether it is complete. */
static bool read_length_body(connection *c, struct evbuffer *in, int *status) {
    while (c->n_body < c->body_length && evbuffer_get_length(in)) {
        struct evbuffer_iovec piece;
        if (evbuffer_peek(in, -1, NULL, &piece, 1) < 1) break;
        const uint64_t remaining = c->body_length - c->n_body;
        const size_t k = piece.iov_len < remaining ? piece.iov_len : (size_t)remaining;
        if (!add_to_body(c, piece.iov_base, k)) *status = 503;
        if (*status) return false;
        evbuffer_drain(in, k);
    }
    return c->n_body == c->body_length;
}

static bool read_chunked_body(connection *c, struct evbuffer *in, int *status) {
    while (c->chunks.state != CHUNK_DONE && evbuffer_get_length(in)) {
        struct evbuffer_iovec piece;
        size_t used = 0;
        if (evbuffer_peek(in, -1, NULL, &piece, 1) < 1) break;
        const bool ok =
            body_chunks_read(&c->chunks, piece.iov_base, piece.iov_len, &used, add_to_body, c);
        const bool is_large = c->n_body + c->chunks.remaining > c->set->limits.max_body;
        if (!ok) *status = c->chunks.state != CHUNK_DATA ? 400 : is_large ? 413 : 503;
        if (*status) return false;
        evbuffer_drain(in, used);
    }
    return c->chunks.state == CHUNK_DONE;
}

/* The deadline depends on the size of the body, not on the time of its last byte. */
static void set_body_deadline(connection *c) {
    const uint64_t bytes = c->body_is_chunked ? c->n_body : c->body_length;
    const double all = c->set->limits.read_s + (double)bytes / MIN_BODY_RATE;
    const double remaining = c->body_began + all - clock_s();
    const double us = remaining > 0 ? remaining * 1e6 : 0;
    const struct timeval t = {.tv_sec = (time_t)(us / 1e6),
                              .tv_usec = (suseconds_t)((uint64_t)us % 1000000)};
    evtimer_add(c->deadline, &t);
}

static void read_body(connection *c, struct evbuffer *in) {
    int status = 0;
    const bool complete =
        c->body_is_chunked ? read_chunked_body(c, in, &status) : read_length_body(c, in, &status);
    if (status) {
        connection_reject(c, status,
                          status == 413   ? "the body is too large; --max-body sets the limit"
                          : status == 503 ? "too many request bodies are in memory; retry later"
                                          : "the chunked body is malformed");
        return;
    }
    if (complete) deliver_request(c);
    else set_body_deadline(c);
}

static void accept_head(connection *c, struct evbuffer *in, size_t n) {
    const char *reason = NULL;
    const char *text = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
    c->account = account_create(c->set->pool);
    c->owns_account = c->account != NULL;
    account *previous = account_enter(c->account);
    int status = text && c->account ? request_head_read(&c->head, text, n, &reason) : 503;
    account_enter(previous);
    evbuffer_drain(in, n);
    c->is_reading = true;
    c->is_head = c->head.method && !strcmp(c->head.method, "HEAD");
    c->is_http_1_0 = c->head.is_http_1_0;
    if (status) {
        connection_reject(c, status, reason ? reason : "out of memory");
        return;
    }
    if (!c->head.keep_alive || c->set->is_draining) c->close_after = true;
    c->body_is_chunked = c->head.chunked;
    c->body_length = c->head.length;
    c->has_unread_body = c->body_is_chunked || c->body_length;
    if (c->body_length > c->set->limits.max_body) {
        connection_reject(c, 413, "the body is too large; --max-body sets the limit");
        return;
    }
    c->has_request = true;
    c->body_began = clock_s();
    connection_enter(c, CONNECTION_BODY);
    const bool waits_for_request =
        c->head.expects_continue && c->has_unread_body && !evbuffer_get_length(in);
    if (!c->set->events.head(c->set->events.user, c)) return;
    if (waits_for_request) bufferevent_write(c->events, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    read_body(c, in);
}

static void read_head(connection *c, struct evbuffer *in) {
    /* Empty lines before a request are ignored (RFC 9112, 2.2). */
    char begin[2];
    while (evbuffer_copyout(in, begin, 2) == 2 && begin[0] == '\r' && begin[1] == '\n')
        evbuffer_drain(in, 2);
    const size_t n = evbuffer_get_length(in);
    if (!n) return;
    struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
    if (end.pos >= 0 && (size_t)end.pos + 4 <= c->set->limits.max_head) {
        accept_head(c, in, (size_t)end.pos + 4);
        return;
    }
    if (n > c->set->limits.max_head || end.pos >= 0) {
        c->is_reading = true;
        connection_reject(c, 431, "the head of the request is too large");
        return;
    }
    /* The time starts with the first byte; further bytes do not extend it. */
    if (!c->is_reading) connection_set_deadline(c, c->set->limits.read_s);
    c->is_reading = true;
}

/* Reads from the input as far as the state allows. */
static void read_input(connection *c) {
    struct evbuffer *in = bufferevent_get_input(c->events);
    switch (c->state) {
    case CONNECTION_HEAD:
        read_head(c, in);
        break;
    case CONNECTION_BODY:
        read_body(c, in);
        break;
    case CONNECTION_LINGERING:
        c->n_dropped += evbuffer_get_length(in);
        evbuffer_drain(in, evbuffer_get_length(in));
        if (c->n_dropped > LINGER_BYTES) connection_close(c, false);
        break;
    case CONNECTION_WAITING:
    case CONNECTION_STREAMING:
    case CONNECTION_FLUSHING:
        break;
    }
}

/* Handles a response that has been sent: waits for the next request, or closes the connection. */
static void finish_reply(connection *c) {
    report_end(c, true);
    if (c->has_unread_body) {
        /* Closing a socket with unread input would reset it, and the client could lose the
         * response. */
        connection_enter(c, CONNECTION_LINGERING);
        tls_end(c->events);
        socket_shutdown_output(connection_socket(c));
        connection_set_deadline(c, LINGER_S);
        bufferevent_setwatermark(c->events, EV_READ, 0, 0);
        read_input(c);
        return;
    }
    if (c->close_after || c->set->is_draining) {
        connection_close(c, true);
        return;
    }
    forget_request(c);
    connection_enter(c, CONNECTION_HEAD);
    connection_set_deadline(c, c->set->limits.idle_s);
    bufferevent_setwatermark(c->events, EV_READ, 0, 0);
    bufferevent_trigger(c->events, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
}

void connection_set_reject_unread(connection_set *set) {
    for (connection *c = set->first, *next; c; c = next) {
        next = c->next;
        if (c->state == CONNECTION_BODY) connection_reject(c, 503, "the server is shutting down");
    }
}

/* ---- callbacks of libevent ---- */

static void on_readable(struct bufferevent *b, void *user) {
    (void)b;
    read_input(user);
}

static void on_written(struct bufferevent *b, void *user) {
    connection *c = user;
    const bool is_empty = !evbuffer_get_length(bufferevent_get_output(b));
    if (c->state == CONNECTION_FLUSHING && is_empty) finish_reply(c);
}

/* Every event except the end of a TLS handshake ends the connection. */
static void on_event(struct bufferevent *b, short what, void *user) {
    (void)b;
    if (!(what & BEV_EVENT_CONNECTED)) connection_close(user, false);
}

static void on_deadline(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    connection *c = user;
    if (connection_has_begun(c))
        connection_reject(c, 408, "the rest of the request did not arrive in time");
    else connection_close(c, false);
}

/* Closes the socket on failure. */
static connection *create_connection(connection_set *set, evutil_socket_t fd, bool is_local) {
    connection *c = calloc(1, sizeof *c);
    const bool is_tls = set->tls && !is_local;
    struct bufferevent *b = !c       ? NULL
                            : is_tls ? tls_accept(set->tls, set->base, fd)
                                     : bufferevent_socket_new(set->base, fd, BEV_OPT_CLOSE_ON_FREE);
    struct event *deadline = b ? evtimer_new(set->base, on_deadline, c) : NULL;
    if (deadline) {
        *c = (connection){
            .set = set, .is_local = is_local, .is_tls = is_tls, .events = b, .deadline = deadline};
        return c;
    }
    if (b) bufferevent_free(b);
    else evutil_closesocket(fd);
    free(c);
    return NULL;
}

static void reject_socket(connection_set *set, evutil_socket_t fd) {
    set->n_rejected++;
    evutil_closesocket(fd);
}

void connection_accept_from(connection_set *set, evutil_socket_t fd, const peer_address *from) {
    const bool is_local = !from;
    peer_count *peer;
    if (!connection_count_peer(set, from, &peer)) {
        reject_socket(set, fd);
        return;
    }
    const bool has_capacity = connection_ensure_capacity(set);
    if (!has_capacity) reject_socket(set, fd);
    connection *c = has_capacity ? create_connection(set, fd, is_local) : NULL;
    if (!c) {
        if (peer) peer_counts_remove(&set->peers, peer);
        return;
    }
    c->peer = peer;
    c->next = set->first;
    if (c->next) c->next->previous = c;
    set->first = c;
    set->n++;
    if (c->is_tls) set->n_tls++;
    connection_enter(c, CONNECTION_HEAD);
    if (!is_local) socket_set_no_delay(fd);
    /* The deadline of the first head includes the handshake. */
    bufferevent_setcb(c->events, on_readable, on_written, on_event, c);
    const struct timeval write_time = {.tv_sec = (time_t)set->limits.write_s};
    bufferevent_set_timeouts(c->events, NULL, &write_time);
    connection_set_deadline(c, set->limits.read_s);
    bufferevent_enable(c->events, EV_READ | EV_WRITE);
}

void connection_accept(connection_set *set, evutil_socket_t fd, bool is_local) {
    peer_address from;
    if (is_local) {
        connection_accept_from(set, fd, NULL);
    } else if (socket_peer_address(fd, &from)) {
        connection_accept_from(set, fd, &from);
    } else {
        evutil_closesocket(fd); /* the client has closed it */
    }
}
