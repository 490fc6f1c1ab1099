/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes one token in one launch. The host writes a list of stages, one for each product and each
 * attention. Every work-group runs all stages and computes its share of each. There is no barrier
 * between groups: a value is sent as a packet with the tag of its stage (token_device.cl), and its
 * reader polls for the tag. All groups must be resident at the same time, else running groups would
 * wait for others forever; waits are therefore bounded.
 *
 * A mailbox is reused two or more stages after it was read. This is safe because every group has
 * rows of every q/k/v product and of every gate/up product, so no group can be two stages ahead.
 * The host limits the number of groups accordingly. */
/* Rows that a warp computes at a time: of q, k and v, and of a weight with short rows. */
#ifndef SPLIT_UNITS
#define SPLIT_UNITS 3
#endif
#ifndef ROW_UNITS
#define ROW_UNITS 2
#endif
#include "token_attention.cl"
#include "token_select.cl"

#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define X_BYTES (X_BLOCKS * (ALL_TYPES & FLOATS16 ? 128 : 32 + 8))
#define SCRATCH_BYTES MAX(MAX(X_BYTES, ATTENTION_FLOATS * 4), AG_CL_TOKEN_MAXIMA * 4)
/* A group computes at most 32 rows of gate and up at a time. */
#define PAIR_UNITS (WARPS >= 32 ? 2 : 4)

typedef uint __attribute__((may_alias)) word;
enum { STAGE_WORDS = sizeof(stage) / sizeof(uint) };

/* Runs all stages, with LOCAL work-items in a group. Addresses come from address_of().
 *   first_tag  tag of the packets that the host wrote to the first mailbox; stage i writes packets
 * with tag first_tag + 1 + i cos_sin    [HEAD_DIM / 2] pairs for this position */
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void
token(ulong program_at, uint n_stages, uint first_tag, ulong aborted_at, ulong cos_sin,
      ulong blocks, ulong n_slots, ulong partial, ulong scores, uint n_kv, uint max_blocks,
      uint v_offset, uint p_offset, uint position, float scale, float eps) {
    __local uint4 scratch[(SCRATCH_BYTES + 15) / 16];
    __local float squares[WARPS];
    __local float gated[2 * 32];
    __local float bound;
    __local float2 rotations[HEAD_DIM / 2];
    __local stage stages[2]; /* the current and the next stage */
    const uint item = get_local_id(0), group = get_group_id(0), n_groups = get_num_groups(0);
    __global const stage *program = (__global const stage *)program_at;
    volatile __global uint *aborted = (volatile __global uint *)aborted_at;
    const cache c = {blocks,   n_slots,  partial,  scores, n_kv, max_blocks,
                     v_offset, p_offset, position, scale,  eps};
    const input x = {scratch, (__local float2 *)(scratch + X_BLOCKS * 2), squares};
    const attention_scratch d = layout_scratch((__local float *)scratch, rotations);
    const uint most_pieces = max(n_groups / n_kv, 1u);
    for (uint i = item; i < HEAD_DIM / 2; i += LOCAL)
        rotations[i] = ((__global const float2 *)cos_sin)[i];
    for (uint i = item; i < STAGE_WORDS; i += LOCAL)
        ((__local word *)stages)[i] = ((__global const word *)program)[i];
    for (uint i = 0; i < n_stages; i++) {
        barrier(CLK_LOCAL_MEM_FENCE); /* the stage is loaded, and scratch is free */
        __local const stage *st = &stages[i & 1];
        __local word *next = (__local word *)&stages[(i + 1) & 1];
        word pending = 0; /* loaded while this stage runs */
        if (i + 1 < n_stages) {
            __global const word *from = (__global const word *)(program + i + 1);
            if (item < STAGE_WORDS) pending = from[item];
            for (uint j = item + LOCAL; j < STAGE_WORDS; j += LOCAL) next[j] = from[j];
        }
        const uint in_tag = first_tag + st->in_tag, out_tag = first_tag + 1 + i;
#define PRODUCT(kind, units, types)                                                            \
    product(kind, units, types, st, x, gated, &f, in_tag, out_tag, eps, group, n_groups, item, \
            aborted)
        found f = {-INFINITY, ~0u};
        if (st->type == AG_CL_SELECT) {
            choose_best(st, (__local float *)scratch, &bound, in_tag, group, n_groups, item,
                        aborted);
        } else if (st->type == AG_CL_ATTENTION) {
            for (uint unit = group; unit < n_kv * most_pieces; unit += n_groups) {
                barrier(CLK_LOCAL_MEM_FENCE);
                attention(&c, st, d, in_tag, out_tag, unit, most_pieces, item, aborted);
            }
        }
#if WARP > 1
/* Calls the code for one type of weight. */
#define OF_TYPE(T, kind, units, set)                                         \
    if ((set)&SET_OF(TYPE_##T) && (is_one(set) || st->types[0] == TYPE_##T)) \
        PRODUCT(kind, units, SET_OF(TYPE_##T));
#define BY_TYPE(kind, units, set)         \
    do {                                  \
        OF_TYPE(Q4_0, kind, units, set)   \
        OF_TYPE(Q4_1, kind, units, set)   \
        OF_TYPE(Q5_0, kind, units, set)   \
        OF_TYPE(Q5_1, kind, units, set)   \
        OF_TYPE(Q8_0, kind, units, set)   \
        OF_TYPE(Q2_K, kind, units, set)   \
        OF_TYPE(Q3_K, kind, units, set)   \
        OF_TYPE(Q4_K, kind, units, set)   \
        OF_TYPE(Q5_K, kind, units, set)   \
        OF_TYPE(Q6_K, kind, units, set)   \
        OF_TYPE(IQ4_NL, kind, units, set) \
        OF_TYPE(MXFP4, kind, units, set)  \
        OF_TYPE(F16, kind, units, set)    \
        OF_TYPE(BF16, kind, units, set)   \
    } while (0)
        else if (st->type == AG_CL_NORMED)
            PRODUCT(SPLIT, SPLIT_UNITS, SPLIT_TYPES);
        else if (st->type == AG_CL_GATED) PRODUCT(PAIRS, PAIR_UNITS, PAIR_TYPES);
        else if (st->type == AG_CL_LOGITS) BY_TYPE(FLOATS, 4, LOGIT_TYPES);
        else if (st->k <= AG_CL_TOKEN_LONG) BY_TYPE(ROWS, ROW_UNITS, ROW_TYPES);
        else BY_TYPE(LONG, 4, LONG_TYPES);
#undef BY_TYPE
#undef OF_TYPE
#else /* shared code: compilers for processors take long for barriers */
        else {
            int kind = ROWS, units = 1;
            if (st->type == AG_CL_GATED) kind = PAIRS, units = PAIR_UNITS;
            if (st->type == AG_CL_NORMED) kind = SPLIT, units = 2;
            if (st->type == AG_CL_LOGITS) kind = FLOATS, units = 4;
            PRODUCT(kind, units, ALL_TYPES);
        }
#endif
#undef PRODUCT
        if (st->type == AG_CL_LOGITS && st->end1) {
            /* The group reads its own logits after this barrier. */
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            send_maxima(&f, gated, st->extra[0], st->end1, st->extra[1], out_tag, group, item);
        }
        if (item < STAGE_WORDS) next[item] = pending;
    }
}
