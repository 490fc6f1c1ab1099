/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of antigravity serve with a certificate: what clients see, and clients that do not finish a
 * handshake. */
#include "served_group.h"
#include "tls_client.h"

#include <errno.h>
#include <openssl/pem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[96] = "serve_tls", cert[160], key[160];
/* The server's certificate is signed by an intermediate one, which the root has signed. */
static tls_identity root, chain[2], stranger;

#define CHAT "POST /v1/chat/completions"
#define STREAM                                                                                 \
    "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}]," \
    "\"max_tokens\":10,\"temperature\":0,\"stream\":true}"

static bool is_closed_socket(int fd) {
    char bytes[4096];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) continue; /* an alert may arrive first */
    return n == 0 || errno == ECONNRESET;
}

static void expect_health(void) {
    char *text = tls_fetch(&server, root.cert, "GET /health", NULL);
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    free(text);
}

/* ---- connections ---- */

static void streams_to_clients_that_trust_the_root(void **state) {
    (void)state;
    assert_says(server.log, "listening on https://127.0.0.1:");
    char *text = tls_fetch(&server, root.cert, CHAT, STREAM);
    assert_says(text, "Content-Type: text/event-stream\r\n");
    assert_says(text, " little");
    assert_says(text, "data: [DONE]\n\n");
    assert_says(text, "\r\n0\r\n\r\n");
    free(text);
}

static void transfers_large_bodies_and_several_requests(void **state) {
    (void)state;
    enum { LARGE = 300000 };
    char *body = malloc(LARGE + 1);
    assert_non_null(body);
    memset(body, 'a', LARGE);
    memcpy(body, "{\"content\":\"", 12);
    memcpy(body + LARGE - 2, "\"}", 3);
    char *text = tls_fetch(&server, root.cert, "POST /tokenize", body);
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    assert_true(strlen(text) > 100000);
    free(text);
    free(body);
    /* A request that is rejected by its head gets a reply although its body was not read. */
    text = tls_fetch(&server, root.cert, "POST /nothing", "0123456789");
    assert_int_equal(strncmp(text, "HTTP/1.1 404 ", 13), 0);
    free(text);
    static const char two[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                              "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
    tls_client c = tls_connect(&server, root.cert, 0);
    tls_send(&c, two, sizeof two - 1);
    assert_true(tls_receive_until(&c, "\"context_length\""));
    tls_send(&c, two, strlen(two) / 2);
    tls_disconnect(&c);
}

static void rejects_versions_before_tls_1_2(void **state) {
    (void)state;
    tls_client c = tls_connect(&server, root.cert, TLS1_1_VERSION);
    assert_false(c.is_trusted);
    tls_disconnect(&c);
    c = tls_connect(&server, root.cert, TLS1_2_VERSION);
    assert_true(c.is_trusted);
    assert_string_equal(SSL_get_version(c.ssl), "TLSv1.2");
    assert_int_equal(SSL_get_secure_renegotiation_support(c.ssl), 1);
    SSL_renegotiate(c.ssl);
    assert_int_not_equal(SSL_do_handshake(c.ssl), 1);
    tls_disconnect(&c);
    c = tls_connect(&server, root.cert, 0);
    assert_string_equal(SSL_get_version(c.ssl), "TLSv1.3");
    assert_null(SSL_get_current_compression(c.ssl));
    tls_disconnect(&c);
}

/* The server publishes its memory after the engine has done something. */
static double server_bytes(void) {
    free(tls_fetch(&server, root.cert, CHAT, STREAM));
    char *text = tls_fetch(&server, root.cert, "GET /metrics", NULL);
    const char *at = strstr(text, "\nantigravity_server_bytes ");
    assert_non_null(at);
    const double bytes = strtod(at + strlen("\nantigravity_server_bytes "), NULL);
    free(text);
    return bytes;
}

static void counts_memory_of_connections(void **state) {
    (void)state;
    enum { MANY = 20, LEAST = 16384 };
    SERVE_START(&server, "-q", "--tls-cert", cert, "--tls-key", key);
    tls_client all[MANY];
    for (size_t i = 0; i < MANY; i++) {
        all[i] = tls_connect(&server, root.cert, 0);
        assert_true(all[i].is_trusted);
    }
    double bytes = 0;
    for (int i = 0; i < 100 && bytes < MANY * LEAST; i++) bytes = server_bytes();
    assert_true(bytes >= MANY * LEAST);
    for (size_t i = 0; i < MANY; i++) tls_disconnect(&all[i]);
    for (int i = 0; i < 100 && bytes >= MANY * LEAST; i++) bytes = server_bytes();
    assert_true(bytes < MANY * LEAST);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
}

/* ---- unusable clients ---- */

static void fails_for_clients_without_the_root(void **state) {
    (void)state;
    tls_client c = tls_connect(&server, stranger.cert, 0);
    assert_false(c.is_trusted);
    tls_disconnect(&c);
    expect_health();
}

/* Returns the first message of a client, from a handshake inside of this process. */
static size_t client_hello(unsigned char *bytes, size_t cap) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
    assert_int_not_equal(SSL_connect(ssl), 1);
    const int n = BIO_read(out, bytes, (int)cap);
    SSL_free(ssl);
    SSL_CTX_free(context);
    assert_true(n > 100);
    return (size_t)n;
}

static void closes_unfinished_handshakes(void **state) {
    (void)state;
    unsigned char hello[2048];
    static const char plain[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const size_t n = client_hello(hello, sizeof hello);
    int all[5];
    for (size_t i = 0; i < 5; i++) all[i] = serve_connect(&server);
    serve_send(all[1], (const char *)hello, 50);
    serve_send(all[2], (const char *)hello, n);
    serve_send(all[3], plain, sizeof plain - 1);
    for (size_t i = 100; i < n; i++) hello[i] = (unsigned char)(i * 37);
    serve_send(all[4], (const char *)hello, n);
    for (size_t i = 0; i < 5; i++) {
        if (!is_closed_socket(all[i])) fail_msg("client %zu is not given up", i);
        close(all[i]);
    }
    /* A client that finishes the handshake and sends no request. */
    tls_client c = tls_connect(&server, root.cert, 0);
    bool ended = false;
    assert_true(c.is_trusted);
    free(tls_receive_all(&c, &ended));
    assert_true(ended);
    tls_disconnect(&c);
    expect_health();
}

static void closes_the_longest_waiting_for_a_new_one(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--tls-cert", cert, "--tls-key", key, "--max-connections", "2",
                "--read-timeout", "600");
    const int first = serve_connect(&server), second = serve_connect(&server);
    tls_client c = tls_connect(&server, root.cert, 0);
    assert_true(c.is_trusted);
    assert_true(is_closed_socket(first)); /* a handshake counts as a connection */
    tls_send(&c, "GET /health HTTP/1.1\r\nHo", 24);
    tls_client d = tls_connect(&server, root.cert, 0);
    assert_true(d.is_trusted);
    assert_true(is_closed_socket(second));
    const int last = serve_connect(&server);
    bool ended = false;
    char *reply = tls_receive_all(&c, &ended);
    assert_int_equal(strncmp(reply, "HTTP/1.1 408 ", 13), 0);
    assert_true(ended);
    free(reply);
    tls_disconnect(&c);
    tls_disconnect(&d);
    close(first);
    close(second);
    close(last);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
}

/* ---- files ---- */

static void read_log_until(const char *part) {
    while (!strstr(server.log, part)) assert_true(serve_read_log(&server));
    server.n_log = 0; /* only new output counts */
    server.log[0] = '\0';
}

static long serial_of(tls_client *c) {
    X509 *shown = SSL_get1_peer_certificate(c->ssl);
    const long serial = ASN1_INTEGER_get(X509_get_serialNumber(shown));
    X509_free(shown);
    return serial;
}

static void reloads_its_files(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--tls-cert", cert, "--tls-key", key);
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    tls_client old = tls_connect(&server, root.cert, 0);
    const long first = serial_of(&old);
    tls_identity fresh[2] = {tls_issue("fresh", &chain[1], false), chain[1]};
    tls_write_files(dir, fresh, 2);
    kill(server.pid, SIGHUP);
    read_log_until("reloaded the certificate\n");
    tls_client c = tls_connect(&server, root.cert, 0);
    assert_true(c.is_trusted);
    const long second = serial_of(&c);
    assert_int_not_equal(first, second);
    tls_disconnect(&c);
    write_file(dir, "cert.pem", "nothing", 7);
    kill(server.pid, SIGHUP);
    read_log_until("cannot reload the certificate: --tls-cert ");
    c = tls_connect(&server, root.cert, 0);
    assert_int_equal(serial_of(&c), second);
    tls_disconnect(&c);
    /* A connection keeps its certificate. */
    tls_send(&old, ask, sizeof ask - 1);
    assert_true(tls_receive_until(&old, "\"status\":\"ok\""));
    tls_disconnect(&old);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    tls_write_files(dir, chain, 2);
    tls_identity_free(&fresh[0]);
}

static void write_encrypted_key(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(
        PEM_write_PKCS8PrivateKey(f, chain[0].key, EVP_aes_128_cbc(), "secret", 6, NULL, NULL), 1);
    fclose(f);
}

static void rejects_invalid_files_with_a_reason(void **state) {
    (void)state;
    char other[160], junk[160], encrypted[160];
    snprintf(other, sizeof other, "%s/other.pem", dir);
    snprintf(junk, sizeof junk, "%s/junk", dir);
    snprintf(encrypted, sizeof encrypted, "%s/encrypted.pem", dir);
    write_file(dir, "junk", "nothing", 7);
    write_encrypted_key(encrypted);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    PEM_write_PrivateKey(f, stranger.key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    const struct {
        const char *cert, *key, *says;
    } all[] = {
        {"/nonexistent", key, "--tls-cert /nonexistent: No such file or directory"},
        {cert, "/nonexistent", "--tls-key /nonexistent: No such file or directory"},
        {dir, key, "is a directory; give a PEM file"},
        {junk, key, "junk: no certificate in PEM format found"},
        {cert, junk, "junk: no private key in PEM format found"},
        {cert, cert, "cert.pem: no private key in PEM format found"},
        {cert, other, "other.pem: the key does not match the certificate in "},
        {cert, encrypted, "encrypted.pem: the key is encrypted; give a key without a passphrase"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cli_result r =
            CLI("serve", "-q", "--port", "0", "--tls-cert", all[i].cert, "--tls-key", all[i].key);
        assert_refused(&r, 2, all[i].says);
        cli_free(&r);
    }
    snprintf(junk, sizeof junk, "%s/socket", dir);
    cli_result r = CLI("serve", "-q", "--unix", junk, "--tls-cert", cert, "--tls-key", key);
    assert_refused(&r, 2, "Unix sockets do not use TLS");
    cli_free(&r);
    chmod(key, 0644);
    SERVE_START(&server, "-q", "--tls-cert", cert, "--tls-key", key);
    assert_says(server.log, "key.pem: all users of this machine may read the key (mode 644)");
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    chmod(key, 0600);
}

/* ---- fixture ---- */

static int make_files(void) {
    make_directory(dir);
    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    root = tls_issue("root", NULL, true);
    stranger = tls_issue("stranger", NULL, true);
    chain[1] = tls_issue("middle", &root, true);
    chain[0] = tls_issue("server", &chain[1], false);
    tls_write_files(dir, chain, 2);
    return 0;
}

static int start_secure(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--tls-cert", cert, "--tls-key", key, "--read-timeout", "1");
    return 0;
}

int main(void) {
    const struct CMUnitTest secure[] = {
        cmocka_unit_test(streams_to_clients_that_trust_the_root),
        cmocka_unit_test(transfers_large_bodies_and_several_requests),
        cmocka_unit_test(rejects_versions_before_tls_1_2),
        cmocka_unit_test(fails_for_clients_without_the_root),
        cmocka_unit_test(closes_unfinished_handshakes),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(counts_memory_of_connections),
        cmocka_unit_test(closes_the_longest_waiting_for_a_new_one),
        cmocka_unit_test(reloads_its_files),
        cmocka_unit_test(rejects_invalid_files_with_a_reason),
    };
    signal(SIGPIPE, SIG_IGN);
    make_files();
    const int failed = cmocka_run_group_tests(secure, start_secure, stop_server) +
                       cmocka_run_group_tests(others, NULL, NULL);
    remove_directory(dir);
    tls_identity_free(&root);
    tls_identity_free(&stranger);
    for (size_t i = 0; i < 2; i++) tls_identity_free(&chain[i]);
    return failed;
}
