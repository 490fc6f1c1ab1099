/* SPDX-License-Identifier: Apache-2.0 */
/* Models: loads a Hugging Face directory or a GGUF file and converts its weights for a backend. */
#ifndef ANTIGRAVITY_MODEL_H
#define ANTIGRAVITY_MODEL_H

#include <antigravity/backend.h>
#include <antigravity/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AG_MAX_EOS 16

/* The operation that mixes information between the tokens of a layer. */
typedef enum ag_mixer {
    AG_MIXER_ATTENTION,
    AG_MIXER_SHORT_CONV, /* short convolution; state: its newest inputs */
    AG_MIXER_DELTA_NET,  /* convolution and gated delta rule; state: a matrix for each head */
} ag_mixer;
/* "attention", "short_conv", "delta_net": static. */
AG_API const char *ag_mixer_name(ag_mixer mixer);

/* Layers with equal dimensions. */
typedef struct ag_layer_kind {
    uint32_t n_layers; /* layers of this kind */
    ag_mixer mixer;
    /* Heads of attention. A delta net has its value heads, key heads and value size here; a short
     * convolution has 0. */
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t window;      /* newest positions that a token attends to, including its own; 0: all */
    uint32_t n_kv_layers; /* layers of this kind with keys and values of their own */
    uint32_t channels;    /* channels of the convolution; 0: none */
    uint32_t intermediate_size;
} ag_layer_kind;
#define AG_MAX_LAYER_KINDS 8

/* All matrices of one type. */
typedef struct ag_type_share {
    ag_dtype type;
    uint64_t values, bytes;
} ag_type_share;
#define AG_MAX_TYPE_SHARES 8

/* Properties of a model that are known before its weights are read. */
typedef struct ag_model_info {
    char architecture[64]; /* "LlamaForCausalLM" */
    uint32_t n_layers, hidden_size, intermediate_size;
    uint32_t n_heads, n_kv_heads, head_dim; /* heads of the first kind of layers with attention */
    uint32_t layer_input_size; /* size of the per-layer embedding of a token; 0: none */
    uint64_t state_bytes;      /* a session's states of layers without keys and values */
    uint32_t n_layer_kinds;
    ag_layer_kind layer_kinds[AG_MAX_LAYER_KINDS]; /* in the order of their first layer */
    uint32_t n_vocab;
    uint32_t max_positions; /* positions the model was trained for: max_position_embeddings */
    float rope_theta;
    char rope_scaling[16]; /* "llama3", "linear", "none" */
    float norm_eps;
    bool tied;      /* lm_head and embedding are one tensor */
    bool as_is;     /* every matrix keeps its type of the file */
    bool mixed;     /* matrices are converted to AG_WEIGHTS_MIX */
    int32_t bos_id; /* -1: none */
    int32_t eos_ids[AG_MAX_EOS];
    size_t n_eos;
    uint64_t n_parameters;
    ag_dtype file_type;       /* most frequent type in the file */
    ag_dtype weight_type;     /* most frequent type in memory */
    uint64_t weight_bytes;    /* matrices and norms in memory, without padding of backends */
    uint64_t embedding_bytes; /* embedding table, which stays in the file */
    uint64_t file_bytes;
    uint32_t n_kept;  /* matrices that keep the file's type: their rows are not a multiple of 32 */
    uint32_t n_types; /* types of matrices in memory, the most frequent first */
    ag_type_share types[AG_MAX_TYPE_SHARES];
    uint64_t workspace_columns; /* floats of the workspace for each row of a pass */
    char file_type_name[16];    /* as a GGUF file states it, "q4_k_m"; else that of file_type */
    /* Experts of a layer, and how many of them a token uses; 0: no layer has experts. */
    uint32_t n_experts, n_experts_used;
    uint64_t active_bytes; /* weight_bytes without the experts that a token does not use */
    uint64_t reserved[2];  /* 0 */
} ag_model_info;

/* Reports progress, done <= total. Returns false to cancel: the call then fails with AG_CANCELLED.
 */
typedef bool (*ag_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Selects a type for the matrices whose names match a pattern. */
typedef struct ag_tensor_type {
    /* A prefix of the tensor's GGUF name, whatever the model's format, or of what follows one of
     * its dots: "ffn_down", "blk.[0-3].attn_v", "output". May contain the shell's *, ? and [...].
     */
    const char *pattern;
    ag_dtype type;
} ag_tensor_type;

/* Keeps the types of a quantised file; converts a model without quantised weights to a mix. */
#define AG_WEIGHTS_AUTO ((ag_dtype)0x7fff)
/* A mix of types with at most 5.3 bits a weight: Q4_K (Q4_1 and Q5_0 for rows that are not a
 * multiple of 256), and wider types for value, output and down projections within that limit. */
#define AG_WEIGHTS_MIX ((ag_dtype)0x7f00)

typedef enum ag_rope_scaling_choice {
    AG_ROPE_SCALING_AUTO, /* the model's */
    AG_ROPE_SCALING_NONE,
    AG_ROPE_SCALING_LINEAR,
    AG_ROPE_SCALING_YARN,
} ag_rope_scaling_choice;

/* Rotary position embedding in place of the one that the model's files state, named as in
 * llama.cpp. Zeroed: no change. Models with a local and a global table change the global one. A
 * factor above 1 extends max_positions to the original length times the factor. */
typedef struct ag_rope_override {
    ag_rope_scaling_choice scaling;
    double freq_base;  /* rope_theta */
    double freq_scale; /* 1 / factor of the scaling: 0.25 for a context of 4 times the length */
    uint32_t yarn_orig_ctx;                /* positions of training; 0: the model's */
    double yarn_ext_factor;                /* share of the pairs' own frequencies, up to 1; 0: 1 */
    double yarn_attn_factor;               /* multiplies the factor of rotated values; 0: 1 */
    double yarn_beta_fast, yarn_beta_slow; /* 0: the model's, or 32 and 1 */
} ag_rope_override;

typedef struct ag_model_params {
    /* AG_WEIGHTS_AUTO, AG_WEIGHTS_MIX, or the type that projections and lm_head are converted to.
     * F32 represents quantised weights exactly. */
    ag_dtype weights;
    bool as_is; /* every matrix keeps its type of the file; overrides `weights` */
    const ag_tensor_type *tensor_types; /* override both; the last match applies */
    size_t n_tensor_types;
    ag_progress_fn progress; /* converted bytes of the file; may be NULL */
    void *progress_user;
    ag_rope_override rope;
    uint64_t reserved[4]; /* 0 */
} ag_model_params;
AG_API ag_model_params ag_model_defaults(void);

/* A loaded model. Its sessions share its workspace, so one thread at a time may use a backend with
 * all its models and sessions: see antigravity.h. */
typedef struct ag_model ag_model;

/* Loads a model. path is a directory with config.json, model.safetensors (or shards with
 * model.safetensors.index.json) and optionally generation_config.json; or a GGUF file, the first
 * one of a split model. The backend is borrowed and must outlive the model. The embedding stays in
 * the file, which must not change while the model exists. params may be NULL. Fails with
 * AG_NOT_FOUND, AG_FORMAT, AG_UNSUPPORTED, AG_SHAPE (expected and actual shape of a tensor) or
 * AG_NOMEM; the message names file, place and reason. */
AG_API ag_status ag_model_load(ag_backend *be, const char *path, const ag_model_params *params,
                               ag_model **out, ag_error *err);
/* Writes the properties of the model at `path`. Reads its configuration and headers only. Fails as
 * ag_model_load() does. */
AG_API ag_status ag_model_inspect(const char *path, const ag_model_params *params,
                                  ag_model_info *out, ag_error *err);

/* An operation of a forward pass. */
typedef struct ag_op_info {
    const char *code; /* "PRODUCTS", static */
    int32_t layer;    /* -1: before or after all layers */
    /* Number, layer, code, weights, values and types of the weights, valid during the call:
     * "12  3  PRODUCTS wq,wk,wv  normed[64] -> q[64] k[32] v[32]  q4_0". */
    const char *text;
} ag_op_info;
typedef void (*ag_op_fn)(void *user, const ag_op_info *op);
/* Calls `fn` for each operation of the model's forward pass, in the order in which they run. Reads
 * the configuration and the headers only. Fails as ag_model_inspect() does, before the first call.
 */
AG_API ag_status ag_model_inspect_ops(const char *path, const ag_model_params *params, ag_op_fn fn,
                                      void *user, ag_error *err);

/* Creates a model with random weights, for benchmarks. shape is the name of one of
 * ag_model_shape_name(), such as "llama-3.2-1b"; case is ignored. ":N" after it sets the number of
 * layers. Fails with AG_NOT_FOUND and lists the shapes. */
AG_API ag_status ag_model_synthetic(ag_backend *be, const char *shape,
                                    const ag_model_params *params, ag_model **out, ag_error *err);
/* Creates a model with random weights like those of the model at `path`, to measure its speed: the
 * sizes of its first n_layers layers and of those up to the first with attention (n_layers 0: of
 * all). Its matrices have the most frequent type if they keep the types of the file. Reads the
 * configuration and the headers only. Fails as ag_model_load() does. */
AG_API ag_status ag_model_synthetic_like(ag_backend *be, const char *path,
                                         const ag_model_params *params, uint32_t n_layers,
                                         ag_model **out, ag_error *err);
/* Writes the properties of a model of ag_model_synthetic(): its sizes, types, weight_bytes and
 * active_bytes. */
AG_API ag_status ag_model_inspect_synthetic(const char *shape, const ag_model_params *params,
                                            ag_model_info *out, ag_error *err);
/* Returns the i-th shape of ag_model_synthetic(), NULL past the end. */
AG_API const char *ag_model_shape_name(size_t i);
/* Destroys a model. All its sessions must be destroyed before. m may be NULL. */
AG_API void ag_model_destroy(ag_model *m);

AG_API const ag_model_info *ag_model_get_info(const ag_model *m);
/* Calls `fn` for each operation of a loaded model, as ag_model_inspect_ops() does. */
AG_API void ag_model_list_ops(const ag_model *m, ag_op_fn fn, void *user);
/* Starts timing: adds the seconds of each operation of later passes to seconds[i], where i counts
 * as ag_model_list_ops() lists them. `seconds` is borrowed until the next call; NULL stops timing.
 * An ADD and the NORM of its sum that run as one operation count as the ADD, two PRODUCTS and their
 * GATE as the PRODUCTS. On a device, passes take longer while they are timed: the queue is finished
 * after each operation, and steps of one launch are off. */
AG_API void ag_model_time_ops(ag_model *m, double *seconds);
/* Experts that a row of a pass chose in a layer. Pointers are valid during the call. */
typedef struct ag_chosen_experts {
    uint32_t layer;
    size_t row; /* number in the pass; after the last attention only rows with results count */
    uint32_t n;
    const uint32_t *experts; /* [n] ascending numbers */
    const float *weights;    /* [n] factors of the experts' results, with all scaling */
} ag_chosen_experts;
typedef void (*ag_chosen_fn)(void *user, const ag_chosen_experts *chosen);
/* Calls `fn` for each row in each layer with experts in later passes, on the thread of the pass.
 * NULL stops the calls. */
AG_API void ag_model_observe_experts(ag_model *m, ag_chosen_fn fn, void *user);
/* Writes one row of the embedding as F32, [hidden_size]. */
AG_API ag_status ag_model_embedding(ag_model *m, int32_t id, float *row, ag_error *err);
/* Returns the bytes of weights in memory. */
AG_API size_t ag_model_memory_bytes(const ag_model *m);
/* Returns the bytes of weights that decoding reads for each token: those of its experts only.
 * Memory bandwidth divided by them bounds the speed of decoding. */
AG_API uint64_t ag_model_bytes_per_token(const ag_model *m);

#ifdef __cplusplus
}
#endif
#endif
