/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/completions: texts that the model continues. */
#include "../../support/json_out.h"
#include "../protocol/fields.h"
#include "openai.h"
#include "openai_answer.h"
#include "openai_fields.h"

#include <math.h>
#include <stdio.h>

/* ---- the request ---- */

static bool read_n_logprobs(const json_t *body, serve_request *r, serve_error *e) {
    int64_t n = -1;
    const json_t *given = field_get(body, "logprobs");
    if (json_is_boolean(given)) n = json_is_true(given) ? 0 : -1;
    else if (!field_integer(body, "logprobs", 0, 20, &n, e)) return false;
    r->logprobs = n >= 0;
    r->n_top = n > 0 ? (uint32_t)n : 0;
    return true;
}

static bool parse_completion(const json_t *body, serve_request *r, serve_error *e) {
    int64_t best_of = 0;
    r->kind = SERVE_TEXT;
    r->max_tokens = 16; /* OpenAI's default */
    r->parse_special = true;
    if (!openai_read_common(body, r, e) || !openai_read_prompts(body, "prompt", r, e) ||
        !field_bool(body, "echo", &r->echo, e) || !read_n_logprobs(body, r, e) ||
        !field_integer(body, "max_tokens", -1, INT32_MAX, &r->max_tokens, e) ||
        !field_integer(body, "best_of", 0, 64, &best_of, e) ||
        !field_suffix(body, "suffix", r, e) || !openai_read_format(body, r, e))
        return false;
    if (best_of > (int64_t)r->n)
        return reject_field(e, "best_of", "a value above n is not supported");
    return true;
}

/* ---- the reply ---- */

static const openai_object_names text_names = {"cmpl-", "text_completion", "text_completion"};

/* Returns the prompt, with which an answer begins if the client set echo; NULL: none. */
static json_t *echoed_prompt(const serve_job_view *view, size_t answer) {
    return json_array_get(view->echoes, answer / view->request->n);
}

static json_t *text_field(const serve_job_view *view, size_t answer) {
    const serve_answer *a = &view->answers[answer];
    const json_t *prompt = echoed_prompt(view, answer);
    if (!prompt) return json_text(a->content.data, a->content.len);
    return json_sprintf("%s%s", json_string_value(prompt), a->content.data);
}

/* Adds a log probability under the token's text, or under "token_id:ID" if another token has that
 * text: characters that are incomplete look alike. */
static void add_top(json_t *map, const serve_token *t) {
    char name[32];
    snprintf(name, sizeof name, "token_id:%d", (int)t->id);
    const char *key = json_object_get(map, t->text) ? name : t->text;
    json_object_set_new(map, key, json_float(t->logprob));
}

/* Returns the token and the likeliest others, with the same number as in token_logprobs. */
static json_t *top_map(const serve_token *t) {
    if (isnan(t->logprob)) return json_null();
    json_t *map = json_object();
    if (map) add_top(map, t);
    for (size_t i = 0; map && i < t->n_top; i++)
        if (t->top[i].id != t->id) add_top(map, &t->top[i]);
    return map;
}

/* with_top: adds the likeliest tokens. Otherwise top_logprobs is null as a whole, as strict clients
 * require. */
static json_t *logprobs_lists(const serve_token *tokens, size_t n, bool with_top) {
    json_t *texts = json_array(), *probs = json_array(), *offsets = json_array(),
           *tops = with_top ? json_array() : json_null();
    for (size_t i = 0; i < n; i++) {
        if (texts) json_append(&texts, json_text(tokens[i].text, tokens[i].len));
        if (probs) json_append(&probs, json_float(tokens[i].logprob));
        if (with_top && tops) json_append(&tops, top_map(&tokens[i]));
        if (offsets) json_append(&offsets, json_integer(tokens[i].offset));
    }
    return JSON_OBJECT({"tokens", texts}, {"token_logprobs", probs}, {"top_logprobs", tops},
                       {"text_offset", offsets});
}

/* text and finish are transferred. */
static json_t *completion_choice(const serve_job_view *view, size_t answer, json_t *text,
                                 const serve_token *tokens, size_t n_tokens, json_t *finish) {
    const bool has_logprobs = view->request->logprobs && n_tokens;
    return JSON_OBJECT({"index", json_integer(answer)}, {"text", text},
                       {"logprobs", has_logprobs
                                        ? logprobs_lists(tokens, n_tokens, view->request->n_top > 0)
                                        : json_null()},
                       {"finish_reason", finish});
}

static json_t *completion_reply(serve_job_view *view) {
    json_t *choices = json_array();
    for (size_t i = 0; choices && i < view->n_answers; i++) {
        const serve_answer *a = &view->answers[i];
        json_append(&choices,
                    completion_choice(view, i, text_field(view, i), a->tokens, a->n_tokens,
                                      json_string(serve_finish_reason(a->finish))));
    }
    return openai_reply(view, &text_names, choices);
}

static void write_chunk(serve_job_view *view, const serve_event *e, json_t *text, json_t *finish) {
    openai_write_choice(view, &text_names,
                        completion_choice(view, e->answer, text, e->tokens, e->n_tokens, finish));
}

static void stream_completion(serve_job_view *view, const serve_event *e) {
    const size_t n = view->request->n;
    switch (e->kind) {
    case SERVE_BEGIN:
        /* With logprobs the echo is content that comes with its tokens. */
        for (size_t i = 0; !view->request->logprobs && i < json_array_size(view->echoes) * n; i++)
            write_chunk(view, &(serve_event){.answer = i}, json_incref(echoed_prompt(view, i)),
                        json_null());
        break;
    case SERVE_CONTENT:
        write_chunk(view, e, json_text(e->text, e->len), json_null());
        break;
    case SERVE_ANSWERED:
        write_chunk(view, e, json_string(""),
                    json_string(serve_finish_reason(view->answers[e->answer].finish)));
        break;
    case SERVE_END:
    case SERVE_FAILED:
    case SERVE_IDLE:
        openai_write_end(view, &text_names, e);
        break;
    case SERVE_REASONING:
    case SERVE_CALL:
    case SERVE_ARGUMENTS:
        break; /* only chats have these */
    }
}

const serve_protocol openai_completions = {
    .name = "openai-completions",
    .parse = parse_completion,
    .error = openai_error,
    .reply = completion_reply,
    .stream_type = "text/event-stream",
    .event = stream_completion,
};
