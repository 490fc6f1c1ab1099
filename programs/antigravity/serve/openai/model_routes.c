/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/models and /v1/models/NAME, as OpenAI has them. With a header anthropic-version they are
 * as Anthropic has them. */
#include "../../support/json_out.h"
#include "../request/routes.h"
#include "../system.h"

#include <string.h>

/* Returns the other names of the model. */
static json_t *alias_list(const serve_http_request *http, const ag_served_model *m) {
    size_t n;
    const char *const *names = http_model_names(http, &n);
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        if (ag_serving_model(http_serving(http), names[i]) == m &&
            strcmp(names[i], ag_served_model_name(m)) != 0)
            json_append(&list, json_text(names[i], strlen(names[i])));
    return list;
}

static json_t *anthropic_model(const serve_http_request *http, const char *name) {
    char started[32];
    system_format_time(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ",
                       (double)http_server_started(http));
    return JSON_OBJECT({"type", json_string("model")}, {"id", json_text(name, strlen(name))},
                       {"display_name", json_text(name, strlen(name))},
                       {"created_at", json_string(started)});
}

static json_t *model_object(const serve_http_request *http, const char *name) {
    if (http_is_anthropic(http)) return anthropic_model(http, name);
    const ag_served_model *m = ag_serving_model(http_serving(http), name);
    const ag_model_info *info = ag_served_model_info(m);
    const ag_session_params *session = ag_served_model_session(m);
    const json_field fields[] = {
        {"id", json_text(name, strlen(name))},
        {"object", json_string("model")},
        {"created", json_integer(http_server_started(http))},
        {"owned_by", json_string("antigravity")},
        /* Clients read the context size under either name. */
        {"context_length", json_integer(session->max_seq_len)},
        {"max_model_len", json_integer(session->max_seq_len)},
        {"aliases", alias_list(http, m)},
        {"meta", JSON_OBJECT({"n_vocab", json_integer(info->n_vocab)},
                             {"n_ctx_train", json_integer(info->max_positions)},
                             {"n_embd", json_integer(info->hidden_size)})},
    };
    return JSON_FIELDS(fields);
}

static void list_models(serve_http_request *http) {
    ag_serving *s = http_serving(http);
    const size_t n = ag_serving_n_models(s);
    json_t *data = json_array();
    for (size_t i = 0; data && i < n; i++)
        json_append(&data, model_object(http, ag_served_model_name(ag_serving_model_at(s, i))));
    if (http_is_anthropic(http)) {
        const char *first = ag_served_model_name(ag_serving_model_at(s, 0)),
                   *last = ag_served_model_name(ag_serving_model_at(s, n - 1));
        http_reply_json(http, 200,
                        JSON_OBJECT({"data", data}, {"has_more", json_false()},
                                    {"first_id", json_text(first, strlen(first))},
                                    {"last_id", json_text(last, strlen(last))}));
        return;
    }
    http_reply_json(http, 200, JSON_OBJECT({"object", json_string("list")}, {"data", data}));
}

static void show_model(serve_http_request *http) {
    serve_error e;
    const char *name = http_path_tail(http);
    if (!ag_serving_model(http_serving(http), name)) {
        reject_request(&e, 404, "model", "model '%.200s' not found; /v1/models lists the models",
                       name);
        e.code = "model_not_found";
        http_reply_error(http, &e);
        return;
    }
    http_reply_json(http, 200, model_object(http, name));
}

const serve_route model_routes[] = {
    {"GET", "/v1/models", .handle = list_models},
    {"GET", "/v1/models/*", .handle = show_model},
    {"GET", "/models", .handle = list_models},
    {0},
};
