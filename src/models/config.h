/* SPDX-License-Identifier: Apache-2.0 */
/* config.json and generation_config.json of the Llama family: what shape a model has.
 * Keys, defaults and their precedence are those of Hugging Face transformers (LlamaConfig,
 * MistralConfig, modeling_rope_utils.py), in the spelling of version 4 and of version 5. */
#ifndef AG_MODELS_CONFIG_H
#define AG_MODELS_CONFIG_H

#include <antigravity/model.h>

typedef enum ag_rope_type { AG_ROPE_DEFAULT, AG_ROPE_LINEAR, AG_ROPE_LLAMA3 } ag_rope_type;

typedef struct ag_rope_scaling {
    ag_rope_type type;
    double factor;                            /* linear and llama3 */
    double low_freq_factor, high_freq_factor; /* llama3; low < high */
    double original_max_position_embeddings;  /* llama3 */
} ag_rope_scaling;

/* Every value is in range: sizes > 0, n_heads a multiple of n_kv_heads, head_dim even,
 * n_heads * head_dim at most 2^20, reals finite and positive. */
typedef struct ag_llama_config {
    const char *architecture; /* "LlamaForCausalLM"; static */
    uint32_t vocab_size, hidden_size, intermediate_size;
    uint32_t n_layers, n_heads, n_kv_heads, head_dim;
    uint32_t max_position_embeddings; /* at most sliding_window, if there is one */
    uint32_t sliding_window;          /* as in the file; 0: none */
    float rms_norm_eps;
    double rope_theta;
    ag_rope_scaling rope_scaling;
    bool tie_word_embeddings; /* as in the file; whether lm_head exists is the weights' business */
    bool attention_bias;      /* q, k, v and o have biases */
    bool mlp_bias;            /* gate, up and down have */
    int32_t bos_id;           /* -1: none */
    int32_t eos_ids[AG_MAX_EOS]; /* of both files, without repetition; all end a text */
    size_t n_eos;
} ag_llama_config;

typedef struct ag_config_text {
    const char *text;
    size_t n;
    const char *name; /* begins the messages */
} ag_config_text;

/* generation may be NULL. AG_FORMAT names file and key; AG_UNSUPPORTED for an architecture, rope
 * type, activation or weight quantisation this library does not have, with those it has.
 * A sliding window shorter than the trained context caps max_position_embeddings: up to there a
 * windowed and a full attention are the same. Ids outside the vocabulary can never occur and are
 * left out. *out is written only on success. */
ag_status ag_llama_config_parse(const ag_config_text *config, const ag_config_text *generation,
                                ag_llama_config *out, ag_error *err);

/* DIR/config.json and, if it exists, DIR/generation_config.json. */
ag_status ag_llama_config_load(const char *dir, ag_llama_config *out, ag_error *err);

/* "none", "linear" or "llama3": static. */
const char *ag_rope_type_name(ag_rope_type type);

#endif
