/* SPDX-License-Identifier: Apache-2.0 */
/* Description of a model: everything that loading, its cache and its forward pass need. A family
 * (families/) fills it in from a configuration. Code outside of models/ does not depend on the
 * family. */
#ifndef AG_MODELS_SPEC_H
#define AG_MODELS_SPEC_H

#include "cache/layer_state.h"
#include "core/experts.h"

#include <antigravity/model.h>
#include <antigravity/operations.h>

typedef enum ag_activation {
    AG_ACTIVATION_SILU,
    AG_ACTIVATION_GELU_TANH,
    AG_ACTIVATION_SWIGLU_CLAMPED, /* for experts, with ag_expert_spec.gate_limit */
} ag_activation;

typedef enum ag_rope_type {
    AG_ROPE_DEFAULT,
    AG_ROPE_LINEAR,
    AG_ROPE_LLAMA3,
    AG_ROPE_YARN,
    AG_ROPE_LONGROPE,
    AG_ROPE_PROPORTIONAL, /* frequencies of a full head, of which only the first are not 0 */
} ag_rope_type;

typedef struct ag_rope_scaling {
    ag_rope_type type;
    double factor;                            /* linear, llama3 and yarn */
    double low_freq_factor, high_freq_factor; /* llama3; low < high */
    double original_max_position_embeddings;  /* llama3, yarn and longrope */
    double beta_fast, beta_slow;              /* yarn; fast >= slow */
    bool round_to_pairs;                      /* yarn: rounds the bounds to pairs */
    double ext_factor;                        /* yarn: share of unscaled frequencies; 0: 1 */
} ag_rope_scaling;

enum { AG_MAX_ROPE_DIVISORS = 256 };

/* A table of rotary frequencies. */
typedef struct ag_rope_spec {
    double theta;
    ag_rope_scaling scaling;
    uint32_t n_turned;      /* proportional: values of n_rotated whose frequencies are not 0 */
    uint32_t n_rotated;     /* the first n values of a head rotate; even */
    float attention_factor; /* factor of the rotated values; 0: none */
    /* longrope: divisors of each pair's frequency, for texts up to the original length and for
     * longer texts. n_divisors: n_rotated / 2, or 0 for none. */
    uint32_t n_divisors;
    float divisors[2][AG_MAX_ROPE_DIVISORS];
} ag_rope_spec;

/* Experts of a layer. */
typedef struct ag_expert_spec {
    ag_route_params route; /* n_experts 0: the layer has no experts, other members unset */
    uint32_t width;        /* rows of the gate of an expert */
    uint32_t shared_width; /* the same of the shared expert; 0: none */
    bool shared_gate;      /* the shared expert is multiplied by the sigmoid of a projection */
    bool router_bias, choice_bias, matrix_biases;
    bool beside_dense; /* added to a dense feed-forward part, with norms of their own. The router
                        * reads the normed stream, and its weights are scaled by expert */
    float gate_limit;
} ag_expert_spec;

/* Kind of layers: parameters that layers of one kind share. */
typedef struct ag_layer_spec {
    ag_mixer mixer;
    uint32_t conv_taps;    /* tokens of a convolution, including its own */
    ag_delta_params delta; /* parameters of a delta net */
    uint32_t ffn_dim;      /* 0: the model's intermediate_size */
    ag_expert_spec experts;
    /* Members up to `softcap` are for attention. */
    uint32_t n_heads, n_kv_heads, head_dim;
    bool shares_kv;  /* uses keys and values of ag_spec_kv_source() */
    bool v_norm;     /* RMSNorm without weight over every head of v */
    bool v_from_k;   /* values are the keys before their norm and rotation */
    bool sinks;      /* a learnt logit for each head joins the softmax */
    bool out_gate;   /* the output is multiplied by the sigmoid of a projection */
    uint32_t rope;   /* index of the rotary table, or AG_NO_ROPE */
    uint32_t window; /* number of positions that a query sees, its own included; 0: all */
    float scale;     /* factor of q . k */
    float softcap;   /* limit of scaled scores; 0: none */
    ag_activation activation;
    bool qkv_bias, out_bias, ffn_bias;
    bool qk_norm;      /* RMSNorm over every head of q and of k, before rotation */
    bool full_qk_norm; /* RMSNorm over all heads of q and of k together */
    bool post_norms;   /* RMSNorm of a branch before it is added to the stream */
    bool no_pre_norms; /* no norm before a branch */
} ag_layer_spec;

enum { AG_MAX_LAYERS = 1024, AG_MAX_ROPES = 2, AG_NO_ROPE = AG_MAX_ROPES };

struct ag_family;

/* Every value is in range: sizes > 0, n_heads a multiple of n_kv_heads, head_dim even,
 * n_heads * head_dim at most 2^20, reals finite and positive. */
typedef struct ag_model_spec {
    const struct ag_family *family; /* for names of tensors; may be NULL */
    const char *architecture;       /* "LlamaForCausalLM"; static */
    uint8_t naming;                 /* index of the naming: ag_tensor_naming() */
    uint8_t expert_naming;          /* the same of experts: ag_expert_naming() */
    uint32_t vocab_size, hidden_size, intermediate_size;
    uint32_t max_positions;
    uint32_t n_layers, n_kinds, n_ropes;
    ag_layer_spec kinds[AG_MAX_LAYER_KINDS];
    uint8_t kind_of[AG_MAX_LAYERS]; /* [n_layers] index of each layer's kind */
    ag_rope_spec ropes[AG_MAX_ROPES];
    float norm_eps;        /* as configured */
    float eps_factor;      /* factor of norm_eps, if the stream is scaled; 0: none */
    float embedding_scale; /* factor of embedding rows; 1: none */
    float logit_factor;    /* factor of logits, folded into the last norm; 0: none */
    float logit_softcap;   /* 0: none */
    /* Queries at position p are multiplied by 1 + query_beta log(1 + floor(p / query_period)). */
    float query_beta; /* 0: no factor */
    uint32_t query_period;
    /* Layer inputs: values for each token and layer (0: none), and rows of their table. */
    uint32_t layer_input, n_layer_inputs;
    bool out_scale;              /* the stream after a layer is multiplied by a number */
    bool tie_word_embeddings;    /* as configured; a checkpoint without lm_head is tied, too */
    int32_t bos_id;              /* -1: none */
    int32_t eos_ids[AG_MAX_EOS]; /* distinct ids of both files; each ends a text */
    size_t n_eos;
} ag_model_spec;

static inline const ag_layer_spec *ag_spec_layer(const ag_model_spec *s, uint32_t layer) {
    return &s->kinds[s->kind_of[layer]];
}

static inline uint32_t ag_spec_ffn_dim(const ag_model_spec *s, const ag_layer_spec *kind) {
    return kind->ffn_dim ? kind->ffn_dim : s->intermediate_size;
}
/* Returns whether a layer has a feed-forward part that is not made of experts. */
static inline bool ag_spec_has_dense(const ag_layer_spec *kind) {
    return !kind->experts.route.n_experts || kind->experts.beside_dense;
}
/* Returns the channels of a layer's convolution; 0: none. */
uint32_t ag_spec_channels(const ag_model_spec *s, const ag_layer_spec *kind);
/* Describes the state of a layer without keys and values. Returns false for other layers. */
bool ag_spec_state(const ag_model_spec *s, const ag_layer_spec *kind, ag_state_layer *out);
/* Returns the layer whose keys and values the layer uses: itself, or the nearest layer before it
 * with its own keys and values and an equal window, head size and number of KV heads. UINT32_MAX if
 * there is none, or the layer has no attention. */
uint32_t ag_spec_kv_source(const ag_model_spec *s, uint32_t layer);

/* Returns the epsilon of norms. */
static inline float ag_spec_eps(const ag_model_spec *s) {
    return s->eps_factor != 0 ? s->norm_eps * s->eps_factor : s->norm_eps;
}

/* Sets the kind of a layer. Fails with AG_LIMIT if there are too many kinds. */
ag_status ag_spec_set_layer(ag_model_spec *s, uint32_t layer, const ag_layer_spec *kind,
                            ag_error *err);

/* The same for all layers. */
ag_status ag_spec_set_all(ag_model_spec *s, const ag_layer_spec *kind, ag_error *err);

/* Returns a plain description with sizes of 0: one kind of layers, with rotation of full heads and
 * no scaling. */
ag_model_spec ag_spec_plain(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim);

/* Returns whether a session of n_positions uses the divisors for long texts. */
bool ag_spec_is_long(const ag_model_spec *s, uint64_t n_positions);

/* Returns a static string such as "none", "linear" or "llama3". */
const char *ag_rope_type_name(ag_rope_type type);

/* shapes.c. Finds the shape of a published model, for a synthetic one, by name, ignoring case. "1b"
 * is enough for "llama-3.2-1b". Fails with AG_NOT_FOUND and a list of the known names. */
ag_status ag_shape_spec(const char *name, ag_model_spec *out, ag_error *err);

#endif
