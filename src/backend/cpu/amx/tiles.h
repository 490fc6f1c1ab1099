/* SPDX-License-Identifier: Apache-2.0 */
/* Tile registers, in inline assembly. The compilers' intrinsics let stores move past loads of
 * tiles, and gcc 12's _tile_loadconfig declares that it reads 8 of the 64 bytes, so gcc drops the
 * stores of the others. */
#ifndef AG_BACKEND_CPU_AMX_TILES_H
#define AG_BACKEND_CPU_AMX_TILES_H

#include <stdint.h>

/* Tile configuration. Source: Intel 64 and IA-32 manual, volume 1, chapter 18. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "as the instruction reads it");

/* Configures the tiles of the calling thread until it releases them. */
static inline void tiles_configure(const tile_config *config) {
    __asm__ volatile("ldtilecfg %0" ::"m"(*config));
}

static inline void tiles_release(void) { __asm__ volatile("tilerelease" ::: "memory"); }

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, from, stride)                                                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((size_t)(stride)) \
                     : "memor"                                                          \
                       "y")
#define TILE_STORE(to, stride, t)                                                         \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((size_t)(stride)) \
                     : "memory")
/* c += a * b with bfloat16 operands and float sums. A row of b has two rows of the matrix as pairs.
 * Subnormal numbers count as 0. */
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

#endif
