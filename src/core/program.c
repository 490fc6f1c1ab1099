/* SPDX-License-Identifier: Apache-2.0 */
#include "core/program.h"

#include "core/alloc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void ag_program_destroy(ag_program *p) {
    if (!p) return;
    ag_free(p->ops);
    ag_free(p->values);
    ag_free(p->weights);
    ag_free(p->attend);
    ag_free(p->recurrent);
    ag_free(p->route);
    ag_free(p->layer_inputs);
    ag_free(p->live);
    ag_free(p->stages);
    ag_free(p);
}

uint32_t ag_program_norm_of_sum(const ag_program *p, uint32_t i) {
    const ag_op *add = &p->ops[i];
    if (add->code != AG_OP_ADD) return 0;
    uint32_t n = i + 1;
    if (n < p->n_ops && p->ops[n].code == AG_OP_SCALE) n++;
    if (n >= p->n_ops || n == p->cut) return 0;
    const ag_op *norm = &p->ops[n];
    const bool is_fusable =
        norm->code == AG_OP_NORM && norm->in[0] == add->out[0] && norm->out[0] != add->out[0];
    return is_fusable ? n : 0;
}

bool ag_program_gates_products(const ag_program *p, uint32_t i) {
    const ag_op *products = &p->ops[i], *gate = products + 1;
    if (products->code != AG_OP_PRODUCTS || i + 1 >= p->head || gate->code != AG_OP_GATE)
        return false;
    const bool has_kind = gate->kind == AG_GATE_SILU || gate->kind == AG_GATE_GELU_TANH;
    return has_kind && products->out[2] == AG_NONE && gate->out[0] == products->out[0] &&
           gate->in[1] == products->out[1];
}

/* ---- as text ---- */

static const char *const codes[AG_OP_CODES] = {
    [AG_OP_PRODUCTS] = "PRODUCTS",
    [AG_OP_BIAS] = "BIAS",
    [AG_OP_NORM] = "NORM",
    [AG_OP_ADD] = "ADD",
    [AG_OP_SCALE] = "SCALE",
    [AG_OP_SOFTCAP] = "SOFTCAP",
    [AG_OP_GATE] = "GATE",
    [AG_OP_ATTEND] = "ATTEND",
    [AG_OP_SHORT_CONV] = "SHORT_CONV",
    [AG_OP_DELTA_NET] = "DELTA_NET",
    [AG_OP_ROUTE] = "ROUTE",
    [AG_OP_EXPERTS] = "EXPERTS",
    [AG_OP_EXPERT_BIAS] = "EXPERT_BIAS",
    [AG_OP_COMBINE] = "COMBINE",
    [AG_OP_ROW_GATE] = "ROW_GATE",
};

const char *ag_op_code_name(ag_op_code code) { return codes[code]; }

static const char *const gates[] = {[AG_GATE_SILU] = "silu",
                                    [AG_GATE_GELU_TANH] = "gelu_tanh",
                                    [AG_GATE_SIGMOID] = "sigmoid",
                                    [AG_GATE_NONE] = "none",
                                    [AG_GATE_SWIGLU_CLAMPED] = "swiglu_clamped"};

static const char *const tensors[AG_LAYER_TENSOR_SLOTS] = {
    [AG_LT_ATTENTION_NORM] = "attention_norm",
    [AG_LT_WQ] = "wq",
    [AG_LT_WK] = "wk",
    [AG_LT_WV] = "wv",
    [AG_LT_WO] = "wo",
    [AG_LT_FFN_NORM] = "ffn_norm",
    [AG_LT_GATE] = "gate",
    [AG_LT_UP] = "up",
    [AG_LT_DOWN] = "down",
    [AG_LT_BQ] = "bq",
    [AG_LT_BK] = "bk",
    [AG_LT_BV] = "bv",
    [AG_LT_BO] = "bo",
    [AG_LT_BIAS_GATE] = "bias_gate",
    [AG_LT_BIAS_UP] = "bias_up",
    [AG_LT_BIAS_DOWN] = "bias_down",
    [AG_LT_Q_NORM] = "q_norm",
    [AG_LT_K_NORM] = "k_norm",
    [AG_LT_POST_ATTENTION_NORM] = "post_attention_norm",
    [AG_LT_POST_FFN_NORM] = "post_ffn_norm",
    [AG_LT_OUT_GATE] = "out_gate",
    [AG_LT_CONV_B] = "conv_b",
    [AG_LT_CONV_C] = "conv_c",
    [AG_LT_CONV_X] = "conv_x",
    [AG_LT_CONV] = "conv",
    [AG_LT_CONV_OUT] = "conv_out",
    [AG_LT_DELTA_QKV] = "delta_qkv",
    [AG_LT_DELTA_Z] = "delta_z",
    [AG_LT_DELTA_A] = "delta_a",
    [AG_LT_DELTA_B] = "delta_b",
    [AG_LT_DELTA_CONV] = "delta_conv",
    [AG_LT_DELTA_DECAY] = "delta_decay",
    [AG_LT_DELTA_DT_BIAS] = "delta_dt_bias",
    [AG_LT_DELTA_NORM] = "delta_norm",
    [AG_LT_DELTA_OUT] = "delta_out",
    [AG_LT_INPUT_PROJECTION] = "input_projection",
    [AG_LT_INPUT_NORM] = "input_norm",
    [AG_LT_INPUT_GATE] = "input_gate",
    [AG_LT_INPUT_OUT] = "input_out",
    [AG_LT_POST_INPUT_NORM] = "post_input_norm",
    [AG_LT_OUT_SCALE] = "out_scale",
    [AG_LT_SINKS] = "sinks",
    [AG_LT_ROUTER] = "router",
    [AG_LT_ROUTER_BIAS] = "router_bias",
    [AG_LT_ROUTER_NORM] = "router_norm",
    [AG_LT_CHOICE_BIAS] = "choice_bias",
    [AG_LT_EXPERT_SCALE] = "expert_scale",
    [AG_LT_EXPERT_GATE] = "expert_gate",
    [AG_LT_EXPERT_UP] = "expert_up",
    [AG_LT_EXPERT_DOWN] = "expert_down",
    [AG_LT_EXPERT_GATE_BIAS] = "expert_gate_bias",
    [AG_LT_EXPERT_UP_BIAS] = "expert_up_bias",
    [AG_LT_EXPERT_DOWN_BIAS] = "expert_down_bias",
    [AG_LT_SHARED_GATE] = "shared_gate",
    [AG_LT_SHARED_UP] = "shared_up",
    [AG_LT_SHARED_DOWN] = "shared_down",
    [AG_LT_SHARED_ROUTER] = "shared_router",
    [AG_LT_EXPERT_NORM] = "expert_norm",
    [AG_LT_POST_DENSE_NORM] = "post_dense_norm",
    [AG_LT_POST_EXPERT_NORM] = "post_expert_norm",
    [AG_LT_ONES] = "ones",
};

/* A line in a buffer. n also counts characters that do not fit. */
typedef struct line {
    char *text;
    size_t cap, n;
} line;

__attribute__((format(printf, 2, 3))) static void put(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t at = l->n < l->cap ? l->n : l->cap;
    const int n = vsnprintf(l->text + at, l->cap - at, format, args);
    if (n > 0) l->n += (size_t)n;
    va_end(args);
}

static const char *name_of(const ag_program *p, const ag_op *op, size_t i) {
    const ag_weight_ref *w = &p->weights[op->w[i]];
    if (w->layer == AG_MODEL_WEIGHT) return w->tensor == AG_MODEL_NORM ? "norm" : "head";
    return tensors[w->tensor];
}

static void put_values(line *l, const ag_program *p, const uint16_t *values) {
    for (int i = 0; i < AG_OP_VALUES && values[i] != AG_NONE; i++) {
        const ag_value *v = &p->values[values[i]];
        put(l, " %s[%" PRIu32 "]", v->name, v->cols);
    }
}

static void put_attend(line *l, const ag_attend_op *a) {
    put(l, "  cache %" PRIu32 "%s, heads %" PRIu32 "/%" PRIu32 "x%" PRIu32, a->cache,
        a->shares_kv ? " shared" : "", a->n_heads, a->n_kv_heads, a->head_dim);
    if (a->rope != AG_NONE) put(l, ", rope %" PRIu32, a->rope);
    if (a->rope_factor != 1) put(l, " times %g", (double)a->rope_factor);
    if (a->query_beta != 0)
        put(l, ", queries %g each %" PRIu32, (double)a->query_beta, a->query_period);
    if (a->window) put(l, ", window %" PRIu32, a->window);
    put(l, ", scale %g", (double)a->scale);
    if (a->softcap != 0) put(l, ", softcap %g", (double)a->softcap);
}

static void put_recurrent(line *l, const ag_recurrent_op *r, bool is_delta) {
    const ag_delta_params *d = &r->delta;
    put(l, "  state %" PRIu32 ", taps %" PRIu32, r->state, r->taps);
    if (!is_delta) return;
    put(l, ", heads %" PRIu32 "/%" PRIu32 ", keys %" PRIu32 ", values %" PRIu32 ", eps %g%s",
        d->n_v_heads, d->n_k_heads, d->k_dim, d->v_dim, (double)d->eps, d->tiled ? ", tiled" : "");
}

static void put_route(line *l, const ag_route_op *r) {
    static const char *const scorings[] = {[AG_SCORING_SOFTMAX] = "softmax",
                                           [AG_SCORING_SIGMOID] = "sigmoid",
                                           [AG_SCORING_CHOSEN] = "softmax of the chosen"};
    const ag_route_params *p = &r->params;
    put(l, "  %" PRIu32 " of %" PRIu32 ", %s", p->n_used, p->n_experts, scorings[p->scoring]);
    if (p->normalise) put(l, ", normalised with %g", (double)p->sum_eps);
    if (p->factor != 1) put(l, ", times %g", (double)p->factor);
}

static void put_types(line *l, const ag_op *op, const ag_dtype *types) {
    size_t n = 0;
    bool equal = true;
    for (; n < AG_OP_VALUES && op->w[n] != AG_NONE; n++) equal = equal && types[n] == types[0];
    for (size_t k = 0; k < (equal && n ? 1 : n); k++)
        put(l, "%s%s", k ? "," : "  ", ag_dtype_name(types[k]));
}

int ag_program_line(const ag_program *p, uint32_t i, const ag_dtype types[AG_OP_VALUES], char *text,
                    size_t cap) {
    const ag_op *op = &p->ops[i];
    line l = {.text = text, .cap = cap};
    put(&l, "%" PRIu32 "  ", i);
    if (op->layer == AG_NONE) put(&l, "-  %s", codes[op->code]);
    else put(&l, "%u  %s", op->layer, codes[op->code]);
    if (op->code == AG_OP_GATE) put(&l, " %s", gates[op->kind]);
    for (size_t k = 0; k < AG_OP_VALUES && op->w[k] != AG_NONE; k++)
        put(&l, "%s%s", k ? "," : " ", name_of(p, op, k));
    put(&l, " ");
    put_values(&l, p, op->in);
    put(&l, " ->");
    put_values(&l, p, op->out);
    if (op->code == AG_OP_ATTEND) put_attend(&l, &p->attend[op->params]);
    if (op->code == AG_OP_ROUTE) put_route(&l, &p->route[op->params]);
    if (op->code == AG_OP_EXPERTS && op->flags & AG_OP_PICKED) put(&l, "  of picked rows");
    if (op->code == AG_OP_GATE && op->kind == AG_GATE_SWIGLU_CLAMPED)
        put(&l, "  limit %g", (double)op->number);
    if (op->code == AG_OP_NORM) put(&l, "  eps %g", (double)op->number);
    if (op->code == AG_OP_SOFTCAP) put(&l, "  cap %g", (double)op->number);
    if (op->code == AG_OP_SHORT_CONV || op->code == AG_OP_DELTA_NET)
        put_recurrent(&l, &p->recurrent[op->params], op->code == AG_OP_DELTA_NET);
    if (types) put_types(&l, op, types);
    return (int)l.n;
}
