/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the GGUF form of a Hugging Face directory: its tensors with the names and the order of
 * rows that GGUF files use. */
#include "convert/out_model.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "models/config.h"
#include "models/gguf_config.h"
#include "models/rope.h"
#include "models/weights.h"

#include <stdio.h>
#include <string.h>

typedef struct directory {
    ag_out_model *m;
    ag_model_spec from, to; /* `to` uses the names of GGUF files */
    const ag_source_tensor *embedding;
    bool tied;
    float query_factor;
} directory;

static ag_status no_memory(const directory *d, ag_error *err) {
    return AG_FAIL(err, NOMEM, "list of tensors of %s", d->m->source->path);
}

/* ---- tensors ---- */

/* Adds the rows of `w` to the tensor of `g`, which may exist already. */
static ag_status add_section(directory *d, const ag_source_tensor *source, const ag_weight_spec *w,
                             const ag_weight_spec *g, float factor, ag_error *err) {
    ag_out_tensor *t = ag_out_find(d->m, g->name);
    if (!t) t = ag_out_add(d->m, g->name);
    if (!t) return no_memory(d, err);
    ag_out_section section = {.source = source, .from = w->order, .to = g->order, .rows = w->rows};
    if (w->transposed) section.transposed = w->order.file_rows / w->stacked;
    if (w->is_mxfp4) {
        AG_TRY(ag_model_weights_find_exponents(d->m->source, w, &section.exponents, err));
    }
    t->shape =
        w->kind == AG_WEIGHT_FILTER ? ag_shape_2d(g->rows, w->cols) : ag_weight_file_shape(g);
    t->by_value = w->kind == AG_WEIGHT_VECTOR;
    t->add = (float)w->add_one - (float)g->add_one;
    t->minus_exp = w->minus_exp && !g->minus_exp;
    if (t->n_sections && t->factor != factor) {
        return AG_FAIL(err, UNSUPPORTED, "tensor %s: its source tensors need different factors",
                       g->name);
    }
    t->factor = factor;
    return ag_out_add_section(t, &section) ? AG_OK : no_memory(d, err);
}

static ag_status add_weight(directory *d, const ag_weight_spec *w, const ag_weight_spec *g,
                            float factor, ag_error *err) {
    const ag_source_tensor *source;
    AG_TRY(ag_model_weights_find(d->m->source, w, &source, err));
    return add_section(d, source, w, g, factor, err);
}

/* The factor of queries goes into their norm if they have one, else into their projection. */
static float find_factor(const directory *d, uint32_t layer, const ag_weight_spec *w) {
    const ag_layer_spec *kind = ag_spec_layer(&d->from, layer);
    const bool is_norm = w->tensor == AG_LT_Q_NORM;
    const bool is_query = w->tensor == AG_LT_WQ || w->tensor == AG_LT_BQ;
    return (kind->qk_norm || kind->full_qk_norm ? is_norm : is_query) ? d->query_factor : 1;
}

/* The rows of queries and keys keep their order. GGUF files order the heads of values
 * differently. */
static ag_status add_delta_rows(directory *d, const ag_layer_spec *kind, const ag_weight_spec *w,
                                const ag_weight_spec *g, ag_error *err) {
    const size_t keys = 2 * (size_t)kind->delta.n_k_heads * kind->delta.k_dim;
    ag_weight_spec from = *w, to = *g;
    const ag_source_tensor *source;
    AG_TRY(ag_model_weights_find(d->m->source, w, &source, err));
    from.rows = keys;
    from.order = to.order = ag_row_order_range(w->rows, 0, keys);
    AG_TRY(add_section(d, source, &from, &to, 1, err));
    from.rows = w->rows - keys;
    from.order = ag_row_order_range(w->rows, keys, from.rows);
    to.order = ag_delta_value_order(kind);
    to.order.file_rows = w->rows;
    to.order.first = keys;
    return add_section(d, source, &from, &to, 1, err);
}

static ag_status add_layer_weight(directory *d, uint32_t layer, const ag_weight_spec *w,
                                  const ag_weight_spec *g, ag_error *err) {
    const ag_layer_spec *kind = ag_spec_layer(&d->to, layer);
    const bool regrouped = ag_spec_is_regrouped(&d->to, kind);
    const bool with_keys = w->tensor == AG_LT_DELTA_QKV || w->tensor == AG_LT_DELTA_CONV;
    if (w->tensor == AG_LT_INPUT_PROJECTION) { /* a slice of a matrix that all layers share */
        ag_weight_spec all = *w, to = *g;
        all.rows = to.rows = w->order.file_rows;
        all.order = to.order = (ag_row_order){0};
        return layer ? AG_OK : add_weight(d, &all, &to, 1, err);
    }
    if (regrouped && with_keys) return add_delta_rows(d, kind, w, g, err);
    AG_TRY(add_weight(d, w, g, find_factor(d, layer, w), err));
    if (regrouped && w->tensor == AG_LT_DELTA_OUT)
        ag_out_find(d->m, g->name)->columns = ag_delta_value_order(kind);
    return AG_OK;
}

static ag_status add_layers(directory *d, ag_error *err) {
    for (uint32_t l = 0; l < d->from.n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(&d->from, l); i++) {
            const ag_weight_spec w = ag_layer_weight(&d->from, l, i);
            const ag_weight_spec g = ag_layer_weight(&d->to, l, i);
            AG_TRY(add_layer_weight(d, l, &w, &g, err));
        }
    }
    d->m->n_layers = d->from.n_layers;
    return AG_OK;
}

static ag_status add_model_weights(directory *d, ag_error *err) {
    const ag_weight_spec table = ag_embedding_weight(&d->to), head = ag_lm_head_weight(&d->to);
    const ag_weight_spec norm = ag_norm_weight(&d->to);
    const ag_weight_spec from_table = ag_embedding_weight(&d->from);
    const ag_weight_spec from_norm = ag_norm_weight(&d->from);
    const ag_weight_spec from_head = ag_lm_head_weight(&d->from);
    AG_TRY(add_section(d, d->embedding, &from_table, &table, 1, err));
    if (d->from.layer_input) {
        const ag_weight_spec from_inputs = ag_layer_input_weight(&d->from);
        const ag_weight_spec inputs = ag_layer_input_weight(&d->to);
        AG_TRY(add_weight(d, &from_inputs, &inputs, 1, err));
    }
    AG_TRY(add_layers(d, err));
    AG_TRY(add_weight(d, &from_norm, &norm, 1, err));
    return d->tied ? AG_OK : add_weight(d, &from_head, &head, 1, err);
}

/* ---- rotary positions ---- */

/* Adds a tensor of the divisors of the frequencies, one for each rotated pair. */
static ag_status add_divisors(directory *d, const char *name, const float *divisors, size_t n,
                              ag_error *err) {
    ag_out_tensor *t = ag_out_add(d->m, name);
    if (!t) return no_memory(d, err);
    t->shape = ag_shape_1d(n);
    t->keeps_precision = true;
    t->values = ag_malloc(n * sizeof *t->values);
    if (!t->values) return no_memory(d, err);
    memcpy(t->values, divisors, n * sizeof *divisors);
    return AG_OK;
}

static ag_status add_llama3(directory *d, const ag_rope_spec *rope, ag_error *err) {
    const size_t n = rope->n_rotated / 2;
    const ag_rope_spec plain = {.theta = rope->theta, .n_rotated = rope->n_rotated};
    float *scaled = ag_malloc(2 * n * sizeof *scaled), *unscaled = scaled + n;
    if (!scaled) return no_memory(d, err);
    ag_rope_inv_freq(rope, false, scaled);
    ag_rope_inv_freq(&plain, false, unscaled);
    for (size_t i = 0; i < n; i++) scaled[i] = unscaled[i] / scaled[i];
    const ag_status st = add_divisors(d, "rope_freqs.weight", scaled, n, err);
    ag_free(scaled);
    return st;
}

/* A divisor of 1e30 stands for a frequency of 0. */
static ag_status add_proportional(directory *d, const ag_rope_spec *rope, ag_error *err) {
    const size_t n = rope->n_rotated / 2;
    float *divisors = ag_malloc(n * sizeof *divisors);
    if (!divisors) return no_memory(d, err);
    for (size_t i = 0; i < n; i++) {
        divisors[i] = 2 * i < rope->n_turned ? (float)rope->scaling.factor : 1e30f;
    }
    const ag_status st = add_divisors(d, "rope_freqs.weight", divisors, n, err);
    ag_free(divisors);
    return st;
}

static ag_status add_rope(directory *d, ag_error *err) {
    const ag_rope_spec *rope = &d->from.ropes[0];
    if (rope->scaling.type == AG_ROPE_PROPORTIONAL) return add_proportional(d, rope, err);
    if (rope->scaling.type == AG_ROPE_LLAMA3) return add_llama3(d, rope, err);
    if (!rope->n_divisors) return AG_OK;
    AG_TRY(add_divisors(d, "rope_factors_long.weight", rope->divisors[1], rope->n_divisors, err));
    return add_divisors(d, "rope_factors_short.weight", rope->divisors[0], rope->n_divisors, err);
}

/* ---- the whole model ---- */

static ag_status open_model(directory *d, ag_error *err) {
    const ag_model_params params = {.as_is = true};
    ag_weights_summary summary;
    AG_TRY(ag_spec_read(d->m->source, &d->from, err));
    AG_TRY(ag_model_weights_inspect(NULL, &d->from, d->m->source, &params, &summary, err));
    d->embedding = summary.embedding;
    d->tied = summary.tied;
    d->to = d->from;
    ag_spec_name_as_gguf(&d->to);
    d->query_factor = ag_gguf_query_factor(&d->from);
    return AG_OK;
}

ag_status ag_out_from_directory(ag_out_model *m, const ag_quantize_params *params, ag_error *err) {
    directory *d = ag_calloc(1, sizeof *d); /* a spec is too large for the stack */
    if (!d) return AG_FAIL(err, NOMEM, "description of %s", m->source->path);
    d->m = m;
    ag_status st = open_model(d, err);
    if (st == AG_OK) st = ag_gguf_put_model(&m->writer, m->source, &d->from, err);
    if (st == AG_OK) st = ag_put_vocabulary(m, &d->from, params->pre, err);
    if (st == AG_OK) st = add_model_weights(d, err);
    if (st == AG_OK) st = add_rope(d, err);
    ag_free(d);
    return st;
}
