/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of token.cl for one row. A KV head is processed by one group, or its slots are divided
 * into pieces for several groups; the group of piece 0 merges them. */
#ifndef TOKEN_ATTENTION
#define TOKEN_ATTENTION

#include "token_product.cl"
#include "token_rows.cl"

#ifndef GROUP
#define GROUP 4 /* query heads of a KV head */
#endif
#ifndef PIECE
#define PIECE 1 /* size of the Hadamard rotation: 16, 32 or 64; 1: none */
#endif
#ifndef WINDOW
#define WINDOW 0 /* 1: some stages have a window */
#endif
#ifndef QK_NORM
#define QK_NORM 0 /* 1: queries and keys are normalised before they are rotated */
#endif
#ifndef SCORES
#define SCORES 0 /* 1: writes scores for sum_weights.cl when they are wanted */
#endif
#define BLOCK_SLOTS 128                 /* slots of a block of the cache */
#define STEP_SLOTS (WARP == 1 ? 1 : 16) /* slots that a warp attends to at a time */
#define STEPS_A_WARP 2                  /* steps of a warp before a head is divided into pieces */

/* Inputs of attention besides the stage. */
typedef struct cache {
    ulong blocks;  /* [layers][n_kv][max_blocks] addresses */
    ulong n_slots; /* [layers][n_kv] slots before this token */
    ulong partial; /* packets [n_kv][pieces][GROUP * (HEAD_DIM + 2)] */
    ulong scores;  /* [layers][n_kv][GROUP] rows for sum_weights.cl; 0: not needed */
    uint n_kv, max_blocks, v_offset, p_offset, position;
    float scale, eps;
} cache;

/* Local memory of a group. */
typedef struct attention_scratch {
    __local float *rows;     /* [GROUP + 2][HEAD_DIM] the head's queries, its key, its value */
    __local float *rounded;  /* [2][HEAD_DIM] the key and the value, rounded as in the cache */
    __local float *stats;    /* [WARPS][GROUP][2] largest score, sum */
    __local float *values;   /* [WARPS][GROUP][HEAD_DIM] */
    __local float2 *cos_sin; /* [HEAD_DIM / 2] */
    ulong scores;            /* [GROUP] rows of the head; 0: not needed */
    uint score_stride;       /* slots, then the largest score and the sum of weights */
} attention_scratch;
#define ATTENTION_FLOATS ((GROUP + 4) * HEAD_DIM + WARPS * GROUP * (HEAD_DIM + 2))

static inline attention_scratch layout_scratch(__local float *memory, __local float2 *cos_sin) {
    attention_scratch d;
    d.rows = memory;
    d.rounded = memory + (GROUP + 2) * HEAD_DIM;
    d.stats = memory + (GROUP + 4) * HEAD_DIM;
    d.values = d.stats + WARPS * GROUP * 2;
    d.cos_sin = cos_sin;
    d.scores = 0;
    d.score_stride = 0;
    return d;
}

static inline __global float *score_row(attention_scratch d, uint g) {
    return (__global float *)(d.scores + (ulong)g * AG_CL_SCORES(d.score_stride) * 4);
}

static inline uint steps_of(uint n_slots) { return (n_slots + STEP_SLOTS - 1) / STEP_SLOTS; }

static inline uint pieces_of(uint steps, uint max_pieces) {
    const uint a_piece = WARPS * STEPS_A_WARP;
    return clamp((steps + a_piece - 1) / a_piece, 1u, max_pieces);
}

/* Returns the address of a slot's key in the blocks of keys, or of its value in those of values. */
static inline ulong slot_address(__global const ulong *blocks, uint slot, const uint type) {
    return blocks[slot / BLOCK_SLOTS] + slot % BLOCK_SLOTS * row_bytes(type, HEAD_DIM);
}

static inline uint position_of(const cache *c, __global const ulong *blocks, uint slot) {
    __global const uint *positions =
        (__global const uint *)(blocks[slot / BLOCK_SLOTS] + c->p_offset);
    return positions[slot % BLOCK_SLOTS];
}

/* Returns the first of n_slots slots that is visible to the token. If no slot was evicted in
 * between, slots are consecutive positions; this case is tried first. */
static inline uint first_visible(const cache *c, __global const ulong *blocks, uint n_slots,
                                 uint window) {
    if (!window || c->position < window) return 0;
    const uint from = c->position + 1 - window;
    uint low = 0, high = n_slots; /* the result is in [low, high] */
    const uint guess = n_slots + 1 < window ? 0 : n_slots + 1 - window;
    if (guess < n_slots && position_of(c, blocks, guess) == from) return guess;
    while (low < high) {
        const uint middle = (low + high) / 2;
        if (position_of(c, blocks, middle) < from) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- the token's own rows ---- */

static inline void receive_rows(attention_scratch d, const cache *c, __local const stage *st,
                                uint head, uint tag, uint item, volatile __global uint *aborted) {
    const ulong in = st->in;
    for (uint i = item; i < (GROUP + 2) * HEAD_DIM / 2; i += LOCAL) {
        const uint row = i * 2 / HEAD_DIM, column = i * 2 % HEAD_DIM;
        const uint own = row < GROUP ? head * GROUP + row : head; /* head of q, k or v */
        const uint before = row < GROUP ? 0 : row * c->n_kv;
        const uint at = (before + own) * HEAD_DIM + column;
        const ulong biases = st->extra[row < GROUP ? 0 : row == GROUP ? 1 : 2];
        ulong2 v = peek2(in, at);
        float2 bias = (float2)(0, 0);
        if (biases) bias = *((__global const float2 *)biases + (own * HEAD_DIM + column) / 2);
        await_pairs(&v, 1, in, &at, tag, aborted);
        d.rows[i * 2] = packet_float(v.x) + bias.x;
        d.rows[i * 2 + 1] = packet_float(v.y) + bias.y;
    }
}

#if QK_NORM

/* Normalises the head's queries and its key, each by one warp. */
static inline void norm_rows(attention_scratch d, const cache *c, __local const stage *st,
                             uint item) {
    for (uint row = item / WARP; row <= GROUP; row += WARPS) {
        __local float *x = d.rows + row * HEAD_DIM;
        __global const float *w = (__global const float *)st->extra[row < GROUP ? 3 : 4];
        if (!w) continue;
        float square = 0;
        for (uint i = item % WARP; i < HEAD_DIM; i += WARP) square += x[i] * x[i];
        const float factor = rsqrt(warp_sum(square) / (float)HEAD_DIM + c->eps);
        for (uint i = item % WARP; i < HEAD_DIM; i += WARP) x[i] *= factor * w[i];
    }
}

#endif

/* Rotates queries and key. Scales queries for exp2. */
static inline void rotate_rows(attention_scratch d, const cache *c, uint item) {
    const uint pairs = HEAD_DIM / 2;
    for (uint i = item; i < (GROUP + 1) * pairs; i += LOCAL) {
        __local float *x = d.rows + i / pairs * HEAD_DIM + i % pairs;
        const float2 t = d.cos_sin[i % pairs];
        const float a = x[0], b = x[pairs], f = i < GROUP * pairs ? c->scale * 1.44269504f : 1.0f;
        x[0] = (a * t.x - b * t.y) * f;
        x[pairs] = (b * t.x + a * t.y) * f;
    }
}

#if PIECE > 1

/* Multiplies queries and key by a Hadamard matrix, in pieces, in the order of core/hadamard.c. */
static inline void hadamard_rotate_rows(attention_scratch d, uint item) {
    const float norm = PIECE == 64   ? 0.125f
                       : PIECE == 32 ? 0.17677669f
                                     : 0.25f; /* 1 / sqrt(PIECE) */
    for (uint apart = 1; apart < PIECE; apart *= 2) {
        const float scale = apart * 2 < PIECE ? 1.0f : norm;
        for (uint i = item; i < (GROUP + 1) * HEAD_DIM / 2; i += LOCAL) {
            __local float *x = d.rows + i / apart * 2 * apart + i % apart;
            const float a = x[0], b = x[apart];
            x[0] = (a + b) * scale;
            x[apart] = (a - b) * scale;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif

static inline void store_row(attention_scratch d, const cache *c, __global const ulong *blocks,
                             uint slot, uint item) {
    __local const float *key = d.rows + GROUP * HEAD_DIM;
    const ulong k = slot_address(blocks, slot, K_TYPE);
    const ulong v = slot_address(blocks, slot, V_TYPE) + c->v_offset;
    store_values(K_TYPE, (__global uchar *)k, d.rounded, key, item);
    /* by other warps, at the same time */
    store_values(V_TYPE, (__global uchar *)v, d.rounded + HEAD_DIM, key + HEAD_DIM,
                 (item + LOCAL / 2) % LOCAL);
    if (item == 0) {
        const ulong positions = blocks[slot / BLOCK_SLOTS] + c->p_offset;
        ((__global uint *)positions)[slot % BLOCK_SLOTS] = c->position;
    }
}

/* ---- a warp's steps ---- */

#if WARP > 1

/* Scores are tiles of the matrix unit, queries by slots. Lane l has columns l % 4 * 2 + 0 and 1 of
 * row l / 4, the query head, in each of two tiles. Column n of tile e is slot 4 (n / 2) + 2 e + n %
 * 2 of the step: any order of slots is valid if both products use it. The weights of a lane are
 * then its operands of the product with the values: dims by slots, times slots by queries. */
typedef struct loaded_slots {
    uint k[2][KEY_WORDS], v[4][VALUE_WORDS];
} loaded_slots;

static inline void load_keys(loaded_slots *s, __global const ulong *blocks, uint first,
                             uint n_slots, uint lane) {
    UNROLL
    for (int e = 0; e < 2; e++) {
        const uint slot = min(first + 4 * (lane / 8) + 2 * e + lane / 4 % 2, n_slots - 1);
        load_key(s->k[e], slot_address(blocks, slot, K_TYPE), lane);
    }
}

static inline void load_values(loaded_slots *s, __global const ulong *blocks, uint v_offset,
                               uint first, uint n_slots, uint lane) {
    UNROLL
    for (int e = 0; e < 4; e++) {
        const uint slot = min(first + lane % 4 * 4 + e, n_slots - 1);
        load_value(s->v[e], slot_address(blocks, slot, V_TYPE) + v_offset, lane);
    }
}

typedef struct softmax {
    float max_score,
        total; /* largest score and sum of query head lane / 4; missing heads have zeros */
    /* Tile j has dims value_dim(j) in x and y and the next ones in z and w, of query heads
     * lane % 4 * 2 (x and z) and lane % 4 * 2 + 1. */
    float4 acc[TILES];
} softmax;

/* Returns the values of the lanes of query heads lane % 4 * 2 and lane % 4 * 2 + 1. */
static inline float4 of_columns(float v, uint lane) {
    const float a = as_float(shuffle(as_uint(v), lane % 4 * 8));
    const float b = as_float(shuffle(as_uint(v), lane % 4 * 8 + 4));
    return (float4)(a, b, a, b);
}

static inline void scores_of(float4 x[2], const loaded_slots *s, const uint q0[TILES],
                             const uint q1[TILES]) {
    x[0] = x[1] = (float4)(0);
    UNROLL
    for (int i = 0; i < TILES; i++) UNROLL
    for (int e = 0; e < 2; e++)
        multiply_tile(&x[e], q0[i], 0, q1[i], 0, key_halves(s->k[e], i, false),
                      key_halves(s->k[e], i, true));
}

/* Replaces scores by weights, and scales the sums to the new largest score. */
static inline float softmax_step(softmax *m, float4 x[2]) {
    float max_score = fmax(fmax(x[0].x, x[0].y), fmax(x[1].x, x[1].y));
    max_score = fmax(max_score, shuffle_xor(max_score, 1));
    max_score = fmax(m->max_score, fmax(max_score, shuffle_xor(max_score, 2)));
    const float shrink = native_exp2(m->max_score - max_score);
    UNROLL
    for (int e = 0; e < 2; e++) {
        x[e].x = native_exp2(x[e].x - max_score);
        x[e].y = native_exp2(x[e].y - max_score);
    }
    float sum = x[0].x + x[0].y + x[1].x + x[1].y;
    sum += shuffle_xor(sum, 1);
    m->total = m->total * shrink + sum + shuffle_xor(sum, 2);
    m->max_score = max_score;
    return shrink;
}

static inline void add_values(softmax *m, const loaded_slots *s, const float4 x[2], float4 shrink) {
    const uint p0 = pack_halves(x[0].x, x[0].y), p1 = pack_halves(x[1].x, x[1].y);
    UNROLL
    for (int j = 0; j < TILES; j++) {
        const uint a = value_halves(s->v[0], j), b = value_halves(s->v[1], j);
        const uint c = value_halves(s->v[2], j), d = value_halves(s->v[3], j);
        m->acc[j] *= shrink;
        multiply_tile(&m->acc[j], low_halves(a, b), high_halves(a, b), low_halves(c, d),
                      high_halves(c, d), p0, p1);
    }
}

static inline void mask_slots(float4 x[2], uint slot, uint visible, uint n_slots) {
    if (WINDOW && slot < visible) x[0].x = -INFINITY;
    if (WINDOW && slot + 1 < visible) x[0].y = -INFINITY;
    if (WINDOW && slot + 2 < visible) x[1].x = -INFINITY;
    if (WINDOW && slot + 3 < visible) x[1].y = -INFINITY;
    if (slot >= n_slots) x[0].x = -INFINITY;
    if (slot + 1 >= n_slots) x[0].y = -INFINITY;
    if (slot + 2 >= n_slots) x[1].x = -INFINITY;
    if (slot + 3 >= n_slots) x[1].y = -INFINITY;
}

/* Adds the token's own slot, whose key and value are in local memory. */
static inline void add_itself(softmax *m, attention_scratch d, uint slot, uint lane) {
    const uint head = lane / 4;
    float mine = 0, x[GROUP] = {0};
    UNROLL
    for (int i = 0; i < GROUP; i++)
        for (uint j = lane; j < HEAD_DIM; j += WARP)
            x[i] += d.rows[i * HEAD_DIM + j] * d.rounded[j];
    UNROLL
    for (int m = WARP / 2; m > 0; m /= 2) UNROLL
    for (int i = 0; i < GROUP; i++) x[i] += shuffle_xor(x[i], m);
    UNROLL
    for (int i = 0; i < GROUP; i++) mine = head == (uint)i ? x[i] : mine;
    if (SCORES && d.scores && lane % 4 == 0 && head < GROUP) score_row(d, head)[slot] = mine;
    const float max_score = fmax(m->max_score, mine);
    const float shrink = native_exp2(m->max_score - max_score),
                weight = native_exp2(mine - max_score);
    m->total = m->total * shrink + weight;
    m->max_score = max_score;
    const float4 shrinks = of_columns(shrink, lane), weights = of_columns(weight, lane);
    UNROLL
    for (int j = 0; j < TILES; j++) {
        __local const float *v = d.rounded + HEAD_DIM + value_dim(j, lane);
        m->acc[j] = m->acc[j] * shrinks + weights * (float4)(v[0], v[0], v[1], v[1]);
    }
}

static inline void store_partial(const softmax *m, attention_scratch d, uint warp, uint lane) {
    const uint head = lane / 4, column = lane % 4 * 2;
    if (lane % 4 == 0 && head < GROUP) {
        d.stats[(warp * GROUP + head) * 2] = m->max_score;
        d.stats[(warp * GROUP + head) * 2 + 1] = m->total;
    }
    __local float *to = d.values + (warp * GROUP + column) * HEAD_DIM;
    UNROLL
    for (int j = 0; j < TILES; j++) {
        const uint i = value_dim(j, lane);
        if (column < GROUP) {
            to[i] = m->acc[j].x;
            to[i + 1] = m->acc[j].z;
        }
        if (column + 1 < GROUP) {
            to[HEAD_DIM + i] = m->acc[j].y;
            to[HEAD_DIM + i + 1] = m->acc[j].w;
        }
    }
}

/* Attends to steps warp, warp + WARPS, ... of [step0, step1). The first step is already loaded in
 * s, so that its loads do not wait for the token's rows. */
static inline void attend(attention_scratch d, const cache *c, loaded_slots *s,
                          __global const ulong *blocks, uint step0, uint step1, uint visible,
                          uint n_slots, bool newest, uint item) {
    const uint lane = item % WARP, warp = item / WARP, query = lane / 4;
    uint q0[TILES], q1[TILES];
    UNROLL
    for (int i = 0; i < TILES; i++) {
        __local const float *q = d.rows + min(query, (uint)GROUP - 1) * HEAD_DIM + key_dim(i, lane);
        q0[i] = query < GROUP ? pack_halves(q[0], q[1]) : 0;
        q1[i] = query < GROUP ? pack_halves(q[2], q[3]) : 0;
    }
    softmax m;
    m.max_score = -INFINITY;
    m.total = 0;
    UNROLL
    for (int j = 0; j < TILES; j++) m.acc[j] = (float4)(0);
    for (uint i0 = step0 + warp; i0 < step1; i0 += STEPS_AHEAD * WARPS) UNROLL
    for (uint u = 0; u < STEPS_AHEAD; u++) {
        const uint i = i0 + u * WARPS;
        const uint first = i * STEP_SLOTS, then = first + STEPS_AHEAD * WARPS * STEP_SLOTS;
        const bool more = i + STEPS_AHEAD * WARPS < step1;
        if (i >= step1) break;
        float4 x[2];
        scores_of(x, &s[u], q0, q1);
        if (more) load_keys(&s[u], blocks, then, n_slots, lane);
        mask_slots(x, first + lane % 4 * 4, visible, n_slots);
        if (SCORES && d.scores && query < GROUP)
            ((__global float4 *)score_row(d, query))[first / 4 + lane % 4] =
                (float4)(x[0].x, x[0].y, x[1].x, x[1].y);
        const float shrink = softmax_step(&m, x);
        add_values(&m, &s[u], x, of_columns(shrink, lane));
        if (more) load_values(&s[u], blocks, c->v_offset, then, n_slots, lane);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* the rounded row is written */
    if (newest && warp == WARPS - 1) add_itself(&m, d, n_slots, lane);
    store_partial(&m, d, warp, lane);
}

static inline void load_first(loaded_slots *s, const cache *c, __global const ulong *blocks,
                              uint step0, uint step1, uint n_slots, uint item) {
    const uint lane = item % WARP;
    UNROLL
    for (uint u = 0; u < STEPS_AHEAD; u++) {
        const uint i = step0 + u * WARPS + item / WARP;
        if (i >= step1) return;
        load_keys(&s[u], blocks, i * STEP_SLOTS, n_slots, lane);
        load_values(&s[u], blocks, c->v_offset, i * STEP_SLOTS, n_slots, lane);
    }
}

#else

enum { STEPS_AHEAD = 1 };
typedef struct loaded_slots {
    uint unused;
} loaded_slots;

static inline void load_first(loaded_slots *s, const cache *c, __global const ulong *blocks,
                              uint step0, uint step1, uint n_slots, uint item) {
    s->unused = 0;
}

/* Adds one slot. key 0: the token itself. */
static inline void add_slot(attention_scratch d, uint warp, uint slot, __global const uchar *key,
                            __global const uchar *value) {
    __local float *stats = d.stats + warp * GROUP * 2;
    for (int g = 0; g < GROUP; g++) {
        __local float *values = d.values + (warp * GROUP + g) * HEAD_DIM;
        float x = 0;
        for (int i = 0; i < HEAD_DIM; i++)
            x += d.rows[g * HEAD_DIM + i] * (key ? element(K_TYPE, key, i) : d.rounded[i]);
        if (SCORES && d.scores) score_row(d, g)[slot] = x;
        const float max_score = fmax(stats[g * 2], x);
        const float shrink = native_exp2(stats[g * 2] - max_score),
                    weight = native_exp2(x - max_score);
        stats[g * 2] = max_score;
        stats[g * 2 + 1] = stats[g * 2 + 1] * shrink + weight;
        for (int i = 0; i < HEAD_DIM; i++) {
            const float v = key ? element(V_TYPE, value, i) : d.rounded[HEAD_DIM + i];
            values[i] = values[i] * shrink + weight * v;
        }
    }
}

static inline void attend(attention_scratch d, const cache *c, loaded_slots *s,
                          __global const ulong *blocks, uint step0, uint step1, uint visible,
                          uint n_slots, bool newest, uint item) {
    for (int g = 0; g < GROUP; g++) {
        d.stats[(item * GROUP + g) * 2] = -INFINITY;
        d.stats[(item * GROUP + g) * 2 + 1] = 0;
        for (int i = 0; i < HEAD_DIM; i++) d.values[(item * GROUP + g) * HEAD_DIM + i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* the rounded row is written */
    for (uint i = step0 + item; i < step1; i += WARPS)
        add_slot(d, item, i, (__global const uchar *)slot_address(blocks, i, K_TYPE),
                 (__global const uchar *)(slot_address(blocks, i, V_TYPE) + c->v_offset));
    if (newest && item == WARPS - 1) add_slot(d, item, n_slots, 0, 0);
}

#endif

/* ---- merging ---- */

enum { PIECES_AHEAD = WARP > 1 ? 4 : 1 }; /* pieces whose packets are on their way */

/* Merges the values of the group's warps. Piece 0 adds those of other pieces and writes rows. */
static inline void merge_pieces(attention_scratch d, const cache *c, uint mailbox, uint piece,
                                uint pieces, uint tag, uint item, volatile __global uint *aborted) {
    const uint size = GROUP * (HEAD_DIM + 2);
    for (uint t = item; t < GROUP * HEAD_DIM; t += LOCAL) {
        const uint g = t / HEAD_DIM;
        float max_score = -INFINITY, total = 0, value = 0;
        for (uint w = 0; w < WARPS; w++) max_score = fmax(max_score, d.stats[(w * GROUP + g) * 2]);
        for (uint w = 0; w < WARPS; w++) {
            const float f = native_exp2(d.stats[(w * GROUP + g) * 2] - max_score);
            total += d.stats[(w * GROUP + g) * 2 + 1] * f;
            value += d.values[w * GROUP * HEAD_DIM + t] * f;
        }
        if (piece > 0) {
            put(c->partial, mailbox + piece * size + GROUP * 2 + t, as_uint(value), tag);
            if (t % HEAD_DIM) continue;
            put(c->partial, mailbox + piece * size + g * 2, as_uint(max_score), tag);
            put(c->partial, mailbox + piece * size + g * 2 + 1, as_uint(total), tag);
            continue;
        }
        for (uint first = 1; first < pieces; first += PIECES_AHEAD) {
            uint at[2 * PIECES_AHEAD];
            ulong2 v[2 * PIECES_AHEAD];
            UNROLL
            for (uint j = 0; j < 2 * PIECES_AHEAD; j++) {
                const uint in_piece = j % 2 ? GROUP * 2 + (t & ~1u) : g * 2;
                at[j] = mailbox + min(first + j / 2, pieces - 1) * size + in_piece;
                v[j] = peek2(c->partial, at[j]);
            }
            await_pairs(v, 2 * PIECES_AHEAD, c->partial, at, tag, aborted);
            const float before = max_score;
            UNROLL
            for (uint j = 0; j < PIECES_AHEAD; j++)
                max_score = fmax(max_score, packet_float(v[2 * j].x));
            const float shrink = native_exp2(before - max_score);
            total *= shrink;
            value *= shrink;
            UNROLL
            for (uint j = 0; j < PIECES_AHEAD; j++) {
                const ulong2 stat = v[2 * j], pair = v[2 * j + 1];
                const bool exists = first + j < pieces;
                const float f = exists ? native_exp2(packet_float(stat.x) - max_score) : 0.0f;
                total += packet_float(stat.y) * f;
                value += packet_float(t & 1 ? pair.y : pair.x) * f;
            }
        }
        d.rows[t] = value / total;
        if (SCORES && d.scores && t % HEAD_DIM == 0) {
            score_row(d, g)[d.score_stride] = max_score;
            score_row(d, g)[d.score_stride + 1] = total;
        }
    }
}

/* Computes one piece of one head; `unit` counts heads first. */
static inline void attention(const cache *c, __local const stage *st, attention_scratch d,
                             uint in_tag, uint out_tag, uint unit, uint max_pieces, uint item,
                             volatile __global uint *aborted) {
    const uint head = unit % c->n_kv, piece = unit / c->n_kv;
    const uint n_slots = ((__global const uint *)c->n_slots)[st->layer * c->n_kv + head];
    __global const ulong *blocks =
        (__global const ulong *)c->blocks + ((ulong)st->layer * c->n_kv + head) * c->max_blocks;
    const uint visible = WINDOW ? first_visible(c, blocks, n_slots, st->window) : 0;
    const uint before = visible < n_slots ? visible / STEP_SLOTS : steps_of(n_slots);
    const uint steps = steps_of(n_slots) - before, pieces = pieces_of(steps, max_pieces);
    if (piece >= pieces) return;
    const uint step0 = before + (uint)((ulong)steps * piece / pieces);
    const uint step1 = before + (uint)((ulong)steps * (piece + 1) / pieces);
    const bool newest = piece == pieces - 1;
    const ulong rows = ((ulong)st->layer * c->n_kv + head) * GROUP;
    d.score_stride = c->max_blocks * BLOCK_SLOTS;
    d.scores = c->scores ? c->scores + rows * AG_CL_SCORES(d.score_stride) * 4 : 0;
    loaded_slots s[STEPS_AHEAD];
    load_first(s, c, blocks, step0, step1, n_slots, item);
    receive_rows(d, c, st, head, in_tag, item, aborted);
    barrier(CLK_LOCAL_MEM_FENCE);
#if QK_NORM
    norm_rows(d, c, st, item);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    rotate_rows(d, c, item);
    barrier(CLK_LOCAL_MEM_FENCE);
#if PIECE > 1
    hadamard_rotate_rows(d, item);
#endif
    if (newest) store_row(d, c, blocks, n_slots, item);
    attend(d, c, s, blocks, step0, step1, visible, n_slots, newest, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint mailbox = head * max_pieces * GROUP * (HEAD_DIM + 2);
    merge_pieces(d, c, mailbox, piece, pieces, out_tag, item, aborted);
    if (piece > 0) return;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint n = GROUP * HEAD_DIM / 32;
    send_blocks(d.rows, n, st->out, head * n, out_tag, item, sends_floats(st));
}

#endif
