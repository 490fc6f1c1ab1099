/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of `--memory` against bodies that need far more memory than their size: the process never
 * exceeds the limit. */
#include "../support/sanitized.h"
#include "serve_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_MIB = 192, N_CLIENTS = 3, LARGE = 1350000, MEDIUM = 640000 };
#define LIMIT "192M"

static serve_process server;

static size_t peak_kib(void) {
    char path[64], line[256];
    size_t kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)server.pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %zu kB", &kib) == 1) break;
    fclose(f);
    assert_true(kib > 0);
    return kib;
}

/* ---- bodies ---- */

typedef struct body {
    char *text;
    size_t n, cap;
} body;

static void add(body *b, const char *s) {
    const size_t n = strlen(s);
    if (b->n + n + 1 > b->cap) {
        b->cap = 2 * (b->n + n + 1);
        b->text = realloc(b->text, b->cap);
        assert_non_null(b->text);
    }
    memcpy(b->text + b->n, s, n + 1);
    b->n += n;
}

/* Appends `first`, then `more` until the body has n bytes. */
static void add_list(body *b, const char *first, const char *more, size_t n) {
    add(b, first);
    while (b->n < n) add(b, more);
}

#define CALL                                                                                       \
    "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\"," \
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\""
#define RESULT "\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"y\"}"
#define TOOL "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"

/* The parts of a body: the start up to "messages", the first item, the repeated item, the end. */
typedef struct form {
    const char *name, *begin, *first, *more, *end;
} form;

static const form forms[] = {
    {"tiny messages", "", "{\"role\":\"user\",\"content\":\"a\"}",
     ",{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"a\"}", "]"},
    {"system messages", "", "{\"role\":\"system\",\"content\":\"a\"}",
     ",{\"role\":\"system\",\"content\":\"a\"}", ",{\"role\":\"user\",\"content\":\"a\"}]"},
    {"empty objects", "{\"role\":\"user\",\"content\":\"a\"}],\"metadata\":[", "{}", ",{}", "]"},
    {"empty lists", "{\"role\":\"user\",\"content\":\"a\"}],\"metadata\":[", "[]", ",[]", "]"},
    {"arguments as a list", CALL, "{\\\"a\\\":[0", ",0", "]}" RESULT "]"},
    {"arguments as lists of lists", CALL, "{\\\"a\\\":[[]", ",[]", "]}" RESULT "]"},
    {"arguments as escapes", CALL, "{\\\"a\\\":\\\"", "\\\\u00e9", "\\\"}" RESULT "]"},
    {"content parts", "{\"role\":\"user\",\"content\":[", "{\"type\":\"text\",\"text\":\"a\"}",
     ",{\"type\":\"text\",\"text\":\"a\"}", "]}]"},
    {"tool results", "{\"role\":\"user\",\"content\":\"a\"}",
     ",{\"role\":\"tool\",\"content\":\"a\"}", ",{\"role\":\"tool\",\"content\":\"a\"}", "]"},
    {"tools with properties", "{\"role\":\"user\",\"content\":\"a\"}" TOOL "{\"properties\":{",
     "\"p\":{\"type\":\"string\"}", ",\"p\":{\"type\":\"string\"}", "}}}}]"},
    {"schema with an enumeration",
     "{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":{\"type\":\"json_schema\","
     "\"json_schema\":{\"name\":\"n\",\"schema\":{\"enum\":[",
     "\"abcdef\"", ",\"abcdef\"", "]}}}"},
    {"stop strings", "{\"role\":\"user\",\"content\":\"a\"}],\"stop\":[", "\"a\"", ",\"a\"", "]"},
    {"one long text", "{\"role\":\"user\",\"content\":\"", "a", " word", "\"}]"},
};

static body body_of(const form *f, size_t n) {
    body b = {0};
    /* One token, also in Ollama's form; otherwise an answer is as long as the context. */
    add(&b, "{\"model\":\"demo\",\"max_tokens\":1,\"options\":{\"num_predict\":1},\"messages\":[");
    add(&b, f->begin);
    add_list(&b, f->first, f->more, n);
    add(&b, f->end);
    add(&b, "}");
    return b;
}

/* ---- requests ---- */

static void send_to(int fd, const char *line, const body *b) {
    char head[256];
    const int n =
        snprintf(head, sizeof head, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
                 line, b->n);
    serve_send(fd, head, (size_t)n);
    serve_send(fd, b->text, b->n);
}

static bool is_expected(int status) {
    return status == 200 || status == 400 || status == 413 || status == 503;
}

/* Sends the body from N_CLIENTS clients at once. */
static void attack(const char *line, const char *name, const body *b) {
    int fds[N_CLIENTS];
    for (size_t i = 0; i < N_CLIENTS; i++) send_to(fds[i] = serve_connect(&server), line, b);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        serve_reply r = serve_receive(fds[i]);
        if (!is_expected(r.status)) fail_msg("%s, %s: status %d", line, name, r.status);
        if (r.status == 503) assert_non_null(strstr(r.head, "Retry-After: "));
        serve_reply_free(&r);
        close(fds[i]);
    }
    const size_t peak = peak_kib();
    if (peak > LIMIT_MIB * 1024) fail_msg("%s, %s: %zu KiB of " LIMIT, line, name, peak);
}

static void ask_small(void) {
    serve_reply r = serve_fetch(&server, "POST /v1/chat/completions", "",
                                "{\"model\":\"demo\",\"max_tokens\":2,\"messages\":"
                                "[{\"role\":\"user\",\"content\":\"Once\"}]}");
    assert_int_equal(r.status, 200);
    serve_reply_free(&r);
}

/* Creates cached sessions, which stay in memory until it is needed. */
static void fill_prefix_store(void) {
    for (int i = 0; i < 18; i++) {
        body b = {0};
        char first[64];
        snprintf(first, sizeof first, "{\"model\":\"demo\",\"max_tokens\":1,\"prompt\":\"%d", i);
        add_list(&b, first, " story", 4500);
        add(&b, "\"}");
        serve_reply r = serve_fetch(&server, "POST /v1/completions", "", b.text);
        assert_int_equal(r.status, 200);
        serve_reply_free(&r);
        free(b.text);
    }
}

static int start(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--memory", LIMIT, "--kv-type", "f32", "--weights", "q4_0", "-t",
                "1");
    fill_prefix_store();
    return 0;
}

static int stop(void **state) {
    (void)state;
    return serve_stop(&server, SIGTERM);
}

static void never_exceeds_the_limit(void **state) {
    (void)state;
    static const char *const lines[] = {"POST /v1/chat/completions", "POST /v1/messages",
                                        "POST /api/chat"};
    const size_t n_lines = sizeof lines / sizeof lines[0];
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        body large = body_of(&forms[i], LARGE), medium = body_of(&forms[i], MEDIUM);
        attack(lines[0], forms[i].name, &large);
        attack(lines[1 + i % (n_lines - 1)], forms[i].name, &medium);
        ask_small();
        free(large.text);
        free(medium.text);
    }
}

static void limits_prompts_and_biases(void **state) {
    (void)state;
    body prompts = {0}, bias = {0}, input = {0};
    add_list(&prompts, "{\"model\":\"demo\",\"max_tokens\":1,\"prompt\":[\"a\"", ",\"ab\"", 1000);
    add(&prompts, "]}");
    attack("POST /v1/completions", "many prompts", &prompts);
    add_list(&bias, "{\"model\":\"demo\",\"max_tokens\":1,\"prompt\":\"a\",\"logit_bias\":{\"1\":1",
             ",\"1\":1", 1 << 20);
    add(&bias, "}}");
    attack("POST /v1/completions", "logit_bias", &bias);
    add_list(&input,
             "{\"model\":\"demo\",\"max_output_tokens\":1,\"input\":[{\"role\":\"user\","
             "\"content\":\"a\"}",
             ",{\"role\":\"user\",\"content\":\"a\"}", 1 << 20);
    add(&input, "]}");
    attack("POST /v1/responses", "items", &input);
    free(prompts.text);
    free(bias.text);
    free(input.text);
    ask_small();
}

/* Memory of earlier requests must be free, or the error would say "retry later". */
static void rejects_a_request_that_can_never_fit(void **state) {
    (void)state;
    body b = body_of(&forms[2], 1 << 20);
    serve_reply r = serve_fetch(&server, "POST /v1/chat/completions", "", b.text);
    assert_int_equal(r.status, 413);
    assert_non_null(strstr(r.body, "all requests share 24.0 MiB"));
    serve_reply_free(&r);
    free(b.text);
}

static void ends_work_beyond_the_prepare_limit(void **state) {
    (void)state;
    serve_process hasty;
    body b = body_of(&forms[12], 1 << 21);
    SERVE_START(&hasty, "-q", "--load-later", "--prepare-limit", "0.01");
    serve_reply r = serve_fetch(&hasty, "POST /v1/chat/completions", "", b.text);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "more than 0.01 s of processor time"));
    serve_reply_free(&r);
    free(b.text);
    assert_int_equal(serve_stop(&hasty, SIGTERM), 0);
}

static void ends_work_beyond_the_timeout_of_the_request(void **state) {
    (void)state;
    serve_process p;
    body b = body_of(&forms[12], 1 << 21);
    /* The body is an object: the field becomes its last one. */
    char *text = malloc(b.n + 32);
    snprintf(text, b.n + 32, "%.*s,\"timeout\":0.001}", (int)b.n - 1, b.text);
    SERVE_START(&p, "-q", "--load-later");
    serve_reply r = serve_fetch(&p, "POST /v1/chat/completions", "", text);
    assert_int_equal(r.status, 504);
    assert_non_null(strstr(r.body, "the request timed out"));
    serve_reply_free(&r);
    free(text);
    free(b.text);
    assert_int_equal(serve_stop(&p, SIGTERM), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_exceeds_the_limit),
        cmocka_unit_test(limits_prompts_and_biases),
        cmocka_unit_test(rejects_a_request_that_can_never_fit),
        cmocka_unit_test(ends_work_beyond_the_prepare_limit),
        cmocka_unit_test(ends_work_beyond_the_timeout_of_the_request),
    };
#if SANITIZED
    return 77; /* a sanitizer's own memory exceeds the limit */
#endif
    return cmocka_run_group_tests(tests, start, stop);
}
