/* SPDX-License-Identifier: Apache-2.0 */
/* KeyDiff: keeps keys that differ from the others. The score is -cos(k, mean of the normalised
 * keys), per KV head. Uses no queries, so it also works if the question comes after the
 * eviction. Source: arXiv:2504.15364. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"
#include "quant/dot.h"

#include <math.h>
#include <string.h>

static void add_scaled(float *sum, const float *a, float scale, size_t n) {
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec v = v_load(sum + i) + v_load(a + i) * scale;
        memcpy(sum + i, &v, sizeof v);
    }
    for (; i < n; i++) sum[i] += a[i] * scale;
}

/* importance holds the inverse lengths of the keys until the mean is known. */
static void from_keys(void *user, const ag_eviction_params *p, const ag_eviction_inputs *in) {
    const size_t dim = in->dim;
    float *mean = in->work, *importance = in->importance;
    (void)user, (void)p;
    memset(mean, 0, dim * sizeof *mean);
    for (size_t s = 0; s < in->n_slots; s++) {
        const float *k = in->keys + s * dim, length = sqrtf(ag_dot(k, k, dim));
        importance[s] = length > 0 ? 1 / length : 0;
        add_scaled(mean, k, importance[s], dim);
    }
    const float length = sqrtf(ag_dot(mean, mean, dim)), scale = length > 0 ? 1 / length : 0;
    for (size_t s = 0; s < in->n_slots; s++) {
        importance[s] *= -ag_dot(in->keys + s * dim, mean, dim) * scale;
    }
}

/* The mean of the keys. */
static size_t work_floats(void *user, size_t dim) {
    (void)user;
    return dim;
}

const ag_eviction_policy ag_eviction_keydiff = {
    .name = "keydiff",
    .importance = AG_IMPORTANCE_KEYS,
    .prefill_block = 128,
    .select = ag_select_best,
    .from_keys = from_keys,
    .work_floats = work_floats,
    .device_scores = true,
};
