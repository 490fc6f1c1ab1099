/* SPDX-License-Identifier: Apache-2.0 */
/* LFM2 and LFM2.5. Most layers are short convolutions, the others attention with norms of query and
 * key heads. LFM2 MoE has experts in all layers but the first. Tensors have other names. */
#include "core/fail.h"
#include "models/families/family.h"

#include <stdio.h>

static const ag_tensor_alias aliases[] = {
    {AG_LT_ATTENTION_NORM, "operator_norm.weight"},
    {AG_LT_FFN_NORM, "ffn_norm.weight"},
    {AG_LT_WO, "self_attn.out_proj.weight"},
    {AG_LT_Q_NORM, "self_attn.q_layernorm.weight"},
    {AG_LT_K_NORM, "self_attn.k_layernorm.weight"},
    {AG_LT_GATE, "feed_forward.w1.weight"},
    {AG_LT_UP, "feed_forward.w3.weight"},
    {AG_LT_DOWN, "feed_forward.w2.weight"},
    {AG_LT_CONV_B, "conv.in_proj.weight"},
    {AG_LT_CONV_C, "conv.in_proj.weight"},
    {AG_LT_CONV_X, "conv.in_proj.weight"},
    {AG_LT_ROUTER, "feed_forward.gate.weight"},
    {.suffix = NULL},
};

static const ag_tensor_alias gguf_aliases[] = {
    {AG_LT_CONV_B, "shortconv.in_proj.weight"},
    {AG_LT_CONV_C, "shortconv.in_proj.weight"},
    {AG_LT_CONV_X, "shortconv.in_proj.weight"},
    {.suffix = NULL},
};
static const ag_gguf_key gguf_keys[] = {{"shortconv.l_cache", "conv_L_cache", false},
                                        {NULL, NULL, false}};

/* Sets intermediate_size as the class in transformers: 2/3, times a factor, rounded up. */
static void adjust_ffn(ag_config_reader *r, ag_model_spec *s) {
    bool adjust = true;
    double factor = 1;
    uint32_t unit = 256;
    ag_config_size(r, "block_ff_dim", 1 << 22, &s->intermediate_size);
    ag_config_bool(r, "block_auto_adjust_ff_dim", &adjust);
    ag_config_real(r, "block_ffn_dim_multiplier", 1e-3, 64, &factor);
    ag_config_size(r, "block_multiple_of", 1 << 20, &unit);
    if (!adjust) return;
    const double size = factor * (double)(2 * (uint64_t)s->intermediate_size / 3);
    s->intermediate_size = ((uint32_t)size + unit - 1) / unit * unit;
}

/* Returns whether a layer has attention: by `layer_types`, or the older list of such layers. */
static bool is_attention(ag_config_reader *r, const json_t *listed, uint32_t layer) {
    static const char *const known[] = {"conv", "full_attention", NULL};
    bool found = !json_is_array(listed);
    for (size_t i = 0; i < json_array_size(listed); i++) {
        const json_t *v = json_array_get(listed, i);
        found = found || (json_is_integer(v) && json_integer_value(v) == layer);
    }
    return ag_config_layer_type(r, layer, known, found) == 1;
}

/* Sets the layers, with experts from layer n_dense on. */
static ag_status set_layers(ag_config_reader *r, const ag_layer_spec *plain,
                            const ag_expert_spec *experts, uint32_t n_dense, ag_model_spec *s) {
    ag_layer_spec attention = *plain;
    double eps = (double)s->norm_eps;
    bool bias = false;
    uint32_t taps = 3;
    ag_config_real(r, "norm_eps", 1e-30, 1, &eps);
    ag_config_bool(r, "conv_bias", &bias);
    ag_config_size(r, "conv_L_cache", AG_CONV_TAPS_MAX, &taps);
    ag_config_bool(r, "tie_embedding", &s->tie_word_embeddings);
    s->norm_eps = (float)eps;
    AG_TRY(r->status);
    if (bias || taps < 2) {
        return AG_FAIL(r->err, UNSUPPORTED,
                       "%s: conv_bias is %s, conv_L_cache is %u; known: false, 2 to %d", r->where,
                       bias ? "true" : "false", taps, AG_CONV_TAPS_MAX);
    }
    attention.qk_norm = true;
    const ag_layer_spec conv = {
        .mixer = AG_MIXER_SHORT_CONV, .conv_taps = taps, .activation = plain->activation};
    const json_t *listed = ag_config_value(r, "full_attn_idxs");
    for (uint32_t l = 0; l < s->n_layers; l++) {
        ag_layer_spec layer = is_attention(r, listed, l) ? attention : conv;
        if (l >= n_dense) layer.experts = *experts;
        AG_TRY(ag_spec_set_layer(s, l, &layer, r->err));
    }
    return r->status;
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    static const ag_expert_spec none;
    adjust_ffn(r, s);
    return set_layers(r, plain, &none, s->n_layers, s);
}

/* Adds keys: layers with 0 KV heads are convolutions, and the feed-forward size is final. */
static ag_status complete(const ag_gguf_reader *r, json_t *config) {
    const double n = json_number_value(json_object_get(config, "num_hidden_layers"));
    json_t *types = json_array();
    bool ok = json_object_set_new(config, "block_auto_adjust_ff_dim", json_false()) == 0;
    for (size_t l = 0; l < n && l < AG_MAX_LAYERS; l++) {
        const bool conv = json_number_value(ag_gguf_of_layer(r, "attention.head_count_kv", l)) == 0;
        ok = ok && !json_array_append_new(types, json_string(conv ? "conv" : "full_attention"));
    }
    ok = json_object_set_new(config, "layer_types", types) == 0 && ok;
    return ok ? AG_OK : AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

const ag_family ag_family_lfm2 = {
    .names = {{"Lfm2ForCausalLM", "lfm2"}},
    .defaults = {.vocab_size = 65536,
                 .hidden_size = 2560,
                 .intermediate_size = 12288,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 8,
                 .max_positions = 128000,
                 .rope_theta = 1e6,
                 .norm_eps = 1e-5,
                 .bos_id = 1,
                 .eos_id = 2,
                 .tie_word_embeddings = true},
    .aliases = aliases,
    .gguf = {.architectures = {"lfm2"},
             .aliases = gguf_aliases,
             .keys = gguf_keys,
             .complete = complete},
    .describe = describe,
};

/* ---- with experts ---- */

static ag_status describe_moe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    double n_dense = 2, factor = 1;
    ag_expert_spec experts = {.route = {.n_experts = 32,
                                        .n_used = 4,
                                        .scoring = AG_SCORING_SIGMOID,
                                        .normalise = true,
                                        .sum_eps = 1e-6f},
                              .width = 1792,
                              .choice_bias = true};
    ag_config_real(r, "num_dense_layers", 0, AG_MAX_LAYERS, &n_dense);
    ag_config_real(r, "routed_scaling_factor", 1e-6, 1e6, &factor);
    ag_config_bool(r, "use_expert_bias", &experts.choice_bias);
    experts.route.factor = (float)factor;
    AG_TRY(ag_config_experts(r, s, &experts));
    return set_layers(r, plain, &experts, (uint32_t)n_dense, s);
}

/* Adds keys: whether the choice has a bias, and the number of dense layers. */
static ag_status complete_moe(const ag_gguf_reader *r, json_t *config) {
    const double n = json_number_value(json_object_get(config, "num_dense_layers"));
    char name[48];
    snprintf(name, sizeof name, "blk.%.0f.exp_probs_b.bias", n);
    AG_TRY(complete(r, config));
    bool ok = !json_object_set_new(config, "use_expert_bias", json_boolean(ag_gguf_has(r, name)));
    ok = ok && !json_object_set_new(config, "num_dense_layers", json_real(n));
    return ok ? AG_OK : AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

const ag_family ag_family_lfm2_moe = {
    .names = {{"Lfm2MoeForCausalLM", "lfm2_moe"}},
    .defaults = {.vocab_size = 65536,
                 .hidden_size = 2048,
                 .intermediate_size = 7168,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 8,
                 .max_positions = 128000,
                 .rope_theta = 1e6,
                 .norm_eps = 1e-5,
                 .bos_id = 1,
                 .eos_id = 2,
                 .tie_word_embeddings = true},
    .aliases = aliases,
    .gguf = {.architectures = {"lfm2moe"},
             .aliases = gguf_aliases,
             .keys = gguf_keys,
             .complete = complete_moe},
    .describe = describe_moe,
};
