/* SPDX-License-Identifier: Apache-2.0 */
/* GET /health and /v1/kv. */
#include "../../support/json_out.h"
#include "../request/http_request.h"
#include "../request/routes.h"
#include "../system.h"

#include <string.h>

/* ---- /health ---- */

/* Needs no key: the reply has totals only, no names and no text. */

static void reply_health(serve_http_request *http) {
    ag_serving_stats s;
    ag_serving_get_stats(http_serving(http), &s);
    const bool is_stopping = http->server->n_stops > 0;
    http_reply_json(
        http, is_stopping ? 503 : 200,
        JSON_OBJECT({"status", json_string(is_stopping ? "stopping" : "ok")},
                    {"running", json_integer(s.n_running)}, {"waiting", json_integer(s.n_waiting)},
                    {"memory", JSON_OBJECT({"used", json_integer(s.memory_used)},
                                           {"limit", s.memory_limit ? json_integer(s.memory_limit)
                                                                    : json_null()})},
                    {"models",
                     JSON_OBJECT({"served", json_integer(ag_serving_n_models(http_serving(http)))},
                                 {"loaded", json_integer(s.n_models_loaded)})}));
}

/* ---- /v1/kv ---- */

typedef struct session_list {
    json_t *list;
    const char *scope;
} session_list;

static bool add_session(void *user, const ag_resident_session *h) {
    session_list *l = user;
    if (strcmp(h->scope ? h->scope : "", l->scope) != 0) return true;
    const json_field fields[] = {
        {"id", json_integer(h->id)},
        {"model", json_text(h->model, strlen(h->model))},
        {"state", json_string(h->is_running ? "running" : "parked")},
        {"tokens", json_integer(h->n_tokens)},
        {"slots", json_integer(h->n_slots)},
        {"evicted", json_integer(h->n_evicted)},
        {"policy", h->policy ? json_string(h->policy) : json_null()},
        {"bytes", json_integer(h->kv_bytes)},
        {"shared_bytes", json_integer(h->shared_bytes)},
        {"idle_seconds", json_real(h->idle_s)},
    };
    json_append(&l->list, JSON_FIELDS(fields));
    return l->list != NULL;
}

static void reply_kv(serve_http_request *http) {
    ag_serving_stats s;
    session_list sessions = {json_array(), http_scope(http)};
    if (sessions.list) ag_serving_each_session(http_serving(http), add_session, &sessions);
    ag_serving_get_stats(http_serving(http), &s);
    http_reply_json(
        http, 200,
        JSON_OBJECT(
            {"object", json_string("list")}, {"data", sessions.list},
            {"memory", JSON_OBJECT({"limit", json_integer(s.memory_limit)},
                                   {"machine", json_integer((json_int_t)system_memory_bytes())},
                                   {"used", json_integer(s.memory_used)},
                                   {"peak", json_integer(s.memory_peak)})}));
}

/* ---- /presets ---- */

static void reply_presets(serve_http_request *http) {
    http_reply_json(http, 200,
                    JSON_OBJECT({"data", serve_presets_list(http->server->settings->presets)}));
}

const serve_route state_routes[] = {
    {"GET", "/presets", .handle = reply_presets},
    {"GET", "/health", .handle = reply_health, .is_public = true},
    {"GET", "/v1/health", .handle = reply_health, .is_public = true},
    {"GET", "/v1/kv", .handle = reply_kv},
    {0},
};
