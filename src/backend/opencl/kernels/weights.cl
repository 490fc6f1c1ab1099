/* SPDX-License-Identifier: Apache-2.0 */
/* Weights [n,k] as prepare.c lays them out, WTYPE being their type. Included by kernels.
 *   F32, F16, BF16   [n][stride] elements, stride = k rounded up to 32, zeros behind k
 *   Q4_0, Q4_1       [n][k / 32] pieces of 16 bytes: byte i holds element i (low nibble) and i +
 * 16; at scales_at [n][k / 32] halves d; for Q4_1 as many halves m behind them Q8_0 [n][k / 32]
 * pieces of 32 bytes; at scales_at [n][k / 32] halves d A weight begins on a cache line, every row
 * of it on a multiple of 16 bytes. */
#ifndef WTYPE
#define WTYPE 5
#endif
#define W_F32 (WTYPE == 0)
#define W_F16 (WTYPE == 1)
#define W_BF16 (WTYPE == 2)
#define W_Q4_0 (WTYPE == 5)
#define W_Q4_1 (WTYPE == 6)
#define W_Q8_0 (WTYPE == 7)
#define W_BLOCKS (W_Q4_0 || W_Q4_1 || W_Q8_0)

enum { BLOCK = 32 };

static inline float8 bfloats(ushort8 h) { return as_float8(convert_uint8(h) << 16); }
