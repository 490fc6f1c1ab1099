/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/importance.h"

#include "quant/vectors.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static float distance(const float *a, const float *b, size_t n) {
    vec sums[2] = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const vec x = v_load(a + i) - v_load(b + i),
                  y = v_load(a + i + LANES) - v_load(b + i + LANES);
        sums[0] += x * x;
        sums[1] += y * y;
    }
    const vec sum = sums[0] + sums[1];
    float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (; i < n; i++) total += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrtf(total);
}

static void add_times(float *restrict sum, const float *restrict x, size_t n, float by) {
    for (size_t i = 0; i < n; i++) sum[i] += x[i] * by;
}

/* Sums are not the weights of one query, and pooling counts some twice, so a share may not be
 * all of it. */
static const float max_share = 0.999f;

/* Returns whether the attention is known: INFINITY marks slots that rank above all others. */
static bool has_attention(float importance) { return importance > 0 && isfinite(importance); }

void ag_value_losses(float *importance, size_t n, const float *values, size_t dim, float *mean) {
    double total = 0;
    for (size_t s = 0; s < n; s++)
        total += has_attention(importance[s]) ? (double)importance[s] : 0;
    if (!(total > 0)) return;
    memset(mean, 0, dim * sizeof *mean);
    for (size_t s = 0; s < n; s++) {
        if (!has_attention(importance[s])) continue;
        importance[s] = (float)(importance[s] / total);
        add_times(mean, values + s * dim, dim, importance[s]);
    }
    for (size_t s = 0; s < n; s++) {
        if (!has_attention(importance[s])) continue;
        const float p = fminf(importance[s], max_share);
        importance[s] = p / (1 - p) * distance(values + s * dim, mean, dim);
    }
}
