/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen 2 and 2.5: biases of q, k and v; optional windows in the upper layers. Qwen 2 MoE: experts
 * and a shared expert in most layers. */
#include "core/fail.h"
#include "models/families/family.h"

static bool is_listed(const json_t *layers, uint32_t layer) {
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *v = json_array_get(layers, i);
        if (json_is_integer(v) && json_integer_value(v) == layer) return true;
    }
    return false;
}

ag_status ag_qwen_set_layers(ag_config_reader *r, const ag_layer_spec *kind, ag_model_spec *s) {
    bool use = false;
    /* null means no window */
    uint32_t window = json_object_get(r->object, "sliding_window") ? 0 : 4096;
    double first = 28;
    ag_config_bool(r, "use_sliding_window", &use);
    if (use) ag_config_window(r, "sliding_window", &window);
    if (use) ag_config_real(r, "max_window_layers", 0, INT32_MAX, &first);
    uint32_t step = 1;
    ag_config_size(r, "decoder_sparse_step", AG_MAX_LAYERS, &step);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        ag_layer_spec layer = *kind;
        if ((l + 1) % step != 0 || is_listed(ag_config_value(r, "mlp_only_layers"), l))
            layer.experts = (ag_expert_spec){.width = 0};
        /* read the list even if windows are off, to check it */
        if (ag_config_has_window(r, l, use && l >= first) && use) layer.window = window;
        AG_TRY(ag_spec_set_layer(s, l, &layer, r->err));
    }
    return AG_OK;
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    kind.qkv_bias = true;
    return ag_qwen_set_layers(r, &kind, s);
}

const ag_family ag_family_qwen2 = {
    .names = {{"Qwen2ForCausalLM", "qwen2"}},
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 4096,
                 .intermediate_size = 22016,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 32,
                 .max_positions = 32768,
                 .rope_theta = 10000,
                 .bos_id = -1,
                 .eos_id = -1},
    .gguf = {.architectures = {"qwen2"}},
    .describe = describe,
};

/* ---- with experts ---- */

static ag_status describe_moe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    kind.qkv_bias = true;
    ag_config_bool(r, "qkv_bias", &kind.qkv_bias);
    kind.experts = (ag_expert_spec){
        .route = {.n_experts = 60, .n_used = 4, .scoring = AG_SCORING_SOFTMAX, .factor = 1},
        .width = 1408,
        .shared_width = 5632,
        .shared_gate = true};
    ag_config_size(r, "shared_expert_intermediate_size", 1 << 22, &kind.experts.shared_width);
    AG_TRY(ag_config_experts(r, s, &kind.experts));
    return ag_qwen_set_layers(r, &kind, s);
}

const ag_family ag_family_qwen2_moe = {
    .names = {{"Qwen2MoeForCausalLM", "qwen2_moe"}},
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 2048,
                 .intermediate_size = 5632,
                 .n_layers = 24,
                 .n_heads = 16,
                 .n_kv_heads = 16,
                 .max_positions = 32768,
                 .rope_theta = 10000,
                 .bos_id = -1,
                 .eos_id = -1},
    .gguf = {.architectures = {"qwen2moe"}},
    .describe = describe_moe,
};
