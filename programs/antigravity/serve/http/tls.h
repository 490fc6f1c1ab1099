/* SPDX-License-Identifier: Apache-2.0 */
/* TLS with a certificate and a private key, both from files. In a build without OpenSSL tls_open()
 * fails with a message and the other functions do nothing. */
#ifndef ANTIGRAVITY_SERVE_HTTP_TLS_H
#define ANTIGRAVITY_SERVE_HTTP_TLS_H

#include <event2/bufferevent.h>
#include <stdbool.h>

enum { TLS_REASON_SIZE = 512 };
/* Maximum and minimum bytes of a connection with TLS. Measured with 400 connections, OpenSSL
 * 3.0.19, x86-64: 46 KB during the handshake, 17 KB after it. */
enum { TLS_MAX_BYTES = 65536, TLS_MIN_BYTES = 16384 };

typedef struct tls_files tls_files;

/* Loads the files. cert: PEM, the server's certificate first, then its chain; key: PEM. Both names
 * are borrowed. Returns NULL on failure, with message[TLS_REASON_SIZE]. Warns if all users may read
 * the key. */
tls_files *tls_open(const char *cert, const char *key, char *message);
/* Reads both files again, for new connections. Fails with message[TLS_REASON_SIZE] and keeps the
 * old certificate and key. */
bool tls_reload(tls_files *t, char *message);
void tls_close(tls_files *t); /* accepted connections stay valid */

/* Wraps an accepted socket. Returns NULL without memory; the socket still belongs to the caller. */
struct bufferevent *tls_accept(tls_files *t, struct event_base *base, evutil_socket_t fd);
/* Writes the whole output buffer without waiting. Returns whether the socket took all of it. The
 * connection must be freed next. */
bool tls_write_now(struct bufferevent *b);
/* Sends close_notify, so that the client can tell a complete response from a truncated one. Does
 * nothing without TLS. */
void tls_end(struct bufferevent *b);

#endif
