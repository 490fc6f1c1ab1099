/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of a token in one launch of kernels/token.cl: supported programs and caches, the stages
 * that the kernel executes, and the mailboxes that its work-groups communicate through. */
#ifndef AG_OPENCL_TOKEN_H
#define AG_OPENCL_TOKEN_H

#include "backend/opencl/kernels/shared.h"
#include "backend/opencl/ops.h"

/* Sizes that the kernel and its mailboxes are compiled for. */
typedef struct ag_cl_token_shape {
    uint32_t dim, q_dim, kv_dim, ffn_dim, n_vocab;
    uint32_t n_layers, n_kv, head_dim, group; /* query heads of a KV head */
    uint32_t n_groups;                        /* work-groups */
    uint32_t max_blocks;                      /* maximum blocks of a head */
    uint32_t k_type, v_type;                  /* types of the cache (ag_dtype) */
    uint32_t piece;                           /* size of the Hadamard rotation; 1: none */
    /* Compile-time options: windows, norms of heads, GELU instead of SiLU. */
    uint32_t has_windows, has_qk_norms, is_gelu;
    uint32_t select; /* 1: return the best logits */
    /* Sets of weight types: for q, k and v; gate and up; products added to the stream, with
     * few and with many columns; logits. */
    uint32_t split_types, pair_types, row_types, long_types, logit_types;
} ag_cl_token_shape;

/* Offsets in the buffer of a session. Mailboxes have packets of 8 bytes. */
typedef struct ag_cl_token_layout {
    size_t stream;        /* [dim] packets; the host writes the embedding */
    size_t cos_sin;       /* [head_dim / 2] pairs */
    size_t n_slots;       /* [n_layers][n_kv] */
    size_t request;       /* ag_cl_token_request */
    size_t result;        /* ag_cl_token_result */
    size_t mailbox_bytes; /* bytes up to the start of the result: one upload for each token */
    size_t stages;
    size_t blocks;         /* [n_layers][n_kv][max_blocks] addresses */
    size_t qkv, out, gate; /* mailboxes; blocks of 10 packets, or floats, in the last two */
    size_t partial;        /* mailbox: partial results of a head's pieces */
    size_t maxima;         /* mailbox: largest logits */
    size_t bytes;
} ag_cl_token_layout;

/* Weight types that kernels/token_weights.cl can multiply, with x in blocks and in floats: bit n
 * for ag_dtype n. */
enum {
    AG_CL_TOKEN_FLOATS = 1 << AG_F16 | 1 << AG_BF16,
    AG_CL_TOKEN_BLOCKS = 1 << AG_Q4_0 | 1 << AG_Q4_1 | 1 << AG_Q5_0 | 1 << AG_Q5_1 | 1 << AG_Q8_0 |
                         1 << AG_Q2_K | 1 << AG_Q3_K | 1 << AG_Q4_K | 1 << AG_Q5_K | 1 << AG_Q6_K |
                         1 << AG_IQ4_NL | 1 << AG_MXFP4
};
enum { AG_CL_TOKEN_ITEMS = 256, AG_CL_TOKEN_ITEMS_CPU = 4 };

typedef struct ag_cl_token {
    ag_cl_token_shape shape;
    ag_cl_token_layout at;
    ag_buffer *store; /* owned */
    uint64_t address; /* device address of `store` */
    /* Owned; rows of attention scores for sums of weights; NULL until a policy needs them. */
    ag_buffer *scores;
    uint64_t scores_address;
    uint32_t next_tag;
    ag_cl_token_stage *stages; /* owned; [n] as uploaded */
    bool sent;                 /* the stages are uploaded */
    cl_ulong *blocks;          /* owned; [n_layers][n_kv][max_blocks] as uploaded */
    ag_kv_block *known;        /* owned; the blocks of which `blocks` has the addresses, or NULL */
    uint32_t released;         /* ag_cl_backend.released when they were listed */
    unsigned char *mailbox;    /* owned */
    ag_cl_token_result result; /* result of the last launch */
} ag_cl_token;

/* Returns whether the backend's state and the position allow a step by the kernel. */
bool ag_cl_token_allowed(const ag_cl_backend *cl, const ag_step *step);
/* Returns whether the kernel supports the program, its weights and the step's caches, and writes
 * their shape. By default only on NVIDIA GPUs, for shapes that were tested there. AG_OPENCL_TOKEN=1
 * tries every device (with one work-group on processors) and every shape that the kernel supports.
 */
bool ag_cl_token_fits(const ag_cl_backend *cl, const ag_step *step, ag_cl_token_shape *shape);
/* Returns the columns of the widest weight. */
uint32_t ag_cl_token_columns(const ag_cl_token_shape *s);
/* Runs a step of a session of token->shape. Writes false to *taken if the device cannot run it. */
ag_status ag_cl_token_step(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step, bool *taken);

/* token_program.c: writes the shape. Returns false if the kernel does not support it. n_groups is
 * an upper bound. */
bool ag_cl_token_shape_of(const ag_cl_backend *cl, const ag_step *step, ag_cl_token_shape *out);
/* Sets the members of a shape that differ between steps of a session. */
void ag_cl_token_shape_now(const ag_step *step, ag_cl_token_shape *shape);
/* Returns whether such heads and caches were tested on a GPU: errors would be silent. */
bool ag_cl_token_has_run(const ag_cl_token_shape *s);
uint32_t ag_cl_token_stages(const ag_cl_token_shape *s);
uint32_t ag_cl_token_max_stages(const ag_cl_token_shape *s); /* with all options */
/* Writes token->stages with the addresses of weights and mailboxes. */
ag_status ag_cl_token_write_stages(ag_cl_backend *cl, const ag_step *step, ag_cl_token *token);

/* token_mailbox.c: allocates memory for a shape, unless the present memory fits. */
ag_status ag_cl_token_reserve(ag_cl_backend *cl, ag_cl_token *token,
                              const ag_cl_token_shape *shape);
void ag_cl_token_release_store(ag_cl_token *token);
/* Uploads the token's data and the changed block tables of the cache. */
ag_status ag_cl_token_upload(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step,
                             uint32_t first_tag);

#endif
