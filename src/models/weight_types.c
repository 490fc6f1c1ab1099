/* SPDX-License-Identifier: Apache-2.0 */
#include "models/weight_types.h"

#include "core/fail.h"
#include "platform/glob.h"

#include <stdio.h>
#include <string.h>

static ag_dtype with_smaller_blocks(ag_dtype type) {
    switch (type) {
    case AG_Q6_K:
        return AG_Q8_0;
    case AG_Q5_K:
        return AG_Q5_1;
    case AG_Q4_K:
        return AG_Q5_0;
    default:
        return AG_Q4_0;
    }
}

ag_dtype ag_weight_type_fitting(ag_dtype want, size_t cols, ag_dtype file) {
    if (cols % ag_dtype_block(want) == 0) return want;
    want = with_smaller_blocks(want);
    return cols % ag_dtype_block(want) == 0 ? want : file;
}

/* Returns whether the pattern matches the start of the name, or the text after one of its dots:
 * "output" does not match "attn_output". */
static bool matches(const char *pattern, const char *name) {
    char prefix[160];
    snprintf(prefix, sizeof prefix, "%s*", pattern);
    while (!ag_glob_matches(prefix, name)) {
        name = strchr(name, '.');
        if (!name) return false;
        name++;
    }
    return true;
}

bool ag_tensor_type_find(const ag_tensor_type *list, size_t n, const char *gguf_name,
                         ag_dtype *out) {
    while (n > 0 && !matches(list[n - 1].pattern, gguf_name)) n--;
    if (n > 0) *out = list[n - 1].type;
    return n > 0;
}

/* ---- the mix ---- */

/* Steps by gain per bit (figures in docs/reference/models.md): types for rows that are multiples of
 * 256, and for others. The last step that matches a name counts. */
static const struct mix_step {
    const char *pattern;
    ag_dtype type, other;
} mix_steps[] = {
    {"blk", AG_Q4_K, AG_Q5_0},    {"attn_v", AG_Q6_K, AG_Q8_0},   {"output", AG_Q5_K, AG_Q5_0},
    {"output", AG_Q6_K, AG_Q5_1}, {"ffn_down", AG_Q5_K, AG_Q5_1}, {"attn_[qko]", AG_Q5_K, AG_Q5_1},
    {"output", AG_Q6_K, AG_Q8_0},
};
enum { N_MIX_STEPS = sizeof mix_steps / sizeof mix_steps[0] };

bool ag_weights_mix_add(size_t step, ag_dtype *mix) {
    if (step < N_MIX_STEPS) *mix = (ag_dtype)((unsigned)*mix | 1u << step);
    return step < N_MIX_STEPS;
}

static ag_dtype mixed_type(const ag_weight_spec *w, ag_dtype file, unsigned steps) {
    struct mix_step best = {.type = AG_Q4_K, .other = AG_Q4_1};
    for (size_t i = 0; i < N_MIX_STEPS; i++)
        if (steps >> i & 1 && matches(mix_steps[i].pattern, w->gguf_name)) best = mix_steps[i];
    const ag_dtype type = w->cols % ag_dtype_block(best.type) ? best.other : best.type;
    return w->cols % ag_dtype_block(type) ? file : type;
}

/* ---- any matrix ---- */

static bool is_float(ag_dtype weights) {
    return weights < AG_DTYPE_COUNT && !ag_dtype_is_quantized(weights);
}

ag_dtype ag_weight_type(const ag_weight_spec *w, ag_dtype file, const ag_model_params *params) {
    ag_dtype named;
    if (w->keeps_f32) return AG_F32;
    if (ag_tensor_type_find(params->tensor_types, params->n_tensor_types, w->gguf_name, &named)) {
        return ag_weight_type_fitting(named, w->cols, file);
    }
    if (params->as_is || (w->is_mxfp4 && !is_float(params->weights))) return file;
    if (ag_weights_is_mix(params->weights)) {
        return mixed_type(w, file, (unsigned)params->weights - (unsigned)AG_WEIGHTS_MIX);
    }
    return ag_weight_type_fitting(params->weights, w->cols, file);
}

ag_status ag_tensor_types_check(const ag_model_params *params, ag_error *err) {
    for (size_t i = 0; i < params->n_tensor_types; i++) {
        const ag_tensor_type *t = &params->tensor_types[i];
        if (!t->pattern || !t->pattern[0])
            return AG_FAIL(err, INVALID, "tensor_types has an empty pattern");
        if (ag_dtype_may_be(t->type, AG_DTYPE_WEIGHT)) continue;
        char known[AG_DTYPE_LIST];
        return AG_FAIL(err, UNSUPPORTED, "tensors \"%.80s\" cannot be %s; known: %s", t->pattern,
                       ag_dtype_name(t->type), ag_dtype_list(AG_DTYPE_WEIGHT, known, sizeof known));
    }
    return AG_OK;
}
