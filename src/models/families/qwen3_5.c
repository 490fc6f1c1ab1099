/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen 3.5. Three of four layers are gated delta nets. The others are attention with rotation of a
 * quarter of each head, norms of query and key heads, and a gate of the output. Norms multiply by 1
 * + their weight, except in delta nets. Qwen 3.5 MoE has experts and a shared expert in all
 * layers. */
#include "core/fail.h"
#include "models/families/family.h"

static const ag_tensor_alias gguf_aliases[] = {
    {AG_LT_FFN_NORM, "post_attention_norm.weight"},
    {.suffix = NULL},
};
static const ag_gguf_key gguf_keys[] = {
    {"ssm.conv_kernel", "linear_conv_kernel_dim", false},
    {"ssm.group_count", "linear_num_key_heads", false},
    {"ssm.time_step_rank", "linear_num_value_heads", false},
    {"ssm.inner_size", "linear_inner_size", false},
    {"ssm.state_size", "linear_key_head_dim", false},
    {"full_attention_interval", "full_attention_interval", false},
    {NULL, NULL, false}};

/* Key that no config.json has: GGUF files have the value heads in another order. */
static const char tiled_key[] = "linear_value_heads_tiled";

static ag_status read_delta_net(ag_config_reader *r, const ag_model_spec *s, ag_layer_spec *net) {
    ag_delta_params *d = &net->delta;
    *d = (ag_delta_params){
        .n_k_heads = 16, .n_v_heads = 32, .k_dim = 128, .v_dim = 128, .eps = 1e-6f};
    net->mixer = AG_MIXER_DELTA_NET;
    net->conv_taps = 4;
    ag_config_size(r, "linear_conv_kernel_dim", AG_CONV_TAPS_MAX, &net->conv_taps);
    ag_config_size(r, "linear_num_key_heads", 1 << 12, &d->n_k_heads);
    ag_config_size(r, "linear_num_value_heads", 1 << 12, &d->n_v_heads);
    ag_config_size(r, "linear_key_head_dim", 1 << 10, &d->k_dim);
    ag_config_size(r, "linear_value_head_dim", 1 << 10, &d->v_dim);
    ag_config_bool(r, tiled_key, &d->tiled);
    AG_TRY(r->status);
    if (net->conv_taps < 2 || d->n_v_heads % d->n_k_heads || d->n_v_heads > s->intermediate_size) {
        return AG_FAIL(
            r->err, FORMAT,
            "%s: unsupported delta net: %u value heads, %u key heads, linear_conv_kernel_dim %u, "
            "intermediate_size %u",
            r->where, d->n_v_heads, d->n_k_heads, net->conv_taps, s->intermediate_size);
    }
    return AG_OK;
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    static const char *const types[] = {"linear_attention", "full_attention", NULL};
    ag_layer_spec attention = *plain;
    ag_layer_spec net = {.activation = plain->activation, .experts = plain->experts};
    bool bias = false;
    uint32_t interval = 4;
    attention.qk_norm = attention.out_gate = true;
    ag_config_bool(r, "attention_bias", &bias);
    ag_config_bool(r, "attn_output_gate", &attention.out_gate);
    ag_config_size(r, "full_attention_interval", AG_MAX_LAYERS, &interval);
    AG_TRY(read_delta_net(r, s, &net));
    if (bias) {
        return AG_FAIL(r->err, UNSUPPORTED, "%s: attention_bias is true; known: false", r->where);
    }
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const bool full = ag_config_layer_type(r, l, types, (l + 1) % interval == 0) == 1;
        AG_TRY(ag_spec_set_layer(s, l, full ? &attention : &net, r->err));
    }
    return r->status;
}

/* Adds keys: the types of layers, their number without layers that predict further tokens, and the
 * size of value heads. */
static ag_status complete(const ag_gguf_reader *r, json_t *config) {
    const double more = json_number_value(ag_gguf_value(r, "nextn_predict_layers"));
    const double n = json_number_value(json_object_get(config, "num_hidden_layers")) - more;
    const double heads = json_number_value(json_object_get(config, "linear_num_value_heads"));
    const double width = json_number_value(ag_gguf_value(r, "ssm.inner_size"));
    const json_t *recurrent = ag_gguf_value(r, "attention.recurrent_layers");
    bool ok = json_object_set_new(config, tiled_key, json_true()) == 0 &&
              json_object_set_new(config, "num_hidden_layers", json_real(n)) == 0;
    if (heads > 0 && width > 0) {
        ok = ok && !json_object_set_new(config, "linear_value_head_dim", json_real(width / heads));
    }
    json_t *types = json_is_array(recurrent) ? json_array() : NULL;
    for (size_t l = 0; types && l < n && l < AG_MAX_LAYERS; l++) {
        const bool net = json_is_true(json_array_get(recurrent, l));
        const char *name = net ? "linear_attention" : "full_attention";
        ok = ok && json_array_append_new(types, json_string(name)) == 0;
    }
    if (types) ok = json_object_set_new(config, "layer_types", types) == 0 && ok;
    return ok ? AG_OK : AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

const ag_family ag_family_qwen3_5 = {
    .names = {{"Qwen3_5ForCausalLM", "qwen3_5_text"},
              {"Qwen3_5ForConditionalGeneration", "qwen3_5"}},
    .defaults = {.vocab_size = 248320,
                 .hidden_size = 4096,
                 .intermediate_size = 12288,
                 .n_layers = 32,
                 .n_heads = 16,
                 .n_kv_heads = 4,
                 .head_dim = 256,
                 .max_positions = 32768,
                 .rope_theta = 10000,
                 .rotary_share = 0.25,
                 .bos_id = -1,
                 .eos_id = -1},
    .norms_add_one = true,
    .gguf = {.architectures = {"qwen35"},
             .aliases = gguf_aliases,
             .keys = gguf_keys,
             .complete = complete},
    .describe = describe,
};

/* ---- with experts ---- */

static ag_status describe_moe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    kind.experts = (ag_expert_spec){
        .route = {.n_experts = 256, .n_used = 8, .scoring = AG_SCORING_SOFTMAX, .factor = 1},
        .width = 512,
        .shared_width = 512,
        .shared_gate = true};
    ag_config_size(r, "shared_expert_intermediate_size", 1 << 22, &kind.experts.shared_width);
    AG_TRY(ag_config_experts(r, s, &kind.experts));
    kind.experts.route.normalise = true;
    s->intermediate_size = kind.experts.width; /* no layer is dense */
    return describe(r, &kind, s);
}

const ag_family ag_family_qwen3_5_moe = {
    .names = {{"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"},
              {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"}},
    .defaults = {.vocab_size = 248320,
                 .hidden_size = 2048,
                 .intermediate_size = 512,
                 .n_layers = 40,
                 .n_heads = 16,
                 .n_kv_heads = 2,
                 .head_dim = 256,
                 .max_positions = 32768,
                 .rope_theta = 10000,
                 .rotary_share = 0.25,
                 .bos_id = -1,
                 .eos_id = -1},
    .norms_add_one = true,
    .gguf = {.architectures = {"qwen35moe"},
             .aliases = gguf_aliases,
             .keys = gguf_keys,
             .complete = complete},
    .describe = describe_moe,
};
