/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of POST /v1/chat/completions. */
#include "../../support/json_out.h"
#include "../protocol/messages.h"
#include "openai.h"
#include "openai_answer.h"

#include <string.h>

static const openai_object_names chat_names = {"chatcmpl-", "chat.completion",
                                               "chat.completion.chunk"};

static json_t *text_value(const ag_text *text) { return json_text(text->data, text->len); }

/* ---- probabilities ---- */

static json_t *logprobs_object(const serve_token *tokens, size_t n) {
    return JSON_OBJECT({"content", openai_token_list(tokens, n)}, {"refusal", json_null()});
}

/* ---- reply without stream ---- */

static json_t *message_object(const serve_answer *a) {
    const bool only_calls = a->n_calls && !a->content.len;
    json_t *message = JSON_OBJECT({"role", json_string("assistant")},
                                  {"content", only_calls ? json_null() : text_value(&a->content)},
                                  {"refusal", json_null()});
    if (a->reasoning.len)
        message = JSON_ADD(message, {"reasoning_content", text_value(&a->reasoning)});
    if (!a->n_calls) return message;
    json_t *calls = json_array();
    for (size_t i = 0; calls && i < a->n_calls; i++)
        json_append(&calls, message_tool_call(a->calls[i].id, a->calls[i].name,
                                              text_value(&a->calls[i].arguments)));
    return JSON_ADD(message, {"tool_calls", calls});
}

static json_t *choice_object(const serve_job_view *view, size_t i) {
    const serve_answer *a = &view->answers[i];
    return JSON_OBJECT({"index", json_integer(i)}, {"message", message_object(a)},
                       {"logprobs", view->request->logprobs
                                        ? logprobs_object(a->tokens, a->n_tokens)
                                        : json_null()},
                       {"finish_reason", json_string(serve_finish_reason(a->finish))});
}

static json_t *chat_reply(serve_job_view *view) {
    json_t *choices = json_array();
    for (size_t i = 0; choices && i < view->n_answers; i++)
        json_append(&choices, choice_object(view, i));
    return openai_reply(view, &chat_names, choices);
}

/* ---- stream ---- */

static void write_delta(serve_job_view *view, const serve_event *e, json_t *delta, json_t *finish) {
    const bool has_logprobs = view->request->logprobs && e->n_tokens;
    openai_write_choice(
        view, &chat_names,
        JSON_OBJECT(
            {"index", json_integer(e->answer)}, {"delta", delta},
            {"logprobs", has_logprobs ? logprobs_object(e->tokens, e->n_tokens) : json_null()},
            {"finish_reason", finish}));
}

static void write_field(serve_job_view *view, const serve_event *e, const char *name) {
    write_delta(view, e, JSON_OBJECT({name, json_text(e->text, e->len)}), json_null());
}

/* Writes a call: first its id and name, then pieces of its arguments. */
static void write_call(serve_job_view *view, const serve_event *e) {
    json_t *call = JSON_OBJECT({"index", json_integer(e->call)});
    if (e->kind == SERVE_CALL)
        call = JSON_ADD(call,
                        {"function", JSON_OBJECT({"name", json_text(e->name, strlen(e->name))},
                                                 {"arguments", json_string("")})},
                        {"id", json_string(e->id)}, {"type", json_string("function")});
    else
        call = JSON_ADD(call, {"function", JSON_OBJECT({"arguments", json_text(e->text, e->len)})});
    write_delta(view, e, JSON_OBJECT({"tool_calls", json_list_of(call)}), json_null());
}

static void begin_answers(serve_job_view *view) {
    for (size_t i = 0; i < view->n_answers; i++) {
        const serve_event e = {.kind = SERVE_BEGIN, .answer = i};
        write_delta(view, &e,
                    JSON_OBJECT({"role", json_string("assistant")}, {"content", json_string("")}),
                    json_null());
    }
}

static void stream_chat(serve_job_view *view, const serve_event *e) {
    switch (e->kind) {
    case SERVE_BEGIN:
        begin_answers(view);
        break;
    case SERVE_CONTENT:
        write_field(view, e, "content");
        break;
    case SERVE_REASONING:
        write_field(view, e, "reasoning_content");
        break;
    case SERVE_CALL:
    case SERVE_ARGUMENTS:
        write_call(view, e);
        break;
    case SERVE_ANSWERED:
        write_delta(view, e, json_object(),
                    json_string(serve_finish_reason(view->answers[e->answer].finish)));
        break;
    case SERVE_END:
    case SERVE_FAILED:
    case SERVE_IDLE:
        openai_write_end(view, &chat_names, e);
        break;
    }
}

static bool parse_count(const json_t *body, serve_request *r, serve_error *e) {
    r->count_only = true;
    return openai_chat_parse(body, r, e);
}

const serve_protocol openai_chat_count = {
    .name = "openai-chat-count",
    .parse = parse_count,
    .error = openai_error,
    .reply = openai_count,
};

const serve_protocol openai_chat = {
    .name = "openai-chat",
    .parse = openai_chat_parse,
    .error = openai_error,
    .reply = chat_reply,
    .stream_type = "text/event-stream",
    .event = stream_chat,
};
