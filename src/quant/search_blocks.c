/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of 32 whose scales are halves: those that the search finds, as they are stored, beside
 * those of the reference rules. */
#include "quant/search.h"

#include <math.h>
#include <string.h>

typedef struct stored {
    uint16_t d, m; /* halves; the values are d * level + m */
    float error;
} stored;

/* Replaces *best if the error with the scales as they are stored is smaller. */
static void consider(stored *best, const ag_search *s, float d, float m) {
    stored other = {ag_f32_to_f16(d), ag_f32_to_f16(m), 0};
    if (!ag_f16_is_finite(other.d) || !ag_f16_is_finite(other.m)) return;
    other.error = ag_search_error(s, ag_f16_to_f32(other.d), -ag_f16_to_f32(other.m));
    if (other.error < best->error) *best = other;
}

static bool search_signed(const float *x, const float *w, float low, uint16_t *d, uint8_t *q) {
    const ag_search s = {x, w, AG_QK, low, -low - 1};
    float lowest, highest;
    ag_block_range(x, &lowest, &highest);
    const float extreme = highest > -lowest ? highest : lowest;
    const float found = ag_search_scale(&s);
    stored best = {0, 0, INFINITY};
    if (!ag_f16_is_finite(ag_f32_to_f16(extreme / low))) return false;
    const float scales[] = {extreme / low, fabsf(extreme) / s.high, found, found * 0.99f,
                            found * 1.01f};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) consider(&best, &s, scales[i], 0);
    *d = best.d;
    ag_search_levels(q, &s, ag_f16_to_f32(best.d), 0);
    return isfinite(best.error);
}

static bool search_based(const float *x, const float *w, float top, uint16_t *d, uint16_t *m,
                         uint8_t *q) {
    const ag_search s = {x, w, AG_QK, 0, top};
    float lowest, highest, scale, base;
    ag_block_range(x, &lowest, &highest);
    ag_search_scale_and_base(&s, true, &scale, &base);
    stored best = {0, 0, INFINITY};
    consider(&best, &s, (highest - lowest) / top, lowest);
    consider(&best, &s, scale, -base);
    *d = best.d;
    *m = best.m;
    ag_search_levels(q, &s, ag_f16_to_f32(best.d), -ag_f16_to_f32(best.m));
    return isfinite(best.error);
}

bool ag_search_q4_0(void *dst, const float *x, const float *w) {
    ag_block_q4_0 out;
    uint8_t q[AG_QK];
    if (!search_signed(x, w, -8, &out.d, q)) return false;
    ag_pack_nibbles(out.qs, q);
    memcpy(dst, &out, sizeof out);
    return true;
}

bool ag_search_q5_0(void *dst, const float *x, const float *w) {
    ag_block_q5_0 out;
    uint8_t q[AG_QK];
    if (!search_signed(x, w, -16, &out.d, q)) return false;
    ag_pack_nibbles(out.qs, q);
    ag_pack_fifths(out.qh, q);
    memcpy(dst, &out, sizeof out);
    return true;
}

bool ag_search_q4_1(void *dst, const float *x, const float *w) {
    ag_block_q4_1 out;
    uint8_t q[AG_QK];
    if (!search_based(x, w, 15, &out.d, &out.m, q)) return false;
    ag_pack_nibbles(out.qs, q);
    memcpy(dst, &out, sizeof out);
    return true;
}

bool ag_search_q5_1(void *dst, const float *x, const float *w) {
    ag_block_q5_1 out;
    uint8_t q[AG_QK];
    if (!search_based(x, w, 31, &out.d, &out.m, q)) return false;
    ag_pack_nibbles(out.qs, q);
    ag_pack_fifths(out.qh, q);
    memcpy(dst, &out, sizeof out);
    return true;
}
