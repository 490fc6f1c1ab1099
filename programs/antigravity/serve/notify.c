/* SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Sends a datagram to the service manager. Waits at most a second and ignores errors. */
static void send_state(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') to.sun_path[0] = '\0'; /* abstract socket */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    const struct timeval timeout = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to, size);
    close(fd);
}

void notify_ready(void) { send_state("READY=1"); }
void notify_stopping(void) { send_state("STOPPING=1"); }

void notify_reloading(void) {
    char state[64];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRId64, us);
    send_state(state);
}
