/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama_tensors.h"

#include "layers/llama_layer.h"

#include <stdio.h>

typedef enum size_name { DIM, Q_DIM, KV_DIM, FFN_DIM, ONE } size_name;
typedef enum condition { ALWAYS, ATTENTION_BIAS, MLP_BIAS } condition;

typedef struct row {
    const char *suffix;
    size_t member;
    size_name rows, cols;
    condition when;
} row;

#define MEMBER(name) offsetof(ag_llama_layer, name)

/* Names as in Hugging Face checkpoints, after "model.layers.N." */
static const row table[] = {
    {"input_layernorm.weight", MEMBER(attention_norm), DIM, ONE, ALWAYS},
    {"self_attn.q_proj.weight", MEMBER(wq), Q_DIM, DIM, ALWAYS},
    {"self_attn.k_proj.weight", MEMBER(wk), KV_DIM, DIM, ALWAYS},
    {"self_attn.v_proj.weight", MEMBER(wv), KV_DIM, DIM, ALWAYS},
    {"self_attn.o_proj.weight", MEMBER(wo), DIM, Q_DIM, ALWAYS},
    {"post_attention_layernorm.weight", MEMBER(ffn_norm), DIM, ONE, ALWAYS},
    {"mlp.gate_proj.weight", MEMBER(w_gate), FFN_DIM, DIM, ALWAYS},
    {"mlp.up_proj.weight", MEMBER(w_up), FFN_DIM, DIM, ALWAYS},
    {"mlp.down_proj.weight", MEMBER(w_down), DIM, FFN_DIM, ALWAYS},
    {"self_attn.q_proj.bias", MEMBER(bq), Q_DIM, ONE, ATTENTION_BIAS},
    {"self_attn.k_proj.bias", MEMBER(bk), KV_DIM, ONE, ATTENTION_BIAS},
    {"self_attn.v_proj.bias", MEMBER(bv), KV_DIM, ONE, ATTENTION_BIAS},
    {"self_attn.o_proj.bias", MEMBER(bo), DIM, ONE, ATTENTION_BIAS},
    {"mlp.gate_proj.bias", MEMBER(b_gate), FFN_DIM, ONE, MLP_BIAS},
    {"mlp.up_proj.bias", MEMBER(b_up), FFN_DIM, ONE, MLP_BIAS},
    {"mlp.down_proj.bias", MEMBER(b_down), DIM, ONE, MLP_BIAS},
};
enum { N_ROWS = sizeof table / sizeof table[0] };

static bool applies(const ag_llama_config *c, condition when) {
    switch (when) {
    case ATTENTION_BIAS:
        return c->attention_bias;
    case MLP_BIAS:
        return c->mlp_bias;
    case ALWAYS:
        break;
    }
    return true;
}

static size_t size_of(const ag_llama_config *c, size_name name) {
    switch (name) {
    case DIM:
        return c->hidden_size;
    case Q_DIM:
        return (size_t)c->n_heads * c->head_dim;
    case KV_DIM:
        return (size_t)c->n_kv_heads * c->head_dim;
    case FFN_DIM:
        return c->intermediate_size;
    case ONE:
        break;
    }
    return 1;
}

size_t ag_layer_weight_count(const ag_llama_config *c) {
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS; i++) n += applies(c, table[i].when);
    return n;
}

ag_weight_spec ag_layer_weight(const ag_llama_config *c, uint32_t layer, size_t i) {
    const row *r = table;
    while (!applies(c, r->when) || i--) r++;
    ag_weight_spec s = {
        .kind = r->cols == ONE ? AG_WEIGHT_VECTOR : AG_WEIGHT_MATRIX,
        .rows = size_of(c, r->rows),
        .cols = size_of(c, r->cols),
        .member = r->member,
    };
    snprintf(s.name, sizeof s.name, "model.layers.%u.%s", layer, r->suffix);
    return s;
}

static ag_weight_spec named(const char *name, ag_weight_kind kind, size_t rows, size_t cols) {
    ag_weight_spec s = {.kind = kind, .rows = rows, .cols = cols};
    snprintf(s.name, sizeof s.name, "%s", name);
    return s;
}

ag_weight_spec ag_norm_weight(const ag_llama_config *c) {
    return named("model.norm.weight", AG_WEIGHT_VECTOR, c->hidden_size, 1);
}

ag_weight_spec ag_table_weight(const ag_llama_config *c, const char *name) {
    return named(name, AG_WEIGHT_MATRIX, c->vocab_size, c->hidden_size);
}

uint64_t ag_llama_parameters(const ag_llama_config *c, bool tied) {
    uint64_t layer = 0, ends = (uint64_t)c->vocab_size * c->hidden_size;
    for (size_t i = 0; i < ag_layer_weight_count(c); i++) {
        ag_weight_spec s = ag_layer_weight(c, 0, i);
        layer += (uint64_t)s.rows * s.cols;
    }
    return layer * c->n_layers + c->hidden_size + ends * (tied ? 1 : 2);
}
