/* SPDX-License-Identifier: Apache-2.0 */
/* Keys unlike the others stay: the score is -cos(k, mean of the normalised keys), per KV head.
 * Needs no queries, so it holds up when the question comes after the eviction.
 * Source: KeyDiff, arXiv:2504.15364. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

#include <math.h>
#include <string.h>

static float dot(const float *a, const float *b, size_t n) {
    enum { LANES = 8 }; /* independent sums, so that the compiler may use vectors */
    float sums[LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t l = 0; l < LANES; l++) sums[l] += a[i + l] * b[i + l];
    }
    for (; i < n; i++) total += a[i] * b[i];
    for (size_t l = 0; l < LANES; l++) total += sums[l];
    return total;
}

static void from_keys(float *keys, size_t n_slots, size_t dim, float *importance, float *mean) {
    memset(mean, 0, dim * sizeof *mean);
    for (size_t s = 0; s < n_slots; s++) {
        float *k = keys + s * dim, length = sqrtf(dot(k, k, dim));
        float scale = length > 0 ? 1 / length : 0;
        for (size_t i = 0; i < dim; i++) {
            k[i] *= scale;
            mean[i] += k[i];
        }
    }
    float length = sqrtf(dot(mean, mean, dim)), scale = length > 0 ? 1 / length : 0;
    for (size_t s = 0; s < n_slots; s++) importance[s] = -dot(keys + s * dim, mean, dim) * scale;
}

static void plan(const ag_eviction_params *p, const ag_eviction_view *v, uint32_t n_keep,
                 uint32_t *keep) {
    (void)p;
    ag_evict_select(v, v->importance, v->n_recent, n_keep, keep);
}

const ag_eviction_policy ag_eviction_keydiff = {
    .name = "keydiff",
    .importance = AG_IMPORTANCE_KEYS,
    .prefill_block = 128,
    .plan = plan,
    .from_keys = from_keys,
};
