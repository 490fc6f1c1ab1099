/* SPDX-License-Identifier: Apache-2.0 */
/* Tile registers in plain C, in place of backend/cpu/amx/tiles.h: its kernels are compiled with
 * this file included first, and then run on machines without AMX. */
#ifndef AG_BACKEND_CPU_AMX_TILES_H
#define AG_BACKEND_CPU_AMX_TILES_H

#undef NDEBUG /* a test checks */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static _Thread_local tile_config tile_shape;
static _Thread_local int8_t tile_registers[8][16][64];

static inline void tiles_configure(const tile_config *config) { tile_shape = *config; }
static inline void tiles_release(void) { memset(&tile_shape, 0, sizeof tile_shape); }

static inline void tile_zero(int t) { memset(tile_registers[t], 0, sizeof tile_registers[t]); }

static inline void tile_load(int t, const void *from, size_t stride) {
    tile_zero(t);
    for (size_t i = 0; i < tile_shape.rows[t]; i++) {
        memcpy(tile_registers[t][i], (const char *)from + i * stride, tile_shape.row_bytes[t]);
    }
}

static inline void tile_store(void *to, size_t stride, int t) {
    for (size_t i = 0; i < tile_shape.rows[t]; i++) {
        memcpy((char *)to + i * stride, tile_registers[t][i], tile_shape.row_bytes[t]);
    }
}

static inline float tile_bf16(const int8_t *p) {
    uint16_t high;
    memcpy(&high, p, sizeof high);
    const uint32_t bits = (uint32_t)high << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Shapes that do not fit are an illegal instruction on a processor. */
static inline void tile_dot(int c, int a, int b) {
    assert(tile_shape.palette == 1 && tile_shape.rows[c] == tile_shape.rows[a]);
    assert(tile_shape.row_bytes[a] == 4 * tile_shape.rows[b]);
    assert(tile_shape.row_bytes[c] == tile_shape.row_bytes[b]);
    for (size_t i = 0; i < tile_shape.rows[c]; i++) {
        for (size_t j = 0; j < tile_shape.row_bytes[c] / 4; j++) {
            float sum;
            memcpy(&sum, &tile_registers[c][i][4 * j], sizeof sum);
            for (size_t k = 0; k < tile_shape.row_bytes[a]; k += 2) {
                sum += tile_bf16(&tile_registers[a][i][k]) *
                       tile_bf16(&tile_registers[b][k / 4][4 * j + k % 4]);
            }
            memcpy(&tile_registers[c][i][4 * j], &sum, sizeof sum);
        }
    }
}

#define TILE_ZERO(t) tile_zero(t)
#define TILE_LOAD(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(to, stride, t) tile_store(to, stride, t)
#define TILE_DOT(c, a, b) tile_dot(c, a, b)

#endif
