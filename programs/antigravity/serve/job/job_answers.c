/* SPDX-License-Identifier: Apache-2.0 */
/* From tokens to what an answer says. */
#include "job_impl.h"
#include "serve/work/account.h"
#include "serve/work/account_text.h"

#include <string.h>

/* ---- tokens with their probabilities ---- */

static bool describe_token(const serve_run *run, serve_token *t, int32_t id, float logprob) {
    ag_text text = {0};
    ag_error err;
    const ag_tokenizer *tokenizer = ag_served_model_tokenizer(run->model);
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

static bool add_token(serve_run *run, serve_answer *a, const ag_request_event *e) {
    if ((a->n_tokens & (a->n_tokens - 1)) == 0) {
        const size_t cap = a->n_tokens ? 2 * a->n_tokens : 1;
        serve_token *grown = account_realloc(a->tokens, cap * sizeof *grown);
        if (!grown) return false;
        a->tokens = grown;
    }
    serve_token *t = &a->tokens[a->n_tokens];
    if (!describe_token(run, t, e->id, e->logprob)) return false;
    a->n_tokens++;
    t->top = e->n_top ? account_calloc(e->n_top, sizeof *t->top) : NULL;
    if (e->n_top && !t->top) return false;
    for (; t->n_top < e->n_top; t->n_top++)
        if (!describe_token(run, &t->top[t->n_top], e->top[t->n_top].id, e->top[t->n_top].logprob))
            return false;
    return true;
}

/* Tokens of the answer that no event had. */
static void give_tokens(run_reader *reader, const serve_answer *a, serve_event *e) {
    e->tokens = a->tokens ? a->tokens + reader->n_told : NULL;
    e->n_tokens = a->n_tokens - reader->n_told;
    reader->n_told = a->n_tokens;
}

/* ---- what the text says ---- */

static bool add_call(serve_answer *a, const ag_chat_delta *d) {
    serve_called *grown = account_realloc(a->calls, (a->n_calls + 1) * sizeof *grown);
    if (!grown) return false;
    a->calls = grown;
    serve_called *call = &a->calls[a->n_calls++];
    *call =
        (serve_called){.id = account_strdup(d->id ? d->id : ""), .name = account_strdup(d->name)};
    return call->id && call->name && account_text_append(&call->arguments, "", 0);
}

static bool take_delta(serve_run *run, size_t answer, const ag_chat_delta *d) {
    serve_answer *a = &run->x.answers[answer];
    run_reader *reader = &run->readers[answer];
    serve_event e = {.answer = answer, .text = d->text, .len = d->len, .call = d->call};
    bool ok = true;
    if (reader->cut) return true;
    switch (d->kind) {
    case AG_CHAT_DELTA_CONTENT:
        e.kind = SERVE_CONTENT;
        ok = account_text_append(&a->content, d->text, d->len);
        give_tokens(reader, a, &e);
        break;
    case AG_CHAT_DELTA_REASONING:
        e.kind = SERVE_REASONING;
        if (run->request.hide_reasoning) return true;
        ok = account_text_append(&a->reasoning, d->text, d->len);
        break;
    case AG_CHAT_DELTA_CALL:
        e.kind = SERVE_CALL;
        e.id = d->id;
        e.name = d->name;
        reader->cut = run->request.one_call && a->n_calls == 1;
        if (reader->cut) return true;
        ok = add_call(a, d);
        break;
    case AG_CHAT_DELTA_ARGUMENTS:
        e.kind = SERVE_ARGUMENTS;
        ok = d->call < a->n_calls &&
             account_text_append(&a->calls[d->call].arguments, d->text, d->len);
        break;
    }
    if (ok) run_tell(run, &e);
    return ok;
}

static bool take_deltas(serve_run *run, size_t answer) {
    ag_chat_delta d;
    serve_answer *a = &run->x.answers[answer];
    bool reasoned = false;
    while (ag_chat_parser_next(run->readers[answer].parser, &d)) {
        reasoned = reasoned || d.kind == AG_CHAT_DELTA_REASONING;
        if (!take_delta(run, answer, &d)) return false;
    }
    a->n_reasoning += reasoned;
    /* Probabilities of tokens that were reasoning are nobody's business. */
    while (reasoned && a->n_tokens > run->readers[answer].n_told)
        free_token(&a->tokens[--a->n_tokens]);
    return true;
}

bool run_take_token(serve_run *run, size_t answer, const ag_request_event *e) {
    serve_answer *a = &run->x.answers[answer];
    run_reader *reader = &run->readers[answer];
    if (reader->cut) return true;
    if (e->id >= 0) {
        a->n_generated++;
        run->x.n_generated++;
    }
    if (run->request.logprobs && e->id >= 0 && !add_token(run, a, e)) return false;
    if (!e->len) return true;
    if (!reader->parser) {
        const ag_chat_delta d = {.kind = AG_CHAT_DELTA_CONTENT, .text = e->text, .len = e->len};
        return take_delta(run, answer, &d);
    }
    if (ag_chat_parser_push(reader->parser, e->text, e->len, &run->error) != AG_OK) return false;
    if (!take_deltas(run, answer)) return false;
    if (reader->cut && run->x.n_answers == 1) run_cancel(run);
    return true;
}

/* Stores the answer outside of the account: it outlives the request and has its own limit. */
static void keep_answer(serve_run *run, const ag_text *kept) {
    account *before = account_enter(NULL);
    answer_memory_keep(run->call->server->answers, ag_served_model_name(run->model),
                       call_scope(run->call), kept);
    account_enter(before);
}

/* So that it is found again when the client sends it in its next turn. */
static void remember(serve_run *run, size_t answer, const ag_request_event *e) {
    ag_text kept = {0};
    const run_reader *reader = &run->readers[answer];
    const serve_request *r = &run->request;
    if (!reader->parser || reader->cut || !e->n_ids || r->continue_last || r->no_prefix) return;
    if (ag_chat_keep_answer(run->chat, reader->parser, e->ids, e->n_ids, &kept, NULL) == AG_OK)
        keep_answer(run, &kept);
    ag_text_free(&kept);
}

static serve_finish finish_of(const serve_run *run, const serve_answer *a,
                              const ag_request_event *e, bool cut) {
    if (cut) return SERVE_FINISH_CALLS;
    switch (e->finish) {
    case AG_FINISH_MAX_TOKENS:
    case AG_FINISH_CONTEXT:
        return SERVE_FINISH_LENGTH;
    case AG_FINISH_CANCELLED:
        return SERVE_FINISH_CANCELLED;
    case AG_FINISH_STOP_STRING:
        if (e->stop < run->n_client_stops) return SERVE_FINISH_STOP_STRING;
        break;
    case AG_FINISH_EOS:
        break;
    }
    return a->n_calls ? SERVE_FINISH_CALLS : SERVE_FINISH_STOP;
}

bool run_take_end(serve_run *run, size_t answer, const ag_request_event *e) {
    serve_answer *a = &run->x.answers[answer];
    run_reader *reader = &run->readers[answer];
    if (reader->has_ended) return true;
    reader->has_ended = true;
    if (reader->parser) {
        if (ag_chat_parser_finish(reader->parser, &run->error) != AG_OK) return false;
        if (!take_deltas(run, answer)) return false;
        remember(run, answer, e);
    }
    run->x.n_generated += e->n_generated - a->n_generated;
    a->n_generated = e->n_generated;
    a->finish = finish_of(run, a, e, reader->cut);
    if (a->finish == SERVE_FINISH_STOP_STRING) a->stop = run->stop[e->stop];
    run->x.n_reasoning += a->n_reasoning;
    serve_event event = {.kind = SERVE_ANSWERED, .answer = answer};
    give_tokens(reader, a, &event);
    run_tell(run, &event);
    return true;
}

bool run_make_answers(serve_run *run) {
    const size_t n = run->x.n_answers;
    run->x.answers = account_calloc(n ? n : 1, sizeof *run->x.answers);
    run->readers = account_calloc(n ? n : 1, sizeof *run->readers);
    bool ok = run->x.answers && run->readers;
    for (size_t i = 0; ok && i < n; i++)
        ok = account_text_append(&run->x.answers[i].content, "", 0) &&
             account_text_append(&run->x.answers[i].reasoning, "", 0);
    return ok;
}

void run_free_answers(serve_run *run) {
    for (size_t i = 0; run->x.answers && i < run->x.n_answers; i++) {
        serve_answer *a = &run->x.answers[i];
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
    for (size_t i = 0; run->readers && i < run->x.n_answers; i++)
        ag_chat_parser_destroy(run->readers[i].parser);
    account_free(run->x.answers);
    account_free(run->readers);
}
