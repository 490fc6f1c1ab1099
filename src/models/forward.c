/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass: one for all families. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"
#include "models/wanted_rows.h"

#include <string.h>

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

ag_workspace_shape ag_model_workspace_shape(const ag_model_info *info, size_t n_rows,
                                            size_t n_seqs) {
    ag_workspace_shape shape = {
        .n_rows = n_rows,
        .n_seqs = n_seqs,
        .dim = info->hidden_size,
        .ffn_dim = info->layer_input_size,
        .input_dim = (size_t)info->n_layers * info->layer_input_size,
    };
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) {
        const ag_layer_kind *kind = &info->layer_kinds[k];
        const size_t q_dim = (size_t)kind->n_heads * kind->head_dim;
        const size_t kv_dim = (size_t)kind->n_kv_heads * kind->head_dim;
        /* Mixers with a state have their inputs and outputs in the places of q, k and v. */
        const size_t values = kind->mixer == AG_MIXER_DELTA_NET ? q_dim : kind->channels;
        shape.q_dim = larger(shape.q_dim, larger(q_dim, kind->channels));
        shape.kv_dim = larger(shape.kv_dim, larger(kv_dim, values));
        shape.ffn_dim = larger(shape.ffn_dim, kind->intermediate_size);
        shape.n_windows += kind->window > 0;
    }
    return shape;
}

ag_status ag_model_reserve(ag_model *m, size_t n_rows, size_t n_seqs, ag_error *err) {
    const ag_workspace_shape *have = &m->workspace.shape;
    if (n_rows <= have->n_rows && n_seqs <= have->n_seqs &&
        (!m->runs_program || have->program_cols))
        return AG_OK;
    if (n_rows < have->n_rows) n_rows = have->n_rows;
    if (n_seqs < have->n_seqs) n_seqs = have->n_seqs;
    if (n_seqs > have->n_seqs || !m->sequences) {
        ag_sequence *sequences = ag_calloc(2 * n_seqs, sizeof *sequences);
        ag_kv_growth *growth = ag_calloc(n_seqs, sizeof *growth);
        if (!sequences || !growth) {
            ag_free(sequences);
            ag_free(growth);
            return AG_FAIL(err, NOMEM, "a list of %zu sequences", n_seqs);
        }
        ag_free(m->sequences);
        m->sequences = sequences;
        m->narrowed = sequences + n_seqs;
        ag_free(m->growth);
        m->growth = growth;
    }
    ag_workspace_shape shape = ag_model_workspace_shape(&m->info, n_rows, n_seqs);
    if (m->runs_program) shape.program_cols = m->program->cols;
    return ag_workspace_reserve(&m->workspace, m->backend, &shape, err);
}

uint32_t *ag_model_visible_from(const ag_model *m, uint32_t kind) {
    size_t list = 0;
    if (!m->spec.kinds[kind].window) return NULL;
    for (uint32_t k = 0; k < kind; k++) list += m->spec.kinds[k].window > 0;
    return m->workspace.visible_from + list * m->workspace.shape.n_rows;
}

/* Positions of a row, and the first one that it sees in each kind of layers with a window. */
static void set_position(ag_model *m, size_t row, uint32_t position) {
    m->workspace.positions[row] = position;
    for (uint32_t k = 0; k < m->spec.n_kinds; k++) {
        const uint32_t window = m->spec.kinds[k].window;
        uint32_t *from = ag_model_visible_from(m, k);
        if (from) from[row] = position < window ? 0 : position - window + 1;
    }
}

/* Row ranges of a pass, and memory for what it adds to all caches: nothing can run out on the way.
 */
static ag_status set_ranges(ag_model *m, ag_sequence *items, size_t n_items, size_t *n_rows,
                            ag_error *err) {
    size_t row = 0;
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].n > m->workspace.shape.n_rows - row) {
            return AG_FAIL(err, LIMIT, "%zu tokens in one pass, the workspace holds %zu",
                           row + items[i].n, m->workspace.shape.n_rows);
        }
        m->growth[i] = (ag_kv_growth){.cache = items[i].cache, .n = (uint32_t)items[i].n};
        items[i].row0 = row;
        row += items[i].n;
    }
    *n_rows = row;
    return ag_kv_caches_reserve(m->growth, n_items, err);
}

static ag_status set_rows(ag_model *m, ag_sequence *items, size_t n_items, size_t *n_rows,
                          ag_error *err) {
    AG_TRY(set_ranges(m, items, n_items, n_rows, err));
    for (size_t i = 0; i < n_items; i++) {
        AG_TRY(ag_layer_state_begin(items[i].state, items[i].position, items[i].n, err));
        for (size_t t = 0; t < items[i].n; t++)
            set_position(m, items[i].row0 + t, items[i].position + (uint32_t)t);
    }
    return AG_OK;
}

static ag_status embed(ag_model *m, const ag_sequence *items, size_t n_items, ag_error *err) {
    size_t dim = m->info.hidden_size, row = 0;
    for (size_t i = 0; i < n_items; i++) {
        AG_TRY(ag_embedding_lookup(&m->embedding, m->workspace.host_rows + row * dim, items[i].ids,
                                   items[i].n, err));
        row += items[i].n;
    }
    return ag_buffer_upload(m->workspace.residual.buffer, m->workspace.residual.offset,
                            m->workspace.host_rows, row * dim * sizeof(float), err);
}

/* ---- what layers have for themselves ---- */

/* The rows of layer `layer` in ws->inputs. */
static ag_status input_of(const ag_model *m, const ag_layer_pass *pass, uint32_t layer,
                          ag_tensor *out, ag_error *err) {
    const size_t n = m->spec.layer_input, first = layer * pass->n_rows * n;
    const ag_tensor *t = &m->workspace.inputs;
    return ag_tensor_make(out, AG_F32, ag_shape_2d(pass->n_rows, n), t->buffer,
                          t->offset + first * sizeof(float), err);
}

/* A row of the table holds a token's values for all layers; they are put layer by layer. */
static ag_status look_up_inputs(ag_model *m, const ag_layer_pass *pass, ag_error *err) {
    const ag_workspace *ws = &m->workspace;
    const size_t n = m->spec.layer_input, n_layers = m->spec.n_layers;
    float *row = ws->host_inputs, *all = row + ws->shape.input_dim;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const ag_sequence *s = &pass->seqs[i];
        for (size_t t = 0; t < s->n; t++) {
            AG_TRY(ag_embedding_lookup(&m->layer_inputs, row, &s->ids[t], 1, err));
            for (size_t l = 0; l < n_layers; l++) {
                memcpy(all + (l * pass->n_rows + s->row0 + t) * n, row + l * n, n * sizeof *row);
            }
        }
    }
    return ag_buffer_upload(ws->inputs.buffer, ws->inputs.offset, all,
                            pass->n_rows * n_layers * n * sizeof *all, err);
}

/* To a token's values from the table come those that its embedding is projected to. The norm of
 * x / sqrt(dim) is that of x with another epsilon. */
static ag_status make_inputs(ag_model *m, const ag_layer_pass *pass, const ag_tensor *residual,
                             ag_error *err) {
    ag_backend *be = m->backend;
    const ag_layer *layers = m->weights.layers;
    const float eps = pass->norm_eps * (float)m->spec.hidden_size;
    ag_tensor part, input;
    if (!m->spec.layer_input) return AG_OK;
    AG_TRY(look_up_inputs(m, pass, err));
    AG_TRY(ag_layer_view(pass, &m->workspace.gate, m->spec.layer_input, &part, err));
    for (uint32_t l = 0; l < m->spec.n_layers; l++) {
        AG_TRY(input_of(m, pass, l, &input, err));
        ag_status st =
            ag_matmul_transposed(be, &part, residual, &layers[l].of[AG_LT_INPUT_PROJECTION]);
        if (st == AG_OK) st = ag_rms_norm(be, &part, &part, &layers[0].of[AG_LT_INPUT_NORM], eps);
        if (st == AG_OK) st = ag_add_assign(be, &input, &part);
        if (st != AG_OK) return ag_take_error(be, st, err);
    }
    return AG_OK;
}

/* ---- layers ---- */

static ag_attention_layer attention_of(const ag_model *m, uint32_t layer) {
    const ag_layer_spec *l = ag_spec_layer(&m->spec, layer);
    float factor;
    const ag_tensor *of_short = ag_model_rope(m, layer, false, &factor);
    return (ag_attention_layer){
        .index = m->places[layer].cache,
        .shares_kv = l->shares_kv,
        .n_heads = l->n_heads,
        .n_kv_heads = l->n_kv_heads,
        .head_dim = l->head_dim,
        .inv_freq = {of_short, ag_model_rope(m, layer, true, &factor)},
        .rope_factor = factor,
        .query_beta = m->spec.query_beta,
        .query_period = m->spec.query_period,
        .params = {.scale = l->scale, .softcap = l->softcap},
        .visible_from = ag_model_visible_from(m, m->spec.kind_of[layer]),
    };
}

static ag_layer_facts facts_of(const ag_model *m, uint32_t layer) {
    const ag_layer_spec *l = ag_spec_layer(&m->spec, layer);
    ag_layer_facts facts = {
        .mixer = l->mixer,
        .state = m->places[layer].state,
        .delta = l->delta,
        .activation = l->activation,
        .ffn_dim = ag_spec_ffn_dim(&m->spec, l),
        .out_scale = m->places[layer].out_scale,
    };
    if (l->mixer == AG_MIXER_ATTENTION) facts.attention = attention_of(m, layer);
    return facts;
}

static bool is_cancelled(const ag_layer_pass *pass) {
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const atomic_bool *cancel = pass->seqs[i].cancel;
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) return true;
    }
    return false;
}

/* now: the pass, or what goes on of it. */
static ag_status run_layer(ag_model *m, const ag_layer_pass *pass, const ag_layer_pass *now,
                           uint32_t l, ag_error *err) {
    const ag_model_weights *w = &m->weights;
    const ag_tensor *next =
        l + 1 < w->n_layers ? &w->layers[l + 1].of[AG_LT_ATTENTION_NORM] : &w->norm;
    ag_layer_facts facts = facts_of(m, l);
    ag_tensor input, rows;
    if (m->spec.layer_input) {
        AG_TRY(input_of(m, pass, l, &input, err));
        if (now != pass) AG_TRY(ag_gather_wanted(pass, &input, err));
        AG_TRY(ag_tensor_rows(&rows, &input, 0, now->n_rows, err));
        facts.input = &rows;
    }
    return ag_layer_forward(&w->layers[l], &facts, now, next, err);
}

static ag_status run_layers(ag_model *m, const ag_layer_pass *pass, ag_error *err) {
    const ag_model_weights *w = &m->weights;
    const size_t n_wanted = ag_wanted_rows(pass);
    const ag_layer_pass *now = pass;
    ag_layer_pass narrow;
    ag_tensor residual, normed;
    AG_TRY(ag_tensor_rows(&residual, &m->workspace.residual, 0, pass->n_rows, err));
    AG_TRY(ag_tensor_rows(&normed, &m->workspace.normed, 0, pass->n_rows, err));
    const ag_tensor *first = &w->layers[0].of[AG_LT_ATTENTION_NORM];
    if (first->buffer) {
        AG_TRY(ag_take_error(
            m->backend, ag_rms_norm(m->backend, &normed, &residual, first, pass->norm_eps), err));
    }
    AG_TRY(make_inputs(m, pass, &residual, err));
    for (uint32_t l = 0; l < w->n_layers; l++) {
        if (is_cancelled(pass)) return AG_FAIL(err, CANCELLED, "cancelled before layer %u", l);
        if (l == m->n_keeping && n_wanted < pass->n_rows) {
            if (!n_wanted) return AG_OK;
            AG_TRY(ag_narrow_pass(m, pass, &narrow, err));
            now = &narrow;
        }
        AG_TRY(run_layer(m, pass, now, l, err));
    }
    return now == pass ? AG_OK : ag_widen_pass(pass, err);
}

/* ---- the program ---- */

static ag_status copy_rows(ag_model *m, const ag_tensor *to, size_t to_row, const ag_tensor *from,
                           size_t from_row, size_t n, ag_error *err) {
    const size_t cols = ag_shape_cols(&from->shape);
    ag_tensor dst = *to;
    return ag_take_error(
        m->backend, ag_copy_slice(m->backend, &dst, to_row * cols, from, from_row * cols, n * cols),
        err);
}

/* Embeddings and layers' own inputs, to where the program reads them. */
static ag_status give_inputs(ag_model *m, const ag_pass *pass, const ag_layer_pass *old,
                             ag_error *err) {
    const ag_program *p = m->program;
    ag_tensor value, from;
    AG_TRY(ag_pass_value(pass, p->stream, &value, err));
    AG_TRY(copy_rows(m, &value, 0, &m->workspace.residual, 0, pass->n_rows, err));
    if (!p->layer_inputs) return AG_OK;
    AG_TRY(look_up_inputs(m, old, err));
    for (uint32_t l = 0; l < p->n_layers; l++) {
        AG_TRY(ag_pass_value(pass, p->layer_inputs[l], &value, err));
        AG_TRY(input_of(m, old, l, &from, err));
        AG_TRY(copy_rows(m, &value, 0, &from, 0, pass->n_rows, err));
    }
    return AG_OK;
}

/* The rows that have come out, to their places in the workspace's `normed`. */
static ag_status take_hidden(ag_model *m, const ag_pass *pass, const ag_layer_pass *old,
                             ag_error *err) {
    ag_tensor hidden;
    size_t from = 0;
    if (!pass->n_rows) return AG_OK;
    AG_TRY(ag_pass_value(pass, m->program->hidden, &hidden, err));
    if (pass->n_rows == old->n_rows)
        return copy_rows(m, &m->workspace.normed, 0, &hidden, 0, pass->n_rows, err);
    for (size_t i = 0; i < old->n_seqs; i++) {
        const ag_sequence *s = &old->seqs[i];
        const size_t n = s->n - s->n_unwanted;
        if (n) {
            AG_TRY(
                copy_rows(m, &m->workspace.normed, s->row0 + s->n_unwanted, &hidden, from, n, err));
        }
        from += n;
    }
    return AG_OK;
}

static ag_status run_program(ag_model *m, const ag_layer_pass *old, ag_error *err) {
    ag_pass pass = {.backend = m->backend,
                    .program = m->program,
                    .weights = m->bound,
                    .inv_freq = m->inv_freq,
                    .ws = &m->workspace,
                    .n_rows = old->n_rows,
                    .seqs = old->seqs,
                    .n_seqs = old->n_seqs,
                    .narrowed = m->narrowed};
    AG_TRY(give_inputs(m, &pass, old, err));
    AG_TRY(ag_run_program(&pass, err));
    return take_hidden(m, &pass, old, err);
}

/* The rows' embeddings are there. */
static ag_status pass_rows(ag_model *m, const ag_sequence *items, size_t n_items, size_t n_rows,
                           ag_error *err) {
    const ag_layer_pass pass = {
        .backend = m->backend,
        .ws = &m->workspace,
        .n_rows = n_rows,
        .seqs = items,
        .n_seqs = n_items,
        .norm_eps = ag_spec_eps(&m->spec),
    };
    ag_status st = m->runs_program ? run_program(m, &pass, err) : run_layers(m, &pass, err);
    for (size_t i = 0; i < n_items; i++) {
        if (st == AG_OK) {
            ag_layer_state_commit(items[i].state);
        } else { /* some layers hold the new tokens, others do not */
            ag_layer_state_abandon(items[i].state);
            ag_kv_cache_truncate(items[i].cache, items[i].position, NULL);
        }
    }
    return st;
}

ag_status ag_model_forward(ag_model *m, ag_sequence *items, size_t n_items, ag_error *err) {
    size_t n_rows = 0;
    AG_TRY(set_rows(m, items, n_items, &n_rows, err));
    AG_TRY(embed(m, items, n_items, err));
    return pass_rows(m, items, n_items, n_rows, err);
}

ag_status ag_model_forward_row(ag_model *m, ag_sequence *item, ag_error *err) {
    size_t n_rows = 0;
    AG_TRY(set_rows(m, item, 1, &n_rows, err));
    return pass_rows(m, item, 1, n_rows, err);
}

ag_status ag_model_logits(ag_model *m, const ag_tensor *hidden, size_t row0, size_t n_rows,
                          ag_tensor *logits, ag_error *err) {
    ag_backend *be = m->backend;
    ag_tensor rows;
    AG_TRY(ag_tensor_rows(&rows, hidden, row0, n_rows, err));
    ag_status st = ag_matmul_transposed(be, logits, &rows, &m->weights.lm_head);
    if (st == AG_OK && m->spec.logit_softcap != 0) {
        st = ag_softcap(be, logits, m->spec.logit_softcap);
    }
    return ag_take_error(be, st, err);
}
