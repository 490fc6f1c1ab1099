/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the page that antigravity serve sends to browsers, and of the view of a session's
 * cache. */
#include "served_group.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HTML "Accept: text/html,*/*;q=0.8\r\n"
#define ALICE "Authorization: Bearer alices-key\r\n"
#define BOB "Authorization: Bearer bobs-key\r\n"

static void sends_the_page_to_browsers(void **state) {
    (void)state;
    serve_reply r = serve_fetch(&server, "GET /", HTML, NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Content-Type: text/html; charset=utf-8\r\n"));
    assert_non_null(
        strstr(r.head, "Content-Security-Policy: default-src 'none'; script-src 'self';"));
    assert_non_null(strstr(r.head, "Vary: Accept\r\n"));
    assert_non_null(strstr(r.body, "<script type=\"module\" src=\"/page/app.js\"></script>"));
    serve_reply_free(&r);
    r = serve_fetch(&server, "GET /page/app.js", "", NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Content-Type: text/javascript; charset=utf-8\r\n"));
    serve_reply_free(&r);
    static const char *const absent[] = {"GET /page/app", "GET /page/", "GET /page/../page.c",
                                         "GET /page/%2e%2e/page.c"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        r = serve_fetch(&server, absent[i], "", NULL);
        assert_true(r.status == 404 || r.status == 400);
        serve_reply_free(&r);
    }
}

static void replies_304_to_a_known_version(void **state) {
    char header[128], *tag;
    (void)state;
    serve_reply r = serve_fetch(&server, "GET /page/page.css", "", NULL);
    assert_non_null(tag = strstr(r.head, "ETag: \""));
    snprintf(header, sizeof header, "If-None-Match: W/%.*s\r\n", 26, tag + 6);
    serve_reply_free(&r);
    r = serve_fetch(&server, "GET /page/page.css", header, NULL);
    assert_int_equal(r.status, 304);
    assert_int_equal(r.n_body, 0);
    serve_reply_free(&r);
    r = serve_fetch(&server, "GET /page/page.css", "If-None-Match: \"else\"\r\n", NULL);
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
}

static void reports_running_to_programs(void **state) {
    (void)state;
    serve_reply r = serve_fetch(&server, "GET /", "Accept: */*\r\n", NULL);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "Ollama is running");
    serve_reply_free(&r);
}

static json_t *json_of(const char *line, const char *headers, const char *body, int status) {
    serve_reply r = serve_fetch(&server, line, headers, body);
    if (r.status != status) fail_msg("%s: %d: %s", line, r.status, r.body);
    json_t *v = json_loadb(r.body, r.n_body, 0, NULL);
    assert_non_null(v);
    serve_reply_free(&r);
    return v;
}

/* Counts the slots in a list of runs, which must ascend. */
static json_int_t count_slots(const json_t *runs, json_int_t n_tokens) {
    json_int_t n = 0, end = 0;
    for (size_t i = 0; i < json_array_size(runs); i += 2) {
        const json_int_t first = json_integer_value(json_array_get(runs, i));
        assert_true(first >= end);
        end = first + json_integer_value(json_array_get(runs, i + 1));
        n += end - first;
    }
    assert_true(end <= n_tokens);
    return n;
}

static void shows_a_session_to_its_key_only(void **state) {
    static const char chat[] =
        "{\"model\":\"demo\",\"prompt\":\"Once upon a time there was\",\"max_tokens\":150,"
        "\"ignore_eos\":true,\"kv_policy\":\"streaming\",\"kv_budget\":\"64\",\"seed\":1}";
    char line[64], own[96];
    (void)state;
    serve_reply r = serve_fetch(&server, "POST /v1/completions", ALICE, chat);
    assert_int_equal(r.status, 200);
    const char *request = strstr(r.head, "X-Request-Id: ");
    assert_non_null(request);
    snprintf(own, sizeof own, "GET /v1/kv/%.32s?from=0", request + 14);
    serve_reply_free(&r);
    json_t *v = json_of("GET /v1/kv", ALICE, NULL, 200);
    const json_int_t id = json_integer_value(json_at(v, "data.0.id"));
    json_decref(v);
    snprintf(line, sizeof line, "GET /v1/kv/%lld", (long long)id);
    v = json_of(line, ALICE, NULL, 200);
    const json_int_t n = json_integer_value(json_at(v, "tokens"));
    assert_string_equal(json_string_value(json_at(v, "state")), "parked");
    assert_string_equal(json_string_value(json_at(v, "policy")), "streaming");
    assert_string_equal(json_string_value(json_at(v, "k_type")), "f16");
    assert_int_equal(json_integer_value(json_at(v, "budget")), 64);
    assert_int_equal(json_integer_value(json_at(v, "layers.0.heads.0")), 0);
    /* The session's number is public and does not reveal text. */
    assert_null(json_object_get(v, "text"));
    assert_int_equal(json_integer_value(json_at(v, "runs.0.1")), 4); /* attention sinks */
    assert_int_equal(
        count_slots(json_at(v, "runs.0"), n) + json_integer_value(json_at(v, "evicted")), n);
    json_decref(v);
    json_decref(json_of(line, "", NULL, 401));
    json_decref(json_of(line, BOB, NULL, 404));
    v = json_of(own, ALICE, NULL, 200);
    assert_int_equal(json_integer_value(json_at(v, "id")), id);
    assert_int_equal(json_array_size(json_at(v, "text.tokens")), n);
    assert_string_equal(json_string_value(json_at(v, "text.tokens.1")), "Once");
    json_decref(v);
    json_decref(json_of(own, BOB, NULL, 404));
    snprintf(strchr(own, '?'), 16, "?from=100");
    v = json_of(own, ALICE, NULL, 200);
    assert_int_equal(json_integer_value(json_at(v, "text.from")), 92);
    assert_int_equal(json_array_size(json_at(v, "text.tokens")), n - 92);
    json_decref(v);
    json_decref(json_of("GET /v1/kv/1?from=x", ALICE, NULL, 400));
    json_decref(json_of("GET /v1/kv/1?from=18446744073709551616", ALICE, NULL, 400));
    json_decref(json_of("GET /v1/kv/-1", ALICE, NULL, 404));
    json_decref(json_of("GET /v1/kv/none", ALICE, NULL, 404));
    json_decref(json_of("GET /v1/kv/18446744073709551615", ALICE, NULL, 404));
}

/* Holds with --share-prefixes, too. */
static void hides_text_from_other_keys(void **state) {
    static const char chat[] = "{\"model\":\"demo\",\"prompt\":\"Zanzibar\",\"max_tokens\":2}";
    char line[64];
    (void)state;
    json_decref(json_of("POST /v1/completions", ALICE, chat, 200));
    json_t *list = json_of("GET /v1/kv", BOB, NULL, 200);
    const json_t *data = json_object_get(list, "data");
    assert_true(json_array_size(data) > 0);
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *id = json_object_get(json_array_get(data, i), "id");
        snprintf(line, sizeof line, "GET /v1/kv/%lld?from=0", (long long)json_integer_value(id));
        serve_reply r = serve_fetch(&server, line, BOB, NULL);
        assert_int_equal(r.status, 200);
        assert_null(strstr(r.body, "\"text\""));
        assert_null(strstr(r.body, "ibar"));
        serve_reply_free(&r);
    }
    json_decref(list);
    json_decref(json_of("GET /v1/kv/ffffffffffffffffffffffffffffffff", BOB, NULL, 404));
}

static int start_with(const char *option) {
    char keys[] = "/tmp/antigravity-page-keys-XXXXXX";
    const int fd = mkstemp(keys);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "alices-key\nbobs-key\n", 20), 20);
    close(fd);
    SERVE_START(&server, "-q", "--api-key-file", keys, option);
    remove(keys);
    return 0;
}

static int start_server(void **state) {
    (void)state;
    return start_with(NULL);
}

static int start_sharing_server(void **state) {
    (void)state;
    return start_with("--share-prefixes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_the_page_to_browsers),
        cmocka_unit_test(replies_304_to_a_known_version),
        cmocka_unit_test(reports_running_to_programs),
        cmocka_unit_test(shows_a_session_to_its_key_only),
    };
    const struct CMUnitTest sharing[] = {
        cmocka_unit_test(hides_text_from_other_keys),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server) +
           cmocka_run_group_tests(sharing, start_sharing_server, stop_server);
}
