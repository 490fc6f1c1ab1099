/* SPDX-License-Identifier: Apache-2.0 */
/* System calls on sockets, for files that need no other ones. */
#ifndef ANTIGRAVITY_SERVE_HTTP_SOCKET_H
#define ANTIGRAVITY_SERVE_HTTP_SOCKET_H

#include "peer_address.h"

/* Gets the address of the client. Fails if the client has closed the connection. */
bool socket_peer_address(int fd, peer_address *out);
/* Sends small writes at once (TCP_NODELAY). */
void socket_set_no_delay(int fd);
/* Ends the output; the client sees the end of the response. */
void socket_shutdown_output(int fd);
/* Ends both directions. */
void socket_shutdown(int fd);
/* Sends a datagram to a Unix socket. path: "@NAME" is an abstract socket. Waits at most a second
 * and ignores errors. */
void socket_send_datagram(const char *path, const char *text);

#endif
