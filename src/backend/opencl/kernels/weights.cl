/* SPDX-License-Identifier: Apache-2.0 */
/* Weights [n,k] as prepare.c lays them out; their type is given by name: -DWTYPE=WEIGHT_q4_0.
 * Included by kernels.
 *   F32, F16, BF16   [n][stride] elements, stride = k rounded up to 32, zeros behind k
 *   Q4_0, Q4_1       [n][k / 32] pieces of 16 bytes: byte i holds elements i (low nibble) and
 *                    i + 16; at scales_at [n][k / 32] halves d; for Q4_1 as many m behind them
 *   Q8_0             [n][k / 32] pieces of 32 bytes; at scales_at [n][k / 32] halves d
 * A weight begins on a cache line, every row of it on a multiple of 16 bytes. */
#define WEIGHT_f32 1
#define WEIGHT_f16 2
#define WEIGHT_bf16 3
#define WEIGHT_q4_0 4
#define WEIGHT_q4_1 5
#define WEIGHT_q8_0 6
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
#define W_BLOCKS (W_Q4_0 || W_Q4_1 || W_Q8_0)

enum { BLOCK = 32 };

static inline float8 bfloats(ushort8 h) { return as_float8(convert_uint8(h) << 16); }
