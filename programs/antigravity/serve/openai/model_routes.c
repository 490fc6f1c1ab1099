/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/models and /v1/models/NAME. */
#include "../../support/json_out.h"
#include "../request/routes.h"

#include <string.h>

static json_t *model_object(const serve_http_request *http, const char *name) {
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
        {"meta", JSON_OBJECT({"n_vocab", json_integer(info->n_vocab)},
                             {"n_ctx_train", json_integer(info->max_positions)},
                             {"n_embd", json_integer(info->hidden_size)})},
    };
    return JSON_FIELDS(fields);
}

static void list_models(serve_http_request *http) {
    size_t n;
    const char *const *names = http_model_names(http, &n);
    json_t *data = json_array();
    for (size_t i = 0; data && i < n; i++) json_append(&data, model_object(http, names[i]));
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
