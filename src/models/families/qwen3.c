/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen 3: norms of query and key heads before rotation; no biases unless configured. Qwen 3 MoE:
 * experts in most layers. */
#include "core/fail.h"
#include "models/families/family.h"

static ag_layer_spec block(ag_config_reader *r, const ag_layer_spec *plain) {
    ag_layer_spec kind = *plain;
    bool bias = false;
    ag_config_bool(r, "attention_bias", &bias);
    kind.qkv_bias = kind.out_bias = bias;
    kind.qk_norm = true;
    return kind;
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    const ag_layer_spec kind = block(r, plain);
    return ag_qwen_set_layers(r, &kind, s);
}

const ag_family ag_family_qwen3 = {
    .names = {{"Qwen3ForCausalLM", "qwen3"}},
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 4096,
                 .intermediate_size = 22016,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 32,
                 .head_dim = 128,
                 .max_positions = 32768,
                 .rope_theta = 10000,
                 .bos_id = -1,
                 .eos_id = -1},
    .gguf = {.architectures = {"qwen3"}},
    .describe = describe,
};

/* ---- with experts ---- */

static ag_status describe_moe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = block(r, plain);
    kind.experts = (ag_expert_spec){
        .route = {.n_experts = 128, .n_used = 8, .scoring = AG_SCORING_SOFTMAX, .factor = 1},
        .width = 768};
    AG_TRY(ag_config_experts(r, s, &kind.experts));
    return ag_qwen_set_layers(r, &kind, s);
}

/* Readers of GGUF files always divide the weights of experts by their sum. */
static ag_status complete_moe(const ag_gguf_reader *r, json_t *config) {
    if (json_object_set_new(config, "norm_topk_prob", json_true()) == 0) return AG_OK;
    return AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

const ag_family ag_family_qwen3_moe = {
    .names = {{"Qwen3MoeForCausalLM", "qwen3_moe"}},
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 2048,
                 .intermediate_size = 6144,
                 .n_layers = 24,
                 .n_heads = 32,
                 .n_kv_heads = 4,
                 .max_positions = 32768,
                 .rope_theta = 10000,
                 .bos_id = -1,
                 .eos_id = -1},
    .gguf = {.architectures = {"qwen3moe"}, .complete = complete_moe},
    .describe = describe_moe,
};
