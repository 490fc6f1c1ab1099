/* SPDX-License-Identifier: Apache-2.0 */
#include "raw_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static raw_answer answer_api, answer_file; /* guarded by lock */
static atomic_uint generation, n_requests;

void raw_set(raw_answer api, raw_answer file) {
    pthread_mutex_lock(&lock);
    answer_api = api;
    answer_file = file;
    generation++;
    n_requests = 0;
    pthread_mutex_unlock(&lock);
}

unsigned raw_count(void) { return n_requests; }

bool raw_send(const raw_request *q, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n) {
        ssize_t k = q->generation == generation ? send(q->fd, p, n, MSG_NOSIGNAL) : -1;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool raw_print(const raw_request *q, const char *fmt, ...) {
    char text[8192];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) abort();
    return raw_send(q, text, (size_t)n);
}

static const char *find_value(const char *text, const char *name) {
    for (const char *line = strstr(text, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, strlen(name))) return line + 2 + strlen(name);
    return NULL;
}

static void read_request(raw_request *q, const char *text) {
    const char *range = find_value(text, "Range: bytes="),
               *condition = find_value(text, "If-Range: ");
    if (sscanf(text, "%*15s %2047s", q->path) != 1) return;
    q->has_range = range && sscanf(range, "%llu-", &q->first) == 1;
    if (condition)
        snprintf(q->if_range, sizeof q->if_range, "%.*s", (int)strcspn(condition, "\r"), condition);
    pthread_mutex_lock(&lock);
    const bool api = !strncmp(q->path, "/api/", 5);
    const raw_answer answer = api ? answer_api : answer_file;
    q->generation = generation;
    q->number = api ? 0 : ++n_requests;
    pthread_mutex_unlock(&lock);
    if (answer) answer(q);
}

static void *serve(void *argument) {
    raw_request *q = argument;
    char text[8192] = "";
    size_t n = 0;
    while (n + 1 < sizeof text && !strstr(text, "\r\n\r\n")) {
        ssize_t got = recv(q->fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
    }
    read_request(q, text);
    shutdown(q->fd, SHUT_WR);
    char rest[256];
    while (recv(q->fd, rest, sizeof rest, 0) > 0) continue;
    close(q->fd);
    free(q);
    return NULL;
}

static void *accept_all(void *unused) {
    (void)unused;
    for (;;) {
        pthread_t thread;
        raw_request *q = calloc(1, sizeof *q);
        if (!q) abort();
        q->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (q->fd < 0 || pthread_create(&thread, NULL, serve, q) != 0) abort();
        pthread_detach(thread);
    }
}

int raw_start(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    pthread_t thread;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, 64) != 0 || getsockname(listener, (struct sockaddr *)&at, &size) != 0 ||
        pthread_create(&thread, NULL, accept_all, NULL) != 0)
        abort();
    pthread_detach(thread);
    return ntohs(at.sin_port);
}
