/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a model: all that its forward pass, its cache and its loading ask. A family
 * (families/) fills it in from a configuration; nobody else asks for the family. */
#ifndef AG_MODELS_SPEC_H
#define AG_MODELS_SPEC_H

#include "cache/layer_state.h"

#include <antigravity/model.h>
#include <antigravity/operations.h>

typedef enum ag_activation { AG_ACTIVATION_SILU, AG_ACTIVATION_GELU_TANH } ag_activation;

typedef enum ag_rope_type {
    AG_ROPE_DEFAULT,
    AG_ROPE_LINEAR,
    AG_ROPE_LLAMA3,
    AG_ROPE_YARN,
    AG_ROPE_LONGROPE,
    AG_ROPE_PROPORTIONAL, /* frequencies of a whole head, of which only the first are not 0 */
} ag_rope_type;

typedef struct ag_rope_scaling {
    ag_rope_type type;
    double factor;                            /* linear, llama3 and yarn */
    double low_freq_factor, high_freq_factor; /* llama3; low < high */
    double original_max_position_embeddings;  /* llama3, yarn and longrope */
    double beta_fast, beta_slow;              /* yarn; fast >= slow */
    bool round_to_pairs;                      /* yarn: its bounds are rounded to pairs */
} ag_rope_scaling;

enum { AG_MAX_ROPE_DIVISORS = 256 };

/* A table of rotary frequencies. */
typedef struct ag_rope_spec {
    double theta;
    ag_rope_scaling scaling;
    uint32_t n_turned;      /* proportional: of n_rotated, those whose frequencies are not 0 */
    uint32_t n_rotated;     /* values of a head that turn, from the first on; even */
    float attention_factor; /* of the values that turn; 0: none */
    /* Of each pair's frequency, where n_divisors, n_rotated / 2, is not 0: in sessions for texts up
     * to the original length of longrope, and in those for longer ones. */
    uint32_t n_divisors;
    float divisors[2][AG_MAX_ROPE_DIVISORS];
} ag_rope_spec;

/* What layers of one kind have in common. */
typedef struct ag_layer_spec {
    ag_mixer mixer;
    uint32_t conv_taps;    /* of a convolution: tokens that it sees, its own included */
    ag_delta_params delta; /* of a delta net */
    uint32_t ffn_dim;      /* 0: the model's intermediate_size */
    /* Of attention, as is all that follows up to the activation. */
    uint32_t n_heads, n_kv_heads, head_dim;
    bool shares_kv;  /* of the nearest layer before it that has its own, and the same window */
    bool v_norm;     /* RMSNorm without weight of every head of v */
    bool out_gate;   /* what comes out times sigmoid of a product of its own */
    uint32_t rope;   /* which of the model's tables turns queries and keys, or AG_NO_ROPE */
    uint32_t window; /* newest positions that a query sees, its own included; 0: all */
    float scale;     /* of q . k */
    float softcap;   /* of the scaled scores; 0: none */
    ag_activation activation;
    bool qkv_bias, out_bias, ffn_bias;
    bool qk_norm;      /* RMSNorm over every head of q and of k, before they turn */
    bool full_qk_norm; /* the same over all heads together */
    bool post_norms;   /* RMSNorm of a branch before it is added to the stream */
    bool no_pre_norms; /* branches read the stream as it is */
} ag_layer_spec;

enum { AG_MAX_LAYERS = 1024, AG_MAX_ROPES = 2, AG_NO_ROPE = AG_MAX_ROPES };

struct ag_family;

/* Every value is in range: sizes > 0, n_heads a multiple of n_kv_heads, head_dim even,
 * n_heads * head_dim at most 2^20, reals finite and positive. */
typedef struct ag_model_spec {
    const struct ag_family *family; /* what its tensors are called */
    const char *architecture;       /* "LlamaForCausalLM"; static */
    uint8_t naming;                 /* where tensor names begin: ag_tensor_naming() */
    uint32_t vocab_size, hidden_size, intermediate_size;
    uint32_t max_positions;
    uint32_t n_layers, n_kinds, n_ropes;
    ag_layer_spec kinds[AG_MAX_LAYER_KINDS];
    uint8_t kind_of[AG_MAX_LAYERS]; /* [n_layers] index of each layer's kind */
    ag_rope_spec ropes[AG_MAX_ROPES];
    float norm_eps;        /* as configured */
    float eps_factor;      /* of it, where the stream is not what was configured; 0: none */
    float embedding_scale; /* of rows of the embedding; 1: none */
    float logit_factor;    /* of logits, which the last norm's weight takes in; 0: none */
    float logit_softcap;   /* 0: none */
    /* At position p queries are multiplied by 1 + query_beta log(1 + floor(p / query_period)). */
    float query_beta; /* 0: they are not */
    uint32_t query_period;
    /* Values of a token for each layer by itself, 0: none, in a table of so many rows. */
    uint32_t layer_input, n_layer_inputs;
    bool out_scale;           /* the stream behind a layer is multiplied by a number */
    bool tie_word_embeddings; /* as configured; whether lm_head exists is the weights' business */
    int32_t bos_id;           /* -1: none */
    int32_t eos_ids[AG_MAX_EOS]; /* of both files, without repetition; all end a text */
    size_t n_eos;
} ag_model_spec;

static inline const ag_layer_spec *ag_spec_layer(const ag_model_spec *s, uint32_t layer) {
    return &s->kinds[s->kind_of[layer]];
}

static inline uint32_t ag_spec_ffn_dim(const ag_model_spec *s, const ag_layer_spec *kind) {
    return kind->ffn_dim ? kind->ffn_dim : s->intermediate_size;
}
/* Channels of a layer's convolution; 0: there is none. */
uint32_t ag_spec_channels(const ag_model_spec *s, const ag_layer_spec *kind);
/* What the layer keeps of a sequence besides keys and values; false: nothing. */
bool ag_spec_state(const ag_model_spec *s, const ag_layer_spec *kind, ag_state_layer *out);
/* The layer whose keys and values that layer sees: itself, or the one that it shares them with.
 * UINT32_MAX: none, or there is no such layer. */
uint32_t ag_spec_kv_source(const ag_model_spec *s, uint32_t layer);

/* The epsilon that norms compute with. */
static inline float ag_spec_eps(const ag_model_spec *s) {
    return s->eps_factor != 0 ? s->norm_eps * s->eps_factor : s->norm_eps;
}

/* Makes layer number `layer` one of that kind; AG_LIMIT if there are too many kinds. */
ag_status ag_spec_set_layer(ag_model_spec *s, uint32_t layer, const ag_layer_spec *kind,
                            ag_error *err);

/* The same for all layers. */
ag_status ag_spec_set_all(ag_model_spec *s, const ag_layer_spec *kind, ag_error *err);

/* A model without anything that only some families have, its sizes still 0: one kind of layer,
 * whose whole heads turn, without scaling. */
ag_model_spec ag_spec_plain(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim);

/* Whether a session for so many positions turns by the divisors for long texts. */
bool ag_spec_is_long(const ag_model_spec *s, uint64_t n_positions);

/* "none", "linear", "llama3", "yarn" or "longrope": static. */
const char *ag_rope_type_name(ag_rope_type type);

#endif
