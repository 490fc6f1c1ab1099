/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a KV cache in its types: writes one row, and loads rows for the matrix unit. Values of
 * blocks are converted to F16: the level is exact, its product with the scale is rounded. */
#ifndef TOKEN_ROWS
#define TOKEN_ROWS

#include "kv_rounding.cl"
#include "token_device.cl"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef K_TYPE
#define K_TYPE TYPE_F16
#define V_TYPE TYPE_F16
#endif

/* ---- writing ---- */

static inline float warp_min(float v) { return -warp_max(-v); }

/* Writes a block of 32 by one warp. */
static inline void keep_block(const uint type, __global uchar *to, __local float *rounded,
                              __local const float *x, uint lane) {
    float lowest = INFINITY, highest = -INFINITY, bad = 0;
    for (uint i = lane; i < QK; i += WARP) {
        lowest = fmin(lowest, x[i]);
        highest = fmax(highest, x[i]);
        if (!isfinite(x[i])) bad = 1;
    }
    lowest = warp_min(lowest);
    highest = warp_max(highest);
    bad = warp_max(bad);
    const kept_scale s = type == TYPE_Q4_0 ? kept_q4_0(lowest, highest, bad > 0)
                                           : kept_q8_0(lowest, highest, bad > 0);
    const float d = half_value(s.stored);
    if (lane == 0) *(__global ushort *)to = s.stored;
    if (type == TYPE_Q8_0) {
        for (uint i = lane; i < QK; i += WARP) {
            const int level = level_q8_0(x[i], s);
            to[2 + i] = (uchar)(char)level;
            rounded[i] = (float)level * d;
        }
        return;
    }
    for (uint i = lane; i < QK / 2; i += WARP) {
        const int low = level_q4_0(x[i], s), high = level_q4_0(x[i + QK / 2], s);
        to[2 + i] = (uchar)(low | high << 4);
        rounded[i] = (float)(low - 8) * d;
        rounded[i + QK / 2] = (float)(high - 8) * d;
    }
}

/* Writes a row by the whole group, with the bytes of kv_write.cl. `rounded` gets the rounded
 * values. */
static inline void store_values(const uint type, __global uchar *to, __local float *rounded,
                                __local const float *x, uint item) {
    if (type == TYPE_Q8_0 || type == TYPE_Q4_0) {
        for (uint b = item / WARP; b < HEAD_DIM / QK; b += WARPS) {
            keep_block(type, to + row_bytes(type, b * QK), rounded + b * QK, x + b * QK,
                       item % WARP);
        }
        return;
    }
    for (uint i = item; i < HEAD_DIM; i += LOCAL) {
        if (type == TYPE_F32) {
            rounded[i] = ((__global float *)to)[i] = kept_f32(x[i]);
        } else {
            const ushort h = kept_f16(x[i]);
            ((__global ushort *)to)[i] = h;
            rounded[i] = half_value(h);
        }
    }
}

#if WARP > 1

/* ---- loading ----
 *
 * A tile has 16 dims. Lane l has four dims of a key in two words, or two dims of a value in one
 * word. The order of dims depends on what the type can load at a time; both factors of a product,
 * and the reader of its sums, use the same order. */
#define TILES (HEAD_DIM / 16)
/* Words of a row that a lane loads; types with blocks include one word for the scale. */
#define KEY_WORDS                              \
    (K_TYPE == TYPE_F32    ? HEAD_DIM / 4      \
     : K_TYPE == TYPE_F16  ? HEAD_DIM / 8      \
     : K_TYPE == TYPE_Q8_0 ? HEAD_DIM / 32 * 3 \
                           : HEAD_DIM / 32 * 2)
#define VALUE_WORDS (V_TYPE == TYPE_F32 ? HEAD_DIM / 8 : HEAD_DIM / 16)
/* Steps of slots that a lane loads before it uses them, if registers suffice. */
#define STEPS_AHEAD (2 * KEY_WORDS + 4 * VALUE_WORDS <= 32 ? 2 : 1)
#define WIDE_KEYS (K_TYPE == TYPE_F16 && HEAD_DIM % 32 == 0)   /* 16 bytes hold two tiles */
#define WIDE_VALUES (V_TYPE == TYPE_F16 && HEAD_DIM % 64 == 0) /* 16 bytes hold four */

/* Returns the first of a lane's four dims in tile i. */
static inline uint key_dim(const int i, uint lane) {
    return WIDE_KEYS ? i / 2 * 32 + lane % 4 * 8 + i % 2 * 4 : i * 16 + lane % 4 * 4;
}

/* Returns the first of a lane's two dims in tile i. */
static inline uint value_dim(const int i, uint lane) {
    return WIDE_VALUES           ? i / 4 * 64 + lane / 4 * 8 + i % 4 * 2
           : V_TYPE == TYPE_Q8_0 ? i / 2 * 32 + lane / 4 * 4 + i % 2 * 2
                                 : i * 16 + lane / 4 * 2;
}

static inline void load_wide(uint *to, ulong at) {
    const uint4 v = load_once(at);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

/* Loads four bytes of block b from byte i on. Rows with an even number of blocks are aligned to
 * words. */
static inline uint load_levels(ulong row, const uint b, const uint size, uint i) {
    const ulong at = row + b * size + 2 + i;
    if (HEAD_DIM % 64 == 0 && b % 2) return load_word(at);
    return load_short(at) | load_short(at + 2) << 16;
}

static inline void load_key(uint *to, ulong row, uint lane) {
    const uint four = lane % 4 * 4;
    UNROLL
    for (int i = 0; i < TILES; i++) {
        if (WIDE_KEYS) {
            if (i % 2 == 0) load_wide(to + i * 2, row + key_dim(i, lane) * 2);
        } else if (K_TYPE == TYPE_F32) {
            load_wide(to + i * 4, row + key_dim(i, lane) * 4);
        } else if (K_TYPE == TYPE_F16) {
            to[i * 2] = load_word(row + key_dim(i, lane) * 2);
            to[i * 2 + 1] = load_word(row + key_dim(i, lane) * 2 + 4);
        } else if (i % 2 == 0) {
            const int b = i / 2;
            if (K_TYPE == TYPE_Q8_0) {
                to[b * 3] = load_levels(row, b, 34, four);
                to[b * 3 + 1] = load_levels(row, b, 34, 16 + four);
                to[b * 3 + 2] = load_short(row + b * 34);
            } else {
                to[b * 2] = load_levels(row, b, 18, four);
                to[b * 2 + 1] = load_short(row + b * 18);
            }
        }
    }
}

static inline void load_value(uint *to, ulong row, uint lane) {
    UNROLL
    for (int i = 0; i < TILES; i++) {
        if (WIDE_VALUES) {
            if (i % 4 == 0) load_wide(to + i, row + value_dim(i, lane) * 2);
        } else if (V_TYPE == TYPE_F32) {
            to[i * 2] = load_word(row + value_dim(i, lane) * 4);
            to[i * 2 + 1] = load_word(row + value_dim(i, lane) * 4 + 4);
        } else if (V_TYPE == TYPE_F16) {
            to[i] = load_word(row + value_dim(i, lane) * 2);
        } else if (i % 2 == 0) {
            const int b = i / 2;
            to[i] = V_TYPE == TYPE_Q8_0 ? load_levels(row, b, 34, lane / 4 * 4)
                                        : load_short(row + b * 18 + 2 + lane / 4 * 2);
            to[i + 1] = load_short(row + b * (V_TYPE == TYPE_Q8_0 ? 34 : 18));
        }
    }
}

/* Converts the lower or the upper two bytes of the word to F16. */
static inline uint halves_q8_0(uint levels, const bool upper, uint d) {
    const uint w = levels ^ 0x80808080u; /* 0 .. 255 */
    return scaled_difference(upper ? high_bytes(w) : low_bytes(w), 0x64806480u, d | d << 16);
}

/* Converts low or high nibbles of the lower or the upper two bytes to F16. */
static inline uint halves_q4_0(uint levels, const bool high, const bool upper, uint d) {
    const uint w = (high ? levels >> 4 : levels) & 0x0f0f0f0fu;
    return scaled_difference(upper ? high_bytes(w) : low_bytes(w), 0x64086408u, d | d << 16);
}

/* Returns the lane's dims 0 and 1, or 2 and 3, of tile i in F16. */
static inline uint key_halves(const uint *s, const int i, const bool upper) {
    const int b = i / 2;
    if (K_TYPE == TYPE_F16) return s[i * 2 + upper];
    if (K_TYPE == TYPE_F32)
        return pack_halves(as_float(s[i * 4 + 2 * upper]), as_float(s[i * 4 + 2 * upper + 1]));
    if (K_TYPE == TYPE_Q8_0) return halves_q8_0(s[b * 3 + i % 2], upper, s[b * 3 + 2]);
    return halves_q4_0(s[b * 2], i % 2, upper, s[b * 2 + 1]);
}

static inline uint value_halves(const uint *s, const int i) {
    const int b = i / 2 * 2;
    if (V_TYPE == TYPE_F16) return s[i];
    if (V_TYPE == TYPE_F32) return pack_halves(as_float(s[i * 2]), as_float(s[i * 2 + 1]));
    if (V_TYPE == TYPE_Q8_0) return halves_q8_0(s[b], i % 2, s[b + 1]);
    return halves_q4_0(s[b], i % 2, false, s[b + 1]);
}

#endif

#endif
