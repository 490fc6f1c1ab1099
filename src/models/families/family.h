/* SPDX-License-Identifier: Apache-2.0 */
/* Family of models: how its configuration becomes a description, and the names of its tensors. Each
 * family is a file here and a name in list.c. */
#ifndef AG_MODELS_FAMILIES_FAMILY_H
#define AG_MODELS_FAMILIES_FAMILY_H

#include "core/layer_tensors.h"
#include "models/config_reader.h"
#include "models/gguf_keys.h"
#include "models/spec.h"

enum { AG_FAMILY_NAMES = 4 };

/* Defaults of absent keys, from the family's class in transformers. */
typedef struct ag_config_defaults {
    uint32_t vocab_size, hidden_size, intermediate_size, n_layers, n_heads;
    uint32_t n_kv_heads; /* 0: n_heads */
    uint32_t head_dim;   /* 0: hidden_size / heads */
    uint32_t max_positions;
    double rope_theta;
    double norm_eps; /* 0: 1e-6 */
    /* Default of partial_rotary_factor. 0: full heads rotate, and the key is ignored. */
    double rotary_share;
    int32_t bos_id, eos_id; /* -1: none */
    bool tie_word_embeddings;
} ag_config_defaults;

/* Defaults of the first Llama, which other classes share. */
#define AG_LLAMA_DEFAULTS                                                                     \
    {                                                                                         \
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 11008, .n_layers = 32, \
        .n_heads = 32, .max_positions = 2048, .rope_theta = 10000, .bos_id = 1, .eos_id = 2   \
    }

/* A tensor of a layer with another name than in most families. If the file has one tensor for
 * several of ours, such as qkv_proj for q, k and v, all of them have its name: they are its rows,
 * in the order of the list. */
typedef struct ag_tensor_alias {
    ag_layer_tensor tensor;
    const char *suffix; /* after "model.layers.N." or "blk.N." */
} ag_tensor_alias;

/* Differences of the family's GGUF files. */
typedef struct ag_gguf_form {
    const char *architectures[AG_FAMILY_NAMES]; /* values of general.architecture */
    /* The n rows of every head of q and k are stored as 0, n/2, 1, n/2 + 1, ...: rotated pairs are
     * adjacent. */
    bool paired_rows;
    bool fused_experts; /* gate and up of experts are one tensor in files that are written */
    const ag_tensor_alias *aliases; /* see ag_family.aliases */
    const ag_gguf_key *keys; /* besides those of gguf_keys.c; its last element is 0; may be NULL */
    /* Returns the scale of attention scores if the file has no key for it. NULL: 1 /
     * sqrt(head_dim), or a key of `keys` has it. */
    float (*scale)(const ag_model_spec *s);
    /* Adds keys to `config` that need more than the tables of keys. NULL: none. */
    ag_status (*complete)(const ag_gguf_reader *r, json_t *config);
} ag_gguf_form;

typedef struct ag_family {
    /* Values of `architectures` and `model_type`. */
    struct {
        const char *architecture, *model_type;
    } names[AG_FAMILY_NAMES];
    ag_config_defaults defaults;
    ag_activation activation;       /* the only supported one */
    const ag_tensor_alias *aliases; /* its last element has the suffix NULL; may be NULL */
    /* In files that are not GGUF, rows of gate and up of experts alternate, and the matrices of
     * experts are transposed. */
    bool alternating_experts;
    bool norms_add_one; /* norms multiply by 1 + their weight; GGUF files store the sum */
    ag_gguf_form gguf;
    /* Completes *spec, whose sizes and default rotary table (ropes[0]) are set. `plain` describes a
     * layer of Llama with these sizes, to copy and change. NULL: all layers are plain. */
    ag_status (*describe)(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *spec);
} ag_family;

/* Returns the i-th family, or NULL after the last. */
const ag_family *ag_family_at(size_t i);

/* Reads the sizes and numbers of experts into *x, which holds the defaults: num_experts or
 * num_local_experts, num_experts_per_tok, moe_intermediate_size or the model's intermediate_size,
 * norm_topk_prob. Fails with AG_FORMAT for numbers that do not fit each other. In experts.c. */
ag_status ag_config_experts(ag_config_reader *r, const ag_model_spec *s, ag_expert_spec *x);
/* Returns a router that divides weights by their sum, without experts yet. */
static inline ag_expert_spec ag_experts_plain(ag_scoring scoring) {
    return (ag_expert_spec){.route = {.scoring = scoring, .normalise = true, .factor = 1}};
}

/* Sets all layers to `kind`, with a window where `use_sliding_window` enables it, and without
 * experts where mlp_only_layers and decoder_sparse_step say so. In qwen2.c. */
ag_status ag_qwen_set_layers(ag_config_reader *r, const ag_layer_spec *kind, ag_model_spec *s);

#endif
