/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen 3: norms of query and key heads before rotation; no biases unless configured. */
#include "core/fail.h"
#include "models/families/family.h"

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    bool bias = false;
    ag_config_bool(r, "attention_bias", &bias);
    kind.qkv_bias = kind.out_bias = bias;
    kind.qk_norm = true;
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
