/* SPDX-License-Identifier: Apache-2.0 */
/* GET /props and /slots, with which llama.cpp's clients begin. */
#include "../../support/json_out.h"
#include "../request/http_request.h"
#include "../request/routes.h"

#include <string.h>

/* ---- /props ---- */

static json_t *sampling_object(const ag_served_model *m) {
    const ag_sampler_params *s = ag_served_model_sampling(m);
    const json_field fields[] = {
        {"temperature", json_float(s->temperature)},
        {"top_k", json_integer(s->top_k)},
        {"top_p", json_float(s->top_p)},
        {"min_p", json_float(s->min_p)},
        {"typical_p", json_float(s->typical_p)},
        {"top_n_sigma", json_float(s->top_n_sigma)},
        {"xtc_probability", json_float(s->xtc_probability)},
        {"xtc_threshold", json_float(s->xtc_threshold)},
        {"dynatemp_range", json_float(s->dynamic_range)},
        {"dynatemp_exponent", json_float(s->dynamic_exponent)},
        {"dry_multiplier", json_float(s->dry_multiplier)},
        {"dry_base", json_float(s->dry_base)},
        {"dry_allowed_length", json_integer(s->dry_allowed_length)},
        {"dry_penalty_last_n", json_integer(s->dry_window)},
        {"repeat_penalty", json_float(s->repetition_penalty)},
        {"repeat_last_n", json_integer(s->repetition_window)},
        {"presence_penalty", json_float(s->presence_penalty)},
        {"frequency_penalty", json_float(s->frequency_penalty)},
        {"n_predict", json_integer(-1)},
    };
    return JSON_FIELDS(fields);
}

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
        JSON_OBJECT({"default_generation_settings",
                     JSON_OBJECT({"n_ctx", json_integer(ag_served_model_session(m)->max_seq_len)},
                                 {"params", sampling_object(m)})},
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
