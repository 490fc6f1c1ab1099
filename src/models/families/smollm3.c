/* SPDX-License-Identifier: Apache-2.0 */
/* SmolLM3: Llama without rotation in every fourth layer. */
#include "core/fail.h"
#include "models/families/family.h"

/* Returns whether a layer rotates queries and keys. In `no_rope_layers`, 1 means that it does. */
static bool turns(ag_config_reader *r, const json_t *list, uint32_t interval, uint32_t layer) {
    if (!list) return (layer + 1) % interval != 0;
    const json_t *v = json_array_get(list, layer);
    if (r->status == AG_OK && !json_is_integer(v)) {
        r->status = AG_FAIL(r->err, FORMAT, "%s: no_rope_layers lacks an integer for layer %u",
                            r->where, layer);
    }
    return json_integer_value(v) != 0;
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    const json_t *list = ag_config_value(r, "no_rope_layers");
    bool bias = false, use_window = false;
    uint32_t interval = 4, window = 0;
    ag_config_bool(r, "attention_bias", &bias);
    ag_config_bool(r, "mlp_bias", &kind.ffn_bias);
    ag_config_bool(r, "use_sliding_window", &use_window);
    ag_config_size(r, "no_rope_layer_interval", AG_MAX_LAYERS, &interval);
    if (use_window) ag_config_window(r, "sliding_window", &window);
    kind.qkv_bias = kind.out_bias = bias;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        ag_layer_spec layer = kind;
        const bool is_turned = turns(r, list, interval, l);
        if (!is_turned) layer.rope = AG_NO_ROPE;
        if (ag_config_has_window(r, l, !is_turned)) layer.window = window;
        AG_TRY(ag_spec_set_layer(s, l, &layer, r->err));
    }
    return r->status;
}

const ag_family ag_family_smollm3 = {
    .names = {{"SmolLM3ForCausalLM", "smollm3"}},
    .defaults = {.vocab_size = 128256,
                 .hidden_size = 2048,
                 .intermediate_size = 11008,
                 .n_layers = 36,
                 .n_heads = 16,
                 .n_kv_heads = 4,
                 .max_positions = 32768,
                 .rope_theta = 2e6,
                 .bos_id = 128000,
                 .eos_id = 128001,
                 .tie_word_embeddings = true},
    .gguf = {.architectures = {"smollm3"}, .paired_rows = true},
    .describe = describe,
};
