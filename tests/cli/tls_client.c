/* SPDX-License-Identifier: Apache-2.0 */
#include "tls_client.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- certificates ---- */

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(e);
    assert_int_equal(X509_add_ext(cert, e, -1), 1);
    X509_EXTENSION_free(e);
}

tls_identity tls_issue(const char *name, const tls_identity *issuer, bool is_authority) {
    static long serial = 1;
    tls_identity i = {.cert = X509_new(), .key = EVP_EC_gen("P-256")};
    assert_non_null(i.cert);
    assert_non_null(i.key);
    const tls_identity *by = issuer ? issuer : &i;
    X509_NAME *subject = X509_get_subject_name(i.cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_version(i.cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(i.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(i.cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(i.cert), 86400);
    X509_set_issuer_name(i.cert, X509_get_subject_name(by->cert));
    X509_set_pubkey(i.cert, i.key);
    add_extension(i.cert, by->cert, NID_basic_constraints,
                  is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    add_extension(i.cert, by->cert, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    assert_true(X509_sign(i.cert, by->key, EVP_sha256()) > 0);
    return i;
}

void tls_identity_free(tls_identity *i) {
    X509_free(i->cert);
    EVP_PKEY_free(i->key);
    *i = (tls_identity){.cert = NULL};
}

static FILE *create(const char *dir, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    chmod(path, 0600);
    return f;
}

void tls_write_files(const char *dir, const tls_identity *chain, size_t n) {
    FILE *f = create(dir, "cert.pem");
    for (size_t i = 0; i < n; i++) assert_int_equal(PEM_write_X509(f, chain[i].cert), 1);
    fclose(f);
    f = create(dir, "key.pem");
    assert_int_equal(PEM_write_PrivateKey(f, chain[0].key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
}

/* ---- the client ---- */

tls_client tls_connect(const serve_process *p, X509 *trusted, int max_version) {
    tls_client c = {.fd = serve_connect(p), .context = SSL_CTX_new(TLS_client_method())};
    assert_non_null(c.context);
    if (max_version) {
        SSL_CTX_set_security_level(c.context, 0); /* otherwise it would not offer old versions */
        SSL_CTX_set_max_proto_version(c.context, max_version);
    }
    X509_STORE_add_cert(SSL_CTX_get_cert_store(c.context), trusted);
    SSL_CTX_set_verify(c.context, SSL_VERIFY_PEER, NULL);
    c.ssl = SSL_new(c.context);
    assert_non_null(c.ssl);
    SSL_set1_host(c.ssl, "localhost");
    SSL_set_fd(c.ssl, c.fd);
    c.is_trusted = SSL_connect(c.ssl) == 1;
    ERR_clear_error();
    return c;
}

void tls_send(tls_client *c, const char *bytes, size_t n) {
    size_t sent;
    assert_int_equal(SSL_write_ex(c->ssl, bytes, n, &sent), 1);
    assert_int_equal(sent, n);
}

char *tls_receive_all(tls_client *c, bool *ended) {
    size_t n = 0, cap = 1 << 16, got = 0;
    char *text = malloc(cap);
    assert_non_null(text);
    while (SSL_read_ex(c->ssl, text + n, cap - n - 1, &got) == 1) {
        n += got;
        if (cap - n > 4096) continue;
        text = realloc(text, cap *= 2);
        assert_non_null(text);
    }
    if (ended) *ended = SSL_get_error(c->ssl, 0) == SSL_ERROR_ZERO_RETURN;
    ERR_clear_error();
    text[n] = '\0';
    return text;
}

bool tls_receive_until(tls_client *c, const char *part) {
    char text[8192] = "";
    size_t n = 0, got = 0;
    while (!strstr(text, part)) {
        assert_true(n + 1 < sizeof text);
        if (SSL_read_ex(c->ssl, text + n, sizeof text - n - 1, &got) != 1) return false;
        n += got;
        text[n] = '\0';
    }
    return true;
}

void tls_disconnect(tls_client *c) {
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    close(c->fd);
}

char *tls_fetch(const serve_process *p, X509 *trusted, const char *line, const char *body) {
    char head[512];
    bool ended;
    tls_client c = tls_connect(p, trusted, 0);
    assert_true(c.is_trusted);
    const size_t n = body ? strlen(body) : 0;
    const int k = snprintf(head, sizeof head,
                           "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           "Content-Length: %zu\r\n\r\n",
                           line, n);
    tls_send(&c, head, (size_t)k);
    if (n) tls_send(&c, body, n);
    char *text = tls_receive_all(&c, &ended);
    assert_true(ended);
    tls_disconnect(&c);
    return text;
}
