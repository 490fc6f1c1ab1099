/* SPDX-License-Identifier: Apache-2.0 */
#include "job_impl.h"

#include "clock.h"
#include "kv_owners.h"
#include "serve/work/account.h"

#include <stdio.h>
#include <string.h>

const serve_exchange *run_exchange(const serve_run *run) { return &run->x; }
serve_run *run_next(const serve_run *run) { return run->next; }

static void unlist(serve_run *run) {
    if (!run->is_listed) return;
    run->is_listed = false;
    if (run->before) run->before->next = run->next;
    else run->call->server->first_run = run->next;
    if (run->next) run->next->before = run->before;
}

void run_destroy(serve_run *run) {
    if (!run) return;
    unlist(run);
    run_free_answers(run);
    for (size_t i = 0; i < run->n_prompts; i++) {
        ag_ids_free(&run->prompts[i].ids);
        ag_constraint_destroy(run->prompts[i].constraint);
        if (run->x.embeddings) account_free(run->x.embeddings[i]);
    }
    if (run->protocol->close && run->x.state) run->protocol->close(run->x.state);
    account_free(run->x.state);
    account_free(run->x.embeddings);
    account_free(run->prompts);
    account_free(run->stop);
    account_free(run->model_name);
    ag_chat_destroy(run->chat);
    serve_request_free(&run->request);
    account_free(run);
}

/* ---- its end ---- */

static void reply_whole(serve_run *run) {
    serve_call *call = run->call;
    call_reply_json(call, 200, run->protocol->whole(&run->x));
    serve_error e;
    if (!call->reply) {
        serve_no_memory(&e);
        call_reply_error(call, &e);
    }
    call_send_reply(call);
}

/* Before the first byte an error is a response of its own, later it is part of the stream. */
static void fail(serve_run *run, const serve_error *e) {
    serve_call *call = run->call;
    if (!call->connection) return;
    if (!run->is_streaming) {
        call_send_error(call, e);
        return;
    }
    run_tell(run, &(serve_event){.kind = SERVE_FAILED, .error = e});
    if (call->connection) connection_end_stream(call->connection);
}

/* Of those that the engine said nothing of. */
static void end_answers(serve_run *run) {
    const ag_request_event cancelled = {.kind = AG_REQUEST_ANSWERED, .finish = AG_FINISH_CANCELLED};
    for (size_t i = 0; i < run->x.n_answers; i++) {
        ag_request_event e = cancelled;
        e.n_generated = run->x.answers[i].n_generated;
        run_take_end(run, i, &e);
    }
}

static size_t run_context(const serve_run *run) {
    const size_t most = ag_served_model_info(run->model)->max_positions;
    const size_t wanted = run->params.session.max_seq_len;
    return wanted < most ? wanted : most;
}

/* Clients shorten a conversation when they are told this: by the code those of OpenAI, by the type
 * those of llama.cpp. */
static void name_context(const serve_run *run, serve_error *e) {
    e->type = "exceed_context_size_error";
    e->code = "context_length_exceeded";
    e->n_prompt = run->n_too_long;
    e->n_context = run_context(run);
}

/* Every prompt has ended: how, is in run->status. */
static void finish(serve_run *run) {
    serve_call *call = run->call;
    serve_error e;
    run->is_over = true;
    unlist(run);
    run->x.total_s = clock_s() - call->began;
    /* What was cancelled in the midst of an answer (the server ends, its time is over) is an answer
     * that was cut short. */
    const bool cut_short = run->status == AG_CANCELLED && run->has_begun && run->x.n_generated;
    if (run->status == AG_OK || cut_short) {
        end_answers(run);
        if (!run->is_streaming) {
            if (call->connection) reply_whole(run);
            return;
        }
        run_tell(run, &(serve_event){.kind = SERVE_END});
        if (call->connection) connection_end_stream(call->connection);
        return;
    }
    serve_refuse_status(&e, &run->error);
    if (run->n_too_long) name_context(run, &e);
    if (run->status == AG_CANCELLED && call->server->n_stops)
        serve_refuse(&e, 503, NULL, "the server is shutting down");
    else if (run->status == AG_CANCELLED)
        serve_refuse(&e, 504, NULL, "the request took longer than it may");
    fail(run, &e);
}

static void note_failure(serve_run *run, ag_status status, const ag_error *err) {
    if (run->status != AG_OK) return;
    run->status = status;
    run->error = *err;
    run->error.status = status;
}

void run_cancel(serve_run *run) {
    run->cancelled = true;
    for (size_t i = 0; i < run->n_prompts; i++)
        if (run->prompts[i].is_running)
            ag_serving_cancel(run->call->server->engine, run->prompts[i].id);
}

/* ---- events ---- */

static void begin(serve_run *run) {
    serve_call *call = run->call;
    run->has_begun = true;
    run->written = clock_s();
    if (!run->request.stream || !call->connection) return;
    run->is_streaming = true;
    call->status = 200;
    call->server->counts.n_streams++;
    char headers[sizeof call->headers + 64];
    snprintf(headers, sizeof headers, "%sX-Request-Id: %s\r\n", call->headers, call->id);
    connection_begin_stream(call->connection, 200, run->protocol->stream_type, headers);
    run_tell(run, &(serve_event){.kind = SERVE_BEGIN});
}

static bool take_embedding(serve_run *run, size_t prompt, const ag_request_event *e) {
    float *copy = account_malloc(e->n_embedding * sizeof *copy);
    if (!copy) return false;
    memcpy(copy, e->embedding, e->n_embedding * sizeof *copy);
    run->x.embeddings[prompt] = copy;
    run->x.n_embedding = e->n_embedding;
    return true;
}

static void take_figures(serve_run *run, const ag_request_event *e) {
    serve_exchange *x = &run->x;
    if (e->queue_s > x->queue_s) x->queue_s = e->queue_s;
    if (!x->first_token_s || e->first_token_s < x->first_token_s)
        x->first_token_s = e->first_token_s;
    if (e->prefill_s > x->prefill_s) x->prefill_s = e->prefill_s;
    if (e->decode_s > x->decode_s) x->decode_s = e->decode_s;
}

static void submit_more(serve_run *run);

static void take_ended(run_prompt *p, const ag_request_event *e, const ag_error *err) {
    serve_run *run = p->run;
    serve_call *call = run->call;
    static const ag_error no_memory = {.status = AG_NOMEM, .msg = "out of memory"};
    p->is_running = false;
    run->n_ended++;
    if (atomic_load(&p->lost)) note_failure(run, AG_NOMEM, &no_memory);
    else if (e->status != AG_OK && !(run->request.one_call && e->status == AG_CANCELLED))
        note_failure(run, e->status, err);
    if (run->status != AG_OK) run_cancel(run);
    submit_more(run);
    if (run->n_ended == run->n_submitted) finish(run);
    call_release(call);
}

static void take_event(run_event *r) {
    run_prompt *p = r->prompt;
    serve_run *run = p->run;
    const ag_request_event *e = &r->event;
    const size_t answer = p->index * run->request.n + e->answer;
    bool ok = true;
    switch (e->kind) {
    case AG_REQUEST_STARTED:
        run->x.n_prompt += e->n_prompt;
        run->x.n_cached += e->n_cached;
        if (!run->has_begun) begin(run);
        break;
    case AG_REQUEST_TOKEN:
        ok = run_take_token(run, answer, e);
        break;
    case AG_REQUEST_ANSWERED:
        take_figures(run, e);
        ok = run_take_end(run, answer, e);
        break;
    case AG_REQUEST_EMBEDDED:
        ok = take_embedding(run, p->index, e);
        break;
    case AG_REQUEST_READ:
    case AG_REQUEST_ENDED:
        break;
    }
    if (!ok) {
        if (run->error.status == AG_OK)
            snprintf(run->error.msg, sizeof run->error.msg, "out of memory");
        note_failure(run, run->error.status == AG_OK ? AG_NOMEM : run->error.status, &run->error);
        run_cancel(run);
    }
}

/* On the loop's thread, from here on. */
static void run_event_task(loop_task *task) {
    run_event *r = (run_event *)task;
    serve_call *call = r->prompt->run->call;
    call_hold(call);
    account *before = account_enter(call->account);
    if (r->event.kind == AG_REQUEST_ENDED) {
        take_ended(r->prompt, &r->event, &r->error);
    } else {
        if (!r->prompt->run->is_over) take_event(r);
        account_free(r);
    }
    account_enter(before);
    call_release(call);
}

/* Copies n bytes to *at and moves *at behind them. */
static const void *put(char **at, const void *from, size_t n) {
    void *copy = *at;
    if (n) memcpy(copy, from, n);
    *at += n;
    return copy;
}

/* On the engine's thread. */
static void send_event(void *user, const ag_request_event *e) {
    run_prompt *p = user;
    loop_queue *queue = p->run->call->server->queue;
    run_event *r = &p->ended;
    if (e->kind == AG_REQUEST_READ) return;
    if (e->kind != AG_REQUEST_ENDED) {
        const size_t text = e->kind == AG_REQUEST_TOKEN ? e->len : 0;
        const size_t top = e->kind == AG_REQUEST_TOKEN ? e->n_top * sizeof *e->top : 0;
        const size_t ids = e->kind == AG_REQUEST_ANSWERED ? e->n_ids * sizeof *e->ids : 0;
        const size_t floats = e->kind == AG_REQUEST_EMBEDDED ? e->n_embedding * sizeof(float) : 0;
        account *before = account_enter(p->run->call->account);
        r = atomic_load(&p->lost) ? NULL
                                  : account_malloc(sizeof *r + top + floats + ids + text + 1);
        account_enter(before);
        if (!r) {
            atomic_store(&p->lost, true);
            ag_serving_cancel(p->run->call->server->engine, p->id);
            return;
        }
        char *at = (char *)(r + 1);
        r->event = *e;
        r->event.top = put(&at, e->top, top);
        r->event.embedding = put(&at, e->embedding, floats);
        r->event.ids = put(&at, e->ids, ids);
        r->event.text = put(&at, e->text, text);
        *at = '\0';
    } else {
        r->event = *e;
        if (e->error) r->error = *e->error;
    }
    r->event.error = NULL;
    r->prompt = p;
    r->task.run = run_event_task;
    loop_queue_send(queue, &r->task);
}

/* ---- to the engine ---- */

static bool submit(serve_run *run, run_prompt *p) {
    ag_error err;
    ag_request_params params = run->params;
    params.prompt = p->ids.data;
    params.n_prompt = p->ids.n;
    params.constraint = p->constraint;
    params.event = send_event;
    params.user = p;
    call_hold(run->call);
    p->is_running = true;
    const ag_status st = ag_serving_submit(run->call->server->engine, &params, &p->id, &err);
    run->n_submitted++;
    if (st == AG_OK) {
        if (run->n_submitted == 1) kv_owner_note(run->call->id, p->id);
        p->constraint = NULL;
        ag_ids_free(&p->ids);
        p->ids = (ag_ids){.data = NULL};
        return true;
    }
    p->is_running = false;
    run->n_ended++;
    if (st == AG_LIMIT && p->ids.n > run_context(run)) run->n_too_long = p->ids.n;
    note_failure(run, st, &err);
    call_release(run->call);
    return false;
}

static void submit_more(serve_run *run) {
    while (run->n_submitted < run->n_prompts && !run->cancelled && run->status == AG_OK &&
           run->n_submitted - run->n_ended < RUN_PROMPTS_AT_ONCE)
        if (!submit(run, &run->prompts[run->n_submitted])) run_cancel(run);
}

void run_start(serve_run *run) {
    server *s = run->call->server;
    run->next = s->first_run;
    if (run->next) run->next->before = run;
    s->first_run = run;
    run->is_listed = true;
    if (run->request.count_only) {
        run->x.n_prompt = run->prompts[0].ids.n;
        run->has_begun = true;
        run->request.stream = false;
        finish(run);
        return;
    }
    if (s->n_stops) {
        run->status = AG_CANCELLED;
        finish(run);
        return;
    }
    /* The call stays, whatever becomes of its connection meanwhile. */
    call_hold(run->call);
    submit_more(run);
    if (run->n_ended == run->n_submitted) finish(run);
    call_release(run->call);
}

void run_tick(serve_run *run, double now) {
    enum { QUIET_S = 5 };
    if (!run->is_streaming || run->is_over || now - run->written < QUIET_S) return;
    run_tell(run, &(serve_event){.kind = SERVE_IDLE});
}
