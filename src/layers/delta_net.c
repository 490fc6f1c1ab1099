/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "layers/layer.h"

typedef struct delta_net {
    ag_backend *backend;
    const ag_layer *layer;
    const ag_layer_facts *facts;
    const ag_workspace *ws;
    size_t channels, values;
} delta_net;

/* The first rows of a tensor of the workspace, cols wide, from row0 on. */
static ag_status rows_of(const ag_tensor *t, size_t row0, size_t n, size_t cols, ag_tensor *out,
                         ag_error *err) {
    return ag_tensor_make(out, AG_F32, ag_shape_2d(n, cols), t->buffer,
                          t->offset + row0 * cols * sizeof(float), err);
}

/* in: q, k and v before the convolution, a, b. The state is the convolution's, then the matrices.
 */
static ag_status update(void *user, ag_tensor in[AG_STATE_INPUTS], size_t row0, bool restoring,
                        ag_tensor *state, ag_error *err) {
    (void)restoring; /* what comes out then is written over */
    const delta_net *d = user;
    const ag_layer *l = d->layer;
    const ag_delta_params *p = &d->facts->delta;
    const size_t n = ag_shape_rows(&in[0].shape),
                 before = ag_shape_rows(&l->of[AG_LT_DELTA_CONV].shape) - 1;
    const size_t matrices = before * d->channels;
    ag_backend *be = d->backend;
    ag_tensor qkv, out, columns, s;
    AG_TRY(rows_of(&d->ws->out_attn, row0, n, d->channels, &qkv, err));
    AG_TRY(rows_of(&d->ws->v, row0, n, d->values, &out, err));
    AG_TRY(ag_tensor_make(&columns, AG_F32, ag_shape_2d(before, d->channels), state->buffer,
                          state->offset, err));
    AG_TRY(ag_tensor_make(&s, AG_F32, ag_shape_2d((size_t)p->n_v_heads * p->k_dim, p->v_dim),
                          state->buffer, state->offset + matrices * sizeof(float), err));
    AG_TRY(ag_take_error(
        be, ag_causal_conv(be, &qkv, &in[0], &l->of[AG_LT_DELTA_CONV], &columns, true), err));
    return ag_take_error(be,
                         ag_delta_rule(be, &out, &qkv, &in[1], &in[2], &l->of[AG_LT_DELTA_DECAY],
                                       &l->of[AG_LT_DELTA_DT_BIAS], &s, p),
                         err);
}

ag_status ag_delta_net(const ag_layer *layer, const ag_layer_facts *facts,
                       const ag_layer_pass *pass, const ag_tensor *normed, ag_tensor *out,
                       ag_error *err) {
    const ag_workspace *ws = pass->ws;
    const ag_delta_params *p = &facts->delta;
    const size_t values = (size_t)p->n_v_heads * p->v_dim;
    const size_t channels = 2 * (size_t)p->n_k_heads * p->k_dim + values;
    ag_backend *be = pass->backend;
    ag_tensor qkv, z, a, b, y;
    AG_TRY(ag_layer_view(pass, &ws->q, channels, &qkv, err));
    AG_TRY(ag_layer_view(pass, &ws->k, values, &z, err));
    AG_TRY(ag_layer_view(pass, &ws->gate, p->n_v_heads, &a, err));
    AG_TRY(ag_layer_view(pass, &ws->up, p->n_v_heads, &b, err));
    AG_TRY(ag_layer_view(pass, &ws->v, values, &y, err));
    ag_tensor *const to[] = {&qkv, &z, &a, &b};
    const ag_tensor *w[AG_MIXER_INPUTS];
    for (int i = 0; i < AG_MIXER_INPUTS; i++) w[i] = &layer->of[AG_LT_DELTA_QKV + i];
    AG_TRY(ag_take_error(be, ag_matmul_group(be, to, normed, w, AG_MIXER_INPUTS), err));
    const ag_tensor inputs[AG_STATE_INPUTS] = {qkv, a, b};
    delta_net d = {be, layer, facts, ws, channels, values};
    AG_TRY(ag_mix_sequences(facts, pass, inputs, update, &d, err));
    AG_TRY(ag_take_error(be, ag_norm_heads(be, &y, &layer->of[AG_LT_DELTA_NORM], pass->norm_eps),
                         err));
    *out = z;
    return ag_take_error(be, ag_silu_mul(be, out, &y), err);
}
