/* SPDX-License-Identifier: Apache-2.0 */
/* What POST /v1/chat/completions answers. */
#include "openai.h"

#include "../json_out.h"
#include "openai_fields.h"

#include <string.h>

static json_t *text_of(const ag_text *text) { return json_text(text->data, text->len); }

/* ---- probabilities ---- */

static json_t *bytes_of(const serve_token *t) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < t->len; i++)
        json_append(&list, json_integer((unsigned char)t->text[i]));
    return list;
}

static json_t *token_of(const serve_token *t, bool with_top) {
    json_t *top = with_top ? json_array() : NULL;
    for (size_t i = 0; top && i < t->n_top; i++) json_append(&top, token_of(&t->top[i], false));
    const json_field fields[] = {
        {"token", json_text(t->text, t->len)},
        {"logprob", json_float(t->logprob)},
        {"bytes", bytes_of(t)},
        {"top_logprobs", top},
    };
    return json_object_of(fields, with_top ? 4 : 3);
}

static json_t *logprobs_of(const serve_token *tokens, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) json_append(&list, token_of(&tokens[i], true));
    const json_field fields[] = {{"content", list}, {"refusal", json_null()}};
    return json_object_of(fields, 2);
}

/* ---- one body ---- */

static json_t *call_of(const serve_called *c) {
    const json_field function[] = {
        {"name", json_text(c->name, strlen(c->name))},
        {"arguments", text_of(&c->arguments)},
    };
    const json_field fields[] = {
        {"id", json_string(c->id)},
        {"type", json_string("function")},
        {"function", json_object_of(function, 2)},
    };
    return json_object_of(fields, 3);
}

/* The value is transferred. False: out of memory. */
static bool set_field(json_t *object, const char *name, json_t *value) {
    return json_object_set_new(object, name, value) == 0;
}

static json_t *message_of(const serve_answer *a) {
    const bool only_calls = a->n_calls && !a->content.len;
    const json_field fields[] = {
        {"role", json_string("assistant")},
        {"content", only_calls ? json_null() : text_of(&a->content)},
        {"refusal", json_null()},
    };
    json_t *message = json_object_of(fields, 3), *calls = json_array();
    for (size_t i = 0; calls && i < a->n_calls; i++) json_append(&calls, call_of(&a->calls[i]));
    bool ok = message && calls;
    if (ok && a->reasoning.len)
        ok = set_field(message, "reasoning_content", text_of(&a->reasoning));
    if (ok && a->n_calls) ok = set_field(message, "tool_calls", json_incref(calls));
    json_decref(calls);
    if (ok) return message;
    json_decref(message);
    return NULL;
}

static json_t *choice_of(const serve_exchange *x, size_t i) {
    const serve_answer *a = &x->answers[i];
    const json_field fields[] = {
        {"index", json_integer((json_int_t)i)},
        {"message", message_of(a)},
        {"logprobs", x->request->logprobs ? logprobs_of(a->tokens, a->n_tokens) : json_null()},
        {"finish_reason", json_string(serve_finish_reason(a->finish))},
    };
    return json_object_of(fields, 4);
}

static json_t *whole_chat(serve_exchange *x) {
    json_t *choices = json_array();
    for (size_t i = 0; choices && i < x->n_answers; i++) json_append(&choices, choice_of(x, i));
    const json_field fields[] = {
        {"id", openai_id(x, "chatcmpl-")},
        {"object", json_string("chat.completion")},
        {"created", json_integer((json_int_t)x->created)},
        {"model", json_text(x->model, strlen(x->model))},
        {"choices", choices},
        {"usage", openai_usage(x)},
        {"system_fingerprint", json_string("antigravity")},
    };
    return json_object_of(fields, sizeof fields / sizeof fields[0]);
}

/* ---- a stream ---- */

/* choices and usage are transferred; usage NULL: none. */
static void write_chunk(serve_exchange *x, json_t *choices, json_t *usage, bool with_usage) {
    const json_field fields[] = {
        {"id", openai_id(x, "chatcmpl-")},
        {"object", json_string("chat.completion.chunk")},
        {"created", json_integer((json_int_t)x->created)},
        {"model", json_text(x->model, strlen(x->model))},
        {"system_fingerprint", json_string("antigravity")},
        {"choices", choices},
        {"usage", usage},
    };
    serve_write_sse(x, NULL, json_object_of(fields, with_usage ? 7 : 6));
}

static void write_delta(serve_exchange *x, const serve_event *e, json_t *delta, json_t *finish) {
    const bool tells = x->request->logprobs && e->n_tokens;
    const json_field fields[] = {
        {"index", json_integer((json_int_t)e->answer)},
        {"delta", delta},
        {"logprobs", tells ? logprobs_of(e->tokens, e->n_tokens) : json_null()},
        {"finish_reason", finish},
    };
    json_t *choices = json_array();
    if (choices) json_append(&choices, json_object_of(fields, 4));
    const bool usage = x->request->include_usage;
    write_chunk(x, choices, usage ? json_null() : NULL, usage);
}

static void write_field(serve_exchange *x, const serve_event *e, const char *name) {
    const json_field fields[] = {{name, json_text(e->text, e->len)}};
    write_delta(x, e, json_object_of(fields, 1), json_null());
}

/* A call begins with its id and name; pieces of its arguments follow. */
static void write_call(serve_exchange *x, const serve_event *e) {
    const bool begins = e->kind == SERVE_CALL;
    const json_field arguments = {"arguments",
                                  begins ? json_string("") : json_text(e->text, e->len)};
    const json_field named[] = {
        {"name", begins ? json_text(e->name, strlen(e->name)) : NULL},
        arguments,
    };
    const json_field fields[] = {
        {"index", json_integer((json_int_t)e->call)},
        {"function", json_object_of(begins ? named : named + 1, begins ? 2 : 1)},
        {"id", begins ? json_string(e->id) : NULL},
        {"type", begins ? json_string("function") : NULL},
    };
    json_t *calls = json_array();
    if (calls) json_append(&calls, json_object_of(fields, begins ? 4 : 2));
    const json_field delta[] = {{"tool_calls", calls}};
    write_delta(x, e, json_object_of(delta, 1), json_null());
}

static void begin_answers(serve_exchange *x) {
    for (size_t i = 0; i < x->n_answers; i++) {
        const serve_event e = {.kind = SERVE_BEGIN, .answer = i};
        const json_field fields[] = {
            {"role", json_string("assistant")},
            {"content", json_string("")},
        };
        write_delta(x, &e, json_object_of(fields, 2), json_null());
    }
}

static void end_stream(serve_exchange *x) {
    static const char done[] = "data: [DONE]\n\n";
    if (x->request->include_usage) write_chunk(x, json_array(), openai_usage(x), true);
    serve_write(x, done, sizeof done - 1);
}

static void stream_chat(serve_exchange *x, const serve_event *e) {
    switch (e->kind) {
    case SERVE_BEGIN:
        begin_answers(x);
        break;
    case SERVE_CONTENT:
        write_field(x, e, "content");
        break;
    case SERVE_REASONING:
        write_field(x, e, "reasoning_content");
        break;
    case SERVE_CALL:
    case SERVE_ARGUMENTS:
        write_call(x, e);
        break;
    case SERVE_ANSWERED:
        write_delta(x, e, json_object(),
                    json_string(serve_finish_reason(x->answers[e->answer].finish)));
        break;
    case SERVE_END:
        end_stream(x);
        break;
    case SERVE_FAILED:
        serve_write_sse(x, NULL, openai_error(e->error));
        break;
    case SERVE_IDLE:
        serve_write(x, ": still reading\n\n", 17);
        break;
    }
}

static bool parse_count(const serve_call *call, const json_t *body, serve_request *r,
                        serve_error *e) {
    r->count_only = true;
    return openai_chat_parse(call, body, r, e);
}

const serve_protocol openai_chat_count = {
    .name = "openai-chat-count",
    .parse = parse_count,
    .error = openai_error,
    .whole = openai_count,
};

const serve_protocol openai_chat = {
    .name = "openai-chat",
    .parse = openai_chat_parse,
    .error = openai_error,
    .whole = whole_chat,
    .stream_type = "text/event-stream",
    .event = stream_chat,
};
