/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the limits on connections, without the server: shares of addresses, and which connection
 * is closed for a new one. */
#include "serve/http/connection.h"
#include "serve/http/peer_counts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PLACES = 8, SHARE = PLACES / 4 };

/* ---- addresses ---- */

static peer_range range(const char *text) {
    peer_range r;
    if (!peer_range_parse(text, strlen(text), &r)) fail_msg("'%s' is not parsed", text);
    return r;
}

static peer_address address(const char *text) { return range(text).first; }

static void parses_addresses_and_networks(void **state) {
    static const char *const good[] = {"10.0.0.1",  "10.0.0.0/8", "0.0.0.0/0",       "::1",
                                       "fe80::/10", "::/0",       "::ffff:10.0.0.1", "1.2.3.4/32"};
    static const char *const bad[] = {
        "",    "10.0.0.300",  "10.0.0",      "10.0.0.1/33",   "10.0.0.1/8", "10.0.0.0/",
        "/8",  "::1/129",     "fe80::1/10",  "localhost",     "10.0.0.1 ",  " 10.0.0.1",
        "1:2", "10.0.0.0/8x", "10.0.0.0/-8", "10.0.0.0/0008", "[::1]"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) (void)range(good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        peer_range r;
        if (peer_range_parse(bad[i], strlen(bad[i]), &r)) fail_msg("'%s' is parsed", bad[i]);
    }
}

static bool contains(const char *network, const char *one) {
    const peer_range r = range(network);
    const peer_address a = address(one);
    return peer_range_contains(&r, &a);
}

static void finds_addresses_in_networks(void **state) {
    (void)state;
    assert_true(contains("10.0.0.0/8", "10.255.1.2"));
    assert_false(contains("10.0.0.0/8", "11.0.0.0"));
    assert_true(contains("192.168.4.0/22", "192.168.7.255"));
    assert_false(contains("192.168.4.0/22", "192.168.8.0"));
    assert_true(contains("10.0.0.1", "::ffff:10.0.0.1"));
    assert_false(contains("0.0.0.0/0", "::1"));
    assert_true(contains("::/0", "10.0.0.1"));
    assert_true(contains("2001:db8::/32", "2001:db8:ffff::1"));
    assert_false(contains("2001:db8::/33", "2001:db8:ffff::1"));
}

static void reads_addresses_of_sockets(void **state) {
    struct sockaddr_storage at = {.ss_family = AF_UNIX};
    peer_address have, want = address("127.3.2.1");
    (void)state;
    assert_false(peer_address_of(&at, &have));
    struct sockaddr_in *v4 = (struct sockaddr_in *)&at;
    *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f030201)};
    assert_true(peer_address_of(&at, &have));
    assert_memory_equal(&have, &want, sizeof want);
    assert_true(peer_address_is_loopback(&have));
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&at;
    *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    assert_true(peer_address_of(&at, &have));
    assert_true(peer_address_is_loopback(&have));
    have = address("::2");
    assert_false(peer_address_is_loopback(&have));
    have = address("128.0.0.1");
    assert_false(peer_address_is_loopback(&have));
}

static void counts_many_addresses(void **state) {
    enum { N = 5000 };
    static peer_count *entries[N];
    peer_counts t;
    (void)state;
    assert_true(peer_counts_init(&t, 1000));
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < N; i++) {
            peer_address a = address("10.0.0.0");
            a.bytes[14] = (uint8_t)(i >> 8);
            a.bytes[15] = (uint8_t)i;
            assert_non_null(entries[i] = peer_counts_add(&t, &a, 2));
            assert_ptr_equal(peer_counts_add(&t, &a, 2), entries[i]);
            assert_null(peer_counts_add(&t, &a, 2));
        }
        for (unsigned i = 0; i < 2 * N; i++) peer_counts_remove(&t, entries[i % N]);
        for (size_t i = 0; i < t.n_buckets; i++) assert_null(t.buckets[i]);
    }
    peer_counts_free(&t);
}

/* ---- connections ---- */

static struct event_base *base;
static connection_set *set;
static account_pool pool = {.limit = 64 << 20};
static peer_range trusted;
static size_t n_requests;

static bool on_head(void *user, connection *c) {
    (void)user, (void)c;
    return true;
}

static void on_request(void *user, connection *c) {
    (void)user, (void)c;
    n_requests++;
}

static void on_malformed(void *user, connection *c, int status, const char *why) {
    (void)user;
    connection_reply(c, status, "text/plain", "", why, strlen(why));
}

static void on_over(void *user, connection *c, bool complete) {
    (void)user, (void)c, (void)complete;
}

static int start(void **state) {
    const connection_events events = {on_head, on_request, on_malformed, on_over, NULL};
    trusted = range("10.9.0.0/16");
    const connection_limits limits = {
        .max_head = 4096,
        .max_body = 1 << 20,
        .max_bodies = 1 << 20,
        .max_unread = 1 << 20,
        .max_connections = PLACES,
        .idle_s = 600,
        .read_s = 600,
        .write_s = 600,
        .trusted = &trusted,
        .n_trusted = 1,
    };
    (void)state;
    n_requests = 0;
    base = event_base_new();
    assert_non_null(base);
    set = connection_set_create(base, &limits, &events, NULL, &pool);
    assert_non_null(set);
    return 0;
}

static int stop(void **state) {
    (void)state;
    connection_set_destroy(set);
    event_base_free(base);
    return 0;
}

/* Runs the event loop until nothing is pending. */
static void run_loop(void) {
    for (int i = 0; i < 10; i++) event_base_loop(base, EVLOOP_NONBLOCK);
}

/* Opens a connection and returns the client's end. from: NULL for a Unix socket. */
static int connect_from(const char *from) {
    int ends[2];
    const peer_address a = from ? address(from) : (peer_address){{0}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    evutil_make_socket_nonblocking(ends[0]);
    connection_accept_from(set, ends[0], from ? &a : NULL);
    run_loop();
    return ends[1];
}

/* Reads all that the server has sent into text[n]. Returns whether it closed the connection. */
static bool read_all(int fd, char *text, size_t n) {
    size_t len = 0;
    ssize_t k;
    run_loop();
    while (len + 1 < n && (k = recv(fd, text + len, n - 1 - len, MSG_DONTWAIT)) > 0)
        len += (size_t)k;
    text[len] = '\0';
    return k == 0;
}

static bool is_closed(int fd) {
    char text[1024];
    return read_all(fd, text, sizeof text);
}

static void send_text(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    run_loop();
}

static void close_all(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) close(fds[i]);
    run_loop();
    assert_int_equal(connection_count(set), 0);
}

static void limits_an_address_to_a_quarter(void **state) {
    (void)state;
    int fds[] = {connect_from("10.0.0.1"), connect_from("10.0.0.1"), connect_from("10.0.0.1"),
                 connect_from("10.0.0.2")};
    assert_int_equal(connection_count(set), SHARE + 1);
    assert_int_equal(connection_n_rejected(set), 1);
    assert_true(is_closed(fds[2]));
    close(fds[2]);
    assert_false(is_closed(fds[0]));
    assert_false(is_closed(fds[3]));
    close(fds[0]);
    run_loop();
    fds[0] = connect_from("::ffff:10.0.0.1"); /* the same address on a socket for both families */
    fds[2] = connect_from("10.0.0.1");
    assert_false(is_closed(fds[0]));
    assert_true(is_closed(fds[2]));
    close_all(fds, 4);
}

static void counts_a_64_bit_network_as_one_address(void **state) {
    (void)state;
    const int fds[] = {connect_from("2001:db8::1"), connect_from("2001:db8::2:3"),
                       connect_from("2001:db8::4"), connect_from("2001:db8:0:1::1")};
    assert_false(is_closed(fds[1]));
    assert_true(is_closed(fds[2]));
    assert_false(is_closed(fds[3]));
    close_all(fds, 4);
}

static void does_not_limit_loopback_and_trusted_addresses(void **state) {
    static const char *const names[] = {"127.0.0.1", "::1", "10.9.3.4", NULL};
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        int fds[PLACES];
        for (size_t i = 0; i < PLACES; i++) fds[i] = connect_from(names[k]);
        for (size_t i = 0; i < PLACES; i++) assert_false(is_closed(fds[i]));
        close_all(fds, PLACES);
    }
    assert_int_equal(connection_n_rejected(set), 0);
}

#define HEAD "POST / HTTP/1.1\r\nHost: localhost\r\n"

static void closes_the_longest_waiting_connection(void **state) {
    int fds[PLACES], fresh[PLACES];
    char text[1024];
    (void)state;
    for (size_t i = 0; i < PLACES; i++) fds[i] = connect_from(NULL);
    send_text(fds[0], HEAD "\r\n"); /* a complete request */
    assert_int_equal(n_requests, 1);
    send_text(fds[3], HEAD "Content-Length: 5\r\n\r\nab"); /* its head has just arrived */
    send_text(fds[1], "GET / HTTP/1.1\r\nHo");
    send_text(fds[1], "st"); /* has waited since it was accepted */
    fresh[0] = connect_from(NULL);
    assert_true(read_all(fds[1], text, sizeof text));
    assert_int_equal(strncmp(text, "HTTP/1.1 408 ", 13), 0);
    assert_non_null(strstr(text, "Connection: close\r\n"));
    static const size_t silent[] = {2, 4, 5, 6, 7};
    for (size_t i = 0; i < 5; i++) {
        fresh[1 + i] = connect_from(NULL);
        assert_true(read_all(fds[silent[i]], text, sizeof text));
        assert_string_equal(text, "");
    }
    assert_false(is_closed(fds[3]));
    fresh[6] = connect_from(NULL);
    assert_true(read_all(fds[3], text, sizeof text));
    assert_int_equal(strncmp(text, "HTTP/1.1 408 ", 13), 0);
    assert_false(is_closed(fds[0]));
    assert_int_equal(connection_n_evicted(set), 7);
    assert_int_equal(connection_count(set), PLACES);
    for (size_t i = 0; i < PLACES; i++) close(fds[i]);
    close_all(fresh, 7);
}

static void keeps_connections_with_complete_requests(void **state) {
    int fds[PLACES];
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        fds[i] = connect_from(NULL);
        send_text(fds[i], HEAD "\r\n");
    }
    assert_int_equal(n_requests, PLACES);
    const int late = connect_from(NULL);
    assert_true(is_closed(late));
    close(late);
    for (size_t i = 0; i < PLACES; i++) assert_false(is_closed(fds[i]));
    assert_int_equal(connection_n_evicted(set), 0);
    assert_int_equal(connection_n_rejected(set), 1);
    close_all(fds, PLACES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_addresses_and_networks),
        cmocka_unit_test(finds_addresses_in_networks),
        cmocka_unit_test(reads_addresses_of_sockets),
        cmocka_unit_test(counts_many_addresses),
        cmocka_unit_test_setup_teardown(limits_an_address_to_a_quarter, start, stop),
        cmocka_unit_test_setup_teardown(counts_a_64_bit_network_as_one_address, start, stop),
        cmocka_unit_test_setup_teardown(does_not_limit_loopback_and_trusted_addresses, start, stop),
        cmocka_unit_test_setup_teardown(closes_the_longest_waiting_connection, start, stop),
        cmocka_unit_test_setup_teardown(keeps_connections_with_complete_requests, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
