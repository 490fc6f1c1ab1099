/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol_bench.h"

#include "../../programs/antigravity/command.h"
#include "../../programs/antigravity/serve/openai/response_store.h"
#include "../../programs/antigravity/serve/threads/account.h"
#include "../../programs/antigravity/terminal/output.h"

#include <antigravity/serving.h>
#include <stdlib.h>
#include <string.h>

/* ---- stubs of the server ---- */

struct serve_http_request {
    int unused;
};

static json_t *written; /* the stream so far */

static void write_pair(json_t *name, json_t *data) {
    json_t *pair = json_array();
    assert_non_null(data);
    json_array_append_new(pair, name);
    json_array_append_new(pair, data);
    json_array_append_new(written, pair);
}

void serve_write_sse(serve_job_view *view, const char *name, json_t *value) {
    (void)view;
    write_pair(name ? json_string(name) : json_null(), value);
}

void serve_write_line(serve_job_view *view, json_t *value) {
    (void)view;
    write_pair(json_null(), value);
}

void serve_write(serve_job_view *view, const char *bytes, size_t n) {
    (void)view;
    write_pair(json_null(), json_stringn(bytes, n));
}

ag_serving *http_serving(const serve_http_request *http) {
    (void)http;
    return NULL;
}

ag_served_model *http_model(const serve_http_request *http, const char *name, serve_error *e) {
    (void)http;
    (void)name;
    reject_request(e, 404, "model", "there is none");
    return NULL;
}

const model_entry *http_model_entry(const serve_http_request *http, const char *name,
                                    serve_error *e) {
    http_model(http, name, e);
    return NULL;
}

model_list *http_models(const serve_http_request *http) {
    (void)http;
    return NULL;
}

const model_entry *model_list_next_shown(const model_list *l, const model_entry *e) {
    (void)l;
    (void)e;
    return NULL;
}

void model_list_digest(model_list *l, const model_entry *e, char digest[SHA256_HEX]) {
    (void)l;
    memcpy(digest, e->digest, SHA256_HEX);
}

const char *http_client(const serve_http_request *http) {
    (void)http;
    return "";
}

const char *http_path_tail(const serve_http_request *http) {
    (void)http;
    return "";
}

const char *http_query(const serve_http_request *http) {
    (void)http;
    return "";
}

/* One store for all tests. */
struct response_store *http_responses(const serve_http_request *http) {
    static response_store *store;
    (void)http;
    if (!store) store = response_store_create(BENCH_STORE_BYTES);
    return store;
}

const json_t *http_body(const serve_http_request *http) {
    (void)http;
    return NULL;
}

const char *http_scope(const serve_http_request *http) {
    (void)http;
    return "";
}

int64_t http_server_started(const serve_http_request *http) {
    (void)http;
    return 0;
}

void http_reply_json(serve_http_request *http, int status, json_t *value) {
    (void)http;
    (void)status;
    json_decref(value);
}

void http_reply_text(serve_http_request *http, int status, const char *type, const char *text,
                     size_t n) {
    (void)http;
    (void)status;
    (void)type;
    (void)text;
    (void)n;
}

void http_reply_error(serve_http_request *http, const serve_error *e) {
    (void)http;
    (void)e;
}

/* json_out.c calls these. */
int complain_no_memory(void) { return 1; }

bool output_write(const char *text, size_t len) {
    (void)text;
    (void)len;
    return true;
}

/* ---- bodies ---- */

const serve_protocol *protocol_at(const serve_route *list, const char *path) {
    for (; list->path; list++)
        if (strcmp(list->path, path) == 0 && list->protocol) return list->protocol;
    fail_msg("no protocol at %s", path);
    return NULL;
}

json_t *json_of(const char *text) {
    char *copy = strdup(text);
    json_error_t where;
    assert_non_null(copy);
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    json_t *value = json_loads(copy, JSON_DECODE_ANY, &where);
    if (!value) fail_msg("%s: %s", copy, where.text);
    free(copy);
    return value;
}

parsed_body *parse_body(const serve_protocol *p, const char *body) {
    parsed_body *parsed = calloc(1, sizeof *parsed);
    json_t *value = json_of(body);
    static struct serve_http_request http;
    assert_non_null(parsed);
    serve_request_init(&parsed->request);
    parsed->request.http = &http;
    if (!p->parse(value, &parsed->request, &parsed->error))
        assert_true(parsed->error.status >= 400);
    else assert_int_equal(parsed->error.status, 0);
    json_decref(value); /* the request must not need the body any longer */
    return parsed;
}

void parsed_free(parsed_body *parsed) {
    serve_request_free(&parsed->request);
    free(parsed);
}

void assert_messages(const serve_protocol *p, const char *body, const char *expected) {
    parsed_body *parsed = parse_body(p, body);
    if (parsed->error.status) fail_msg("%s", parsed->error.text);
    assert_json(parsed->request.messages, expected);
    parsed_free(parsed);
}

void assert_body_refused(const serve_protocol *p, const char *body, int status, const char *part) {
    parsed_body *parsed = parse_body(p, body);
    if (parsed->error.status != status) fail_msg("%s: %d", body, parsed->error.status);
    assert_says(parsed->error.text, part);
    parsed_free(parsed);
}

void assert_json(const json_t *value, const char *expected) {
    json_t *wanted = json_of(expected);
    if (!json_equal(value, wanted)) {
        char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        fail_msg("%s in place of %s", found ? found : "nothing", expected);
    }
    json_decref(wanted);
}

void assert_at(const json_t *value, const char *path, const char *expected) {
    const json_t *found = json_find(value, path);
    if (!found) {
        char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        fail_msg("no %s in %s", path, all ? all : "nothing");
    }
    assert_json(found, expected);
}

/* ---- answers ---- */

static void append_to(ag_text *text, const char *more) {
    size_t n = strlen(more);
    text->data = account_realloc(text->data, text->len + n + 1);
    assert_non_null(text->data);
    memcpy(text->data + text->len, more, n + 1);
    text->len += n;
}

/* Appends to the answer as the server does, and returns the event that it would send. */
static serve_event take_step(serve_job_view *view, const answer_step *step,
                             const serve_error *error) {
    serve_answer *a = view->answers;
    serve_event e = {.kind = step->kind, .text = "", .call = a->n_calls ? a->n_calls - 1 : 0};
    if (step->kind == SERVE_CALL) {
        a->calls = account_realloc(a->calls, (a->n_calls + 1) * sizeof *a->calls);
        assert_non_null(a->calls);
        a->calls[a->n_calls] =
            (serve_tool_call){.id = account_strdup("call_1"), .name = account_strdup(step->text)};
        e.call = a->n_calls++;
        e.id = a->calls[e.call].id;
        e.name = a->calls[e.call].name;
        return e;
    }
    if (step->text) {
        e.text = step->text;
        e.len = strlen(step->text);
        append_to(step->kind == SERVE_CONTENT     ? &a->content
                  : step->kind == SERVE_REASONING ? &a->reasoning
                                                  : &a->calls[e.call].arguments,
                  step->text);
    }
    if (step->kind == SERVE_ANSWERED) {
        a->finish = step->finish;
        a->stop = step->stop;
        a->n_generated = view->n_generated = 3;
    }
    if (step->kind == SERVE_FAILED) e.error = error;
    return e;
}

static void free_answer(serve_answer *a) {
    for (size_t i = 0; i < a->n_calls; i++) {
        account_free(a->calls[i].id);
        account_free(a->calls[i].name);
        account_free(a->calls[i].arguments.data);
    }
    account_free(a->calls);
    account_free(a->content.data);
    account_free(a->reasoning.data);
}

json_t *answer_body(const serve_protocol *p, const char *body, const answer_step *steps, size_t n) {
    parsed_body *parsed = parse_body(p, body);
    assert_int_equal(parsed->error.status, 0);
    serve_answer answer = {0};
    serve_error error;
    reject_request(&error, 503, NULL, "the limit of memory");
    serve_job_view view = {
        .request = &parsed->request,
        .model = "m",
        .id = "0123456789abcdef0123456789abcdef",
        .created = 1700000000,
        .answers = &answer,
        .n_answers = 1,
        .n_prompt = 9,
        .n_cached = 4,
        .state = calloc(1, p->state_size + 1),
    };
    written = json_array();
    for (size_t i = 0; i < n; i++) {
        serve_event e = take_step(&view, &steps[i], &error);
        if (parsed->request.stream) p->event(&view, &e);
    }
    json_t *result = parsed->request.stream ? json_incref(written) : p->reply(&view);
    json_decref(written);
    if (p->close) p->close(view.state);
    free(view.state);
    free_answer(&answer);
    parsed_free(parsed);
    assert_non_null(result);
    return result;
}
