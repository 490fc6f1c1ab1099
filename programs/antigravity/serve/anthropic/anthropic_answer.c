/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of /v1/messages: a list of content blocks, in one body or as events. */
#include "../../support/json_out.h"
#include "anthropic.h"

#include <stdio.h>
#include <string.h>

static const char *anthropic_error_type(int status) {
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
        {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"},
        {504, "timeout_error"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status) return types[i].type;
    return status >= 500 ? "api_error" : "invalid_request_error";
}

json_t *anthropic_error(const serve_error *e) {
    return JSON_OBJECT({"type", json_string("error")},
                       {"error", JSON_OBJECT({"type", json_string(anthropic_error_type(e->status))},
                                             {"message", json_text(e->text, strlen(e->text))})});
}

static const char *stop_reason(serve_finish f) {
    static const char *const reasons[] = {
        [SERVE_FINISH_NONE] = "end_turn",
        [SERVE_FINISH_STOP] = "end_turn",
        [SERVE_FINISH_STOP_STRING] = "stop_sequence",
        [SERVE_FINISH_LENGTH] = "max_tokens",
        [SERVE_FINISH_CALLS] = "tool_use",
        [SERVE_FINISH_CANCELLED] = "pause_turn",
    };
    return reasons[f];
}

static json_t *stop_sequence(const serve_answer *a) {
    if (a->finish != SERVE_FINISH_STOP_STRING || !a->stop) return json_null();
    return json_text(a->stop, strlen(a->stop));
}

/* input_tokens excludes the cached tokens, which cache_read_input_tokens counts. */
static json_t *usage_object(const serve_job_view *view) {
    const json_field fields[] = {
        {"input_tokens", json_integer(view->n_prompt - view->n_cached)},
        {"cache_creation_input_tokens", json_integer(0)},
        {"cache_read_input_tokens", json_integer(view->n_cached)},
        {"cache_creation", json_null()},
        {"output_tokens", json_integer(view->n_generated)},
        {"output_tokens_details",
         JSON_OBJECT({"thinking_tokens", json_integer(view->n_reasoning)})},
        {"server_tool_use", json_null()},
        {"service_tier", json_string("standard")},
        {"inference_geo", json_null()},
    };
    return JSON_FIELDS(fields);
}

static json_t *text_block(const char *text, size_t len) {
    return JSON_OBJECT({"type", json_string("text")}, {"text", json_text(text, len)},
                       {"citations", json_null()});
}

static json_t *thinking_block(const char *text, size_t len) {
    return JSON_OBJECT({"type", json_string("thinking")}, {"thinking", json_text(text, len)},
                       {"signature", json_string("")});
}

/* input is transferred. */
static json_t *tool_block(const char *id, const char *name, json_t *input) {
    return JSON_OBJECT({"type", json_string("tool_use")}, {"id", json_string(id)},
                       {"name", json_string(name)}, {"input", input},
                       {"caller", JSON_OBJECT({"type", json_string("direct")})});
}

/* Returns the arguments of a call. If max_tokens truncated them, the result is an empty object. */
static json_t *tool_input(const serve_tool_call *c) {
    json_t *input =
        json_loadb(c->arguments.data ? c->arguments.data : "", c->arguments.len, 0, NULL);
    if (json_is_object(input)) return input;
    json_decref(input);
    return json_object();
}

static json_t *content_blocks(const serve_job_view *view) {
    const serve_answer *a = view->answers;
    json_t *blocks = json_array();
    if (a->reasoning.len && !view->request->hide_reasoning)
        json_append(&blocks, thinking_block(a->reasoning.data, a->reasoning.len));
    if (a->content.len || !a->n_calls)
        json_append(&blocks, text_block(a->content.data, a->content.len));
    for (size_t i = 0; i < a->n_calls; i++)
        json_append(&blocks,
                    tool_block(a->calls[i].id, a->calls[i].name, tool_input(&a->calls[i])));
    return blocks;
}

/* content is transferred. a: NULL at the start of an answer. */
static json_t *message_object(const serve_job_view *view, json_t *content, const serve_answer *a) {
    char id[40];
    snprintf(id, sizeof id, "msg_%s", view->id);
    const json_field fields[] = {
        {"id", json_string(id)},
        {"type", json_string("message")},
        {"role", json_string("assistant")},
        {"model", json_text(view->model, strlen(view->model))},
        {"content", content},
        {"stop_reason", a ? json_string(stop_reason(a->finish)) : json_null()},
        {"stop_sequence", a ? stop_sequence(a) : json_null()},
        {"stop_details", json_null()},
        {"container", json_null()},
        {"usage", usage_object(view)},
    };
    return JSON_FIELDS(fields);
}

json_t *anthropic_reply(serve_job_view *view) {
    return message_object(view, content_blocks(view), view->answers);
}

json_t *anthropic_count(serve_job_view *view) {
    return JSON_OBJECT({"input_tokens", json_integer(view->n_prompt)});
}

/* ---- events ---- */

/* Writes an event of that type with the index of the newest block and one field, unless key is
 * NULL. The value is transferred. */
static void write_block_event(serve_job_view *view, const char *type, const char *key,
                              json_t *value) {
    const anthropic_stream *s = view->state;
    json_t *event =
        JSON_OBJECT({"type", json_string(type)}, {"index", json_integer(s->n_blocks - 1)});
    serve_write_sse(view, type, key ? JSON_ADD(event, {key, value}) : event);
}

static void write_delta(serve_job_view *view, const char *type, const char *key, const char *text,
                        size_t len) {
    write_block_event(view, "content_block_delta", "delta",
                      JSON_OBJECT({"type", json_string(type)}, {key, json_text(text, len)}));
}

static void close_block(serve_job_view *view) {
    anthropic_stream *s = view->state;
    if (s->open == ANTHROPIC_NONE) return;
    if (s->open == ANTHROPIC_THINKING) write_delta(view, "signature_delta", "signature", "", 0);
    write_block_event(view, "content_block_stop", NULL, NULL);
    s->open = ANTHROPIC_NONE;
}

/* The block is transferred. */
static void open_block(serve_job_view *view, int kind, json_t *block) {
    anthropic_stream *s = view->state;
    close_block(view);
    s->n_blocks++;
    s->open = kind;
    write_block_event(view, "content_block_start", "content_block", block);
}

static void write_bare_event(serve_job_view *view, const char *type) {
    serve_write_sse(view, type, JSON_OBJECT({"type", json_string(type)}));
}

static void write_begin(serve_job_view *view) {
    serve_write_sse(view, "message_start",
                    JSON_OBJECT({"type", json_string("message_start")},
                                {"message", message_object(view, json_array(), NULL)}));
    write_bare_event(view, "ping");
}

static void write_end(serve_job_view *view) {
    serve_write_sse(
        view, "message_delta",
        JSON_OBJECT(
            {"type", json_string("message_delta")},
            {"delta", JSON_OBJECT({"stop_reason", json_string(stop_reason(view->answers->finish))},
                                  {"stop_sequence", stop_sequence(view->answers)},
                                  {"stop_details", json_null()}, {"container", json_null()})},
            {"usage", usage_object(view)}));
    write_bare_event(view, "message_stop");
}

void anthropic_event(serve_job_view *view, const serve_event *e) {
    anthropic_stream *s = view->state;
    switch (e->kind) {
    case SERVE_BEGIN:
        write_begin(view);
        break;
    case SERVE_CONTENT:
        if (!e->len) break;
        if (s->open != ANTHROPIC_TEXT) open_block(view, ANTHROPIC_TEXT, text_block("", 0));
        write_delta(view, "text_delta", "text", e->text, e->len);
        break;
    case SERVE_REASONING:
        if (!e->len || view->request->hide_reasoning) break;
        if (s->open != ANTHROPIC_THINKING)
            open_block(view, ANTHROPIC_THINKING, thinking_block("", 0));
        write_delta(view, "thinking_delta", "thinking", e->text, e->len);
        break;
    case SERVE_CALL:
        open_block(view, ANTHROPIC_TOOL, tool_block(e->id, e->name, json_object()));
        break;
    case SERVE_ARGUMENTS:
        if (e->len) write_delta(view, "input_json_delta", "partial_json", e->text, e->len);
        break;
    case SERVE_ANSWERED:
        /* A message has at least one block. */
        if (!s->n_blocks) open_block(view, ANTHROPIC_TEXT, text_block("", 0));
        close_block(view);
        break;
    case SERVE_END:
        write_end(view);
        break;
    case SERVE_FAILED:
        serve_write_sse(view, "error", anthropic_error(e->error));
        break;
    case SERVE_IDLE:
        write_bare_event(view, "ping");
        break;
    }
}
