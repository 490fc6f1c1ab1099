/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include "body_cost.h"
#include "clock.h"
#include "run.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Bytes that a byte of a body may cost once it has been read. */
enum { KEPT_COST = 4 };

/* ---- its life ---- */

static void draw_id(char id[33]) {
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) < 0) memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

serve_call *call_create(server *s, connection *c) {
    serve_call *call = calloc(1, sizeof *call);
    if (!call) return NULL;
    call->server = s;
    call->connection = c;
    call->n_holders = 1;
    call->began = clock_s();
    call->head = connection_take_head(c);
    draw_id(call->id);
    connection_set_owner(c, call);
    s->n_calls++;
    return call;
}

void call_hold(serve_call *call) { call->n_holders++; }

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

void call_release(serve_call *call) {
    if (--call->n_holders) return;
    server *s = call->server;
    s->n_held -= call->n_received;
    server_charge(s, &call->charge, 0);
    server_counts *counts = &s->counts;
    counts->n_by_class[call->status >= 100 && call->status < 600 ? call->status / 100 : 0]++;
    if (!call->complete) counts->n_gone++;
    log_call(call);
    run_destroy(call->run);
    request_head_free(&call->head);
    json_decref(call->json);
    free(call->body);
    free(call->reply);
    free(call);
    s->n_calls--;
}

void call_over(serve_call *call, bool complete) {
    call->n_sent = connection_sent(call->connection);
    call->connection = NULL;
    call->complete = complete;
    if (!complete) atomic_store(&call->gone, true);
    if (!complete && !call->is_working && call->run) run_cancel(call->run);
    call_release(call);
}

/* ---- what handlers ask ---- */

const char *call_header(const serve_call *call, const char *name) {
    return request_head_field(&call->head, name);
}
const char *call_path(const serve_call *call) { return call->head.path; }
const char *call_query(const serve_call *call) { return call->head.query; }
const char *call_rest(const serve_call *call) { return call->rest ? call->rest : ""; }
const json_t *call_body(const serve_call *call) { return call->json; }
const char *call_scope(const serve_call *call) {
    return call->server->settings->share_prefixes ? "" : call->scope;
}
ag_serving *call_serving(const serve_call *call) { return call->server->engine; }
const char *const *call_model_names(const serve_call *call, size_t *n) {
    *n = call->server->settings->n_names;
    return call->server->settings->names;
}
int64_t call_started(const serve_call *call) { return call->server->started; }

ag_served_model *call_model(const serve_call *call, const char *name, serve_error *e) {
    server *s = call->server;
    if (!name && !call->route->model_optional) {
        serve_refuse(e, 400, "model", "the request names no model");
        return NULL;
    }
    ag_served_model *model = ag_serving_model(s->engine, name);
    if (!model && s->settings->any_model) model = ag_serving_model(s->engine, NULL);
    if (!model) {
        serve_refuse(e, 404, "model", "there is no model '%.200s' here; /v1/models lists them",
                     name);
        e->code = "model_not_found";
    }
    return model;
}

/* ---- replies ---- */

void call_reply_text(serve_call *call, int status, const char *type, const char *text, size_t n) {
    free(call->reply);
    call->reply = malloc(n + 1);
    call->n_reply = call->reply ? n : 0;
    if (call->reply) memcpy(call->reply, text, n);
    call->status = call->reply ? status : 503;
    call->type = type;
}

void call_reply_json(serve_call *call, int status, json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    free(call->reply);
    call->reply = text;
    call->n_reply = text ? strlen(text) : 0;
    call->status = text ? status : 503;
    call->type = "application/json";
}

void call_reply_header(serve_call *call, const char *name, const char *value) {
    const size_t n = strlen(call->headers);
    const int len =
        snprintf(call->headers + n, sizeof call->headers - n, "%s: %s\r\n", name, value);
    if (len >= 0 && (size_t)len < sizeof call->headers - n) return;
    call->headers[n] = '\0';
    call->lacks_header = true;
}

void call_reply_error(serve_call *call, const serve_error *e) {
    const serve_route *r = call->route;
    json_t *(*shape)(const serve_error *) = openai_error;
    if (r && r->error) shape = r->error;
    else if (r && r->protocol && r->protocol->error) shape = r->protocol->error;
    call_reply_json(call, e->status, shape(e));
    call->retry_after = e->retry_after;
    snprintf(call->error, sizeof call->error, "%d%s%s", e->status, e->param[0] ? " " : "",
             e->param);
}

void call_send_reply(serve_call *call) {
    if (!call->connection) return;
    if (call->lacks_header) {
        call->status = 500;
        call->n_reply = 0;
    }
    char headers[sizeof call->headers + 128];
    int n = snprintf(headers, sizeof headers, "%sX-Request-Id: %s\r\n", call->headers, call->id);
    if (call->status == 401)
        n += snprintf(headers + n, sizeof headers - (size_t)n, "WWW-Authenticate: Bearer\r\n");
    if (call->retry_after)
        snprintf(headers + n, sizeof headers - (size_t)n, "Retry-After: %u\r\n", call->retry_after);
    connection_reply(call->connection, call->status ? call->status : 500, call->type, headers,
                     call->reply ? call->reply : "", call->n_reply);
}

void call_send_error(serve_call *call, const serve_error *e) {
    call_reply_error(call, e);
    call_send_reply(call);
}

/* ---- to its handler ---- */

static bool read_json(serve_call *call, serve_error *e) {
    json_error_t where;
    call->json = json_loadb(call->body ? call->body : "", call->n_body, 0, &where);
    free(call->body);
    call->body = NULL;
    if (!call->json && json_error_code(&where) == json_error_out_of_memory)
        return serve_no_memory(e);
    if (!call->json)
        return serve_refuse(e, 400, NULL, "the body is no JSON: %s, at byte %d", where.text,
                            where.position);
    if (json_is_object(call->json)) return true;
    return serve_refuse(e, 400, NULL, "the body is JSON, but no object");
}

/* What a large body was is kept by the allocator, which would be memory that nobody may use. */
static void give_back_memory(size_t n_body) {
#ifdef __GLIBC__
    enum { LARGE = 1 << 18 };
    if (n_body > LARGE) malloc_trim(0);
#else
    (void)n_body;
#endif
}

/* On a worker's thread. */
static void work_on_call(worker_job *job) {
    serve_call *call = (serve_call *)job;
    serve_error e;
    if (atomic_load(&call->gone)) return;
    if (call->route->waits) {
        call->route->handle(call);
        return;
    }
    if (!read_json(call, &e)) call_reply_error(call, &e);
    else if (call->route->protocol) run_prepare(call);
    else call->route->handle(call);
    json_decref(call->json);
    call->json = NULL;
    give_back_memory(call->n_received);
}

static void refuse_memory(serve_call *call) {
    serve_error e;
    serve_refuse(&e, 503, NULL, "requests take as much memory as they may");
    e.retry_after = 1;
    call_send_error(call, &e);
}

/* Back on the loop's. */
static void call_worked(worker_job *job) {
    serve_call *call = (serve_call *)job;
    call->is_working = false;
    /* What is left of the body are its messages, as the engine and the answer need them. */
    const bool asks = call->run && !call->status;
    const size_t kept = call->n_received * KEPT_COST + (asks ? run_cost(call->run) : 0);
    const bool fits = server_charge(call->server, &call->charge, kept);
    if (asks && !fits) {
        if (call->connection) refuse_memory(call);
    } else if (asks) {
        if (call->connection) run_start(call->run);
    } else {
        call_send_reply(call);
    }
    call_release(call);
}

void call_start(serve_call *call) {
    serve_error e;
    call->body = connection_take_body(call->connection, &call->n_body);
    call->n_received = call->n_body;
    call->server->n_held += call->n_received;
    if (!strcmp(call->route->method, "GET") && !call->route->waits) {
        call->route->handle(call);
        call_send_reply(call);
        return;
    }
    const size_t per_byte = call->route->tells_tokens ? TOKENS_COST : TEXT_COST;
    if (!server_charge(call->server, &call->charge,
                       body_cost(call->body ? call->body : "", call->n_body, per_byte))) {
        refuse_memory(call);
        return;
    }
    call->job.work = work_on_call;
    call->job.done = call_worked;
    call->is_working = true;
    call_hold(call);
    if (workers_add(call->server->workers, &call->job)) return;
    call->is_working = false;
    call_release(call);
    serve_refuse(&e, 503, NULL, "too many requests are waiting to be read");
    e.retry_after = 1;
    call_send_error(call, &e);
}
