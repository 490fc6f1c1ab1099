/* SPDX-License-Identifier: Apache-2.0 */
/* A whole token in one launch of kernels/token.cl: which programs and caches, the stages that tell
 * the kernel what to do, and the mailboxes its groups talk through. */
#ifndef AG_OPENCL_TOKEN_H
#define AG_OPENCL_TOKEN_H

#include "backend/opencl/kernels/shared.h"
#include "backend/opencl/ops.h"

/* Sizes that the kernel and its mailboxes are made for. */
typedef struct ag_cl_token_shape {
    uint32_t dim, q_dim, kv_dim, ffn_dim, n_vocab;
    uint32_t n_layers, n_kv, head_dim, group; /* query heads of a KV head */
    uint32_t n_groups;                        /* work-groups */
    uint32_t max_blocks;                      /* of a head in a layer's cache */
    uint32_t k_type, v_type;                  /* ag_dtype of the cache */
    uint32_t piece;                           /* of the Hadamard rotation; 1: none */
    /* Compiled in: windows of some layers, norms of heads, GELU in place of SiLU. */
    uint32_t has_windows, has_qk_norms, is_gelu;
    uint32_t select; /* 1: the best of the logits are wanted */
    /* Sets of AG_CL_TOKEN_TYPES: of q, k and v; gate and up; what is added to the stream, of few
     * columns and of many; of the logits. */
    uint32_t split_types, pair_types, row_types, long_types, logit_types;
} ag_cl_token_shape;

/* Where things lie in the one buffer, from its start. Mailboxes hold packets of 8 bytes. */
typedef struct ag_cl_token_layout {
    size_t stream;        /* [dim] packets; the host puts the embedding there */
    size_t cos_sin;       /* [head_dim / 2] pairs */
    size_t n_slots;       /* [n_layers][n_kv] */
    size_t request;       /* ag_cl_token_request */
    size_t result;        /* ag_cl_token_result */
    size_t mailbox_bytes; /* all before and the result's beginning: one upload for each token */
    size_t stages;
    size_t blocks;         /* [n_layers][n_kv][max_blocks] addresses */
    size_t qkv, out, gate; /* mailboxes; blocks of 10 packets in the last two */
    size_t partial;        /* mailbox: what pieces of a head leave */
    size_t maxima;         /* mailbox: largest logits */
    size_t bytes;
} ag_cl_token_layout;

/* Types of weights that kernels/token_weights.cl multiplies, bit n for ag_dtype n. */
enum {
    AG_CL_TOKEN_TYPES = 1 << AG_Q4_0 | 1 << AG_Q4_1 | 1 << AG_Q5_0 | 1 << AG_Q5_1 | 1 << AG_Q8_0 |
                        1 << AG_Q2_K | 1 << AG_Q3_K | 1 << AG_Q4_K | 1 << AG_Q5_K | 1 << AG_Q6_K |
                        1 << AG_IQ4_NL | 1 << AG_MXFP4
};
enum { AG_CL_TOKEN_ITEMS = 256, AG_CL_TOKEN_ITEMS_CPU = 4 };

typedef struct ag_cl_token {
    ag_cl_token_shape shape;
    ag_cl_token_layout at;
    ag_buffer *store; /* owned */
    uint64_t address; /* of it */
    uint32_t next_tag;
    ag_cl_token_stage *stages; /* owned; [n] as they are sent */
    bool sent;                 /* the device has the stages */
    cl_ulong *blocks;          /* owned; [n_layers][n_kv][max_blocks] as the device has them */
    unsigned char *mailbox;    /* owned */
    ag_cl_token_result result; /* of the last launch */
} ag_cl_token;

/* True if the state of the backend and the position allow a step by the kernel. */
bool ag_cl_token_allowed(const ag_cl_backend *cl, const ag_step *step);
/* True if the kernel is for the program, its weights and the caches of the step's session; *shape
 * is theirs. On NVIDIA's GPUs, for what has run there; AG_OPENCL_TOKEN=1 tries every device, with
 * one work-group on processors, and all that the kernel is written for. */
bool ag_cl_token_fits(const ag_cl_backend *cl, const ag_step *step, ag_cl_token_shape *shape);
/* A step whose session has token->shape; *taken false: the device has shown that it cannot. */
ag_status ag_cl_token_step(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step, bool *taken);

/* token_program.c: false if the kernel is not for it. n_groups is at most what the device was asked
 * for. */
bool ag_cl_token_shape_of(const ag_cl_backend *cl, const ag_step *step, ag_cl_token_shape *out);
/* Sets the members of a shape that differ between steps of a session. */
void ag_cl_token_shape_now(const ag_step *step, ag_cl_token_shape *shape);
/* True if such heads and caches have run on a GPU: wrong text would be silent. */
bool ag_cl_token_has_run(const ag_cl_token_shape *s);
uint32_t ag_cl_token_stages(const ag_cl_token_shape *s);
uint32_t ag_cl_token_most_stages(const ag_cl_token_shape *s); /* whatever is wanted */
/* token->stages, with the addresses of weights and mailboxes. */
ag_status ag_cl_token_write_stages(ag_cl_backend *cl, const ag_step *step, ag_cl_token *token);

/* token_mailbox.c: memory for a shape; what is there stays if it fits. */
ag_status ag_cl_token_reserve(ag_cl_backend *cl, ag_cl_token *token,
                              const ag_cl_token_shape *shape);
void ag_cl_token_release_store(ag_cl_token *token);
/* Where the buffer begins for kernels. */
ag_status ag_cl_token_address(ag_cl_backend *cl, ag_buffer *buf, uint64_t *out);
/* What the step tells of the token and the cache, on its way to the device. */
ag_status ag_cl_token_upload(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step,
                             uint32_t first_tag);

/* token_result.c: waits for the launch and reads what it leaves. token->result.aborted: nothing
 * else was. */
ag_status ag_cl_token_read(ag_cl_backend *cl, ag_cl_token *token, const ag_step *step);

#endif
