/* SPDX-License-Identifier: Apache-2.0 */
#include "models/config_reader.h"

#include "core/fail.h"

#include <math.h>
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
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is %g, not a whole number", r->where, key, x);
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

bool ag_config_has_window(ag_config_reader *r, uint32_t layer, bool otherwise) {
    static const char key[] = "layer_types";
    const json_t *types = ag_config_value(r, key);
    if (r->status != AG_OK || !types) return otherwise;
    const char *type = json_string_value(json_array_get(types, layer));
    if (type && strcmp(type, "full_attention") == 0) return false;
    if (type && strcmp(type, "sliding_attention") == 0) return true;
    if (type) {
        r->status = AG_FAIL(r->err, UNSUPPORTED,
                            "%s: layer %u is \"%.40s\"; known: full_attention, sliding_attention",
                            r->where, layer, type);
    } else {
        r->status =
            AG_FAIL(r->err, FORMAT, "%s: %s does not say what layer %u is", r->where, key, layer);
    }
    return false;
}

/* ---- rotary positions ---- */

static const char known_rope_types[] = "default, linear, llama3";

const char *ag_rope_type_name(ag_rope_type type) {
    return type == AG_ROPE_LINEAR ? "linear" : type == AG_ROPE_LLAMA3 ? "llama3" : "none";
}

/* rope_type wins over its old spelling, type; neither means no scaling. */
static ag_status read_rope_type(const ag_config_reader *r, ag_rope_type *out) {
    const json_t *v = ag_config_value(r, "rope_type");
    if (!v) v = ag_config_value(r, "type");
    *out = AG_ROPE_DEFAULT;
    if (!v) return AG_OK;
    const char *name = json_string_value(v);
    if (name && strcmp(name, "default") == 0) return AG_OK;
    if (name && strcmp(name, "linear") == 0) *out = AG_ROPE_LINEAR;
    else if (name && strcmp(name, "llama3") == 0) *out = AG_ROPE_LLAMA3;
    else {
        return AG_FAIL(r->err, UNSUPPORTED, "%s: unknown rope type \"%.40s\"; known: %s", r->where,
                       name ? name : "?", known_rope_types);
    }
    return AG_OK;
}

static void require_factor(ag_config_reader *r, const char *key, double *out) {
    if (!ag_config_real(r, key, 1e-6, 1e6, out) && r->status == AG_OK) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: %s is missing", r->where, key);
    }
}

static ag_status read_scaling(ag_config_reader *r, const ag_config_reader *top,
                              uint32_t max_positions, ag_rope_scaling *s) {
    AG_TRY(read_rope_type(r, &s->type));
    if (s->type == AG_ROPE_DEFAULT) return AG_OK;
    require_factor(r, "factor", &s->factor);
    if (s->type == AG_ROPE_LINEAR) return r->status;
    require_factor(r, "low_freq_factor", &s->low_freq_factor);
    require_factor(r, "high_freq_factor", &s->high_freq_factor);
    /* Some files keep the original length beside the object instead of in it. */
    static const char key[] = "original_max_position_embeddings";
    uint32_t original = max_positions;
    ag_config_reader outer = {top->object, top->where, top->err, r->status};
    bool beside = ag_config_size(&outer, key, INT32_MAX, &original);
    AG_TRY(outer.status);
    if (!beside) ag_config_size(r, key, INT32_MAX, &original);
    AG_TRY(r->status);
    s->original_max_position_embeddings = original;
    if (s->high_freq_factor > s->low_freq_factor) return AG_OK;
    return AG_FAIL(r->err, FORMAT, "%s: high_freq_factor %g is not above low_freq_factor %g",
                   r->where, s->high_freq_factor, s->low_freq_factor);
}

static ag_status refuse_partial_rotation(ag_config_reader *r) {
    double part = 1;
    ag_config_real(r, "partial_rotary_factor", 0, 1, &part);
    if (r->status != AG_OK || part == 1) return r->status;
    return AG_FAIL(r->err, UNSUPPORTED, "%s: partial_rotary_factor is %g; only 1 is supported",
                   r->where, part);
}

/* theta and scaling of one object: rope_scaling, rope_parameters or an entry of the latter. */
static ag_status read_table(ag_config_reader *r, const ag_config_reader *top,
                            uint32_t max_positions, ag_rope_spec *rope) {
    ag_config_real(r, "rope_theta", 1, 1e30, &rope->theta);
    AG_TRY(refuse_partial_rotation(r));
    rope->scaling = (ag_rope_scaling){0};
    return read_scaling(r, top, max_positions, &rope->scaling);
}

ag_status ag_config_rope_of(ag_config_reader *r, const char *layer_type, uint32_t max_positions,
                            ag_rope_spec *rope, bool *found) {
    const json_t *old = NULL, *current = NULL;
    *found = false;
    AG_TRY(refuse_partial_rotation(r));
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
    return read_table(&inner, r, max_positions, rope);
}
