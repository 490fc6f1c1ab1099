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
    w->owners = ag_calloc(w->max_owners, sizeof *w->owners);
    if (w->layers && w->owners) return AG_OK;
    ag_model_weights_release(w);
    return AG_FAIL(err, NOMEM, "tables of %u layers", s->n_layers);
}

void ag_model_weights_release(ag_model_weights *w) {
    for (size_t i = 0; i < w->n_owners; i++) ag_buffer_release(&w->owners[i]);
    ag_free(w->owners);
    ag_free(w->layers);
    *w = (ag_model_weights){0};
}

static void own(ag_model_weights *w, ag_buffer *owner) {
    w->owners[w->n_owners++] = owner;
    w->n_bytes += ag_buffer_size(owner);
}

ag_status ag_model_weights_put_matrix(ag_model_weights *w, ag_backend *be, ag_tensor *out,
                                      const ag_weight_spec *spec, const ag_tensor *src,
                                      ag_dtype want, ag_consumed_fn consumed, void *user,
                                      ag_error *err) {
    ag_buffer *owner;
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
