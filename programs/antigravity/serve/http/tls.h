/* SPDX-License-Identifier: Apache-2.0 */
/* TLS by a certificate and its key, both in files. Where the program was built without OpenSSL,
 * tls_open() says so and the others do nothing. */
#ifndef ANTIGRAVITY_SERVE_HTTP_TLS_H
#define ANTIGRAVITY_SERVE_HTTP_TLS_H

#include <event2/bufferevent.h>
#include <stdbool.h>

enum { TLS_REASON_SIZE = 512 };
/* Bytes of a connection with TLS: what it may take, in its handshake or while a record comes and
 * another one goes, and what it has at least. 400 connections with OpenSSL 3.0.19 on x86-64 took
 * 46 KB each in the midst of their handshakes, and 17 KB behind them. */
enum { TLS_MAX_BYTES = 65536, TLS_MIN_BYTES = 16384 };

typedef struct tls_files tls_files;

/* cert: in PEM, the server's own first, then those that it was signed by; key: its private key.
 * Both names are borrowed. NULL: why[TLS_REASON_SIZE] names the file and what is wrong with it. A
 * key that everybody may read is warned of. */
tls_files *tls_open(const char *cert, const char *key, char *message);
/* Reads both again, for connections from now on. False: why[TLS_REASON_SIZE] says what is wrong,
 * and they stay as they were. */
bool tls_reload(tls_files *t, char *message);
void tls_close(tls_files *t); /* connections that were accepted may live on */

/* Takes a socket that was accepted. NULL without memory: the socket is still the caller's. */
struct bufferevent *tls_accept(tls_files *t, struct event_base *base, evutil_socket_t fd);
/* Writes the whole output buffer without waiting. Returns whether the socket took all of it. The
 * connection must be freed next. */
bool tls_write_now(struct bufferevent *b);
/* Tells the client that nothing else will come, so that it knows its response from one that was
 * cut. Does nothing to a connection without TLS. */
void tls_end(struct bufferevent *b);

#endif
