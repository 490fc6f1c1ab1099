/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates made for a test, and a client that speaks TLS to `antigravity serve`. */
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

/* For localhost and 127.0.0.1, signed by issuer (NULL: by itself). */
tls_identity tls_issue(const char *name, const tls_identity *issuer, bool is_authority);
void tls_identity_free(tls_identity *i);
/* dir/cert.pem holds the certificates of chain[n], dir/key.pem the key of its first, closed to
 * others. */
void tls_write_files(const char *dir, const tls_identity *chain, size_t n);

typedef struct tls_client {
    int fd;
    SSL_CTX *context;
    SSL *ssl;
    bool is_trusted; /* the handshake came to its end */
} tls_client;

/* Connects, trusting what `trusted` signed for localhost. max_version: 0, or TLS1_1_VERSION and
 * the like. */
tls_client tls_connect(const serve_process *p, X509 *trusted, int max_version);
void tls_send(tls_client *c, const char *bytes, size_t n);
/* What comes until the server ends the connection; owned. *ended: it said that this is the end
 * (close_notify). */
char *tls_receive_all(tls_client *c, bool *ended);
/* Reads until `part` has come; false: the end came first. */
bool tls_receive_until(tls_client *c, const char *part);
void tls_disconnect(tls_client *c);

/* A request with these further header lines and this body (NULL: none), by a connection of its
 * own; what the server sends, head included; owned. */
char *tls_fetch(const serve_process *p, X509 *trusted, const char *line, const char *body);

#endif
