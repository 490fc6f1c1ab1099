/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity pull with servers that send wrong, slow or endless answers: each pull fails after a
 * bounded number of requests. */
#include "../../programs/antigravity/pull/http_rate.h"
#include "pull_bench.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- attempts ---- */

static void same_20_bytes(const raw_request *q) {
    raw_request whole = *q;
    whole.has_range = false;
    whole.first = 0;
    send_version(&whole, 0, "", 20);
}

static void next_20_bytes(const raw_request *q) { send_version(q, 0, "", 20); }

static void next_20_bytes_without_length(const raw_request *q) {
    if (q->number > GIVE_UP) send_gone(q);
    else if (!q->has_range) raw_print(q, "HTTP/1.1 200 OK\r\n\r\n");
    else
        raw_print(q, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %llu-%d/%d\r\n\r\n",
                  q->first, SIZE - 1, SIZE);
    raw_send(q, data[0] + q->first, 20);
}

static void gives_up_on_attempts_of_20_bytes(void **state) {
    (void)state;
    const raw_answer answers[] = {same_20_bytes, next_20_bytes, next_20_bytes_without_length};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        before_each(state);
        serve_megabyte(answers[i]);
        FAIL(1, "(after 5 attempts); ", "o/r");
        assert_int_equal(raw_count(), 5);
        assert_false(is_there("m.gguf"));
        serve_megabyte(all_of_it);
        SUCCEED("o/r");
        assert_file_is("m.gguf", data[0], SIZE);
    }
}

static void next_40_kilobytes(const raw_request *q) { send_version(q, 0, "", 40000); }

static void same_200_kilobytes(const raw_request *q) {
    raw_request whole = *q;
    whole.has_range = false;
    whole.first = 0;
    send_version(&whole, 0, "", 200000);
}

static void counts_attempts_from_the_high_water_mark(void **state) {
    (void)state;
    serve_megabyte(next_40_kilobytes);
    SUCCEED("o/r", "--retries", "2");
    assert_file_is("m.gguf", data[0], SIZE);
    before_each(state);
    serve_megabyte(same_200_kilobytes);
    FAIL(1, "(after 3 attempts)", "o/r", "--retries", "2");
    assert_int_equal(raw_count(), 3);
}

static void too_busy(const raw_request *q) {
    raw_print(q, "HTTP/1.1 503 Busy\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n");
}

static void waits_at_most_two_minutes_and_ends_on_ctrl_c(void **state) {
    (void)state;
    serve_megabyte(too_busy);
    cli_result r = cli_run(
        &(cli_setup){.args = CLI_ARGS("pull", "o/r"), .interrupt_when = "retrying in 120 s"});
    assert_code(&r, 130);
    cli_free(&r);
    assert_int_equal(raw_count(), 1);
}

/* ---- rates ---- */

static void rate_is_the_average_of_the_last_window(void **state) {
    (void)state;
    http_rate r;
    /* 1 KiB/s is enough and a byte less is not. Before the end of the first window no rate is
     * low. */
    http_rate_begin(&r, 60, 1000);
    for (unsigned s = 1; s <= 300; s++) assert_false(http_rate_is_low(&r, 1000 + s, 1024 * s));
    http_rate_begin(&r, 60, 1000);
    for (unsigned s = 1; s < 60; s++) assert_false(http_rate_is_low(&r, 1000 + s, 0));
    assert_true(http_rate_is_low(&r, 1060, 60 * 1024 - 1));
    /* One burst a minute does not hide a low average. */
    http_rate_begin(&r, 60, 0);
    bool low = false;
    for (unsigned s = 1; s <= 180 && !low; s++) low = http_rate_is_low(&r, s, 40000 * (s / 59));
    assert_true(low);
    /* A fast start does not count permanently: silence is detected within a window and a step. */
    http_rate_begin(&r, 60, 0);
    for (unsigned s = 1; s <= 100; s++) assert_false(http_rate_is_low(&r, s, s << 20));
    unsigned at = 101;
    while (!http_rate_is_low(&r, at, 100 << 20)) at++;
    assert_in_range(at, 160, 166);
}

/* Sends n bytes and pauses after each `piece` bytes. */
static void send_slowly(const raw_request *q, const char *bytes, size_t n, size_t piece, long ms) {
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    for (size_t at = 0; at < n; at += piece) {
        if (!raw_send(q, bytes + at, n - at < piece ? n - at : piece)) return;
        nanosleep(&pause, NULL);
    }
}

static void slow_body(const raw_request *q) {
    send_head(q, "");
    send_slowly(q, (const char *)data[0] + q->first, SIZE - (size_t)q->first, 1, 50);
}

static void slow_head(const raw_request *q) {
    static const char head[] =
        "HTTP/1.1 200 OK\r\nX-Long: "
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    send_slowly(q, head, sizeof head - 1, 1, 50);
}

/* Sends nothing until the client closes the connection. */
static void silence(const raw_request *q) {
    char byte;
    while (recv(q->fd, &byte, 1, 0) > 0) continue;
}

static void steady_body(const raw_request *q) {
    send_head(q, "");
    send_slowly(q, (const char *)data[0], SIZE, 20000, 50);
}

static void gives_up_on_slow_connections(void **state) {
    (void)state;
    const raw_answer answers[] = {slow_head, silence};
    serve_megabyte(slow_body);
    FAIL(1, "too slow: less than 1024 bytes/s for 1 s (after 2 attempts)", "o/r", "--slow-time",
         "1", "--retries", "1");
    assert_int_equal(raw_count(), 2);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        serve_megabyte(answers[i]);
        FAIL(1, "too slow: less than 1024 bytes/s for 1 s (after 1 attempts)", "o/r", "--slow-time",
             "1", "--retries", "0");
    }
    serve_megabyte(steady_body);
    SUCCEED("o/r", "--slow-time", "2", "--retries", "0");
    cli_result r = CLI("pull", "--help");
    assert_says(r.out, "less than 1 KiB/s arrives over this time");
    assert_says(r.out, "(default 60)");
    cli_free(&r);
}

/* ---- invalid lists ---- */

static void names_fault_of_file_list(void **state) {
    (void)state;
#define ENTRY(fields) "{\"siblings\":[{" fields "}]}"
#define FILE_WITH(fields) ENTRY("\"rfilename\":\"m.gguf\"," fields)
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"[]", "must be an object; it is an array"},
        {"{}", "siblings must be an array; it is missing"},
        {"{\"siblings\":{\"a\":1}}", "siblings must be an array; it is an object"},
        {"{\"siblings\":[]}", "lists no files"},
        {"{\"siblings\":[null]}", "'siblings[0]': the entry must be an object; it is null"},
        {ENTRY("\"size\":1"), "rfilename must be a string; it is missing"},
        {ENTRY("\"rfilename\":5"), "rfilename must be a string; it is a number"},
        {ENTRY("\"rfilename\":\"\""), "rfilename must not be empty"},
        {ENTRY("\"rfilename\":\"/tmp/m.gguf\""), "rfilename must not be absolute"},
        {ENTRY("\"rfilename\":\"a/../m.gguf\""), "rfilename must not hold the parts"},
        {ENTRY("\"rfilename\":\"a//m.gguf\""), "rfilename must not hold the parts"},
        {ENTRY("\"rfilename\":\"a\\u0000.gguf\""), "not valid JSON: \\u0000"},
        {ENTRY("\"rfilename\":\"a\\u001b[31m.gguf\""), "control characters; it is a?[31m.gguf"},
        {ENTRY("\"rfilename\":\"a\"},{\"rfilename\":\"a\""), "file 'a': rfilename must be unique"},
        {FILE_WITH("\"size\":-5"), "'m.gguf': size must be between 0 and 256 TiB; it is -5"},
        {FILE_WITH("\"size\":\"5\""), "size must be an integer; it is a string"},
        {FILE_WITH("\"size\":5.5"), "size must be an integer; it is a fraction"},
        {FILE_WITH("\"size\":null"), "size must be an integer; it is null"},
        {FILE_WITH("\"size\":9223372036854775807"), "it is 9223372036854775807"},
        {FILE_WITH("\"size\":92233720368547758070"), "not valid JSON: too big integer"},
        {FILE_WITH("\"lfs\":5"), "lfs must be an object; it is a number"},
        {FILE_WITH("\"lfs\":{\"sha256\":5}"), "lfs.sha256 must be a string; it is a number"},
        {FILE_WITH("\"lfs\":{\"sha256\":null}"), "lfs.sha256 must be a string; it is null"},
        {FILE_WITH("\"lfs\":{\"sha256\":\"12\"}"), "must be 64 hexadecimal digits; it is 12"},
        {FILE_WITH("\"blobId\":[]"), "blobId must be a string; it is an array"},
        {"{\"sha\":5,\"siblings\":[]}", "sha must be a commit in hexadecimal digits"},
        {"{\"sha\":\"../..\",\"siblings\":[]}", "sha must be a commit in hexadecimal digits"},
        {"{\"sha\":\"a\",\"sha\":\"b\"}", "not valid JSON: duplicate object key"},
        {ENTRY("\"rfilename\":\"m-00001-of-00002.gguf\""), "the hub lists 1 of its 2 shards"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strcpy(list, rows[i].text);
        raw_set(answer_list, send_gone);
        FAIL(1, rows[i].part, "o/r");
        assert_int_equal(raw_count(), 0);
    }
}

static const char *index_text;

static void answer_index(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(index_text),
              index_text);
}

static void names_fault_of_index(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"{}", "weight_map must be an object that names files; it is missing"},
        {"{\"weight_map\":{}}", "weight_map must be an object that names files; it is empty"},
        {"{\"weight_map\":[\"a\"]}",
         "weight_map must be an object that names files; it is an array"},
        {"{\"weight_map\":{\"w\":5}}", "'a number' is not the name of a safetensors file"},
        {"{\"weight_map\":{\"w\":\"config.json\"}}", "'config.json' is not the name of"},
        {"{\"weight_map\":{\"w\":\"../a.safetensors\"}}", "no file '../a.safetensors'"},
    };
    strcpy(list, "{\"siblings\":[{\"rfilename\":\"config.json\"},"
                 "{\"rfilename\":\"model.safetensors.index.json\"}]}");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        index_text = rows[i].text;
        raw_set(answer_list, answer_index);
        FAIL(1, rows[i].part, "o/r");
    }
}

/* ---- endless answers ---- */

/* Repeats the piece until the client closes the connection. */
static void send_endlessly(const raw_request *q, const char *piece) {
    char block[1 << 16];
    const size_t n = strlen(piece);
    size_t used = 0;
    for (; used + n < sizeof block; used += n) memcpy(block + used, piece, n);
    while (raw_send(q, block, used)) continue;
}

static void endless_text(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\n\r\n{\"a\":\"");
    send_endlessly(q, "x");
}

static void endless_headers(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\n");
    send_endlessly(q, "X-Header: some text that is repeated\r\n");
}

static void endless_interim_answers(const raw_request *q) {
    send_endlessly(q, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
}

static void endless_page(const raw_request *q) {
    raw_print(q, "HTTP/1.1 404 Not Found\r\n\r\n");
    send_endlessly(q, "x");
}

static void endless_body(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\n\r\nGGUF");
    send_endlessly(q, "x");
}

static void deep_list(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\n\r\n");
    char block[100000];
    memset(block, '[', sizeof block);
    raw_send(q, block, sizeof block);
}

static void wide_list(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\n\r\n[[]");
    for (int i = 0; i < 2000000; i += 1000) {
        char block[3001] = "";
        for (size_t at = 0; at < 3000; at += 3) memcpy(block + at, ",[]", 3);
        if (!raw_send(q, block, 3000)) return;
    }
    raw_print(q, "]");
}

static void limits_endless_responses(void **state) {
    (void)state;
    static const struct {
        raw_answer api, file;
        const char *part;
    } rows[] = {
        {endless_text, NULL, "the answer of the hub is too long: it exceeds 64 MiB"},
        {deep_list, NULL, "not valid JSON: maximum parsing depth reached"},
        {wide_list, NULL, "not valid JSON: more than 2000000 values"},
        {endless_headers, NULL, "the headers of the answer exceed 256 KiB"},
        {endless_interim_answers, NULL, "the headers of the answer exceed 256 KiB"},
        {endless_page, NULL, "HTTP 404"},
        {answer_list, endless_body, "the server sends more than 1048576 bytes"},
        {answer_list, endless_headers, "the headers of the answer exceed 256 KiB"},
    };
    serve_megabyte(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        raw_set(rows[i].api, rows[i].file);
        FAIL(1, rows[i].part, "o/r");
    }
}

static void leads_to_a_file(const raw_request *q) {
    raw_print(q, "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n");
}

static void leads_in_circles(const raw_request *q) {
    raw_print(q, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", q->path);
}

static void follows_few_redirects_and_none_to_another_scheme(void **state) {
    (void)state;
    serve_megabyte(leads_to_a_file);
    FAIL(1, "redirects to file:///etc/passwd, which is not http or https", "o/r");
    serve_megabyte(leads_in_circles);
    FAIL(1, "redirects more than 10 times", "o/r");
    assert_int_equal(raw_count(), 11);
}

/* ---- the disk ---- */

static bool mount_small_store(void) {
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", store, "tmpfs", 0, "size=4m") == 0;
}

static int unmount_store(void **state) {
    (void)state;
    (void)umount2(store, MNT_DETACH);
    return 0;
}

static int go_on[2]; /* a pipe: a byte lets the server continue */

/* Sends half of a file of 3 MiB, waits for the test, and sends the other half. */
static void half_and_rest(const raw_request *q) {
    char byte;
    const size_t n = sizeof data[0], half = n / 2;
    raw_print(q, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", n);
    raw_send(q, data[0], half);
    if (read(go_on[0], &byte, 1) == 1) raw_send(q, data[0] + half, n - half);
}

static void fill_store(size_t n) {
    FILE *f = fopen(in_store("other"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data[0], 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void wait_for_bytes(const char *path, off_t n) {
    struct stat s = {.st_size = 0};
    for (int i = 0; i < 60000 && s.st_size < n; i++) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        if (stat(path, &s) != 0) s.st_size = 0;
    }
    assert_true(s.st_size >= n);
}

static void checks_free_space_before_and_while_it_writes(void **state) {
    (void)state;
    char errors[] = "/tmp/ag-pull-errors-XXXXXX", text[1024] = "", fields[64];
    if (!mount_small_store()) {
        print_message("skipped: no right to mount a small file system\n");
        skip();
    }
    snprintf(fields, sizeof fields, ",\"size\":%zu", sizeof data[0]);
    serve_file(fields, half_and_rest);
    assert_int_equal(pipe(go_on), 0);
    int fd = mkstemp(errors);
    assert_true(fd >= 0);
    /* Another program fills the disk after half of the file was written. */
    pid_t pid = start_pull("o/r", errors);
    wait_for_bytes(in_store("m.part/model.gguf.part"), sizeof data[0] / 2);
    fill_store(SIZE + SIZE / 2);
    assert_int_equal(write(go_on[1], "x", 1), 1);
    assert_int_equal(wait_for(pid), 1);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    assert_says(text, "not enough disk space: ");
    assert_says(text, " bytes (");
    assert_says(text, " needed, ");
    assert_says(text, " available; ");
    assert_says(text, "are kept, and the same command resumes");
    /* The disk is full before the first byte of the next attempt. */
    serve_file(fields, half_and_rest);
    FAIL(1, "not enough disk space: ", "o/r");
    assert_int_equal(raw_count(), 0);
    close(fd);
    close(go_on[0]);
    close(go_on[1]);
    unlink(errors);
}

int main(void) {
    if (lacks_libcurl()) return 77;
    const struct CMUnitTest tests[] = {
        EACH(gives_up_on_attempts_of_20_bytes),
        EACH(counts_attempts_from_the_high_water_mark),
        EACH(waits_at_most_two_minutes_and_ends_on_ctrl_c),
        cmocka_unit_test(rate_is_the_average_of_the_last_window),
        EACH(gives_up_on_slow_connections),
        EACH(names_fault_of_file_list),
        EACH(names_fault_of_index),
        EACH(limits_endless_responses),
        EACH(follows_few_redirects_and_none_to_another_scheme),
        cmocka_unit_test_setup_teardown(checks_free_space_before_and_while_it_writes, before_each,
                                        unmount_store),
    };
    return cmocka_run_group_tests_name("cli pull hostile", tests, prepare, clean_up);
}
