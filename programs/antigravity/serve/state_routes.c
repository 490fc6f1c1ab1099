/* SPDX-License-Identifier: Apache-2.0 */
/* GET /health, /metrics and /v1/kv: what the server is doing. */
#include "routes.h"

#include "../json_out.h"
#include "call.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- /health ---- */

/* It needs no key: figures of the whole alone, no name and nothing of a conversation. */

static void reply_health(serve_call *call) {
    ag_serving_stats s;
    ag_serving_get_stats(call_serving(call), &s);
    const bool stops = call->server->n_stops > 0;
    const json_field memory[] = {
        {"used", json_integer((json_int_t)s.memory_used)},
        {"limit", s.memory_limit ? json_integer((json_int_t)s.memory_limit) : json_null()},
    };
    const json_field models[] = {
        {"served", json_integer((json_int_t)ag_serving_n_models(call_serving(call)))},
        {"loaded", json_integer((json_int_t)s.n_models_loaded)},
    };
    const json_field fields[] = {
        {"status", json_string(stops ? "stopping" : "ok")},
        {"running", json_integer(s.n_running)},
        {"waiting", json_integer(s.n_waiting)},
        {"memory", json_object_of(memory, 2)},
        {"models", json_object_of(models, 2)},
    };
    call_reply_json(call, stops ? 503 : 200, json_object_of(fields, 5));
}

/* ---- /metrics ---- */

typedef struct metrics_text {
    char *data;
    size_t len, cap;
} metrics_text;

static void add_line(metrics_text *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add_line(metrics_text *m, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (m->len < m->cap) {
        const int n = vsnprintf(m->data + m->len, m->cap - m->len, fmt, args);
        if (n > 0) m->len += (size_t)n;
    }
    va_end(args);
}

/* A figure by itself. */
static void add_metric(metrics_text *m, const char *name, const char *type, const char *help,
                       double value) {
    add_line(m, "# HELP antigravity_%s %s\n# TYPE antigravity_%s %s\nantigravity_%s %.17g\n", name,
             help, name, type, name, value);
}

static void add_requests(metrics_text *m, const server *s) {
    add_line(m, "# HELP antigravity_http_responses_total Requests that are over, by status.\n"
                "# TYPE antigravity_http_responses_total counter\n");
    for (size_t class = 2; class <= 5; class ++)
        add_line(m, "antigravity_http_responses_total{code=\"%zuxx\"} %" PRIu64 "\n", class,
                 s->counts.n_by_class[class]);
    add_metric(m, "http_streams_total", "counter", "Responses that were streams.",
               (double)s->counts.n_streams);
    add_metric(m, "http_gone_total", "counter", "Responses that the client did not wait for.",
               (double)s->counts.n_gone);
    add_metric(m, "http_connections", "gauge", "Connections that are open.",
               (double)connection_count(s->connections));
    add_metric(m, "http_requests", "gauge", "Requests that are not over.", (double)s->n_calls);
}

static void add_engine(metrics_text *m, const ag_serving_stats *s) {
    add_metric(m, "requests_running", "gauge", "Requests in the steps of the engine.",
               s->n_running);
    add_metric(m, "requests_waiting", "gauge", "Requests in its queue.", s->n_waiting);
    add_metric(m, "sessions_parked", "gauge", "Conversations kept for those that go on.",
               s->n_parked);
    add_metric(m, "requests_total", "counter", "Requests to the engine.", (double)s->n_requests);
    add_metric(m, "requests_refused_total", "counter", "Requests that it refused.",
               (double)s->n_refused);
    add_metric(m, "requests_cancelled_total", "counter", "Requests that were cancelled.",
               (double)s->n_cancelled);
    add_metric(m, "requests_failed_total", "counter", "Requests that failed.", (double)s->n_failed);
    add_metric(m, "prompt_tokens_total", "counter", "Tokens of prompts, cached ones included.",
               (double)s->n_prompt_tokens);
    add_metric(m, "cached_tokens_total", "counter", "Tokens of prompts that were not read again.",
               (double)s->n_cached_tokens);
    add_metric(m, "generated_tokens_total", "counter", "Tokens of answers.",
               (double)s->n_generated_tokens);
    add_metric(m, "steps_total", "counter", "Passes over the weights.", (double)s->n_steps);
    add_metric(m, "rows_total", "counter", "Tokens in these passes.", (double)s->n_rows);
    add_metric(m, "busy_seconds_total", "counter", "Time in which the engine computed.", s->busy_s);
}

static void add_memory(metrics_text *m, const ag_serving_stats *s) {
    add_metric(m, "memory_limit_bytes", "gauge", "The limit; 0: none.", (double)s->memory_limit);
    add_metric(m, "memory_used_bytes", "gauge", "What the limit is about.", (double)s->memory_used);
    add_metric(m, "memory_peak_bytes", "gauge", "The most that it has been.",
               (double)s->memory_peak);
    add_metric(m, "models_loaded", "gauge", "Models whose weights are in memory.",
               (double)s->n_models_loaded);
    add_metric(m, "weight_bytes", "gauge", "Weights of the models in memory.",
               (double)s->weight_bytes);
    add_metric(m, "kv_bytes", "gauge", "Caches of running requests.", (double)s->kv_bytes);
    add_metric(m, "parked_bytes", "gauge", "Caches of parked conversations.",
               (double)s->parked_bytes);
    add_metric(m, "workspace_bytes", "gauge", "Activations.", (double)s->workspace_bytes);
    add_metric(m, "device_bytes", "gauge", "Buffers of a device.", (double)s->device_bytes);
    add_metric(m, "server_bytes", "gauge", "Connections and texts on their way.",
               (double)s->caller_bytes);
    add_metric(m, "file_bytes", "gauge", "Resident pages of files, which no limit counts.",
               (double)s->file_bytes);
    add_metric(m, "prefix_files_written_total", "counter", "Conversations written to --prefix-dir.",
               (double)s->n_prefix_written);
    add_metric(m, "prefix_files_read_total", "counter", "Conversations read from there.",
               (double)s->n_prefix_read);
    add_metric(m, "prefix_files_failed_total", "counter", "Such as could not be: the log says why.",
               (double)s->n_prefix_failed);
}

static void reply_metrics(serve_call *call) {
    enum { MOST = 16384 };
    ag_serving_stats s;
    metrics_text m = {.data = malloc(MOST), .cap = MOST};
    if (!m.data) {
        call_reply_json(call, 503, NULL);
        return;
    }
    ag_serving_get_stats(call_serving(call), &s);
    add_requests(&m, call->server);
    add_engine(&m, &s);
    add_memory(&m, &s);
    add_metric(&m, "start_time_seconds", "gauge", "When the server began, since 1970.",
               (double)call_started(call));
    call_reply_text(call, 200, "text/plain; version=0.0.4; charset=utf-8", m.data, m.len);
    free(m.data);
}

/* ---- /v1/kv ---- */

typedef struct held_list {
    json_t *list;
    const char *scope;
} held_list;

static bool add_held(void *user, const ag_held_session *h) {
    held_list *l = user;
    if (strcmp(h->scope ? h->scope : "", l->scope) != 0) return true;
    const json_field fields[] = {
        {"id", json_integer((json_int_t)h->id)},
        {"model", json_text(h->model, strlen(h->model))},
        {"state", json_string(h->is_running ? "running" : "parked")},
        {"tokens", json_integer(h->n_tokens)},
        {"slots", json_integer(h->n_slots)},
        {"evicted", json_integer((json_int_t)h->n_evicted)},
        {"policy", h->policy ? json_string(h->policy) : json_null()},
        {"bytes", json_integer((json_int_t)h->kv_bytes)},
        {"shared_bytes", json_integer((json_int_t)h->shared_bytes)},
        {"idle_seconds", json_real(h->idle_s)},
    };
    json_append(&l->list, json_object_of(fields, sizeof fields / sizeof fields[0]));
    return l->list != NULL;
}

static void reply_kv(serve_call *call) {
    ag_serving_stats s;
    held_list held = {json_array(), call_scope(call)};
    if (held.list) ag_serving_each_session(call_serving(call), add_held, &held);
    ag_serving_get_stats(call_serving(call), &s);
    const json_field memory[] = {
        {"limit", json_integer((json_int_t)s.memory_limit)},
        {"used", json_integer((json_int_t)s.memory_used)},
        {"peak", json_integer((json_int_t)s.memory_peak)},
    };
    const json_field fields[] = {
        {"object", json_string("list")},
        {"data", held.list},
        {"memory", json_object_of(memory, 3)},
    };
    call_reply_json(call, 200, json_object_of(fields, 3));
}

static const serve_route state_paths[] = {
    {.method = "GET", .path = "/health", .handle = reply_health},
    {.method = "GET", .path = "/v1/health", .handle = reply_health},
    {.method = "GET", .path = "/metrics", .handle = reply_metrics, .needs_key = true},
    {.method = "GET", .path = "/v1/kv", .handle = reply_kv, .needs_key = true},
};

const serve_route_list state_routes = {state_paths, sizeof state_paths / sizeof state_paths[0]};
