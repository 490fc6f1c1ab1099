/* SPDX-License-Identifier: Apache-2.0 */
/* A model: a Hugging Face directory or a GGUF file, its weights converted to what the backend
 * computes with. */
#ifndef ANTIGRAVITY_MODEL_H
#define ANTIGRAVITY_MODEL_H

#include <antigravity/backend.h>
#include <antigravity/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AG_MAX_EOS 16

/* What lets a layer's tokens know of each other. */
typedef enum ag_mixer {
    AG_MIXER_ATTENTION,
    AG_MIXER_SHORT_CONV, /* a convolution over a few tokens; its state: the newest of them */
    AG_MIXER_DELTA_NET,  /* a convolution, then the gated delta rule; its state: a matrix a head */
} ag_mixer;
/* "attention", "short_conv", "delta_net": static. */
AG_API const char *ag_mixer_name(ag_mixer mixer);

/* Layers that are alike in what they need. */
typedef struct ag_layer_kind {
    uint32_t n_layers; /* of this kind */
    ag_mixer mixer;
    /* Of attention; of a delta net its value heads, key heads and the size of a value. 0 of a short
     * convolution. */
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t window;      /* newest positions that a token sees, its own included; 0: all */
    uint32_t n_kv_layers; /* of this kind that keep keys and values of their own */
    uint32_t channels;    /* of the convolution; 0: there is none */
    uint32_t intermediate_size;
} ag_layer_kind;
#define AG_MAX_LAYER_KINDS 8

/* Matrices of one type. */
typedef struct ag_type_share {
    ag_dtype type;
    uint64_t values, bytes;
} ag_type_share;
#define AG_MAX_TYPE_SHARES 8

/* What became of ag_model_params.weights_cache. */
typedef enum ag_cache_outcome {
    AG_CACHE_NONE,    /* none was asked for, or no weight changes its type */
    AG_CACHE_USED,    /* nothing was converted */
    AG_CACHE_WRITTEN, /* the next start will convert nothing */
    AG_CACHE_FAILED,  /* a warning in the backend's log says why; the model is there all the same */
} ag_cache_outcome;

/* What a model is and what it will take, known before its weights are read. */
typedef struct ag_model_info {
    char architecture[64]; /* "LlamaForCausalLM" */
    uint32_t n_layers, hidden_size, intermediate_size;
    uint32_t n_heads, n_kv_heads, head_dim; /* of the first kind of layers with attention */
    uint32_t layer_input_size; /* values that a token's id gives each layer for itself; 0: none */
    uint64_t state_bytes;      /* that a session keeps for layers without keys and values */
    uint32_t n_layer_kinds;
    ag_layer_kind layer_kinds[AG_MAX_LAYER_KINDS]; /* in the order in which they first occur */
    uint32_t n_vocab;
    uint32_t max_positions; /* max_position_embeddings: positions it was trained for */
    float rope_theta;
    char rope_scaling[16]; /* "llama3", "linear", "none" */
    float norm_eps;
    bool tied;      /* lm_head and embedding are one tensor */
    bool as_is;     /* every matrix keeps the type that it has in the file */
    bool mixed;     /* matrices become types of a mix: AG_WEIGHTS_MIX */
    int32_t bos_id; /* -1: none */
    int32_t eos_ids[AG_MAX_EOS];
    size_t n_eos;
    uint64_t n_parameters;
    ag_dtype file_type;       /* of most weights in the file */
    ag_dtype weight_type;     /* what the matrices become */
    uint64_t weight_bytes;    /* of the matrices and norms in weight_type; a backend's layout may
                               * fill up the last rows of each */
    uint64_t embedding_bytes; /* of the table that stays in the file */
    uint64_t file_bytes;
    uint32_t n_kept;  /* matrices that keep the file's type: their rows are no multiple of 32 */
    uint32_t n_types; /* of matrices in memory, the most frequent first */
    ag_type_share types[AG_MAX_TYPE_SHARES];
    ag_cache_outcome weights_cache; /* of a loaded model */
    uint64_t workspace_columns;     /* floats of the workspace for each row of a pass */
    uint64_t reserved[6];           /* 0: facts of later versions */
} ag_model_info;

/* Return false to cancel; the call then ends with AG_CANCELLED. done <= total. */
typedef bool (*ag_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Matrices of certain names become a type of their own. */
typedef struct ag_tensor_type {
    /* How one of the parts between the dots, and what follows it, begins in the name that a GGUF
     * file gives the tensor, whatever the model's format: "ffn_down", "blk.[0-3].attn_v", "output";
     * with the shell's *, ? and [...]. */
    const char *pattern;
    ag_dtype type;
} ag_tensor_type;

/* Weights that a file holds quantised stay as they are; if a model has none, all become a mix. */
#define AG_WEIGHTS_AUTO ((ag_dtype)0x7fff)
/* A mix of types that loses little for at most 5.3 bits a weight: Q4_K, or Q4_1 and Q5_0 where rows
 * are no multiple of 256, and wider ones for values, the output and down projections as far as that
 * goes.
 */
#define AG_WEIGHTS_MIX ((ag_dtype)0x7f00)

typedef struct ag_model_params {
    /* AG_WEIGHTS_AUTO, AG_WEIGHTS_MIX, or the type that projections and lm_head become whatever the
     * file holds; F32 gives exactly what quantised weights stand for. */
    ag_dtype weights;
    bool as_is; /* every matrix keeps the type that it has in the file; not `weights` */
    const ag_tensor_type *tensor_types; /* outrank both; of several that fit the last counts */
    size_t n_tensor_types;
    ag_progress_fn progress; /* NULL, or told of bytes of the file converted, every few MB */
    void *progress_user;
    /* A directory where converted weights are kept, so that the next start converts nothing; it is
     * made if need be. "": $XDG_CACHE_HOME/antigravity/weights, or the same in ~/.cache. NULL:
     * nothing is kept. The bits are the same with and without. One file for each model and choice
     * of types, used only as long as the model's files have not changed. */
    const char *weights_cache;
    uint64_t reserved[3]; /* 0: what later versions ask for */
} ag_model_params;
AG_API ag_model_params ag_model_defaults(void);

/* A model's sessions share its workspace, so one thread at a time uses a backend with all its
 * models and sessions, or holds a lock of the caller's: see antigravity.h. */
typedef struct ag_model ag_model;

/* path: a directory with config.json, model.safetensors or shards with
 * model.safetensors.index.json, optionally generation_config.json; or a GGUF file, the first one of
 * a split model. The backend is borrowed and must
 * outlive the model. The embedding stays in the file, which must not change while the model lives.
 * params may be NULL. AG_NOT_FOUND, AG_FORMAT, AG_UNSUPPORTED, AG_SHAPE (a tensor's wanted and
 * found shape), AG_NOMEM: one line that names file, place and reason. */
AG_API ag_status ag_model_load(ag_backend *be, const char *path, const ag_model_params *params,
                               ag_model **out, ag_error *err);
/* The same facts without loading: reads the configuration and the headers only. */
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

/* Random weights of a known shape, made in memory: for measuring speed. shape: "llama-3.2-1b",
 * "llama-3.2-3b", "llama-3.1-8b", "tiny", without case; AG_NOT_FOUND lists them. */
AG_API ag_status ag_model_synthetic(ag_backend *be, const char *shape,
                                    const ag_model_params *params, ag_model **out, ag_error *err);
/* The i-th of these shapes, NULL past the end. */
AG_API const char *ag_model_shape_name(size_t i);
/* After all its sessions. NULL is fine. */
AG_API void ag_model_destroy(ag_model *m);

AG_API const ag_model_info *ag_model_get_info(const ag_model *m);
/* Calls `fn` for each operation of a loaded model, as ag_model_inspect_ops() does. */
AG_API void ag_model_list_ops(const ag_model *m, ag_op_fn fn, void *user);
/* Starts timing: adds the seconds of each operation of later passes to seconds[i], where i counts
 * as ag_model_list_ops() lists them. `seconds` is borrowed until the next call; NULL stops timing.
 * An ADD and the NORM of its sum that run as one operation count as the ADD. On a device, passes
 * take longer while they are timed: the queue is finished after each operation, and steps of one
 * launch are off. */
AG_API void ag_model_time_ops(ag_model *m, double *seconds);
/* One row of the embedding as F32, [hidden_size]. */
AG_API ag_status ag_model_embedding(ag_model *m, int32_t id, float *row, ag_error *err);
/* Bytes of weights this model holds in memory now. */
AG_API size_t ag_model_memory_bytes(const ag_model *m);
/* Bytes of one token's weights that decoding reads: what memory bandwidth is spent on. */
AG_API uint64_t ag_model_bytes_per_token(const ag_model *m);

#ifdef __cplusplus
}
#endif
#endif
