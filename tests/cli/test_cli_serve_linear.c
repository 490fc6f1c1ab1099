/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the server's processor time for a request is linear in its body, in every protocol,
 * and that the event loop uses at most 5 % of it. */
#include "../support/sanitized.h"
#include "serve_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_SIZES = 3, MAX_TRIES = 10, MANY = SANITIZED ? 1000 : 5000, SOME = SANITIZED ? 500 : 1200 };

/* A body in which ' stands for a quotation mark: head, n times the item, middle, n times the second
 * item (NULL: none), tail. # is replaced by the item's number. */
typedef struct form {
    const char *name, *line, *head, *item, *middle, *second, *tail;
    size_t n; /* number of items in the smallest body */
} form;

#define CHAT "POST /v1/chat/completions"
#define COMPLETIONS "POST /v1/completions"
#define RESPONSES "POST /v1/responses"
#define MESSAGES "POST /v1/messages"
#define OLLAMA "POST /api/chat"

#define BRIEF "{'model':'demo','max_tokens':1,"
#define INPUT "{'model':'demo','max_output_tokens':1,"
#define FEW "{'model':'demo','stream':false,'options':{'num_predict':1},"
#define USER "{'role':'user','content':'a'}"
#define SCHEMA "{'type':'object','properties':{'a':{'type':'string'}}}"
#define SYSTEM "{'role':'system','content':'rule #'}"

#define RESULT "{'role':'tool','tool_call_id':'c#','content':'x'}"
#define CALL "{'id':'c#','type':'function','function':{'name':'f','arguments':'{}'}}"
#define CALLS "'messages':[" USER ",{'role':'assistant','content':null,'tool_calls':["
#define TOOL "{'type':'function','function':{'name':'f#','parameters':" SCHEMA "}}"
#define OUTPUT "{'type':'function_call_output','call_id':'c#','output':'x'}"
#define ITEM_CALL "{'type':'function_call','call_id':'c#','name':'f','arguments':'{}'}"
#define BLOCK_RESULT "{'type':'tool_result','tool_use_id':'c#','content':'x'}"
#define BLOCK_CALL "{'type':'tool_use','id':'c#','name':'f','input':{}}"

static const form forms[] = {
    {"results", CHAT, BRIEF "'messages':[", RESULT, "", NULL, "]}", MANY},
    {"calls", CHAT, BRIEF CALLS, CALL, "", NULL, "]}]}", SOME},
    {"calls and results", CHAT, BRIEF CALLS, CALL, "]},", RESULT, "]}", SOME},
    {"systems first", CHAT, BRIEF "'messages':[", SYSTEM, "", NULL, "," USER "]}", SOME},
    {"systems in the middle", CHAT, BRIEF "'messages':[" USER ",", SYSTEM, "", NULL, "]}", SOME},
    {"parts", CHAT, BRIEF "'messages':[{'role':'user','content':[", "{'type':'text','text':'x'}",
     "", NULL, "]}]}", SOME},
    {"tools", CHAT, BRIEF "'messages':[" USER "],'tools':[", TOOL, "", NULL, "]}", SOME},
    {"stop strings", CHAT, BRIEF "'messages':[" USER "],'stop':[", "'s#'", "", NULL, "]}", SOME},
    {"biases", CHAT, BRIEF "'messages':[" USER "],'logit_bias':{", "'#':1", "", NULL, "}}", SOME},
    {"choices", CHAT, BRIEF "'messages':[" USER "],'choice':[", "'c#'", "", NULL, "]}", SOME},
    {"ids", COMPLETIONS, BRIEF "'prompt':[", "1", "", NULL, "]}", MANY},
    {"prompts", COMPLETIONS, BRIEF "'prompt':[", "'p#'", "", NULL, "]}", SOME},
    {"stop strings", COMPLETIONS, BRIEF "'prompt':'a','stop':[", "'s#'", "", NULL, "]}", SOME},
    {"results", RESPONSES, INPUT "'input':[", OUTPUT, "", NULL, "]}", MANY},
    {"calls and results", RESPONSES, INPUT "'input':[" USER ",", ITEM_CALL, ",", OUTPUT, "]}",
     SOME},
    {"systems", RESPONSES, INPUT "'input':[" USER ",", SYSTEM, "", NULL, "]}", SOME},
    {"parts", RESPONSES, INPUT "'input':[{'role':'user','content':[",
     "{'type':'input_text','text':'x'}", "", NULL, "]}]}", SOME},
    {"tools", RESPONSES, INPUT "'input':'a','tools':[",
     "{'type':'function','name':'f#','parameters':" SCHEMA "}", "", NULL, "]}", SOME},
    {"results", MESSAGES, BRIEF "'messages':[{'role':'user','content':[", BLOCK_RESULT, "", NULL,
     "]}]}", MANY},
    {"calls and results", MESSAGES, BRIEF "'messages':[" USER ",{'role':'assistant','content':[",
     BLOCK_CALL, "]},{'role':'user','content':[", BLOCK_RESULT, "]}]}", SOME},
    {"systems", MESSAGES, BRIEF "'messages':[" USER "],'system':[",
     "{'type':'text','text':'rule #'}", "", NULL, "]}", SOME},
    {"tools", MESSAGES, BRIEF "'messages':[" USER "],'tools':[",
     "{'name':'f#','input_schema':" SCHEMA "}", "", NULL, "]}", SOME},
    {"stop strings", MESSAGES, BRIEF "'messages':[" USER "],'stop_sequences':[", "'s#'", "", NULL,
     "]}", SOME},
    {"results", OLLAMA, FEW "'messages':[", "{'role':'tool','content':'x'}", "", NULL, "]}", MANY},
    {"calls and results", OLLAMA, FEW "'messages':[{'role':'assistant','tool_calls':[",
     "{'function':{'name':'f','arguments':{}}}", "]},", "{'role':'tool','content':'x'}", "]}",
     SOME},
    {"systems", OLLAMA, FEW "'messages':[" USER ",", SYSTEM, "", NULL, "]}", SOME},
    {"tools", OLLAMA, FEW "'messages':[" USER "],'tools':[", TOOL, "", NULL, "]}", SOME},
};

/* Limit for the largest body of many items, in seconds. */
static const double max_seconds = 0.5;

static serve_process server;

/* ---- bodies ---- */

typedef struct body {
    char *text;
    size_t len, cap;
} body;

static void put(body *b, const char *s, size_t number) {
    for (; *s; s++) {
        if (b->len + 32 > b->cap) {
            b->cap = 2 * b->cap + 4096;
            b->text = realloc(b->text, b->cap);
            assert_non_null(b->text);
        }
        if (*s == '#') b->len += (size_t)sprintf(b->text + b->len, "%zu", number);
        else b->text[b->len++] = *s == '\'' ? '"' : *s;
    }
    b->text[b->len] = '\0';
}

static char *body_of(const form *f, size_t n) {
    body b = {0};
    put(&b, f->head, 0);
    for (size_t i = 0; i < n; i++) {
        put(&b, i ? "," : "", 0);
        put(&b, f->item, i);
    }
    put(&b, f->middle, 0);
    for (size_t i = 0; f->second && i < n; i++) {
        put(&b, i ? "," : "", 0);
        put(&b, f->second, i);
    }
    put(&b, f->tail, 0);
    return b.text;
}

/* ---- time ---- */

static double server_seconds(void) {
    clockid_t clock;
    struct timespec t;
    assert_int_equal(clock_getcpuclockid(server.pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the server's processor time for a request, which may be rejected with an error. */
static double seconds_of(const form *f, const char *text) {
    const double begin = server_seconds();
    serve_reply r = serve_fetch(&server, f->line, "", text);
    const double s = server_seconds() - begin;
    if (r.status != 200 && r.status != 400)
        fail_msg("%s, %s: %d %.200s", f->line, f->name, r.status, r.body);
    json_t *value = json_loads(r.body, 0, NULL);
    assert_true(r.status == 200 ? json_is_object(value) : json_object_get(value, "error") != NULL);
    json_decref(value);
    serve_reply_free(&r);
    return s;
}

/* Twice the size may take 2.3 times as long; 20 ms is the noise of a short request. */
static bool is_linear(const double *seconds) {
    for (size_t k = 0; k + 1 < N_SIZES; k++)
        if (seconds[k + 1] > 2.3 * seconds[k] + 0.02) return false;
    return true;
}

/* Other processes evict the caches of the processor. So one try with equal conditions for all sizes
 * must be linear, or the minimum of each size. */
static void check_form(const form *f) {
    double least[N_SIZES] = {0}, now[N_SIZES];
    char *texts[N_SIZES];
    bool ok = false;
    for (size_t k = 0; k < N_SIZES; k++) texts[k] = body_of(f, f->n << k);
    for (int i = 0; i < MAX_TRIES && !ok; i++) {
        for (size_t k = 0; k < N_SIZES; k++) {
            now[k] = seconds_of(f, texts[k]);
            if (i == 0 || now[k] < least[k]) least[k] = now[k];
        }
        ok = is_linear(now) || is_linear(least);
    }
    for (int i = 0;
         i < MAX_TRIES && f->n == MANY && least[N_SIZES - 1] >= max_seconds && !SANITIZED; i++) {
        const double s = seconds_of(f, texts[N_SIZES - 1]);
        if (s < least[N_SIZES - 1]) least[N_SIZES - 1] = s;
    }
    for (size_t k = 0; k < N_SIZES; k++) free(texts[k]);
    if (!ok || (f->n == MANY && least[N_SIZES - 1] >= max_seconds && !SANITIZED)) {
        fail_msg("%s, %s: %.2f, %.2f and %.2f s", f->line, f->name, least[0], least[1], least[2]);
    }
}

static void check_protocol(const char *line) {
    size_t n = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].line, line) != 0) continue;
        check_form(&forms[i]);
        n++;
    }
    assert_true(n > 0);
}

static void chat_takes_linear_time(void **state) {
    (void)state;
    check_protocol(CHAT);
}

static void completion_takes_linear_time(void **state) {
    (void)state;
    check_protocol(COMPLETIONS);
}

static void response_takes_linear_time(void **state) {
    (void)state;
    check_protocol(RESPONSES);
}

static void message_takes_linear_time(void **state) {
    (void)state;
    check_protocol(MESSAGES);
}

static void ollama_chat_takes_linear_time(void **state) {
    (void)state;
    check_protocol(OLLAMA);
}

/* Returns the processor time of the server's first thread, which runs the event loop, or -1 if the
 * system does not report it. */
static double loop_seconds(void) {
    char path[64];
    unsigned long long ns = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/schedstat", (long)server.pid, (long)server.pid);
    FILE *f = fopen(path, "r");
    const bool is_read = f && fscanf(f, "%llu", &ns) == 1;
    if (f) fclose(f);
    return is_read ? (double)ns * 1e-9 : -1;
}

/* Other clients wait while the event loop works, so other threads parse and free a large request.
 */
static void event_loop_uses_a_small_share_of_large_requests(void **state) {
    (void)state;
    static const double max_share = 0.05;
    const form *results = &forms[0];
    double least = 1;
    if (loop_seconds() < 0) skip();
    char *text = body_of(results, 8 * MANY);
    for (int i = 0; i < MAX_TRIES && least > max_share; i++) {
        const double begin = loop_seconds(), all = seconds_of(results, text);
        /* The event loop answers this request when it has done all work on the first one. */
        serve_reply r = serve_fetch(&server, "GET /health", "", NULL);
        serve_reply_free(&r);
        const double share = (loop_seconds() - begin) / all;
        if (share < least) least = share;
    }
    free(text);
    if (least > max_share) fail_msg("the event loop took %.3f of the processor time", least);
}

static int start_server(void **state) {
    (void)state;
    SERVE_START(&server, "--chat-template", AG_SOURCE_DIR "/tests/cli/agent.jinja", "--ctx-size",
                "256", "-q"); /* all prompts exceed the context */
    return 0;
}

static int stop_server(void **state) {
    (void)state;
    return serve_stop(&server, SIGTERM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_takes_linear_time),
        cmocka_unit_test(completion_takes_linear_time),
        cmocka_unit_test(response_takes_linear_time),
        cmocka_unit_test(message_takes_linear_time),
        cmocka_unit_test(ollama_chat_takes_linear_time),
        cmocka_unit_test(event_loop_uses_a_small_share_of_large_requests),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
