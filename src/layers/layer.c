/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"

#include "core/backend_ops.h"
#include "core/fail.h"

/* The first rows of the activations that all layers have; nothing is copied. */
typedef struct activations {
    ag_tensor residual, normed, mixed, gate, up, down;
} activations;

ag_status ag_layer_view(const ag_layer_pass *pass, const ag_tensor *t, size_t cols, ag_tensor *out,
                        ag_error *err) {
    return ag_tensor_make(out, AG_F32, ag_shape_2d(pass->n_rows, cols), t->buffer, t->offset, err);
}

static ag_status view_all(const ag_layer_pass *pass, size_t ffn_dim, activations *a,
                          ag_error *err) {
    const ag_workspace *ws = pass->ws;
    const size_t dim = ws->shape.dim;
    AG_TRY(ag_layer_view(pass, &ws->residual, dim, &a->residual, err));
    AG_TRY(ag_layer_view(pass, &ws->normed, dim, &a->normed, err));
    AG_TRY(ag_layer_view(pass, &ws->attn_out, dim, &a->mixed, err));
    AG_TRY(ag_layer_view(pass, &ws->gate, ffn_dim, &a->gate, err));
    AG_TRY(ag_layer_view(pass, &ws->up, ffn_dim, &a->up, err));
    return ag_layer_view(pass, &ws->down, dim, &a->down, err);
}

static ag_status add_bias(ag_backend *be, ag_tensor *x, const ag_tensor *bias) {
    return bias->buffer ? ag_add_bias(be, x, bias) : AG_OK;
}

/* In place, where there is such a norm. */
static ag_status norm_branch(ag_backend *be, ag_tensor *x, const ag_tensor *w, float eps) {
    return w->buffer ? ag_rms_norm(be, x, x, w, eps) : AG_OK;
}

ag_status ag_norm_heads(ag_backend *be, const ag_tensor *x, const ag_tensor *w, float eps) {
    ag_tensor heads;
    if (!w->buffer) return AG_OK;
    const size_t dim = w->shape.dim[0];
    const ag_shape rows = ag_shape_2d(ag_shape_numel(&x->shape) / dim, dim);
    AG_TRY(ag_tensor_reshape(&heads, x, rows, &be->err));
    return ag_rms_norm(be, &heads, &heads, w, eps);
}

/* What a branch reads. */
static const ag_tensor *input_of(const activations *a, const ag_tensor *norm) {
    return norm->buffer ? &a->normed : &a->residual;
}

/* Adds a branch to the stream, which is then normed for the next one where there is such a norm. */
static ag_status add_branch(ag_backend *be, activations *a, const ag_tensor *branch,
                            const ag_tensor *next_norm, float eps) {
    if (!next_norm->buffer) return ag_add_assign(be, &a->residual, branch);
    return ag_add_rms_norm(be, &a->normed, &a->residual, branch, next_norm, eps);
}

/* ---- attention ---- */

static ag_status project_qkv(const ag_layer *l, ag_backend *be, const ag_tensor *normed,
                             ag_tensor *q, ag_tensor *k, ag_tensor *v, float eps) {
    ag_tensor *const y[] = {q, k, v};
    const ag_tensor *const w[] = {&l->of[AG_LT_WQ], &l->of[AG_LT_WK], &l->of[AG_LT_WV]};
    const bool own = l->of[AG_LT_WK].buffer != NULL; /* keys and values */
    AG_TRY(ag_matmul_group(be, y, normed, w, own ? 3 : 1));
    AG_TRY(add_bias(be, q, &l->of[AG_LT_BQ]));
    AG_TRY(ag_norm_heads(be, q, &l->of[AG_LT_Q_NORM], eps));
    if (!own) return AG_OK;
    AG_TRY(add_bias(be, k, &l->of[AG_LT_BK]));
    AG_TRY(add_bias(be, v, &l->of[AG_LT_BV]));
    AG_TRY(ag_norm_heads(be, k, &l->of[AG_LT_K_NORM], eps));
    return ag_norm_heads(be, v, &l->of[AG_LT_ONES], eps);
}

/* out times sigmoid of its gate, in the place of the queries, which are done with. */
static ag_status gate_output(const ag_layer *l, ag_backend *be, const ag_tensor *normed,
                             ag_tensor *q, ag_tensor *out) {
    if (!l->of[AG_LT_OUT_GATE].buffer) return AG_OK;
    AG_TRY(ag_matmul_transposed(be, q, normed, &l->of[AG_LT_OUT_GATE]));
    AG_TRY(ag_sigmoid_mul(be, q, out));
    *out = *q;
    return AG_OK;
}

static ag_status attend(const ag_layer *l, const ag_attention_layer *at, const ag_layer_pass *pass,
                        const ag_tensor *normed, ag_tensor *out, ag_error *err) {
    const ag_workspace *ws = pass->ws;
    const size_t q_dim = (size_t)at->n_heads * at->head_dim;
    const size_t kv_dim = (size_t)at->n_kv_heads * at->head_dim;
    ag_backend *be = pass->backend;
    ag_tensor q, k, v;
    AG_TRY(ag_layer_view(pass, &ws->q, q_dim, &q, err));
    AG_TRY(ag_layer_view(pass, &ws->k, kv_dim, &k, err));
    AG_TRY(ag_layer_view(pass, &ws->v, kv_dim, &v, err));
    AG_TRY(ag_layer_view(pass, &ws->out_attn, q_dim, out, err));
    AG_TRY(ag_take_error(be, project_qkv(l, be, normed, &q, &k, &v, pass->norm_eps), err));
    AG_TRY(ag_self_attention(be, at, pass->seqs, pass->n_seqs, ws, out, &q, &k, &v, err));
    return ag_take_error(be, gate_output(l, be, normed, &q, out), err);
}

/* From the stream or its norm to what the output projection reads. */
static ag_status mix(const ag_layer *l, const ag_layer_facts *facts, const ag_layer_pass *pass,
                     const ag_tensor *normed, ag_tensor *out, ag_error *err) {
    switch (facts->mixer) {
    case AG_MIXER_SHORT_CONV:
        return ag_short_conv(l, facts, pass, normed, out, err);
    case AG_MIXER_DELTA_NET:
        return ag_delta_net(l, facts, pass, normed, out, err);
    case AG_MIXER_ATTENTION:
        break;
    }
    return attend(l, &facts->attention, pass, normed, out, err);
}

static ag_status project_out(const ag_layer *l, ag_mixer mixer, ag_backend *be, activations *a,
                             const ag_tensor *out, float eps) {
    static const ag_layer_tensor weights[] = {[AG_MIXER_ATTENTION] = AG_LT_WO,
                                              [AG_MIXER_SHORT_CONV] = AG_LT_CONV_OUT,
                                              [AG_MIXER_DELTA_NET] = AG_LT_DELTA_OUT};
    AG_TRY(ag_matmul_transposed(be, &a->mixed, out, &l->of[weights[mixer]]));
    AG_TRY(add_bias(be, &a->mixed, &l->of[AG_LT_BO]));
    AG_TRY(norm_branch(be, &a->mixed, &l->of[AG_LT_POST_ATTENTION_NORM], eps));
    return add_branch(be, a, &a->mixed, &l->of[AG_LT_FFN_NORM], eps);
}

/* ---- feed-forward ---- */

static ag_status activate(ag_backend *be, ag_activation activation, ag_tensor *gate,
                          const ag_tensor *up) {
    if (activation == AG_ACTIVATION_GELU_TANH) return ag_gelu_mul(be, gate, up);
    return ag_silu_mul(be, gate, up);
}

static ag_status feed_forward(const ag_layer *l, ag_activation activation, ag_backend *be,
                              activations *a, float eps) {
    ag_tensor *const y[] = {&a->gate, &a->up};
    const ag_tensor *const w[] = {&l->of[AG_LT_GATE], &l->of[AG_LT_UP]};
    AG_TRY(ag_matmul_group(be, y, input_of(a, &l->of[AG_LT_FFN_NORM]), w, 2));
    AG_TRY(add_bias(be, &a->gate, &l->of[AG_LT_BIAS_GATE]));
    AG_TRY(add_bias(be, &a->up, &l->of[AG_LT_BIAS_UP]));
    AG_TRY(activate(be, activation, &a->gate, &a->up));
    AG_TRY(ag_matmul_transposed(be, &a->down, &a->gate, &l->of[AG_LT_DOWN]));
    AG_TRY(add_bias(be, &a->down, &l->of[AG_LT_BIAS_DOWN]));
    return norm_branch(be, &a->down, &l->of[AG_LT_POST_FFN_NORM], eps);
}

/* What the layer makes of its own input for each token: a third branch. a->gate is as wide as the
 * input here. */
static ag_status take_input(const ag_layer *l, const ag_layer_facts *facts, ag_backend *be,
                            activations *a, float eps) {
    AG_TRY(ag_add_assign(be, &a->residual, &a->down));
    AG_TRY(ag_matmul_transposed(be, &a->gate, &a->residual, &l->of[AG_LT_INPUT_GATE]));
    AG_TRY(activate(be, facts->activation, &a->gate, facts->input));
    AG_TRY(ag_matmul_transposed(be, &a->down, &a->gate, &l->of[AG_LT_INPUT_OUT]));
    return norm_branch(be, &a->down, &l->of[AG_LT_POST_INPUT_NORM], eps);
}

static ag_status leave(const ag_layer_facts *facts, ag_backend *be, activations *a,
                       const ag_tensor *next_norm, float eps) {
    if (facts->out_scale == 1) return add_branch(be, a, &a->down, next_norm, eps);
    AG_TRY(ag_add_assign(be, &a->residual, &a->down));
    AG_TRY(ag_scale(be, &a->residual, facts->out_scale));
    if (!next_norm->buffer) return AG_OK;
    return ag_rms_norm(be, &a->normed, &a->residual, next_norm, eps);
}

ag_status ag_layer_forward(const ag_layer *layer, const ag_layer_facts *facts,
                           const ag_layer_pass *pass, const ag_tensor *next_norm, ag_error *err) {
    ag_backend *be = pass->backend;
    const float eps = pass->norm_eps;
    activations a;
    ag_tensor out;
    AG_TRY(view_all(pass, facts->ffn_dim, &a, err));
    AG_TRY(mix(layer, facts, pass, input_of(&a, &layer->of[AG_LT_ATTENTION_NORM]), &out, err));
    AG_TRY(ag_take_error(be, project_out(layer, facts->mixer, be, &a, &out, eps), err));
    AG_TRY(ag_take_error(be, feed_forward(layer, facts->activation, be, &a, eps), err));
    if (facts->input) {
        AG_TRY(ag_layer_view(pass, &pass->ws->gate, ag_shape_cols(&facts->input->shape), &a.gate,
                             err));
        AG_TRY(ag_take_error(be, take_input(layer, facts, be, &a, eps), err));
    }
    return ag_take_error(be, leave(facts, be, &a, next_norm, eps), err);
}
