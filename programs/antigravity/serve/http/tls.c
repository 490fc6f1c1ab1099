/* SPDX-License-Identifier: Apache-2.0 */
#include "tls.h"

#include "../../terminal/output.h"
#include "../system.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tls_files {
    const char *cert, *key;
    SSL_CTX *context;
};

/* ---- errors in the files ---- */

/* Fails if path is not a readable file. *mode: its permissions. */
static bool check_file(const char *option, const char *path, unsigned *mode, char *message) {
    const char *reason = system_is_directory(path)       ? "is a directory; give a PEM file"
                         : !system_file_mode(path, mode) ? strerror(errno)
                                                         : NULL;
    if (reason) snprintf(message, TLS_REASON_SIZE, "%s %.300s: %s", option, path, reason);
    return !reason;
}

/* Reports the first error in OpenSSL's queue; later entries are consequences. Returns false. */
static bool report_bad_file(const char *option, const char *path, const char *wanted,
                            char *message) {
    const unsigned long code = ERR_peek_error();
    const char *reason = ERR_reason_error_string(code);
    const bool is_none =
        (ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE) ||
        ERR_GET_REASON(code) == ERR_R_UNSUPPORTED; /* OpenSSL's error for a key */
    if (is_none || !reason)
        snprintf(message, TLS_REASON_SIZE, "%s %.300s: no %s in PEM format found", option, path,
                 wanted);
    else
        snprintf(message, TLS_REASON_SIZE, "%s %.300s: cannot use the %s: %s", option, path, wanted,
                 reason);
    ERR_clear_error();
    return false;
}

/* Refuses to ask for a passphrase: a server may have no terminal. */
static int no_passphrase(char *buf, int size, int writes, void *user) {
    (void)buf, (void)size, (void)writes;
    *(bool *)user = true;
    return -1;
}

/* Loads the key. The certificate must be loaded. */
static bool use_key(SSL_CTX *x, const tls_files *t, char *message) {
    bool is_encrypted = false;
    SSL_CTX_set_default_passwd_cb(x, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(x, &is_encrypted);
    const bool is_read = SSL_CTX_use_PrivateKey_file(x, t->key, SSL_FILETYPE_PEM) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(x, NULL);
    SSL_CTX_set_default_passwd_cb(x, NULL);
    const bool differs = !is_read && ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_X509;
    if (is_encrypted) {
        snprintf(message, TLS_REASON_SIZE,
                 "--tls-key %.300s: the key is encrypted; give a key without a passphrase", t->key);
    } else if (!is_read && !differs) {
        return report_bad_file("--tls-key", t->key, "private key", message);
    } else if (differs || SSL_CTX_check_private_key(x) != 1) {
        snprintf(message, TLS_REASON_SIZE,
                 "--tls-key %.200s: the key does not match the certificate in %.200s", t->key,
                 t->cert);
    } else {
        return true;
    }
    ERR_clear_error();
    return false;
}

static bool use_files(SSL_CTX *x, const tls_files *t, char *message) {
    unsigned mode;
    if (!check_file("--tls-cert", t->cert, &mode, message)) return false;
    if (!check_file("--tls-key", t->key, &mode, message)) return false;
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(x, t->cert) != 1)
        return report_bad_file("--tls-cert", t->cert, "certificate", message);
    if (!use_key(x, t, message)) return false;
    enum { OTHERS_READ = 04 };
    if (mode & OTHERS_READ)
        complain("--tls-key %s: all users of this machine may read the key (mode %03o)", t->key,
                 mode & 0777);
    return true;
}

/* ---- the context ---- */

/* Selects http/1.1 (ALPN). Fails for clients that offer other protocols only. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out,
                           const unsigned char *in, unsigned n, void *user) {
    static const unsigned char protocols[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl, (void)user;
    if (SSL_select_next_proto(&chosen, n_out, protocols, sizeof protocols - 1, in, n) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* Returns NULL on failure, with a message. */
static SSL_CTX *make_context(const tls_files *t, char *message) {
    SSL_CTX *x = SSL_CTX_new(TLS_server_method());
    snprintf(message, TLS_REASON_SIZE, "out of memory: TLS context");
    if (!x) return NULL;
    SSL_CTX_set_options(x, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(x, SSL_MODE_RELEASE_BUFFERS);
    /* Clients keep session tickets, so a cache on the server is useless. */
    SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(x, choose_protocol, NULL);
    const bool ok = SSL_CTX_set_min_proto_version(x, TLS1_2_VERSION) == 1 &&
                    SSL_CTX_set_cipher_list(x, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
    if (ok && use_files(x, t, message)) return x;
    SSL_CTX_free(x);
    return NULL;
}

tls_files *tls_open(const char *cert, const char *key, char *message) {
    tls_files *t = malloc(sizeof *t);
    snprintf(message, TLS_REASON_SIZE, "out of memory: TLS context");
    if (!t) return NULL;
    *t = (tls_files){.cert = cert, .key = key};
    t->context = make_context(t, message);
    if (t->context) return t;
    free(t);
    return NULL;
}

bool tls_reload(tls_files *t, char *message) {
    SSL_CTX *context = make_context(t, message);
    if (!context) return false;
    SSL_CTX_free(t->context); /* connections hold references */
    t->context = context;
    return true;
}

void tls_close(tls_files *t) {
    if (t) SSL_CTX_free(t->context);
    free(t);
}

/* ---- connections ---- */

struct bufferevent *tls_accept(tls_files *t, struct event_base *base, evutil_socket_t fd) {
    SSL *ssl = SSL_new(t->context);
    if (!ssl) return NULL;
    /* On failure some versions of libevent free it and others do not: keep a reference. */
    SSL_up_ref(ssl);
    struct bufferevent *b = bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                                           BEV_OPT_CLOSE_ON_FREE);
    SSL_free(ssl);
    return b;
}

bool tls_write_now(struct bufferevent *b) {
    SSL *ssl = bufferevent_openssl_get_ssl(b);
    struct evbuffer *out = bufferevent_get_output(b);
    const size_t n = evbuffer_get_length(out);
    const unsigned char *bytes = evbuffer_pullup(out, -1);
    if (!ssl || !SSL_is_init_finished(ssl) || !bytes || n > INT_MAX) return false;
    ERR_clear_error();
    const bool ok = SSL_write(ssl, bytes, (int)n) == (int)n;
    ERR_clear_error();
    return ok;
}

void tls_end(struct bufferevent *b) {
    SSL *ssl = bufferevent_openssl_get_ssl(b);
    if (!ssl || !SSL_is_init_finished(ssl)) return;
    SSL_shutdown(ssl);
    ERR_clear_error();
}
