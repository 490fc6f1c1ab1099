/* SPDX-License-Identifier: Apache-2.0 */
#include "presets.h"

#include "../../chat/chat.h"
#include "../../options/presets.h"
#include "../../support/json_out.h"
#include "../request/route.h"
#include "../threads/account.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct serve_preset {
    char *name;
    chat_options options; /* values that the preset does not set are unset */
    json_t *json;         /* the file */
} serve_preset;

struct serve_presets {
    serve_preset *all; /* [n] */
    size_t n;
};

/* ---- reading ---- */

static bool read_preset(void *user, const char *name, const char *path) {
    serve_presets *p = user;
    json_error_t error;
    serve_preset *grown = realloc(p->all, (p->n + 1) * sizeof *grown);
    if (!grown) return false;
    p->all = grown;
    serve_preset *preset = &grown[p->n];
    *preset = (serve_preset){.name = strdup(name)};
    const bool is_read = chat_read_preset(&preset->options, path);
    if (is_read && preset->name) preset->json = json_load_file(path, 0, &error);
    if (preset->json) {
        p->n++;
        return true;
    }
    chat_options_free(&preset->options);
    free(preset->name);
    return true;
}

serve_presets *serve_presets_read(void) {
    serve_presets *p = calloc(1, sizeof *p);
    if (p) preset_each(read_preset, p);
    return p;
}

void serve_presets_free(serve_presets *p) {
    for (size_t i = 0; p && i < p->n; i++) {
        free(p->all[i].name);
        chat_options_free(&p->all[i].options);
        json_decref(p->all[i].json);
    }
    if (p) free(p->all);
    free(p);
}

json_t *serve_presets_list(const serve_presets *p) {
    json_t *list = json_array();
    for (size_t i = 0; p && list && i < p->n; i++)
        json_append(&list, JSON_OBJECT({"name", json_string(p->all[i].name)},
                                       {"options", json_incref(p->all[i].json)}));
    return list;
}

/* ---- applying ---- */

static void fill_real(double value, double *field) {
    if (isnan(*field)) *field = value;
}

static void fill_integer(int64_t value, int64_t *field) {
    if (*field < 0 && value != SAMPLING_UNSET) *field = value;
}

/* Fills the lists of DRY's breakers and of biases. Without memory they stay empty. */
static void fill_lists(const sampling_options *from, serve_sampling *to) {
    if (!to->dry_breakers && (from->n_dry_texts || from->no_dry_texts)) {
        to->dry_breakers = json_array();
        for (size_t i = 0; i < from->n_dry_texts; i++)
            json_array_append_new(to->dry_breakers, json_string(from->dry_texts[i]));
    }
    if (to->logit_bias || !from->n_bias) return;
    to->logit_bias = json_array();
    for (size_t i = 0; i < from->n_bias; i++) {
        const double bias = (double)from->bias[i].bias;
        json_t *value = isfinite(bias) ? json_real(bias) : json_false();
        json_array_append_new(to->logit_bias, json_pack("[i,o]", (int)from->bias[i].id, value));
    }
}

static void fill_sampling(const sampling_options *from, serve_sampling *to) {
    fill_real(from->temperature, &to->temperature);
    fill_real(from->dynamic_range, &to->dynamic_range);
    fill_real(from->dynamic_exponent, &to->dynamic_exponent);
    fill_real(from->top_n_sigma, &to->top_n_sigma);
    fill_real(from->typical_p, &to->typical_p);
    fill_real(from->top_p, &to->top_p);
    fill_real(from->min_p, &to->min_p);
    fill_real(from->xtc_probability, &to->xtc_probability);
    fill_real(from->xtc_threshold, &to->xtc_threshold);
    fill_real(from->dry_multiplier, &to->dry_multiplier);
    fill_real(from->dry_base, &to->dry_base);
    fill_real(from->presence_penalty, &to->presence_penalty);
    fill_real(from->frequency_penalty, &to->frequency_penalty);
    fill_real(from->repetition_penalty, &to->repetition_penalty);
    if (from->top_k != UINT32_MAX) fill_integer(from->top_k, &to->top_k);
    if (from->dry_allowed_length) fill_integer(from->dry_allowed_length, &to->dry_allowed_length);
    fill_integer(from->repetition_window, &to->repetition_window);
    fill_integer(from->dry_window, &to->dry_window);
    if (!to->has_seed && from->has_seed) to->seed = (int64_t)from->seed;
    to->has_seed = to->has_seed || from->has_seed;
    fill_lists(from, to);
}

/* Sets a text that the request does not set. Returns false without memory. */
static bool fill_text(const char *value, char **field) {
    if (*field || !value) return true;
    *field = account_strdup(value);
    return *field != NULL;
}

/* Writes the budget as --kv-budget spells it; NULL: none is set. */
static const char *budget_text(const ag_eviction_params *p, char *out, size_t cap) {
    if (p->budget_tokens) snprintf(out, cap, "%" PRIu32, p->budget_tokens);
    else if (p->budget_bytes) snprintf(out, cap, "%zuMiB", p->budget_bytes >> 20);
    else if (p->budget_ratio != 0) snprintf(out, cap, "%.7g%%", (double)p->budget_ratio * 100);
    else return NULL;
    return out;
}

static bool fill_cache(const model_options *o, serve_request *r) {
    const ag_eviction_params *p = &o->eviction.params;
    const bool has_type = o->k_type != AG_DTYPE_COUNT || o->v_type != AG_DTYPE_COUNT;
    char types[32], budget[32];
    snprintf(types, sizeof types, "%s,%s",
             ag_dtype_name(o->k_type != AG_DTYPE_COUNT ? o->k_type : AG_F16),
             ag_dtype_name(o->v_type != AG_DTYPE_COUNT ? o->v_type : AG_F16));
    return fill_text(has_type ? types : NULL, &r->kv_type) &&
           fill_text(p->policy ? p->policy->name : NULL, &r->kv_policy) &&
           fill_text(budget_text(p, budget, sizeof budget), &r->kv_budget) &&
           fill_text(p->head_budget != AG_HEAD_BUDGET_EVEN ? ag_head_budget_name(p->head_budget)
                                                           : NULL,
                     &r->head_budget);
}

static bool fill_thinking(chat_switch thinking, serve_request *r) {
    static const char name[] = "enable_thinking";
    if (thinking == CHAT_AUTO || r->kind != SERVE_CHAT) return true;
    if (json_object_get(r->variables, name)) return true;
    json_t *variables = r->variables ? json_copy(r->variables) : json_object();
    if (!variables ||
        json_object_set_new(variables, name, json_boolean(thinking == CHAT_ON)) != 0) {
        json_decref(variables);
        return false;
    }
    json_decref(r->variables);
    r->variables = variables;
    return true;
}

/* Replaces the preset's name by that of its model, as the server names models: "a" for "x/a.gguf".
 */
static bool replace_model(const char *path, serve_request *r) {
    const ag_served_model *served = ag_serving_model_at(http_serving(r->http), 0);
    const char *first = served ? ag_served_model_name(served) : "";
    const char *slash = path ? strrchr(path, '/') : NULL;
    char *name = account_strdup(slash && slash[1] ? slash + 1 : path ? path : first);
    if (!name) return false;
    const size_t n = strlen(name);
    if (n > 5 && !strcmp(name + n - 5, ".gguf")) name[n - 5] = '\0';
    account_free(r->model);
    r->model = name;
    return true;
}

bool serve_presets_apply(const serve_presets *p, serve_request *r, serve_error *e) {
    const serve_preset *preset = NULL;
    for (size_t i = 0; p && r->model && i < p->n; i++)
        if (!strcmp(p->all[i].name, r->model)) preset = &p->all[i];
    if (!preset || model_list_exact(http_models(r->http), r->model)) return true;
    const chat_options *o = &preset->options;
    fill_sampling(&o->sampling, &r->sampling);
    if (r->max_tokens < 0) r->max_tokens = o->max_tokens;
    const bool ok = replace_model(o->model.dir, r) && fill_cache(&o->model, r) &&
                    serve_request_add_system(r, o->transcript.system) &&
                    fill_thinking(o->thinking, r);
    if (!ok) return reject_no_memory(e);
    if (http_model_entry(r->http, r->model, e)) return true;
    reject_request(e, 404, "model",
                   "preset '%.100s': its model '%.100s' is not served; /v1/models lists the models",
                   preset->name, r->model);
    e->code = "model_not_found";
    return false;
}
