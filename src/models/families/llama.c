/* SPDX-License-Identifier: Apache-2.0 */
/* Llama and Mistral: the plain block; Mistral's layers may all have one window. */
#include "core/fail.h"
#include "models/families/family.h"

static ag_status set_all(const ag_layer_spec *kind, ag_model_spec *s, ag_error *err) {
    for (uint32_t l = 0; l < s->n_layers; l++) AG_TRY(ag_spec_set_layer(s, l, kind, err));
    return AG_OK;
}

static ag_status describe_llama(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    bool attention = false;
    ag_config_bool(r, "attention_bias", &attention);
    ag_config_bool(r, "mlp_bias", &kind.ffn_bias);
    kind.qkv_bias = kind.out_bias = attention;
    return set_all(&kind, s, r->err);
}

/* A file says it has biases by having them. */
static ag_status complete_llama(const ag_gguf_reader *r, json_t *config) {
    static const char *const keys[][2] = {{"blk.0.attn_q.bias", "attention_bias"},
                                          {"blk.0.ffn_up.bias", "mlp_bias"}};
    for (int i = 0; i < 2; i++) {
        if (json_object_set_new(config, keys[i][1], json_boolean(ag_gguf_has(r, keys[i][0])))) {
            return AG_FAIL(r->err, NOMEM, "%s: no memory for its configuration", r->where);
        }
    }
    return AG_OK;
}

const ag_family ag_family_llama = {
    .names = {{"LlamaForCausalLM", "llama"}},
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .n_layers = 32,
                 .n_heads = 32,
                 .max_positions = 2048,
                 .rope_theta = 10000,
                 .bos_id = 1,
                 .eos_id = 2},
    .activation_key = "hidden_act",
    .gguf = {.architectures = {"llama"}, .paired_rows = true, .complete = complete_llama},
    .describe = describe_llama,
};

static ag_status describe_mistral(ag_config_reader *r, const ag_layer_spec *plain,
                                  ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    if (!json_object_get(r->object, "sliding_window")) kind.window = 4096;
    ag_config_window(r, "sliding_window", &kind.window);
    return set_all(&kind, s, r->err);
}

const ag_family ag_family_mistral = {
    .names = {{"MistralForCausalLM", "mistral"}},
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 8,
                 .max_positions = 131072,
                 .rope_theta = 10000,
                 .bos_id = 1,
                 .eos_id = 2},
    .activation_key = "hidden_act",
    .describe = describe_mistral,
};
