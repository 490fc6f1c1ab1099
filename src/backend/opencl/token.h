/* SPDX-License-Identifier: Apache-2.0 */
/* A whole decode step in one launch of kernels/token.cl: which steps, the program that tells the
 * kernel what to do, and the boxes its groups talk through. */
#ifndef AG_OPENCL_TOKEN_H
#define AG_OPENCL_TOKEN_H

#include "backend/opencl/ops.h"

/* One step of the program, as kernels/token_product.cl has it. */
typedef enum ag_cl_stage_type {
    AG_CL_NORMED,
    AG_CL_ATTENTION,
    AG_CL_ADDED,
    AG_CL_GATED,
    AG_CL_LOGITS,
} ag_cl_stage_type;

typedef struct ag_cl_token_stage {
    cl_uint type, rows, k, layer;
    cl_uint in_tag, end1, end2, pad;
    cl_ulong w1, s1, w2, s2, w3, s3;
    cl_ulong norm, in, out;
} ag_cl_token_stage;

/* Sizes that the kernel and its boxes are made for. */
typedef struct ag_cl_token_shape {
    uint32_t dim, q_dim, kv_dim, ffn_dim, n_vocab;
    uint32_t n_layers, n_kv, head_dim, group; /* query heads of a KV head */
    uint32_t n_groups;                        /* work-groups */
    uint32_t max_blocks;                      /* of a layer's cache */
    uint32_t k_type, v_type;                  /* ag_dtype of the cache */
    uint32_t has_biases;                      /* of q, k, v or o */
    uint32_t piece;                           /* of the Hadamard rotation; 1: none */
} ag_cl_token_shape;

/* Where things lie in the one buffer, from its start. Boxes hold packets of 8 bytes. */
typedef struct ag_cl_token_layout {
    size_t stream;         /* [dim] packets; the host puts the embedding there */
    size_t cos_sin;        /* [head_dim / 2] pairs */
    size_t n_slots;        /* [n_layers][n_kv] */
    size_t inbox_bytes;    /* the three above, one upload for each token */
    size_t program;        /* [5 * n_layers + 1] stages */
    size_t blocks;         /* [n_layers][max_blocks] addresses */
    size_t qkv, out, gate; /* boxes; blocks of 10 packets in the last two */
    size_t partial;        /* box: what pieces of a head leave */
    size_t aborted;
    size_t bytes;
} ag_cl_token_layout;

enum { AG_CL_TOKEN_ITEMS = 256, AG_CL_TOKEN_ITEMS_CPU = 4 };

struct ag_cl_token {
    bool refused; /* this device has shown that it cannot */
    ag_cl_token_shape shape;
    ag_cl_token_layout at;
    ag_buffer *store; /* owned */
    uint64_t address; /* of it */
    uint32_t next_tag;
    ag_cl_token_stage *program,
        *uploaded;        /* owned; [n_stages] being made, and what the device has */
    cl_ulong *blocks;     /* owned; [n_layers][max_blocks] as the device has them */
    unsigned char *inbox; /* owned */
    cl_uint aborted;      /* read after every step */
};

/* The slot decode_step. Taken on NVIDIA's GPUs, for Q4_0 weights and what has run there;
 * AG_OPENCL_TOKEN=0 takes none, =1 tries every device, with one work-group on processors, and all
 * that the kernel is written for. */
ag_status ag_cl_decode_step(ag_backend *b, const ag_decode_step *step, bool *taken);
void ag_cl_token_close(ag_cl_backend *cl);

/* token_program.c: false if the step is not one for the kernel. n_groups is at most what the device
 * was asked for. */
bool ag_cl_token_shape_of(const ag_cl_backend *cl, const ag_decode_step *step,
                          ag_cl_token_shape *out);
/* Whether such heads and caches have run on a GPU: wrong text would be silent. */
bool ag_cl_token_has_run(const ag_cl_token_shape *s);
uint32_t ag_cl_token_stages(const ag_cl_token_shape *s);
/* Addresses of all weights are looked up, so buffers may come and go. */
ag_status ag_cl_token_write_program(ag_cl_backend *cl, const ag_decode_step *step,
                                    ag_cl_token *token);

/* token_boxes.c: room for a shape; keeps what is there if it fits. */
ag_status ag_cl_token_reserve(ag_cl_backend *cl, ag_cl_token *token,
                              const ag_cl_token_shape *shape);
void ag_cl_token_release_store(ag_cl_token *token);
/* Where the buffer begins for kernels. */
ag_status ag_cl_token_address(ag_cl_backend *cl, ag_buffer *buf, uint64_t *out);
/* What the step tells of the token and the cache, on its way to the device. */
ag_status ag_cl_token_upload(ag_cl_backend *cl, ag_cl_token *token, const ag_decode_step *step,
                             uint32_t first_tag);

#endif
