/* SPDX-License-Identifier: Apache-2.0 */
/* Prepared weights [n,k] as prepare.c and layout.c write them. -DWTYPE=WEIGHT_q4_0 selects the
 * type. Included by kernels. A weight starts at a cache line, each row at a multiple of 16 bytes.
 *
 * F32, F16 and BF16 are [n][stride] elements; stride is k rounded up to 32, padded with zeros.
 * Other types are n * k / 32 blocks of 32 in planes. The planes of levels are, in this order:
 *
 *   Q8_0               32 bytes of each block
 *   other types        16 bytes: byte i has elements i (low nibble) and i + 16 (high nibble)
 *   Q5_0, Q5_1, Q5_K   then 4 bytes: bit j of byte c is the fifth bit of element 4 j + c
 *   Q3_K               then 4 bytes: the same with the third bits
 *   Q6_K               then 8 bytes: bits 2 j and 2 j + 1 of byte c are the upper two bits of
 *                      element 4 j + c, of byte 4 + c those of element 16 + 4 j + c
 *   Q2_K, Q3_K         in place of the 16 bytes: 8 bytes with the lower two bits, ordered as
 *                      those of Q6_K
 *
 * The factors start at scales_at:
 *
 *   Q4_0, Q5_0, Q8_0   F16 d of each block; a value is (level - 8, 16 or 0) * d
 *   IQ4_NL             the same; a value is (table value of the nibble) * d
 *   MXFP4              the same with a byte of exponent instead of d
 *   Q4_1, Q5_1         d of all blocks, then F16 m of all blocks; level * d + m
 *   Q4_K, Q5_K         bytes sc and m of each block, then F16 d and dmin for each eight blocks;
 *                      level * d * sc - dmin * m
 *   Q6_K, Q3_K         signed bytes sc of elements 0 to 15 and 16 to 31, then F16 d for each eight
 *                      blocks; (level - 32 or 4) * d * sc
 *   Q2_K               bytes of the same halves, sc in the low and m in the high nibble, then
 *                      as Q4_K */
#include "nibble_values.cl"
#include "nvidia.cl"

#define WEIGHT_f32 1
#define WEIGHT_f16 2
#define WEIGHT_bf16 3
#define WEIGHT_q4_0 4
#define WEIGHT_q4_1 5
#define WEIGHT_q8_0 6
#define WEIGHT_iq4_nl 7
#define WEIGHT_mxfp4 8
#define WEIGHT_q5_0 9
#define WEIGHT_q5_1 10
#define WEIGHT_q4_k 11
#define WEIGHT_q5_k 12
#define WEIGHT_q6_k 13
#define WEIGHT_q2_k 14
#define WEIGHT_q3_k 15
#ifndef WTYPE
#define WTYPE WEIGHT_q4_0
#endif
#if !WTYPE
#error "a type of weight that has no kernels"
#endif
#define W_F32 (WTYPE == WEIGHT_f32)
#define W_F16 (WTYPE == WEIGHT_f16)
#define W_BF16 (WTYPE == WEIGHT_bf16)
#define W_Q8_0 (WTYPE == WEIGHT_q8_0)
#define W_BLOCKS (WTYPE >= WEIGHT_q4_0)
/* Nibbles are indices of a table of signed levels. */
#define W_TABLE (WTYPE == WEIGHT_iq4_nl || WTYPE == WEIGHT_mxfp4)
#if WTYPE == WEIGHT_mxfp4
#define NIBBLES mxfp4_values
#define TABLE_WORD(i) mxfp4_word(i)
#else
#define NIBBLES iq4_nl_values
#define TABLE_WORD(i) iq4_nl_word(i)
#endif
/* Two bits instead of nibbles. */
#define W_TWO (WTYPE == WEIGHT_q2_k || WTYPE == WEIGHT_q3_k)
/* Further bits of a level. */
#define W_Q6_K (WTYPE == WEIGHT_q6_k)
#define W_THIRDS (WTYPE == WEIGHT_q3_k)
#define W_QH (WTYPE == WEIGHT_q5_0 || WTYPE == WEIGHT_q5_1 || WTYPE == WEIGHT_q5_k)
#define W_HIGH_BITS (W_Q6_K ? 2 : W_QH || W_THIRDS ? 1 : 0)
/* Each half of a block has its own factors. */
#define W_HALVES (W_Q6_K || W_TWO)
/* Factors of a block are integers times an F16 for eight blocks. */
#define W_PARTS (WTYPE >= WEIGHT_q4_k)
/* A base is added to the levels' multiples. */
#define W_BASE                                                               \
    (WTYPE == WEIGHT_q4_1 || WTYPE == WEIGHT_q5_1 || WTYPE == WEIGHT_q4_k || \
     WTYPE == WEIGHT_q5_k || WTYPE == WEIGHT_q2_k)
/* The level that represents 0. */
#define W_MIDDLE                 \
    (WTYPE == WEIGHT_q4_0   ? 8  \
     : WTYPE == WEIGHT_q5_0 ? 16 \
     : WTYPE == WEIGHT_q6_k ? 32 \
     : W_THIRDS             ? 4  \
                            : 0)

enum { BLOCK = 32 };

static inline float8 bfloats(ushort8 h) { return as_float8(convert_uint8(h) << 16); }

#if W_BLOCKS
/* A value is (level - W_MIDDLE) * d + base; x for elements 0 to 15 of a block, y for 16 to 31. */
typedef struct factors {
    float2 d, base;
} factors;

/* Returns the value of the F16 number in the low half. */
static inline float low_half(uint bits) {
    const ushort h = (ushort)bits;
    return vload_half(0, (const half *)&h);
}

/* Returns the factors of a block from their bits. own: F16 d, a byte of exponent, or two bytes.
 * other: F16 m, or F16 numbers of eight blocks. */
static inline factors factors_of(ushort own, uint other) {
    const uchar2 part = as_uchar2(own);
    factors out;
    out.base = 0;
    if (W_Q6_K || W_THIRDS) {
        out.d = low_half(other) * convert_float2(as_char2(part));
    } else if (W_TWO) {
        out.d = low_half(other) * convert_float2(part & (uchar2)(15));
        out.base = -low_half(other >> 16) * convert_float2(part >> (uchar2)(4));
    } else if (W_PARTS) {
        out.d = (float2)(low_half(other) * (float)part.x);
        out.base = (float2)(-low_half(other >> 16) * (float)part.y);
    } else {
        out.d = (float2)(WTYPE == WEIGHT_mxfp4 ? mxfp4_scale((uchar)own) : low_half(own));
        if (W_BASE) out.base = (float2)low_half(other);
    }
    return out;
}

/* Loads the factors of block b of all_blocks. */
static inline factors load_factors(__global const uchar *w, ulong scales_at, ulong all_blocks,
                                   ulong b) {
    __global const uchar *at = w + scales_at;
    __global const ushort *halves = (__global const ushort *)at;
    const ushort own = WTYPE == WEIGHT_mxfp4 ? at[b] : halves[b];
    uint other = 0;
    if (W_Q6_K || W_THIRDS) other = halves[all_blocks + b / 8];
    else if (W_PARTS) other = ((__global const uint *)(halves + all_blocks))[b / 8];
    else if (W_BASE) other = halves[all_blocks + b];
    return factors_of(own, other);
}

/* Loads the bits above the nibbles (or two bits) of a block: x for elements 0 to 15, y for 16
 * to 31. */
static inline uint2 load_high(__global const uchar *w, ulong all_blocks, ulong b) {
#if W_QH || W_THIRDS
    const uint bits = ((__global const uint *)(w + all_blocks * (W_TWO ? 8 : 16)))[b];
    return (uint2)(bits, bits >> 4);
#elif W_Q6_K
    return ((__global const uint2 *)(w + all_blocks * (BLOCK / 2)))[b];
#else
    return 0;
#endif
}

#if W_TABLE
/* Returns the values, one byte each, of a nibble in each byte. */
static inline uint look_up_four(uint nibbles) {
#ifdef __NV_CL_C_VERSION
    /* Selects from both halves of the table by three bits, then one of them by the fourth bit. */
    const uint together = permute(nibbles | nibbles >> 4, 0, 0x4420);
    const uint index = together & 0x7777u, half_of_table = 0x3210u | (together & 0x8888u) >> 1;
    return permute(permute(TABLE_WORD(0), TABLE_WORD(1), index),
                   permute(TABLE_WORD(2), TABLE_WORD(3), index), half_of_table);
#else
    const uchar4 n = as_uchar4(nibbles);
    return as_uint((char4)(NIBBLES[n.x], NIBBLES[n.y], NIBBLES[n.z], NIBBLES[n.w]));
#endif
}
#endif

/* Returns the levels of elements 4 p to 4 p + 3 of half a block from their nibbles (or two bits),
 * one in each byte. */
static inline uint with_high(uint low, uint high, uint p) {
#if W_TABLE
    return look_up_four(low);
#else
    const uint fields = W_HIGH_BITS == 2 ? 0x03030303u : 0x01010101u;
    return W_HIGH_BITS ? low | (high >> W_HIGH_BITS * p & fields) << (W_TWO ? 2 : 4) : low;
#endif
}

#if W_TWO
/* Returns the levels of elements 4 p to 4 p + 3 of half a block from the words of its planes. */
static inline uint two_bits_with_high(uint low, uint high, uint p) {
    return with_high(low >> 2 * p & 0x03030303u, high, p);
}
#endif

/* The levels of a block, four in a word: elements 0 to 15, and 16 to 31. */
typedef struct levels {
    uint4 low, high;
} levels;

static inline levels load_levels(__global const uchar *w, ulong all_blocks, ulong b) {
    levels out;
#if W_Q8_0
    out.low = ((__global const uint4 *)w)[2 * b];
    out.high = ((__global const uint4 *)w)[2 * b + 1];
#elif W_TWO
    const uint2 low = ((__global const uint2 *)w)[b], high = load_high(w, all_blocks, b);
    out.low = (uint4)(two_bits_with_high(low.x, high.x, 0), two_bits_with_high(low.x, high.x, 1),
                      two_bits_with_high(low.x, high.x, 2), two_bits_with_high(low.x, high.x, 3));
    out.high = (uint4)(two_bits_with_high(low.y, high.y, 0), two_bits_with_high(low.y, high.y, 1),
                       two_bits_with_high(low.y, high.y, 2), two_bits_with_high(low.y, high.y, 3));
#else
    const uint4 both = ((__global const uint4 *)w)[b];
    const uint2 high = load_high(w, all_blocks, b);
    const uint4 p = both & 0x0f0f0f0fu, q = both >> 4 & 0x0f0f0f0fu;
    out.low = (uint4)(with_high(p.x, high.x, 0), with_high(p.y, high.x, 1),
                      with_high(p.z, high.x, 2), with_high(p.w, high.x, 3));
    out.high = (uint4)(with_high(q.x, high.y, 0), with_high(q.y, high.y, 1),
                       with_high(q.z, high.y, 2), with_high(q.w, high.y, 3));
#endif
    return out;
}

/* Returns four levels minus `less` as floats. */
static inline float4 floats_less(uint word, float less) {
    const bool is_signed = W_Q8_0 || W_TABLE;
#ifdef __NV_CL_C_VERSION
    /* Assembles 2^23 + level from bytes: a conversion takes eight times as long on these devices.
     */
    const uint bytes = is_signed ? word ^ 0x80808080u : word;
    uint4 v;
    asm("prmt.b32 %0, %1, %2, 0x7440;" : "=r"(v.x) : "r"(bytes), "r"(0x4b000000u));
    asm("prmt.b32 %0, %1, %2, 0x7441;" : "=r"(v.y) : "r"(bytes), "r"(0x4b000000u));
    asm("prmt.b32 %0, %1, %2, 0x7442;" : "=r"(v.z) : "r"(bytes), "r"(0x4b000000u));
    asm("prmt.b32 %0, %1, %2, 0x7443;" : "=r"(v.w) : "r"(bytes), "r"(0x4b000000u));
    return as_float4(v) - ((is_signed ? 8388608.0f + 128.0f : 8388608.0f) + less);
#else
    if (is_signed) return convert_float4(as_char4(word)) - less;
    return convert_float4(as_uchar4(word)) - less;
#endif
}

/* Returns the values of four levels. */
static inline float4 values_of(uint word, float d, float base) {
    const float4 v = floats_less(word, W_MIDDLE) * d;
    return W_BASE ? v + base : v;
}
#endif
