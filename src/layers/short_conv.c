/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "layers/layer.h"

typedef struct short_conv {
    ag_backend *backend;
    const ag_layer *layer;
    ag_tensor out; /* [n rows of the workspace, channels] */
} short_conv;

/* The state is the convolution's. */
static ag_status convolve(void *user, ag_tensor in[AG_STATE_INPUTS], size_t row0, bool restoring,
                          ag_tensor *state, ag_error *err) {
    (void)restoring; /* what comes out then is written over */
    const short_conv *c = user;
    ag_tensor out;
    AG_TRY(ag_tensor_rows(&out, &c->out, row0, ag_shape_rows(&in[0].shape), err));
    return ag_take_error(
        c->backend,
        ag_causal_conv(c->backend, &out, &in[0], &c->layer->of[AG_LT_CONV], state, false), err);
}

ag_status ag_short_conv(const ag_layer *layer, const ag_layer_facts *facts,
                        const ag_layer_pass *pass, const ag_tensor *normed, ag_tensor *out,
                        ag_error *err) {
    const ag_workspace *ws = pass->ws;
    const size_t dim = ws->shape.dim;
    ag_backend *be = pass->backend;
    ag_tensor b, c, x, inputs[AG_STATE_INPUTS] = {{0}};
    AG_TRY(ag_layer_view(pass, &ws->q, dim, &b, err));
    AG_TRY(ag_layer_view(pass, &ws->k, dim, &c, err));
    AG_TRY(ag_layer_view(pass, &ws->v, dim, &x, err));
    ag_tensor *const y[] = {&b, &c, &x};
    const ag_tensor *const w[] = {&layer->of[AG_LT_CONV_B], &layer->of[AG_LT_CONV_C],
                                  &layer->of[AG_LT_CONV_X]};
    AG_TRY(ag_take_error(be, ag_matmul_group(be, y, normed, w, 3), err));
    AG_TRY(ag_take_error(be, ag_mul(be, &b, &x), err));
    inputs[0] = b;
    short_conv conv = {.backend = be, .layer = layer};
    AG_TRY(ag_tensor_make(&conv.out, AG_F32, ag_shape_2d(ws->shape.n_rows, dim),
                          ws->out_attn.buffer, ws->out_attn.offset, err));
    AG_TRY(ag_mix_sequences(facts, pass, inputs, convolve, &conv, err));
    AG_TRY(ag_layer_view(pass, &ws->out_attn, dim, out, err));
    return ag_take_error(be, ag_mul(be, out, &c), err);
}
