/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks whose parts have scales that are themselves whole numbers times a half: first the best
 * scales of every part by itself, then their rounding, which is improved in turns: of each part its
 * neighbouring scales are tried, and the halves follow by least squares from the levels. */
#include "quant/search.h"

#include <math.h>

enum { TURNS = 2 };

/* ---- parts with a least value ---- */

typedef struct parts_search {
    ag_search part[AG_QK_K / 16];
    size_t n; /* parts */
    int top_scale;
} parts_search;

static float part_error(const ag_search *s, const ag_block_parts *b, size_t sc, size_t m) {
    return ag_search_error(s, ag_f16_to_f32(b->d) * (float)sc, ag_f16_to_f32(b->dmin) * (float)m);
}

/* Of part p the best scales among the neighbours of those it has; the error. */
static float improve_part(ag_block_parts *b, const parts_search *p, size_t at) {
    const int sc0 = b->sc[at], m0 = b->m[at], top = p->top_scale;
    float best = part_error(&p->part[at], b, (size_t)sc0, (size_t)m0);
    for (int sc = sc0 > 0 ? sc0 - 1 : 0; sc <= sc0 + 1 && sc <= top; sc++) {
        for (int m = m0 > 0 ? m0 - 1 : 0; m <= m0 + 1 && m <= top; m++) {
            if (sc == sc0 && m == m0) continue;
            const float error = part_error(&p->part[at], b, (size_t)sc, (size_t)m);
            if (error >= best) continue;
            best = error;
            b->sc[at] = (uint8_t)sc;
            b->m[at] = (uint8_t)m;
        }
    }
    return best;
}

static float improve_parts(ag_block_parts *b, const parts_search *p) {
    float error = 0;
    for (size_t at = 0; at < p->n; at++) error += improve_part(b, p, at);
    return error;
}

/* The halves that are best for the levels that the block has now. */
static void fit_halves(ag_block_parts *b, const parts_search *p) {
    double qq = 0, qm = 0, mm = 0, xq = 0, xm = 0;
    for (size_t at = 0; at < p->n; at++) {
        const ag_search *s = &p->part[at];
        uint8_t q[32];
        ag_search_levels(q, s, ag_f16_to_f32(b->d) * b->sc[at], ag_f16_to_f32(b->dmin) * b->m[at]);
        const double m = -(double)b->m[at];
        for (size_t i = 0; i < s->n; i++) {
            const double w = (double)s->w[i], x = (double)s->x[i], l = (double)b->sc[at] * q[i];
            qq += w * l * l;
            qm += w * l * m;
            mm += w * m * m;
            xq += w * x * l;
            xm += w * x * m;
        }
    }
    const double determinant = qq * mm - qm * qm;
    double d = qq > 0 ? xq / qq : 0, dmin = 0;
    if (determinant > 1e-9 * qq * mm) {
        d = (xq * mm - xm * qm) / determinant;
        dmin = (xm * qq - xq * qm) / determinant;
    }
    if (!(d > 0) || !(dmin >= 0)) return;
    b->d = ag_f32_to_f16((float)d);
    b->dmin = ag_f32_to_f16((float)dmin);
}

static bool fits(const ag_block_parts *b) {
    return ag_f16_is_finite(b->d) && ag_f16_is_finite(b->dmin);
}

static void keep_better(ag_block_parts *best, float *error, const ag_block_parts *b, float other) {
    if (!fits(b) || !(other < *error)) return;
    *best = *b;
    *error = other;
}

bool ag_search_parts(ag_block_parts *out, const float *x, const float *w, size_t part, int top,
                     int top_scale) {
    parts_search p = {.n = AG_QK_K / part, .top_scale = top_scale};
    float scale[AG_QK_K / 16], base[AG_QK_K / 16], error = 0;
    if (!ag_round_parts(out, x, part, top, top_scale)) return false;
    ag_block_parts b;
    for (size_t at = 0; at < p.n; at++) {
        p.part[at] = (ag_search){x + at * part, w + at * part, part, 0, (float)top};
        ag_search_scale_and_base(&p.part[at], false, &scale[at], &base[at]);
        error += part_error(&p.part[at], out, out->sc[at], out->m[at]);
    }
    b.d = ag_round_scales(b.sc, scale, p.n, top_scale);
    b.dmin = ag_round_scales(b.m, base, p.n, top_scale);
    if (fits(&b)) keep_better(out, &error, &b, improve_parts(&b, &p));
    for (int i = 0; i < TURNS && fits(&b); i++) {
        fit_halves(&b, &p);
        if (fits(&b)) keep_better(out, &error, &b, improve_parts(&b, &p));
    }
    for (size_t at = 0; at < p.n; at++) {
        ag_search_levels(out->q + at * part, &p.part[at], ag_f16_to_f32(out->d) * out->sc[at],
                         ag_f16_to_f32(out->dmin) * out->m[at]);
    }
    return true;
}

/* ---- parts about 0 ---- */

enum { PART = 16, N_PARTS = AG_QK_K / PART };

static float signed_error(const ag_search *s, uint16_t d, int sc) {
    return ag_search_error(s, ag_f16_to_f32(d) * (float)sc, 0);
}

static float improve_signed(ag_signed_parts *b, const ag_search *parts, int lowest_scale) {
    float sum = 0;
    for (size_t p = 0; p < N_PARTS; p++) {
        const int sc0 = b->sc[p];
        float best = signed_error(&parts[p], b->d, sc0);
        for (int sc = sc0 - 1; sc <= sc0 + 1; sc += 2) {
            if (sc < lowest_scale || sc > -lowest_scale - 1) continue;
            const float error = signed_error(&parts[p], b->d, sc);
            if (error >= best) continue;
            best = error;
            b->sc[p] = (int8_t)sc;
        }
        sum += best;
    }
    return sum;
}

static void fit_half(ag_signed_parts *b, const ag_search *parts) {
    double qq = 0, xq = 0;
    for (size_t p = 0; p < N_PARTS; p++) {
        uint8_t q[PART];
        ag_search_levels(q, &parts[p], ag_f16_to_f32(b->d) * b->sc[p], 0);
        for (size_t i = 0; i < PART; i++) {
            const double l = (double)b->sc[p] * ((double)q[i] + (double)parts[p].low);
            qq += (double)parts[p].w[i] * l * l;
            xq += (double)parts[p].w[i] * (double)parts[p].x[i] * l;
        }
    }
    if (qq > 0) b->d = ag_f32_to_f16((float)(xq / qq));
}

static void keep_better_signed(ag_signed_parts *best, float *error, const ag_signed_parts *b,
                               float other) {
    if (!ag_f16_is_finite(b->d) || !(other < *error)) return;
    *best = *b;
    *error = other;
}

/* The scale of largest magnitude becomes lowest_scale. */
static void round_signed_scales(ag_signed_parts *b, const float scale[N_PARTS], int lowest_scale) {
    b->d = ag_f32_to_f16(ag_extreme_of(scale, N_PARTS) / (float)lowest_scale);
    const float inverse = ag_inverse_of(ag_f16_to_f32(b->d));
    for (size_t p = 0; p < N_PARTS; p++) {
        b->sc[p] = (int8_t)ag_nearest_level(scale[p] * inverse, lowest_scale, -lowest_scale - 1);
    }
}

bool ag_search_signed_parts(ag_signed_parts *out, const float *x, const float *w, int lowest,
                            int lowest_scale) {
    ag_search parts[N_PARTS];
    float scale[N_PARTS], error = 0;
    if (!ag_round_signed_parts(out, x, lowest, lowest_scale)) return false;
    for (size_t p = 0; p < N_PARTS; p++) {
        parts[p] = (ag_search){x + p * PART, w + p * PART, PART, (float)lowest, (float)-lowest - 1};
        scale[p] = ag_search_scale(&parts[p]);
        error += signed_error(&parts[p], out->d, out->sc[p]);
    }
    ag_signed_parts b;
    round_signed_scales(&b, scale, lowest_scale);
    for (int i = 0; i <= TURNS && ag_f16_is_finite(b.d); i++) {
        if (i > 0) fit_half(&b, parts);
        if (!ag_f16_is_finite(b.d)) break;
        keep_better_signed(out, &error, &b, improve_signed(&b, parts, lowest_scale));
    }
    for (size_t p = 0; p < N_PARTS; p++) {
        ag_search_levels(out->q + p * PART, &parts[p], ag_f16_to_f32(out->d) * out->sc[p], 0);
    }
    return true;
}
