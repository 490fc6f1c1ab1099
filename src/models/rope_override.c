/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rope_override.h"

#include "core/fail.h"

#include <math.h>

static bool is_within(double x, double low, double high) {
    return x == 0 || (x >= low && x <= high);
}

static ag_status check_ranges(const ag_rope_override *o, ag_error *err) {
    const struct {
        const char *name;
        double value, low, high;
    } all[] = {
        {"freq_base", o->freq_base, 1, 1e30},
        {"freq_scale", o->freq_scale, 1e-6, 1e6},
        {"yarn_ext_factor", o->yarn_ext_factor, 1e-6, 1},
        {"yarn_attn_factor", o->yarn_attn_factor, 1e-6, 1e6},
        {"yarn_beta_fast", o->yarn_beta_fast, 1e-3, 1e6},
        {"yarn_beta_slow", o->yarn_beta_slow, 1e-3, 1e6},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (is_within(all[i].value, all[i].low, all[i].high)) continue;
        return AG_FAIL(err, INVALID, "rope: %s is %g; it must be from %g to %g", all[i].name,
                       all[i].value, all[i].low, all[i].high);
    }
    return AG_OK;
}

static bool changes_yarn(const ag_rope_override *o) {
    return o->yarn_orig_ctx || o->yarn_ext_factor != 0 || o->yarn_attn_factor != 0 ||
           o->yarn_beta_fast != 0 || o->yarn_beta_slow != 0;
}

static ag_rope_type type_of(const ag_rope_override *o, ag_rope_type own) {
    switch (o->scaling) {
    case AG_ROPE_SCALING_NONE:
        return AG_ROPE_DEFAULT;
    case AG_ROPE_SCALING_LINEAR:
        return AG_ROPE_LINEAR;
    case AG_ROPE_SCALING_YARN:
        return AG_ROPE_YARN;
    case AG_ROPE_SCALING_AUTO:
        break;
    }
    return own == AG_ROPE_DEFAULT && o->freq_scale != 0 ? AG_ROPE_LINEAR : own;
}

/* Sets the parameters of YaRN; those that are not given stay if the model has them. */
static ag_status set_yarn(const ag_rope_override *o, const ag_rope_scaling *own, ag_rope_spec *rope,
                          ag_error *err) {
    const bool has_own = own->type == AG_ROPE_YARN;
    ag_rope_scaling *s = &rope->scaling;
    s->beta_fast = has_own ? own->beta_fast : 32;
    s->beta_slow = has_own ? own->beta_slow : 1;
    s->round_to_pairs = has_own ? own->round_to_pairs : true;
    s->ext_factor = o->yarn_ext_factor;
    if (o->yarn_beta_fast != 0) s->beta_fast = o->yarn_beta_fast;
    if (o->yarn_beta_slow != 0) s->beta_slow = o->yarn_beta_slow;
    if (s->beta_fast < s->beta_slow || rope->theta <= 1)
        return AG_FAIL(
            err, INVALID,
            "rope: yarn_beta_fast is %g, yarn_beta_slow %g, freq_base %g; the first must "
            "not be below the second and the last must be above 1",
            s->beta_fast, s->beta_slow, rope->theta);
    const double attention = o->yarn_attn_factor != 0 ? o->yarn_attn_factor : 1;
    if (has_own && s->factor == own->factor && o->yarn_attn_factor == 0) return AG_OK;
    rope->attention_factor = (float)(attention * (s->factor > 1 ? 0.1 * log(s->factor) + 1 : 1));
    return AG_OK;
}

/* Returns the positions of training: before the model's own scaling, if that states them. */
static double original_positions(const ag_rope_override *o, const ag_rope_scaling *own,
                                 const ag_model_spec *s) {
    if (o->yarn_orig_ctx) return o->yarn_orig_ctx;
    return own->type == AG_ROPE_YARN ? own->original_max_position_embeddings : s->max_positions;
}

static ag_status set_scaling(const ag_rope_override *o, ag_model_spec *s, ag_error *err) {
    ag_rope_spec *rope = &s->ropes[0];
    const ag_rope_scaling own = rope->scaling;
    const bool has_factor = own.type == AG_ROPE_LINEAR || own.type == AG_ROPE_YARN;
    const ag_rope_type type = type_of(o, own.type);
    const double factor = o->freq_scale != 0 ? 1 / o->freq_scale : has_factor ? own.factor : 0;
    if (type != AG_ROPE_YARN && changes_yarn(o))
        return AG_FAIL(err, INVALID, "rope: yarn parameters need the scaling yarn, not %s",
                       ag_rope_type_name(type));
    if (type == AG_ROPE_DEFAULT && o->freq_scale != 0)
        return AG_FAIL(err, INVALID, "rope: freq_scale is %g; without scaling it must be 0",
                       o->freq_scale);
    if (type != AG_ROPE_DEFAULT && factor == 0)
        return AG_FAIL(err, INVALID, "rope: the scaling %s needs a freq_scale, such as 0.25",
                       ag_rope_type_name(type));
    const double original = original_positions(o, &own, s);
    rope->scaling = (ag_rope_scaling){
        .type = type, .factor = factor, .original_max_position_embeddings = original};
    if (type != AG_ROPE_YARN) rope->attention_factor = 0;
    else AG_TRY(set_yarn(o, &own, rope, err));
    const double extended = fmin(original * factor, INT32_MAX);
    if (type != AG_ROPE_DEFAULT && extended > s->max_positions)
        s->max_positions = (uint32_t)extended;
    return AG_OK;
}

ag_status ag_rope_override_apply(const ag_rope_override *o, const ag_weight_source *source,
                                 ag_model_spec *s, ag_error *err) {
    const bool scales = o->scaling != AG_ROPE_SCALING_AUTO || o->freq_scale != 0 || changes_yarn(o);
    if (!scales && o->freq_base == 0) return AG_OK;
    AG_TRY(check_ranges(o, err));
    if (!s->n_ropes) return AG_FAIL(err, INVALID, "rope: this model has no rotary embedding");
    if (o->freq_base != 0) s->ropes[0].theta = o->freq_base;
    if (!scales) return AG_OK;
    const ag_rope_type own = s->ropes[0].scaling.type;
    const bool is_other = own != AG_ROPE_DEFAULT && own != AG_ROPE_LINEAR && own != AG_ROPE_YARN;
    if (is_other || ag_source_find(source, "rope_freqs.weight"))
        return AG_FAIL(err, UNSUPPORTED,
                       "rope: the model's own scaling, %s, cannot be replaced; it can if it is "
                       "linear or yarn",
                       is_other ? ag_rope_type_name(own) : "factors of each frequency");
    return set_scaling(o, s, err);
}
