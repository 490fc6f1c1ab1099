/* SPDX-License-Identifier: Apache-2.0 */
/* Test certificates, and a TLS client for `antigravity serve`. */
#ifndef AG_TESTS_TLS_CLIENT_H
#define AG_TESTS_TLS_CLIENT_H

#include "serve_client.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

/* A certificate and its key. */
typedef struct tls_identity {
    X509 *cert;
    EVP_PKEY *key;
} tls_identity;

/* Issues a certificate for localhost and 127.0.0.1, signed by issuer (NULL: self-signed). */
tls_identity tls_issue(const char *name, const tls_identity *issuer, bool is_authority);
void tls_identity_free(tls_identity *i);
/* Writes the certificates chain[n] to dir/cert.pem, and the key of the first to dir/key.pem, which
 * only its owner may read. */
void tls_write_files(const char *dir, const tls_identity *chain, size_t n);

typedef struct tls_client {
    int fd;
    SSL_CTX *context;
    SSL *ssl;
    bool is_trusted; /* the handshake succeeded */
} tls_client;

/* Connects and trusts the certificates for localhost that `trusted` signed. max_version: 0, or a
 * version such as TLS1_1_VERSION. */
tls_client tls_connect(const serve_process *p, X509 *trusted, int max_version);
void tls_send(tls_client *c, const char *bytes, size_t n);
/* Receives until the server ends the connection. The result is owned by the caller. *ended: the
 * server sent close_notify. */
char *tls_receive_all(tls_client *c, bool *ended);
/* Receives until `part` has arrived. Returns false if the connection ends first. */
bool tls_receive_until(tls_client *c, const char *part);
void tls_disconnect(tls_client *c);

/* Sends a request on its own connection and returns all that the server sends, head included; owned
 * by the caller. body: NULL for none. */
char *tls_fetch(const serve_process *p, X509 *trusted, const char *line, const char *body);

#endif
