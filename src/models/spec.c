/* SPDX-License-Identifier: Apache-2.0 */
#include "models/spec.h"

#include "core/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ag_model_spec ag_spec_plain(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim) {
    return (ag_model_spec){
        .architecture = "LlamaForCausalLM",
        .n_kinds = 1,
        .kinds = {{.n_heads = n_heads,
                   .n_kv_heads = n_kv_heads,
                   .head_dim = head_dim,
                   .scale = 1.0f / sqrtf((float)head_dim)}},
        .n_ropes = 1,
        .ropes = {{.theta = 10000, .n_rotated = head_dim}},
        .norm_eps = 1e-5f,
        .embedding_scale = 1,
        .bos_id = -1,
    };
}

/* Member by member: padding may hold anything. */
static bool is_same(const ag_layer_spec *a, const ag_layer_spec *b) {
    return a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->rope == b->rope && a->window == b->window &&
           a->scale == b->scale && a->softcap == b->softcap && a->activation == b->activation &&
           a->qkv_bias == b->qkv_bias && a->out_bias == b->out_bias && a->ffn_bias == b->ffn_bias &&
           a->qk_norm == b->qk_norm && a->whole_qk_norm == b->whole_qk_norm &&
           a->post_norms == b->post_norms && a->no_pre_norms == b->no_pre_norms;
}

ag_status ag_spec_set_layer(ag_model_spec *s, uint32_t layer, const ag_layer_spec *kind,
                            ag_error *err) {
    uint32_t k = 0;
    while (k < s->n_kinds && !is_same(&s->kinds[k], kind)) k++;
    if (k == AG_MAX_LAYER_KINDS) {
        return AG_FAIL(err, LIMIT, "layer %u is of kind number %u, there may be %d", layer, k + 1,
                       AG_MAX_LAYER_KINDS);
    }
    s->kinds[k] = *kind;
    if (k == s->n_kinds) s->n_kinds++;
    s->kind_of[layer] = (uint8_t)k;
    return AG_OK;
}

ag_status ag_spec_set_all(ag_model_spec *s, const ag_layer_spec *kind, ag_error *err) {
    for (uint32_t l = 0; l < s->n_layers; l++) AG_TRY(ag_spec_set_layer(s, l, kind, err));
    return AG_OK;
}

bool ag_spec_is_long(const ag_model_spec *s, uint64_t n_positions) {
    for (uint32_t i = 0; i < s->n_ropes; i++) {
        const ag_rope_scaling *scaling = &s->ropes[i].scaling;
        if (scaling->type == AG_ROPE_LONGROPE &&
            (double)n_positions > scaling->original_max_position_embeddings) {
            return true;
        }
    }
    return false;
}

static void describe_kinds(const ag_model_spec *s, ag_model_info *info) {
    info->n_layer_kinds = s->n_kinds;
    for (uint32_t k = 0; k < s->n_kinds; k++) {
        info->layer_kinds[k] = (ag_layer_kind){
            .n_heads = s->kinds[k].n_heads,
            .n_kv_heads = s->kinds[k].n_kv_heads,
            .head_dim = s->kinds[k].head_dim,
            .window = s->kinds[k].window,
        };
    }
    for (uint32_t l = 0; l < s->n_layers; l++) info->layer_kinds[s->kind_of[l]].n_layers++;
}

void ag_spec_describe(const ag_model_spec *s, ag_model_info *info) {
    *info = (ag_model_info){
        .n_layers = s->n_layers,
        .hidden_size = s->hidden_size,
        .intermediate_size = s->intermediate_size,
        .n_heads = s->kinds[0].n_heads,
        .n_kv_heads = s->kinds[0].n_kv_heads,
        .head_dim = s->kinds[0].head_dim,
        .n_vocab = s->vocab_size,
        .max_positions = s->max_positions,
        .rope_theta = (float)s->ropes[0].theta,
        .norm_eps = s->norm_eps,
        .tied = s->tie_word_embeddings,
        .bos_id = s->bos_id,
        .n_eos = s->n_eos,
    };
    snprintf(info->architecture, sizeof info->architecture, "%s", s->architecture);
    snprintf(info->rope_scaling, sizeof info->rope_scaling, "%s",
             ag_rope_type_name(s->ropes[0].scaling.type));
    memcpy(info->eos_ids, s->eos_ids, sizeof info->eos_ids);
    describe_kinds(s, info);
}
