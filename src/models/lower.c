/* SPDX-License-Identifier: Apache-2.0 */
#include "models/lower.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

typedef struct builder {
    const ag_model_spec *s;
    const ag_layer_spec *kind; /* kind of the current layer */
    ag_program *p;
    uint16_t layer; /* current layer; AG_NONE before and after all layers */
    uint16_t stream, normed;
    uint32_t n_states, n_caches;
    uint16_t *caches; /* owned; [n_layers] */
    size_t cap_ops, cap_values, cap_weights, cap_attend, cap_recurrent, cap_route;
    bool begins; /* the next operation is the first of its layer */
    ag_status status;
    ag_error *err;
} builder;

/* ---- arrays ---- */

/* Appends an element to an array. Returns NULL after a failure, and if the builder has failed
 * before. */
static void *one_more(builder *b, void *array, uint32_t *n, size_t *cap, size_t size) {
    if (b->status != AG_OK) return NULL;
    if (*n >= AG_NONE) {
        b->status = AG_FAIL(b->err, LIMIT,
                            "a model of %u layers is too large: its program has more than %u "
                            "operations, values or weights",
                            b->s->n_layers, AG_NONE);
        return NULL;
    }
    b->status = ag_array_grow(array, cap, *n + 1, size, b->err);
    if (b->status != AG_OK) return NULL;
    void *data;
    memcpy(&data, array, sizeof data);
    return (char *)data + (*n)++ * size;
}

#define ONE_MORE(b, list) \
    one_more(b, &(b)->p->list, &(b)->p->n_##list, &(b)->cap_##list, sizeof *(b)->p->list)

static uint16_t add_value(builder *b, const char *name, size_t cols) {
    ag_value *v = ONE_MORE(b, values);
    if (!v) return 0;
    *v = (ag_value){.name = name, .cols = (uint32_t)cols, .offset = UINT32_MAX};
    return (uint16_t)(b->p->n_values - 1);
}

static uint16_t add_weight(builder *b, uint16_t layer, uint16_t tensor) {
    ag_weight_ref *w = ONE_MORE(b, weights);
    if (!w) return 0;
    *w = (ag_weight_ref){layer, tensor};
    return (uint16_t)(b->p->n_weights - 1);
}

static void add_op(builder *b, ag_op op) {
    ag_op *to = ONE_MORE(b, ops);
    if (!to) return;
    op.layer = b->layer;
    if (b->begins) op.flags |= AG_OP_LAYER_BEGINS;
    b->begins = false;
    *to = op;
}

/* ---- operations ---- */

static const ag_op no_operands = {.params = AG_NONE,
                                  .in = {AG_NONE, AG_NONE, AG_NONE, AG_NONE},
                                  .out = {AG_NONE, AG_NONE, AG_NONE, AG_NONE},
                                  .w = {AG_NONE, AG_NONE, AG_NONE, AG_NONE}};

/* Returns an operation with one or two inputs, one output, and a weight or AG_NONE. */
static ag_op op_of(ag_op_code code, uint16_t in, uint16_t with, uint16_t out, uint16_t w) {
    ag_op op = no_operands;
    op.code = (uint8_t)code;
    op.in[0] = in;
    op.in[1] = with;
    op.out[0] = out;
    op.w[0] = w;
    return op;
}

static void products(builder *b, uint16_t x, const uint16_t *w, const uint16_t *y, size_t n) {
    ag_op op = op_of(AG_OP_PRODUCTS, x, AG_NONE, AG_NONE, AG_NONE);
    for (size_t i = 0; i < n; i++) {
        op.out[i] = y[i];
        op.w[i] = w[i];
    }
    add_op(b, op);
}

static uint16_t product(builder *b, uint16_t x, ag_layer_tensor tensor, const char *name,
                        size_t cols) {
    const uint16_t w = add_weight(b, b->layer, (uint16_t)tensor), y = add_value(b, name, cols);
    products(b, x, &w, &y, 1);
    return y;
}

static void add_bias(builder *b, uint16_t x, ag_layer_tensor tensor) {
    add_op(b, op_of(AG_OP_BIAS, x, AG_NONE, x, add_weight(b, b->layer, (uint16_t)tensor)));
}

static void norm(builder *b, uint16_t x, uint16_t y, uint16_t w, float eps) {
    ag_op op = op_of(AG_OP_NORM, x, AG_NONE, y, w);
    op.number = eps;
    add_op(b, op);
}

static void norm_in_place(builder *b, uint16_t x, ag_layer_tensor tensor) {
    norm(b, x, x, add_weight(b, b->layer, (uint16_t)tensor), ag_spec_eps(b->s));
}

static void add_to(builder *b, uint16_t x, uint16_t y) {
    add_op(b, op_of(AG_OP_ADD, x, y, x, AG_NONE));
}

/* Adds a GATE that replaces `gate`. */
static void gate_by(builder *b, ag_gate_kind kind, uint16_t gate, uint16_t x) {
    ag_op op = op_of(AG_OP_GATE, gate, x, gate, AG_NONE);
    op.kind = (uint8_t)kind;
    add_op(b, op);
}

/* Sets b->normed to the stream normed by a layer's weight, or to the stream itself in layers
 * without such norms. */
static void norm_stream(builder *b, uint32_t layer, ag_layer_tensor tensor) {
    b->normed = b->stream;
    if (ag_spec_layer(b->s, layer)->no_pre_norms) return;
    b->normed = add_value(b, "normed", b->s->hidden_size);
    norm(b, b->stream, b->normed, add_weight(b, (uint16_t)layer, (uint16_t)tensor),
         ag_spec_eps(b->s));
}

/* ---- mixers: return the value that the output projection reads ---- */

/* Returns the number of kinds with a window before the current one. */
static uint32_t n_windows_before(const builder *b) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < b->s->kind_of[b->layer]; k++) n += b->s->kinds[k].window > 0;
    return n;
}

static uint32_t add_attend(builder *b) {
    const ag_layer_spec *k = b->kind;
    const bool rotates = k->rope != AG_NO_ROPE;
    const float factor = rotates ? b->s->ropes[k->rope].attention_factor : 0;
    ag_attend_op *a = ONE_MORE(b, attend);
    if (!a) return 0;
    const uint32_t source = ag_spec_kv_source(b->s, b->layer);
    b->caches[b->layer] = source == b->layer     ? (uint16_t)b->n_caches++
                          : source == UINT32_MAX ? AG_NONE
                                                 : b->caches[source];
    *a = (ag_attend_op){
        .cache = b->caches[b->layer],
        .shares_kv = k->shares_kv,
        .n_heads = k->n_heads,
        .n_kv_heads = k->n_kv_heads,
        .head_dim = k->head_dim,
        .rope = rotates ? k->rope : AG_NONE,
        .rope_factor = factor != 0 ? factor : 1,
        .query_beta = b->s->query_beta,
        .query_period = b->s->query_period,
        .window_list = k->window ? n_windows_before(b) : AG_NONE,
        .window = k->window,
        .sinks = k->sinks,
        .scale = k->scale,
        .softcap = k->softcap,
    };
    return b->p->n_attend - 1;
}

static uint16_t attend(builder *b) {
    const ag_layer_spec *k = b->kind;
    const size_t q_dim = (size_t)k->n_heads * k->head_dim;
    const size_t kv_dim = (size_t)k->n_kv_heads * k->head_dim;
    const bool own = !k->shares_kv, norms = k->qk_norm || k->full_qk_norm;
    const bool own_v = own && !k->v_from_k;
    const uint16_t l = b->layer, q = add_value(b, "q", q_dim);
    const uint16_t y[] = {q, own ? add_value(b, "k", kv_dim) : AG_NONE,
                          own ? add_value(b, "v", kv_dim) : AG_NONE};
    const uint16_t w[] = {add_weight(b, l, AG_LT_WQ), own ? add_weight(b, l, AG_LT_WK) : AG_NONE,
                          own_v ? add_weight(b, l, AG_LT_WV) : AG_NONE};
    products(b, b->normed, w, y, own ? (own_v ? 3 : 2) : 1);
    if (k->qkv_bias) add_bias(b, q, AG_LT_BQ);
    if (k->qkv_bias && own) add_bias(b, y[1], AG_LT_BK);
    if (k->qkv_bias && own_v) add_bias(b, y[2], AG_LT_BV);
    if (own && k->v_from_k) norm(b, y[1], y[2], add_weight(b, l, AG_LT_ONES), ag_spec_eps(b->s));
    if (norms) norm_in_place(b, q, AG_LT_Q_NORM);
    if (norms && own) norm_in_place(b, y[1], AG_LT_K_NORM);
    if (k->v_norm && own_v) norm_in_place(b, y[2], AG_LT_ONES);
    ag_op op = op_of(AG_OP_ATTEND, q, y[1], add_value(b, "attended", q_dim), AG_NONE);
    op.in[2] = y[2];
    if (k->sinks) op.w[0] = add_weight(b, l, AG_LT_SINKS);
    op.params = (uint16_t)add_attend(b);
    add_op(b, op);
    if (own) b->p->cut = b->p->n_ops;
    if (!k->out_gate) return op.out[0];
    const uint16_t gate = product(b, b->normed, AG_LT_OUT_GATE, "out_gate", q_dim);
    gate_by(b, AG_GATE_SIGMOID, gate, op.out[0]);
    return gate;
}

static uint16_t add_recurrent(builder *b) {
    ag_recurrent_op *r = ONE_MORE(b, recurrent);
    if (!r) return 0;
    *r = (ag_recurrent_op){.state = b->n_states++, .taps = b->kind->conv_taps};
    if (b->kind->mixer == AG_MIXER_DELTA_NET) r->delta = b->kind->delta;
    return (uint16_t)(b->p->n_recurrent - 1);
}

/* Adds y = C * conv(B * x). */
static uint16_t short_conv(builder *b) {
    const size_t dim = b->s->hidden_size;
    const uint16_t y[] = {add_value(b, "b", dim), add_value(b, "c", dim), add_value(b, "x", dim)};
    const uint16_t w[] = {add_weight(b, b->layer, AG_LT_CONV_B),
                          add_weight(b, b->layer, AG_LT_CONV_C),
                          add_weight(b, b->layer, AG_LT_CONV_X)};
    products(b, b->normed, w, y, 3);
    gate_by(b, AG_GATE_NONE, y[0], y[2]);
    ag_op op = op_of(AG_OP_SHORT_CONV, y[0], AG_NONE, add_value(b, "convolved", dim),
                     add_weight(b, b->layer, AG_LT_CONV));
    op.params = add_recurrent(b);
    add_op(b, op);
    b->p->cut = b->p->n_ops;
    gate_by(b, AG_GATE_NONE, op.out[0], y[1]);
    return op.out[0];
}

/* Adds norm(delta rule(conv(q, k, v), a, b)) * silu(z). */
static uint16_t delta_net(builder *b) {
    const ag_delta_params *d = &b->kind->delta;
    const size_t values = (size_t)d->n_v_heads * d->v_dim;
    const size_t channels = ag_spec_channels(b->s, b->kind);
    const uint16_t l = b->layer;
    const uint16_t y[] = {add_value(b, "qkv", channels), add_value(b, "z", values),
                          add_value(b, "a", d->n_v_heads), add_value(b, "b", d->n_v_heads)};
    const uint16_t w[] = {add_weight(b, l, AG_LT_DELTA_QKV), add_weight(b, l, AG_LT_DELTA_Z),
                          add_weight(b, l, AG_LT_DELTA_A), add_weight(b, l, AG_LT_DELTA_B)};
    products(b, b->normed, w, y, 4);
    ag_op op = op_of(AG_OP_DELTA_NET, y[0], y[2], add_value(b, "mixed", values),
                     add_weight(b, l, AG_LT_DELTA_CONV));
    op.in[2] = y[3];
    op.out[1] = add_value(b, "convolved", channels);
    op.w[1] = add_weight(b, l, AG_LT_DELTA_DECAY);
    op.w[2] = add_weight(b, l, AG_LT_DELTA_DT_BIAS);
    op.params = add_recurrent(b);
    add_op(b, op);
    b->p->cut = b->p->n_ops;
    norm_in_place(b, op.out[0], AG_LT_DELTA_NORM);
    gate_by(b, AG_GATE_SILU, y[1], op.out[0]);
    return y[1];
}

static uint16_t run_mixer(builder *b, ag_layer_tensor *projection) {
    switch (b->kind->mixer) {
    case AG_MIXER_SHORT_CONV:
        *projection = AG_LT_CONV_OUT;
        return short_conv(b);
    case AG_MIXER_DELTA_NET:
        *projection = AG_LT_DELTA_OUT;
        return delta_net(b);
    case AG_MIXER_ATTENTION:
        break;
    }
    *projection = AG_LT_WO;
    return attend(b);
}

/* ---- layers ---- */

static ag_gate_kind activation_of(const builder *b) {
    if (b->kind->activation == AG_ACTIVATION_SWIGLU_CLAMPED) return AG_GATE_SWIGLU_CLAMPED;
    return b->kind->activation == AG_ACTIVATION_GELU_TANH ? AG_GATE_GELU_TANH : AG_GATE_SILU;
}

static void mixer_branch(builder *b) {
    ag_layer_tensor projection;
    const uint16_t mixed = run_mixer(b, &projection);
    const uint16_t branch = product(b, mixed, projection, "branch", b->s->hidden_size);
    if (b->kind->mixer == AG_MIXER_ATTENTION && b->kind->out_bias) add_bias(b, branch, AG_LT_BO);
    if (b->kind->post_norms) norm_in_place(b, branch, AG_LT_POST_ATTENTION_NORM);
    add_to(b, b->stream, branch);
    norm_stream(b, b->layer, AG_LT_FFN_NORM);
}

/* Adds a GATE by the layer's activation, in place of `gate`. */
static void activate(builder *b, uint16_t gate, uint16_t up) {
    ag_op op = op_of(AG_OP_GATE, gate, up, gate, AG_NONE);
    op.kind = (uint8_t)activation_of(b);
    if (op.kind == AG_GATE_SWIGLU_CLAMPED) op.number = b->kind->experts.gate_limit;
    add_op(b, op);
}

static uint16_t dense_part(builder *b) {
    const size_t ffn_dim = ag_spec_ffn_dim(b->s, b->kind);
    const uint16_t y[] = {add_value(b, "gate", ffn_dim), add_value(b, "up", ffn_dim)};
    const uint16_t w[] = {add_weight(b, b->layer, AG_LT_GATE), add_weight(b, b->layer, AG_LT_UP)};
    products(b, b->normed, w, y, 2);
    if (b->kind->ffn_bias) add_bias(b, y[0], AG_LT_BIAS_GATE);
    if (b->kind->ffn_bias) add_bias(b, y[1], AG_LT_BIAS_UP);
    activate(b, y[0], y[1]);
    const uint16_t branch = product(b, y[0], AG_LT_DOWN, "branch", b->s->hidden_size);
    if (b->kind->ffn_bias) add_bias(b, branch, AG_LT_BIAS_DOWN);
    return branch;
}

/* ---- experts ---- */

static uint16_t add_route(builder *b) {
    const ag_expert_spec *x = &b->kind->experts;
    ag_route_op *r = ONE_MORE(b, route);
    if (!r) return 0;
    *r = (ag_route_op){x->route, x->choice_bias, x->beside_dense};
    return (uint16_t)(b->p->n_route - 1);
}

/* Adds the choice of experts by the values of x. Returns the routes. */
static uint16_t route(builder *b, uint16_t x, uint16_t params) {
    const ag_expert_spec *experts = &b->kind->experts;
    const uint16_t logits = product(b, x, AG_LT_ROUTER, "scores", experts->route.n_experts);
    size_t n = 0;
    if (experts->router_bias) add_bias(b, logits, AG_LT_ROUTER_BIAS);
    ag_op op = op_of(AG_OP_ROUTE, logits, AG_NONE,
                     add_value(b, "routes", ag_route_cols(experts->route.n_used)), AG_NONE);
    if (experts->choice_bias) op.w[n++] = add_weight(b, b->layer, AG_LT_CHOICE_BIAS);
    if (experts->beside_dense) op.w[n++] = add_weight(b, b->layer, AG_LT_EXPERT_SCALE);
    op.params = params;
    add_op(b, op);
    return op.out[0];
}

static void add_expert_bias(builder *b, uint16_t y, uint16_t routes, ag_layer_tensor tensor) {
    if (!b->kind->experts.matrix_biases) return;
    add_op(b, op_of(AG_OP_EXPERT_BIAS, y, routes, y, add_weight(b, b->layer, (uint16_t)tensor)));
}

/* Adds the experts that the router chooses by `by`, and their sum. x: their input. */
static uint16_t experts(builder *b, uint16_t x, uint16_t by) {
    const ag_expert_spec *spec = &b->kind->experts;
    const size_t used = spec->route.n_used, dim = b->s->hidden_size;
    const uint16_t params = add_route(b), routes = route(b, by, params);
    ag_op in = op_of(AG_OP_EXPERTS, x, routes, add_value(b, "gate", used * spec->width),
                     add_weight(b, b->layer, AG_LT_EXPERT_GATE));
    in.out[1] = add_value(b, "up", used * spec->width);
    in.w[1] = add_weight(b, b->layer, AG_LT_EXPERT_UP);
    in.params = params;
    add_op(b, in);
    add_expert_bias(b, in.out[0], routes, AG_LT_EXPERT_GATE_BIAS);
    add_expert_bias(b, in.out[1], routes, AG_LT_EXPERT_UP_BIAS);
    activate(b, in.out[0], in.out[1]);
    ag_op down = op_of(AG_OP_EXPERTS, in.out[0], routes, add_value(b, "down", used * dim),
                       add_weight(b, b->layer, AG_LT_EXPERT_DOWN));
    down.params = params;
    down.flags = AG_OP_PICKED;
    add_op(b, down);
    add_expert_bias(b, down.out[0], routes, AG_LT_EXPERT_DOWN_BIAS);
    const uint16_t branch = add_value(b, "branch", dim);
    add_op(b, op_of(AG_OP_COMBINE, down.out[0], routes, branch, AG_NONE));
    return branch;
}

/* Adds the expert that all rows use. */
static uint16_t shared_expert(builder *b) {
    const size_t width = b->kind->experts.shared_width;
    const uint16_t y[] = {add_value(b, "gate", width), add_value(b, "up", width)};
    const uint16_t w[] = {add_weight(b, b->layer, AG_LT_SHARED_GATE),
                          add_weight(b, b->layer, AG_LT_SHARED_UP)};
    products(b, b->normed, w, y, 2);
    activate(b, y[0], y[1]);
    const uint16_t branch = product(b, y[0], AG_LT_SHARED_DOWN, "shared", b->s->hidden_size);
    if (!b->kind->experts.shared_gate) return branch;
    const uint16_t gate = product(b, b->normed, AG_LT_SHARED_ROUTER, "shared_gate", 1);
    add_op(b, op_of(AG_OP_ROW_GATE, branch, gate, branch, AG_NONE));
    return branch;
}

/* Returns the stream normed by a weight of the layer. */
static uint16_t normed_by(builder *b, const char *name, ag_layer_tensor tensor) {
    const uint16_t y = add_value(b, name, b->s->hidden_size);
    norm(b, b->stream, y, add_weight(b, b->layer, (uint16_t)tensor), ag_spec_eps(b->s));
    return y;
}

/* Adds experts to a dense part (Gemma 4). Both have norms of their own. */
static uint16_t dense_and_experts(builder *b) {
    const uint16_t branch = dense_part(b);
    norm_in_place(b, branch, AG_LT_POST_DENSE_NORM);
    const uint16_t by = normed_by(b, "routed", AG_LT_ROUTER_NORM);
    const uint16_t x = normed_by(b, "normed", AG_LT_EXPERT_NORM);
    const uint16_t sum = experts(b, x, by);
    norm_in_place(b, sum, AG_LT_POST_EXPERT_NORM);
    add_to(b, branch, sum);
    return branch;
}

static uint16_t feed_forward(builder *b) {
    const ag_expert_spec *x = &b->kind->experts;
    const uint16_t branch = !x->route.n_experts ? dense_part(b)
                            : x->beside_dense   ? dense_and_experts(b)
                                                : experts(b, b->normed, b->normed);
    if (x->shared_width) add_to(b, branch, shared_expert(b));
    if (b->kind->post_norms) norm_in_place(b, branch, AG_LT_POST_FFN_NORM);
    return branch;
}

/* Adds the third branch (Gemma 4), which reads the layer's own input for each token. */
static uint16_t input_branch(builder *b) {
    const uint16_t gate = product(b, b->stream, AG_LT_INPUT_GATE, "gate", b->s->layer_input);
    gate_by(b, activation_of(b), gate, b->p->layer_inputs[b->layer]);
    const uint16_t branch = product(b, gate, AG_LT_INPUT_OUT, "branch", b->s->hidden_size);
    norm_in_place(b, branch, AG_LT_POST_INPUT_NORM);
    return branch;
}

/* Adds the last branch to the stream, and norms it for the next layer or the head. */
static void end_layer(builder *b, uint16_t branch) {
    add_to(b, b->stream, branch);
    if (b->s->out_scale) {
        add_op(b, op_of(AG_OP_SCALE, b->stream, AG_NONE, b->stream,
                        add_weight(b, b->layer, AG_LT_OUT_SCALE)));
    }
    if (b->layer + 1u < b->s->n_layers) {
        norm_stream(b, b->layer + 1u, AG_LT_ATTENTION_NORM);
        return;
    }
    b->normed = add_value(b, "hidden", b->s->hidden_size);
    norm(b, b->stream, b->normed, add_weight(b, AG_MODEL_WEIGHT, AG_MODEL_NORM), ag_spec_eps(b->s));
}

static void lower_layer(builder *b, uint32_t layer) {
    b->layer = (uint16_t)layer;
    b->kind = ag_spec_layer(b->s, layer);
    b->begins = true;
    mixer_branch(b);
    uint16_t branch = feed_forward(b);
    if (b->s->layer_input) {
        add_to(b, b->stream, branch);
        branch = input_branch(b);
    }
    end_layer(b, branch);
}

/* ---- before and after all layers ---- */

/* Computes the layer inputs: values of the table plus a normed projection of the embedding. The
 * norm of x / sqrt(dim) is the norm of x with another epsilon. */
static void make_inputs(builder *b) {
    const ag_model_spec *s = b->s;
    const float eps = ag_spec_eps(s) * (float)s->hidden_size;
    if (!s->layer_input) return;
    b->p->layer_inputs = ag_calloc(s->n_layers, sizeof *b->p->layer_inputs);
    if (!b->p->layer_inputs && b->status == AG_OK)
        b->status = AG_FAIL(b->err, NOMEM, "inputs of %u layers", s->n_layers);
    for (uint32_t l = 0; l < s->n_layers && b->status == AG_OK; l++)
        b->p->layer_inputs[l] = add_value(b, "input", s->layer_input);
    for (uint32_t l = 0; l < s->n_layers && b->status == AG_OK; l++) {
        const uint16_t w = add_weight(b, (uint16_t)l, AG_LT_INPUT_PROJECTION);
        const uint16_t projected = add_value(b, "part", s->layer_input);
        products(b, b->stream, &w, &projected, 1);
        norm(b, projected, projected, add_weight(b, 0, AG_LT_INPUT_NORM), eps);
        add_to(b, b->p->layer_inputs[l], projected);
    }
}

static void lower_head(builder *b) {
    const uint16_t w = add_weight(b, AG_MODEL_WEIGHT, AG_MODEL_HEAD);
    b->layer = AG_NONE;
    b->p->hidden = b->normed;
    b->p->head = b->p->n_ops;
    b->p->logits = add_value(b, "logits", b->s->vocab_size);
    products(b, b->normed, &w, &b->p->logits, 1);
    if (b->s->logit_softcap == 0) return;
    ag_op op = op_of(AG_OP_SOFTCAP, b->p->logits, AG_NONE, b->p->logits, AG_NONE);
    op.number = b->s->logit_softcap;
    add_op(b, op);
}

static void lower_all(builder *b) {
    const ag_model_spec *s = b->s;
    b->layer = AG_NONE;
    b->p->n_layers = s->n_layers;
    b->p->stream = b->stream = add_value(b, "stream", s->hidden_size);
    norm_stream(b, 0, AG_LT_ATTENTION_NORM);
    make_inputs(b);
    for (uint32_t l = 0; l < s->n_layers && b->status == AG_OK; l++) lower_layer(b, l);
    lower_head(b);
}

ag_status ag_lower(const ag_model_spec *s, ag_program **out, ag_error *err) {
    *out = NULL;
    builder b = {.s = s,
                 .p = ag_calloc(1, sizeof *b.p),
                 .caches = ag_calloc(s->n_layers, sizeof *b.caches),
                 .err = err};
    if (!b.p || !b.caches) b.status = AG_FAIL(err, NOMEM, "program of %u layers", s->n_layers);
    else lower_all(&b);
    if (b.status == AG_OK) b.status = ag_assign_offsets(b.p, err);
    ag_free(b.caches);
    if (b.status == AG_OK) *out = b.p;
    else ag_program_destroy(b.p);
    return b.status;
}
