/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of antigravity serve against clients that send slowly or only hold connections, and against
 * an API key that exceeds its share of requests. */
#include "serve_client.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static serve_process server;

#define HOST "Host: localhost\r\n"
#define CHAT "POST /v1/chat/completions"
#define HELLO "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}]"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_ms(int ms) { poll(NULL, 0, ms); }

static void send_text(int fd, const char *text) { serve_send(fd, text, strlen(text)); }

/* ---- slow bodies ---- */

enum { TRICKLE_MS = 100, GIVE_UP_S = 40, CHUNK = 32768 };

#define CHUNKED "POST /tokenize HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"

/* A request whose rest is sent a few bytes at a time. */
typedef struct trickle {
    const char *start, *piece;
    double min_s, took_s; /* seconds to its reply; 0: none yet */
    int fd;
} trickle;

static void send_piece(trickle *t, double began) {
    struct pollfd reply = {.fd = t->fd, .events = POLLIN};
    if (t->took_s > 0) return;
    if (poll(&reply, 1, 0) > 0) t->took_s = now_s() - began;
    else send_text(t->fd, t->piece);
}

/* --read-timeout is 1 s. 32 KiB add 2 s if they are announced or have arrived. */
static void trickled_bytes_do_not_extend_the_deadline(void **state) {
    static const char with_chunk[] = CHUNKED "8000\r\n";
    char *large = malloc(sizeof with_chunk + CHUNK + 2);
    (void)state;
    assert_non_null(large);
    sprintf(large, "%s%*s\r\n", with_chunk, CHUNK, "");
    trickle all[] = {
        {"GET /health HTTP/1.1\r\n" HOST "X: ", "x", 1, 0, -1},
        {"POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: 32768\r\n\r\n{", " ", 3, 0, -1},
        {CHUNKED, "1\r\n \r\n", 1, 0, -1},
        {large, "1\r\n \r\n", 3, 0, -1},
    };
    enum { N = sizeof all / sizeof all[0] };
    const double began = now_s();
    size_t n_open = N;
    for (size_t i = 0; i < N; i++) {
        all[i].fd = serve_connect(&server);
        send_text(all[i].fd, all[i].start);
    }
    while (n_open && now_s() - began < GIVE_UP_S) {
        pause_ms(TRICKLE_MS);
        n_open = 0;
        for (size_t i = 0; i < N; i++) {
            send_piece(&all[i], began);
            n_open += all[i].took_s <= 0;
        }
    }
    for (size_t i = 0; i < N; i++) {
        if (all[i].took_s <= 0) fail_msg("request %zu is still read", i);
        serve_reply r = serve_receive(all[i].fd);
        assert_int_equal(r.status, 408);
        /* The clock of timers is coarse, some milliseconds. */
        if (all[i].took_s < all[i].min_s - 0.1) fail_msg("request %zu: %g s", i, all[i].took_s);
        serve_reply_free(&r);
        close(all[i].fd);
    }
    free(large);
}

/* The entire body has the time of its size, however it is distributed. */
static void allows_pauses_in_a_large_body(void **state) {
    (void)state;
    enum { BYTES = 256 << 10 }; /* 16 s */
    const int fd = serve_connect(&server);
    char head[128], *body = malloc(BYTES);
    assert_non_null(body);
    memset(body, ' ', BYTES);
    memcpy(body, "{\"content\":\"Once\"", 17);
    body[BYTES - 1] = '}';
    snprintf(head, sizeof head, "POST /tokenize HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n",
             BYTES);
    send_text(fd, head);
    serve_send(fd, body, BYTES / 2);
    pause_ms(1500);
    serve_send(fd, body + BYTES / 2, BYTES / 2);
    serve_reply r = serve_receive(fd);
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
    free(body);
    close(fd);
}

static int start_impatient(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--load-later", "--read-timeout", "1");
    return 0;
}

static int stop_server(void **state) {
    (void)state;
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    return 0;
}

/* ---- limit on connections ---- */

static bool is_closed(int fd) {
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

static bool is_open(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0;
}

/* Sends a request on its own connection, and returns when that is closed. */
static void expect_health(void) {
    const int fd = serve_connect(&server);
    send_text(fd, "GET /health HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    serve_reply r = serve_receive(fd);
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
    assert_true(is_closed(fd));
    close(fd);
}

static void expect_timeout_reply(int fd) {
    serve_reply r = serve_receive(fd);
    assert_int_equal(r.status, 408);
    assert_non_null(strstr(r.body, "closed for a new one"));
    serve_reply_free(&r);
    assert_true(is_closed(fd));
    close(fd);
}

static void full_server_closes_the_longest_waiting(void **state) {
    (void)state;
    enum { PLACES = 6, SILENT = PLACES - 3 };
    char text[1024];
    int silent[SILENT];
    SERVE_START(&server, "-q", "--max-connections", "6", "--read-timeout", "600");
    /* A stream that lasts for the entire test. */
    static const char body[] = HELLO ",\"max_tokens\":1900,\"ignore_eos\":true,\"stream\":true}";
    snprintf(text, sizeof text, CHAT " HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n%s",
             sizeof body - 1, body);
    const int stream = serve_connect(&server);
    send_text(stream, text);
    assert_int_equal(recv(stream, text, 15, MSG_WAITALL), 15);
    assert_memory_equal(text, "HTTP/1.1 200 OK", 15);
    const int head = serve_connect(&server);
    send_text(head, "GET /health HTTP/1.1\r\nHo");
    const int body_only = serve_connect(&server);
    send_text(body_only, "POST /tokenize HTTP/1.1\r\n" HOST
                         "Expect: 100-continue\r\nContent-Length: 18\r\n\r\n");
    assert_int_equal(recv(body_only, text, 25, MSG_WAITALL), 25);
    for (size_t i = 0; i < SILENT; i++) silent[i] = serve_connect(&server);
    expect_health();
    expect_timeout_reply(head);
    const int first = serve_connect(&server); /* the last free connection */
    expect_health();
    expect_timeout_reply(body_only);
    const int second = serve_connect(&server);
    expect_health();
    assert_true(is_closed(silent[0]));
    assert_true(is_open(silent[1]));
    assert_true(recv(stream, text, sizeof text, 0) > 0);
    close(silent[0]);
    for (size_t i = 1; i < SILENT; i++) close(silent[i]);
    close(first);
    close(second);
    close(stream);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
}

static void rejects_invalid_proxy_addresses(void **state) {
    static const char *const bad[] = {"", "proxy.lan", "10.0.0.1,", "10.0.0.1,10.0.0.300",
                                      "10.0.0.1/8"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cli_result r = CLI("serve", "--trust-proxy", bad[i]);
        assert_refused(&r, 2, "is not an IPv4 or IPv6 address, nor a network such as 10.0.0.0/8");
        cli_free(&r);
    }
}

/* ---- shares of keys ---- */

static double metric(const char *name) {
    char line[128];
    serve_reply r = serve_fetch(&server, "GET /metrics", "X-Api-Key: beta\r\n", NULL);
    snprintf(line, sizeof line, "\nantigravity_%s ", name);
    const char *at = r.body ? strstr(r.body, line) : NULL;
    assert_non_null(at);
    const double value = strtod(at + strlen(line), NULL);
    serve_reply_free(&r);
    return value;
}

static void wait_for_metric(const char *name, double value) {
    const double began = now_s();
    while (metric(name) < value) {
        if (now_s() - began > 100) fail_msg("%s is %g", name, metric(name));
        pause_ms(5);
    }
}

static int start_chat(const char *key) {
    static const char body[] = HELLO ",\"max_tokens\":1500,\"ignore_eos\":true}";
    char text[1024];
    const int fd = serve_connect(&server);
    snprintf(text, sizeof text,
             CHAT " HTTP/1.1\r\n" HOST "X-Api-Key: %s\r\nContent-Length: %zu\r\n\r\n%s", key,
             sizeof body - 1, body);
    send_text(fd, text);
    return fd;
}

/* One key fills the queue. Another key is admitted, also with --share-prefixes. */
static void limits_a_key_to_half_of_the_queue(void **state) {
    (void)state;
    enum { RUNNING = 2, WAITING = 4, ALL = RUNNING + WAITING };
    char dir[96] = "serve_shares", path[160];
    int fds[ALL];
    make_directory(dir);
    write_file(dir, "keys", "alpha\nbeta\n", 11);
    snprintf(path, sizeof path, "%s/keys", dir);
    SERVE_START(&server, "-q", "--api-key-file", path, "--max-running", "2", "--max-waiting", "4",
                "--share-prefixes", "--grace", "0");
    for (size_t i = 0; i < ALL; i++) {
        fds[i] = start_chat("alpha");
        /* One after the other, so that the last one is the newest. */
        if (i < RUNNING) wait_for_metric("requests_running", (double)i + 1);
        else wait_for_metric("requests_waiting", (double)(i + 1 - RUNNING));
    }
    const int other = start_chat("beta");
    serve_reply r = serve_receive(fds[ALL - 1]);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.head, "Retry-After: "));
    assert_non_null(strstr(r.body, "its client had more than half of the places"));
    serve_reply_free(&r);
    /* Now requests of both keys wait, and the first key has more than half. */
    const int more = start_chat("alpha");
    r = serve_receive(more);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.body, "one client may use half of the queue's 4 places"));
    serve_reply_free(&r);
    close(more);
    close(other);
    for (size_t i = 0; i < ALL; i++) close(fds[i]);
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    remove_directory(dir);
}

int main(void) {
    const struct CMUnitTest impatient[] = {
        cmocka_unit_test(trickled_bytes_do_not_extend_the_deadline),
        cmocka_unit_test(allows_pauses_in_a_large_body),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(full_server_closes_the_longest_waiting),
        cmocka_unit_test(rejects_invalid_proxy_addresses),
        cmocka_unit_test(limits_a_key_to_half_of_the_queue),
    };
    const int failed = cmocka_run_group_tests(impatient, start_impatient, stop_server);
    return failed + cmocka_run_group_tests(others, NULL, NULL);
}
