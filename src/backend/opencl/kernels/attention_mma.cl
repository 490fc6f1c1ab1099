/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of many queries on NVIDIA's tensor cores (compute capability 8 and above), with a
 * running softmax: the kernel `attend` of attention.cl, with the same arguments and results. Other
 * devices emulate the same steps, slowly.
 *
 * A warp has 16 queries of one KV head, of any rows; a work-group has WARPS warps, which share keys
 * and values. SLOTS slots at a time are copied to local memory, as F16, while the ones before are
 * used. Queries and weights are F16, sums are floats. With lane = 4 g + t, a lane has the scores of
 * queries g and g + 8 with slots 8 j + 2 t and 8 j + 2 t + 1. */
#include "attention_params.cl"
#include "kv_load.cl"
#include "mma.cl"
#include "warp.cl"

#ifndef DIM
#define DIM 64 /* values of a head: a multiple of 16, at most 128 */
#define WARPS 4
#define K_TYPE 1 /* ag_dtype of keys; F16 is copied without a conversion */
#define V_TYPE 1
#endif
enum { GROUP = WARP * WARPS, QUERIES = 16 * WARPS, SLOTS = DIM > 64 ? 32 : 64 };
/* The stride of rows spreads eight of them over all banks. */
enum { PITCH = DIM * 2 + 16, PIECES = DIM / 8, TILE_BYTES = SLOTS * PITCH };
enum { STAGE_BYTES = 2 * TILE_BYTES, SLOT_TILES = SLOTS / 8, DIM_TILES = DIM / 8 };

/* ---- copies to local memory ---- */

/* Starts the copy of 16 bytes, or stores zeros. */
static inline void copy_or_clear(__local uchar *to, __global const uchar *from, bool copies) {
#ifdef __NV_CL_C_VERSION
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint)(size_t)to), "l"(from), "r"(copies ? 16u : 0u)
                 : "memory");
#else
    *(__local uint4 *)to = copies ? *(__global const uint4 *)from : (uint4)0;
#endif
}

/* Copies SLOTS rows as F16. Slots from n on and those that no query sees, whose values may be
 * anything, become 0. */
static inline void copy_rows(__local uchar *to, __global const uchar *rows, uint type,
                             __global const uint *positions, uint n, uint2 seen) {
    const ulong row = row_bytes(type, DIM);
    UNROLL for (uint i = get_local_id(0); i < SLOTS * PIECES; i += GROUP) {
        const uint slot = i / PIECES, piece = i % PIECES, position = positions[slot];
        const bool copies = slot < n && position < seen.y && position >= seen.x;
        __local uchar *at = to + slot * PITCH + piece * 16;
        if (type == TYPE_F16) {
            copy_or_clear(at, rows + slot * row + piece * 16, copies);
        } else {
            float4 low = 0, high = 0;
            if (copies) {
                low = load4(type, rows + slot * row, piece * 8, DIM);
                high = load4(type, rows + slot * row, piece * 8 + 4, DIM);
            }
            vstore_half8_rte((float8)(low, high), 0, (__local half *)at);
        }
    }
}

/* ---- fragments ---- */

#ifdef __NV_CL_C_VERSION
static inline uint4 load_transposed(__local const uchar *row) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"((uint)(size_t)row)
                 : "memory");
    return v;
}

static inline void multiply_add(float *c, uint4 a, uint b0, uint b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* The operands of the warp's queries. */
typedef struct queries {
    uint4 q[DIM / 16];
} queries;

static inline queries load_queries(__local const uchar *tile, uint warp, uint lane) {
    queries out;
    UNROLL for (uint k = 0; k < DIM / 16; k++) {
        out.q[k] = load_matrices(tile + (warp * 16 + lane % 16) * PITCH + (2 * k + lane / 16) * 16);
    }
    return out;
}

/* Computes the scores of the warp's queries. */
static inline void score_slots(float s[SLOT_TILES][4], queries q, __local const uchar *keys,
                               uint lane) {
    __local const uchar *row = keys + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 16;
    UNROLL for (uint j = 0; j < SLOT_TILES; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
    UNROLL for (uint k = 0; k < DIM / 16; k++) UNROLL for (uint j = 0; j < SLOT_TILES; j += 2) {
        const uint4 b = load_matrices(row + j * (8 * PITCH) + k * 32);
        multiply_add(s[j], q.q[k], b.x, b.y);
        multiply_add(s[j + 1], q.q[k], b.z, b.w);
    }
}

/* Adds the values of the slots, weighted by p. */
static inline void add_values(float o[DIM_TILES][4], float p[SLOT_TILES][4],
                              __local const uchar *values, uint lane) {
    __local const uchar *row = values + lane % 16 * PITCH + lane / 16 * 16;
    UNROLL for (uint k = 0; k < SLOTS / 16; k++) {
        const uint4 a =
            (uint4)(pack_halves(p[2 * k][0], p[2 * k][1]), pack_halves(p[2 * k][2], p[2 * k][3]),
                    pack_halves(p[2 * k + 1][0], p[2 * k + 1][1]),
                    pack_halves(p[2 * k + 1][2], p[2 * k + 1][3]));
        UNROLL for (uint j = 0; j < DIM_TILES; j += 2) {
            const uint4 b = load_transposed(row + k * (16 * PITCH) + j * 16);
            multiply_add(o[j], a, b.x, b.y);
            multiply_add(o[j + 1], a, b.z, b.w);
        }
    }
}
#else
/* The same steps without matrix instructions. */
typedef struct queries {
    __local const uchar *tile; /* the rows of the warp */
} queries;

static inline float half_at(__local const uchar *row, uint i) {
    return vload_half(i, (__local const half *)row);
}

static inline queries load_queries(__local const uchar *tile, uint warp, uint lane) {
    return (queries){tile + warp * 16 * PITCH};
}

static inline void score_slots(float s[SLOT_TILES][4], queries q, __local const uchar *keys,
                               uint lane) {
    for (uint j = 0; j < SLOT_TILES; j++) {
        for (uint e = 0; e < 4; e++) {
            __local const uchar *query = q.tile + (lane / 4 + e / 2 * 8) * PITCH;
            __local const uchar *key = keys + (8 * j + lane % 4 * 2 + e % 2) * PITCH;
            s[j][e] = 0;
            for (uint i = 0; i < DIM; i++)
                s[j][e] = fma(half_at(query, i), half_at(key, i), s[j][e]);
        }
    }
}

/* p [QUERIES][SLOTS] are the weights of all lanes. */
static inline void add_values(float o[DIM_TILES][4], __local const float *p,
                              __local const uchar *values, uint lane) {
    for (uint slot = 0; slot < SLOTS; slot++) {
        for (uint j = 0; j < DIM_TILES; j++) {
            for (uint e = 0; e < 4; e++) {
                const float weight = p[(lane / 4 + e / 2 * 8) * SLOTS + slot];
                const float v = half_at(values + slot * PITCH, 8 * j + lane % 4 * 2 + e % 2);
                o[j][e] = fma(weight, v, o[j][e]);
            }
        }
    }
}
#endif

/* ---- softmax ---- */

/* Returns the maximum, or the sum, over the four lanes that share a query. */
static inline float max_of_query(float v, __local float *scratch) {
    v = fmax(v, from_lane(v, 1, scratch));
    return fmax(v, from_lane(v, 2, scratch));
}
static inline float sum_of_query(float v, __local float *scratch) {
    v += from_lane(v, 1, scratch);
    return v + from_lane(v, 2, scratch);
}

/* A lane's two queries. Scores are in units of log2(e). */
typedef struct running {
    float largest[2], total[2]; /* total: of the lane's slots */
    uint until[2], from[2];     /* last visible position + 1 (0: no such query), first one */
} running;

#define LN_2 0.69314718f

/* Scales and hides scores. positions: of the slots. */
static inline void hide_scores(float s[SLOT_TILES][4], const running *r,
                               __local const uint *positions, float scale, float cap, uint lane) {
    UNROLL for (uint j = 0; j < SLOT_TILES; j++) UNROLL for (uint e = 0; e < 4; e++) {
        const uint position = positions[8 * j + lane % 4 * 2 + e % 2];
        bool hidden = position >= r->until[e / 2];
        if (WINDOW) hidden |= position < r->from[e / 2];
        const float v =
            SOFTCAP ? cap * tanh(s[j][e] * scale / cap) * LOG2_E : s[j][e] * (scale * LOG2_E);
        s[j][e] = hidden ? -INFINITY : v;
    }
}

/* Replaces scores by their exponentials and returns the factors of earlier sums. */
static inline float2 softmax_step(float s[SLOT_TILES][4], running *r, __local float *scratch) {
    float faded[2];
    UNROLL for (uint i = 0; i < 2; i++) {
        float now = -INFINITY, sum = 0;
        UNROLL for (uint j = 0; j < SLOT_TILES; j++) {
            now = fmax(now, fmax(s[j][2 * i], s[j][2 * i + 1]));
        }
        now = fmax(r->largest[i], max_of_query(now, scratch));
        const float base = now == -INFINITY ? 0.0f : now;
        UNROLL for (uint j = 0; j < SLOT_TILES; j++) UNROLL for (uint e = 0; e < 2; e++) {
            s[j][2 * i + e] = exp2(s[j][2 * i + e] - base);
            sum += s[j][2 * i + e];
        }
        faded[i] = exp2(r->largest[i] - base);
        r->total[i] = fma(r->total[i], faded[i], sum);
        r->largest[i] = now;
    }
    return (float2)(faded[0], faded[1]);
}

#if WINDOW
/* Clears the values of slots that no row from first to last sees: windows may leave gaps. */
static inline void clear_unseen(__local uchar *values, __local const uint *positions,
                                __global const uint *until, __global const uint *from, uint first,
                                uint last) {
    const uint slot = get_local_id(0);
    if (slot >= SLOTS) return;
    const uint position = positions[slot];
    while (first < last) {
        const uint middle = (first + last) / 2;
        if (until[middle] < position) first = middle + 1;
        else last = middle;
    }
    if (until[first] >= position && from[first] <= position) return;
    __local uint4 *row = (__local uint4 *)(values + slot * PITCH);
    for (uint i = 0; i < PIECES; i++) row[i] = 0;
}
#endif

/* ---- the kernel ---- */

/* Stores queries as F16. Missing ones are copies of the last one. */
static inline void copy_queries(__local uchar *tile, __global const float *q, uint head, uint heads,
                                uint query0, uint n_queries, uint group) {
    for (uint i = get_local_id(0); i < QUERIES * PIECES; i += GROUP) {
        const uint query = min(query0 + i / PIECES, n_queries - 1);
        const ulong row = ((ulong)(query / group) * heads + head) * group + query % group;
        const float8 v = vload8(0, q + row * DIM + i % PIECES * 8);
        vstore_half8_rte(v, 0, (__local half *)(tile + i / PIECES * PITCH + i % PIECES * 16));
    }
}

/* Returns the first slot from slot0 on, in steps of SLOTS, that any query may see; `end`: none. */
#define FIND_SLOTS(slot0)                                                                      \
    for (; slot0 < end; slot0 += SLOTS) {                                                      \
        __global const uint *at =                                                              \
            UINTS(BLOCK_AT(head, slot0 / KV_BLOCK), p_at) + slot0 % KV_BLOCK;                  \
        if (at[0] >= seen.y) slot0 = end;                                                      \
        if (slot0 >= end || !WINDOW || at[min(end - slot0, (uint)SLOTS) - 1] >= seen.x) break; \
    }

/* Starts the copies of the slots from slot0 on. */
#define COPY_SLOTS(slot0, to)                                                                    \
    if (slot0 < end) {                                                                           \
        __global const uchar *block = BLOCK_AT(head, slot0 / KV_BLOCK);                          \
        const uint first = slot0 % KV_BLOCK, n = min(end - slot0, (uint)SLOTS);                  \
        __global const uint *at = UINTS(block, p_at) + first;                                    \
        __local uchar *stage = memory + (to)*STAGE_BYTES;                                        \
        copy_rows(stage, block + first * row_bytes(K_TYPE, DIM), K_TYPE, at, n, seen);           \
        copy_rows(stage + TILE_BYTES, block + v_at + first * row_bytes(V_TYPE, DIM), V_TYPE, at, \
                  n, seen);                                                                      \
        if (lid < SLOTS) positions[to][lid] = lid < n ? at[lid] : ~0u;                           \
    }

/* Does what `attend` of attention.cl does, with groups of GROUP and QUERIES queries. */
__kernel __attribute__((reqd_work_group_size(WARP * WARPS, 1, 1))) void
attend(ARRAY(out), ARRAY(stats), CONST_ARRAY(q), CACHE_PARAMS, uint k_type, uint v_type, ulong v_at,
       float scale, uint span, uint n_spans) {
    __local uchar memory[2 * STAGE_BYTES] __attribute__((aligned(128)));
    __local uint positions[2][SLOTS];
#ifdef __NV_CL_C_VERSION
    __local uchar *query_tile = memory; /* until the operands are in registers */
    __local float *scratch = 0;
#else
    __local uchar query_tile[QUERIES * PITCH] __attribute__((aligned(16)));
    __local float scratch[GROUP], weights[QUERIES * SLOTS];
#endif
    const uint lid = get_local_id(0), lane = lid % WARP, warp = lid / WARP;
    const uint head = get_group_id(1), query0 = get_group_id(2) * QUERIES;
    const uint n_queries = n_rows * group, slots = UINTS(slots_of, slots_at)[head];
    const uint begin = get_group_id(0) * span, end = min(slots, begin + span);
    __global const uint *until_of = CONST_UINTS(until), *from_of = CONST_UINTS(from);
    /* Positions that any query of the group sees: from x to before y. */
    const uint last_row = min(query0 + QUERIES, n_queries) - 1;
    const uint2 seen =
        (uint2)(WINDOW ? from_of[query0 / group] : 0, until_of[last_row / group] + 1);

    copy_queries(query_tile, CONST_FLOATS(q), head, heads, query0, n_queries, group);
    barrier(CLK_LOCAL_MEM_FENCE);
    const queries mine = load_queries(query_tile, warp, lane);
    barrier(CLK_LOCAL_MEM_FENCE);

    running r;
    UNROLL for (uint i = 0; i < 2; i++) {
        const uint query = query0 + warp * 16 + lane / 4 + 8 * i;
        r.largest[i] = -INFINITY;
        r.total[i] = 0;
        r.until[i] = query < n_queries ? until_of[query / group] + 1 : 0;
        r.from[i] = WINDOW && query < n_queries ? from_of[query / group] : 0;
    }
    float o[DIM_TILES][4];
    UNROLL for (uint j = 0; j < DIM_TILES; j++) o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0;

    uint slot0 = begin, stage_index = 0;
    FIND_SLOTS(slot0)
    COPY_SLOTS(slot0, 0)
    END_COPIES;
    while (slot0 < end) {
        WAIT_COPIES(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        uint next = slot0 + SLOTS;
        FIND_SLOTS(next)
        COPY_SLOTS(next, stage_index ^ 1)
        END_COPIES;
        __local const uchar *keys = memory + stage_index * STAGE_BYTES;
        float s[SLOT_TILES][4];
#if WINDOW
        clear_unseen(memory + stage_index * STAGE_BYTES + TILE_BYTES, positions[stage_index],
                     until_of, from_of, query0 / group, last_row / group);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        score_slots(s, mine, keys, lane);
        hide_scores(s, &r, positions[stage_index], scale, cap, lane);
        const float2 faded = softmax_step(s, &r, scratch);
        UNROLL for (uint j = 0; j < DIM_TILES; j++) {
            o[j][0] *= faded.x;
            o[j][1] *= faded.x;
            o[j][2] *= faded.y;
            o[j][3] *= faded.y;
        }
#ifdef __NV_CL_C_VERSION
        add_values(o, s, keys + TILE_BYTES, lane);
#else
        for (uint j = 0; j < SLOT_TILES; j++) {
            for (uint e = 0; e < 4; e++) {
                const uint query = warp * 16 + lane / 4 + e / 2 * 8;
                const float rounded = half_value(half_bits(s[j][e]));
                weights[query * SLOTS + 8 * j + lane % 4 * 2 + e % 2] = rounded;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        add_values(o, weights + warp * 16 * SLOTS, keys + TILE_BYTES, lane);
#endif
        slot0 = next;
        stage_index ^= 1;
    }
    UNROLL for (uint i = 0; i < 2; i++) {
        const uint query = query0 + warp * 16 + lane / 4 + 8 * i;
        const float total = sum_of_query(r.total[i], scratch);
        if (query >= n_queries) continue;
        const ulong row = ((ulong)(query / group) * heads + head) * group + query % group;
        const ulong to = row * n_spans + get_group_id(0);
        const float factor = n_spans > 1 ? 1.0f : total > 0 ? 1.0f / total : total;
        __global float *values = FLOATS(out) + to * DIM + lane % 4 * 2;
        UNROLL for (uint j = 0; j < DIM_TILES; j++) {
            vstore2((float2)(o[j][2 * i], o[j][2 * i + 1]) * factor, 0, values + 8 * j);
        }
        if (lane % 4 == 0) {
            const float2 pair = (float2)(r.largest[i] * LN_2, total);
            vstore2(pair, 0, FLOATS(stats) + 2 * to);
        }
    }
}
