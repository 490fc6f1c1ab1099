/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo 2 and OLMoE. Queries and keys are normed over all heads together. Branches of OLMo 2 have a
 * norm after, not before. OLMoE has experts in all layers. */
#include "core/fail.h"
#include "models/families/family.h"

static const ag_tensor_alias aliases[] = {
    {AG_LT_POST_ATTENTION_NORM, "post_attention_layernorm.weight"},
    {AG_LT_POST_FFN_NORM, "post_feedforward_layernorm.weight"},
    {.suffix = NULL},
};

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    bool bias = false;
    ag_config_bool(r, "attention_bias", &bias);
    kind.qkv_bias = kind.out_bias = bias;
    kind.full_qk_norm = kind.post_norms = kind.no_pre_norms = true;
    return ag_spec_set_all(s, &kind, r->err);
}

const ag_family ag_family_olmo2 = {
    .names = {{"Olmo2ForCausalLM", "olmo2"}},
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .n_layers = 32,
                 .n_heads = 32,
                 .max_positions = 2048,
                 .rope_theta = 10000,
                 .norm_eps = 1e-5,
                 .bos_id = -1,
                 .eos_id = 50279},
    .aliases = aliases,
    .gguf = {.architectures = {"olmo2"}},
    .describe = describe,
};

/* ---- OLMoE ---- */

static ag_status describe_moe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    bool bias = false;
    ag_config_bool(r, "attention_bias", &bias);
    kind.qkv_bias = kind.out_bias = bias;
    kind.full_qk_norm = true;
    if (ag_config_value(r, "clip_qkv")) {
        return AG_FAIL(r->err, UNSUPPORTED, "%s: clip_qkv is set; only null is supported",
                       r->where);
    }
    kind.experts = (ag_expert_spec){
        .route = {.n_experts = 64, .n_used = 8, .scoring = AG_SCORING_SOFTMAX, .factor = 1}};
    AG_TRY(ag_config_experts(r, s, &kind.experts));
    return ag_spec_set_all(s, &kind, r->err);
}

const ag_family ag_family_olmoe = {
    .names = {{"OlmoeForCausalLM", "olmoe"}},
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 2048,
                 .intermediate_size = 2048,
                 .n_layers = 16,
                 .n_heads = 16,
                 .max_positions = 4096,
                 .rope_theta = 10000,
                 .norm_eps = 1e-5,
                 .bos_id = -1,
                 .eos_id = 50279},
    .gguf = {.architectures = {"olmoe"}},
    .describe = describe_moe,
};
