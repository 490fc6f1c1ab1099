/* SPDX-License-Identifier: Apache-2.0 */
#include "models/gguf_keys.h"

#include <stdio.h>

const ag_gguf_key ag_gguf_keys[] = {
    {"block_count", "num_hidden_layers", false},
    {"context_length", "max_position_embeddings", false},
    {"embedding_length", "hidden_size", false},
    {"feed_forward_length", "intermediate_size", false},
    {"attention.head_count", "num_attention_heads", false},
    {"attention.head_count_kv", "num_key_value_heads", false},
    {"attention.key_length", "head_dim", false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"attention.sliding_window", "sliding_window", false},
    {"attn_logit_softcapping", "attn_logit_softcapping", true},
    {"final_logit_softcapping", "final_logit_softcapping", true},
    {"rope.freq_base", "rope_theta", true},
    {"rope.freq_base_swa", "rope_local_base_freq", true},
    {"vocab_size", "vocab_size", false},
    {"expert_count", "num_experts", false},
    {"expert_used_count", "num_experts_per_tok", false},
    {"expert_feed_forward_length", "moe_intermediate_size", false},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", false},
    {"expert_gating_func", "expert_gating_func", false},
    {"expert_weights_scale", "routed_scaling_factor", true},
    {"leading_dense_block_count", "num_dense_layers", false},
    {NULL, NULL, false},
};

const ag_gguf_key ag_gguf_scaling_keys[] = {
    {"rope.scaling.factor", "factor", true},
    {"rope.scaling.original_context_length", "original_max_position_embeddings", false},
    {"rope.scaling.attn_factor", "attention_factor", true},
    {"rope.scaling.yarn_beta_fast", "beta_fast", true},
    {"rope.scaling.yarn_beta_slow", "beta_slow", true},
    {"rope.scaling.yarn_log_multiplier", "mscale_all_dim", true},
    {"attention.temperature_scale", "llama_4_scaling_beta", true},
    {NULL, NULL, false},
};

const json_t *ag_gguf_value(const ag_gguf_reader *r, const char *key) {
    char name[160];
    snprintf(name, sizeof name, "%.60s.%s", r->architecture, key);
    return json_object_get(r->metadata, name);
}

const json_t *ag_gguf_of_layer(const ag_gguf_reader *r, const char *key, size_t layer) {
    const json_t *v = ag_gguf_value(r, key);
    return json_is_array(v) ? json_array_get(v, layer) : v;
}

bool ag_gguf_has(const ag_gguf_reader *r, const char *tensor) {
    return ag_source_find(r->source, tensor) != NULL;
}
