/* SPDX-License-Identifier: Apache-2.0 */
/* GET /props and /slots, with which llama.cpp's clients begin. */
#include "../../support/json_out.h"
#include "../request/http_request.h"
#include "../request/routes.h"
#include "llama_completion.h"

#include <string.h>

/* ---- /props ---- */

/* Returns the values that kv_policy of a request may have, an extension of this server. */
static json_t *policy_names(void) {
    json_t *list = json_array();
    const ag_eviction_policy *p;
    for (size_t i = 0; list && (p = ag_eviction_policy_at(i)); i++)
        json_append(&list, json_string(p->name));
    return list;
}

static void reply_props(serve_http_request *http) {
    serve_error e;
    const ag_served_model *m = http_model(http, NULL, &e);
    if (!m) {
        http_reply_error(http, &e);
        return;
    }
    const char *name = ag_served_model_name(m);
    http_reply_json(
        http, 200,
        JSON_OBJECT(
            {"default_generation_settings",
             JSON_OBJECT({"n_ctx", json_integer(ag_served_model_session(m)->max_seq_len)},
                         {"params", JSON_ADD(llama_sampling_object(ag_served_model_sampling(m)),
                                             {"n_predict", json_integer(-1)})})},
            {"total_slots", json_integer(http->server->settings->max_running)},
            {"model_alias", json_text(name, strlen(name))},
            {"modalities", JSON_OBJECT({"vision", json_false()}, {"audio", json_false()})},
            {"build_info", json_string("antigravity " AG_VERSION_STRING)},
            {"kv_policies", policy_names()}));
}

/* ---- /slots ---- */

/* This server has no slots. Reports one for each request that may run at a time, the running ones
 * first. */
static void reply_slots(serve_http_request *http) {
    ag_serving_stats s;
    serve_error e;
    ag_serving_get_stats(http_serving(http), &s);
    const uint32_t n = http->server->settings->max_running;
    const ag_served_model *m = http_model(http, NULL, &e);
    if (!m) {
        http_reply_error(http, &e);
        return;
    }
    const ag_session_params *p = ag_served_model_session(m);
    if (s.n_running >= n && strstr(http_query(http), "fail_on_no_slot=1")) {
        reject_request(&e, 503, NULL, "all %u slots are busy", n);
        http_reply_error(http, &e);
        return;
    }
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++) {
        json_append(&list,
                    JSON_OBJECT({"id", json_integer(i)}, {"n_ctx", json_integer(p->max_seq_len)},
                                {"speculative", json_false()},
                                {"is_processing", json_boolean(i < s.n_running)}));
    }
    http_reply_json(http, 200, list);
}

const serve_route llama_state_routes[] = {
    {"GET", "/props", .handle = reply_props, .model_optional = true},
    {"GET", "/slots", .handle = reply_slots, .model_optional = true},
    {0},
};
