/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of token.cl: loads a warp's part of them and multiplies it with x. weights.cl describes
 * their planes. A set of types (bit n for ag_dtype n) is a compile-time constant. For a set of one
 * type the code is specialised; else it tests each weight's type, which is equal in all lanes of a
 * warp. */
#ifndef TOKEN_WEIGHTS
#define TOKEN_WEIGHTS

#include "nibble_values.cl"
#include "shared.h"
#include "token_device.cl"
#include "types.cl"

#ifndef ROWS_OF
#define ROWS_OF 1 /* the blocks of every weight's rows are a multiple of this */
#endif
/* Sets of weight types, bit n for ag_dtype n: q, k and v; gate and up; products added to the stream
 * with at most AG_CL_TOKEN_LONG columns, and with more; logits. */
#ifndef SPLIT_TYPES
#define SPLIT_TYPES 32
#define PAIR_TYPES 32
#define ROW_TYPES 32
#define LONG_TYPES 32
#define LOGIT_TYPES 32
#endif
#define ALL_TYPES (SPLIT_TYPES | PAIR_TYPES | ROW_TYPES | LONG_TYPES | LOGIT_TYPES)
#define SEG (2 * WARP)

typedef ag_cl_token_weight weight;

/* A unit is lane l's part of one segment of one row: blocks l and l + WARP, with factors in pairs
 * of blocks. For Q8_0 it is four halves of blocks: l, l + WARP, ..., for F16 and BF16 eight
 * quarters, and a batch has half of the units. */
enum { MAX_UNITS = 4 };
typedef struct batch {
    uint4 levels[4 * MAX_UNITS];
    uint2 high[2 * MAX_UNITS];
    uint factors[MAX_UNITS]; /* factors of blocks 2 l and 2 l + 1 */
    uint more[MAX_UNITS];    /* further factors of them; with PARTS of the eight blocks l % 8 */
} batch;

/* ---- types ---- */

#define SET_OF(type) (1u << (type))
#define TWOS (SET_OF(TYPE_Q2_K) | SET_OF(TYPE_Q3_K)) /* two bits instead of nibbles */
#define WITH_QH (SET_OF(TYPE_Q5_0) | SET_OF(TYPE_Q5_1) | SET_OF(TYPE_Q5_K))
#define TABLES (SET_OF(TYPE_IQ4_NL) | SET_OF(TYPE_MXFP4))
#define BASES (SET_OF(TYPE_Q4_1) | SET_OF(TYPE_Q5_1))   /* F16 m with the scale */
#define PARTS (SET_OF(TYPE_Q4_K) | SET_OF(TYPE_Q5_K))   /* bytes sc and m of a block */
#define FLOATS16 (SET_OF(TYPE_F16) | SET_OF(TYPE_BF16)) /* x stays in floats */

/* Types whose halves of a block have separate factors, which need sums of x for each half. */
#define HALVES (TWOS | SET_OF(TYPE_Q6_K))
#define WITH_BIT (WITH_QH | SET_OF(TYPE_Q3_K))            /* one more bit for each level */
#define WITH_WHOLE (PARTS | SET_OF(TYPE_Q2_K))            /* d and dmin for eight blocks */
#define WITH_HALF (SET_OF(TYPE_Q3_K) | SET_OF(TYPE_Q6_K)) /* only d for eight blocks */

static inline bool is_one(const uint types) { return (types & (types - 1)) == 0; }

/* Returns whether a type of `types` is in the set. */
static inline bool is_of(const uint set, const uint types, uint type) {
    if (!(types & set)) return false;
    return !(types & ~set) || (set >> type & 1);
}

/* ---- nibbles that stand for values of a table ---- */

/* Returns the values, four bytes each, of the low and the high nibbles of a word, for MXFP4 or
 * IQ4_NL. */
static inline uint2 look_up(uint w, const bool floats) {
#if WARP > 1
    const uint a = floats ? mxfp4_word(0) : iq4_nl_word(0);
    const uint b = floats ? mxfp4_word(1) : iq4_nl_word(1);
    const uint c = floats ? mxfp4_word(2) : iq4_nl_word(2);
    const uint d = floats ? mxfp4_word(3) : iq4_nl_word(3);
    /* Selects from both halves of the table by three bits, then one of them by the fourth bit. */
    const uint index = w & 0x77777777u, half_of_table = 0x32103210u | (w & 0x88888888u) >> 1;
    const uint first = permute(permute(a, b, index), permute(c, d, index), half_of_table);
    const uint second =
        permute(permute(a, b, index >> 16), permute(c, d, index >> 16), half_of_table >> 16);
    return (uint2)(permute(first, second, 0x6420), permute(first, second, 0x7531));
#else
    const uchar4 n = as_uchar4(w & 0x0f0f0f0fu), m = as_uchar4(w >> 4 & 0x0f0f0f0fu);
    __constant char *v = floats ? mxfp4_values : iq4_nl_values;
    return (uint2)(as_uint((char4)(v[n.x], v[n.y], v[n.z], v[n.w])),
                   as_uint((char4)(v[m.x], v[m.y], v[m.z], v[m.w])));
#endif
}

/* ---- loading ---- */

/* Returns i, or n - 1 past the end of a row, where the scales of x are 0. Unneeded if rows end with
 * a segment (`is_complete`). */
static inline uint inside(uint i, uint n, const bool is_complete) {
    return ROWS_OF % SEG == 0 && is_complete ? i : min(i, n - 1);
}

/* Loads shorts 2 * pair and 2 * pair + 1 of a row of n. */
static inline uint load_pair(ulong row, uint pair, uint n, const bool is_complete) {
    if (ROWS_OF % 2 == 0) return load_scales(row + inside(pair, n / 2, is_complete) * 4);
    const uint a = min(pair * 2, n - 1), b = min(pair * 2 + 1, n - 1);
    return load_short(row + a * 2) | load_short(row + b * 2) << 16;
}

static inline uint load_byte_pair(ulong row, uint pair, uint n) {
    __global const uchar *p = (__global const uchar *)row;
    return p[min(pair * 2, n - 1)] | (uint)p[min(pair * 2 + 1, n - 1)] << 16;
}

/* Loads segment seg of a row of n blocks as unit j. is_complete: the row has the complete segment.
 */
static inline void load_unit(batch *b, int j, const uint types, uint type, __local const weight *w,
                             uint row, uint n, uint seg, const bool is_complete, uint lane) {
    const bool bytes = is_of(SET_OF(TYPE_Q8_0), types, type);
    const uint first = seg * SEG + lane, pair = seg * WARP + lane;
    const ulong before = (ulong)row * n; /* blocks before the row */
    if (is_of(FLOATS16, types, type)) {
        UNROLL
        for (int i = 0; i < 8; i++) {
            const uint quarter = inside(seg * 4 * SEG + lane + i * WARP, n * 4, is_complete);
            b->levels[j * 8 + i] = load_stream(w->levels + (before * 4 + quarter) * 16);
        }
        return;
    }
    UNROLL
    for (int i = 0; i < (bytes ? 4 : 0); i++) {
        const uint half_block = inside(seg * 2 * SEG + lane + i * WARP, n * 2, is_complete);
        b->levels[j * 4 + i] = load_stream(w->levels + before * 32 + half_block * 16);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        const ulong block = before + inside(first + i * WARP, n, is_complete);
        uint4 *levels = &b->levels[j * 4 + i];
        uint2 *high = &b->high[j * 2 + i];
        if (is_of(TWOS, types, type)) levels->xy = load_stream2(w->levels + block * 8);
        else if (!bytes) *levels = load_stream(w->levels + block * 16);
        if (is_of(WITH_BIT, types, type)) high->x = load_scales(w->high + block * 4);
        if (is_of(SET_OF(TYPE_Q6_K), types, type)) *high = load_stream2(w->high + block * 8);
    }
    if (is_of(SET_OF(TYPE_MXFP4), types, type))
        b->factors[j] = load_byte_pair(w->factors + before, pair, n);
    else b->factors[j] = load_pair(w->factors + before * 2, pair, n, is_complete);
    if (is_of(BASES, types, type))
        b->more[j] = load_pair(w->more + before * 2, pair, n, is_complete);
    const uint eight = inside(seg * SEG / 8 + lane % 8, n / 8, is_complete);
    if (is_of(WITH_WHOLE, types, type))
        b->more[j] = load_scales(w->more + (before / 8 + eight) * 4);
    if (is_of(WITH_HALF, types, type)) b->more[j] = load_short(w->more + (before / 8 + eight) * 2);
}

/* ---- what of x belongs to a lane's blocks ---- */

typedef struct input {
    __local uint4 *quants;  /* [X_BLOCKS][2] */
    __local float2 *scales; /* [X_BLOCKS] */
    __local float *squares; /* [WARPS] */
} input;

/* Returns [2][X_FOURS] even and odd fours of x in floats, in place of blocks. */
static inline __local float4 *floats_of(input x) { return (__local float4 *)x.quants; }

typedef struct x_block {
    uint4 low, high;
    float2 scale; /* Q8_0: scales of the blocks of low and high */
    int2 sums;    /* HALVES: sums of low and high */
} x_block;

static inline int sum_of(uint4 v) {
    const uint ones = 0x01010101u;
    return dot_bytes(v.x, ones,
                     dot_bytes(v.y, ones, dot_bytes(v.z, ones, dot_bytes(v.w, ones, 0))));
}

/* Returns lane's blocks i of x. first: the segment's first block. */
static inline x_block take_x(const uint types, uint type, input x, uint first, int i, uint lane) {
    x_block out;
    if (is_of(SET_OF(TYPE_Q8_0), types, type)) {
        const uint a = first * 2 + i * SEG + lane, b = a + WARP;
        out.low = x.quants[a];
        out.high = x.quants[b];
        out.scale = (float2)(x.scales[a / 2].x, x.scales[b / 2].x);
    } else {
        const uint at = first + i * WARP + lane;
        out.low = x.quants[at * 2];
        out.high = x.quants[at * 2 + 1];
        out.scale = x.scales[at];
    }
    if (is_of(HALVES, types, type)) out.sums = (int2)(sum_of(out.low), sum_of(out.high));
    return out;
}

/* ---- products ---- */

/* Returns the factor of block n < SEG of a segment. */
static inline ushort factor_of(uint pairs, uint n) {
    return (ushort)(shuffle(pairs, n / 2) >> (n % 2 * 16));
}

static inline float half_of(uint pairs, uint n) { return float_of_half(factor_of(pairs, n)); }

static inline int dot_nibbles(uint4 w, x_block x) {
    const uint lower = 0x0f0f0f0fu, upper = 0xf0f0f0f0u;
    int a = 0, b = 0; /* two independent chains; b is 16 times too large */
    a = dot4u(w.x & lower, x.low.x, a);
    b = dot4u(w.x & upper, x.high.x, b);
    a = dot4u(w.y & lower, x.low.y, a);
    b = dot4u(w.y & upper, x.high.y, b);
    a = dot4u(w.z & lower, x.low.z, a);
    b = dot4u(w.z & upper, x.high.z, b);
    a = dot4u(w.w & lower, x.low.w, a);
    b = dot4u(w.w & upper, x.high.w, b);
    return a + (b >> 4);
}

/* Returns field p of `width` bits of each byte, shifted to bit `to`. */
static inline uint raised(uint bits, int p, const int width, const int to) {
    const int up = to - p * width;
    return (up > 0 ? bits << up : bits >> -up) & (width == 1 ? 0x01010101u : 0x03030303u) << to;
}

/* Returns nibbles and their higher bits, fields p to p + 3, times x. */
static inline int dot_raised(uint4 nibbles, uint bits, int p, const int width, uint4 x) {
    const uint mask = 0x0f0f0f0fu;
    int a = dot4u((nibbles.x & mask) | raised(bits, p, width, 4), x.x, 0);
    int b = dot4u((nibbles.y & mask) | raised(bits, p + 1, width, 4), x.y, 0);
    a = dot4u((nibbles.z & mask) | raised(bits, p + 2, width, 4), x.z, a);
    return dot4u((nibbles.w & mask) | raised(bits, p + 3, width, 4), x.w, b) + a;
}

/* Returns 2-bit fields and their higher bits, fields p to p + 3 of `above`, times x. */
static inline int dot_two_bits(uint two, uint above, int p, uint4 x) {
    int a = dot4u(raised(two, 0, 2, 0) | raised(above, p, 1, 2), x.x, 0);
    int b = dot4u(raised(two, 1, 2, 0) | raised(above, p + 1, 1, 2), x.y, 0);
    a = dot4u(raised(two, 2, 2, 0) | raised(above, p + 2, 1, 2), x.z, a);
    return dot4u(raised(two, 3, 2, 0) | raised(above, p + 3, 1, 2), x.w, b) + a;
}

static inline int dot_bytes4(uint4 w, uint4 x) {
    return dot_bytes(w.x, x.x, dot_bytes(w.y, x.y, 0)) +
           dot_bytes(w.z, x.z, dot_bytes(w.w, x.w, 0));
}

static inline int dot_table(uint4 w, x_block x, const bool floats) {
    const uint2 p = look_up(w.x, floats), q = look_up(w.y, floats);
    const uint2 r = look_up(w.z, floats), s = look_up(w.w, floats);
    return dot_bytes4((uint4)(p.x, q.x, r.x, s.x), x.low) +
           dot_bytes4((uint4)(p.y, q.y, r.y, s.y), x.high);
}

/* Returns the product of a block with sc and m in bytes and d and dmin for eight blocks. m
 * multiplies the sum of x, which is scale.y / -8. */
static inline float of_parts(const batch *b, int j, uint block, int dot, float2 scale) {
    const uint part = factor_of(b->factors[j], block), d_and_dmin = shuffle(b->more[j], block / 8);
    const float d = float_of_half((ushort)d_and_dmin) * (float)(part & 255);
    const float base = float_of_half((ushort)(d_and_dmin >> 16)) * (float)(part >> 8);
    return d * (scale.x * (float)dot) + base * (0.125f * scale.y);
}

/* Returns the product of a block whose halves have separate factors. */
static inline float dot_halves(const batch *b, int j, int i, const uint types, uint type, x_block x,
                               uint block) {
    const uint4 w = b->levels[j * 4 + i];
    const uint2 high = b->high[j * 2 + i];
    const uint part = factor_of(b->factors[j], block), d_and_dmin = shuffle(b->more[j], block / 8);
    const float d = float_of_half((ushort)d_and_dmin);
    int p, q;
    if (is_of(SET_OF(TYPE_Q2_K), types, type)) {
        p = dot_two_bits(w.x, 0, 0, x.low) * (int)(part & 15);
        q = dot_two_bits(w.y, 0, 4, x.high) * (int)(part >> 8 & 15);
        const int base = x.sums.x * (int)(part >> 4 & 15) + x.sums.y * (int)(part >> 12);
        return x.scale.x *
               (d * (float)(p + q) - float_of_half((ushort)(d_and_dmin >> 16)) * (float)base);
    }
    if (is_of(SET_OF(TYPE_Q3_K), types, type)) {
        p = dot_two_bits(w.x, high.x, 0, x.low) - 4 * x.sums.x;
        q = dot_two_bits(w.y, high.x, 4, x.high) - 4 * x.sums.y;
    } else {
        p = dot_raised(w, high.x, 0, 2, x.low) - 32 * x.sums.x;
        q = dot_raised(w >> 4, high.y, 0, 2, x.high) - 32 * x.sums.y;
    }
    return d * (x.scale.x * (float)(p * (char)(part & 255) + q * (char)(part >> 8)));
}

static inline float4 four_floats(ushort4 v, const bool is_half) {
    if (!is_half) return as_float4(convert_uint4(v) << 16);
    return (float4)(float_of_half(v.x), float_of_half(v.y), float_of_half(v.z), float_of_half(v.w));
}

/* Returns the product of eight values in 16 bits with x. */
static inline float dot_floats(uint4 w, const bool is_half, float4 low, float4 high) {
    const ushort8 v = as_ushort8(w);
    return dot(four_floats(v.lo, is_half), low) + dot(four_floats(v.hi, is_half), high);
}

/* Returns the product of the lane's block i of a unit with x. */
static inline float dot_unit(const batch *b, int j, int i, const uint types, uint type, x_block x,
                             uint lane) {
    const uint block = i * WARP + lane;
    const uint4 w = b->levels[j * 4 + i];
    const uint2 high = b->high[j * 2 + i];
    if (is_of(SET_OF(TYPE_Q8_0), types, type)) {
        const uint first = (i * SEG + lane) / 2, second = first + WARP / 2;
        const int p = dot_bytes4(b->levels[j * 4 + i * 2], x.low);
        const int q = dot_bytes4(b->levels[j * 4 + i * 2 + 1], x.high);
        return half_of(b->factors[j], first) * (x.scale.x * (float)p) +
               half_of(b->factors[j], second) * (x.scale.y * (float)q);
    }
    if (is_of(HALVES, types, type)) return dot_halves(b, j, i, types, type, x, block);
    if (is_of(TABLES, types, type)) {
        const bool floats = is_of(SET_OF(TYPE_MXFP4), types, type);
        const float d = floats ? mxfp4_scale((uchar)factor_of(b->factors[j], block))
                               : half_of(b->factors[j], block);
        return d * (x.scale.x * (float)dot_table(w, x, floats));
    }
    int dot;
    if (is_of(WITH_QH, types, type))
        dot = dot_raised(w, high.x, 0, 1, x.low) + dot_raised(w >> 4, high.x, 4, 1, x.high);
    else dot = dot_nibbles(w, x);
    if (is_of(PARTS, types, type)) return of_parts(b, j, block, dot, x.scale);
    const float d = half_of(b->factors[j], block);
    if (is_of(BASES, types, type))
        return d * (x.scale.x * (float)dot) - half_of(b->more[j], block) * (0.125f * x.scale.y);
    /* Level 8, or 16 with a fifth bit, represents 0. */
    return d * (x.scale.x * (float)dot + (is_of(WITH_QH, types, type) ? 2 * x.scale.y : x.scale.y));
}

#endif
