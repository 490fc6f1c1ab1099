/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a streamed response. Events are numbered. An item is added, filled and completed before
 * the next one begins. */
#include "../../support/json_out.h"
#include "responses.h"

#include <string.h>

#define COUNT(fields) (sizeof(fields) / sizeof(fields)[0])

/* Sends an event with its type, its number and the fields, whose values are transferred. */
static void send_event(serve_job_view *view, const char *type, const json_field *fields, size_t n) {
    responses_stream *s = view->state;
    json_t *event =
        JSON_OBJECT({"type", json_string(type)}, {"sequence_number", json_integer(s->sequence)});
    s->sequence++;
    serve_write_sse(view, type, json_add_fields(event, fields, n));
}

static void send_response(serve_job_view *view, const char *type, json_t *response) {
    const json_field fields[] = {{"response", response}};
    send_event(view, type, fields, COUNT(fields));
}

static void send_item(serve_job_view *view, const char *type, json_t *item) {
    const responses_stream *s = view->state;
    const json_field fields[] = {
        {"output_index", json_integer(s->index)},
        {"item", item},
    };
    send_event(view, type, fields, COUNT(fields));
}

/* Sends an event about the open item, with one or two fields. A text or reasoning item has one
 * part, whose index is added. */
static void send_item_event(serve_job_view *view, const char *type, json_field first,
                            json_field second) {
    static const char *const prefixes[] = {"", "msg", "rs", "fc"};
    const responses_stream *s = view->state;
    char id[56];
    responses_item_id(id, prefixes[s->open], view, s->index);
    json_field fields[5] = {
        {"item_id", json_string(id)},
        {"output_index", json_integer(s->index)},
        first,
    };
    size_t n = 3;
    if (second.key) fields[n++] = second;
    if (s->open != RESPONSES_CALL) fields[n++] = (json_field){"content_index", json_integer(0)};
    send_event(view, type, fields, n);
}

static const json_field no_field = {NULL, NULL};

/* Completes the item: sends it, and keeps it for the response. */
static void send_item_done(serve_job_view *view, json_t *item) {
    responses_stream *s = view->state;
    if (!s->output) s->output = json_array();
    json_append(&s->output, json_incref(item));
    send_item(view, "response.output_item.done", item);
    s->open = RESPONSES_NONE;
    s->index++;
}

static void close_text(serve_job_view *view) {
    responses_stream *s = view->state;
    const serve_answer *a = view->answers;
    const char *text = a->content.data ? a->content.data + s->from : "";
    size_t len = a->content.len - s->from;
    json_t *logprobs =
        responses_logprobs(view, a->tokens ? a->tokens + s->first_token : NULL, s->n_tokens);
    json_t *part = responses_text_part(text, len, logprobs);
    send_item_event(view, "response.output_text.done", (json_field){"text", json_text(text, len)},
                    (json_field){"logprobs", json_incref(logprobs)});
    send_item_event(view, "response.content_part.done", (json_field){"part", json_incref(part)},
                    no_field);
    const char *status = view->answers->finish ? responses_status(view) : "completed";
    send_item_done(view, responses_message(view, s->index, json_list_of(part), status));
}

static void close_reasoning(serve_job_view *view) {
    responses_stream *s = view->state;
    const char *text = view->answers->reasoning.data + s->from;
    size_t len = view->answers->reasoning.len - s->from;
    send_item_event(view, "response.reasoning_text.done",
                    (json_field){"text", json_text(text, len)}, no_field);
    send_item_done(view, responses_reasoning(view, s->index,
                                             json_list_of(responses_reasoning_part(text, len))));
}

static void close_call(serve_job_view *view) {
    responses_stream *s = view->state;
    const serve_tool_call *c = &view->answers->calls[s->call];
    send_item_event(view, "response.function_call_arguments.done",
                    (json_field){"arguments", json_text(c->arguments.data, c->arguments.len)},
                    (json_field){"name", json_string(c->name)});
    const char *status = view->answers->finish ? responses_status(view) : "completed";
    send_item_done(view, responses_call(view, s->index, c, status));
}

static void close_item(serve_job_view *view) {
    const responses_stream *s = view->state;
    switch (s->open) {
    case RESPONSES_TEXT:
        close_text(view);
        break;
    case RESPONSES_REASONING:
        close_reasoning(view);
        break;
    case RESPONSES_CALL:
        close_call(view);
        break;
    case RESPONSES_NONE:
        break;
    }
}

/* Opens a text item. The answer's text already includes the `len` bytes of the current event. */
static void open_text(serve_job_view *view, size_t len, size_t n_tokens) {
    responses_stream *s = view->state;
    close_item(view);
    s->open = RESPONSES_TEXT;
    s->from = view->answers->content.len - len;
    s->first_token = view->answers->n_tokens - n_tokens;
    s->n_tokens = 0;
    send_item(view, "response.output_item.added",
              responses_message(view, s->index, json_array(), "in_progress"));
    send_item_event(view, "response.content_part.added",
                    (json_field){"part", responses_text_part("", 0, json_array())}, no_field);
}

static void write_text(serve_job_view *view, const serve_event *e) {
    responses_stream *s = view->state;
    if (s->open != RESPONSES_TEXT) open_text(view, e->len, e->n_tokens);
    s->n_tokens += e->n_tokens;
    send_item_event(view, "response.output_text.delta",
                    (json_field){"delta", json_text(e->text, e->len)},
                    (json_field){"logprobs", responses_logprobs(view, e->tokens, e->n_tokens)});
}

static void write_reasoning(serve_job_view *view, const serve_event *e) {
    responses_stream *s = view->state;
    if (s->open != RESPONSES_REASONING) {
        close_item(view);
        s->open = RESPONSES_REASONING;
        s->from = view->answers->reasoning.len - e->len;
        send_item(view, "response.output_item.added",
                  responses_reasoning(view, s->index, json_array()));
    }
    send_item_event(view, "response.reasoning_text.delta",
                    (json_field){"delta", json_text(e->text, e->len)}, no_field);
}

static void write_call(serve_job_view *view, const serve_event *e) {
    responses_stream *s = view->state;
    close_item(view);
    s->open = RESPONSES_CALL;
    s->call = e->call;
    serve_tool_call opened = view->answers->calls[e->call];
    opened.arguments = (ag_text){0};
    send_item(view, "response.output_item.added",
              responses_call(view, s->index, &opened, "in_progress"));
}

static void write_arguments(serve_job_view *view, const serve_event *e) {
    send_item_event(view, "response.function_call_arguments.delta",
                    (json_field){"delta", json_text(e->text, e->len)}, no_field);
}

static void write_end(serve_job_view *view) {
    const responses_stream *s = view->state;
    const char *status = responses_status(view);
    json_t *response = responses_object(view, status, json_incref(s->output), NULL);
    responses_store(view, response);
    send_response(view,
                  strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete",
                  response);
}

static void write_failure(serve_job_view *view, const serve_error *error) {
    const responses_stream *s = view->state;
    send_response(view, "response.failed",
                  responses_object(
                      view, "failed", json_incref(s->output),
                      JSON_OBJECT({"code", json_string(error->status == 429 ? "rate_limit_exceeded"
                                                                            : "server_error")},
                                  {"message", json_text(error->text, strlen(error->text))})));
}

void responses_event(serve_job_view *view, const serve_event *e) {
    responses_stream *s = view->state;
    switch (e->kind) {
    case SERVE_BEGIN:
        send_response(view, "response.created", responses_object(view, "in_progress", NULL, NULL));
        send_response(view, "response.in_progress",
                      responses_object(view, "in_progress", NULL, NULL));
        break;
    case SERVE_CONTENT:
        if (e->len || e->n_tokens) write_text(view, e);
        break;
    case SERVE_REASONING:
        if (e->len && !view->request->hide_reasoning) write_reasoning(view, e);
        break;
    case SERVE_CALL:
        write_call(view, e);
        break;
    case SERVE_ARGUMENTS:
        if (e->len) write_arguments(view, e);
        break;
    case SERVE_ANSWERED:
        if (s->open == RESPONSES_TEXT) s->n_tokens += e->n_tokens;
        /* A response has at least one item. */
        if (s->open == RESPONSES_NONE && !s->index) open_text(view, 0, 0);
        close_item(view);
        break;
    case SERVE_END:
        write_end(view);
        break;
    case SERVE_FAILED:
        write_failure(view, e->error);
        break;
    case SERVE_IDLE:
        serve_write(view, ": idle\n\n", 8);
        break;
    }
}

void responses_close(void *state) {
    responses_stream *s = state;
    json_decref(s->output);
}
