/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics, in the text format of Prometheus. */
#include "../request/http_request.h"
#include "../request/routes.h"
#include "../threads/account.h"
#include "../threads/account_text.h"

#include <inttypes.h>
#include <string.h>

#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

/* A counter if the name ends in "_total", else a gauge. */
typedef struct metric {
    const char *name, *help;
    double value;
} metric;

static bool is_counter(const char *name) {
    static const char end[] = "_total";
    const size_t n = strlen(name), n_end = sizeof end - 1;
    return n > n_end && !strcmp(name + n - n_end, end);
}

static bool add_metrics(ag_text *m, const metric *rows, size_t n) {
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        const metric *r = &rows[i];
        ok = account_text_printf(m,
                                 "# HELP antigravity_%s %s\n# TYPE antigravity_%s %s\n"
                                 "antigravity_%s %.17g\n",
                                 r->name, r->help, r->name,
                                 is_counter(r->name) ? "counter" : "gauge", r->name, r->value);
    }
    return ok;
}

static bool add_requests(ag_text *m, const server *s) {
    bool ok = account_text_printf(
        m, "# HELP antigravity_http_responses_total Requests that have ended, by status.\n"
           "# TYPE antigravity_http_responses_total counter\n");
    for (size_t class = 2; ok && class <= 5; class ++)
        ok =
            account_text_printf(m, "antigravity_http_responses_total{code=\"%zuxx\"} %" PRIu64 "\n",
                                class, s->counts.n_by_class[class]);
    const metric rows[] = {
        {"http_streams_total", "Responses that were streams.", s->counts.n_streams},
        {"http_gone_total", "Responses whose client left before the end.", s->counts.n_gone},
        {"http_connections", "Connections that are open.", connection_count(s->connections)},
        {"http_connections_evicted_total", "Waiting connections closed for a new one.",
         connection_n_evicted(s->connections)},
        {"http_connections_rejected_total", "New connections closed because a limit was reached.",
         connection_n_rejected(s->connections)},
        {"http_requests", "Requests that have not ended.", s->n_requests},
    };
    return ok && add_metrics(m, rows, COUNT(rows));
}

static bool add_engine(ag_text *m, const ag_serving_stats *s) {
    const metric rows[] = {
        {"requests_running", "Requests that the engine runs.", s->n_running},
        {"requests_waiting", "Requests in the engine's queue.", s->n_waiting},
        {"sessions_parked", "Sessions cached for later requests.", s->n_prefix_entries},
        {"requests_total", "Requests to the engine.", s->n_requests},
        {"requests_refused_total", "Requests that the engine rejected.", s->n_refused},
        {"requests_cancelled_total", "Requests that were cancelled.", s->n_cancelled},
        {"requests_failed_total", "Requests that failed.", s->n_failed},
        {"prompt_tokens_total", "Tokens of prompts, cached ones included.", s->n_prompt_tokens},
        {"cached_tokens_total", "Tokens of prompts reused from cached sessions.",
         s->n_cached_tokens},
        {"generated_tokens_total", "Tokens of answers.", s->n_generated_tokens},
        {"steps_total", "Passes over the weights.", s->n_steps},
        {"rows_total", "Rows of these passes.", s->n_rows},
        {"busy_seconds_total", "Time in which the engine computed.", s->busy_s},
    };
    return add_metrics(m, rows, COUNT(rows));
}

static bool add_memory(ag_text *m, const server *srv, const ag_serving_stats *s) {
    const metric rows[] = {
        {"memory_limit_bytes", "The memory limit; 0: none.", s->memory_limit},
        {"memory_used_bytes", "Memory that the limit counts.", s->memory_used},
        {"memory_peak_bytes", "Maximum of the used memory.", s->memory_peak},
        {"models_loaded", "Models whose weights are in memory.", s->n_models_loaded},
        {"weight_bytes", "Weights of the models in memory.", s->weight_bytes},
        {"kv_bytes", "KV caches of running requests.", s->kv_bytes},
        {"parked_bytes", "KV caches of cached sessions.", s->prefix_bytes},
        {"workspace_bytes", "Activations.", s->workspace_bytes},
        {"device_bytes", "Buffers of a device.", s->device_bytes},
        {"server_bytes", "Connections and requests.", atomic_load(srv->settings->bytes)},
        {"file_bytes", "Resident pages of files, which the limit does not count.", s->file_bytes},
        {"prefix_files_written_total", "Sessions written to --prefix-dir.", s->n_prefix_written},
        {"prefix_files_read_total", "Sessions read from --prefix-dir.", s->n_prefix_read},
        {"prefix_files_failed_total", "Sessions that could not be written or read; see the log.",
         s->n_prefix_failed},
        {"replays_total", "Cached sessions that a replay compressed.", s->n_replays},
        {"replays_failed_total", "Replays that failed; see the log.", s->n_replays_failed},
        {"replay_bytes_total", "Memory freed by replays.", s->replay_bytes},
    };
    return add_metrics(m, rows, COUNT(rows));
}

static void reply_metrics(serve_http_request *http) {
    ag_serving_stats s;
    ag_text m = {0};
    ag_serving_get_stats(http_serving(http), &s);
    const metric start = {"start_time_seconds", "When the server began, since 1970.",
                          http_server_started(http)};
    const bool ok = add_requests(&m, http->server) && add_engine(&m, &s) &&
                    add_memory(&m, http->server, &s) && add_metrics(&m, &start, 1);
    if (ok) http_reply_text(http, 200, "text/plain; version=0.0.4; charset=utf-8", m.data, m.len);
    else http_reply_json(http, 503, NULL);
    account_free(m.data);
}

const serve_route metrics_routes[] = {
    {"GET", "/metrics", .handle = reply_metrics},
    {0},
};
