/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of ollama's API: one object, or a line of JSON for each piece and a last one with
 * statistics. */
#include "../../support/json_out.h"
#include "../system.h"
#include "ollama.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

json_t *ollama_error(const serve_error *e) {
    return JSON_OBJECT({"error", json_text(e->text, strlen(e->text))});
}

void ollama_time(char text[static 32], double seconds) {
    system_format_time(text, 32, "%Y-%m-%dT%H:%M:%S", seconds);
    const size_t n = strlen(text);
    snprintf(text + n, 32 - n, ".%06dZ", (int)((seconds - floor(seconds)) * 1e6));
}

static json_t *time_now(void) {
    char text[32];
    ollama_time(text, system_wall_clock());
    return json_string(text);
}

static json_t *nanoseconds(double seconds) { return json_integer(seconds * 1e9); }

/* Returns {"model", "created_at", KEY: value, "done": false}. The value is transferred. */
static json_t *make_line(const serve_job_view *view, const char *key, json_t *value) {
    return JSON_OBJECT({"model", json_text(view->model, strlen(view->model))},
                       {"created_at", time_now()}, {key, value}, {"done", json_false()});
}

/* Adds the statistics that end an answer. The line is transferred. */
static json_t *with_statistics(const serve_job_view *view, json_t *line) {
    const char *reason = view->answers->finish == SERVE_FINISH_LENGTH ? "length" : "stop";
    return JSON_ADD(line, {"done", json_true()}, {"done_reason", json_string(reason)},
                    {"total_duration", nanoseconds(view->total_s)},
                    {"load_duration", nanoseconds(view->queue_s)},
                    {"prompt_eval_count", json_integer(view->n_prompt)},
                    {"prompt_eval_duration", nanoseconds(view->prefill_s)},
                    {"eval_count", json_integer(view->n_generated)},
                    {"eval_duration", nanoseconds(view->decode_s)});
}

static json_t *token_logprob(const serve_token *t, json_t *top) {
    json_t *object =
        JSON_OBJECT({"token", json_text(t->text, t->len)}, {"logprob", json_float(t->logprob)});
    return top ? JSON_ADD(object, {"top_logprobs", top}) : object;
}

/* Adds "logprobs" if there are tokens. The line is transferred. */
static json_t *with_logprobs(json_t *line, const serve_token *tokens, size_t n) {
    if (!n) return line;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *top = json_array();
        for (size_t k = 0; k < tokens[i].n_top; k++)
            json_append(&top, token_logprob(&tokens[i].top[k], NULL));
        json_append(&list, token_logprob(&tokens[i], top));
    }
    return JSON_ADD(line, {"logprobs", list});
}

/* Adds "thinking" unless it is empty. The object is transferred. */
static json_t *with_thinking(json_t *object, const char *text, size_t len) {
    return len ? JSON_ADD(object, {"thinking", json_text(text, len)}) : object;
}

/* Returns a message. Empty fields are left out, except the content. The calls are transferred. */
static json_t *chat_message(const char *content, size_t len, const char *thinking,
                            size_t n_thinking, json_t *calls) {
    json_t *message =
        JSON_OBJECT({"role", json_string("assistant")}, {"content", json_text(content, len)});
    message = with_thinking(message, thinking, n_thinking);
    return calls ? JSON_ADD(message, {"tool_calls", calls}) : message;
}

/* Returns the calls whose arguments are complete; NULL if there are none. */
static json_t *complete_calls(const serve_answer *a) {
    json_t *list = NULL;
    for (size_t i = 0; i < a->n_calls; i++) {
        const ag_text *text = &a->calls[i].arguments;
        json_t *arguments = json_loadb(text->data ? text->data : "", text->len, 0, NULL);
        if (!json_is_object(arguments)) {
            json_decref(arguments);
            continue;
        }
        if (!list) list = json_array();
        json_append(&list,
                    JSON_OBJECT({"function", JSON_OBJECT({"name", json_string(a->calls[i].name)},
                                                         {"arguments", arguments})}));
        if (!list) return NULL;
    }
    return list;
}

static size_t reasoning_length(const serve_job_view *view) {
    return view->request->hide_reasoning ? 0 : view->answers->reasoning.len;
}

/* Returns a line with a piece of an answer, in the form of /api/chat or /api/generate. */
static json_t *piece_line(const serve_job_view *view, bool is_chat, const char *text, size_t len,
                          const char *thinking, size_t n_thinking) {
    if (is_chat)
        return make_line(view, "message", chat_message(text, len, thinking, n_thinking, NULL));
    return with_thinking(make_line(view, "response", json_text(text, len)), thinking, n_thinking);
}

/* Returns the reply to a request that only loads or frees the model. */
static json_t *loaded_reply(const serve_job_view *view, const char *key, json_t *value) {
    const char *reason = view->request->keep_alive_s == 0 ? "unload" : "load";
    json_t *line = make_line(view, key, value);
    if (json_object_set_new(line, "done", json_true()) == 0 &&
        json_object_set_new(line, "done_reason", json_string(reason)) == 0)
        return line;
    json_decref(line);
    return NULL;
}

json_t *ollama_chat_reply(serve_job_view *view) {
    if (view->request->load_only)
        return loaded_reply(view, "message", chat_message("", 0, NULL, 0, NULL));
    const serve_answer *a = view->answers;
    json_t *message = chat_message(a->content.data, a->content.len, a->reasoning.data,
                                   reasoning_length(view), complete_calls(a));
    json_t *line = with_statistics(view, make_line(view, "message", message));
    return with_logprobs(line, a->tokens, a->n_tokens);
}

json_t *ollama_generate_reply(serve_job_view *view) {
    if (view->request->load_only) return loaded_reply(view, "response", json_string(""));
    const serve_answer *a = view->answers;
    json_t *line = piece_line(view, false, a->content.data, a->content.len, a->reasoning.data,
                              reasoning_length(view));
    return with_logprobs(with_statistics(view, line), a->tokens, a->n_tokens);
}

/* ---- lines of a stream ---- */

static void write_event(serve_job_view *view, const serve_event *e, bool is_chat) {
    json_t *calls;
    switch (e->kind) {
    case SERVE_CONTENT:
        if (!e->len && !e->n_tokens) break;
        serve_write_line(view, with_logprobs(piece_line(view, is_chat, e->text, e->len, NULL, 0),
                                             e->tokens, e->n_tokens));
        break;
    case SERVE_REASONING:
        if (!e->len || view->request->hide_reasoning) break;
        serve_write_line(view, piece_line(view, is_chat, "", 0, e->text, e->len));
        break;
    case SERVE_ANSWERED: /* calls are sent when they are complete */
        calls = is_chat ? complete_calls(view->answers) : NULL;
        if (calls)
            serve_write_line(view, make_line(view, "message", chat_message("", 0, NULL, 0, calls)));
        break;
    case SERVE_END:
        serve_write_line(view, with_statistics(view, piece_line(view, is_chat, "", 0, NULL, 0)));
        break;
    case SERVE_FAILED:
        serve_write_line(view, ollama_error(e->error));
        break;
    case SERVE_BEGIN:
    case SERVE_CALL:
    case SERVE_ARGUMENTS:
    case SERVE_IDLE: /* a line would count as a piece of the answer */
        break;
    }
}

void ollama_chat_event(serve_job_view *view, const serve_event *e) { write_event(view, e, true); }

void ollama_generate_event(serve_job_view *view, const serve_event *e) {
    write_event(view, e, false);
}

/* ---- embeddings ---- */

/* Returns the first n values of a vector, normalized to length 1 if n < n_full. */
static json_t *vector_list(const float *values, size_t n, size_t n_full) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)values[i] * values[i];
    double scale = n < n_full && sum > 0 ? 1 / sqrt(sum) : 1;
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        json_append(&list, json_float((float)(values[i] * scale)));
    return list;
}

json_t *ollama_embed_reply(serve_job_view *view) {
    size_t n = view->n_embedding;
    json_int_t dimensions =
        json_integer_value(json_object_get(view->request->writer_fields, "dimensions"));
    if (dimensions > 0 && (uint64_t)dimensions < n) n = (size_t)dimensions;
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(view->request->prompts); i++)
        json_append(&list, vector_list(view->embeddings[i], n, view->n_embedding));
    return JSON_OBJECT({"model", json_text(view->model, strlen(view->model))}, {"embeddings", list},
                       {"total_duration", nanoseconds(view->total_s)},
                       {"load_duration", nanoseconds(view->queue_s)},
                       {"prompt_eval_count", json_integer(view->n_prompt)});
}

json_t *ollama_embeddings_reply(serve_job_view *view) {
    return JSON_OBJECT(
        {"embedding", vector_list(view->embeddings[0], view->n_embedding, view->n_embedding)});
}
