/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/key_bounds.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Layout: the unit of the levels as a float, the levels of the maxima [dim], the levels of the
 * minima [dim]. */

enum { LEVELS = 126, LANES = 8 }; /* one level is reserved for rounding outwards */

/* Share of the way from the middle of the bounds to the upper bound. The upper bound needs a key
 * that is extreme in every dimension. */
static const float reach = 0.5f;

size_t ag_key_bounds_bytes(size_t dim) {
    const size_t bytes = sizeof(float) + 2 * dim;
    return (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

void ag_key_bounds_make(void *bounds, const float *keys, size_t n, size_t dim, float *work) {
    int8_t *max = (int8_t *)bounds + sizeof(float), *min = max + dim;
    float *highest = work, *lowest = work + dim, largest = 0;
    memcpy(highest, keys, dim * sizeof *highest);
    memcpy(lowest, keys, dim * sizeof *lowest);
    for (size_t i = 1; i < n; i++) {
        const float *key = keys + i * dim;
        for (size_t d = 0; d < dim; d++) {
            highest[d] = highest[d] > key[d] ? highest[d] : key[d];
            lowest[d] = lowest[d] < key[d] ? lowest[d] : key[d];
        }
    }
    for (size_t d = 0; d < dim; d++) {
        largest = highest[d] > largest ? highest[d] : largest;
        largest = -lowest[d] > largest ? -lowest[d] : largest;
    }
    /* A smaller unit would need more levels than there are, because of rounding. */
    const float unit = largest / LEVELS >= FLT_MIN ? largest / LEVELS : 1;
    memcpy(bounds, &unit, sizeof unit);
    for (size_t d = 0; d < dim; d++) {
        max[d] = (int8_t)ceilf(highest[d] / unit);
        min[d] = (int8_t)floorf(lowest[d] / unit);
    }
}

/* A reach of 1 gives the upper bound, 0 the middle. */
void ag_key_bounds_query(float *weights, const float *q, size_t dim) {
    const float near = (1 + reach) / 2, far = (1 - reach) / 2;
    for (size_t d = 0; d < dim; d++) {
        weights[d] = q[d] * (q[d] > 0 ? near : far);
        weights[dim + d] = q[d] * (q[d] > 0 ? far : near);
    }
}

/* Sums in lanes that the compiler can vectorise. */
float ag_key_bounds_likely(const void *bounds, const float *weights, size_t dim) {
    const int8_t *max = (const int8_t *)bounds + sizeof(float), *min = max + dim;
    const float *up = weights, *down = weights + dim;
    float lanes[LANES] = {0}, sum = 0, unit;
    size_t d = 0;
    memcpy(&unit, bounds, sizeof unit);
    for (; d + LANES <= dim; d += LANES) {
        for (size_t i = 0; i < LANES; i++)
            lanes[i] += up[d + i] * (float)max[d + i] + down[d + i] * (float)min[d + i];
    }
    for (; d < dim; d++) sum += up[d] * (float)max[d] + down[d] * (float)min[d];
    for (size_t i = 0; i < LANES; i++) sum += lanes[i];
    return unit * sum;
}
