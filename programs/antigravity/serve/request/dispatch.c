/* SPDX-License-Identifier: Apache-2.0 */
#include "dispatch.h"

#include "../job/job.h"
#include "../models/pull_request.h"
#include "../system.h"
#include "../threads/account.h"
#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- start and end of a request ---- */

static void log_request(const serve_http_request *http) {
    const serve_job_view *view = http->job ? job_view(http->job) : NULL;
    const access_entry e = {
        .id = http->id,
        .method = http->head.method,
        .path = http->head.path,
        .protocol = http->route && http->route->protocol ? http->route->protocol->name : NULL,
        .model = view ? view->model : NULL,
        .status = http->status,
        .complete = http->complete,
        .n_received = http->n_received,
        .n_sent = http->n_sent,
        .seconds = clock_s() - http->began,
        .key = http->scope,
        .n_prompt = view ? view->n_prompt : 0,
        .n_cached = view ? view->n_cached : 0,
        .n_generated = view ? view->n_generated : 0,
        .queue_s = view ? view->queue_s : 0,
        .first_token_s = view ? view->first_token_s : 0,
        .ignored = http->ignored[0] ? http->ignored : NULL,
        .error = http->error[0] ? http->error : NULL,
    };
    access_log_write(&http->server->log, &e);
}

static void free_memory(work_item *item) {
    serve_http_request *http = (serve_http_request *)item;
    job_destroy(http->job);
    free(http->pull);
    request_head_free(&http->head);
    json_decref(http->json);
    account_free(http->body);
    account_free(http->reply);
    account_release(http->account);
}

/* Runs on the cleaner's thread. */
static void clean(work_item *item) {
    account_pool *pool = &((serve_http_request *)item)->server->accounts;
    free_memory(item);
    atomic_fetch_sub(&pool->n_freeing, 1);
}

static void free_request(work_item *item) {
    serve_http_request *http = (serve_http_request *)item;
    http->server->n_requests--;
    free(http);
}

/* Counts, logs and frees a request. Many blocks are freed on another thread, since the event loop
 * must not wait. */
static void finish_request(serve_http_request *http) {
    server *s = http->server;
    s->counts.n_by_class[http->status >= 100 && http->status < 600 ? http->status / 100 : 0]++;
    if (!http->complete) s->counts.n_gone++;
    log_request(http);
    http->item.work = clean;
    http->item.done = free_request;
    if (s->cleaner && http->account && account_is_large(http->account)) {
        atomic_fetch_add(&s->accounts.n_freeing, 1);
        if (workers_add(s->cleaner, &http->item)) return;
        atomic_fetch_sub(&s->accounts.n_freeing, 1);
    }
    free_memory(&http->item);
    free_request(&http->item);
}

static void draw_id(char id[33]) {
    unsigned char bytes[16] = {0};
    if (!system_random(bytes, sizeof bytes)) memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

serve_http_request *http_request_create(server *s, connection *c) {
    serve_http_request *http = calloc(1, sizeof *http);
    if (!http) return NULL;
    http->account = connection_take_account(c);
    http->server = s;
    http->connection = c;
    http->n_holders = 1;
    http->released = finish_request;
    http->began = clock_s();
    http->head = connection_take_head(c);
    draw_id(http->id);
    connection_set_owner(c, http);
    s->n_requests++;
    return http;
}

void http_request_end(serve_http_request *http, bool complete) {
    http->n_sent = connection_sent(http->connection);
    http->connection = NULL;
    http->complete = complete;
    if (!complete) pull_client_gone(http);
    if (!complete && http->account) account_cancel(http->account);
    if (!complete && !http->is_working && http->job) job_cancel(http->job);
    http_request_release(http);
}

/* ---- handlers and jobs ---- */

/* Position in a body that jansson parses. */
typedef struct body_reader {
    const char *at, *end;
} body_reader;

/* Passes a piece of the body to jansson, or an error if the work must end. */
static size_t read_piece(void *to, size_t n, void *user) {
    body_reader *r = user;
    const size_t left = (size_t)(r->end - r->at), k = left < n ? left : n;
    if (account_must_end()) return (size_t)-1;
    memcpy(to, r->at, k);
    r->at += k;
    return k;
}

static bool read_json(serve_http_request *http, serve_error *e) {
    json_error_t where;
    body_reader r = {.at = http->body ? http->body : ""};
    r.end = r.at + http->n_body;
    http->json = json_load_callback(read_piece, &r, 0, &where);
    account_free(http->body);
    http->body = NULL;
    if (!http->json && json_error_code(&where) == json_error_out_of_memory)
        return reject_no_memory(e);
    if (!http->json)
        return reject_request(e, 400, NULL, "the body is not valid JSON: %s at byte %d", where.text,
                              where.position);
    if (json_is_object(http->json)) return true;
    return reject_request(e, 400, NULL, "the body must be a JSON object");
}

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

/* Fills *e with the reason why the work on a request ended. */
static void reject_failed_work(const serve_http_request *http, account_failure failure,
                               serve_error *e) {
    const server_settings *s = http->server->settings;
    switch (failure) {
    case ACCOUNT_TOO_LARGE:
        reject_request(e, 413, NULL,
                       "the request is too large: preparing it needs more than %.1f MiB of memory; "
                       "all requests share %.1f MiB",
                       mib(account_needed(http->account)), mib(http->server->accounts.limit));
        break;
    case ACCOUNT_CPU_TIME:
        reject_request(
            e, 400, NULL,
            "the request is too expensive: preparing it takes more than %g s of processor "
            "time; shorten it, or raise --prepare-limit",
            s->prepare_limit_s);
        break;
    case ACCOUNT_DEADLINE:
        reject_request(e, 504, NULL, "the request timed out");
        break;
    case ACCOUNT_CLOSING:
        reject_request(e, 503, NULL, "the server is shutting down");
        break;
    case ACCOUNT_GONE:
    case ACCOUNT_OK:
    case ACCOUNT_BUSY:
    case ACCOUNT_NO_MEMORY:
        reject_request(e, 503, NULL, "out of memory for requests; retry later");
        break;
    }
}

static void run_handler(serve_http_request *http) {
    serve_error e;
    if (http->route->waits) {
        http->route->handle(http);
        return;
    }
    if (!read_json(http, &e)) http_reply_error(http, &e);
    else if (http->route->protocol) job_prepare(http);
    else http->route->handle(http);
}

/* Parses the body and runs the handler or prepares the job. Runs on a worker's thread. */
static void prepare_request(work_item *item) {
    serve_http_request *http = (serve_http_request *)item;
    const server_settings *s = http->server->settings;
    const double limit = http->route->waits ? HUGE_VAL : s->prepare_limit_s;
    account_begin_work(http->account, limit, s->timeout_s ? http->began + s->timeout_s : 0);
    if (!account_must_end()) run_handler(http);
    http_drop_body(http);
    const account_failure failure = account_end_work(http->account);
    if (failure != ACCOUNT_OK && failure != ACCOUNT_GONE) {
        serve_error e;
        reject_failed_work(http, failure, &e);
        http_reply_error(http, &e);
    }
}

/* Sends the reply or starts the job. Runs on the thread of the event loop. */
static void finish_preparation(work_item *item) {
    serve_http_request *http = (serve_http_request *)item;
    account *previous = account_enter(http->account);
    http->is_working = false;
    const bool starts_job = http->job && !http->status && http->connection;
    /* Reserves the memory of all answers, so that none fails halfway. */
    const account_failure failure =
        account_reserve(http->account, starts_job ? job_memory_bytes(http->job) : 0);
    if (starts_job && failure != ACCOUNT_OK) {
        serve_error e;
        reject_failed_work(http, failure, &e);
        http_send_error(http, &e);
    } else if (starts_job) {
        job_start(http->job);
    } else if (http->pull && !http->status) {
        pull_start(http);
    } else {
        http_send_reply(http);
    }
    account_enter(previous);
    http_request_release(http);
}

void http_request_start(serve_http_request *http) {
    enum { SMALL_BODY = 64 << 10 };
    serve_error e;
    http->body = connection_take_body(http->connection, &http->n_body);
    http->n_received = http->n_body;
    if (!strcmp(http->route->method, "GET") && !http->route->waits) {
        account *previous = account_enter(http->account);
        http->route->handle(http);
        http_send_reply(http);
        account_enter(previous);
        return;
    }
    http->item.work = prepare_request;
    http->item.done = finish_preparation;
    http->item.is_large = http->n_body >= SMALL_BODY;
    http->is_working = true;
    http_request_retain(http);
    if (workers_add(http->server->workers, &http->item)) return;
    http->is_working = false;
    http_request_release(http);
    reject_request(&e, 503, NULL, "too many requests are waiting; retry later");
    http_send_error(http, &e);
}
