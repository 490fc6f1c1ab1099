/* SPDX-License-Identifier: Apache-2.0 */
/* SnapKV: keeps what the last queries of a prompt attend to, per KV head. Weights are summed and
 * averaged over the query group by attention itself, then pooled over positions, since
 * neighbours often belong together. Source: arXiv:2404.14469; pooling as in its code, with zeros
 * beyond the ends that count in the divisor. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"
#include "core/fail.h"

#include <math.h>
#include <string.h>

static ag_status check(void *user, const ag_eviction_params *p, ag_error *err) {
    (void)user;
    if (p->snapkv_kernel % 2) return AG_OK;
    return AG_FAIL(err, INVALID, "snapkv_kernel is %u: it must be odd", p->snapkv_kernel);
}

static float average(const float *x, uint32_t begin, uint32_t end, uint32_t kernel) {
    double sum = 0;
    for (uint32_t i = begin; i < end; i++) sum += x[i];
    return (float)(sum / kernel);
}

static float highest(const float *x, uint32_t begin, uint32_t end) {
    float max = x[begin];
    for (uint32_t i = begin + 1; i < end; i++) max = fmaxf(max, x[i]);
    return max;
}

/* Slots of the window always stay and are not pooled. From then on they rank first. */
static void normalise(void *user, const ag_eviction_params *p, float *importance, uint32_t n_slots,
                      uint32_t n_window, float *values) {
    (void)user;
    uint32_t n = n_slots - n_window, side = p->snapkv_kernel / 2;
    for (uint32_t s = 0; s < n; s++) {
        uint32_t begin = s < side ? 0 : s - side, end = n - s > side ? s + side + 1 : n;
        values[s] = p->snapkv_pool == AG_POOL_MAX
                        ? highest(importance, begin, end)
                        : average(importance, begin, end, p->snapkv_kernel);
    }
    memcpy(importance, values, n * sizeof *importance);
    for (uint32_t s = n; s < n_slots; s++) importance[s] = INFINITY;
}

/* Tokens after the prompt rank below it, the oldest lowest. */
static void select_slots(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                         uint32_t n_keep, uint32_t *keep) {
    (void)user, (void)p;
    for (uint32_t s = 0; s < v->n_slots; s++) {
        v->values[s] = s < v->n_scored ? v->importance[s] : -(float)(v->n_slots - s);
    }
    ag_evict_select(v, v->values, v->n_recent, n_keep, keep);
}

const ag_eviction_policy ag_eviction_snapkv = {
    .name = "snapkv",
    .importance = AG_IMPORTANCE_WINDOW,
    .whole_prefill = true,
    .check = check,
    .select = select_slots,
    .normalise = normalise,
};
