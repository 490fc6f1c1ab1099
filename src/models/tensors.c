/* SPDX-License-Identifier: Apache-2.0 */
#include "models/tensors.h"

#include "models/families/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum size_name {
    DIM,
    Q_DIM,
    KV_DIM,
    Q_NORM_DIM,
    K_NORM_DIM,
    FFN_DIM,
    ONE,
    CHANNELS, /* channels of a convolution */
    TAPS,
    VALUES, /* sizes of a delta net: values of all heads, heads, values of a head */
    V_HEADS,
    V_DIM,
    INPUT, /* layer input */
    HEADS,
    EXPERTS,
    EXPERT_DIM,  /* rows of the gate of an expert */
    SHARED_DIM,  /* the same of the shared expert */
    EXPERT_DIMS, /* sums over all experts */
    EXPERT_OUTS,
} size_name;
typedef enum condition {
    ATTENTION,
    OWN_KV,
    QKV_BIAS,
    OWN_KV_BIAS,
    OUT_BIAS,
    QK_NORM,
    OWN_K_NORM,
    PRE_NORMS,
    POST_NORMS,
    OUT_GATE,
    SHORT_CONV,
    DELTA_NET,
    LAYER_INPUT,
    FIRST_LAYER_INPUT, /* all layers share the tensor of the first */
    OUT_SCALE,
    OWN_V,
    OWN_V_BIAS,
    DENSE,
    DENSE_BIAS,
    SINKS,
    ROUTED,
    ROUTER_BIAS,
    CHOICE_BIAS,
    BESIDE_DENSE,
    MATRIX_BIASES,
    SHARED,
    SHARED_GATE,
} condition;

typedef struct row {
    const char *suffix, *gguf;
    size_name rows, cols;
    condition when;
    bool is_norm;
} row;

/* Names in most Hugging Face checkpoints, after "model.layers.N.", and in GGUF files, after
 * "blk.N.". Families list other names: ag_tensor_alias. */
static const row table[AG_LAYER_TENSORS] = {
    [AG_LT_ATTENTION_NORM] = {"input_layernorm.weight", "attn_norm.weight", DIM, ONE, PRE_NORMS,
                              true},
    [AG_LT_WQ] = {"self_attn.q_proj.weight", "attn_q.weight", Q_DIM, DIM, ATTENTION, false},
    [AG_LT_WK] = {"self_attn.k_proj.weight", "attn_k.weight", KV_DIM, DIM, OWN_KV, false},
    [AG_LT_WV] = {"self_attn.v_proj.weight", "attn_v.weight", KV_DIM, DIM, OWN_V, false},
    [AG_LT_WO] = {"self_attn.o_proj.weight", "attn_output.weight", DIM, Q_DIM, ATTENTION, false},
    [AG_LT_FFN_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight", DIM, ONE, PRE_NORMS,
                        true},
    [AG_LT_GATE] = {"mlp.gate_proj.weight", "ffn_gate.weight", FFN_DIM, DIM, DENSE, false},
    [AG_LT_UP] = {"mlp.up_proj.weight", "ffn_up.weight", FFN_DIM, DIM, DENSE, false},
    [AG_LT_DOWN] = {"mlp.down_proj.weight", "ffn_down.weight", DIM, FFN_DIM, DENSE, false},
    [AG_LT_BQ] = {"self_attn.q_proj.bias", "attn_q.bias", Q_DIM, ONE, QKV_BIAS, false},
    [AG_LT_BK] = {"self_attn.k_proj.bias", "attn_k.bias", KV_DIM, ONE, OWN_KV_BIAS, false},
    [AG_LT_BV] = {"self_attn.v_proj.bias", "attn_v.bias", KV_DIM, ONE, OWN_V_BIAS, false},
    [AG_LT_BO] = {"self_attn.o_proj.bias", "attn_output.bias", DIM, ONE, OUT_BIAS, false},
    [AG_LT_BIAS_GATE] = {"mlp.gate_proj.bias", "ffn_gate.bias", FFN_DIM, ONE, DENSE_BIAS, false},
    [AG_LT_BIAS_UP] = {"mlp.up_proj.bias", "ffn_up.bias", FFN_DIM, ONE, DENSE_BIAS, false},
    [AG_LT_BIAS_DOWN] = {"mlp.down_proj.bias", "ffn_down.bias", DIM, ONE, DENSE_BIAS, false},
    [AG_LT_Q_NORM] = {"self_attn.q_norm.weight", "attn_q_norm.weight", Q_NORM_DIM, ONE, QK_NORM,
                      true},
    [AG_LT_K_NORM] = {"self_attn.k_norm.weight", "attn_k_norm.weight", K_NORM_DIM, ONE, OWN_K_NORM,
                      true},
    [AG_LT_POST_ATTENTION_NORM] = {"post_self_attn_layernorm.weight", "post_attention_norm.weight",
                                   DIM, ONE, POST_NORMS, true},
    [AG_LT_POST_FFN_NORM] = {"post_mlp_layernorm.weight", "post_ffw_norm.weight", DIM, ONE,
                             POST_NORMS, true},
    [AG_LT_OUT_GATE] = {"self_attn.q_proj.weight", "attn_q.weight", Q_DIM, DIM, OUT_GATE, false},
    [AG_LT_CONV_B] = {"conv.in_proj.weight", "shortconv.in_proj.weight", DIM, DIM, SHORT_CONV,
                      false},
    [AG_LT_CONV_C] = {"conv.in_proj.weight", "shortconv.in_proj.weight", DIM, DIM, SHORT_CONV,
                      false},
    [AG_LT_CONV_X] = {"conv.in_proj.weight", "shortconv.in_proj.weight", DIM, DIM, SHORT_CONV,
                      false},
    [AG_LT_CONV] = {"conv.conv.weight", "shortconv.conv.weight", CHANNELS, TAPS, SHORT_CONV, false},
    [AG_LT_CONV_OUT] = {"conv.out_proj.weight", "shortconv.out_proj.weight", DIM, DIM, SHORT_CONV,
                        false},
    [AG_LT_DELTA_QKV] = {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", CHANNELS, DIM,
                         DELTA_NET, false},
    [AG_LT_DELTA_Z] = {"linear_attn.in_proj_z.weight", "attn_gate.weight", VALUES, DIM, DELTA_NET,
                       false},
    [AG_LT_DELTA_A] = {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", V_HEADS, DIM, DELTA_NET,
                       false},
    [AG_LT_DELTA_B] = {"linear_attn.in_proj_b.weight", "ssm_beta.weight", V_HEADS, DIM, DELTA_NET,
                       false},
    [AG_LT_DELTA_CONV] = {"linear_attn.conv1d.weight", "ssm_conv1d.weight", CHANNELS, TAPS,
                          DELTA_NET, false},
    [AG_LT_DELTA_DECAY] = {"linear_attn.A_log", "ssm_a", V_HEADS, ONE, DELTA_NET, false},
    [AG_LT_DELTA_DT_BIAS] = {"linear_attn.dt_bias", "ssm_dt.bias", V_HEADS, ONE, DELTA_NET, false},
    [AG_LT_DELTA_NORM] = {"linear_attn.norm.weight", "ssm_norm.weight", V_DIM, ONE, DELTA_NET,
                          false},
    [AG_LT_DELTA_OUT] = {"linear_attn.out_proj.weight", "ssm_out.weight", DIM, VALUES, DELTA_NET,
                         false},
    [AG_LT_INPUT_PROJECTION] = {"per_layer_model_projection.weight", "per_layer_model_proj.weight",
                                INPUT, DIM, LAYER_INPUT, false},
    [AG_LT_INPUT_NORM] = {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight", INPUT,
                          ONE, FIRST_LAYER_INPUT, true},
    [AG_LT_INPUT_GATE] = {"per_layer_input_gate.weight", "inp_gate.weight", INPUT, DIM, LAYER_INPUT,
                          false},
    [AG_LT_INPUT_OUT] = {"per_layer_projection.weight", "proj.weight", DIM, INPUT, LAYER_INPUT,
                         false},
    [AG_LT_POST_INPUT_NORM] = {"post_per_layer_input_norm.weight", "post_norm.weight", DIM, ONE,
                               LAYER_INPUT, true},
    [AG_LT_OUT_SCALE] = {"layer_scalar", "layer_output_scale.weight", ONE, ONE, OUT_SCALE, false},
    [AG_LT_SINKS] = {"self_attn.sinks", "attn_sinks.weight", HEADS, ONE, SINKS, false},
    [AG_LT_ROUTER] = {"mlp.gate.weight", "ffn_gate_inp.weight", EXPERTS, DIM, ROUTED, false},
    [AG_LT_ROUTER_BIAS] = {"mlp.router.bias", "ffn_gate_inp.bias", EXPERTS, ONE, ROUTER_BIAS,
                           false},
    [AG_LT_ROUTER_NORM] = {"router.scale", "ffn_gate_inp.scale", DIM, ONE, BESIDE_DENSE, false},
    [AG_LT_CHOICE_BIAS] = {"feed_forward.expert_bias", "exp_probs_b.bias", EXPERTS, ONE,
                           CHOICE_BIAS, false},
    [AG_LT_EXPERT_SCALE] = {"router.per_expert_scale", "ffn_down_exps.scale", EXPERTS, ONE,
                            BESIDE_DENSE, false},
    /* names of the next three are in expert_namings */
    [AG_LT_EXPERT_GATE] = {NULL, "ffn_gate_exps.weight", EXPERT_DIM, DIM, ROUTED, false},
    [AG_LT_EXPERT_UP] = {NULL, "ffn_up_exps.weight", EXPERT_DIM, DIM, ROUTED, false},
    [AG_LT_EXPERT_DOWN] = {NULL, "ffn_down_exps.weight", DIM, EXPERT_DIM, ROUTED, false},
    [AG_LT_EXPERT_GATE_BIAS] = {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", EXPERT_DIMS,
                                ONE, MATRIX_BIASES, false},
    [AG_LT_EXPERT_UP_BIAS] = {"mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", EXPERT_DIMS, ONE,
                              MATRIX_BIASES, false},
    [AG_LT_EXPERT_DOWN_BIAS] = {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", EXPERT_OUTS,
                                ONE, MATRIX_BIASES, false},
    [AG_LT_SHARED_GATE] = {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight",
                           SHARED_DIM, DIM, SHARED, false},
    [AG_LT_SHARED_UP] = {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", SHARED_DIM, DIM,
                         SHARED, false},
    [AG_LT_SHARED_DOWN] = {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", DIM,
                           SHARED_DIM, SHARED, false},
    [AG_LT_SHARED_ROUTER] = {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", ONE, DIM,
                             SHARED_GATE, false},
    [AG_LT_EXPERT_NORM] = {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", DIM, ONE,
                           BESIDE_DENSE, true},
    [AG_LT_POST_DENSE_NORM] = {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", DIM,
                               ONE, BESIDE_DENSE, true},
    [AG_LT_POST_EXPERT_NORM] = {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight",
                                DIM, ONE, BESIDE_DENSE, true},
};

/* Names of the matrices of experts. With %u, one tensor for each expert; else one for all. Equal
 * names of gate and up: a tensor with the rows of both. */
static const struct expert_naming {
    const char *gate, *up, *down;
} expert_namings[] = {
    {"mlp.experts.%u.gate_proj.weight", "mlp.experts.%u.up_proj.weight",
     "mlp.experts.%u.down_proj.weight"},
    {"mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"},
    {"mlp.experts.gate_up_proj_blocks", "mlp.experts.gate_up_proj_blocks",
     "mlp.experts.down_proj_blocks"},
    {"block_sparse_moe.experts.%u.w1.weight", "block_sparse_moe.experts.%u.w3.weight",
     "block_sparse_moe.experts.%u.w2.weight"},
    {"block_sparse_moe.input_linear.weight", "block_sparse_moe.input_linear.weight",
     "block_sparse_moe.output_linear.weight"},
    {"feed_forward.experts.%u.w1.weight", "feed_forward.experts.%u.w3.weight",
     "feed_forward.experts.%u.w2.weight"},
    {"experts.gate_up_proj", "experts.gate_up_proj", "experts.down_proj"},
    {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"},
    {"ffn_gate_up_exps.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.weight"},
};
enum {
    N_EXPERT_NAMINGS = sizeof expert_namings / sizeof expert_namings[0],
    GGUF_EXPERTS = N_EXPERT_NAMINGS - 2, /* this and the next one are of GGUF files */
};

static bool applies(const ag_model_spec *s, uint32_t layer, condition when) {
    const ag_layer_spec *kind = ag_spec_layer(s, layer);
    const bool attention = kind->mixer == AG_MIXER_ATTENTION;
    const bool own = attention && !kind->shares_kv; /* has its own keys and values */
    const bool experts = kind->experts.route.n_experts != 0;
    switch (when) {
    case ATTENTION:
        return attention;
    case OWN_KV:
        return own;
    case QKV_BIAS:
        return attention && kind->qkv_bias;
    case OWN_KV_BIAS:
        return own && kind->qkv_bias;
    case OUT_BIAS:
        return attention && kind->out_bias;
    case OWN_V:
        return own && !kind->v_from_k;
    case OWN_V_BIAS:
        return own && !kind->v_from_k && kind->qkv_bias;
    case DENSE:
        return ag_spec_has_dense(kind);
    case DENSE_BIAS:
        return ag_spec_has_dense(kind) && kind->ffn_bias;
    case SINKS:
        return attention && kind->sinks;
    case ROUTED:
        return experts;
    case ROUTER_BIAS:
        return experts && kind->experts.router_bias;
    case CHOICE_BIAS:
        return experts && kind->experts.choice_bias;
    case BESIDE_DENSE:
        return experts && kind->experts.beside_dense;
    case MATRIX_BIASES:
        return experts && kind->experts.matrix_biases;
    case SHARED:
        return experts && kind->experts.shared_width;
    case SHARED_GATE:
        return experts && kind->experts.shared_width && kind->experts.shared_gate;
    case QK_NORM:
        return attention && (kind->qk_norm || kind->full_qk_norm);
    case OWN_K_NORM:
        return own && (kind->qk_norm || kind->full_qk_norm);
    case PRE_NORMS:
        return !kind->no_pre_norms;
    case POST_NORMS:
        return kind->post_norms;
    case OUT_GATE:
        return attention && kind->out_gate;
    case SHORT_CONV:
        return kind->mixer == AG_MIXER_SHORT_CONV;
    case DELTA_NET:
        return kind->mixer == AG_MIXER_DELTA_NET;
    case LAYER_INPUT:
        return s->layer_input != 0;
    case FIRST_LAYER_INPUT:
        return s->layer_input != 0 && layer == 0;
    case OUT_SCALE:
        return s->out_scale;
    }
    return true;
}

static size_t size_of(const ag_model_spec *s, const ag_layer_spec *kind, size_name name) {
    switch (name) {
    case DIM:
        return s->hidden_size;
    case Q_DIM:
        return (size_t)kind->n_heads * kind->head_dim;
    case KV_DIM:
        return (size_t)kind->n_kv_heads * kind->head_dim;
    case Q_NORM_DIM:
        return (kind->full_qk_norm ? kind->n_heads : (size_t)1) * kind->head_dim;
    case K_NORM_DIM:
        return (kind->full_qk_norm ? kind->n_kv_heads : (size_t)1) * kind->head_dim;
    case FFN_DIM:
        return ag_spec_ffn_dim(s, kind);
    case CHANNELS:
        return ag_spec_channels(s, kind);
    case TAPS:
        return kind->conv_taps;
    case VALUES:
        return (size_t)kind->delta.n_v_heads * kind->delta.v_dim;
    case V_HEADS:
        return kind->delta.n_v_heads;
    case V_DIM:
        return kind->delta.v_dim;
    case INPUT:
        return s->layer_input;
    case HEADS:
        return kind->n_heads;
    case EXPERTS:
        return kind->experts.route.n_experts;
    case EXPERT_DIM:
        return kind->experts.width;
    case SHARED_DIM:
        return kind->experts.shared_width;
    case EXPERT_DIMS:
        return (size_t)kind->experts.route.n_experts * kind->experts.width;
    case EXPERT_OUTS:
        return (size_t)kind->experts.route.n_experts * s->hidden_size;
    case ONE:
        break;
    }
    return 1;
}

/* Returns the number of weights of a tensor: 0, 1 or one for each expert. */
static size_t count_of(const ag_model_spec *s, uint32_t layer, unsigned tensor) {
    if (!applies(s, layer, table[tensor].when)) return 0;
    return ag_is_expert_table(tensor) ? ag_spec_layer(s, layer)->experts.route.n_experts : 1;
}

size_t ag_layer_weight_count(const ag_model_spec *s, uint32_t layer) {
    size_t n = 0;
    for (unsigned i = 0; i < AG_LAYER_TENSORS; i++) n += count_of(s, layer, i);
    return n;
}

/* ---- names of a checkpoint ---- */

static const struct naming {
    const char *prefix, *layers, *norm, *embedding; /* prefix: of the other three */
    const char *lm_head;                            /* full name */
} namings[] = {
    {"model.", "layers.", "norm.weight", "embed_tokens.weight", "lm_head.weight"},
    {"model.language_model.", "layers.", "norm.weight", "embed_tokens.weight", "lm_head.weight"},
    {"language_model.model.", "layers.", "norm.weight", "embed_tokens.weight",
     "language_model.lm_head.weight"},
    {"model.", "layers.", "embedding_norm.weight", "embed_tokens.weight", "lm_head.weight"},
    {"model.language_model.", "layers.", "embedding_norm.weight", "embed_tokens.weight",
     "lm_head.weight"},
    {"", "blk.", "output_norm.weight", "token_embd.weight", "output.weight"},
    {"", "blk.", "token_embd_norm.weight", "token_embd.weight", "output.weight"},
};
enum {
    N_NAMINGS = sizeof namings / sizeof namings[0],
    GGUF = N_NAMINGS - 2 /* this and later ones are of GGUF files */
};

static const struct naming *naming_of(const ag_model_spec *s) { return &namings[s->naming]; }

bool ag_spec_is_gguf(const ag_model_spec *s) { return s->naming >= GGUF; }

void ag_spec_name_as_gguf(ag_model_spec *s) {
    if (ag_spec_is_gguf(s)) return;
    s->naming = (uint8_t)(GGUF + !strncmp(naming_of(s)->norm, "embedding_norm", 14));
    s->expert_naming = (uint8_t)(GGUF_EXPERTS + (s->family && s->family->gguf.fused_experts));
}

bool ag_expert_naming(size_t i, ag_model_spec *s) {
    const size_t first = ag_spec_is_gguf(s) ? GGUF_EXPERTS : 0;
    const size_t end = ag_spec_is_gguf(s) ? N_EXPERT_NAMINGS : GGUF_EXPERTS;
    if (i >= end - first) return false;
    s->expert_naming = (uint8_t)(first + i);
    return true;
}

bool ag_tensor_naming(size_t i, ag_model_spec *s) {
    if (i >= N_NAMINGS) return false;
    s->naming = (uint8_t)i;
    return true;
}

/* Returns whether norms add 1 to their weight. GGUF files store the sum. */
static bool adds_one(const ag_model_spec *s) {
    return s->family && s->family->norms_add_one && !ag_spec_is_gguf(s);
}

/* Returns the family's list of other names, or NULL. */
static const ag_tensor_alias *aliases_of(const ag_model_spec *s) {
    if (!s->family) return NULL;
    return ag_spec_is_gguf(s) ? s->family->gguf.aliases : s->family->aliases;
}

static const char *suffix_of(const ag_model_spec *s, size_t tensor) {
    for (const ag_tensor_alias *a = aliases_of(s); a && a->suffix; a++) {
        if ((size_t)a->tensor == tensor) return a->suffix;
    }
    return ag_spec_is_gguf(s) ? table[tensor].gguf : table[tensor].suffix;
}

/* Sets the number of rows in the file's tensor before this weight's rows, and the total. */
static void find_among_fused(const ag_model_spec *s, const ag_layer_spec *kind, size_t tensor,
                             const char *suffix, size_t *before, size_t *all) {
    *before = *all = 0;
    for (const ag_tensor_alias *a = aliases_of(s); a && a->suffix; a++) {
        if (strcmp(a->suffix, suffix) != 0) continue;
        if ((size_t)a->tensor == tensor) *before = *all;
        *all += size_of(s, kind, table[a->tensor].rows);
    }
}

static size_t heads_in_pairs(const ag_model_spec *s, const ag_layer_spec *kind, size_t tensor) {
    if (!ag_spec_is_gguf(s) || !s->family || !s->family->gguf.paired_rows) return 0;
    if (tensor == AG_LT_WQ || tensor == AG_LT_BQ) return kind->n_heads;
    return tensor == AG_LT_WK || tensor == AG_LT_BK ? kind->n_kv_heads : 0;
}

/* Returns the order of value heads in tiles: the first of every key head, then the second of each.
 * width: rows of a head. */
static ag_row_order tiles_of(const ag_delta_params *d, size_t width) {
    const size_t n = d->n_k_heads, group = d->n_v_heads / n;
    return (ag_row_order){n * group * width, 0, {n, group, width}, {width, n * width, 1}};
}

bool ag_spec_is_regrouped(const ag_model_spec *s, const ag_layer_spec *kind) {
    const ag_delta_params *d = &kind->delta;
    return ag_spec_is_gguf(s) && kind->mixer == AG_MIXER_DELTA_NET && !d->tiled &&
           d->n_v_heads != d->n_k_heads;
}

ag_row_order ag_delta_value_order(const ag_layer_spec *kind) {
    return tiles_of(&kind->delta, kind->delta.v_dim);
}

static ag_row_order order_of(const ag_model_spec *s, const ag_layer_spec *kind, size_t tensor,
                             const char *suffix, size_t rows) {
    const size_t heads = heads_in_pairs(s, kind, tensor), width = kind->head_dim;
    size_t before, all;
    if (kind->out_gate && (tensor == AG_LT_WQ || tensor == AG_LT_OUT_GATE)) {
        /* every head has the rows of its queries, then of its gate */
        const size_t first = tensor == AG_LT_WQ ? 0 : width;
        return (ag_row_order){2 * rows, first, {1, kind->n_heads, width}, {0, 2 * width, 1}};
    }
    if (ag_spec_is_regrouped(s, kind)) {
        const bool of_heads = tensor == AG_LT_DELTA_A || tensor == AG_LT_DELTA_B ||
                              tensor == AG_LT_DELTA_DECAY || tensor == AG_LT_DELTA_DT_BIAS;
        if (of_heads) return tiles_of(&kind->delta, 1);
        if (tensor == AG_LT_DELTA_Z) return ag_delta_value_order(kind);
    }
    find_among_fused(s, kind, tensor, suffix, &before, &all);
    if (all <= rows) all = rows; /* the only weight in its tensor */
    if (heads) return (ag_row_order){all, before, {heads, 2, width / 2}, {width, 1, 2}};
    return all > rows ? ag_row_order_range(all, before, rows) : (ag_row_order){0};
}

/* Returns the order of one of two weights whose n rows each are in one tensor of the file: rows of
 * one, then of the other, or alternating. */
static ag_row_order half_of(bool second, bool alternates, size_t n_experts, size_t expert,
                            size_t n) {
    const size_t first = expert * 2 * n;
    if (!alternates) return ag_row_order_range(n_experts * 2 * n, first + second * n, n);
    return (ag_row_order){n_experts * 2 * n, first + second, {1, 1, n}, {2 * n, 2 * n, 2}};
}

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end);
}

/* Sets the name and rows of a matrix of an expert. */
static void of_expert(const ag_model_spec *s, uint32_t layer, size_t tensor, uint32_t expert,
                      ag_weight_spec *w) {
    const struct expert_naming *n = &expert_namings[s->expert_naming];
    const char *const names[] = {n->gate, n->up, n->down},
                      *name = names[tensor - AG_LT_EXPERT_GATE];
    const bool alternates = s->family && s->family->alternating_experts && !ag_spec_is_gguf(s);
    const bool is_fused = !strcmp(n->gate, n->up) && tensor != AG_LT_EXPERT_DOWN;
    int at = snprintf(w->name, sizeof w->name, "%s%s%u.", naming_of(s)->prefix,
                      naming_of(s)->layers, layer);
    w->expert = expert;
    w->n_experts = ag_spec_layer(s, layer)->experts.route.n_experts;
    w->n_used = ag_spec_layer(s, layer)->experts.route.n_used;
    const char *number = strstr(name, "%u");
    if (number) {
        snprintf(w->name + at, sizeof w->name - (size_t)at, "%.*s%u%s", (int)(number - name), name,
                 expert, number + 2);
        return;
    }
    snprintf(w->name + at, sizeof w->name - (size_t)at, "%s", name);
    w->stacked = w->n_experts;
    w->is_mxfp4 = ends_with(name, "_blocks");
    w->transposed = alternates && !w->is_mxfp4;
    w->order = is_fused
                   ? half_of(tensor == AG_LT_EXPERT_UP, alternates, w->n_experts, expert, w->rows)
                   : ag_row_order_range(w->n_experts * w->rows, expert * w->rows, w->rows);
}

/* Sets the rows of a vector of all experts. */
static void of_all_experts(const ag_model_spec *s, size_t tensor, ag_weight_spec *w,
                           uint32_t n_experts) {
    w->stacked = n_experts;
    if (tensor != AG_LT_EXPERT_DOWN_BIAS && !ag_spec_is_gguf(s))
        w->order = half_of(tensor == AG_LT_EXPERT_UP_BIAS, true, 1, 0, w->rows);
}

ag_shape ag_weight_file_shape(const ag_weight_spec *w) {
    const size_t rows = w->order.file_rows ? w->order.file_rows : w->rows;
    const size_t each = w->stacked ? rows / w->stacked : rows;
    if (w->kind == AG_WEIGHT_VECTOR && w->stacked) return ag_shape_2d(w->stacked, each);
    if (w->kind == AG_WEIGHT_VECTOR) return ag_shape_1d(rows);
    if (!w->stacked) return ag_shape_2d(rows, w->cols);
    if (w->is_mxfp4)
        return ag_shape_4d(w->stacked, each, w->cols / AG_MXFP4_BLOCK, AG_MXFP4_BLOCK / 2);
    return w->transposed ? ag_shape_3d(w->stacked, w->cols, each)
                         : ag_shape_3d(w->stacked, each, w->cols);
}

/* Sets the name and rows of a tensor that all layers share. The norm's weight includes the factor 1
 * / sqrt(2) of the layer input. */
static void of_all_layers(const ag_model_spec *s, uint32_t layer, const char *suffix,
                          const char *gguf, ag_weight_spec *w) {
    const size_t rows = (size_t)s->n_layers * w->rows;
    if (w->kind == AG_WEIGHT_MATRIX) w->order = ag_row_order_range(rows, layer * w->rows, w->rows);
    else w->factor = 0.70710678f; /* 1 / sqrt(2) */
    snprintf(w->gguf_name, sizeof w->gguf_name, "%s", gguf);
    snprintf(w->name, sizeof w->name, "%s%s", naming_of(s)->prefix, suffix);
}

ag_weight_spec ag_layer_weight(const ag_model_spec *s, uint32_t layer, size_t i) {
    const ag_layer_spec *kind = ag_spec_layer(s, layer);
    unsigned tensor = 0;
    for (size_t n; (n = count_of(s, layer, tensor)) <= i; tensor++) i -= n;
    const row *r = &table[tensor];
    ag_weight_spec w = {
        .kind = r->cols == ONE    ? AG_WEIGHT_VECTOR
                : r->cols == TAPS ? AG_WEIGHT_FILTER
                                  : AG_WEIGHT_MATRIX,
        .rows = size_of(s, kind, r->rows),
        .cols = size_of(s, kind, r->cols),
        .tensor = (ag_layer_tensor)tensor,
        .add_one = r->is_norm && adds_one(s),
        .minus_exp = tensor == AG_LT_DELTA_DECAY && !ag_spec_is_gguf(s),
        .keeps_f32 = tensor == AG_LT_ROUTER || tensor == AG_LT_SHARED_ROUTER,
    };
    snprintf(w.gguf_name, sizeof w.gguf_name, "%s%u.%s", namings[GGUF].layers, layer, r->gguf);
    if (ag_is_expert_table(tensor)) {
        of_expert(s, layer, tensor, (uint32_t)i, &w);
        return w;
    }
    const char *suffix = suffix_of(s, tensor);
    if (tensor == AG_LT_INPUT_PROJECTION || tensor == AG_LT_INPUT_NORM) {
        of_all_layers(s, layer, suffix, r->gguf, &w);
        return w;
    }
    w.order = order_of(s, kind, tensor, suffix, w.rows);
    if (r->when == MATRIX_BIASES) of_all_experts(s, tensor, &w, kind->experts.route.n_experts);
    if (tensor == AG_LT_ROUTER_NORM) w.factor = 1 / sqrtf((float)s->hidden_size);
    snprintf(w.name, sizeof w.name, "%s%s%u.%s", naming_of(s)->prefix, naming_of(s)->layers, layer,
             suffix);
    return w;
}

/* ---- tensors outside of layers ---- */

static ag_weight_spec named(const char *prefix, const char *name, const char *gguf_name,
                            ag_weight_kind kind, size_t rows, size_t cols) {
    ag_weight_spec w = {.kind = kind, .rows = rows, .cols = cols};
    snprintf(w.name, sizeof w.name, "%s%s", prefix, name);
    snprintf(w.gguf_name, sizeof w.gguf_name, "%s", gguf_name);
    return w;
}

ag_weight_spec ag_norm_weight(const ag_model_spec *s) {
    const struct naming *n = naming_of(s);
    ag_weight_spec w =
        named(n->prefix, n->norm, namings[GGUF].norm, AG_WEIGHT_VECTOR, s->hidden_size, 1);
    w.add_one = adds_one(s);
    w.factor = s->logit_factor;
    return w;
}

ag_weight_spec ag_embedding_weight(const ag_model_spec *s) {
    const struct naming *n = naming_of(s);
    return named(n->prefix, n->embedding, namings[GGUF].embedding, AG_WEIGHT_MATRIX, s->vocab_size,
                 s->hidden_size);
}

ag_weight_spec ag_layer_input_weight(const ag_model_spec *s) {
    static const char gguf[] = "per_layer_token_embd.weight";
    return named(naming_of(s)->prefix, ag_spec_is_gguf(s) ? gguf : "embed_tokens_per_layer.weight",
                 gguf, AG_WEIGHT_MATRIX, s->n_layer_inputs, (size_t)s->n_layers * s->layer_input);
}

ag_weight_spec ag_lm_head_weight(const ag_model_spec *s) {
    return named("", naming_of(s)->lm_head, namings[GGUF].lm_head, AG_WEIGHT_MATRIX, s->vocab_size,
                 s->hidden_size);
}

uint64_t ag_spec_parameters(const ag_model_spec *s, bool tied) {
    uint64_t n = s->hidden_size, ends = (uint64_t)s->vocab_size * s->hidden_size;
    n += (uint64_t)s->n_layer_inputs * s->n_layers * s->layer_input;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(s, l); i++) {
            ag_weight_spec w = ag_layer_weight(s, l, i);
            n += (uint64_t)w.rows * w.cols;
        }
    }
    return n + ends * (tied ? 1 : 2);
}
