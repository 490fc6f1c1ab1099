/* SPDX-License-Identifier: Apache-2.0 */
#include "loopback_http.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;
static loopback_serve serve_request;

const char *loopback_value(const char *text, const char *name) {
    for (const char *line = strstr(text, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, strlen(name))) return line + 2 + strlen(name);
    return NULL;
}

static void *serve_connection(void *argument) {
    const int fd = (int)(intptr_t)argument;
    char text[8192] = "", rest[256];
    size_t n = 0;
    while (n + 1 < sizeof text && !strstr(text, "\r\n\r\n")) {
        const ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
    }
    serve_request(fd, text);
    shutdown(fd, SHUT_WR);
    while (recv(fd, rest, sizeof rest, 0) > 0) continue;
    close(fd);
    return NULL;
}

static void *accept_all(void *unused) {
    (void)unused;
    for (;;) {
        pthread_t thread;
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || pthread_create(&thread, NULL, serve_connection, (void *)(intptr_t)fd) != 0)
            abort();
        pthread_detach(thread);
    }
}

int loopback_start(loopback_serve serve) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    pthread_t thread;
    serve_request = serve;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, 64) != 0 || getsockname(listener, (struct sockaddr *)&at, &size) != 0 ||
        pthread_create(&thread, NULL, accept_all, NULL) != 0)
        abort();
    pthread_detach(thread);
    return ntohs(at.sin_port);
}
