/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/spill_sketch.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* A sketch: the unit of the levels as a float, then the levels of the largest values [dim] and of
 * the least [dim]. */

enum { LEVELS = 126, LANES = 8 }; /* one level is left for rounding outwards */

/* Of the way from the middle of what a product can be to the most, so much is taken. The most
 * itself would need a key that is the block's extreme in every dimension. */
static const float reach = 0.5f;

size_t ag_spill_sketch_bytes(size_t dim) {
    const size_t bytes = sizeof(float) + 2 * dim;
    return (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

void ag_spill_sketch_make(void *sketch, const float *keys, size_t n, size_t dim, float *work) {
    int8_t *most = (int8_t *)sketch + sizeof(float), *least = most + dim;
    float *high = work, *low = work + dim, largest = 0;
    memcpy(high, keys, dim * sizeof *high);
    memcpy(low, keys, dim * sizeof *low);
    for (size_t i = 1; i < n; i++) {
        const float *key = keys + i * dim;
        for (size_t d = 0; d < dim; d++) {
            high[d] = high[d] > key[d] ? high[d] : key[d];
            low[d] = low[d] < key[d] ? low[d] : key[d];
        }
    }
    for (size_t d = 0; d < dim; d++) {
        largest = high[d] > largest ? high[d] : largest;
        largest = -low[d] > largest ? -low[d] : largest;
    }
    /* Of less there would be more levels than there are, by rounding. */
    const float unit = largest / LEVELS >= FLT_MIN ? largest / LEVELS : 1;
    memcpy(sketch, &unit, sizeof unit);
    for (size_t d = 0; d < dim; d++) {
        most[d] = (int8_t)ceilf(high[d] / unit);
        least[d] = (int8_t)floorf(low[d] / unit);
    }
}

/* reach 1 gives the most, and 0 the middle. */
void ag_spill_sketch_query(float *parts, const float *q, size_t dim) {
    const float near = (1 + reach) / 2, far = (1 - reach) / 2;
    for (size_t d = 0; d < dim; d++) {
        parts[d] = q[d] * (q[d] > 0 ? near : far);
        parts[dim + d] = q[d] * (q[d] > 0 ? far : near);
    }
}

/* In lanes that a compiler can put into a vector. */
float ag_spill_sketch_likely(const void *sketch, const float *parts, size_t dim) {
    const int8_t *most = (const int8_t *)sketch + sizeof(float), *least = most + dim;
    const float *up = parts, *down = parts + dim;
    float lanes[LANES] = {0}, sum = 0, unit;
    size_t d = 0;
    memcpy(&unit, sketch, sizeof unit);
    for (; d + LANES <= dim; d += LANES) {
        for (size_t i = 0; i < LANES; i++)
            lanes[i] += up[d + i] * (float)most[d + i] + down[d + i] * (float)least[d + i];
    }
    for (; d < dim; d++) sum += up[d] * (float)most[d] + down[d] * (float)least[d];
    for (size_t i = 0; i < LANES; i++) sum += lanes[i];
    return unit * sum;
}
