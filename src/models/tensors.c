/* SPDX-License-Identifier: Apache-2.0 */
#include "models/tensors.h"

#include "layers/layer.h"
#include "models/families/family.h"

#include <stdio.h>

typedef enum size_name { DIM, Q_DIM, KV_DIM, HEAD_DIM, FFN_DIM, ONE } size_name;
typedef enum condition { ALWAYS, QKV_BIAS, OUT_BIAS, FFN_BIAS, QK_NORM, POST_NORMS } condition;

typedef struct row {
    const char *suffix;
    size_t member;
    size_name rows, cols;
    condition when;
    bool is_norm;
} row;

#define MEMBER(name) offsetof(ag_layer, name)

/* Names as in most Hugging Face checkpoints, after "model.layers.N."; of other names a family has
 * a list. */
static const row table[AG_LAYER_TENSORS] = {
    [AG_LT_ATTENTION_NORM] = {"input_layernorm.weight", MEMBER(attention_norm), DIM, ONE, ALWAYS,
                              true},
    [AG_LT_WQ] = {"self_attn.q_proj.weight", MEMBER(wq), Q_DIM, DIM, ALWAYS, false},
    [AG_LT_WK] = {"self_attn.k_proj.weight", MEMBER(wk), KV_DIM, DIM, ALWAYS, false},
    [AG_LT_WV] = {"self_attn.v_proj.weight", MEMBER(wv), KV_DIM, DIM, ALWAYS, false},
    [AG_LT_WO] = {"self_attn.o_proj.weight", MEMBER(wo), DIM, Q_DIM, ALWAYS, false},
    [AG_LT_FFN_NORM] = {"post_attention_layernorm.weight", MEMBER(ffn_norm), DIM, ONE, ALWAYS,
                        true},
    [AG_LT_GATE] = {"mlp.gate_proj.weight", MEMBER(w_gate), FFN_DIM, DIM, ALWAYS, false},
    [AG_LT_UP] = {"mlp.up_proj.weight", MEMBER(w_up), FFN_DIM, DIM, ALWAYS, false},
    [AG_LT_DOWN] = {"mlp.down_proj.weight", MEMBER(w_down), DIM, FFN_DIM, ALWAYS, false},
    [AG_LT_BQ] = {"self_attn.q_proj.bias", MEMBER(bq), Q_DIM, ONE, QKV_BIAS, false},
    [AG_LT_BK] = {"self_attn.k_proj.bias", MEMBER(bk), KV_DIM, ONE, QKV_BIAS, false},
    [AG_LT_BV] = {"self_attn.v_proj.bias", MEMBER(bv), KV_DIM, ONE, QKV_BIAS, false},
    [AG_LT_BO] = {"self_attn.o_proj.bias", MEMBER(bo), DIM, ONE, OUT_BIAS, false},
    [AG_LT_BIAS_GATE] = {"mlp.gate_proj.bias", MEMBER(b_gate), FFN_DIM, ONE, FFN_BIAS, false},
    [AG_LT_BIAS_UP] = {"mlp.up_proj.bias", MEMBER(b_up), FFN_DIM, ONE, FFN_BIAS, false},
    [AG_LT_BIAS_DOWN] = {"mlp.down_proj.bias", MEMBER(b_down), DIM, ONE, FFN_BIAS, false},
    [AG_LT_Q_NORM] = {"self_attn.q_norm.weight", MEMBER(q_norm), HEAD_DIM, ONE, QK_NORM, true},
    [AG_LT_K_NORM] = {"self_attn.k_norm.weight", MEMBER(k_norm), HEAD_DIM, ONE, QK_NORM, true},
    [AG_LT_POST_ATTENTION_NORM] = {"post_self_attn_layernorm.weight", MEMBER(post_attention_norm),
                                   DIM, ONE, POST_NORMS, true},
    [AG_LT_POST_FFN_NORM] = {"post_mlp_layernorm.weight", MEMBER(post_ffn_norm), DIM, ONE,
                             POST_NORMS, true},
};

static bool applies(const ag_layer_spec *kind, condition when) {
    switch (when) {
    case QKV_BIAS:
        return kind->qkv_bias;
    case OUT_BIAS:
        return kind->out_bias;
    case FFN_BIAS:
        return kind->ffn_bias;
    case QK_NORM:
        return kind->qk_norm;
    case POST_NORMS:
        return kind->post_norms;
    case ALWAYS:
        break;
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
    case HEAD_DIM:
        return kind->head_dim;
    case FFN_DIM:
        return s->intermediate_size;
    case ONE:
        break;
    }
    return 1;
}

size_t ag_layer_weight_count(const ag_model_spec *s, uint32_t layer) {
    const ag_layer_spec *kind = ag_spec_layer(s, layer);
    size_t n = 0;
    for (size_t i = 0; i < AG_LAYER_TENSORS; i++) n += applies(kind, table[i].when);
    return n;
}

/* As the model's family calls it. */
static const char *suffix_of(const ag_model_spec *s, size_t tensor) {
    const ag_tensor_alias *alias = s->family ? s->family->aliases : NULL;
    for (; alias && alias->suffix; alias++) {
        if ((size_t)alias->tensor == tensor) return alias->suffix;
    }
    return table[tensor].suffix;
}

static const char *prefix_of(const ag_model_spec *s);

ag_weight_spec ag_layer_weight(const ag_model_spec *s, uint32_t layer, size_t i) {
    const ag_layer_spec *kind = ag_spec_layer(s, layer);
    const row *r = table;
    while (!applies(kind, r->when) || i--) r++;
    ag_weight_spec w = {
        .kind = r->cols == ONE ? AG_WEIGHT_VECTOR : AG_WEIGHT_MATRIX,
        .rows = size_of(s, kind, r->rows),
        .cols = size_of(s, kind, r->cols),
        .member = r->member,
        .add_one = r->is_norm && s->family && s->family->norms_add_one,
    };
    snprintf(w.name, sizeof w.name, "%slayers.%u.%s", prefix_of(s), layer,
             suffix_of(s, (size_t)(r - table)));
    return w;
}

/* ---- outside of layers ---- */

/* What comes before the names of the text part, and its lm_head. */
static const struct {
    const char *prefix, *lm_head;
} namings[] = {
    {"model.", "lm_head.weight"},
    {"model.language_model.", "lm_head.weight"},
    {"language_model.model.", "language_model.lm_head.weight"},
};

static const char *prefix_of(const ag_model_spec *s) { return namings[s->naming].prefix; }

bool ag_tensor_naming(size_t i, ag_model_spec *s) {
    if (i >= sizeof namings / sizeof namings[0]) return false;
    s->naming = (uint8_t)i;
    return true;
}

static ag_weight_spec named(const char *prefix, const char *name, ag_weight_kind kind, size_t rows,
                            size_t cols) {
    ag_weight_spec w = {.kind = kind, .rows = rows, .cols = cols};
    snprintf(w.name, sizeof w.name, "%s%s", prefix, name);
    return w;
}

ag_weight_spec ag_norm_weight(const ag_model_spec *s) {
    ag_weight_spec w = named(prefix_of(s), "norm.weight", AG_WEIGHT_VECTOR, s->hidden_size, 1);
    w.add_one = s->family && s->family->norms_add_one;
    return w;
}

ag_weight_spec ag_embedding_weight(const ag_model_spec *s) {
    return named(prefix_of(s), "embed_tokens.weight", AG_WEIGHT_MATRIX, s->vocab_size,
                 s->hidden_size);
}

ag_weight_spec ag_lm_head_weight(const ag_model_spec *s) {
    return named("", namings[s->naming].lm_head, AG_WEIGHT_MATRIX, s->vocab_size, s->hidden_size);
}

uint64_t ag_spec_parameters(const ag_model_spec *s, bool tied) {
    uint64_t n = s->hidden_size, ends = (uint64_t)s->vocab_size * s->hidden_size;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(s, l); i++) {
            ag_weight_spec w = ag_layer_weight(s, l, i);
            n += (uint64_t)w.rows * w.cols;
        }
    }
    return n + ends * (tied ? 1 : 2);
}
