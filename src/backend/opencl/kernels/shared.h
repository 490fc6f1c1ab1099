/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that host and kernels share: for decoding a token in one launch, and for attention of
 * sequences of one row each. Host and device check their sizes. */
#ifndef AG_OPENCL_SHARED_H
#define AG_OPENCL_SHARED_H

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
typedef uint ag_cl_u32;
typedef ulong ag_cl_u64;
typedef int ag_cl_i32;
#define AG_CL_SIZE_IS(type, n) typedef char type##_size[sizeof(type) == (n) ? 1 : -1]
#else
#include <stdint.h>
typedef uint32_t ag_cl_u32;
typedef uint64_t ag_cl_u64;
typedef int32_t ag_cl_i32;
#define AG_CL_SIZE_IS(type, n) _Static_assert(sizeof(type) == (n), "as on the device")
#endif

typedef enum ag_cl_stage_type {
    AG_CL_NORMED,
    AG_CL_ATTENTION,
    AG_CL_ADDED,
    AG_CL_GATED,
    AG_CL_LOGITS,
    AG_CL_SELECT,
} ag_cl_stage_type;

/* Addresses of a weight's planes (weights.cl), shifted as if it had all rows of its stage: levels,
 * higher bits, factors, further factors. */
typedef struct ag_cl_token_weight {
    ag_cl_u64 levels, high, factors, more;
} ag_cl_token_weight;

/* A stage. */
enum { AG_CL_TOKEN_WEIGHTS = 3, AG_CL_TOKEN_EXTRA = 5 };
typedef struct ag_cl_token_stage {
    ag_cl_u32 type, rows, k, layer;
    ag_cl_u32 in_tag;     /* tag of the packets that it reads, counted from the token's first tag */
    ag_cl_u32 end1, end2; /* first rows of the second and the third weight */
    ag_cl_u32 window;     /* ATTENTION: newest positions that are visible; 0: all */
    ag_cl_u32 types[AG_CL_TOKEN_WEIGHTS]; /* ag_dtype of each weight */
    ag_cl_u32 sends_floats; /* in place of blocks, because the next weight is in F16 or BF16 */
    ag_cl_u64 norm;         /* weights of the norm before the product; 0: none */
    ag_cl_u64 in, out;      /* mailboxes of packets; LOGITS: out has floats */
    /* ADDED: a bias. ATTENTION: biases of q, k and v, norms of queries and keys; 0: none. LOGITS:
     * the mailbox of maxima and the result. SELECT: the request and the result. */
    ag_cl_u64 extra[AG_CL_TOKEN_EXTRA];
    ag_cl_token_weight w[AG_CL_TOKEN_WEIGHTS];
} ag_cl_token_stage;
AG_CL_SIZE_IS(ag_cl_token_stage, 208);

/* Columns from which on several segments of a row are multiplied at a time. */
enum { AG_CL_TOKEN_LONG = 4096 };

/* The request to the last stage and the result of a launch. */
enum { AG_CL_TOKEN_LISTED = 384, AG_CL_TOKEN_MAXIMA = 1024, AG_CL_TOKEN_IDS = 128 };

typedef struct ag_cl_token_request {
    ag_cl_u32 k, n_ids;
    ag_cl_i32 ids[AG_CL_TOKEN_IDS];
} ag_cl_token_request;
AG_CL_SIZE_IS(ag_cl_token_request, 8 + 4 * AG_CL_TOKEN_IDS);

typedef struct ag_cl_token_result {
    ag_cl_u32 aborted;  /* a group stopped waiting */
    ag_cl_u32 bad;      /* first logit that is NaN or +Inf; ~0, the host's initial value: none */
    ag_cl_u32 n_listed; /* may exceed AG_CL_TOKEN_LISTED */
    ag_cl_u32 pad;
    float at[AG_CL_TOKEN_IDS];            /* logits of the requested ids */
    ag_cl_u64 listed[AG_CL_TOKEN_LISTED]; /* candidates for the best k, unordered */
} ag_cl_token_result;
AG_CL_SIZE_IS(ag_cl_token_result, 16 + 4 * AG_CL_TOKEN_IDS + 8 * AG_CL_TOKEN_LISTED);

/* Slots of a sequence that a work-group of attention_rows.cl attends to: index * slots and the next
 * ones. A KV head has n_blocks entries in the table of blocks, from first_entry on. first_part: the
 * spans of the sequences before. */
typedef struct ag_cl_span {
    ag_cl_u32 row, index, slots, first_part, first_entry, n_blocks;
} ag_cl_span;
AG_CL_SIZE_IS(ag_cl_span, 24);

/* Floats of a query head's scores of n slots, in units of log2(e): then come the largest score and
 * the sum of weights. */
#define AG_CL_SCORES(n) ((n) + 4)

/* The scores of a sequence in a layer, and where sum_weights.cl adds the weights. */
typedef struct ag_cl_scored {
    ag_cl_u64 scores; /* index of the first float of [heads][group][AG_CL_SCORES(stride)] */
    ag_cl_u64 sums;   /* address of [slots][heads] floats */
    ag_cl_u32 stride, use_max;
} ag_cl_scored;
AG_CL_SIZE_IS(ag_cl_scored, 24);

#endif
