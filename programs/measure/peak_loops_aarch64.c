/* SPDX-License-Identifier: Apache-2.0 */
/* Twelve independent chains hide the latency of every instruction. */
#include "peak_loops.h"

#include <arm_neon.h>

enum { CHAINS = 12 };

/* Keeps the compiler from dropping v or moving it out of a loop. */
#define KEEP(v) __asm__ volatile("" : "+w"(v))

static void floats(size_t n) {
    float32x4_t s[CHAINS], a = vdupq_n_f32(0.5f);
    for (int i = 0; i < CHAINS; i++) s[i] = a;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = vfmaq_f32(a, s[i], a);
            KEEP(s[i]);
        }
    }
}

static void bytes_neon(size_t n) {
    int16x8_t s[CHAINS];
    int8x8_t a = vdup_n_s8(1);
    for (int i = 0; i < CHAINS; i++) s[i] = vdupq_n_s16(1);
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = vmlal_s8(s[i], a, a);
            KEEP(s[i]);
        }
    }
}

static void bytes_dotprod(size_t n) {
    int32x4_t s[CHAINS];
    int8x16_t a = vdupq_n_s8(1);
    for (int i = 0; i < CHAINS; i++) s[i] = vdupq_n_s32(1);
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = vdotq_s32(s[i], a, a);
            KEEP(s[i]);
        }
    }
}

static void bytes_i8mm(size_t n) {
    int32x4_t s[CHAINS];
    int8x16_t a = vdupq_n_s8(1);
    for (int i = 0; i < CHAINS; i++) s[i] = vdupq_n_s32(1);
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = vmmlaq_s32(s[i], a, a);
            KEEP(s[i]);
        }
    }
}

const peak_loop peak_loops[] = {
    {"common", ARITHMETIC_FLOATS, 2.0 * 4 * CHAINS, NULL, floats},
    {"neon", ARITHMETIC_FLOATS, 2.0 * 4 * CHAINS, NULL, floats},
    {"neon", ARITHMETIC_BYTES, 2.0 * 8 * CHAINS, NULL, bytes_neon},
    {"neon_dotprod", ARITHMETIC_FLOATS, 2.0 * 4 * CHAINS, NULL, floats},
    {"neon_dotprod", ARITHMETIC_BYTES, 2.0 * 16 * CHAINS, NULL, bytes_dotprod},
    {"neon_i8mm", ARITHMETIC_FLOATS, 2.0 * 4 * CHAINS, NULL, floats},
    {"neon_i8mm", ARITHMETIC_BYTES, 2.0 * 32 * CHAINS, NULL, bytes_i8mm},
};
const size_t n_peak_loops = sizeof peak_loops / sizeof peak_loops[0];
