/* SPDX-License-Identifier: Apache-2.0 */
#include "llama_completion.h"

#include "../../support/json_out.h"
#include "../openai/openai_answer.h"
#include "../request/routes.h"

#include <string.h>

static json_t *token_probability(const serve_token *t, json_t *top) {
    json_t *object =
        JSON_OBJECT({"id", json_integer(t->id)}, {"token", json_text(t->text, t->len)},
                    {"bytes", openai_token_bytes(t)}, {"logprob", json_float(t->logprob)});
    return top ? JSON_ADD(object, {"top_logprobs", top}) : object;
}

static json_t *token_probabilities(const serve_token *tokens, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        json_t *top = json_array();
        for (size_t k = 0; top && k < tokens[i].n_top; k++)
            json_append(&top, token_probability(&tokens[i].top[k], NULL));
        json_append(&list, token_probability(&tokens[i], top));
    }
    return list;
}

static json_t *token_ids(const serve_token *tokens, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) json_append(&list, json_integer(tokens[i].id));
    return list;
}

json_t *llama_sampling_object(const ag_sampler_params *s) {
    const json_field fields[] = {
        {"temperature", json_float(s->temperature)},
        {"top_k", json_integer(s->top_k)},
        {"top_p", json_float(s->top_p)},
        {"min_p", json_float(s->min_p)},
        {"typical_p", json_float(s->typical_p)},
        {"top_n_sigma", json_float(s->top_n_sigma)},
        {"xtc_probability", json_float(s->xtc_probability)},
        {"xtc_threshold", json_float(s->xtc_threshold)},
        {"dynatemp_range", json_float(s->dynamic_range)},
        {"dynatemp_exponent", json_float(s->dynamic_exponent)},
        {"dry_multiplier", json_float(s->dry_multiplier)},
        {"dry_base", json_float(s->dry_base)},
        {"dry_allowed_length", json_integer(s->dry_allowed_length)},
        {"dry_penalty_last_n", json_integer(s->dry_window)},
        {"repeat_penalty", json_float(s->repetition_penalty)},
        {"repeat_last_n", json_integer(s->repetition_window)},
        {"presence_penalty", json_float(s->presence_penalty)},
        {"frequency_penalty", json_float(s->frequency_penalty)},
    };
    return JSON_FIELDS(fields);
}

/* Returns the settings that apply to an answer, with the seed that repeats it alone. */
static json_t *settings_object(const serve_job_view *view, size_t answer) {
    const serve_request *r = view->request;
    const ag_sampler_params *s = view->sampling;
    return JSON_ADD(llama_sampling_object(s), {"n_predict", json_integer(r->max_tokens)},
                    {"seed", json_integer((json_int_t)(s->seed + answer % r->n))},
                    {"stop", r->stop ? json_incref(r->stop) : json_array()},
                    {"ignore_eos", json_boolean(r->ignore_eos)},
                    {"stream", json_boolean(r->stream)}, {"n_probs", json_integer(r->n_top)});
}

static json_t *rate(size_t n, double seconds) {
    return json_real(seconds > 0 ? (double)n / seconds : 0);
}

static json_t *timings_object(const serve_job_view *view) {
    const size_t n_read = view->n_prompt - view->n_cached;
    const json_field fields[] = {
        {"cache_n", json_integer(view->n_cached)},
        {"prompt_n", json_integer(n_read)},
        {"prompt_ms", json_real(view->prefill_s * 1e3)},
        {"prompt_per_second", rate(n_read, view->prefill_s)},
        {"predicted_n", json_integer(view->n_generated)},
        {"predicted_ms", json_real(view->decode_s * 1e3)},
        {"predicted_per_second", rate(view->n_generated, view->decode_s)},
    };
    return JSON_FIELDS(fields);
}

static const char *stop_type(serve_finish f) {
    static const char *const types[] = {
        [SERVE_FINISH_NONE] = "none",        [SERVE_FINISH_STOP] = "eos",
        [SERVE_FINISH_STOP_STRING] = "word", [SERVE_FINISH_LENGTH] = "limit",
        [SERVE_FINISH_CALLS] = "eos",        [SERVE_FINISH_CANCELLED] = "none",
    };
    return types[f];
}

/* Returns the last object of an answer. content is transferred. Only the first answer to a prompt
 * repeats its text. With several answers the timings are of all together, and are left out. */
static json_t *final_object(const serve_job_view *view, size_t answer, json_t *content) {
    const serve_request *r = view->request;
    const serve_answer *a = &view->answers[answer];
    const bool ids = json_is_true(json_object_get(r->writer_fields, "return_tokens")) && !r->stream;
    const json_field fields[] = {
        {"index", json_integer(answer)},
        {"content", content},
        {"tokens", token_ids(a->tokens, ids ? a->n_tokens : 0)},
        {"stop", json_true()},
        {"model", json_text(view->model, strlen(view->model))},
        {"tokens_predicted", json_integer(a->n_generated)},
        {"has_new_line", json_boolean(a->content.data && strchr(a->content.data, '\n'))},
        {"truncated", json_false()},
        {"stop_type", json_string(stop_type(a->finish))},
        {"stopping_word", json_string(a->stop ? a->stop : "")},
        {"generation_settings", settings_object(view, answer)},
    };
    json_t *object = JSON_FIELDS(fields);
    if (answer % r->n == 0)
        object =
            JSON_ADD(object, {"prompt", json_incref(json_array_get(r->prompts, answer / r->n))});
    if (r->n_top && !r->stream)
        object = JSON_ADD(
            object, {"completion_probabilities", token_probabilities(a->tokens, a->n_tokens)});
    if (view->n_answers > 1) return object;
    return JSON_ADD(object, {"tokens_evaluated", json_integer(view->n_prompt)},
                    {"tokens_cached", json_integer(view->n_cached)},
                    {"timings", timings_object(view)});
}

/* Returns an object with the fields in response_fields only; "a/b" names a nested field. The object
 * is transferred. */
static json_t *select_fields(const serve_job_view *view, json_t *object) {
    const json_t *names = json_object_get(view->request->writer_fields, "response_fields");
    if (!json_array_size(names) || !object) return object;
    json_t *chosen = json_object();
    for (size_t i = 0; chosen && i < json_array_size(names); i++) {
        const char *path = json_string_value(json_array_get(names, i));
        json_t *value = object;
        char key[64];
        for (const char *at = path; at && *at && value; at += *at == '/') {
            const size_t n = strcspn(at, "/");
            if (n >= sizeof key) {
                value = NULL; /* no field has such a long name */
                break;
            }
            memcpy(key, at, n);
            key[n] = '\0';
            value = json_object_get(value, key);
            at += n;
        }
        if (path && value && value != object) chosen = JSON_ADD(chosen, {path, json_incref(value)});
    }
    json_decref(object);
    return chosen;
}

static json_t *llama_reply(serve_job_view *view) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < view->n_answers; i++) {
        const ag_text *text = &view->answers[i].content;
        json_t *content = json_text(text->data, text->len);
        json_append(&list, select_fields(view, final_object(view, i, content)));
    }
    if (view->n_answers != 1 ||
        !json_is_true(json_object_get(view->request->writer_fields, "single")))
        return list;
    json_t *single = json_incref(json_array_get(list, 0));
    json_decref(list);
    return single;
}

static void write_piece(serve_job_view *view, const serve_event *e) {
    if (!e->len && !e->n_tokens) return;
    json_t *piece =
        JSON_OBJECT({"index", json_integer(e->answer)}, {"content", json_text(e->text, e->len)},
                    {"tokens", token_ids(e->tokens, e->n_tokens)}, {"stop", json_false()});
    if (view->request->n_top)
        piece = JSON_ADD(piece,
                         {"completion_probabilities", token_probabilities(e->tokens, e->n_tokens)});
    serve_write_sse(view, NULL, piece);
}

static void llama_event(serve_job_view *view, const serve_event *e) {
    switch (e->kind) {
    case SERVE_CONTENT:
        write_piece(view, e);
        break;
    case SERVE_ANSWERED:
        if (e->n_tokens) write_piece(view, e);
        if (view->n_answers > 1)
            serve_write_sse(view, NULL, final_object(view, e->answer, json_string("")));
        break;
    case SERVE_END: /* now the timings are known */
        if (view->n_answers == 1)
            serve_write_sse(view, NULL,
                            select_fields(view, final_object(view, 0, json_string(""))));
        break;
    case SERVE_FAILED:
        serve_write_sse(view, NULL, openai_error(e->error));
        break;
    case SERVE_IDLE:
        serve_write(view, ": idle\n\n", 8);
        break;
    case SERVE_BEGIN:
    case SERVE_REASONING:
    case SERVE_CALL:
    case SERVE_ARGUMENTS:
        break;
    }
}

static const serve_protocol llama_completion = {
    .name = "llama.cpp-completion",
    .parse = llama_parse_completion,
    .error = openai_error,
    .reply = llama_reply,
    .answer_bytes = 32 << 10, /* each answer repeats the settings */
    .stream_type = "text/event-stream",
    .event = llama_event,
};

static const serve_protocol llama_infill = {
    .name = "llama.cpp-infill",
    .parse = llama_parse_infill,
    .error = openai_error,
    .reply = llama_reply,
    .answer_bytes = 32 << 10, /* each answer repeats the settings */
    .stream_type = "text/event-stream",
    .event = llama_event,
};

const serve_route llama_routes[] = {
    {"POST", "/infill", .protocol = &llama_infill, .model_optional = true},
    {"POST", "/completion", .protocol = &llama_completion, .model_optional = true},
    {"POST", "/completions", .protocol = &llama_completion, .model_optional = true},
    {0},
};
