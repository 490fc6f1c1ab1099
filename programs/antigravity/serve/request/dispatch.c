/* SPDX-License-Identifier: Apache-2.0 */
#include "dispatch.h"

#include "clock.h"
#include "serve/job/job.h"
#include "serve/work/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- a request begins and ends ---- */

static void log_call(const serve_call *call) {
    const serve_exchange *x = call->run ? run_exchange(call->run) : NULL;
    const access_entry e = {
        .id = call->id,
        .method = call->head.method,
        .path = call->head.path,
        .protocol = call->route && call->route->protocol ? call->route->protocol->name : NULL,
        .model = x ? x->model : NULL,
        .status = call->status,
        .complete = call->complete,
        .n_received = call->n_received,
        .n_sent = call->n_sent,
        .seconds = clock_s() - call->began,
        .key = call->scope,
        .n_prompt = x ? x->n_prompt : 0,
        .n_cached = x ? x->n_cached : 0,
        .n_generated = x ? x->n_generated : 0,
        .queue_s = x ? x->queue_s : 0,
        .first_token_s = x ? x->first_token_s : 0,
        .error = call->error[0] ? call->error : NULL,
    };
    access_log_write(&call->server->log, &e);
}

static void end_call(serve_call *call) {
    server_counts *counts = &call->server->counts;
    counts->n_by_class[call->status >= 100 && call->status < 600 ? call->status / 100 : 0]++;
    if (!call->complete) counts->n_gone++;
    log_call(call);
    run_destroy(call->run);
    call->server->n_calls--;
}

static void draw_id(char id[33]) {
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) < 0) memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

serve_call *call_create(server *s, connection *c) {
    serve_call *call = calloc(1, sizeof *call);
    if (!call) return NULL;
    call->account = connection_take_account(c);
    call->server = s;
    call->connection = c;
    call->n_holders = 1;
    call->released = end_call;
    call->began = clock_s();
    call->head = connection_take_head(c);
    draw_id(call->id);
    connection_set_owner(c, call);
    s->n_calls++;
    return call;
}

void call_over(serve_call *call, bool complete) {
    call->n_sent = connection_sent(call->connection);
    call->connection = NULL;
    call->complete = complete;
    if (!complete && call->account) account_cancel(call->account);
    if (!complete && !call->is_working && call->run) run_cancel(call->run);
    call_release(call);
}

/* ---- to its handler ---- */

/* Position of the parser in a body. */
typedef struct body_reader {
    const char *at, *end;
} body_reader;

/* Gives jansson a piece of the body, or an error once the work must end. */
static size_t read_piece(void *to, size_t n, void *user) {
    body_reader *r = user;
    const size_t left = (size_t)(r->end - r->at), k = left < n ? left : n;
    if (account_must_end()) return (size_t)-1;
    memcpy(to, r->at, k);
    r->at += k;
    return k;
}

static bool read_json(serve_call *call, serve_error *e) {
    json_error_t where;
    body_reader r = {.at = call->body ? call->body : ""};
    r.end = r.at + call->n_body;
    call->json = json_load_callback(read_piece, &r, 0, &where);
    account_free(call->body);
    call->body = NULL;
    if (!call->json && json_error_code(&where) == json_error_out_of_memory)
        return serve_no_memory(e);
    if (!call->json)
        return serve_refuse(e, 400, NULL, "the body is no JSON: %s, at byte %d", where.text,
                            where.position);
    if (json_is_object(call->json)) return true;
    return serve_refuse(e, 400, NULL, "the body is JSON, but no object");
}

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

/* Says why the work on a request had to end. */
static void describe_failure(const serve_call *call, account_failure why, serve_error *e) {
    const server_settings *s = call->server->settings;
    switch (why) {
    case ACCOUNT_TOO_LARGE:
        serve_refuse(e, 413, NULL,
                     "the request is too large: preparing it takes more than %.1f MiB of memory; "
                     "all requests together may take %.1f MiB",
                     mib(account_needed(call->account)), mib(call->server->accounts.limit));
        break;
    case ACCOUNT_CPU_TIME:
        serve_refuse(e, 400, NULL,
                     "the request is too expensive: preparing it takes more than %g s of processor "
                     "time; shorten it, or start the server with a larger --prepare-limit",
                     s->prepare_limit_s);
        break;
    case ACCOUNT_DEADLINE:
        serve_refuse(e, 504, NULL, "the request took longer than it may");
        break;
    case ACCOUNT_CLOSING:
        serve_refuse(e, 503, NULL, "the server is shutting down");
        break;
    case ACCOUNT_GONE:
    case ACCOUNT_OK:
    case ACCOUNT_BUSY:
    case ACCOUNT_NO_MEMORY:
        serve_refuse(e, 503, NULL, "requests take as much memory as they may; try again later");
        e->retry_after = 1;
        break;
    }
}

static void work(serve_call *call) {
    serve_error e;
    if (call->route->waits) {
        call->route->handle(call);
        return;
    }
    if (!read_json(call, &e)) call_reply_error(call, &e);
    else if (call->route->protocol) run_prepare(call);
    else call->route->handle(call);
}

/* On a worker's thread. */
static void work_on_call(worker_job *job) {
    serve_call *call = (serve_call *)job;
    const server_settings *s = call->server->settings;
    const double limit = call->route->waits ? HUGE_VAL : s->prepare_limit_s;
    account_begin_work(call->account, limit, s->timeout_s ? call->began + s->timeout_s : 0);
    if (!account_must_end()) work(call);
    const account_failure why = account_end_work(call->account);
    call_drop_body(call);
    if (why != ACCOUNT_OK && why != ACCOUNT_GONE) {
        serve_error e;
        describe_failure(call, why, &e);
        call_reply_error(call, &e);
    }
}

/* Back on the loop's thread. */
static void call_worked(worker_job *job) {
    serve_call *call = (serve_call *)job;
    account *before = account_enter(call->account);
    call->is_working = false;
    const bool asks = call->run && !call->status && call->connection;
    /* Reserves what the answers will take, so that no answer fails halfway. */
    const account_failure why = account_reserve(call->account, asks ? run_cost(call->run) : 0);
    if (asks && why != ACCOUNT_OK) {
        serve_error e;
        describe_failure(call, why, &e);
        call_send_error(call, &e);
    } else if (asks) {
        run_start(call->run);
    } else {
        call_send_reply(call);
    }
    account_enter(before);
    call_release(call);
}

void call_start(serve_call *call) {
    enum { SMALL_BODY = 64 << 10 };
    serve_error e;
    call->body = connection_take_body(call->connection, &call->n_body);
    call->n_received = call->n_body;
    if (!strcmp(call->route->method, "GET") && !call->route->waits) {
        account *before = account_enter(call->account);
        call->route->handle(call);
        call_send_reply(call);
        account_enter(before);
        return;
    }
    call->job.work = work_on_call;
    call->job.done = call_worked;
    call->job.is_large = call->n_body >= SMALL_BODY;
    call->is_working = true;
    call_hold(call);
    if (workers_add(call->server->workers, &call->job)) return;
    call->is_working = false;
    call_release(call);
    serve_refuse(&e, 503, NULL, "too many requests are waiting to be read");
    e.retry_after = 1;
    call_send_error(call, &e);
}
