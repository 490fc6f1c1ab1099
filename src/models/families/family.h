/* SPDX-License-Identifier: Apache-2.0 */
/* A family of models: how its configuration becomes a description, and what its tensors are
 * called. One file each, one name each in list.c. */
#ifndef AG_MODELS_FAMILIES_FAMILY_H
#define AG_MODELS_FAMILIES_FAMILY_H

#include "core/layer_tensors.h"
#include "models/config_reader.h"
#include "models/gguf_keys.h"
#include "models/spec.h"

enum { AG_FAMILY_NAMES = 4 };

/* What absent keys of a configuration mean: as the family's class in transformers says. */
typedef struct ag_config_defaults {
    uint32_t vocab_size, hidden_size, intermediate_size, n_layers, n_heads;
    uint32_t n_kv_heads; /* 0: as many as heads */
    uint32_t head_dim;   /* 0: hidden_size / heads */
    uint32_t max_positions;
    double rope_theta;
    double norm_eps; /* 0: 1e-6 */
    /* Of each head, where no partial_rotary_factor says otherwise; 0: all of it, whatever that
     * says. */
    double rotary_share;
    int32_t bos_id, eos_id; /* -1: none */
    bool tie_word_embeddings;
} ag_config_defaults;

/* Of the first Llama, which other classes have kept. */
#define AG_LLAMA_DEFAULTS                                                                     \
    {                                                                                         \
        .vocab_size = 32000, .hidden_size = 4096, .intermediate_size = 11008, .n_layers = 32, \
        .n_heads = 32, .max_positions = 2048, .rope_theta = 10000, .bos_id = 1, .eos_id = 2   \
    }

/* Another name of a tensor of a layer than most families give it. Several of one name are the rows
 * of one tensor, in the order of the list. */
typedef struct ag_tensor_alias {
    ag_layer_tensor tensor;
    const char *suffix; /* after "model.layers.N." or "blk.N." */
} ag_tensor_alias;

/* What is different where a model of the family comes as a GGUF file. */
typedef struct ag_gguf_form {
    const char *architectures[AG_FAMILY_NAMES]; /* of general.architecture */
    /* Rows of every head of q and k stand as pairs that turn together: 0, n/2, 1, n/2 + 1, ... */
    bool paired_rows;
    const ag_tensor_alias *aliases; /* as below */
    const ag_gguf_key *keys;        /* beside the table's (gguf_keys.c); ends with NULL; or NULL */
    /* What readers take for the scale of scores, which no key says. NULL: 1 / sqrt(head_dim), or a
     * key of `keys` says it. */
    float (*scale)(const ag_model_spec *s);
    /* Adds to `config` what the table of keys (gguf_keys.c) does not. NULL: nothing. */
    ag_status (*complete)(const ag_gguf_reader *r, json_t *config);
} ag_gguf_form;

typedef struct ag_family {
    /* Pairs of what `architectures` and `model_type` say, as many as there are. */
    struct {
        const char *architecture, *model_type;
    } names[AG_FAMILY_NAMES];
    ag_config_defaults defaults;
    const char *activation_key;     /* of the configuration */
    ag_activation activation;       /* the only one there is */
    const ag_tensor_alias *aliases; /* ends with a suffix of NULL; NULL: none */
    bool norms_add_one;             /* a norm multiplies by 1 + its weight; not in a GGUF file */
    ag_gguf_form gguf;
    /* The rest. Sizes, the default rotary table (spec->ropes[0]) and one kind of layer without
     * anything special are there. */
    ag_status (*describe)(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *spec);
} ag_family;

/* The i-th family, NULL past the end. */
const ag_family *ag_family_at(size_t i);

/* qwen2.c. All layers alike but for the windows that `use_sliding_window` switches on. */
ag_status ag_qwen_set_layers(ag_config_reader *r, const ag_layer_spec *kind, ag_model_spec *s);

#endif
