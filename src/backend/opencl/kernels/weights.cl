/* SPDX-License-Identifier: Apache-2.0 */
/* Weights [n,k] as prepare.c lays them out; their type is given by name: -DWTYPE=WEIGHT_q4_0.
 * Included by kernels.
 *   F32, F16, BF16   [n][stride] elements, stride = k rounded up to 32, zeros behind k
 *   Q4_0, Q4_1       [n][k / 32] pieces of 16 bytes: byte i holds elements i (low nibble) and
 *                    i + 16; at scales_at [n][k / 32] halves d; for Q4_1 as many m behind them
 *   Q8_0             [n][k / 32] pieces of 32 bytes; at scales_at [n][k / 32] halves d
 *   Q5_0, Q5_1       as Q4_0 and Q4_1; behind the pieces [n][k / 32] words: bit v of byte j is the
 *                    fifth bit of element 4v + j
 *   Q4_K, Q5_K       pieces and words as above, of 32 elements; at scales_at [n][k / 256] pieces of
 *                    16 bytes: d, dmin and the packed scales of the type
 *   Q6_K             pieces as above; behind them [n][k / 32] times 8 bytes: bits 2f and 2f + 1 of
 *                    byte j of word g are the upper two of element 16g + 4f + j; at scales_at
 *                    [n][k / 256] times 16 scales, then as many halves d
 * A weight begins on a cache line, every row of it on a multiple of 16 bytes. */
#define WEIGHT_f32 1
#define WEIGHT_f16 2
#define WEIGHT_bf16 3
#define WEIGHT_q4_0 4
#define WEIGHT_q4_1 5
#define WEIGHT_q8_0 6
#define WEIGHT_q5_0 7
#define WEIGHT_q5_1 8
#define WEIGHT_q4_k 9
#define WEIGHT_q5_k 10
#define WEIGHT_q6_k 11
#ifndef WTYPE
#define WTYPE WEIGHT_q4_0
#endif
#if !WTYPE
#error "a type of weight that has no kernels"
#endif
#define W_F32 (WTYPE == WEIGHT_f32)
#define W_F16 (WTYPE == WEIGHT_f16)
#define W_BF16 (WTYPE == WEIGHT_bf16)
#define W_Q4_0 (WTYPE == WEIGHT_q4_0)
#define W_Q4_1 (WTYPE == WEIGHT_q4_1)
#define W_Q8_0 (WTYPE == WEIGHT_q8_0)
#define W_Q5_0 (WTYPE == WEIGHT_q5_0)
#define W_Q5_1 (WTYPE == WEIGHT_q5_1)
#define W_Q6_K (WTYPE == WEIGHT_q6_k)
#define W_FIFTHS (W_Q5_0 || W_Q5_1 || WTYPE == WEIGHT_q5_k)
/* Types whose levels and scales are read by the functions below. */
#define W_LEVELS (WTYPE >= WEIGHT_q5_0)
#define W_BLOCKS (W_Q4_0 || W_Q4_1 || W_Q8_0 || W_LEVELS)

enum { BLOCK = 32 };

#if W_LEVELS
/* The bits above the nibbles of block b of all. */
static inline uint2 upper_bits(__global const uchar *w, ulong all_blocks, ulong b) {
#if W_FIFTHS
    return (uint2)(((__global const uint *)(w + all_blocks * 16))[b], 0);
#elif W_Q6_K
    return ((__global const uint2 *)(w + all_blocks * 16))[b];
#else
    return (uint2)0;
#endif
}

/* Elements 4v to 4v + 3 as signed bytes, less what the type's levels are too large by; nibbles:
 * word v % 4 of the block's piece. */
static inline uint level_word(uint nibbles, uint2 upper, uint v) {
    uint q = (v < 4 ? nibbles : nibbles >> 4) & 0x0f0f0f0fu;
#if W_FIFTHS
    q |= (upper.x >> v & 0x01010101u) << 4;
#elif W_Q6_K
    q |= ((v < 4 ? upper.x : upper.y) >> v % 4 * 2 & 0x03030303u) << 4;
#endif
    /* Of a number below its middle the bits above become those of a negative byte. */
#if W_Q5_0
    q ^= 0x10101010u;
    q |= (q & 0x10101010u) * 14;
#elif W_Q6_K
    q ^= 0x20202020u;
    q |= (q & 0x20202020u) * 6;
#endif
    return q;
}

/* A value is its level times x, of the first 16 elements, or y, and z. */
static inline float3 block_scales(__global const uchar *w, ulong scales_at, ulong all_blocks,
                                  ulong b) {
    __global const uchar *scales = w + scales_at;
#if W_Q5_0 || W_Q5_1
    const float d = vload_half(b, (__global const half *)scales);
    const float m = W_Q5_1 ? vload_half(all_blocks + b, (__global const half *)scales) : 0.0f;
    return (float3)(d, d, m);
#elif W_Q6_K
    const float d = vload_half(b / 8, (__global const half *)(scales + all_blocks / 8 * 16));
    const char2 two = ((__global const char2 *)scales)[b];
    return (float3)(d * (float)two.x, d * (float)two.y, 0.0f);
#else
    __global const half *halves = (__global const half *)(scales + b / 8 * 16);
    const uint4 all = *(__global const uint4 *)halves;
    const uint part = b % 8, shift = part % 4 * 8;
    const uint first = all.y >> shift, second = all.z >> shift, third = all.w >> shift;
    const uint sc = part < 4 ? first & 63 : (third & 15) | (first >> 6 & 3) << 4;
    const uint m = part < 4 ? second & 63 : (third >> 4 & 15) | (second >> 6 & 3) << 4;
    const float d = vload_half(0, halves) * (float)sc;
    return (float3)(d, d, -vload_half(1, halves) * (float)m);
#endif
}

static inline float4 four_values(uint levels, float d, float m) {
    return convert_float4(as_char4(levels)) * d + m;
}
#endif

static inline float8 bfloats(ushort8 h) { return as_float8(convert_uint8(h) << 16); }
