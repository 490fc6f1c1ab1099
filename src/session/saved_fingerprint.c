/* SPDX-License-Identifier: Apache-2.0 */
#include "session/saved_fingerprint.h"

#include "core/checksum.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define UNKNOWN "none"

static void add(ag_saved_fingerprint *f, const char *name, const char *value) {
    size_t left = sizeof f->text - f->len;
    int n = snprintf(f->text + f->len, left, "%s=%s\n", name, value);
    if (n > 0) f->len += (size_t)n < left ? (size_t)n : left - 1;
}

static void add_number(ag_saved_fingerprint *f, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    add(f, name, text);
}

static void add_sample(ag_saved_fingerprint *f, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    add(f, name, text);
}

/* A locale may use another decimal point. */
static void add_float(ag_saved_fingerprint *f, const char *name, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    char *odd = text + strspn(text, "0123456789+-e");
    size_t n = strcspn(odd, "0123456789+-e");
    if (n) {
        memmove(odd + 1, odd + n, strlen(odd + n) + 1);
        *odd = '.';
    }
    add(f, name, text);
}

/* Names come from config.json: a line break would begin another field. */
static void add_name(ag_saved_fingerprint *f, const char *name, const char *value) {
    char text[72];
    snprintf(text, sizeof text, "%s", value);
    for (char *p = text; *p; p++) {
        if ((unsigned char)*p < ' ') *p = '?';
    }
    add(f, name, text);
}

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static bool is_plain(const ag_layer_spec *l) {
    return l->softcap == 0 && l->scale == 1.0f / sqrtf((float)l->head_dim);
}

/* Returns whether the frequency tables, which the sample covers, determine the rotation. */
static bool has_plain_rotation(const ag_model_spec *spec) {
    bool plain = spec->query_beta == 0;
    for (uint32_t i = 0; i < spec->n_ropes; i++) {
        plain = plain && spec->ropes[i].attention_factor == 0;
    }
    for (uint32_t k = 0; k < spec->n_kinds; k++) plain = plain && spec->kinds[k].rope != AG_NO_ROPE;
    return plain;
}

/* Returns the model's layer that has number `index` in the cache. */
static uint32_t layer_of(const ag_model_spec *spec, uint32_t index) {
    uint32_t l = 0;
    while (ag_spec_kv_source(spec, l) != l || index--) l++;
    return l;
}

static const char layers_name[] = "layers_of_cache";

/* Adds a checksum of the layers if they differ, have windows, or scale, cap or rotate in an unusual
 * manner. It covers heads, head size and window of each; scale and softcap only if unusual;
 * rotation only if unusual. */
static void add_layers(ag_saved_fingerprint *f, const ag_model_spec *spec, const ag_kv_params *kv) {
    ag_checksum sum;
    bool plain = spec->logit_softcap == 0;
    for (uint32_t k = 0; k < spec->n_kinds; k++) {
        if (spec->kinds[k].mixer == AG_MIXER_ATTENTION) plain = plain && is_plain(&spec->kinds[k]);
    }
    const bool rotated = !has_plain_rotation(spec);
    const size_t n_numbers = rotated ? 10 : plain ? 3 : 6;
    bool differ = !plain || rotated;
    ag_checksum_begin(&sum);
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        const ag_kv_layer *layer = &kv->layers[l], *first = &kv->layers[0];
        const ag_layer_spec *scores = ag_spec_layer(spec, layer_of(spec, l));
        const bool turns = scores->rope != AG_NO_ROPE;
        const uint32_t numbers[] = {
            layer->n_kv_heads,
            layer->head_dim,
            layer->window,
            float_bits(scores->scale),
            float_bits(scores->softcap),
            float_bits(spec->logit_softcap),
            turns ? scores->rope : UINT32_MAX,
            float_bits(turns ? spec->ropes[scores->rope].attention_factor : 0),
            spec->query_period,
            float_bits(spec->query_beta)};
        unsigned char bytes[sizeof numbers];
        for (size_t i = 0; i < sizeof bytes / 4; i++) ag_put_number(bytes + 4 * i, numbers[i], 4);
        ag_checksum_add(&sum, bytes, n_numbers * sizeof *numbers);
        if (layer->n_kv_heads != first->n_kv_heads || layer->head_dim != first->head_dim ||
            layer->window)
            differ = true;
    }
    if (differ) add_sample(f, layers_name, ag_checksum_value(&sum));
}

static const char *policy_name(const ag_eviction_params *p) {
    return ag_eviction_is_managed(p) ? p->policy->name : "none";
}

ag_status ag_saved_fingerprint_of(ag_session *s, const ag_tokenizer *tokenizer,
                                  ag_saved_fingerprint *out, ag_error *err) {
    const ag_model_info *info = &s->model->info;
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    uint64_t sample = 0;
    AG_TRY(ag_model_sample(s->model, &sample, err));
    *out = (ag_saved_fingerprint){.len = 0};
    add_name(out, "architecture", info->architecture);
    add_number(out, "layers", info->n_layers);
    add_number(out, "hidden_size", info->hidden_size);
    add_number(out, "intermediate_size", info->intermediate_size);
    add_number(out, "heads", info->n_heads);
    add_number(out, "kv_heads", info->n_kv_heads);
    add_number(out, "head_dim", info->head_dim);
    add_number(out, "vocabulary", info->n_vocab);
    add_number(out, "max_positions", info->max_positions);
    add_float(out, "rope_theta", info->rope_theta);
    add_name(out, "rope_scaling", s->is_long ? "longrope of long texts" : info->rope_scaling);
    add_float(out, "norm_eps", info->norm_eps);
    add_sample(out, "weights", sample);
    add_name(out, "weight_type", info->mixed ? "mix" : ag_dtype_name(info->weight_type));
    if (tokenizer) add_sample(out, "tokenizer", ag_tokenizer_checksum(tokenizer));
    else add(out, "tokenizer", UNKNOWN);
    add_name(out, "k_type", ag_dtype_name(kv->k_type));
    add_name(out, "v_type", ag_dtype_name(kv->v_type));
    add(out, "k_rotation", kv->hadamard ? "hadamard" : "none");
    add_name(out, "eviction_policy", policy_name(&s->params.eviction));
    add_number(out, "protected_prefix", kv->n_protected);
    add_layers(out, &s->model->spec, kv);
    return AG_OK;
}

typedef struct field {
    char name[32], value[80];
} field;

/* Reads the next line; false if it is not "name=value". Replaces unprintable bytes by '?'. */
static bool next_field(const char **at, const char *end, field *f) {
    const char *line_end = memchr(*at, '\n', (size_t)(end - *at));
    const char *equals = line_end ? memchr(*at, '=', (size_t)(line_end - *at)) : NULL;
    if (!equals || (size_t)(equals - *at) >= sizeof f->name ||
        (size_t)(line_end - equals - 1) >= sizeof f->value) {
        return false;
    }
    snprintf(f->name, sizeof f->name, "%.*s", (int)(equals - *at), *at);
    snprintf(f->value, sizeof f->value, "%.*s", (int)(line_end - equals - 1), equals + 1);
    for (char *p = f->value; *p; p++) {
        if (*p < ' ' || *p > '~') *p = '?';
    }
    *at = line_end + 1;
    return true;
}

ag_status ag_saved_fingerprint_compare(const ag_saved_fingerprint *saved,
                                       const ag_saved_fingerprint *here, const char *path,
                                       ag_error *err) {
    const char *a = saved->text, *b = here->text;
    const char *a_end = a + saved->len, *b_end = b + here->len;
    field found, expected;
    while (b < b_end) {
        bool is_read = next_field(&a, a_end, &found),
             is_expected = next_field(&b, b_end, &expected);
        if (is_expected && a == a_end && !is_read && !strcmp(expected.name, layers_name)) {
            is_read = true;
            found = (field){.value = UNKNOWN};
            memcpy(found.name, layers_name, sizeof layers_name);
        }
        if (!is_expected || !is_read || strcmp(found.name, expected.name) != 0) {
            return AG_FAIL(err, FORMAT, "%s: damaged: its fingerprint lacks the field %s", path,
                           expected.name);
        }
        if (!strcmp(found.value, expected.value)) continue;
        if (!strcmp(found.name, "tokenizer") &&
            (!strcmp(found.value, UNKNOWN) || !strcmp(expected.value, UNKNOWN))) {
            continue;
        }
        return AG_FAIL(err, UNSUPPORTED, "%s: saved for %s %s, this session has %s", path,
                       found.name, found.value, expected.value);
    }
    if (a == a_end) return AG_OK;
    const char *remaining = a;
    if (next_field(&remaining, a_end, &found) && remaining == a_end &&
        !strcmp(found.name, layers_name)) {
        return AG_FAIL(err, UNSUPPORTED, "%s: saved for %s %s, this session has %s", path,
                       found.name, found.value, UNKNOWN);
    }
    return AG_FAIL(err, FORMAT, "%s: damaged: its fingerprint has %zu unexpected bytes", path,
                   (size_t)(a_end - a));
}
