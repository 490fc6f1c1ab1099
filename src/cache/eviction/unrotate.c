/* SPDX-License-Identifier: Apache-2.0 */
/* Unrotates keys. The angle of a position is that of its multiple of NEAR plus that of the
 * remainder. Cosines of remainders are in a table; those of a multiple are computed once per run
 * of keys. Two products give those of the sum. */
#include "cache/eviction/importance.h"

#include <math.h>

enum { NEAR = 128 };

size_t ag_unrotate_table_floats(uint32_t n_rotated) { return (size_t)NEAR * n_rotated; }

/* Writes n_rotated / 2 cosines, then n_rotated / 2 sines. */
static void angles_at(const ag_rope_table *rope, uint32_t position, float *out) {
    const uint32_t n = rope->n_rotated / 2;
    for (uint32_t i = 0; i < n; i++) {
        const double angle = (double)position * rope->inv_freq[i];
        out[i] = (float)cos(angle);
        out[n + i] = (float)sin(angle);
    }
}

void ag_unrotate_table(const ag_rope_table *rope, float *table) {
    for (uint32_t p = 0; rope->inv_freq && p < NEAR; p++)
        angles_at(rope, p, table + (size_t)p * rope->n_rotated);
}

/* Rotates n pairs (x, y) back. */
static void turn_back(float *restrict x, float *restrict y, const float *restrict near,
                      const float *restrict far, uint32_t n, float factor) {
    const float *near_sin = near + n, *far_sin = far + n;
    for (uint32_t i = 0; i < n; i++) {
        const float c = (far[i] * near[i] - far_sin[i] * near_sin[i]) * factor;
        const float s = (far_sin[i] * near[i] + far[i] * near_sin[i]) * factor;
        const float a = x[i], b = y[i];
        x[i] = a * c + b * s;
        y[i] = b * c - a * s;
    }
}

void ag_unrotate(float *keys, size_t n, size_t dim, const uint32_t *positions,
                 const ag_rope_table *rope, const float *table, float *far) {
    if (!rope->inv_freq || rope->factor == 0) return;
    const uint32_t half = rope->n_rotated / 2;
    const float factor = 1 / rope->factor;
    uint32_t multiple = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        const uint32_t p = positions[i];
        if (p / NEAR != multiple) angles_at(rope, p / NEAR * NEAR, far);
        multiple = p / NEAR;
        float *key = keys + i * dim;
        turn_back(key, key + half, table + (size_t)(p % NEAR) * rope->n_rotated, far, half, factor);
    }
}
