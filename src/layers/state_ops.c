/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/pass.h"

#include "core/backend_ops.h"
#include "core/fail.h"

/* Context of ag_state_fn. */
typedef struct state_op {
    const ag_pass *pass;
    const ag_op *op;
    ag_tensor *out;
} state_op;

/* Returns n rows of a value from row0 on. Restoring a state computes up to AG_ROLLBACK rows;
 * every value has space for them, even if the pass has fewer. */
static ag_status rows_from(const ag_tensor *value, size_t row0, size_t n, ag_tensor *out,
                           ag_error *err) {
    const size_t cols = ag_shape_cols(&value->shape);
    return ag_tensor_make(out, AG_F32, ag_shape_2d(n, cols), value->buffer,
                          value->offset + row0 * cols * sizeof(float), err);
}

/* Runs the rows of every sequence through its state. Restores all states first, since restoring
 * overwrites the output rows. */
static ag_status run_sequences(state_op *s, const ag_tensor *in, size_t n_in, ag_state_fn fn,
                               ag_error *err) {
    const ag_pass *pass = s->pass;
    const uint32_t state = pass->program->recurrent[s->op->params].state;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        AG_TRY(
            ag_layer_state_restore(pass->seqs[i].state, state, pass->ws->shape.n_rows, fn, s, err));
    }
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const ag_sequence *seq = &pass->seqs[i];
        ag_tensor rows[AG_STATE_INPUTS] = {{0}};
        for (size_t k = 0; k < n_in; k++)
            AG_TRY(ag_tensor_rows(&rows[k], &in[k], seq->row0, seq->n, err));
        AG_TRY(ag_layer_state_run(seq->state, state, rows, seq->row0, fn, s, err));
    }
    return AG_OK;
}

static const ag_tensor *weight_of(const state_op *s, int i) {
    return s->pass->weights[s->op->w[i]].tensor;
}

/* The state is that of the convolution. */
static ag_status run_conv_rows(void *user, ag_tensor in[AG_STATE_INPUTS], size_t row0,
                               ag_tensor *state, ag_error *err) {
    const state_op *s = user;
    ag_backend *be = s->pass->backend;
    ag_tensor out;
    AG_TRY(rows_from(&s->out[0], row0, ag_shape_rows(&in[0].shape), &out, err));
    return ag_take_error(be, ag_causal_conv(be, &out, &in[0], weight_of(s, 0), state, false), err);
}

ag_status ag_run_short_conv(const ag_pass *pass, const ag_op *op, const ag_tensor *in,
                            ag_tensor *out, ag_error *err) {
    state_op s = {pass, op, out};
    return run_sequences(&s, in, 1, run_conv_rows, err);
}

/* in: qkv, a, b. The state is that of the convolution, then the matrices. */
static ag_status run_delta_rows(void *user, ag_tensor in[AG_STATE_INPUTS], size_t row0,
                                ag_tensor *state, ag_error *err) {
    const state_op *s = user;
    const ag_delta_params *p = &s->pass->program->recurrent[s->op->params].delta;
    const ag_tensor *conv = weight_of(s, 0);
    const size_t n = ag_shape_rows(&in[0].shape), channels = ag_shape_cols(&in[0].shape);
    const size_t before = ag_shape_rows(&conv->shape) - 1, matrices = before * channels;
    ag_backend *be = s->pass->backend;
    ag_tensor out, convolved, columns, matrix;
    AG_TRY(rows_from(&s->out[0], row0, n, &out, err));
    AG_TRY(rows_from(&s->out[1], row0, n, &convolved, err));
    AG_TRY(ag_tensor_make(&columns, AG_F32, ag_shape_2d(before, channels), state->buffer,
                          state->offset, err));
    AG_TRY(ag_tensor_make(&matrix, AG_F32, ag_shape_2d((size_t)p->n_v_heads * p->k_dim, p->v_dim),
                          state->buffer, state->offset + matrices * sizeof(float), err));
    AG_TRY(ag_take_error(be, ag_causal_conv(be, &convolved, &in[0], conv, &columns, true), err));
    return ag_take_error(be,
                         ag_delta_rule(be, &out, &convolved, &in[1], &in[2], weight_of(s, 1),
                                       weight_of(s, 2), &matrix, p),
                         err);
}

ag_status ag_run_delta_net(const ag_pass *pass, const ag_op *op, const ag_tensor *in,
                           ag_tensor *out, ag_error *err) {
    state_op s = {pass, op, out};
    return run_sequences(&s, in, 3, run_delta_rows, err);
}
