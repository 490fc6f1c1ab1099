/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of antigravity serve against hostile clients and clients that leave: HTTP, hosts and
 * origins, keys, and the end of the process. */
#include "../support/sanitized.h"
#include "served_group.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "POST /v1/chat/completions"
#define HELLO "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}]"
/* More tokens than any test waits for. */
#define LONG HELLO ",\"max_tokens\":1900,\"ignore_eos\":true,\"stream\":true}"

/* Sends exactly these bytes and returns the reply. *keep, unless keep is NULL, gets the open
 * socket. */
static serve_reply fetch_raw(const char *bytes, size_t n, int *keep) {
    const int fd = serve_connect(&server);
    serve_send(fd, bytes, n);
    serve_reply r = serve_receive(fd);
    if (keep) *keep = fd;
    else close(fd);
    return r;
}

static bool is_closed(int fd) {
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

static void is_well(void) { json_decref(serve_json(&server, "GET /health", NULL, 200)); }

/* ---- HTTP ---- */

#define HOST "Host: localhost\r\n"

static void rejects_ambiguous_requests(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        int status;
    } all[] = {
        {"POST /tokenize HTTP/1.1\r\n" HOST
         "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
         "0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
         400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
         400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: 2, 2\r\n\r\n{}", 400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: +2\r\n\r\n{}", 400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: 0x2\r\n\r\n{}", 400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n{}", 400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Content-Length : 2\r\n\r\n{}", 400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"POST /tokenize HTTP/1.1\r\n" HOST
         "Transfer-Encoding: chunked\r\n\r\n2;x\n{}\r\n0\r\n\r\n",
         400},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n", 400},
        {"POST /tokenize HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" HOST " folded: x\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n" HOST "Host: localhost\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\n\r\n", 400},
        {"GET /health HTTP/2.0\r\n" HOST "\r\n", 505},
        {"GET  /health HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET health HTTP/1.1\r\n" HOST "\r\n", 400},
        {"\x16\x03\x01\x02\r\n\r\n", 400},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int fd;
        serve_reply r = fetch_raw(all[i].bytes, strlen(all[i].bytes), &fd);
        if (r.status != all[i].status) fail_msg("%d for %s", r.status, all[i].bytes);
        /* The following bytes must not be parsed as a request. */
        assert_true(is_closed(fd));
        close(fd);
        serve_reply_free(&r);
    }
    is_well();
}

static void accepts_split_and_pipelined_requests(void **state) {
    (void)state;
    static const char pieces[] =
        "\r\nPOST /tokenize HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
        "8;name=\"value\"\r\n{\"conten\r\n0a\r\nt\":\"Once\"}\r\n"
        "0\r\nTrailer: x\r\n\r\n";
    const int fd = serve_connect(&server);
    for (size_t i = 0; i + 1 < sizeof pieces; i++) {
        serve_send(fd, pieces + i, 1);
        if (i % 16 == 0) pause_ms(1);
    }
    serve_reply r = serve_receive(fd);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"count\":1"));
    assert_non_null(strstr(r.head, "Connection: keep-alive"));
    serve_reply_free(&r);
    static const char two[] = "GET http://localhost/health HTTP/1.1\r\nHost: x\r\n\r\n"
                              "HEAD /health HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n";
    serve_send(fd, two, sizeof two - 1);
    /* One read may return both responses. */
    char text[4096];
    size_t n = 0;
    for (ssize_t k; n + 1 < sizeof text && (k = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0;)
        n += (size_t)k;
    text[n] = '\0';
    const char *second = strstr(text + 1, "HTTP/1.1 200 OK");
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK", 15), 0);
    assert_non_null(second);
    assert_string_equal(strstr(second, "\r\n\r\n"), "\r\n\r\n");
    close(fd);
}

static void sends_100_continue(void **state) {
    (void)state;
    char text[64] = "";
    static const char head[] =
        "POST /tokenize HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 18\r\n\r\n";
    const int fd = serve_connect(&server);
    serve_send(fd, head, sizeof head - 1);
    assert_int_equal(recv(fd, text, 25, MSG_WAITALL), 25);
    assert_string_equal(text, "HTTP/1.1 100 Continue\r\n\r\n");
    serve_send(fd, "{\"content\":\"Once\"}", 18);
    serve_reply r = serve_receive(fd);
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
    close(fd);
}

static void limits_heads_and_bodies(void **state) {
    (void)state;
    enum { MANY = 40000, LARGE = 10 << 20 };
    char *text = malloc(LARGE + 200);
    assert_non_null(text);
    int n = sprintf(text, "GET /health HTTP/1.1\r\n" HOST "X: ");
    memset(text + n, 'a', MANY);
    memcpy(text + n + MANY, "\r\n\r\n", 5);
    serve_reply r = fetch_raw(text, (size_t)n + MANY + 4, NULL);
    assert_int_equal(r.status, 431);
    serve_reply_free(&r);
    /* A length above the limit is rejected before the body is sent. */
    static const char huge[] =
        "POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: 1000000000000\r\n\r\n";
    r = fetch_raw(huge, sizeof huge - 1, NULL);
    assert_int_equal(r.status, 413);
    serve_reply_free(&r);
    /* Bodies of 10 MB: lists that are nested too deeply, invalid JSON, and a text that is too long
     * for a prompt. */
    n = sprintf(text, "POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", LARGE);
    memset(text + n, '[', LARGE);
    r = fetch_raw(text, (size_t)n + LARGE, NULL);
    assert_int_equal(r.status, 400);
    serve_reply_free(&r);
    memset(text + n, 'x', LARGE);
    r = fetch_raw(text, (size_t)n + LARGE, NULL);
    assert_int_equal(r.status, 400);
    serve_reply_free(&r);
    static const char before[] = "{\"model\":\"demo\",\"prompt\":\"", after[] = "\"}";
    n = sprintf(text, "POST /v1/completions HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", LARGE);
    memset(text + n, 'a', LARGE);
    memcpy(text + n, before, sizeof before - 1);
    memcpy(text + n + LARGE - 2, after, 2);
    r = fetch_raw(text, (size_t)n + LARGE, NULL);
    assert_int_equal(r.status, 400);
    serve_reply_free(&r);
    free(text);
    is_well();
}

/* ---- admission ---- */

static int status_of(const char *line, const char *headers) {
    serve_reply r = serve_fetch(&server, line, headers, NULL);
    const int status = r.status;
    serve_reply_free(&r);
    return status;
}

static void accepts_its_own_hosts_only(void **state) {
    (void)state;
    static const char *const good[] = {"localhost",  "LocalHost:1", "127.0.0.1:80", "[::1]:8080",
                                       "127.8.9.10", "a.localhost", "ai.lan:8080",  "localhost."};
    static const char *const bad[] = {"evil.example",   "127.0.0.1.evil.example",
                                      "localhost.evil", "10.0.0.1",
                                      "127.evil",       "[::1",
                                      "localhost:x",    "",
                                      "xlocalhost"};
    char header[128];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(header, sizeof header, "Host: %s\r\n", good[i]);
        if (status_of("GET /health", header) != 200) fail_msg("%s is refused", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(header, sizeof header, "Host: %s\r\n", bad[i]);
        if (status_of("GET /health", header) != 403) fail_msg("%s is not refused", bad[i]);
    }
}

static void accepts_other_origins_only_with_cors(void **state) {
    (void)state;
    assert_int_equal(status_of("GET /v1/kv", "Origin: http://evil.example\r\n"), 403);
    assert_int_equal(status_of("GET /v1/kv", "Origin: null\r\n"), 403);
    assert_int_equal(status_of("GET /v1/kv", "Sec-Fetch-Site: cross-site\r\n"), 403);
    assert_int_equal(status_of("GET /v1/kv", "Sec-Fetch-Site: same-origin\r\n"), 200);
    assert_int_equal(status_of("GET /v1/kv", "Origin: http://localhost\r\n"), 200);
    assert_int_equal(status_of("GET /v1/kv", "Origin: http://localhost:9\r\n"), 403);
    serve_reply r = serve_fetch(&server, "OPTIONS /v1/chat/completions",
                                "Origin: https://chat.example\r\n"
                                "Access-Control-Request-Headers: authorization\r\n",
                                NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Access-Control-Allow-Origin: https://chat.example\r\n"));
    assert_non_null(strstr(r.head, "Access-Control-Allow-Headers: authorization\r\n"));
    serve_reply_free(&r);
    r = serve_fetch(&server, "GET /v1/models", "Origin: https://chat.example\r\n", NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Access-Control-Allow-Origin: https://chat.example\r\n"));
    serve_reply_free(&r);
}

static void requires_a_key_if_there_are_keys(void **state) {
    (void)state;
    char dir[96] = "serve_keys", path[160];
    make_directory(dir);
    static const char first[] = "# who may ask\nalpha\n\nbeta\n", second[] = "gamma\n";
    write_file(dir, "keys", first, sizeof first - 1);
    snprintf(path, sizeof path, "%s/keys", dir);
    SERVE_START(&server, "-q", "--api-key-file", path);
    json_t *v = serve_json(&server, "GET /health", NULL, 200);
    char *text = json_dumps(v, 0);
    assert_does_not_say(text, "demo"); /* not even the model's name */
    free(text);
    json_decref(v);
    assert_int_equal(status_of("GET /v1/models", ""), 401);
    assert_int_equal(status_of("GET /metrics", ""), 401);
    assert_int_equal(status_of("GET /v1/models", "Authorization: Bearer alph\r\n"), 401);
    assert_int_equal(status_of("GET /v1/models", "Authorization: Bearer alphaa\r\n"), 401);
    assert_int_equal(status_of("GET /v1/models", "Authorization: Bearer \r\n"), 401);
    assert_int_equal(status_of("GET /v1/models", "Authorization: Bearer alpha\r\n"), 200);
    assert_int_equal(status_of("GET /v1/models", "X-Api-Key: beta\r\n"), 200);
    /* One key must not learn what another one requested. */
    serve_reply r = serve_fetch(&server, CHAT, "X-Api-Key: alpha\r\n", HELLO ",\"max_tokens\":2}");
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
    r = serve_fetch(&server, "GET /v1/kv", "X-Api-Key: alpha\r\n", NULL);
    assert_non_null(strstr(r.body, "\"parked\""));
    serve_reply_free(&r);
    r = serve_fetch(&server, "GET /v1/kv", "X-Api-Key: beta\r\n", NULL);
    assert_non_null(strstr(r.body, "\"data\":[]"));
    serve_reply_free(&r);
    write_file(dir, "keys", second, sizeof second - 1);
    kill(server.pid, SIGHUP);
    for (int i = 0; i < 12000 && status_of("GET /v1/models", "X-Api-Key: gamma\r\n") != 200; i++)
        pause_ms(10);
    assert_int_equal(status_of("GET /v1/models", "X-Api-Key: gamma\r\n"), 200);
    assert_int_equal(status_of("GET /v1/models", "X-Api-Key: alpha\r\n"), 401);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    remove_directory(dir);
}

static void does_not_listen_publicly_without_keys(void **state) {
    (void)state;
    cli_result r = CLI("serve", "--host", "0.0.0.0", "--port", "0");
    assert_refused(&r, 2, "refusing to listen on a public address");
    cli_free(&r);
}

static void rejects_a_template_that_is_not_a_file(void **state) {
    (void)state;
    cli_result r = CLI("serve", "-q", "--port", "0", "--chat-template", "chatml");
    assert_refused(&r, 1, "'chatml': no such file; it must be a file with a Jinja template");
    cli_free(&r);
    r = CLI("serve", "-q", "--port", "0", "--chat-template", "/");
    assert_refused(&r, 1, "'/' is a directory; it must be a file with a Jinja template");
    cli_free(&r);
}

/* ---- clients that leave ---- */

static void detects_clients_that_left(void **state) {
    (void)state;
    const double before = metric("requests_cancelled_total");
    char text[1024];
    static const char *const bodies[] = {LONG, HELLO ",\"max_tokens\":1900,\"ignore_eos\":true}"};
    for (size_t i = 0; i < 2; i++) {
        const int fd = serve_connect(&server);
        const int n =
            snprintf(text, sizeof text, CHAT " HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s",
                     strlen(bodies[i]), bodies[i]);
        serve_send(fd, text, (size_t)n);
        wait_metric("requests_running", 1, 1);
        close(fd);
        wait_metric("requests_cancelled_total", before + (double)i + 1, HUGE_VAL);
    }
    /* A client may leave at any byte of a request. */
    const int whole =
        snprintf(text, sizeof text, CHAT " HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s",
                 strlen(LONG), LONG);
    for (int n = 0; n <= whole; n += 7) {
        const int fd = serve_connect(&server);
        serve_send(fd, text, (size_t)n);
        close(fd);
    }
    wait_metric("http_requests", 1, 1);
    assert_int_equal((int)metric("requests_running"), 0);
}

static void times_out_incomplete_requests(void **state) {
    (void)state;
    serve_reply r =
        fetch_raw("POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\n{", 65, NULL);
    assert_int_equal(r.status, 408);
    serve_reply_free(&r);
    r = fetch_raw("GET /hea", 8, NULL);
    assert_int_equal(r.status, 408);
    serve_reply_free(&r);
}

/* A body that is too large as parsed JSON is rejected, and the reply gives both sizes. */
static void limits_the_memory_of_bodies(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* the sanitizer's memory fills the limit */
#endif
    enum { LARGE = 1 << 20 };
    SERVE_START(&server, "-q", "--memory", "256M", "--load-later");
    json_t *v = serve_json(&server, "GET /health", NULL, 200);
    assert_int_equal(json_integer_value(json_at(v, "memory.limit")), 256 << 20);
    assert_int_equal(json_integer_value(json_at(v, "models.loaded")), 0);
    json_decref(v);
    char *text = malloc(LARGE + 200);
    assert_non_null(text);
    int n = sprintf(text, "POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", LARGE);
    for (int i = 0; i < LARGE; i++) text[n + i] = i ? "{},"[(i - 1) % 3] : '[';
    serve_reply r = fetch_raw(text, (size_t)n + LARGE, NULL);
    assert_int_equal(r.status, 413);
    assert_non_null(strstr(r.body, "all requests share 32.0 MiB"));
    serve_reply_free(&r);
    n = sprintf(text, "POST /v1/completions HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", LARGE);
    memset(text + n, 'a', LARGE);
    memcpy(text + n, "{\"model\":\"demo\",\"prompt\":\"", 26);
    memcpy(text + n + LARGE - 2, "\"}", 2);
    r = fetch_raw(text, (size_t)n + LARGE, NULL);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "the context holds 2048"));
    serve_reply_free(&r);
    r = serve_fetch(&server, CHAT, "", HELLO ",\"max_tokens\":3}");
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
    free(text);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
}

/* Clients that hold back the ends of large bodies leave memory for small ones. The memory of bodies
 * is published although the engine is idle. */
static void small_requests_overtake_large_ones(void **state) {
    (void)state;
    enum { BODY = 240000, N = 70, TAKEN = 12 << 20 };
    int fds[N];
    char head[200], *body = malloc(BODY);
    assert_non_null(body);
    memset(body, ' ', BODY);
    SERVE_START(&server, "-q", "--memory", "256M", "--load-later");
    const double before = metric("memory_used_bytes");
    const int n =
        snprintf(head, sizeof head, "POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n",
                 BODY + 1);
    for (size_t i = 0; i < N; i++) {
        fds[i] = serve_connect(&server);
        serve_send(fds[i], head, (size_t)n);
        /* The last ones may be rejected meanwhile. */
        for (ssize_t sent = 0, k = 1; k > 0 && sent < BODY; sent += k)
            k = send(fds[i], body + sent, (size_t)(BODY - sent), MSG_NOSIGNAL);
    }
    wait_metric("memory_used_bytes", before + TAKEN, HUGE_VAL);
    assert_true(metric("memory_peak_bytes") >= before + TAKEN);
    serve_reply r = serve_fetch(&server, "POST /tokenize", "", "{\"content\":\"Once\"}");
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
    for (size_t i = 0; i < N; i++) close(fds[i]);
    free(body);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
}

/* ---- the end ---- */

/* The size that the error recommends is enough, and slightly less is not. */
static void reports_the_minimum_memory(void **state) {
    (void)state;
#if SANITIZED
    skip(); /* a sanitizer's memory differs from start to start */
#endif
    cli_result r = CLI("serve", QUICK, "--port", "0", "--memory", "8M", DEMO);
    assert_code(&r, 1);
    const char *of = strstr(r.err, "of a memory limit of 8.0; ");
    double enough = 0;
    if (!of || sscanf(of, "of a memory limit of 8.0; a limit of %lf MiB suffices", &enough) != 1)
        fail_msg("%s", r.err);
    char size[32];
    snprintf(size, sizeof size, "%.1fM", enough - 1);
    cli_result less = CLI("serve", QUICK, "--port", "0", "--memory", size, DEMO);
    assert_code(&less, 1);
    snprintf(size, sizeof size, "%.1fM", enough + 0.3); /* some pages of tolerance */
    SERVE_START(&server, "-q", "--memory", size);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    cli_free(&less);
    cli_free(&r);
}

static void terminates_streams(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--grace", "0");
    char text[1024];
    const int fd = serve_connect(&server);
    const int n =
        snprintf(text, sizeof text, CHAT " HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s",
                 strlen(LONG), LONG);
    serve_send(fd, text, (size_t)n);
    wait_metric("generated_tokens_total", 3, HUGE_VAL);
    kill(server.pid, SIGTERM);
    serve_reply r = serve_receive(fd);
    assert_int_equal(r.status, 200);
    assert_false(r.closed);
    assert_non_null(strstr(r.body, "\"finish_reason\":\"length\""));
    assert_string_equal(r.body + r.n_body - 14, "data: [DONE]\n\n");
    serve_reply_free(&r);
    close(fd);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
}

static void listens_on_a_unix_socket_and_logs(void **state) {
    (void)state;
    char dir[96] = "serve_unix", path[160], log[160], text[8192] = "";
    make_directory(dir);
    snprintf(path, sizeof path, "%s/s", dir);
    snprintf(log, sizeof log, "%s/log", dir);
    SERVE_START(&server, "-q", "--unix", path, "--log", log);
    serve_reply r = serve_fetch(&server, CHAT, "X-Api-Key: secret-key\r\n",
                                "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":"
                                "\"private words\"}],\"max_tokens\":2,\"temperature\":0,\"user\":"
                                "\"private\"}");
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
    assert_int_equal(serve_stop(&server, SIGINT), 0);
    assert_int_equal(access(path, F_OK), -1);
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_true(n > 0);
    json_t *line = json_loads(text, 0, NULL);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_at(line, "path")), "/v1/chat/completions");
    assert_int_equal(json_integer_value(json_at(line, "status")), 200);
    assert_int_equal(json_integer_value(json_at(line, "completion_tokens")), 2);
    assert_string_equal(json_string_value(json_at(line, "ignored")), "user");
    assert_null(strstr(text, "private"));
    assert_null(strstr(text, "secret-key"));
    json_decref(line);
    remove_directory(dir);
}

static int start_guarded(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--read-timeout", "2", "--allowed-host", "ai.lan", "--cors",
                "https://chat.example");
    return 0;
}

int main(void) {
    const struct CMUnitTest guarded[] = {
        cmocka_unit_test(rejects_ambiguous_requests),
        cmocka_unit_test(accepts_split_and_pipelined_requests),
        cmocka_unit_test(sends_100_continue),
        cmocka_unit_test(limits_heads_and_bodies),
        cmocka_unit_test(accepts_its_own_hosts_only),
        cmocka_unit_test(accepts_other_origins_only_with_cors),
        cmocka_unit_test(detects_clients_that_left),
        cmocka_unit_test(times_out_incomplete_requests),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(requires_a_key_if_there_are_keys),
        cmocka_unit_test(does_not_listen_publicly_without_keys),
        cmocka_unit_test(rejects_a_template_that_is_not_a_file),
        cmocka_unit_test(limits_the_memory_of_bodies),
        cmocka_unit_test(small_requests_overtake_large_ones),
        cmocka_unit_test(reports_the_minimum_memory),
        cmocka_unit_test(terminates_streams),
        cmocka_unit_test(listens_on_a_unix_socket_and_logs),
    };
    const int failed = cmocka_run_group_tests(guarded, start_guarded, stop_server);
    return failed + cmocka_run_group_tests(others, NULL, NULL);
}
