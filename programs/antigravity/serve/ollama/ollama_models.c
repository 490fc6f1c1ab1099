/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about models in ollama's API. There are no digests and no Modelfiles. */
#include "../../support/json_out.h"
#include "../job/infill.h"
#include "../protocol/fields.h"
#include "../threads/account.h"
#include "ollama.h"

#include <antigravity/serving.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Returns "llama" for "LlamaForCausalLM". */
static json_t *family_name(const ag_model_info *info) {
    const char *end = strstr(info->architecture, "For");
    char name[sizeof info->architecture];
    size_t n = end ? (size_t)(end - info->architecture) : strlen(info->architecture);
    for (size_t i = 0; i < n; i++) name[i] = (char)tolower((unsigned char)info->architecture[i]);
    return json_stringn(name, n);
}

static json_t *model_details(const ag_model_info *info) {
    char size[32], type[32];
    double n = (double)info->n_parameters;
    snprintf(size, sizeof size, n >= 1e9 ? "%.1fB" : "%.1fM", n >= 1e9 ? n / 1e9 : n / 1e6);
    snprintf(type, sizeof type, "%s", ag_dtype_name(info->file_type));
    for (char *c = type; *c; c++) *c = (char)toupper((unsigned char)*c);
    return JSON_OBJECT({"parent_model", json_string("")}, {"format", json_string("")},
                       {"family", family_name(info)}, {"families", json_list_of(family_name(info))},
                       {"parameter_size", json_string(size)},
                       {"quantization_level", json_string(type)});
}

static uint32_t context_length(const ag_served_model *m) {
    return ag_served_model_session(m)->max_seq_len;
}

static json_t *model_entry(serve_http_request *http, const char *name, const ag_served_model *m) {
    const ag_model_info *info = ag_served_model_info(m);
    char started[32];
    ollama_time(started, (double)http_server_started(http));
    const json_field fields[] = {
        {"name", json_text(name, strlen(name))},
        {"model", json_text(name, strlen(name))},
        {"modified_at", json_string(started)},
        {"size", json_integer(info->file_bytes)},
        {"digest", json_string("")},
        {"details", model_details(info)},
        {"context_length", json_integer(context_length(m))},
    };
    return JSON_FIELDS(fields);
}

/* Lists each model under all of its names. */
static json_t *model_list(serve_http_request *http) {
    size_t n;
    const char *const *names = http_model_names(http, &n);
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        json_append(&list,
                    model_entry(http, names[i], ag_serving_model(http_serving(http), names[i])));
    return list;
}

void ollama_tags(serve_http_request *http) {
    http_reply_json(http, 200, JSON_OBJECT({"models", model_list(http)}));
}

typedef struct loaded_models {
    serve_http_request *http;
    json_t *list;
} loaded_models;

static bool has_name(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *listed = json_object_get(json_array_get(list, i), "name");
        if (strcmp(json_string_value(listed), name) == 0) return true;
    }
    return false;
}

static bool add_loaded(void *user, const ag_resident_session *h) {
    loaded_models *loaded = user;
    if (strcmp(h->scope ? h->scope : "", http_scope(loaded->http)) != 0) return true;
    const ag_served_model *m = ag_serving_model(http_serving(loaded->http), h->model);
    if (!m || has_name(loaded->list, h->model)) return true;
    json_append(&loaded->list, model_entry(loaded->http, h->model, m));
    return loaded->list != NULL;
}

/* Lists the models of this client's resident sessions. They do not expire. */
void ollama_ps(serve_http_request *http) {
    loaded_models loaded = {.http = http, .list = json_array()};
    if (loaded.list) ag_serving_each_session(http_serving(http), add_loaded, &loaded);
    http_reply_json(http, 200, JSON_OBJECT({"models", loaded.list}));
}

void ollama_version(serve_http_request *http) {
    http_reply_json(http, 200, JSON_OBJECT({"version", json_string(AG_VERSION_STRING)}));
}

static json_t *capability_list(const ag_served_model *m) {
    const ag_chat_format *format = ag_served_model_format(m);
    uint32_t features = format ? ag_chat_format_features(format) : 0;
    json_t *list = json_array();
    json_append(&list, json_string("completion"));
    if (features & AG_CHAT_TOOLS) json_append(&list, json_string("tools"));
    if (features & (AG_CHAT_REASONING | AG_CHAT_THINKING_SWITCH | AG_CHAT_OPENS_REASONING))
        json_append(&list, json_string("thinking"));
    const ag_tokenizer *t = ag_served_model_tokenizer(m);
    if (t && infill_is_supported(t)) json_append(&list, json_string("insert"));
    json_append(&list, json_string("embedding"));
    return list;
}

static json_t *model_info(const ag_served_model *m) {
    const ag_model_info *info = ag_served_model_info(m);
    const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {
        {"context_length", context_length(m)},
        {"embedding_length", info->hidden_size},
        {"block_count", info->n_layers},
        {"attention.head_count", info->n_heads},
        {"attention.head_count_kv", info->n_kv_heads},
        {"vocab_size", info->n_vocab},
    };
    json_t *family = family_name(info);
    const char *prefix = json_string_value(family);
    json_t *fields = JSON_OBJECT({"general.architecture", json_incref(family)},
                                 {"general.parameter_count", json_integer(info->n_parameters)});
    for (size_t i = 0; prefix && i < sizeof numbers / sizeof numbers[0]; i++) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", prefix, numbers[i].name);
        fields = JSON_ADD(fields, {key, json_integer(numbers[i].value)});
    }
    json_decref(family);
    return fields;
}

/* Returns the model that the body names, or NULL with *e. */
static const ag_served_model *named_model(const serve_http_request *http, serve_error *e) {
    const char *name = NULL;
    const json_t *body = http_body(http);
    if (!field_string(body, "model", &name, e) || (!name && !field_string(body, "name", &name, e)))
        return NULL;
    char *known = name ? ollama_model_name(http, name) : NULL;
    const ag_served_model *m = NULL;
    if (name && !known) reject_no_memory(e);
    else m = http_model(http, known, e);
    account_free(known);
    return m;
}

void ollama_show(serve_http_request *http) {
    serve_error e;
    const ag_served_model *m = named_model(http, &e);
    if (!m) {
        http_reply_error(http, &e);
        return;
    }
    char started[32];
    ollama_time(started, (double)http_server_started(http));
    const json_field fields[] = {
        {"modelfile", json_string("")},
        {"parameters", json_string("")},
        {"template", json_string("")},
        {"modified_at", json_string(started)},
        {"details", model_details(ag_served_model_info(m))},
        {"model_info", model_info(m)},
        {"capabilities", capability_list(m)},
    };
    http_reply_json(http, 200, JSON_FIELDS(fields));
}

void ollama_reject(serve_http_request *http) {
    serve_error e;
    reject_request(
        &e, 403, NULL,
        "models cannot be changed through this server; start it with the models to serve");
    http_reply_error(http, &e);
}
