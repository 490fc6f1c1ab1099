/* SPDX-License-Identifier: Apache-2.0 */
#include "models/weights.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"

#include <math.h>

ag_status ag_model_weights_begin(ag_model_weights *w, const ag_model_spec *s, ag_error *err) {
    *w = (ag_model_weights){.n_layers = s->n_layers, .max_owners = 2};
    for (uint32_t l = 0; l < s->n_layers; l++) w->max_owners += ag_layer_weight_count(s, l);
    w->layers = ag_calloc(s->n_layers, sizeof *w->layers);
    w->experts = ag_calloc(s->n_layers, sizeof *w->experts);
    w->owners = ag_calloc(w->max_owners, sizeof *w->owners);
    bool ok = w->layers && w->experts && w->owners;
    for (uint32_t l = 0; l < s->n_layers && ok; l++) {
        const uint32_t n = ag_spec_layer(s, l)->experts.route.n_experts;
        if (n) ok = (w->experts[l] = ag_calloc(n, AG_EXPERT_TABLES * sizeof **w->experts)) != NULL;
    }
    if (ok) return AG_OK;
    ag_model_weights_release(w);
    return AG_FAIL(err, NOMEM, "tables of %u layers", s->n_layers);
}

ag_tensor *ag_model_weights_slot(const ag_model_weights *w, uint32_t layer,
                                 const ag_weight_spec *spec) {
    if (!spec->n_experts) return &w->layers[layer].of[spec->tensor];
    const size_t table = spec->tensor - AG_LT_EXPERT_GATE;
    return &w->experts[layer][table * spec->n_experts + spec->expert];
}

void ag_model_weights_release(ag_model_weights *w) {
    for (size_t i = 0; i < w->n_owners; i++) ag_buffer_release(&w->owners[i]);
    for (uint32_t l = 0; l < w->n_layers && w->experts; l++) ag_free(w->experts[l]);
    ag_free(w->experts);
    ag_free(w->owners);
    ag_free(w->layers);
    *w = (ag_model_weights){0};
}

static void own(ag_model_weights *w, ag_buffer *owner) {
    w->owners[w->n_owners++] = owner;
    w->n_bytes += ag_buffer_size(owner);
}

/* Prepares an expert's matrix in the buffer of all experts, which the first one makes. */
static ag_status put_expert(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                            const ag_weight_spec *spec, const ag_tensor *src, ag_dtype want,
                            ag_consumed_fn consumed, void *user, ag_error *err) {
    const size_t bytes = ag_prepared_bytes(be, want, spec->rows, spec->cols);
    const size_t stride = (bytes + 63) / 64 * 64;
    const ag_tensor *first = out - spec->expert;
    ag_buffer *buffer = first->buffer;
    if (!spec->expert) {
        if (!bytes || stride > SIZE_MAX / spec->n_experts)
            return AG_FAIL(err, SHAPE,
                           "tensor %s: %u experts of %zu rows of %zu values are too "
                           "large",
                           spec->name, spec->n_experts, spec->rows, spec->cols);
        AG_TRY(ag_memory_alloc(ag_backend_memory(be), spec->n_experts * stride, AG_USAGE_WEIGHTS,
                               &buffer, err));
        own(w, buffer);
    } else if (first->dtype != want) {
        return AG_FAIL(err, UNSUPPORTED, "tensor %s: is %s, other experts are %s", spec->name,
                       ag_dtype_name(want), ag_dtype_name(first->dtype));
    }
    return ag_error_prefix(
        err,
        ag_take_error(
            be,
            ag_prepare_weight_at(be, out, buffer, spec->expert * stride, src, want, consumed, user),
            err),
        "tensor %s", spec->name);
}

ag_status ag_model_weights_put_matrix(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, const ag_tensor *src,
                                      ag_dtype want, ag_consumed_fn consumed, void *user,
                                      ag_error *err) {
    ag_buffer *owner;
    if (spec->n_experts && ag_has_prepare_weight_at(be))
        return put_expert(w, be, out, spec, src, want, consumed, user, err);
    ag_status st = ag_prepare_weight(be, out, &owner, src, want, consumed, user);
    if (st != AG_OK) {
        return ag_error_prefix(err, ag_take_error(be, st, err), "tensor %s", spec->name);
    }
    own(w, owner);
    return AG_OK;
}

ag_status ag_model_weights_put_vector(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, float *values, ag_error *err) {
    const size_t n = spec->rows * spec->cols;
    for (size_t i = 0; spec->minus_exp && i < n; i++) values[i] = -expf(values[i]);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            return AG_FAIL(err, FORMAT, "tensor %s: value %zu is not finite", spec->name, i);
        }
    }
    for (size_t i = 0; spec->add_one && i < n; i++) values[i] += 1.0f;
    for (size_t i = 0; spec->factor != 0 && i < n; i++) values[i] *= spec->factor;
    const bool is_filter = spec->kind == AG_WEIGHT_FILTER;
    const ag_shape shape = is_filter ? ag_shape_2d(spec->cols, spec->rows) : ag_shape_1d(n);
    ag_buffer *owner;
    AG_TRY(
        ag_tensor_alloc(out, &owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32, shape, err));
    own(w, owner);
    return ag_buffer_upload(owner, 0, values, n * sizeof *values, err);
}
