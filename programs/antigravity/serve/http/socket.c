/* SPDX-License-Identifier: Apache-2.0 */
#include "socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

bool socket_peer_address(int fd, peer_address *out) {
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    return getpeername(fd, (struct sockaddr *)&at, &size) == 0 && peer_address_of(&at, out);
}

void socket_set_no_delay(int fd) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void socket_shutdown_output(int fd) { shutdown(fd, SHUT_WR); }
void socket_shutdown(int fd) { shutdown(fd, SHUT_RDWR); }

void socket_send_datagram(const char *path, const char *text) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const struct timeval timeout = {.tv_sec = 1};
    const size_t n = strlen(path);
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') to.sun_path[0] = '\0';
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to, size);
    close(fd);
}
