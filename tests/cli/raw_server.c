/* SPDX-License-Identifier: Apache-2.0 */
#include "raw_server.h"

#include "loopback_http.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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

static void read_request(raw_request *q, const char *text) {
    const char *range = loopback_value(text, "Range: bytes="),
               *condition = loopback_value(text, "If-Range: ");
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

static void serve(int fd, const char *text) {
    raw_request q = {.fd = fd};
    read_request(&q, text);
}

int raw_start(void) { return loopback_start(serve); }
