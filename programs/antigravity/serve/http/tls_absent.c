/* SPDX-License-Identifier: Apache-2.0 */
/* TLS functions of a build without OpenSSL. */
#include "tls.h"

#include <stdio.h>

tls_files *tls_open(const char *cert, const char *key, char *message) {
    (void)key;
    snprintf(message, TLS_REASON_SIZE,
             "--tls-cert %.300s: TLS is not supported: this program was built without OpenSSL "
             "(Debian: libssl-dev, libevent-dev)",
             cert);
    return NULL;
}

bool tls_reload(tls_files *t, char *message) {
    (void)t, (void)message;
    return false;
}

void tls_close(tls_files *t) { (void)t; }

struct bufferevent *tls_accept(tls_files *t, struct event_base *base, evutil_socket_t fd) {
    (void)t, (void)base, (void)fd;
    return NULL;
}

bool tls_write_now(struct bufferevent *b) {
    (void)b;
    return false;
}

void tls_end(struct bufferevent *b) { (void)b; }
