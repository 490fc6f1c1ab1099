/* SPDX-License-Identifier: Apache-2.0 */
/* Quantises blocks with the scales of the search in search_lanes.h. From these and the scales of
 * the reference rule it keeps those with the smaller error as stored. The including file must
 * define the same as for search_lanes.h. */
#ifndef AG_QUANT_SEARCH_BLOCKS_H
#define AG_QUANT_SEARCH_BLOCKS_H

#include "quant/search_lanes.h"

/* Scales of all sub-blocks as stored, their errors, and sums for better scales. */
typedef struct search_state {
    search_row d, m; /* x = d * level - m */
    search_row error, q, qq, xq;
} search_state;

INLINE void search_evaluate(const search_batch *b, search_state *s) {
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p += LANES) {
        const vec d = v_load(s->d + p), m = v_load(s->m + p);
        const vec inverse = search_inverse(d), offset = v_mul(m, inverse);
        vec error = v_set(0), sum_q = error, sum_qq = error, sum_xq = error;
        for (size_t i = 0; i < b->n; i++) {
            const vec x = v_load(b->x[i] + p), w = v_load(b->w[i] + p);
            const vec q = search_level(b, x, inverse, offset), wq = v_mul(w, q);
            const vec e = v_sub(v_add(x, m), v_mul(d, q));
            error = v_add(error, v_mul(w, v_mul(e, e)));
            sum_q = v_add(sum_q, wq);
            sum_qq = v_add(sum_qq, v_mul(wq, q));
            sum_xq = v_add(sum_xq, v_mul(wq, x));
        }
        v_store(s->error + p, error);
        v_store(s->q + p, sum_q);
        v_store(s->qq + p, sum_qq);
        v_store(s->xq + p, sum_xq);
    }
}

/* Computes levels counted from the lowest, sub-block by sub-block. */
INLINE void search_levels(uint8_t *q, const search_batch *b, const float *d, const float *m,
                          size_t n_sub_blocks) {
    search_row levels[SEARCH_VALUES];
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p += LANES) {
        const vec inverse = search_inverse(v_load(d + p)), first = v_set(0x1p23f - b->low);
        const vec offset = v_mul(v_load(m + p), inverse);
        for (size_t i = 0; i < b->n; i++) {
            const vec level = search_level(b, v_load(b->x[i] + p), inverse, offset);
            v_store(levels[i] + p, v_add(level, first));
        }
    }
    for (size_t p = 0; p < n_sub_blocks; p++) {
        for (size_t i = 0; i < b->n; i++) {
            uint32_t bits;
            memcpy(&bits, &levels[i][p], sizeof bits);
            q[p * b->n + i] = (uint8_t)bits;
        }
    }
}

/* ---- blocks of 32, with halves as scales ---- */

/* Best scales of each sub-block so far, also as halves. */
typedef struct search_halves {
    search_row d, m, error;
    uint16_t stored_d[SEARCH_SUB_BLOCKS], stored_m[SEARCH_SUB_BLOCKS];
} search_halves;

INLINE void search_round_to_halves(uint16_t *stored, float *values) {
    ag_f32_to_f16_row(stored, values, SEARCH_SUB_BLOCKS);
    ag_f16_to_f32_row(values, stored, SEARCH_SUB_BLOCKS);
}

/* Keeps the scales s->d and s->m of sub-blocks whose error is smaller. They may have any
 * precision. An error that is not finite is never smaller. m is stored negated. */
INLINE void search_consider(search_halves *best, const search_batch *b, search_state *s) {
    uint16_t d[SEARCH_SUB_BLOCKS], m[SEARCH_SUB_BLOCKS];
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) s->m[p] = -s->m[p];
    search_round_to_halves(d, s->d);
    search_round_to_halves(m, s->m);
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) s->m[p] = -s->m[p];
    search_evaluate(b, s);
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        if (!(s->error[p] < best->error[p]) || !ag_f16_is_finite(d[p]) || !ag_f16_is_finite(m[p]))
            continue;
        best->error[p] = s->error[p];
        best->d[p] = s->d[p];
        best->m[p] = s->m[p];
        best->stored_d[p] = d[p];
        best->stored_m[p] = m[p];
    }
}

INLINE search_halves search_no_halves(void) {
    search_halves best = {.d = {0}};
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) best.error[p] = INFINITY;
    return best;
}

INLINE void search_signed_halves(search_halves *best, search_batch *b) {
    enum { N = 5 };
    search_scales(b);
    search_row candidates[N];
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        const float lowest = b->lowest[p], highest = b->highest[p], found = b->d[p];
        const float extreme = highest > -lowest ? highest : lowest;
        candidates[0][p] = extreme / b->low;
        candidates[1][p] = fabsf(extreme) / b->high;
        candidates[2][p] = found;
        candidates[3][p] = found * 0.99f;
        candidates[4][p] = found * 1.01f;
    }
    for (size_t i = 0; i < N; i++) {
        search_state s = {.m = {0}};
        memcpy(s.d, candidates[i], sizeof s.d);
        search_consider(best, b, &s);
    }
}

INLINE void search_based_halves(search_halves *best, search_batch *b) {
    search_state s;
    search_bases(b, true);
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        s.d[p] = (b->highest[p] - b->lowest[p]) / b->high;
        s.m[p] = -b->lowest[p];
    }
    search_consider(best, b, &s);
    memcpy(s.d, b->d, sizeof s.d);
    memcpy(s.m, b->m, sizeof s.m);
    search_consider(best, b, &s);
}

/* Quantises at most SEARCH_SUB_BLOCKS blocks of 32. Returns how many were done: fewer if halves
 * cannot hold the scale of the next one. */
INLINE size_t search_small_blocks(ag_dtype type, unsigned char *dst, const float *x, const float *w,
                                  size_t n_blocks) {
    const bool is_based = type == AG_Q4_1 || type == AG_Q5_1;
    const bool has_qh = type == AG_Q5_0 || type == AG_Q5_1;
    search_batch b = {.low = is_based ? 0 : has_qh ? -16 : -8};
    b.high = b.low + (has_qh ? 31 : 15);
    search_halves best = search_no_halves();
    uint8_t q[SEARCH_SUB_BLOCKS * AG_QK];
    search_gather(&b, x, w, n_blocks, AG_QK);
    if (is_based) search_based_halves(&best, &b);
    else search_signed_halves(&best, &b);
    search_levels(q, &b, best.d, best.m, n_blocks);
    for (size_t p = 0; p < n_blocks; p++) {
        const float lowest = b.lowest[p], highest = b.highest[p];
        const float extreme = highest > -lowest ? highest : lowest;
        if (!(best.error[p] < INFINITY)) return p;
        if (!is_based && !ag_f16_is_finite(ag_f32_to_f16(extreme / b.low))) return p;
        memcpy(dst, &best.stored_d[p], 2), dst += 2;
        if (is_based) memcpy(dst, &best.stored_m[p], 2), dst += 2;
        if (has_qh) ag_pack_qh(dst, q + p * AG_QK), dst += AG_QK / 8;
        ag_pack_nibbles(dst, q + p * AG_QK), dst += AG_QK / 2;
    }
    return n_blocks;
}

/* ---- blocks of 256, with integers times a half as scales ---- */

enum { SEARCH_TURNS = 2 };

/* Superblocks in adjacent lanes: block k has the sub-blocks from k * n_sub_blocks on. d and m of
 * the state are d * sc and dmin * step. */
typedef struct search_super {
    size_t n_sub_blocks; /* sub-blocks of a block */
    int top, low;        /* range of the integer scales */
    uint16_t d[2], dmin[2];
    search_row sc, step;
    float error[2];
} search_super;

INLINE float search_integer(float v, int low, int top) {
    v = v > (float)low ? v : (float)low;
    v = v < (float)top ? v : (float)top;
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

/* Rounds scales to integers, the largest magnitude to `to`, and returns their common factor as a
 * half. */
INLINE uint16_t search_round_scales(float *integers, const float *scale, const search_super *t,
                                    int to) {
    const float extreme = ag_extreme_of(scale, t->n_sub_blocks);
    const uint16_t d = ag_f32_to_f16(extreme / (float)to);
    const float inverse = ag_inverse_of(ag_f16_to_f32(d));
    for (size_t p = 0; p < t->n_sub_blocks; p++)
        integers[p] = search_integer(scale[p] * inverse, t->low, t->top);
    return d;
}

/* Fills in d and m of the state and evaluates it. */
INLINE void search_evaluate_super(const search_batch *b, search_super *t, search_state *s) {
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        s->d[p] = ag_f16_to_f32(t->d[p / t->n_sub_blocks]) * t->sc[p];
        s->m[p] = ag_f16_to_f32(t->dmin[p / t->n_sub_blocks]) * t->step[p];
    }
    search_evaluate(b, s);
    for (size_t k = 0; k < SEARCH_SUB_BLOCKS / t->n_sub_blocks; k++) {
        t->error[k] = 0;
        for (size_t p = k * t->n_sub_blocks; p < (k + 1) * t->n_sub_blocks; p++)
            t->error[k] += s->error[p];
    }
}

/* Keeps, block by block, the scales with the smaller error whose halves are finite. */
INLINE void search_keep_better_super(search_super *best, const search_super *t) {
    for (size_t k = 0; k < SEARCH_SUB_BLOCKS / t->n_sub_blocks; k++) {
        const bool fits = ag_f16_is_finite(t->d[k]) && ag_f16_is_finite(t->dmin[k]);
        if (!fits || !(t->error[k] < best->error[k])) continue;
        const size_t first = k * t->n_sub_blocks, bytes = t->n_sub_blocks * sizeof(float);
        best->d[k] = t->d[k];
        best->dmin[k] = t->dmin[k];
        best->error[k] = t->error[k];
        memcpy(best->sc + first, t->sc + first, bytes);
        memcpy(best->step + first, t->step + first, bytes);
    }
}

/* Finds for each sub-block the best neighbouring integers, for its present levels. */
INLINE void search_improve_bases(const search_batch *b, search_super *t, const search_state *s) {
    search_row d, dmin;
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        d[p] = ag_f16_to_f32(t->d[p / t->n_sub_blocks]);
        dmin[p] = ag_f16_to_f32(t->dmin[p / t->n_sub_blocks]);
    }
    const vec top = v_set((float)t->top), zero = v_set(0);
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p += LANES) {
        const vec w = v_load(b->sum_w + p), wx = v_load(b->sum_wx + p), q = v_load(s->q + p);
        const vec qq = v_load(s->qq + p), xq = v_load(s->xq + p);
        const vec sc0 = v_load(t->sc + p), step0 = v_load(t->step + p);
        vec best = v_set(INFINITY), best_sc = sc0, best_step = step0;
        for (int at = 0; at < 9; at++) {
            const vec sc = v_max(v_min(v_add(sc0, v_set((float)(at % 3 - 1))), top), zero);
            const vec step = v_max(v_min(v_add(step0, v_set((float)(at / 3 - 1))), top), zero);
            const vec scale = v_mul(sc, v_load(d + p)), base = v_mul(step, v_load(dmin + p));
            /* scale (scale qq - 2 xq - 2 base q) + base (2 wx + base w) */
            const vec twice = v_add(xq, v_mul(base, q));
            const vec first = v_mul(scale, v_sub(v_mul(scale, qq), v_add(twice, twice)));
            const vec second = v_mul(base, v_add(v_add(wx, wx), v_mul(base, w)));
            const vec error = v_add(first, second);
            best_sc = v_if_less(error, best, sc, best_sc);
            best_step = v_if_less(error, best, step, best_step);
            best = v_if_less(error, best, error, best);
        }
        v_store(t->sc + p, best_sc);
        v_store(t->step + p, best_step);
    }
}

/* Finds the best halves of block k for its present levels. */
INLINE void search_fit_bases(const search_batch *b, search_super *t, const search_state *s,
                             size_t k) {
    double qq = 0, qm = 0, mm = 0, xq = 0, xm = 0;
    for (size_t p = k * t->n_sub_blocks; p < (k + 1) * t->n_sub_blocks; p++) {
        const double sc = (double)t->sc[p], m = -(double)t->step[p];
        qq += sc * sc * (double)s->qq[p];
        qm += sc * m * (double)s->q[p];
        mm += m * m * (double)b->sum_w[p];
        xq += sc * (double)s->xq[p];
        xm += m * (double)b->sum_wx[p];
    }
    const double determinant = qq * mm - qm * qm;
    double d = qq > 0 ? xq / qq : 0, dmin = 0;
    if (determinant > 1e-9 * qq * mm) {
        d = (xq * mm - xm * qm) / determinant;
        dmin = (xm * qq - xq * qm) / determinant;
    }
    if (!(d > 0) || !(dmin >= 0)) return;
    t->d[k] = ag_f32_to_f16((float)d);
    t->dmin[k] = ag_f32_to_f16((float)dmin);
}

/* Computes the ranges of the reference rule: from 0 or the lowest value of each sub-block to the
 * highest. */
INLINE void search_rule_of_bases(const search_batch *b, search_row d, search_row m) {
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        const float lowest = b->lowest[p] < 0 ? b->lowest[p] : 0;
        const float range = b->highest[p] - lowest;
        d[p] = range > 0 ? range / b->high : 0; /* the values may all be negative */
        m[p] = -lowest;
    }
}

INLINE void search_round_bases(search_super *t, const float *d, const float *m) {
    for (size_t k = 0; k < SEARCH_SUB_BLOCKS / t->n_sub_blocks; k++) {
        const size_t p = k * t->n_sub_blocks;
        t->d[k] = search_round_scales(t->sc + p, d + p, t, t->top);
        t->dmin[k] = search_round_scales(t->step + p, m + p, t, t->top);
    }
}

/* Finds the best state. bad[k]: the reference rule's halves cannot hold block k. */
INLINE void search_based_super(search_super *best, search_batch *b, bool bad[2]) {
    search_state s;
    search_row d, m;
    search_super t = {.n_sub_blocks = 8, .top = 63};
    *best = t;
    search_rule_of_bases(b, d, m);
    search_round_bases(best, d, m);
    search_evaluate_super(b, best, &s);
    for (size_t k = 0; k < 2; k++)
        bad[k] = !ag_f16_is_finite(best->d[k]) || !ag_f16_is_finite(best->dmin[k]);
    search_bases(b, false);
    search_round_bases(&t, b->d, b->m);
    for (int turn = 0;; turn++) {
        search_evaluate_super(b, &t, &s);
        search_keep_better_super(best, &t);
        if (turn == SEARCH_TURNS) return;
        search_improve_bases(b, &t, &s);
        for (size_t k = 0; k < 2; k++) search_fit_bases(b, &t, &s, k);
    }
}

/* Improves integers and half as above, for sub-blocks without a base. */
INLINE void search_improve_signed(search_super *t, const search_state *s) {
    double qq = 0, xq = 0;
    const float d = ag_f16_to_f32(t->d[0]);
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        const float sum = d * s->qq[p];
        if (sum > 0 || sum < 0) t->sc[p] = search_integer(s->xq[p] / sum, t->low, t->top);
        qq += (double)t->sc[p] * (double)t->sc[p] * (double)s->qq[p];
        xq += (double)t->sc[p] * (double)s->xq[p];
    }
    if (qq > 0) t->d[0] = ag_f32_to_f16((float)(xq / qq));
}

INLINE void search_signed_super(search_super *best, search_batch *b, bool bad[2]) {
    search_state s;
    search_row d;
    search_super t = {.n_sub_blocks = SEARCH_SUB_BLOCKS, .top = 127, .low = -128};
    *best = t;
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        const float lowest = b->lowest[p], highest = b->highest[p];
        d[p] = (highest > -lowest ? highest : lowest) / b->low;
    }
    best->d[0] = search_round_scales(best->sc, d, best, best->low);
    search_evaluate_super(b, best, &s);
    bad[0] = !ag_f16_is_finite(best->d[0]);
    search_scales(b);
    t.d[0] = search_round_scales(t.sc, b->d, &t, t.low);
    for (int turn = 0;; turn++) {
        search_evaluate_super(b, &t, &s);
        search_keep_better_super(best, &t);
        if (turn == SEARCH_TURNS) return;
        search_improve_signed(&t, &s);
    }
}

/* ---- writing ---- */

INLINE void search_write_q4_k(unsigned char *dst, const uint8_t *q, const search_super *t,
                              size_t k) {
    uint8_t sc[8], m[8];
    for (size_t p = 0; p < 8; p++) sc[p] = (uint8_t)t->sc[8 * k + p];
    for (size_t p = 0; p < 8; p++) m[p] = (uint8_t)t->step[8 * k + p];
    ag_block_q4_k out = {.d = t->d[k], .dmin = t->dmin[k]};
    ag_pack_q4_k_scales(out.scales, sc, m);
    ag_put_fields(out.qs, q, 0, 4, 32);
    memcpy(dst, &out, sizeof out);
}

INLINE void search_write_q5_k(unsigned char *dst, const uint8_t *q, const search_super *t,
                              size_t k) {
    uint8_t sc[8], m[8];
    for (size_t p = 0; p < 8; p++) sc[p] = (uint8_t)t->sc[8 * k + p];
    for (size_t p = 0; p < 8; p++) m[p] = (uint8_t)t->step[8 * k + p];
    ag_block_q5_k out = {.d = t->d[k], .dmin = t->dmin[k]};
    ag_pack_q4_k_scales(out.scales, sc, m);
    ag_put_fields(out.qs, q, 0, 4, 32);
    ag_put_fields(out.qh, q, 4, 1, 32);
    memcpy(dst, &out, sizeof out);
}

INLINE void search_write_q6_k(unsigned char *dst, const uint8_t *q, const search_super *t) {
    ag_block_q6_k out = {.d = t->d[0]};
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) out.scales[p] = (int8_t)t->sc[p];
    ag_put_fields(out.ql, q, 0, 4, 64);
    ag_put_fields(out.qh, q, 4, 2, 32);
    memcpy(dst, &out, sizeof out);
}

INLINE size_t search_large_blocks(ag_dtype type, unsigned char *dst, const float *x, const float *w,
                                  size_t n_blocks) {
    search_batch b = {.low = type == AG_Q6_K ? -32 : 0};
    b.high = type == AG_Q6_K ? 31 : type == AG_Q5_K ? 31 : 15;
    search_super best;
    search_row d, m;
    bool bad[2] = {false, false};
    uint8_t q[2 * AG_QK_K];
    const size_t sub_block = type == AG_Q6_K ? 16 : 32,
                 n_sub_blocks = n_blocks * (AG_QK_K / sub_block);
    search_gather(&b, x, w, n_sub_blocks, sub_block);
    if (type == AG_Q6_K) search_signed_super(&best, &b, bad);
    else search_based_super(&best, &b, bad);
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        d[p] = ag_f16_to_f32(best.d[p / best.n_sub_blocks]) * best.sc[p];
        m[p] = ag_f16_to_f32(best.dmin[p / best.n_sub_blocks]) * best.step[p];
    }
    search_levels(q, &b, d, m, n_sub_blocks);
    for (size_t k = 0; k < n_blocks; k++, dst += ag_dtype_block_bytes(type)) {
        if (bad[k]) return k;
        if (type == AG_Q4_K) search_write_q4_k(dst, q + k * AG_QK_K, &best, k);
        if (type == AG_Q5_K) search_write_q5_k(dst, q + k * AG_QK_K, &best, k);
        if (type == AG_Q6_K) search_write_q6_k(dst, q, &best);
    }
    return n_blocks;
}

/* Quantises full blocks of a type that has a search, at most 512 values: see ag_search_fn. */
INLINE size_t search_blocks(ag_dtype type, void *dst, const float *x, const float *w,
                            size_t n_blocks) {
    return ag_dtype_block(type) == AG_QK ? search_small_blocks(type, dst, x, w, n_blocks)
                                         : search_large_blocks(type, dst, x, w, n_blocks);
}

#endif
