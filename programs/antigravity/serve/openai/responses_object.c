/* SPDX-License-Identifier: Apache-2.0 */
/* Response objects and the items of their output. */
#include "../../support/json_out.h"
#include "openai_answer.h"
#include "responses.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define COUNT(fields) (sizeof(fields) / sizeof(fields)[0])

void responses_item_id(char id[static 56], const char *prefix, const serve_job_view *view,
                       size_t index) {
    snprintf(id, 56, "%s_%s%zu", prefix, view->id, index);
}

json_t *responses_text_part(const char *text, size_t len, json_t *logprobs) {
    return JSON_OBJECT({"type", json_string("output_text")}, {"text", json_text(text, len)},
                       {"annotations", json_array()}, {"logprobs", logprobs});
}

json_t *responses_reasoning_part(const char *text, size_t len) {
    return JSON_OBJECT({"type", json_string("reasoning_text")}, {"text", json_text(text, len)});
}

json_t *responses_message(const serve_job_view *view, size_t index, json_t *content,
                          const char *status) {
    char id[56];
    responses_item_id(id, "msg", view, index);
    return JSON_OBJECT({"id", json_string(id)}, {"type", json_string("message")},
                       {"status", json_string(status)}, {"role", json_string("assistant")},
                       {"content", content});
}

json_t *responses_reasoning(const serve_job_view *view, size_t index, json_t *content) {
    char id[56];
    responses_item_id(id, "rs", view, index);
    return JSON_OBJECT({"id", json_string(id)}, {"type", json_string("reasoning")},
                       {"summary", json_array()}, {"content", content});
}

json_t *responses_call(const serve_job_view *view, size_t index, const serve_tool_call *c,
                       const char *status) {
    char id[56];
    responses_item_id(id, "fc", view, index);
    return JSON_OBJECT({"id", json_string(id)}, {"type", json_string("function_call")},
                       {"status", json_string(status)}, {"call_id", json_string(c->id)},
                       {"name", json_string(c->name)},
                       {"arguments", json_text(c->arguments.data, c->arguments.len)});
}

json_t *responses_logprobs(const serve_job_view *view, const serve_token *tokens, size_t n) {
    return view->request->logprobs ? openai_token_list(tokens, n) : json_array();
}

/* ---- the response ---- */

const char *responses_status(const serve_job_view *view) {
    serve_finish f = view->answers->finish;
    return f == SERVE_FINISH_LENGTH || f == SERVE_FINISH_CANCELLED ? "incomplete" : "completed";
}

static json_t *incomplete_details(const serve_job_view *view, const char *status) {
    if (strcmp(status, "incomplete") != 0) return json_null();
    if (view->answers->finish != SERVE_FINISH_LENGTH) return json_object();
    return JSON_OBJECT({"reason", json_string("max_output_tokens")});
}

static json_t *usage_object(const serve_job_view *view) {
    return JSON_OBJECT(
        {"input_tokens", json_integer(view->n_prompt)},
        {"input_tokens_details", JSON_OBJECT({"cached_tokens", json_integer(view->n_cached)},
                                             {"cache_write_tokens", json_integer(0)})},
        {"output_tokens", json_integer(view->n_generated)},
        {"output_tokens_details",
         JSON_OBJECT({"reasoning_tokens", json_integer(view->n_reasoning)})},
        {"total_tokens", json_integer(view->n_prompt + view->n_generated)});
}

/* Returns the client's value, or else `fallback`, which is transferred. */
static json_t *echo(const serve_job_view *view, const char *name, json_t *fallback) {
    json_t *sent = json_object_get(view->request->writer_fields, name);
    if (!sent) return fallback;
    json_decref(fallback);
    return json_incref(sent);
}

static json_t *number_or(double given, json_t *fallback) {
    if (isnan(given)) return fallback;
    json_decref(fallback);
    return json_real(given);
}

/* Returns a copy with all of the keys; missing ones are null. */
static json_t *with_keys(json_t *object, const char *const *keys, size_t n) {
    json_t *copy = json_copy(object);
    for (size_t i = 0; i < n; i++)
        if (!json_object_get(copy, keys[i])) copy = JSON_ADD(copy, {keys[i], json_null()});
    return copy;
}

static json_t *echo_tools(const serve_job_view *view) {
    static const char *const keys[] = {"description", "parameters", "strict"};
    const json_t *tools = json_object_get(view->request->writer_fields, "tools");
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(tools); i++)
        json_append(&list, with_keys(json_array_get(tools, i), keys, COUNT(keys)));
    return list;
}

static json_t *echo_reasoning(const serve_job_view *view) {
    static const char *const keys[] = {"effort", "summary"};
    json_t *sent = echo(view, "reasoning", json_object());
    json_t *full = with_keys(sent, keys, COUNT(keys));
    json_decref(sent);
    return full;
}

static json_t *echo_text(const serve_job_view *view) {
    json_t *sent = echo(view, "text", json_object());
    json_t *text = json_copy(sent);
    json_decref(sent);
    if (!text || json_object_get(text, "format")) return text;
    return JSON_ADD(text, {"format", JSON_OBJECT({"type", json_string("text")})});
}

json_t *responses_object(const serve_job_view *view, const char *status, json_t *output,
                         json_t *error) {
    const serve_request *r = view->request;
    bool is_over = strcmp(status, "in_progress") != 0;
    char id[48];
    snprintf(id, sizeof id, "resp_%s", view->id);
    const json_field fields[] = {
        {"id", json_string(id)},
        {"object", json_string("response")},
        {"created_at", json_integer(view->created)},
        {"completed_at", strcmp(status, "completed") == 0 ? json_integer(time(NULL)) : json_null()},
        {"status", json_string(status)},
        {"background", json_false()},
        {"error", error ? error : json_null()},
        {"incomplete_details", incomplete_details(view, status)},
        {"instructions", echo(view, "instructions", json_null())},
        {"max_output_tokens", r->max_tokens >= 0 ? json_integer(r->max_tokens) : json_null()},
        {"max_tool_calls", json_null()},
        {"model", json_text(view->model, strlen(view->model))},
        {"output", output ? output : json_array()},
        {"parallel_tool_calls", json_boolean(!r->one_call)},
        {"presence_penalty", json_integer(0)},
        {"frequency_penalty", json_integer(0)},
        {"previous_response_id", echo(view, "previous_response_id", json_null())},
        {"prompt_cache_key", echo(view, "prompt_cache_key", json_null())},
        {"reasoning", echo_reasoning(view)},
        {"safety_identifier", echo(view, "safety_identifier", json_null())},
        {"service_tier", json_string("default")},
        {"store", json_boolean(r->stored_text)},
        {"temperature",
         number_or(r->sampling.temperature, echo(view, "temperature", json_integer(1)))},
        {"text", echo_text(view)},
        {"tool_choice", echo(view, "tool_choice", json_string("auto"))},
        {"tools", echo_tools(view)},
        {"top_logprobs", json_integer(r->n_top)},
        {"top_p", number_or(r->sampling.top_p, echo(view, "top_p", json_integer(1)))},
        {"truncation", json_string("disabled")},
        {"usage", is_over ? usage_object(view) : json_null()},
        {"user", echo(view, "user", json_null())},
        {"metadata", echo(view, "metadata", json_object())},
    };
    return JSON_FIELDS(fields);
}

json_t *responses_reply(serve_job_view *view) {
    const serve_answer *a = view->answers;
    const char *status = responses_status(view);
    json_t *output = json_array();
    size_t index = 0;
    if (a->reasoning.len && !view->request->hide_reasoning)
        json_append(&output, responses_reasoning(view, index++,
                                                 json_list_of(responses_reasoning_part(
                                                     a->reasoning.data, a->reasoning.len))));
    if (a->content.len || !a->n_calls) {
        json_t *part = responses_text_part(a->content.data, a->content.len,
                                           responses_logprobs(view, a->tokens, a->n_tokens));
        json_append(&output, responses_message(view, index++, json_list_of(part), status));
    }
    for (size_t i = 0; i < a->n_calls; i++)
        json_append(&output, responses_call(view, index++, &a->calls[i], status));
    json_t *response = responses_object(view, status, output, NULL);
    responses_store(view, response);
    return response;
}
