/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets that clients connect to. */
#ifndef ANTIGRAVITY_SERVE_HTTP_LISTENER_H
#define ANTIGRAVITY_SERVE_HTTP_LISTENER_H

#include <event2/event.h>
#include <event2/util.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_LISTENERS = 8 };

typedef struct listeners {
    int sockets[MAX_LISTENERS];
    bool is_local[MAX_LISTENERS]; /* a Unix socket */
    struct event *events[MAX_LISTENERS];
    char *paths[MAX_LISTENERS]; /* of Unix sockets that were made here: removed at the end */
    size_t n;
    bool use_tls; /* of those that are not local: for their names */
    void (*accepted)(void *user, evutil_socket_t fd, bool is_local);
    void *user;
} listeners;

/* Each says what is wrong and returns false. */
bool listen_tcp(listeners *l, const char *host, uint32_t port);
/* A socket that was left behind by a process that is no more is replaced. Only its owner may
 * connect. */
bool listen_unix(listeners *l, const char *path);
/* Adds the *n sockets that systemd, or another service manager, opened: sd_listen_fds(3). Fails if
 * LISTEN_FDS or LISTEN_PID is malformed, or a descriptor is not a listening socket. */
bool listen_inherited(listeners *l, size_t *n);
/* Whether all of them are Unix sockets. */
bool listeners_are_local(const listeners *l);
/* Whether one of them can be reached from other machines. */
bool listeners_are_public(const listeners *l);
/* "http://127.0.0.1:8080", or the path; buf[cap]. */
const char *listener_name(const listeners *l, size_t i, char *buf, size_t cap);

bool listeners_start(listeners *l, struct event_base *base);
void listeners_close(listeners *l);

/* The address that the client at the other end of the socket connected to, without a port; "" of
 * others. */
void socket_local_address(evutil_socket_t fd, char *buf, size_t cap);

#endif
