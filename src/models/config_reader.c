/* SPDX-License-Identifier: Apache-2.0 */
#include "models/config_reader.h"

#include "core/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const json_t *ag_config_value(const ag_config_reader *r, const char *key) {
    const json_t *v = json_object_get(r->object, key);
    return json_is_null(v) ? NULL : v;
}

bool ag_config_real(ag_config_reader *r, const char *key, double low, double high, double *out) {
    const json_t *v = ag_config_value(r, key);
    if (r->status != AG_OK || !v) return false;
    double x = json_number_value(v);
    if (!json_is_number(v)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is not a number", r->where, key);
    } else if (!(x >= low && x <= high)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is %g, not within %g and %g", r->where, key, x,
                            low, high);
    } else *out = x;
    return r->status == AG_OK;
}

bool ag_config_size(ag_config_reader *r, const char *key, uint32_t max, uint32_t *out) {
    double x = *out;
    if (!ag_config_real(r, key, 1, max, &x)) return false;
    if (x != floor(x)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is %g, not an integer", r->where, key, x);
        return false;
    }
    *out = (uint32_t)x;
    return true;
}

void ag_config_bool(ag_config_reader *r, const char *key, bool *out) {
    const json_t *v = ag_config_value(r, key);
    if (r->status != AG_OK || !v) return;
    if (json_is_boolean(v)) *out = json_is_true(v);
    else r->status = AG_FAIL(r->err, FORMAT, "%s: %s is not true or false", r->where, key);
}

/* Reads exactly n numbers within [low, high]. Fails with AG_FORMAT also if the list is absent. */
static ag_status read_reals(const ag_config_reader *r, const char *key, double low, double high,
                            size_t n, float *out) {
    const json_t *list = ag_config_value(r, key);
    if (!json_is_array(list) || json_array_size(list) != n) {
        return AG_FAIL(r->err, FORMAT, "%s: %s is not a list of %zu numbers", r->where, key, n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const double x = json_number_value(v);
        if (!json_is_number(v) || !(x >= low && x <= high)) {
            return AG_FAIL(r->err, FORMAT, "%s: number %zu of %s is not within %g and %g", r->where,
                           i, key, low, high);
        }
        out[i] = (float)x;
    }
    return AG_OK;
}

ag_status ag_config_object(const ag_config_reader *r, const char *key, const json_t **out) {
    const json_t *v = ag_config_value(r, key);
    *out = json_object_size(v) > 0 ? v : NULL;
    if (!v || json_is_object(v)) return AG_OK;
    return AG_FAIL(r->err, FORMAT, "%s: %s is not an object", r->where, key);
}

/* ---- windows ---- */

bool ag_config_window(ag_config_reader *r, const char *key, uint32_t *out) {
    return ag_config_size(r, key, INT32_MAX, out);
}

size_t ag_config_layer_type(ag_config_reader *r, uint32_t layer, const char *const known[],
                            size_t otherwise) {
    static const char key[] = "layer_types";
    const json_t *types = ag_config_value(r, key);
    if (r->status != AG_OK || !types) return otherwise;
    const char *type = json_string_value(json_array_get(types, layer));
    char list[128] = "";
    for (size_t i = 0, at = 0; known[i]; i++) {
        if (type && strcmp(type, known[i]) == 0) return i;
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", known[i]);
    }
    r->status =
        type ? AG_FAIL(r->err, UNSUPPORTED, "%s: layer %u is \"%.40s\"; known: %s", r->where, layer,
                       type, list)
             : AG_FAIL(r->err, FORMAT, "%s: %s lacks the type of layer %u", r->where, key, layer);
    return otherwise;
}

bool ag_config_has_window(ag_config_reader *r, uint32_t layer, bool otherwise) {
    static const char *const known[] = {"full_attention", "sliding_attention", NULL};
    return ag_config_layer_type(r, layer, known, otherwise) == 1;
}

/* ---- rotary positions ---- */

static const struct {
    const char *name;
    ag_rope_type type;
} rope_types[] = {
    {"default", AG_ROPE_DEFAULT},   {"linear", AG_ROPE_LINEAR},
    {"llama3", AG_ROPE_LLAMA3},     {"yarn", AG_ROPE_YARN},
    {"longrope", AG_ROPE_LONGROPE}, {"proportional", AG_ROPE_PROPORTIONAL},
    {"su", AG_ROPE_LONGROPE},
};
static const char known_rope_types[] = "default, linear, llama3, yarn, longrope, proportional";

const char *ag_rope_type_name(ag_rope_type type) {
    return type == AG_ROPE_DEFAULT ? "none" : rope_types[type].name;
}

/* Reads the type of a scaling: `rope_type` or, in older files, `type`. Without either there is no
 * scaling. */
static ag_status read_rope_type(const ag_config_reader *r, ag_rope_type *out) {
    const json_t *v = ag_config_value(r, "rope_type");
    if (!v) v = ag_config_value(r, "type");
    const char *name = v ? json_string_value(v) : rope_types[0].name;
    for (size_t i = 0; name && i < sizeof rope_types / sizeof rope_types[0]; i++) {
        *out = rope_types[i].type;
        if (!strcmp(name, rope_types[i].name)) return AG_OK;
    }
    return AG_FAIL(r->err, UNSUPPORTED, "%s: unknown rope type \"%.40s\"; known: %s", r->where,
                   name ? name : "?", known_rope_types);
}

static void require_factor(ag_config_reader *r, const char *key, double *out) {
    if (!ag_config_real(r, key, 1e-6, 1e6, out) && r->status == AG_OK) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is missing", r->where, key);
    }
}

/* Reads the length before scaling: from the top level or, if absent, from the object of the
 * scaling. */
static ag_status read_original(ag_config_reader *r, const ag_config_reader *top,
                               uint32_t max_positions, double *out) {
    static const char key[] = "original_max_position_embeddings";
    uint32_t original = max_positions;
    ag_config_reader outer = {top->object, top->where, top->err, r->status};
    const bool at_top = ag_config_size(&outer, key, INT32_MAX, &original);
    AG_TRY(outer.status);
    if (!at_top) ag_config_size(r, key, INT32_MAX, &original);
    *out = original;
    return r->status;
}

static ag_status read_llama3(ag_config_reader *r, ag_rope_scaling *s) {
    require_factor(r, "factor", &s->factor);
    require_factor(r, "low_freq_factor", &s->low_freq_factor);
    require_factor(r, "high_freq_factor", &s->high_freq_factor);
    if (r->status != AG_OK || s->high_freq_factor > s->low_freq_factor) return r->status;
    return AG_FAIL(r->err, FORMAT, "%s: high_freq_factor %g is not above low_freq_factor %g",
                   r->where, s->high_freq_factor, s->low_freq_factor);
}

static double mscale_of(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static ag_status read_yarn(ag_config_reader *r, ag_rope_spec *rope) {
    ag_rope_scaling *s = &rope->scaling;
    double mscale = 0, all_dim = 0;
    s->beta_fast = 32;
    s->beta_slow = 1;
    s->round_to_pairs = true;
    ag_config_real(r, "beta_fast", 1e-3, 1e6, &s->beta_fast);
    ag_config_real(r, "beta_slow", 1e-3, 1e6, &s->beta_slow);
    ag_config_bool(r, "truncate", &s->round_to_pairs);
    ag_config_real(r, "mscale", 0, 1e3, &mscale);
    ag_config_real(r, "mscale_all_dim", 0, 1e3, &all_dim);
    AG_TRY(r->status);
    if (s->beta_fast < s->beta_slow || rope->theta <= 1) {
        return AG_FAIL(r->err, FORMAT,
                       "%s: yarn with beta_fast %g, beta_slow %g and rope_theta %g; the first must "
                       "not be below the second and the last must be above 1",
                       r->where, s->beta_fast, s->beta_slow, rope->theta);
    }
    const bool both = mscale != 0 && all_dim != 0;
    rope->attention_factor = (float)(mscale_of(s->factor, both ? mscale : 1) /
                                     (both ? mscale_of(s->factor, all_dim) : 1));
    return AG_OK;
}

static ag_status read_longrope(ag_config_reader *r, ag_rope_spec *rope) {
    static const char *const lists[] = {"short_factor", "long_factor"};
    const ag_rope_scaling *s = &rope->scaling;
    rope->n_divisors = rope->n_rotated / 2;
    if (rope->n_divisors > AG_MAX_ROPE_DIVISORS || s->original_max_position_embeddings < 2) {
        return AG_FAIL(r->err, UNSUPPORTED,
                       "%s: longrope has %u pairs and an original length of %g; supported are up "
                       "to %d pairs and a length of at least 2",
                       r->where, rope->n_divisors, s->original_max_position_embeddings,
                       AG_MAX_ROPE_DIVISORS);
    }
    for (int i = 0; i < 2; i++) {
        AG_TRY(read_reals(r, lists[i], 1e-6, 1e6, rope->n_divisors, rope->divisors[i]));
    }
    const double more = log(s->factor) / log(s->original_max_position_embeddings);
    rope->attention_factor = s->factor <= 1 ? 1 : (float)sqrt(1 + more);
    return AG_OK;
}

static ag_status read_scaling(ag_config_reader *r, const ag_config_reader *top,
                              uint32_t max_positions, ag_rope_spec *rope) {
    ag_rope_scaling *s = &rope->scaling;
    AG_TRY(read_rope_type(r, &s->type));
    /* early files of Phi-3 call longrope yarn */
    if (s->type == AG_ROPE_YARN && ag_config_value(r, "long_factor")) s->type = AG_ROPE_LONGROPE;
    if (s->type == AG_ROPE_DEFAULT) return AG_OK;
    if (s->type == AG_ROPE_PROPORTIONAL) {
        s->factor = 1;
        ag_config_real(r, "factor", 1e-6, 1e6, &s->factor);
        return r->status;
    }
    if (s->type == AG_ROPE_LINEAR) {
        require_factor(r, "factor", &s->factor);
        return r->status;
    }
    AG_TRY(read_original(r, top, max_positions, &s->original_max_position_embeddings));
    if (s->type == AG_ROPE_LLAMA3) return read_llama3(r, s);
    double factor = 0;
    s->factor = max_positions / s->original_max_position_embeddings;
    ag_config_real(r, "factor", 1e-6, 1e6, &s->factor);
    ag_config_real(r, "attention_factor", 1e-6, 1e6, &factor);
    AG_TRY(r->status);
    AG_TRY((s->type == AG_ROPE_YARN ? read_yarn : read_longrope)(r, rope));
    if (factor != 0) rope->attention_factor = (float)factor;
    return AG_OK;
}

static ag_status read_rotated(ag_config_reader *r, uint32_t head_dim, ag_rope_spec *rope) {
    static const char key[] = "partial_rotary_factor";
    double share;
    if (!ag_config_real(r, key, 0, 1, &share)) return r->status;
    rope->n_rotated = (uint32_t)(head_dim * share);
    if (rope->n_rotated && rope->n_rotated % 2 == 0) return AG_OK;
    return AG_FAIL(r->err, UNSUPPORTED, "%s: %s %g rotates %u of %u values; they must be pairs",
                   r->where, key, share, rope->n_rotated, head_dim);
}

/* Reads theta and scaling of one object: rope_scaling, rope_parameters or an entry of the latter.
 */
static ag_status read_table(ag_config_reader *r, const ag_config_reader *top,
                            uint32_t max_positions, uint32_t head_dim, ag_rope_spec *rope) {
    const double theta = rope->theta;
    *rope = (ag_rope_spec){.theta = theta, .n_rotated = rope->n_rotated};
    ag_config_real(r, "rope_theta", 1, 1e30, &rope->theta);
    AG_TRY(read_rotated(r, head_dim, rope));
    AG_TRY(read_scaling(r, top, max_positions, rope));
    if (rope->scaling.type != AG_ROPE_PROPORTIONAL) return AG_OK;
    rope->n_turned = rope->n_rotated;
    rope->n_rotated = head_dim;
    return AG_OK;
}

ag_status ag_config_rope_of(ag_config_reader *r, const char *layer_type, uint32_t max_positions,
                            uint32_t head_dim, ag_rope_spec *rope, bool *found) {
    const json_t *old = NULL, *current = NULL;
    *found = false;
    AG_TRY(read_rotated(r, head_dim, rope));
    AG_TRY(ag_config_object(r, "rope_scaling", &old));
    AG_TRY(ag_config_object(r, "rope_parameters", &current));
    const bool is_old = old && !layer_type;
    const json_t *object = is_old ? old : current;
    const ag_config_reader types = {current, r->where, r->err, AG_OK};
    if (layer_type) AG_TRY(ag_config_object(&types, layer_type, &object));
    if (!object) return AG_OK;
    char where[320];
    snprintf(where, sizeof where, "%.240s: %s%s%s", r->where,
             is_old ? "rope_scaling" : "rope_parameters", layer_type ? "." : "",
             layer_type ? layer_type : "");
    ag_config_reader inner = {object, where, r->err, AG_OK};
    *found = true;
    return read_table(&inner, r, max_positions, head_dim, rope);
}
