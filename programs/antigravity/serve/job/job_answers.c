/* SPDX-License-Identifier: Apache-2.0 */
/* Turns sampled tokens into content, reasoning and tool calls. */
#include "../threads/account.h"
#include "../threads/account_text.h"
#include "job_impl.h"

#include <string.h>

/* ---- tokens with their probabilities ---- */

static bool make_token(const serve_job *job, serve_token *t, int32_t id, float logprob) {
    ag_text text = {0};
    ag_error err;
    const ag_tokenizer *tokenizer = ag_served_model_tokenizer(job->model);
    if (ag_tokenizer_decode(tokenizer, &id, 1, true, &text, &err) != AG_OK) text.len = 0;
    *t = (serve_token){.id = id, .logprob = logprob, .len = text.len};
    t->text = account_malloc(text.len + 1);
    if (t->text && text.len) memcpy(t->text, text.data, text.len);
    if (t->text) t->text[text.len] = '\0';
    ag_text_free(&text);
    return t->text != NULL;
}

static void free_token(serve_token *t) {
    for (size_t i = 0; i < t->n_top; i++) account_free(t->top[i].text);
    account_free(t->top);
    account_free(t->text);
}

/* Returns the number of UTF-8 characters that begin in the text. */
static size_t count_chars(const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* Sets the token's offset and counts the characters that it completes. shows_special: a special
 * token is in the text. */
static bool place_token(const serve_job *job, answer_reader *reader, serve_token *t,
                        bool shows_special) {
    ag_text text = {0};
    ag_error err;
    t->offset = reader->n_chars;
    if (!reader->decoder) return true;
    if (ag_tokenizer_is_special(ag_served_model_tokenizer(job->model), t->id)) {
        if (shows_special) reader->n_chars += count_chars(t->text, t->len);
        return true;
    }
    const ag_status st = ag_decoder_push(reader->decoder, t->id, &text, &err);
    reader->n_chars += count_chars(text.data, text.len);
    ag_text_free(&text);
    return st == AG_OK;
}

static bool add_token(serve_job *job, size_t answer, const ag_request_event *e,
                      bool shows_special) {
    serve_answer *a = &job->view.answers[answer];
    if ((a->n_tokens & (a->n_tokens - 1)) == 0) {
        const size_t cap = a->n_tokens ? 2 * a->n_tokens : 1;
        serve_token *grown = account_realloc(a->tokens, cap * sizeof *grown);
        if (!grown) return false;
        a->tokens = grown;
    }
    serve_token *t = &a->tokens[a->n_tokens];
    if (!make_token(job, t, e->id, e->logprob)) return false;
    a->n_tokens++;
    t->top = e->n_top ? account_calloc(e->n_top, sizeof *t->top) : NULL;
    if (e->n_top && !t->top) return false;
    for (; t->n_top < e->n_top; t->n_top++)
        if (!make_token(job, &t->top[t->n_top], e->top[t->n_top].id, e->top[t->n_top].logprob))
            return false;
    return place_token(job, &job->readers[answer], t, shows_special);
}

/* Adds the tokens that no event has carried yet. */
static void attach_tokens(answer_reader *reader, const serve_answer *a, serve_event *e) {
    e->tokens = a->tokens ? a->tokens + reader->n_reported : NULL;
    e->n_tokens = a->n_tokens - reader->n_reported;
    reader->n_reported = a->n_tokens;
}

/* ---- text ---- */

static bool add_call(serve_answer *a, const ag_chat_delta *d) {
    serve_tool_call *grown = account_realloc(a->calls, (a->n_calls + 1) * sizeof *grown);
    if (!grown) return false;
    a->calls = grown;
    serve_tool_call *call = &a->calls[a->n_calls++];
    *call = (serve_tool_call){.id = account_strdup(d->id ? d->id : ""),
                              .name = account_strdup(d->name)};
    return call->id && call->name && account_text_append(&call->arguments, "", 0);
}

static bool handle_delta(serve_job *job, size_t answer, const ag_chat_delta *d) {
    serve_answer *a = &job->view.answers[answer];
    answer_reader *reader = &job->readers[answer];
    serve_event e = {.answer = answer, .text = d->text, .len = d->len, .call = d->call};
    bool ok = true;
    if (reader->is_truncated) return true;
    switch (d->kind) {
    case AG_CHAT_DELTA_CONTENT:
        e.kind = SERVE_CONTENT;
        ok = account_text_append(&a->content, d->text, d->len);
        attach_tokens(reader, a, &e);
        break;
    case AG_CHAT_DELTA_REASONING:
        e.kind = SERVE_REASONING;
        if (job->request.hide_reasoning) return true;
        ok = account_text_append(&a->reasoning, d->text, d->len);
        break;
    case AG_CHAT_DELTA_CALL:
        e.kind = SERVE_CALL;
        e.id = d->id;
        e.name = d->name;
        reader->is_truncated = job->request.one_call && a->n_calls == 1;
        if (reader->is_truncated) return true;
        ok = add_call(a, d);
        break;
    case AG_CHAT_DELTA_ARGUMENTS:
        e.kind = SERVE_ARGUMENTS;
        ok = d->call < a->n_calls &&
             account_text_append(&a->calls[d->call].arguments, d->text, d->len);
        break;
    }
    if (ok) job_write_event(job, &e);
    return ok;
}

static bool handle_deltas(serve_job *job, size_t answer) {
    ag_chat_delta d;
    serve_answer *a = &job->view.answers[answer];
    bool reasoned = false;
    while (ag_chat_parser_next(job->readers[answer].parser, &d)) {
        reasoned = reasoned || d.kind == AG_CHAT_DELTA_REASONING;
        if (!handle_delta(job, answer, &d)) return false;
    }
    a->n_reasoning += reasoned;
    /* The probabilities of reasoning tokens are not reported. */
    while (reasoned && a->n_tokens > job->readers[answer].n_reported)
        free_token(&a->tokens[--a->n_tokens]);
    return true;
}

bool job_add_token(serve_job *job, size_t answer, const ag_request_event *e) {
    serve_answer *a = &job->view.answers[answer];
    answer_reader *reader = &job->readers[answer];
    if (reader->is_truncated) return true;
    if (e->id >= 0) {
        a->n_generated++;
        job->view.n_generated++;
    }
    if (job->request.logprobs && e->id >= 0 && !add_token(job, answer, e, false)) return false;
    if (!e->len) return true;
    if (!reader->parser) {
        const ag_chat_delta d = {.kind = AG_CHAT_DELTA_CONTENT, .text = e->text, .len = e->len};
        return handle_delta(job, answer, &d);
    }
    if (ag_chat_parser_push(reader->parser, e->text, e->len, &job->error) != AG_OK) return false;
    if (!handle_deltas(job, answer)) return false;
    if (reader->is_truncated && job->view.n_answers == 1) job_cancel(job);
    return true;
}

/* Stores the answer outside of the account: it outlives the request and has its own limit. */
static void store_answer(serve_job *job, const ag_text *stored) {
    account *previous = account_enter(NULL);
    answer_memory_store(job->http->server->answers, ag_served_model_name(job->model),
                        http_scope(job->http), stored);
    account_enter(previous);
}

/* Keeps the ids of an answer for the client's next turn. */
static void remember_answer(serve_job *job, size_t answer, const ag_request_event *e) {
    ag_text stored = {0};
    const answer_reader *reader = &job->readers[answer];
    const serve_request *r = &job->request;
    if (!reader->parser || reader->is_truncated || !e->n_ids || r->continue_last || r->no_prefix)
        return;
    if (ag_chat_keep_answer(job->chat, reader->parser, e->ids, e->n_ids, &stored, NULL) == AG_OK)
        store_answer(job, &stored);
    ag_text_free(&stored);
}

static serve_finish finish_reason(const serve_job *job, const serve_answer *a,
                                  const ag_request_event *e, bool is_truncated) {
    if (is_truncated) return SERVE_FINISH_CALLS;
    switch (e->finish) {
    case AG_FINISH_MAX_TOKENS:
    case AG_FINISH_CONTEXT:
        return SERVE_FINISH_LENGTH;
    case AG_FINISH_CANCELLED:
        return SERVE_FINISH_CANCELLED;
    case AG_FINISH_STOP_STRING:
        if (e->stop < job->n_client_stops) return SERVE_FINISH_STOP_STRING;
        break;
    case AG_FINISH_EOS:
        break;
    }
    return a->n_calls ? SERVE_FINISH_CALLS : SERVE_FINISH_STOP;
}

bool job_end_answer(serve_job *job, size_t answer, const ag_request_event *e) {
    serve_answer *a = &job->view.answers[answer];
    answer_reader *reader = &job->readers[answer];
    if (reader->has_ended) return true;
    reader->has_ended = true;
    if (reader->parser) {
        if (ag_chat_parser_finish(reader->parser, &job->error) != AG_OK) return false;
        if (!handle_deltas(job, answer)) return false;
        remember_answer(job, answer, e);
    }
    job->view.n_generated += e->n_generated - a->n_generated;
    a->n_generated = e->n_generated;
    a->finish = finish_reason(job, a, e, reader->is_truncated);
    if (a->finish == SERVE_FINISH_STOP_STRING) a->stop = job->stop[e->stop];
    job->view.n_reasoning += a->n_reasoning;
    serve_event event = {.kind = SERVE_ANSWERED, .answer = answer};
    attach_tokens(reader, a, &event);
    job_write_event(job, &event);
    return true;
}

bool job_create_answers(serve_job *job) {
    const size_t n = job->view.n_answers;
    job->view.answers = account_calloc(n ? n : 1, sizeof *job->view.answers);
    job->readers = account_calloc(n ? n : 1, sizeof *job->readers);
    bool ok = job->view.answers && job->readers;
    for (size_t i = 0; ok && i < n; i++)
        ok = account_text_append(&job->view.answers[i].content, "", 0) &&
             account_text_append(&job->view.answers[i].reasoning, "", 0);
    return ok;
}

bool job_add_prompt_token(serve_job *job, size_t prompt, const ag_request_event *e) {
    const size_t n = job->request.n;
    const json_t *echo = json_array_get(job->view.echoes, prompt);
    for (size_t i = prompt * n; i < (prompt + 1) * n; i++) {
        serve_answer *a = &job->view.answers[i];
        const bool shows_special = a->n_tokens || !job->prompts[prompt].hides_first;
        if (!add_token(job, i, e, shows_special)) return false;
        if (a->n_tokens < e->n_prompt) continue;
        serve_event event = {.kind = SERVE_CONTENT,
                             .answer = i,
                             .text = json_string_value(echo),
                             .len = json_string_length(echo)};
        attach_tokens(&job->readers[i], a, &event);
        job_write_event(job, &event);
    }
    return true;
}

void job_free_answers(serve_job *job) {
    for (size_t i = 0; job->view.answers && i < job->view.n_answers; i++) {
        serve_answer *a = &job->view.answers[i];
        account_free(a->content.data);
        account_free(a->reasoning.data);
        for (size_t k = 0; k < a->n_calls; k++) {
            account_free(a->calls[k].id);
            account_free(a->calls[k].name);
            account_free(a->calls[k].arguments.data);
        }
        account_free(a->calls);
        for (size_t k = 0; k < a->n_tokens; k++) free_token(&a->tokens[k]);
        account_free(a->tokens);
    }
    for (size_t i = 0; job->readers && i < job->view.n_answers; i++) {
        ag_chat_parser_destroy(job->readers[i].parser);
        ag_decoder_destroy(job->readers[i].decoder);
    }
    account_free(job->view.answers);
    account_free(job->readers);
}
