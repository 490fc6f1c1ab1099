/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the sampling parameters that a model's files recommend. */
#include "core/fail.h"
#include "formats/json.h"
#include "formats/weight_source.h"
#include "text/bytes.h"

#include <antigravity/chat.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sampling_key {
    const char *name, *gguf; /* names in generation_config.json and in a GGUF file */
    bool is_count;
    double min, max; /* other values are malformed */
} sampling_key;

enum { TEMPERATURE, TOP_K, TOP_P, MIN_P, REPETITION_PENALTY, N_KEYS };
static const sampling_key keys[N_KEYS] = {
    [TEMPERATURE] = {"temperature", "general.sampling.temp", false, 0, 1e6},
    [TOP_K] = {"top_k", "general.sampling.top_k", true, -1, 2147483647.0},
    [TOP_P] = {"top_p", "general.sampling.top_p", false, 0, 1},
    [MIN_P] = {"min_p", "general.sampling.min_p", false, 0, 1},
    [REPETITION_PENALTY] = {"repetition_penalty", "general.sampling.penalty_repeat", false, 0, 1e6},
};

static void set_param(ag_sampler_params *p, int key, double v) {
    const float f = (float)v;
    switch (key) {
    case TEMPERATURE:
        p->temperature = f;
        break;
    case TOP_K:
        p->top_k = v > 0 ? (uint32_t)v : 0;
        break;
    case TOP_P: /* 0 and 1 are off; ag_sampler_params has 1 for off */
        p->top_p = v > 0 ? f : 1;
        break;
    case MIN_P:
        p->min_p = f;
        break;
    default:
        p->repetition_penalty = v > 0 ? f : 1;
    }
}

/* Reads the keys of an object into *params, and appends their names and values to *names. */
static ag_status read_keys(const json_t *object, const char *where, bool is_gguf,
                           ag_sampler_params *params, ag_text *names, ag_error *err) {
    for (int i = 0; i < N_KEYS; i++) {
        const sampling_key *k = &keys[i];
        const json_t *v = json_object_get(object, is_gguf ? k->gguf : k->name);
        const double x = json_number_value(v);
        if (!v || json_is_null(v)) continue;
        if (!json_is_number(v) || !isfinite(x) || x < k->min || x > k->max) {
            return AG_FAIL(err, FORMAT, "%s: \"%s\" must be a number from %g to %g", where,
                           is_gguf ? k->gguf : k->name, k->min, k->max);
        }
        set_param(params, i, x);
        char text[64];
        const int n =
            snprintf(text, sizeof text, "%s%s %.6g", names && names->len ? ", " : "", k->name, x);
        if (names) AG_TRY(ag_text_append(names, text, (size_t)n, err));
    }
    return AG_OK;
}

static ag_status read_source(const ag_weight_source *s, ag_sampler_params *params, ag_text *names,
                             ag_error *err) {
    const bool is_gguf = s->ops == &ag_gguf_ops;
    ag_source_text text = {0};
    json_t *object = NULL;
    ag_status st = ag_source_read_text(s, is_gguf ? AG_SOURCE_CONFIG : AG_SOURCE_GENERATION_CONFIG,
                                       &text, err);
    if (st == AG_OK && text.text) st = ag_json_parse(text.text, text.n, text.name, &object, err);
    if (st == AG_OK && object) {
        st = read_keys(object, text.name ? text.name : s->path, is_gguf, params, names, err);
    }
    json_decref(object);
    ag_source_text_free(&text);
    return st;
}

ag_status ag_chat_sampling_load(const char *path, ag_sampler_params *params, ag_text *names,
                                ag_error *err) {
    ag_weight_source *source = NULL;
    ag_sampler_params found = *params;
    if (names) ag_text_free(names);
    AG_TRY(ag_source_open(path, &source, err));
    const ag_status st = read_source(source, &found, names, err);
    ag_source_destroy(source);
    if (st == AG_OK) *params = found;
    return st;
}
