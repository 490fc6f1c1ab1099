/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of token.cl: one query row, F16 cache. A KV head belongs to one group, or its slots are
 * cut into pieces for several, and the group of piece 0 joins them. */
#ifndef TOKEN_ATTENTION
#define TOKEN_ATTENTION

#include "token_product.cl"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef GROUP
#define GROUP 4 /* query heads of a KV head */
#endif
#define BLOCK_SLOTS 128                /* of the cache's blocks */
#define STEP_SLOTS (WARP == 1 ? 1 : 16) /* that a warp attends to at once */
#define STEPS_A_WARP 2                 /* before a head is cut into pieces */

/* What a token's attention needs beside the stage. */
typedef struct cache {
    ulong blocks;  /* [layers][max_blocks] addresses */
    ulong n_slots; /* [layers][n_kv] before this token */
    ulong partial; /* packets [n_kv][pieces][GROUP * (HEAD_DIM + 2)] */
    uint n_kv, max_blocks, v_offset, p_offset, position;
    float scale;
} cache;

/* Local memory of a group. */
typedef struct desk {
    __local float *rows;    /* [GROUP + 2][HEAD_DIM] the head's queries, its key, its value */
    __local half *rounded;  /* [2][HEAD_DIM] the key and the value as the cache keeps them */
    __local float *stats;   /* [WARPS][GROUP][2] largest score, sum */
    __local float *values;  /* [WARPS][GROUP][HEAD_DIM] */
    __local float2 *cos_sin; /* [HEAD_DIM / 2] */
} desk;
#define DESK_FLOATS ((GROUP + 3) * HEAD_DIM + WARPS * GROUP * (HEAD_DIM + 2))

static inline desk lay_out_desk(__local float *memory, __local float2 *cos_sin) {
    desk d;
    d.rows = memory;
    d.rounded = (__local half *)(memory + (GROUP + 2) * HEAD_DIM);
    d.stats = memory + (GROUP + 3) * HEAD_DIM;
    d.values = d.stats + WARPS * GROUP * 2;
    d.cos_sin = cos_sin;
    return d;
}

static inline uint steps_of(uint n_slots) { return (n_slots + STEP_SLOTS - 1) / STEP_SLOTS; }

static inline uint pieces_of(uint n_slots, uint most) {
    const uint a_piece = WARPS * STEPS_A_WARP;
    return clamp((steps_of(n_slots) + a_piece - 1) / a_piece, 1u, most);
}

static inline ulong slot_address(__global const ulong *blocks, uint head, uint slot) {
    return blocks[slot / BLOCK_SLOTS] + (ulong)(head * BLOCK_SLOTS + slot % BLOCK_SLOTS) * (HEAD_DIM * 2);
}

/* ---- the token's own rows ---- */

static inline void take_rows(desk d, const cache *c, ulong in, uint head, uint tag, uint item,
                             volatile __global uint *aborted) {
    for (uint i = item; i < (GROUP + 2) * HEAD_DIM / 2; i += LOCAL) {
        const uint row = i * 2 / HEAD_DIM;
        const uint from = row < GROUP ? head * GROUP + row
                                      : GROUP * c->n_kv + (row - GROUP) * c->n_kv + head;
        const uint at = from * HEAD_DIM + i * 2 % HEAD_DIM;
        const ulong2 v = await2(peek2(in, at), in, at, tag, aborted);
        d.rows[i * 2] = packet_float(v.x);
        d.rows[i * 2 + 1] = packet_float(v.y);
    }
}

/* Queries come out scaled for exp2. */
static inline void rotate_rows(desk d, const cache *c, uint item) {
    const uint pairs = HEAD_DIM / 2;
    for (uint i = item; i < (GROUP + 1) * pairs; i += LOCAL) {
        __local float *x = d.rows + i / pairs * HEAD_DIM + i % pairs;
        const float2 t = d.cos_sin[i % pairs];
        const float a = x[0], b = x[pairs], f = i < GROUP * pairs ? c->scale * 1.44269504f : 1.0f;
        x[0] = (a * t.x - b * t.y) * f;
        x[pairs] = (b * t.x + a * t.y) * f;
    }
}

static inline void keep_row(desk d, const cache *c, __global const ulong *blocks, uint head,
                            uint slot, uint item) {
    const ulong block = blocks[slot / BLOCK_SLOTS];
    const uint row = head * BLOCK_SLOTS + slot % BLOCK_SLOTS;
    for (uint i = item; i < HEAD_DIM * 2; i += LOCAL) {
        const float v = d.rows[GROUP * HEAD_DIM + i];
        const ulong part = i < HEAD_DIM ? block : block + c->v_offset;
        vstore_half_rte(v, i, d.rounded);
        vstore_half_rte(v, row * HEAD_DIM + i % HEAD_DIM, (__global half *)part);
    }
    if (item == 0) ((__global uint *)(block + c->p_offset))[row] = c->position;
}

/* ---- a warp's steps ---- */

#if WARP > 1

/* Scores are tiles of the matrix unit, queries by slots: lane l holds the two columns l % 4 * 2 + 0
 * and 1 of row l / 4, the query head, in each of two tiles. Column n of tile e is slot 4 (n / 2) +
 * 2 e + n % 2 of the step, and the head's dims are taken in the order in which a lane loads them:
 * dim and slot may be put in any order that both factors share. The scores of a lane are then just
 * what it has to put in for the product with the values. */
#define K_WORDS (HEAD_DIM / 32) /* loads of 16 bytes */
#define V_WORDS (HEAD_DIM / 64)

typedef struct few_slots {
    uint4 k[2 * K_WORDS], v[4 * V_WORDS];
} few_slots;

static inline void load_keys(few_slots *s, __global const ulong *blocks, uint head, uint first,
                             uint n_slots, uint lane) {
    UNROLL
    for (int e = 0; e < 2; e++) {
        const uint slot = min(first + 4 * (lane / 8) + 2 * e + lane / 4 % 2, n_slots - 1);
        const ulong at = slot_address(blocks, head, slot) + lane % 4 * (HEAD_DIM / 2);
        UNROLL
        for (int i = 0; i < K_WORDS; i++) s->k[e * K_WORDS + i] = load_once(at + i * 16);
    }
}

static inline void load_values(few_slots *s, __global const ulong *blocks, uint v_offset, uint head,
                               uint first, uint n_slots, uint lane) {
    UNROLL
    for (int e = 0; e < 4; e++) {
        const uint slot = min(first + lane % 4 * 4 + e, n_slots - 1);
        const ulong at = slot_address(blocks, head, slot) + v_offset + lane / 4 * (HEAD_DIM / 4);
        UNROLL
        for (int i = 0; i < V_WORDS; i++) s->v[e * V_WORDS + i] = load_once(at + i * 16);
    }
}

static inline uint word_of(uint4 v, const int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Of the query head lane / 4; lanes of heads that are not there hold zeros. */
typedef struct softmax {
    float most, total;
    float4 acc[HEAD_DIM / 8]; /* tile j, column n: dim n * (HEAD_DIM / 8) + j */
} softmax;

static inline void scores_of(float4 x[2], const few_slots *s, const uint q0[HEAD_DIM / 16],
                             const uint q1[HEAD_DIM / 16]) {
    x[0] = x[1] = (float4)(0);
    UNROLL
    for (int i = 0; i < HEAD_DIM / 16; i++)
        UNROLL
        for (int e = 0; e < 2; e++) {
            const uint4 k = s->k[e * K_WORDS + i / 2];
            multiply_tile(&x[e], q0[i], q1[i], word_of(k, i % 2 * 2), word_of(k, i % 2 * 2 + 1));
        }
}

/* Scores become weights; the sums are scaled down to the new largest score. */
static inline float weigh(softmax *m, float4 x[2]) {
    float most = fmax(fmax(x[0].x, x[0].y), fmax(x[1].x, x[1].y));
    most = fmax(most, shuffle_xor(most, 1));
    most = fmax(m->most, fmax(most, shuffle_xor(most, 2)));
    const float shrink = native_exp2(m->most - most);
    UNROLL
    for (int e = 0; e < 2; e++) {
        x[e].x = native_exp2(x[e].x - most);
        x[e].y = native_exp2(x[e].y - most);
    }
    float sum = x[0].x + x[0].y + x[1].x + x[1].y;
    sum += shuffle_xor(sum, 1);
    m->total = m->total * shrink + sum + shuffle_xor(sum, 2);
    m->most = most;
    return shrink;
}

static inline void add_values(softmax *m, const few_slots *s, const float4 x[2], float shrink) {
    const uint p0 = pack_halves(x[0].x, x[0].y), p1 = pack_halves(x[1].x, x[1].y);
    UNROLL
    for (int j = 0; j < HEAD_DIM / 8; j++) {
        const int w = j / 2 % 4, i = j / 8;
        const uint a = word_of(s->v[i], w), b = word_of(s->v[V_WORDS + i], w);
        const uint c = word_of(s->v[2 * V_WORDS + i], w), d = word_of(s->v[3 * V_WORDS + i], w);
        m->acc[j].x *= shrink;
        m->acc[j].y *= shrink;
        if (j % 2) multiply_tile(&m->acc[j], p0, p1, high_halves(a, b), high_halves(c, d));
        else multiply_tile(&m->acc[j], p0, p1, low_halves(a, b), low_halves(c, d));
    }
}

static inline void mask_slots(float4 x[2], uint slot, uint n_slots) {
    if (slot >= n_slots) x[0].x = -INFINITY;
    if (slot + 1 >= n_slots) x[0].y = -INFINITY;
    if (slot + 2 >= n_slots) x[1].x = -INFINITY;
    if (slot + 3 >= n_slots) x[1].y = -INFINITY;
}

/* The token sees itself, too: its key and value are not loaded but at hand. */
static inline void add_itself(softmax *m, desk d, uint lane) {
    const uint head = lane / 4, column = lane % 4 * 2;
    float mine = 0;
    for (int i = 0; i < GROUP; i++) {
        float x = 0;
        for (uint j = lane; j < HEAD_DIM; j += WARP)
            x += d.rows[i * HEAD_DIM + j] * vload_half(j, d.rounded);
        x = warp_sum(x);
        if (head == (uint)i) mine = x;
    }
    const float most = fmax(m->most, mine);
    const float shrink = native_exp2(m->most - most), weight = native_exp2(mine - most);
    m->total = m->total * shrink + weight;
    m->most = most;
    UNROLL
    for (int j = 0; j < HEAD_DIM / 8; j++) {
        const uint at = HEAD_DIM + column * (HEAD_DIM / 8) + j;
        m->acc[j].x = m->acc[j].x * shrink + weight * vload_half(at, d.rounded);
        m->acc[j].y = m->acc[j].y * shrink + weight * vload_half(at + HEAD_DIM / 8, d.rounded);
    }
}

static inline void leave(const softmax *m, desk d, uint warp, uint lane) {
    const uint head = lane / 4, column = lane % 4 * 2;
    if (head >= GROUP) return;
    if (column == 0) {
        d.stats[(warp * GROUP + head) * 2] = m->most;
        d.stats[(warp * GROUP + head) * 2 + 1] = m->total;
    }
    __local float *to = d.values + (warp * GROUP + head) * HEAD_DIM;
    UNROLL
    for (int j = 0; j < HEAD_DIM / 8; j++) {
        to[column * (HEAD_DIM / 8) + j] = m->acc[j].x;
        to[(column + 1) * (HEAD_DIM / 8) + j] = m->acc[j].y;
    }
}

/* Steps warp, warp + WARPS, ... of [step0, step1). The first one's loads do not wait for the
 * token's rows: s holds them. */
static inline void attend(desk d, const cache *c, few_slots *s, __global const ulong *blocks, uint head,
                          uint step0, uint step1, uint n_slots, bool newest, uint item) {
    const uint lane = item % WARP, warp = item / WARP, query = lane / 4;
    uint q0[HEAD_DIM / 16], q1[HEAD_DIM / 16];
    UNROLL
    for (int i = 0; i < HEAD_DIM / 16; i++) {
        __local const float *q =
            d.rows + min(query, (uint)GROUP - 1) * HEAD_DIM + lane % 4 * (HEAD_DIM / 4) + i * 4;
        q0[i] = query < GROUP ? pack_halves(q[0], q[1]) : 0;
        q1[i] = query < GROUP ? pack_halves(q[2], q[3]) : 0;
    }
    softmax m;
    m.most = -INFINITY;
    m.total = 0;
    UNROLL
    for (int j = 0; j < HEAD_DIM / 8; j++) m.acc[j] = (float4)(0);
    for (uint i = step0 + warp; i < step1; i += WARPS) {
        const uint first = i * STEP_SLOTS, then = first + WARPS * STEP_SLOTS;
        const bool more = i + WARPS < step1;
        float4 x[2];
        scores_of(x, s, q0, q1);
        if (more) load_keys(s, blocks, head, then, n_slots, lane);
        mask_slots(x, first + lane % 4 * 4, n_slots);
        const float shrink = weigh(&m, x);
        add_values(&m, s, x, shrink);
        if (more) load_values(s, blocks, c->v_offset, head, then, n_slots, lane);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* the rounded row is there */
    if (newest && warp == WARPS - 1) add_itself(&m, d, lane);
    leave(&m, d, warp, lane);
}

static inline void load_first(few_slots *s, const cache *c, __global const ulong *blocks, uint head,
                              uint step0, uint step1, uint n_slots, uint item) {
    const uint lane = item % WARP, i = step0 + item / WARP;
    if (i >= step1) return;
    load_keys(s, blocks, head, i * STEP_SLOTS, n_slots, lane);
    load_values(s, blocks, c->v_offset, head, i * STEP_SLOTS, n_slots, lane);
}

#else

typedef struct few_slots {
    uint unused;
} few_slots;

static inline void load_first(few_slots *s, const cache *c, __global const ulong *blocks, uint head,
                              uint step0, uint step1, uint n_slots, uint item) {
    s->unused = 0;
}

static inline void add_slot(desk d, uint warp, bool itself, ulong at, uint v_offset) {
    __local float *stats = d.stats + warp * GROUP * 2;
    for (int g = 0; g < GROUP; g++) {
        __local float *values = d.values + (warp * GROUP + g) * HEAD_DIM;
        float x = 0;
        for (int i = 0; i < HEAD_DIM; i++) {
            const float k = itself ? vload_half(i, d.rounded) : vload_half(i, (__global const half *)at);
            x += d.rows[g * HEAD_DIM + i] * k;
        }
        const float most = fmax(stats[g * 2], x);
        const float shrink = native_exp2(stats[g * 2] - most), weight = native_exp2(x - most);
        stats[g * 2] = most;
        stats[g * 2 + 1] = stats[g * 2 + 1] * shrink + weight;
        for (int i = 0; i < HEAD_DIM; i++) {
            const float v = itself ? vload_half(HEAD_DIM + i, d.rounded)
                                   : vload_half(i, (__global const half *)(at + v_offset));
            values[i] = values[i] * shrink + weight * v;
        }
    }
}

static inline void attend(desk d, const cache *c, few_slots *s, __global const ulong *blocks, uint head,
                          uint step0, uint step1, uint n_slots, bool newest, uint item) {
    for (int g = 0; g < GROUP; g++) {
        d.stats[(item * GROUP + g) * 2] = -INFINITY;
        d.stats[(item * GROUP + g) * 2 + 1] = 0;
        for (int i = 0; i < HEAD_DIM; i++) d.values[(item * GROUP + g) * HEAD_DIM + i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* the rounded row is there */
    for (uint i = step0 + item; i < step1; i += WARPS)
        add_slot(d, item, false, slot_address(blocks, head, i), c->v_offset);
    if (newest && item == WARPS - 1) add_slot(d, item, true, 0, 0);
}

#endif

/* ---- joining ---- */

/* Values of the group's warps together; piece 0 adds those of the others and writes rows. */
static inline void join(desk d, const cache *c, uint box, uint piece, uint pieces, uint tag,
                        uint item, volatile __global uint *aborted) {
    const uint size = GROUP * (HEAD_DIM + 2);
    for (uint t = item; t < GROUP * HEAD_DIM; t += LOCAL) {
        const uint g = t / HEAD_DIM;
        float most = -INFINITY, total = 0, value = 0;
        for (uint w = 0; w < WARPS; w++) most = fmax(most, d.stats[(w * GROUP + g) * 2]);
        for (uint w = 0; w < WARPS; w++) {
            const float f = native_exp2(d.stats[(w * GROUP + g) * 2] - most);
            total += d.stats[(w * GROUP + g) * 2 + 1] * f;
            value += d.values[w * GROUP * HEAD_DIM + t] * f;
        }
        if (piece > 0) {
            put(c->partial, box + piece * size + GROUP * 2 + t, as_uint(value), tag);
            if (t % HEAD_DIM) continue;
            put(c->partial, box + piece * size + g * 2, as_uint(most), tag);
            put(c->partial, box + piece * size + g * 2 + 1, as_uint(total), tag);
            continue;
        }
        for (uint i = 1; i < pieces; i++) {
            const uint stat_at = box + i * size + g * 2;
            const uint value_at = box + i * size + GROUP * 2 + (t & ~1u);
            ulong2 stat = peek2(c->partial, stat_at), pair = peek2(c->partial, value_at);
            stat = await2(stat, c->partial, stat_at, tag, aborted);
            pair = await2(pair, c->partial, value_at, tag, aborted);
            const float other = packet_float(stat.x), larger = fmax(most, other);
            const float f = native_exp2(most - larger), of = native_exp2(other - larger);
            total = total * f + packet_float(stat.y) * of;
            value = value * f + packet_float(t & 1 ? pair.y : pair.x) * of;
            most = larger;
        }
        d.rows[t] = value / total;
    }
}

/* One piece of one head; `unit` counts heads first. */
static inline void attention(const cache *c, __local const stage *st, desk d, uint in_tag,
                             uint out_tag, uint unit, uint most_pieces, uint item,
                             volatile __global uint *aborted) {
    const uint head = unit % c->n_kv, piece = unit / c->n_kv;
    const uint n_slots = ((__global const uint *)c->n_slots)[st->layer * c->n_kv + head];
    const uint steps = steps_of(n_slots), pieces = pieces_of(n_slots, most_pieces);
    if (piece >= pieces) return;
    __global const ulong *blocks =
        (__global const ulong *)c->blocks + (ulong)st->layer * c->max_blocks;
    const uint step0 = (uint)((ulong)steps * piece / pieces);
    const uint step1 = (uint)((ulong)steps * (piece + 1) / pieces);
    const bool newest = piece == pieces - 1;
    few_slots s;
    load_first(&s, c, blocks, head, step0, step1, n_slots, item);
    take_rows(d, c, st->in, head, in_tag, item, aborted);
    barrier(CLK_LOCAL_MEM_FENCE);
    rotate_rows(d, c, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (newest) keep_row(d, c, blocks, head, n_slots, item);
    attend(d, c, &s, blocks, head, step0, step1, n_slots, newest, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint box = head * most_pieces * GROUP * (HEAD_DIM + 2);
    join(d, c, box, piece, pieces, out_tag, item, aborted);
    if (piece > 0) return;
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint n = GROUP * HEAD_DIM / 32;
    send_blocks(d.rows, n, st->out, head * n, out_tag, item);
}

#endif
