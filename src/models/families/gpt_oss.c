/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss. Experts in all layers, with biases and a clamped gate. Attention has biases, sinks, and
 * windows in every other layer. Frequencies are scaled by YaRN, whose bounds are not rounded. */
#include "core/fail.h"
#include "models/families/family.h"

#include <math.h>

static const ag_tensor_alias aliases[] = {{AG_LT_ROUTER, "mlp.router.weight"}, {.suffix = NULL}};
static const ag_tensor_alias gguf_aliases[] = {
    {AG_LT_FFN_NORM, "post_attention_norm.weight"},
    {.suffix = NULL},
};

/* Default of a configuration without keys for rotation. */
static const ag_rope_spec default_rope = {
    .theta = 150000,
    .scaling = {.type = AG_ROPE_YARN,
                .factor = 32,
                .original_max_position_embeddings = 4096,
                .beta_fast = 32,
                .beta_slow = 1},
};

/* Reads the limit of the gate. Its slope is a constant of the operation. */
static ag_status read_gate(ag_config_reader *r, ag_expert_spec *x) {
    double limit = 7, slope = 1.702;
    ag_config_real(r, "swiglu_limit", 1e-3, 1e6, &limit);
    ag_config_real(r, "swiglu_alpha", 0, 1e6, &slope);
    AG_TRY(r->status);
    x->gate_limit = (float)limit;
    if (fabs(slope - 1.702) < 1e-9) return AG_OK;
    return AG_FAIL(r->err, UNSUPPORTED, "%s: swiglu_alpha is %g; known: 1.702", r->where, slope);
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    uint32_t window = 128;
    kind.activation = AG_ACTIVATION_SWIGLU_CLAMPED;
    kind.qkv_bias = kind.out_bias = true;
    ag_config_bool(r, "attention_bias", &kind.qkv_bias);
    kind.out_bias = kind.qkv_bias;
    kind.sinks = true;
    kind.experts = (ag_expert_spec){
        .route = {.n_experts = 128, .n_used = 4, .scoring = AG_SCORING_CHOSEN, .factor = 1},
        .router_bias = true,
        .matrix_biases = true};
    AG_TRY(read_gate(r, &kind.experts));
    AG_TRY(ag_config_experts(r, s, &kind.experts));
    if (!ag_config_value(r, "rope_parameters") && !ag_config_value(r, "rope_scaling")) {
        s->ropes[0] = default_rope;
        s->ropes[0].n_rotated = kind.head_dim;
        s->ropes[0].attention_factor = (float)(0.1 * log(default_rope.scaling.factor) + 1);
    }
    ag_config_window(r, "sliding_window", &window);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        ag_layer_spec layer = kind;
        if (ag_config_has_window(r, l, l % 2 == 0)) layer.window = window;
        AG_TRY(ag_spec_set_layer(s, l, &layer, r->err));
    }
    return r->status;
}

/* Adds the key that GGUF files lack: the bounds of YaRN are not rounded. */
static ag_status complete(const ag_gguf_reader *r, json_t *config) {
    json_t *scaling = json_object_get(config, "rope_scaling");
    if (!scaling || json_object_set_new(scaling, "truncate", json_false()) == 0) return AG_OK;
    return AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

const ag_family ag_family_gpt_oss = {
    .names = {{"GptOssForCausalLM", "gpt_oss"}},
    .defaults = {.vocab_size = 201088,
                 .hidden_size = 2880,
                 .intermediate_size = 2880,
                 .n_layers = 36,
                 .n_heads = 64,
                 .n_kv_heads = 8,
                 .head_dim = 64,
                 .max_positions = 131072,
                 .rope_theta = 150000,
                 .norm_eps = 1e-5,
                 .bos_id = -1,
                 .eos_id = -1},
    .aliases = aliases,
    .alternating_experts = true,
    .gguf = {.architectures = {"gpt-oss"}, .aliases = gguf_aliases, .complete = complete},
    .describe = describe,
};
