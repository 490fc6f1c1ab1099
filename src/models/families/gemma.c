/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 2 and 3. Norms before and after each branch multiply by 1 + their weight. Embeddings are
 * scaled by sqrt(hidden_size). The activation is GELU. Some layers have a window. Gemma 2 caps
 * scores and logits. Gemma 3 norms queries and keys, and has another rotary table for layers with a
 * window. */
#include "core/fail.h"
#include "models/families/family.h"

#include <math.h>

static const ag_tensor_alias aliases[] = {
    {AG_LT_POST_ATTENTION_NORM, "post_attention_layernorm.weight"},
    {AG_LT_FFN_NORM, "pre_feedforward_layernorm.weight"},
    {AG_LT_POST_FFN_NORM, "post_feedforward_layernorm.weight"},
    {.suffix = NULL},
};

/* Returns the kind of layers that both have in common. */
static ag_layer_spec block(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    double scalar = 256;
    bool bias = false;
    ag_config_real(r, "query_pre_attn_scalar", 1e-3, 1e6, &scalar);
    ag_config_bool(r, "attention_bias", &bias);
    kind.scale = (float)pow(scalar, -0.5);
    kind.qkv_bias = kind.out_bias = bias;
    kind.post_norms = true;
    s->embedding_scale = sqrtf((float)s->hidden_size);
    return kind;
}

static ag_status set_layers(ag_config_reader *r, const ag_layer_spec *kind, uint32_t window_rope,
                            uint32_t pattern, ag_model_spec *s) {
    uint32_t window = 4096;
    ag_config_window(r, "sliding_window", &window);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        ag_layer_spec layer = *kind;
        if (ag_config_has_window(r, l, (l + 1) % pattern != 0)) {
            layer.window = window;
            layer.rope = window_rope;
        }
        AG_TRY(ag_spec_set_layer(s, l, &layer, r->err));
    }
    return AG_OK;
}

static ag_status describe_2(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = block(r, plain, s);
    /* null means no cap */
    double scores = json_object_get(r->object, "attn_logit_softcapping") ? 0 : 50;
    double logits = json_object_get(r->object, "final_logit_softcapping") ? 0 : 30;
    ag_config_real(r, "attn_logit_softcapping", 1e-3, 1e6, &scores);
    ag_config_real(r, "final_logit_softcapping", 1e-3, 1e6, &logits);
    kind.softcap = (float)scores;
    s->logit_softcap = (float)logits;
    return set_layers(r, &kind, 0, 2, s);
}

/* Reads both rotary tables. Before transformers 5 they were at the top level. */
static ag_status read_ropes(ag_config_reader *r, uint32_t head_dim, ag_model_spec *s) {
    bool found;
    s->n_ropes = 2;
    s->ropes[1] = (ag_rope_spec){.theta = 10000, .n_rotated = s->ropes[0].n_rotated};
    ag_config_real(r, "rope_local_base_freq", 1, 1e30, &s->ropes[1].theta);
    AG_TRY(
        ag_config_rope_of(r, "full_attention", s->max_positions, head_dim, &s->ropes[0], &found));
    return ag_config_rope_of(r, "sliding_attention", s->max_positions, head_dim, &s->ropes[1],
                             &found);
}

/* Rejects embedding models, whose attention also sees later tokens. */
static ag_status reject_bidirectional(ag_config_reader *r) {
    static const char key[] = "use_bidirectional_attention";
    bool both = false;
    ag_config_bool(r, key, &both);
    if (!both) return r->status;
    return AG_FAIL(r->err, UNSUPPORTED, "%s: %s is true; only attention to earlier tokens is known",
                   r->where, key);
}

static ag_status describe_3(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = block(r, plain, s);
    uint32_t pattern = 6;
    double softcap = 0; /* cap of logits; Gemma 3 ignores the cap of scores */
    ag_config_real(r, "final_logit_softcapping", 1e-3, 1e6, &softcap);
    s->logit_softcap = (float)softcap;
    kind.qk_norm = true;
    AG_TRY(reject_bidirectional(r));
    AG_TRY(read_ropes(r, plain->head_dim, s));
    if (!ag_config_size(r, "sliding_window_pattern", AG_MAX_LAYERS, &pattern)) {
        ag_config_size(r, "_sliding_window_pattern", AG_MAX_LAYERS, &pattern);
    }
    return set_layers(r, &kind, 1, pattern, s);
}

/* GGUF files have no key for the scale of scores. It follows from head_dim, but in the largest
 * models, with this number of layers, from hidden_size / heads. */
enum { LARGEST_2 = 46, LARGEST_3 = 62 };

static double scalar_of(double layers, double largest, double hidden, double heads, double width) {
    return layers == largest && heads > 0 ? hidden / heads : width;
}

static ag_status complete(const ag_gguf_reader *r, json_t *config, double largest) {
    static const char *const keys[] = {"num_hidden_layers", "hidden_size", "num_attention_heads",
                                       "head_dim"};
    double v[4];
    for (int i = 0; i < 4; i++) v[i] = json_number_value(json_object_get(config, keys[i]));
    const double width = scalar_of(v[0], largest, v[1], v[2], v[3]);
    if (width <= 0) return AG_OK;
    if (json_object_set_new(config, "query_pre_attn_scalar", json_real(width)) == 0) return AG_OK;
    return AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
}

static ag_status complete_2(const ag_gguf_reader *r, json_t *config) {
    return complete(r, config, LARGEST_2);
}

static float scale_of(const ag_model_spec *s, double largest) {
    const ag_layer_spec *kind = &s->kinds[0];
    return (float)pow(
        scalar_of(s->n_layers, largest, s->hidden_size, kind->n_heads, kind->head_dim), -0.5);
}

static float scale_2(const ag_model_spec *s) { return scale_of(s, LARGEST_2); }
static float scale_3(const ag_model_spec *s) { return scale_of(s, LARGEST_3); }

static ag_status complete_3(const ag_gguf_reader *r, json_t *config) {
    return complete(r, config, LARGEST_3);
}

const ag_family ag_family_gemma2 = {
    .names = {{"Gemma2ForCausalLM", "gemma2"}},
    .defaults = {.vocab_size = 256000,
                 .hidden_size = 2304,
                 .intermediate_size = 9216,
                 .n_layers = 26,
                 .n_heads = 8,
                 .n_kv_heads = 4,
                 .head_dim = 256,
                 .max_positions = 8192,
                 .rope_theta = 10000,
                 .bos_id = 2,
                 .eos_id = 1,
                 .tie_word_embeddings = true},
    .activation = AG_ACTIVATION_GELU_TANH,
    .aliases = aliases,
    .norms_add_one = true,
    .gguf = {.architectures = {"gemma2"}, .scale = scale_2, .complete = complete_2},
    .describe = describe_2,
};

const ag_family ag_family_gemma3 = {
    .names = {{"Gemma3ForCausalLM", "gemma3_text"}, {"Gemma3ForConditionalGeneration", "gemma3"}},
    .defaults = {.vocab_size = 262208,
                 .hidden_size = 2304,
                 .intermediate_size = 9216,
                 .n_layers = 26,
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
    .norms_add_one = true,
    .gguf = {.architectures = {"gemma3"}, .scale = scale_3, .complete = complete_3},
    .describe = describe_3,
};
