/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets: TCP, Unix, and sockets inherited from a service manager. */
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
    char *paths[MAX_LISTENERS]; /* files of Unix sockets, to remove at the end */
    size_t n;
    bool use_tls; /* listener_name() writes https for sockets that are not local */
    void (*accepted)(void *user, evutil_socket_t fd, bool is_local);
    void *user;
} listeners;

/* Open a socket. On failure they report the error and return false. */
bool listen_tcp(listeners *l, const char *host, uint32_t port);
/* Replaces a socket file that no process listens on. The file's mode admits its owner only. */
bool listen_unix(listeners *l, const char *path);
/* Adds the *n sockets that systemd, or another service manager, opened: sd_listen_fds(3). Fails if
 * LISTEN_FDS or LISTEN_PID is malformed, or a descriptor is not a listening socket. */
bool listen_inherited(listeners *l, size_t *n);
/* Returns whether all of them are Unix sockets. */
bool listeners_are_local(const listeners *l);
/* Returns whether one of them can be reached from other machines. */
bool listeners_are_public(const listeners *l);
/* Writes "http://127.0.0.1:8080", or the path, to buf[cap] and returns buf. */
const char *listener_name(const listeners *l, size_t i, char *buf, size_t cap);

/* Calls accepted() for each new connection. Fails without memory. */
bool listeners_start(listeners *l, struct event_base *base);
/* Closes the sockets and removes the files of Unix sockets. */
void listeners_close(listeners *l);

/* Writes the local address of a socket to name[cap] and returns its port. Writes "" and returns -1
 * for Unix sockets. */
int socket_local_address(evutil_socket_t fd, char *name, size_t cap);

#endif
