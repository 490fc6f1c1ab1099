/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 4. Norms before and after each branch, of query and key heads, and of values
 * without weight. Layers without a window have wider heads. The last layers use the keys and values
 * of earlier ones. Each layer has inputs of its own, and multiplies the stream by a factor. */
#include "core/fail.h"
#include "models/families/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const ag_tensor_alias aliases[] = {
    {AG_LT_POST_ATTENTION_NORM, "post_attention_layernorm.weight"},
    {AG_LT_FFN_NORM, "pre_feedforward_layernorm.weight"},
    {AG_LT_POST_FFN_NORM, "post_feedforward_layernorm.weight"},
    {AG_LT_ROUTER, "router.proj.weight"},
    {.suffix = NULL},
};

static const ag_gguf_key gguf_keys[] = {
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input", false},
    {"attention.key_length_swa", "window_head_dim", false},
    {"attention.value_length_swa", "window_head_dim", false},
    {"rope.dimension_count_swa", "window_head_dim", false},
    {"attention.shared_kv_layers", "num_kv_shared_layers", false},
    {NULL, NULL, false}};

/* Rejects features of larger models, and embedding models. */
static ag_status reject_unsupported(ag_config_reader *r) {
    static const char *const keys[] = {"attention_bias"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        bool on = false;
        ag_config_bool(r, keys[i], &on);
        if (on) {
            return AG_FAIL(r->err, UNSUPPORTED, "%s: %s is true; known: false", r->where, keys[i]);
        }
    }
    /* "vision": for images only */
    const json_t *both = ag_config_value(r, "use_bidirectional_attention");
    const char *which = json_string_value(both);
    if (json_is_true(both) || (which && strcmp(which, "vision") != 0)) {
        return AG_FAIL(r->err, UNSUPPORTED,
                       "%s: use_bidirectional_attention is \"%.40s\"; only attention to earlier "
                       "tokens is known",
                       r->where, which ? which : "true");
    }
    return r->status;
}

/* Reads the heads of a layer without a window: its entry in per_layer_config, else global_head_dim
 * and num_global_key_value_heads. */
static ag_status read_global(ag_config_reader *r, uint32_t layer, ag_layer_spec *kind) {
    const json_t *each, *own = NULL;
    char name[16];
    snprintf(name, sizeof name, "%u", layer);
    AG_TRY(ag_config_object(r, "per_layer_config", &each));
    const ag_config_reader layers = {each, r->where, r->err, AG_OK};
    if (each) AG_TRY(ag_config_object(&layers, name, &own));
    if (own) {
        ag_config_reader inner = {own, r->where, r->err, AG_OK};
        ag_config_size(&inner, "head_dim", 1 << 14, &kind->head_dim);
        ag_config_size(&inner, "num_key_value_heads", 1 << 14, &kind->n_kv_heads);
        AG_TRY(inner.status);
    } else if (!ag_config_value(r, "per_layer_config")) { /* {}: no layer differs */
        kind->head_dim = 512;
        ag_config_size(r, "global_head_dim", 1 << 14, &kind->head_dim);
        if (kind->v_from_k)
            ag_config_size(r, "num_global_key_value_heads", 1 << 14, &kind->n_kv_heads);
    }
    AG_TRY(r->status);
    if (kind->head_dim % 2 == 0 && kind->n_heads % kind->n_kv_heads == 0 &&
        kind->n_heads <= (1 << 20) / kind->head_dim) {
        return AG_OK;
    }
    return AG_FAIL(r->err, FORMAT, "%s: layer %u has %u heads of %u, %u of keys and values",
                   r->where, layer, kind->n_heads, kind->head_dim, kind->n_kv_heads);
}

static ag_status read_ropes(ag_config_reader *r, uint32_t local_dim, uint32_t global_dim,
                            ag_model_spec *s) {
    bool found;
    s->n_ropes = 2;
    s->ropes[0] = (ag_rope_spec){.theta = s->ropes[0].theta,
                                 .scaling = {.type = AG_ROPE_PROPORTIONAL, .factor = 1},
                                 .n_turned = global_dim / 8 * 2,
                                 .n_rotated = global_dim};
    s->ropes[1] = (ag_rope_spec){.theta = 10000, .n_rotated = local_dim};
    ag_config_real(r, "rope_local_base_freq", 1, 1e30, &s->ropes[1].theta);
    AG_TRY(
        ag_config_rope_of(r, "full_attention", s->max_positions, global_dim, &s->ropes[0], &found));
    return ag_config_rope_of(r, "sliding_attention", s->max_positions, local_dim, &s->ropes[1],
                             &found);
}

static ag_status read_inputs(ag_config_reader *r, ag_model_spec *s) {
    double n = 256; /* 0 and null: none */
    s->n_layer_inputs = s->vocab_size;
    if (json_is_null(json_object_get(r->object, "hidden_size_per_layer_input"))) n = 0;
    ag_config_real(r, "hidden_size_per_layer_input", 0, 1 << 16, &n);
    ag_config_size(r, "vocab_size_per_layer_input", 1 << 24, &s->n_layer_inputs);
    s->layer_input = (uint32_t)n;
    if (!s->layer_input) s->n_layer_inputs = 0;
    return r->status;
}

/* Sets *first to the first layer that uses keys and values of another. */
static ag_status read_shared(ag_config_reader *r, const ag_model_spec *s, uint32_t *first) {
    double n = 0;
    ag_config_real(r, "num_kv_shared_layers", 0, AG_MAX_LAYERS, &n);
    AG_TRY(r->status);
    *first = s->n_layers - (n < s->n_layers ? (uint32_t)n : s->n_layers);
    return AG_OK;
}

static ag_status set_layers(ag_config_reader *r, const ag_layer_spec *local, uint32_t window,
                            uint32_t first_shared, bool double_wide, bool k_is_v,
                            ag_model_spec *s) {
    uint32_t global_dim = 0;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        ag_layer_spec kind = *local;
        /* the last layer never has a window */
        if (ag_config_has_window(r, l, (l + 1) % 6 != 0) && l + 1 < s->n_layers) {
            kind.window = window;
            kind.rope = 1;
        } else {
            kind.v_from_k = k_is_v;
            AG_TRY(read_global(r, l, &kind));
            if (!global_dim) AG_TRY(read_ropes(r, local->head_dim, kind.head_dim, s));
            global_dim = kind.head_dim;
        }
        kind.shares_kv = l >= first_shared;
        if (kind.shares_kv && double_wide) kind.ffn_dim = 2 * s->intermediate_size;
        AG_TRY(ag_spec_set_layer(s, l, &kind, r->err));
        if (ag_spec_kv_source(s, l) == UINT32_MAX) {
            return AG_FAIL(r->err, FORMAT,
                           "%s: no layer before %u has keys and values of its type to share",
                           r->where, l);
        }
        if (!kind.window && kind.head_dim != s->ropes[0].n_rotated) {
            return AG_FAIL(r->err, UNSUPPORTED,
                           "%s: unsupported head sizes: full-attention layers have %u, their rope "
                           "has %u; they must be equal",
                           r->where, kind.head_dim, s->ropes[0].n_rotated);
        }
    }
    return global_dim ? AG_OK : read_ropes(r, local->head_dim, local->head_dim, s);
}

/* Reads the experts of a model that has them beside its dense part. */
static ag_status read_experts(ag_config_reader *r, const ag_model_spec *s, ag_expert_spec *x) {
    bool has_experts = false;
    ag_config_bool(r, "enable_moe_block", &has_experts);
    if (!has_experts) return r->status;
    *x = (ag_expert_spec){.route = {.scoring = AG_SCORING_SOFTMAX, .normalise = true, .factor = 1},
                          .beside_dense = true};
    ag_config_size(r, "top_k_experts", AG_EXPERTS_MAX, &x->route.n_used);
    AG_TRY(ag_config_experts(r, s, x));
    x->route.normalise = true;
    if (x->route.n_used) return AG_OK;
    return AG_FAIL(r->err, FORMAT, "%s: enable_moe_block needs num_experts and top_k_experts",
                   r->where);
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    double softcap = 0;
    bool double_wide = false, k_is_v = false;
    uint32_t window = 512, first_shared;
    kind.scale = 1;
    kind.qk_norm = kind.v_norm = kind.post_norms = true;
    s->embedding_scale = sqrtf((float)s->hidden_size);
    s->out_scale = true;
    AG_TRY(reject_unsupported(r));
    AG_TRY(read_experts(r, s, &kind.experts));
    ag_config_bool(r, "attention_k_eq_v", &k_is_v);
    ag_config_real(r, "final_logit_softcapping", 1e-3, 1e6, &softcap);
    s->logit_softcap = (float)softcap;
    ag_config_bool(r, "use_double_wide_mlp", &double_wide);
    ag_config_window(r, "sliding_window", &window);
    AG_TRY(read_inputs(r, s));
    AG_TRY(read_shared(r, s, &first_shared));
    AG_TRY(set_layers(r, &kind, window, first_shared, double_wide, k_is_v, s));
    return r->status;
}

/* Returns the scale of scores: GGUF files have no key for it. */
static float scale_of_readers(const ag_model_spec *s) {
    (void)s;
    return 1;
}

static bool put_number(json_t *config, const char *key, const json_t *v) {
    return !json_is_number(v) ||
           json_object_set_new(config, key, json_real(json_number_value(v))) == 0;
}

/* Sets per_layer_config from keys with a value for each layer. */
static bool put_layers(const ag_gguf_reader *r, json_t *config) {
    const json_t *types = json_object_get(config, "layer_types");
    json_t *each = json_object();
    bool ok = true;
    for (size_t l = 0; l < json_array_size(types); l++) {
        const char *type = json_string_value(json_array_get(types, l));
        const json_t *heads = ag_gguf_of_layer(r, "attention.head_count_kv", l);
        char name[24];
        snprintf(name, sizeof name, "%zu", l);
        if (!type || strcmp(type, "full_attention") != 0) {
            ok = ok && put_number(config, "num_key_value_heads", heads);
            continue;
        }
        json_t *own = json_object();
        ok = ok && put_number(own, "head_dim", ag_gguf_value(r, "attention.key_length")) &&
             put_number(own, "num_key_value_heads", heads);
        ok = json_object_set_new(each, name, own) == 0 && ok;
    }
    return json_object_set_new(config, "per_layer_config", each) == 0 && ok;
}

/* Sets the keys of experts, and whether layers without a window lack values: tensors tell. */
static bool put_experts(const ag_gguf_reader *r, json_t *config) {
    const json_t *types = json_object_get(config, "layer_types");
    bool ok = true;
    for (size_t l = 0; l < json_array_size(types); l++) {
        const char *type = json_string_value(json_array_get(types, l));
        char name[40];
        if (!type || strcmp(type, "full_attention") != 0) continue;
        snprintf(name, sizeof name, "blk.%zu.attn_v.weight", l);
        ok = !json_object_set_new(config, "attention_k_eq_v", json_boolean(!ag_gguf_has(r, name)));
        break;
    }
    return !json_object_set_new(config, "enable_moe_block",
                                json_boolean(ag_gguf_has(r, "blk.0.ffn_gate_inp.weight"))) &&
           ok;
}

/* Adds keys. In GGUF files keys without the suffix _swa are for layers without a window, and the
 * tensor rope_freqs has the frequencies that are 0. */
static ag_status complete(const ag_gguf_reader *r, json_t *config) {
    const double share = ag_gguf_has(r, "rope_freqs.weight") ? 1 : 0.25;
    const double n = json_number_value(json_object_get(config, "num_hidden_layers"));
    const json_t *first = ag_gguf_of_layer(r, "feed_forward_length", 0);
    const json_t *last = ag_gguf_of_layer(r, "feed_forward_length", n > 0 ? (size_t)n - 1 : 0);
    bool ok = put_number(config, "head_dim", ag_gguf_value(r, "attention.key_length_swa")) &&
              put_number(config, "intermediate_size", first) && put_layers(r, config);
    if (!json_object_get(config, "hidden_size_per_layer_input"))
        ok = ok && !json_object_set_new(config, "hidden_size_per_layer_input", json_integer(0));
    ok = ok && put_experts(r, config);
    const bool wide = json_number_value(last) > json_number_value(first);
    ok = ok && !json_object_set_new(config, "use_double_wide_mlp", json_boolean(wide)) &&
         !json_object_set_new(config, "rope_parameters",
                              json_pack("{s:{s:s, s:f}}", "full_attention", "rope_type",
                                        "proportional", "partial_rotary_factor", share));
    return ok ? AG_OK : AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

const ag_family ag_family_gemma4 = {
    .names = {{"Gemma4ForCausalLM", "gemma4_text"}, {"Gemma4ForConditionalGeneration", "gemma4"}},
    .defaults = {.vocab_size = 262144,
                 .hidden_size = 2304,
                 .intermediate_size = 9216,
                 .n_layers = 30,
                 .n_heads = 8,
                 .n_kv_heads = 4,
                 .head_dim = 256,
                 .max_positions = 131072,
                 .rope_theta = 1e6,
                 .bos_id = 2,
                 .eos_id = 1,
                 .tie_word_embeddings = true},
    .activation = AG_ACTIVATION_GELU_TANH,
    .aliases = aliases,
    .gguf = {.architectures = {"gemma4"},
             .fused_experts = true,
             .keys = gguf_keys,
             .scale = scale_of_readers,
             .complete = complete},
    .describe = describe,
};
