/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/models and /v1/models/NAME, as OpenAI has them. With a header anthropic-version they are
 * as Anthropic has them. */
#include "../../support/json_out.h"
#include "../request/routes.h"
#include "../system.h"

#include <string.h>

/* Returns the other names of the model. */
static json_t *alias_list(const serve_http_request *http, const ag_served_model *m) {
    json_t *list = json_array();
    const model_list *models = http_models(http);
    for (const model_entry *e = NULL; list && (e = model_list_next(models, e));)
        if (e->kind == MODEL_ALIAS && e->model == m)
            json_append(&list, json_text(e->name, strlen(e->name)));
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

static json_t *model_object(const serve_http_request *http, const model_entry *e,
                            const char *name) {
    if (http_is_anthropic(http)) return anthropic_model(http, name);
    const ag_model_info *info = ag_served_model_info(e->model);
    const ag_session_params *session = ag_served_model_session(e->model);
    const json_field fields[] = {
        {"id", json_text(name, strlen(name))},
        {"object", json_string("model")},
        {"created", json_integer(http_server_started(http))},
        {"owned_by", json_string("antigravity")},
        /* Clients read the context size under either name. */
        {"context_length", json_integer(session->max_seq_len)},
        {"max_model_len", json_integer(session->max_seq_len)},
        {"aliases", alias_list(http, e->model)},
        {"meta", JSON_OBJECT({"n_vocab", json_integer(info->n_vocab)},
                             {"n_ctx_train", json_integer(info->max_positions)},
                             {"n_embd", json_integer(info->hidden_size)})},
    };
    return JSON_FIELDS(fields);
}

/* Returns the name as JSON, null without an entry. */
static json_t *name_of(const model_entry *e) {
    return e ? json_text(e->name, strlen(e->name)) : json_null();
}

static void list_models(serve_http_request *http) {
    const model_list *models = http_models(http);
    const model_entry *first = model_list_next_shown(models, NULL), *last = NULL;
    json_t *data = json_array();
    for (const model_entry *e = first; data && e; e = model_list_next_shown(models, e)) {
        json_append(&data, model_object(http, e, e->name));
        last = e;
    }
    if (http_is_anthropic(http)) {
        http_reply_json(http, 200,
                        JSON_OBJECT({"data", data}, {"has_more", json_false()},
                                    {"first_id", name_of(first)}, {"last_id", name_of(last)}));
        return;
    }
    http_reply_json(http, 200, JSON_OBJECT({"object", json_string("list")}, {"data", data}));
}

static void show_model(serve_http_request *http) {
    serve_error e;
    const char *name = http_path_tail(http);
    const model_entry *found = model_list_find(http_models(http), name);
    if (found) {
        http_reply_json(http, 200, model_object(http, found, name));
        return;
    }
    reject_request(&e, 404, "model", "model '%.200s' not found; /v1/models lists the models", name);
    e.code = "model_not_found";
    http_reply_error(http, &e);
}

const serve_route model_routes[] = {
    {"GET", "/v1/models", .handle = list_models},
    {"GET", "/v1/models/*", .handle = show_model},
    {"GET", "/models", .handle = list_models},
    {0},
};
