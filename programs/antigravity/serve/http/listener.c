/* SPDX-License-Identifier: Apache-2.0 */
#include "listener.h"

#include "../../terminal/output.h"
#include "peer_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024, FIRST_INHERITED = 3 };

static bool add_socket(listeners *l, int fd, bool is_local) {
    if (l->n == MAX_LISTENERS) {
        complain("too many listening sockets: at most %d", MAX_LISTENERS);
        close(fd);
        return false;
    }
    l->is_local[l->n] = is_local;
    l->sockets[l->n++] = fd;
    return true;
}

static int open_tcp(const struct addrinfo *a) {
    const int one = 1;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

bool listen_tcp(listeners *l, const char *host, uint32_t port) {
    char service[16];
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(service, sizeof service, "%u", port);
    const int failed = getaddrinfo(host, service, &hints, &found);
    if (failed) {
        complain("--host %s: %s", host, gai_strerror(failed));
        return false;
    }
    bool ok = false;
    /* A name may have several addresses. On port 0 each would get another port, so one is
     * enough. */
    for (const struct addrinfo *a = found; a && (!ok || port); a = a->ai_next) {
        const int fd = open_tcp(a);
        if (fd >= 0) ok = add_socket(l, fd, false);
        else if (!ok && !a->ai_next)
            complain("--host %s --port %s: %s%s", host, service, strerror(errno),
                     errno == EADDRINUSE ? "; choose another --port" : "");
    }
    freeaddrinfo(found);
    return ok;
}

/* Returns whether a process listens on the socket. */
static bool is_listening(const struct sockaddr_un *at) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool alive = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0;
    if (fd >= 0) close(fd);
    return alive;
}

bool listen_unix(listeners *l, const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat s;
    if (strlen(path) >= sizeof at.sun_path) {
        complain("--unix %s: the path is too long: at most %zu bytes", path,
                 sizeof at.sun_path - 1);
        return false;
    }
    memcpy(at.sun_path, path, strlen(path));
    if (lstat(path, &s) == 0 && S_ISSOCK(s.st_mode) && !is_listening(&at)) unlink(path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t mask = umask(0177);
    const bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    const int failure = errno;
    umask(mask);
    if (!bound || listen(fd, BACKLOG) != 0) {
        complain("--unix %s: %s", path, strerror(bound ? errno : failure));
        if (fd >= 0) close(fd);
        return false;
    }
    if (!add_socket(l, fd, true)) return false;
    l->paths[l->n - 1] = strdup(path);
    return true;
}

static bool add_inherited(listeners *l, int fd) {
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    int listens = 0;
    socklen_t n = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 || !listens ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0) {
        complain("LISTEN_FDS: descriptor %d is not a listening socket", fd);
        return false;
    }
    evutil_make_socket_nonblocking(fd);
    evutil_make_socket_closeonexec(fd);
    return add_socket(l, fd, at.ss_family == AF_UNIX);
}

/* Reads the decimal number of an environment variable. Reports a value outside 1 to `max`. */
static bool read_count(const char *name, const char *text, long max, long *out) {
    char *end;
    errno = 0;
    *out = strtol(text, &end, 10);
    /* strtol() accepts a sign and leading spaces. */
    const bool is_number = text[0] >= '0' && text[0] <= '9' && !*end && !errno;
    if (is_number && *out >= 1 && *out <= max) return true;
    complain("%s: '%.60s' is not a number from 1 to %ld", name, text, max);
    return false;
}

/* Follows sd_listen_fds(3): without LISTEN_PID, or with the LISTEN_PID of another process, the
 * sockets are not for this process. A malformed LISTEN_FDS is an error in any case. */
bool listen_inherited(listeners *l, size_t *n) {
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    long owner = 0, n_fds;
    *n = 0;
    if (!count) return true;
    if (pid && !read_count("LISTEN_PID", pid, INT_MAX, &owner)) return false;
    if (pid && owner != (long)getpid()) return true;
    if (!read_count("LISTEN_FDS", count, MAX_LISTENERS, &n_fds)) return false;
    if (!pid) return true;
    for (int i = 0; i < n_fds; i++)
        if (!add_inherited(l, FIRST_INHERITED + i)) return false;
    *n = (size_t)n_fds;
    return true;
}

bool listeners_are_local(const listeners *l) {
    for (size_t i = 0; i < l->n; i++)
        if (!l->is_local[i]) return false;
    return true;
}

bool listeners_are_public(const listeners *l) {
    for (size_t i = 0; i < l->n; i++) {
        struct sockaddr_storage at;
        socklen_t size = sizeof at;
        peer_address a;
        if (l->is_local[i]) continue;
        if (getsockname(l->sockets[i], (struct sockaddr *)&at, &size) != 0 ||
            !peer_address_of(&at, &a) || !peer_address_is_loopback(&a))
            return true;
    }
    return false;
}

int socket_local_address(evutil_socket_t fd, char *name, size_t cap) {
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    name[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0) return -1;
    if (at.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at;
        inet_ntop(AF_INET, &v4->sin_addr, name, (socklen_t)cap);
        return ntohs(v4->sin_port);
    }
    if (at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at;
        /* An IPv4 client on a socket for both families used an IPv4 address. */
        const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
        if (mapped) inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, name, (socklen_t)cap);
        else inet_ntop(AF_INET6, &v6->sin6_addr, name, (socklen_t)cap);
        return ntohs(v6->sin6_port);
    }
    return -1;
}

const char *listener_name(const listeners *l, size_t i, char *buf, size_t cap) {
    char address[INET6_ADDRSTRLEN];
    const int port = socket_local_address(l->sockets[i], address, sizeof address);
    const bool v6 = strchr(address, ':') != NULL;
    if (port >= 0)
        snprintf(buf, cap, "%s://%s%s%s:%d", l->use_tls ? "https" : "http", v6 ? "[" : "", address,
                 v6 ? "]" : "", port);
    else snprintf(buf, cap, "%s", l->paths[i] ? l->paths[i] : "a Unix socket");
    return buf;
}

static void on_connection(evutil_socket_t fd, short what, void *user) {
    (void)what;
    listeners *l = user;
    bool is_local = false;
    for (size_t i = 0; i < l->n; i++)
        if (l->sockets[i] == fd) is_local = l->is_local[i];
    for (;;) {
        const int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client < 0) return;
        l->accepted(l->user, client, is_local);
    }
}

bool listeners_start(listeners *l, struct event_base *base) {
    for (size_t i = 0; i < l->n; i++) {
        l->events[i] = event_new(base, l->sockets[i], EV_READ | EV_PERSIST, on_connection, l);
        if (!l->events[i] || event_add(l->events[i], NULL) != 0) return false;
    }
    return true;
}

void listeners_close(listeners *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (l->events[i]) event_free(l->events[i]);
        close(l->sockets[i]);
        if (l->paths[i]) unlink(l->paths[i]);
        free(l->paths[i]);
    }
    *l = (listeners){.n = 0};
}
