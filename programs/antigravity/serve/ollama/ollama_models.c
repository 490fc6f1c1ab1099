/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about models in ollama's API. There are no Modelfiles. */
#include "../../support/json_out.h"
#include "../job/infill.h"
#include "../system.h"
#include "../threads/account.h"
#include "ollama.h"

#include <antigravity/serving.h>
#include <ctype.h>
#include <math.h>
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
    snprintf(type, sizeof type, "%s", info->file_type_name);
    for (char *c = type; *c; c++) *c = (char)toupper((unsigned char)*c);
    return JSON_OBJECT({"parent_model", json_string("")},
                       {"format", json_string("gguf")}, /* clients know no other */
                       {"family", family_name(info)}, {"families", json_list_of(family_name(info))},
                       {"parameter_size", json_string(size)},
                       {"quantization_level", json_string(type)});
}

static uint32_t context_length(const ag_served_model *m) {
    return ag_served_model_session(m)->max_seq_len;
}

/* Returns the name with a tag, as clients expect it. */
static json_t *tagged_name(const model_entry *e) {
    return json_sprintf("%s%s", e->name, strchr(e->name, ':') ? "" : ":latest");
}

static json_t *describe_entry(model_list *l, const model_entry *e) {
    const ag_model_info *info = ag_served_model_info(e->model);
    char changed[32], digest[SHA256_HEX];
    model_list_digest(l, e, digest);
    ollama_time(changed, e->changed_at);
    const json_field fields[] = {
        {"name", tagged_name(e)},
        {"model", tagged_name(e)},
        {"modified_at", json_string(changed)},
        {"size", json_integer(info->file_bytes)},
        {"digest", json_string(digest)},
        {"details", model_details(info)},
        {"context_length", json_integer(context_length(e->model))},
    };
    return JSON_FIELDS(fields);
}

void ollama_tags(serve_http_request *http) {
    json_t *list = json_array();
    model_list *models = http_models(http);
    for (const model_entry *e = NULL; list && (e = model_list_next_shown(models, e));)
        json_append(&list, describe_entry(models, e));
    http_reply_json(http, 200, JSON_OBJECT({"models", list}));
}

/* Returns when the weights are freed. Clients show a time that is decades away as "Forever". */
static json_t *expiry_time(const ag_served_model *m) {
    const double hundred_years = 100 * 365.25 * 86400;
    char text[32];
    ollama_time(text, system_wall_clock() + fmin(ag_served_model_expires_in(m), hundred_years));
    return json_string(text);
}

static json_t *loaded_entry(const serve_http_request *http, const model_entry *e) {
    ag_serving_stats stats;
    const ag_served_model *m = e->model;
    json_t *entry = describe_entry(http_models(http), e);
    ag_serving_get_stats(http_serving(http), &stats);
    const uint64_t on_device = stats.device_bytes ? ag_served_model_info(m)->file_bytes : 0;
    if (json_object_set_new(entry, "expires_at", expiry_time(m)) == 0 &&
        json_object_set_new(entry, "size_vram", json_integer((json_int_t)on_device)) == 0)
        return entry;
    json_decref(entry);
    return NULL;
}

void ollama_ps(serve_http_request *http) {
    json_t *list = json_array();
    const model_list *models = http_models(http);
    for (const model_entry *e = NULL; list && (e = model_list_next_shown(models, e));)
        if (e->kind == MODEL_FILE && ag_served_model_is_loaded(e->model))
            json_append(&list, loaded_entry(http, e));
    http_reply_json(http, 200, JSON_OBJECT({"models", list}));
}

void ollama_version(serve_http_request *http) {
    http_reply_json(http, 200, JSON_OBJECT({"version", json_string(AG_VERSION_STRING)}));
}

/* Returns what the model can do. Models that generate do not list "embedding", though they can: for
 * ollama's command a model with it does nothing else. */
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
static const model_entry *named_model(const serve_http_request *http, serve_error *e) {
    const char *name = NULL;
    return ollama_read_name(http_body(http), &name, e) ? http_model_entry(http, name, e) : NULL;
}

/* Returns the parameters of a derived model as lines "NAME VALUE". */
static json_t *parameter_lines(const model_entry *e) {
    const char *name;
    json_t *value, *text = json_string("");
    json_t *parameters = e->parameters ? json_loads(e->parameters, 0, NULL) : NULL;
    json_object_foreach(parameters, name, value) {
        char *number = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        json_t *longer = text && number
                             ? json_sprintf("%s%-30s %s\n", json_string_value(text), name, number)
                             : NULL;
        account_free(number);
        json_decref(text);
        text = longer;
    }
    json_decref(parameters);
    return text;
}

void ollama_show(serve_http_request *http) {
    serve_error error;
    const model_entry *e = named_model(http, &error);
    if (!e) {
        http_reply_error(http, &error);
        return;
    }
    char changed[32];
    ollama_time(changed, e->changed_at);
    const json_field fields[] = {
        {"modelfile", json_string("")},
        {"parameters", parameter_lines(e)},
        {"template", json_string("")},
        {"system", json_string(e->system ? e->system : "")},
        {"modified_at", json_string(changed)},
        {"details", model_details(ag_served_model_info(e->model))},
        {"model_info", model_info(e->model)},
        {"capabilities", capability_list(e->model)},
    };
    http_reply_json(http, 200, JSON_FIELDS(fields));
}

void ollama_reject(serve_http_request *http) {
    serve_error e;
    reject_request(&e, 403, NULL, "this server neither accepts files of models nor sends them");
    http_reply_error(http, &e);
}
