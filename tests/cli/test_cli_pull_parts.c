/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity pull: a file is complete, of one version and of the announced length, or the pull
 * fails. */
#include "pull_bench.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lengths ---- */

static void without_length(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\n");
    raw_send(q, data[0], SIZE);
}

static void rejects_unknown_length_without_checksum(void **state) {
    (void)state;
    serve_file("", without_length);
    FAIL(1, "its length is unknown", "o/r");
    FAIL(1, "its length is unknown", url);
    assert_false(is_there("m.gguf"));
    SUCCEED(url, "--sha256", hash);
    assert_file_is("m.gguf", data[0], SIZE);
    before_each(state);
    char fields[160];
    snprintf(fields, sizeof fields, ",\"lfs\":{\"sha256\":\"%s\"}", hash);
    serve_file(fields, without_length);
    SUCCEED("o/r");
    assert_file_is("m.gguf", data[0], SIZE);
}

static uint32_t crc32_of(const char *text, size_t n) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned char)text[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

static void put_little(unsigned char *to, uint32_t x, int n) {
    for (int i = 0; i < n; i++) to[i] = (unsigned char)(x >> 8 * i);
}

static const char config[] = "{\"architectures\": [\"None\"]}";

/* Writes `config` as gzip (RFC 1952) in one stored block. Returns the length. */
static size_t gzip_config(unsigned char *to) {
    const uint32_t n = sizeof config - 1;
    memcpy(to, "\x1f\x8b\x08\0\0\0\0\0\0\xff\x01", 11);
    put_little(to + 11, n, 2);
    put_little(to + 13, ~n, 2);
    memcpy(to + 15, config, n);
    put_little(to + 15 + n, crc32_of(config, n), 4);
    put_little(to + 19 + n, n, 4);
    return 23 + n;
}

static bool chunked;

static void compressed_config(const raw_request *q) {
    unsigned char zipped[200];
    const size_t n = gzip_config(zipped);
    if (!strstr(q->path, "config.json")) {
        send_version(q, 0, "", SIZE);
        return;
    }
    raw_print(q, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n%s\r\n",
              chunked ? "Transfer-Encoding: chunked\r\n" : "");
    if (chunked) raw_print(q, "%zx\r\n", n);
    raw_send(q, zipped, n);
    if (chunked) raw_print(q, "\r\n0\r\n\r\n");
}

static void decodes_a_compressed_config(void **state) {
    (void)state;
    for (int sized = 0; sized < 2; sized++) {
        before_each(state);
        char size[32] = "";
        if (sized) snprintf(size, sizeof size, ",\"size\":%zu", sizeof config - 1);
        snprintf(list, sizeof list,
                 "{\"siblings\":[{\"rfilename\":\"config.json\"%s},"
                 "{\"rfilename\":\"model.safetensors\",\"size\":%d}]}",
                 size, SIZE);
        raw_set(answer_list, compressed_config);
        chunked = true;
        SUCCEED("o/r");
        assert_file_is("r/config.json", config, sizeof config - 1);
        /* Without chunked encoding only the list shows the end. */
        before_each(state);
        chunked = false;
        if (sized) SUCCEED("o/r");
        else FAIL(1, "config.json: its length is unknown", "o/r");
    }
}

static void too_many_bytes(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        raw_print(q, "%x\r\n", SIZE / 2);
        raw_send(q, data[0] + i * SIZE / 2, SIZE / 2);
        raw_print(q, "\r\n");
    }
    raw_print(q, "0\r\n\r\n");
}

static void odd_length(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\nX-Linked-Size: -5\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "4\r\nGGUF\r\n0\r\n\r\n");
}

static void rejects_wrong_lengths(void **state) {
    (void)state;
    serve_megabyte(too_many_bytes);
    FAIL(1, "the server sends more than 1048576 bytes", "o/r");
    assert_false(is_there("m.part"));
    serve_file(",\"size\":1000", all_of_it);
    FAIL(1, "the server has 1048576 bytes, not 1000", "o/r");
    serve_file("", odd_length);
    FAIL(1, "'-5' is not a size", url);
    FAIL(1, "-5", "o/r");
}

/* ---- parts ---- */

/* Header of the answer to attempt 2. */
static const char *second_head;
static int second_version;
static unsigned n_probes; /* requests before attempt 1 */

static void half_then_second(const raw_request *q) {
    if (q->number <= n_probes + 1) {
        send_version(q, 0, "ETag: \"a\"\r\n", SIZE / 2);
    } else if (q->number == n_probes + 2) {
        raw_print(q, "%s", second_head);
        raw_send(q, data[second_version] + SIZE / 2, SIZE);
    } else {
        send_version(q, second_version, second_version ? "ETag: \"b\"\r\n" : "ETag: \"a\"\r\n",
                     SIZE);
    }
}

static void set_second(const char *head, int version) {
    second_head = head;
    second_version = version;
    serve_megabyte(half_then_second);
}

static void rejects_wrong_ranges(void **state) {
    (void)state;
    static const struct {
        const char *head, *part;
    } rows[] = {
        {"HTTP/1.1 206 P\r\nContent-Range: bytes 0-1048575/1048576\r\n\r\n", "another range"},
        {"HTTP/1.1 206 P\r\nContent-Range: bytes 524288-99/1048576\r\n\r\n", "another range"},
        {"HTTP/1.1 206 P\r\nContent-Range: bytes 524288-1048576/1048576\r\n\r\n", "another range"},
        {"HTTP/1.1 206 P\r\nContent-Range: bytes -5-1048575/1048576\r\n\r\n", "another range"},
        {"HTTP/1.1 206 P\r\nContent-Type: multipart/byteranges\r\n\r\n", "another range"},
        {"HTTP/1.1 206 P\r\nContent-Range: bytes 524288-1048575/9999999\r\n\r\n",
         "the server has 9999999 bytes, not 1048576"},
        {"HTTP/1.1 206 P\r\nContent-Range: bytes 524288-524299/1048576\r\n\r\n",
         "the server sends more than 524300 bytes"},
        {"HTTP/1.1 206 P\r\nContent-Range: bytes 524288-9999999/*\r\n\r\n",
         "the server sends more than 1048576 bytes"},
        {"HTTP/1.1 204 No Content\r\n\r\n", "HTTP 204"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        before_each(state);
        set_second(rows[i].head, 0);
        FAIL(1, rows[i].part, "o/r");
        assert_int_equal(raw_count(), 2);
        assert_false(is_there("m.gguf"));
    }
}

static void part_without_range(const raw_request *q) {
    raw_print(q, "HTTP/1.1 206 P\r\nContent-Range: bytes 0-%d/%d\r\n\r\n", SIZE - 1, SIZE);
    raw_send(q, data[0], SIZE);
}

static void never_satisfied(const raw_request *q) {
    if (q->has_range) raw_print(q, "HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n");
    else send_version(q, 0, "", SIZE / 2);
}

static void ends_when_ranges_never_work(void **state) {
    (void)state;
    serve_megabyte(part_without_range);
    FAIL(1, "HTTP 206", "o/r");
    serve_megabyte(never_satisfied);
    FAIL(1, "after 5 attempts", "o/r");
    assert_int_equal(raw_count(), 5);
}

static void does_not_mix_two_versions(void **state) {
    (void)state;
    /* The server ignores If-Range; the ETag shows that the rest is of another version. */
    set_second(
        "HTTP/1.1 206 P\r\nETag: \"b\"\r\nContent-Range: bytes 524288-1048575/1048576\r\n\r\n", 1);
    SUCCEED("o/r");
    assert_file_is("m.gguf", data[1], SIZE);
    assert_int_equal(raw_count(), 3);
    /* The same with a URL, whose first request reads only the headers. */
    before_each(state);
    serve_megabyte(half_then_second);
    n_probes = 1;
    SUCCEED(url);
    n_probes = 0;
    assert_file_is("m.gguf", data[1], SIZE);
    assert_int_equal(raw_count(), 4);
}

/* Each attempt is of another version, and the server ignores If-Range. */
static void next_40_kilobytes_of_another_version(const raw_request *q) {
    const int version = q->number % 2 == 0;
    if (q->number > 4) send_version(q, 0, "ETag: \"a\"\r\n", SIZE);
    else send_version(q, version, version ? "ETag: \"b\"\r\n" : "ETag: \"a\"\r\n", 40000);
}

static void does_not_mix_versions_of_a_resumed_part(void **state) {
    (void)state;
    serve_megabyte(next_40_kilobytes_of_another_version);
    FAIL(1, "are kept", "o/r", "--retries", "0");
    serve_megabyte(next_40_kilobytes_of_another_version);
    SUCCEED("o/r", "--retries", "9");
    assert_file_is("m.gguf", data[0], SIZE);
}

static const char *new_etag;

static void half_of_version_1(const raw_request *q) {
    const bool probe = q->number == 1;
    send_version(q, !probe, probe ? "ETag: \"a\"\r\n" : "ETag: \"b\"\r\n", probe ? 4 : SIZE / 2);
}

static void version_0(const raw_request *q) { send_version(q, 0, "ETag: \"a\"\r\n", SIZE); }

static void forgets_a_part_whose_version_has_changed(void **state) {
    (void)state;
    /* The partial file is of version b; then the server has version a again, as the note says. */
    raw_set(NULL, half_of_version_1);
    FAIL(1, "(after 1 attempts)", url, "--retries", "0");
    raw_set(NULL, version_0);
    SUCCEED(url);
    assert_file_is("m.gguf", data[0], SIZE);
}

static void half_without_version(const raw_request *q) { send_version(q, 0, "", SIZE / 2); }

static void keeps_nothing_that_cannot_be_resumed(void **state) {
    (void)state;
    raw_set(NULL, half_without_version);
    cli_result r = PULL("-q", url, "--retries", "1");
    assert_refused(&r, 1, "(after 2 attempts)");
    assert_does_not_say(r.err, "are kept");
    cli_free(&r);
    assert_false(is_there("m.part"));
}

/* ---- kills ---- */

static unsigned kill_after;
static atomic_int victim;

static void kill_on_the_way(const raw_request *q) {
    const bool same = !q->if_range[0] || !strcmp(q->if_range, new_etag);
    raw_request whole = *q;
    whole.has_range = q->has_range && same;
    whole.first = whole.has_range ? q->first : 0;
    char extra[64];
    snprintf(extra, sizeof extra, "ETag: %s\r\n", new_etag);
    const int version = new_etag[1] == 'b';
    send_head(&whole, extra);
    for (size_t at = (size_t)whole.first; at < SIZE; at += 10000) {
        if (!raw_send(q, data[version] + at, SIZE - at < 10000 ? SIZE - at : 10000)) return;
        if (victim && at / 10000 % 20 == kill_after) kill(victim, SIGKILL);
    }
}

static void resumes_one_version_when_killed_anywhere(void **state) {
    (void)state;
    srand(5);
    for (int i = 0; i < 20; i++) {
        new_etag = i % 5 == 4 ? "\"b\"" : "\"a\""; /* every fifth attempt is of another version */
        kill_after = (unsigned)rand() % 20;
        victim = 0;
        raw_set(NULL, kill_on_the_way);
        victim = start_pull(url, "/dev/null");
        (void)wait_for(victim);
        victim = 0;
        if (!is_there("m.gguf")) continue;
        assert_file_is("m.gguf", data[i % 5 == 4], SIZE);
        before_each(state);
    }
    new_etag = "\"a\"";
    raw_set(NULL, kill_on_the_way);
    SUCCEED(url);
    assert_file_is("m.gguf", data[0], SIZE);
}

int main(void) {
    if (lacks_libcurl()) return 77;
    const struct CMUnitTest tests[] = {
        EACH(rejects_unknown_length_without_checksum),
        EACH(decodes_a_compressed_config),
        EACH(rejects_wrong_lengths),
        EACH(rejects_wrong_ranges),
        EACH(ends_when_ranges_never_work),
        EACH(does_not_mix_two_versions),
        EACH(does_not_mix_versions_of_a_resumed_part),
        EACH(forgets_a_part_whose_version_has_changed),
        EACH(keeps_nothing_that_cannot_be_resumed),
        EACH(resumes_one_version_when_killed_anywhere),
    };
    return cmocka_run_group_tests_name("cli pull parts", tests, prepare, clean_up);
}
