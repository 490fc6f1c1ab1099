/* SPDX-License-Identifier: Apache-2.0 */
#include "job_impl.h"

#include "../threads/account.h"
#include "clock.h"
#include "kv_owners.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const serve_job_view *job_view(const serve_job *job) { return &job->view; }
serve_job *job_next(const serve_job *job) { return job->next; }

static void unlink_job(serve_job *job) {
    if (!job->is_listed) return;
    job->is_listed = false;
    if (job->previous) job->previous->next = job->next;
    else job->http->server->first_job = job->next;
    if (job->next) job->next->previous = job->previous;
}

void job_destroy(serve_job *job) {
    if (!job) return;
    job_free_answers(job);
    for (size_t i = 0; i < job->n_prompts; i++) {
        ag_ids_free(&job->prompts[i].ids);
        ag_constraint_destroy(job->prompts[i].constraint);
        if (job->view.embeddings) account_free(job->view.embeddings[i]);
    }
    if (job->protocol->close && job->view.state) job->protocol->close(job->view.state);
    account_free(job->view.state);
    account_free(job->view.embeddings);
    json_decref(job->view.echoes);
    account_free(job->prompts);
    account_free(job->stop);
    ag_dry_breakers_destroy(job->params.sampling.dry_breakers);
    account_free(job->model_name);
    ag_chat_destroy(job->chat);
    serve_request_free(&job->request);
    account_free(job);
}

/* ---- end of a job ---- */

static void send_json_reply(serve_job *job) {
    serve_http_request *http = job->http;
    http_reply_json(http, 200, job->protocol->reply(&job->view));
    serve_error e;
    if (!http->reply) {
        reject_no_memory(&e);
        http_reply_error(http, &e);
    }
    http_send_reply(http);
}

/* Sends an error: before the first byte as a reply of its own, later as an event of the stream. */
static void send_failure(serve_job *job, const serve_error *e) {
    serve_http_request *http = job->http;
    if (!http->connection) return;
    if (!job->is_streaming) {
        http_send_error(http, e);
        return;
    }
    job_write_event(job, &(serve_event){.kind = SERVE_FAILED, .error = e});
    if (http->connection) connection_end_stream(http->connection);
}

/* Ends the answers that the engine did not end. */
static void end_answers(serve_job *job) {
    for (size_t i = 0; i < job->view.n_answers; i++) {
        const ag_request_event e = {
            .kind = AG_REQUEST_ANSWERED,
            .finish = AG_FINISH_CANCELLED,
            .n_generated = job->view.answers[i].n_generated,
        };
        job_end_answer(job, i, &e);
    }
}

static size_t context_length(const serve_job *job) {
    const size_t max_positions = ag_served_model_info(job->model)->max_positions;
    const size_t wanted = job->params.session.max_seq_len;
    return wanted < max_positions ? wanted : max_positions;
}

/* Names the error so that clients shorten the conversation. OpenAI's clients check the code,
 * llama.cpp's the type. */
static bool reject_length(size_t n_prompt, size_t n_context, serve_error *e) {
    reject_request(e, 400, NULL, "the prompt is too long: %zu tokens, the context holds %zu",
                   n_prompt, n_context);
    e->type = "exceed_context_size_error";
    e->code = "context_length_exceeded";
    e->n_prompt = n_prompt;
    e->n_context = n_context;
    return false;
}

bool job_check_lengths(const serve_job *job, serve_error *e) {
    const ag_eviction_params *eviction = &job->params.session.eviction;
    const size_t max = context_length(job);
    if (eviction->policy || eviction->memory.threshold_bytes) return true;
    for (size_t i = 0; i < job->n_prompts; i++)
        if (job->prompts[i].ids.n > max) return reject_length(job->prompts[i].ids.n, max, e);
    return true;
}

bool job_may_unload(const serve_job *job) {
    return job->http->is_admin ||
           job->request.keep_alive_s >= ag_served_model_expires_in(job->model);
}

void job_keep_alive(const serve_job *job) {
    const double seconds = job->request.keep_alive_s;
    if (!isnan(seconds) && job_may_unload(job))
        ag_serving_keep_alive(job->http->server->engine, job->model, seconds);
}

void job_set_load_error(const serve_job *job, double swap_wait_s, serve_error *e) {
    if (swap_wait_s > 0) {
        e->status = 503;
        e->code = "model_busy";
        e->retry_after_s = (unsigned)ceil(swap_wait_s);
    } else if (ag_served_model_is_broken(job->model)) {
        e->status = 500;
        e->code = "model_broken";
    }
}

/* Ends the job after its last prompt. job->status is the result. */
static void finish_job(serve_job *job) {
    serve_http_request *http = job->http;
    serve_error e;
    job->is_over = true;
    unlink_job(job);
    job->view.total_s = clock_s() - http->began;
    job_keep_alive(job);
    /* A job that was cancelled within an answer (server stop, deadline) ends with a truncated
     * answer. */
    const bool is_truncated =
        job->status == AG_CANCELLED && job->has_begun && job->view.n_generated;
    if (job->status == AG_OK || is_truncated) {
        end_answers(job);
        if (!job->is_streaming) {
            if (http->connection) send_json_reply(job);
            return;
        }
        job_write_event(job, &(serve_event){.kind = SERVE_END});
        if (http->connection) connection_end_stream(http->connection);
        return;
    }
    reject_status(&e, &job->error);
    if (!job->has_begun) job_set_load_error(job, job->swap_wait_s, &e);
    if (job->status == AG_CANCELLED && http->server->n_stops)
        reject_request(&e, 503, NULL, "the server is shutting down");
    else if (job->status == AG_CANCELLED) reject_request(&e, 504, NULL, "the request timed out");
    send_failure(job, &e);
}

static void record_failure(serve_job *job, ag_status status, const ag_error *err) {
    if (job->status != AG_OK) return;
    job->status = status;
    job->error = *err;
    job->error.status = status;
}

void job_cancel(serve_job *job) {
    job->is_cancelled = true;
    for (size_t i = 0; i < job->n_prompts; i++)
        if (job->prompts[i].is_running)
            ag_serving_cancel(job->http->server->engine, job->prompts[i].id);
}

/* ---- events ---- */

static void begin_reply(serve_job *job) {
    serve_http_request *http = job->http;
    job->has_begun = true;
    job->last_write = clock_s();
    if (!job->request.stream || !http->connection) return;
    job->is_streaming = true;
    http->status = 200;
    http->server->counts.n_streams++;
    char headers[sizeof http->headers + 64];
    snprintf(headers, sizeof headers, "%sX-Request-Id: %s\r\n", http->headers, http->id);
    connection_begin_stream(http->connection, 200, job->protocol->stream_type, headers);
    job_write_event(job, &(serve_event){.kind = SERVE_BEGIN});
}

static bool store_embedding(serve_job *job, size_t prompt, const ag_request_event *e) {
    float *copy = account_malloc(e->n_embedding * sizeof *copy);
    if (!copy) return false;
    memcpy(copy, e->embedding, e->n_embedding * sizeof *copy);
    job->view.embeddings[prompt] = copy;
    job->view.n_embedding = e->n_embedding;
    return true;
}

static void merge_timings(serve_job *job, const ag_request_event *e) {
    serve_job_view *view = &job->view;
    if (e->queue_s > view->queue_s) view->queue_s = e->queue_s;
    if (!view->first_token_s || e->first_token_s < view->first_token_s)
        view->first_token_s = e->first_token_s;
    if (e->prefill_s > view->prefill_s) view->prefill_s = e->prefill_s;
    if (e->decode_s > view->decode_s) view->decode_s = e->decode_s;
}

static void submit_prompts(serve_job *job);

static void handle_ended(job_prompt *p, const ag_request_event *e, const ag_error *err) {
    serve_job *job = p->job;
    serve_http_request *http = job->http;
    static const ag_error no_memory = {.status = AG_NOMEM, .msg = "out of memory"};
    p->is_running = false;
    job->n_ended++;
    if (e->swap_wait_s > 0) job->swap_wait_s = e->swap_wait_s;
    if (atomic_load(&p->lost_event)) record_failure(job, AG_NOMEM, &no_memory);
    else if (e->status != AG_OK && !(job->request.one_call && e->status == AG_CANCELLED))
        record_failure(job, e->status, err);
    if (job->status != AG_OK) job_cancel(job);
    submit_prompts(job);
    if (job->n_ended == job->n_submitted) finish_job(job);
    http_request_release(http);
}

static void handle_event(job_event *r) {
    job_prompt *p = r->prompt;
    serve_job *job = p->job;
    const ag_request_event *e = &r->event;
    const size_t answer = p->index * job->request.n + e->answer;
    bool ok = true;
    switch (e->kind) {
    case AG_REQUEST_STARTED:
        job->view.n_prompt += e->n_prompt;
        job->view.n_cached += e->n_cached;
        if (!job->has_begun) begin_reply(job);
        break;
    case AG_REQUEST_PROMPT_TOKEN:
        ok = job_add_prompt_token(job, p->index, e);
        break;
    case AG_REQUEST_TOKEN:
        ok = job_add_token(job, answer, e);
        break;
    case AG_REQUEST_ANSWERED:
        merge_timings(job, e);
        ok = job_end_answer(job, answer, e);
        break;
    case AG_REQUEST_EMBEDDED:
        ok = store_embedding(job, p->index, e);
        break;
    case AG_REQUEST_READ:
    case AG_REQUEST_ENDED:
        break;
    }
    if (!ok) {
        if (job->error.status == AG_OK)
            snprintf(job->error.msg, sizeof job->error.msg, "out of memory");
        record_failure(job, job->error.status == AG_OK ? AG_NOMEM : job->error.status, &job->error);
        job_cancel(job);
    }
}

/* Runs on the thread of the event loop. */
static void run_job_event(loop_task *task) {
    job_event *r = (job_event *)task;
    serve_http_request *http = r->prompt->job->http;
    http_request_retain(http);
    account *previous = account_enter(http->account);
    if (r->event.kind == AG_REQUEST_ENDED) {
        handle_ended(r->prompt, &r->event, &r->error);
    } else {
        if (!r->prompt->job->is_over) handle_event(r);
        account_free(r);
    }
    account_enter(previous);
    http_request_release(http);
}

/* Copies n bytes to *at and moves *at past them. */
static const void *copy_to(char **at, const void *from, size_t n) {
    void *copy = *at;
    if (n) memcpy(copy, from, n);
    *at += n;
    return copy;
}

/* Copies an event of the engine and sends it to the event loop. Runs on the engine's thread. */
static void queue_event(void *user, const ag_request_event *e) {
    job_prompt *p = user;
    loop_queue *queue = p->job->http->server->queue;
    job_event *r = &p->ended;
    if (e->kind == AG_REQUEST_READ) return;
    if (e->kind != AG_REQUEST_ENDED) {
        const size_t text = e->kind == AG_REQUEST_TOKEN ? e->len : 0;
        const size_t top = e->n_top * sizeof *e->top;
        const size_t ids = e->kind == AG_REQUEST_ANSWERED ? e->n_ids * sizeof *e->ids : 0;
        const size_t floats = e->kind == AG_REQUEST_EMBEDDED ? e->n_embedding * sizeof(float) : 0;
        account *previous = account_enter(p->job->http->account);
        r = atomic_load(&p->lost_event) ? NULL
                                        : account_malloc(sizeof *r + top + floats + ids + text + 1);
        account_enter(previous);
        if (!r) {
            atomic_store(&p->lost_event, true);
            ag_serving_cancel(p->job->http->server->engine, p->id);
            return;
        }
        char *at = (char *)(r + 1);
        r->event = *e;
        r->event.top = copy_to(&at, e->top, top);
        r->event.embedding = copy_to(&at, e->embedding, floats);
        r->event.ids = copy_to(&at, e->ids, ids);
        r->event.text = copy_to(&at, e->text, text);
        *at = '\0';
    } else {
        r->event = *e;
        if (e->error) r->error = *e->error;
    }
    r->event.error = NULL;
    r->prompt = p;
    r->task.run = run_job_event;
    loop_queue_send(queue, &r->task);
}

/* ---- to the engine ---- */

static bool submit(serve_job *job, job_prompt *p) {
    ag_error err;
    ag_request_params params = job->params;
    params.prompt = p->ids.data;
    params.n_prompt = p->ids.n;
    params.constraint = p->constraint;
    params.deadline_s = job_time_left(job);
    params.event = queue_event;
    params.user = p;
    http_request_retain(job->http);
    p->is_running = true;
    const ag_status st = ag_serving_submit(job->http->server->engine, &params, &p->id, &err);
    job->n_submitted++;
    if (st == AG_OK) {
        if (job->n_submitted == 1) kv_owner_add(job->http->id, p->id);
        p->constraint = NULL;
        ag_ids_free(&p->ids);
        p->ids = (ag_ids){.data = NULL};
        return true;
    }
    p->is_running = false;
    job->n_ended++;
    record_failure(job, st, &err);
    http_request_release(job->http);
    return false;
}

static void submit_prompts(serve_job *job) {
    while (job->n_submitted < job->n_prompts && !job->is_cancelled && job->status == AG_OK &&
           job->n_submitted - job->n_ended < JOB_PROMPTS_AT_ONCE)
        if (!submit(job, &job->prompts[job->n_submitted])) job_cancel(job);
}

void job_start(serve_job *job) {
    server *s = job->http->server;
    job->next = s->first_job;
    if (job->next) job->next->previous = job;
    s->first_job = job;
    job->is_listed = true;
    if (job->request.count_only) {
        job->view.n_prompt = job->prompts[0].ids.n;
        job->has_begun = true;
        job->request.stream = false;
        finish_job(job);
        return;
    }
    if (s->n_stops) {
        job->status = AG_CANCELLED;
        finish_job(job);
        return;
    }
    /* submit_prompts() may end the request; the reference keeps it alive. */
    http_request_retain(job->http);
    submit_prompts(job);
    if (job->n_ended == job->n_submitted) finish_job(job);
    http_request_release(job->http);
}

void job_tick(serve_job *job, double now) {
    enum { IDLE_S = 5 };
    if (!job->is_streaming || job->is_over || now - job->last_write < IDLE_S) return;
    job_write_event(job, &(serve_event){.kind = SERVE_IDLE});
}
