/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in double, row by row: scores of the visible slots, their exponentials, the weighted
 * sum of the values. A row of the cache is converted once for the query heads that share it. */
#include "backend/cpu/common/common.h"
#include "backend/cpu/common/dot.h"
#include "backend/cpu/kv_head.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

enum { SPAN_BLOCKS = AG_ATTENTION_SPAN / AG_KV_BLOCK };

/* Scratch memory, in this order. */
typedef struct work {
    double *q;       /* [group][head_dim] */
    double *sums;    /* [group][head_dim] */
    double *weights; /* [group][AG_ATTENTION_SPAN] */
    double *row;     /* [head_dim] */
    float *floats;   /* [head_dim] */
} work;

size_t ag_attention_scratch_bytes__common(uint32_t head_dim, uint32_t n_queries) {
    const size_t each = (2 * (size_t)head_dim + AG_ATTENTION_SPAN) * sizeof(double);
    return n_queries * each + head_dim * (sizeof(double) + sizeof(float));
}

static work work_in(void *scratch, size_t head_dim, size_t group) {
    work w = {.q = scratch};
    w.sums = w.q + group * head_dim;
    w.weights = w.sums + group * head_dim;
    w.row = w.weights + group * AG_ATTENTION_SPAN;
    w.floats = (float *)(void *)(w.row + head_dim);
    return w;
}

/* Returns the slots that a row attends to, counted from the first slot of the span. */
static kv_range find_visible(const ag_cpu_queries *queries, size_t row, const ag_cpu_kv_head *kv,
                             uint32_t slot0) {
    const uint32_t block0 = slot0 / AG_KV_BLOCK;
    kv_range all = {0, 0};
    for (uint32_t b = block0; b < block0 + SPAN_BLOCKS; b++) {
        const uint32_t n = kv_head_slots(kv, b, kv->n_slots);
        if (!n) break;
        const kv_range here = kv_head_visible(kv, b, n, queries, row);
        all.first += here.first;
        all.end += here.end;
    }
    return all;
}

static void load_row(const work *w, const ag_cpu_kv_head *kv, uint32_t slot, ag_dtype type,
                     size_t offset) {
    const unsigned char *block = kv->blocks[slot / AG_KV_BLOCK] + offset;
    const size_t row_bytes = ag_dtype_row_bytes(type, kv->head_dim);
    ag_dequantize_row(type, w->floats, block + slot % AG_KV_BLOCK * row_bytes, kv->head_dim);
    for (uint32_t i = 0; i < kv->head_dim; i++) w->row[i] = w->floats[i];
}

static double capped(double score, double cap) { return cap > 0 ? cap * tanh(score / cap) : score; }

/* Writes the scores of one row's group for n slots from slot0 on to w->weights. */
static void score_keys(const work *w, const ag_cpu_queries *queries, size_t row,
                       const ag_cpu_kv_head *kv, uint32_t slot0, uint32_t n) {
    const size_t d = kv->head_dim;
    const float *q = queries->q + row * queries->row_stride;
    for (size_t i = 0; i < queries->group * d; i++) w->q[i] = q[i];
    for (uint32_t s = 0; s < n; s++) {
        load_row(w, kv, slot0 + s, kv->k_type, 0);
        for (size_t g = 0; g < queries->group; g++) {
            const double score = dot(w->q + g * d, w->row, d) * queries->params.scale;
            w->weights[g * AG_ATTENTION_SPAN + s] = capped(score, queries->params.softcap);
        }
    }
}

/* Replaces scores by exponentials. NaN is ignored by the maximum and included in the sum. */
static void exponentials(double *x, size_t n, float *max, float *sum) {
    *max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if ((float)x[i] > *max) *max = (float)x[i];
    }
    const double base = *max == -INFINITY ? 0 : *max;
    double total = 0;
    for (size_t i = 0; i < n; i++) total += x[i] = exp(x[i] - base);
    *sum = (float)total;
}

static void sum_values(const work *w, float *values, const ag_cpu_kv_head *kv, size_t group,
                       uint32_t slot0, uint32_t n) {
    const size_t d = kv->head_dim, stride = ag_cpu_value_stride(d);
    memset(w->sums, 0, group * d * sizeof *w->sums);
    for (uint32_t s = 0; s < n; s++) {
        load_row(w, kv, slot0 + s, kv->v_type, kv->v_offset);
        for (size_t g = 0; g < group; g++) {
            const double weight = w->weights[g * AG_ATTENTION_SPAN + s];
            double *sums = w->sums + g * d;
            for (size_t i = 0; i < d; i++) sums[i] += weight * w->row[i];
        }
    }
    for (size_t g = 0; g < group; g++) {
        for (size_t i = 0; i < d; i++) values[g * stride + i] = (float)w->sums[g * d + i];
    }
}

void ag_attention__common(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                          const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch) {
    const size_t group = queries->group;
    const work w = work_in(scratch, kv->head_dim, group);
    for (size_t row = 0; row < queries->n_rows; row++) {
        const size_t first = row * group;
        const kv_range visible = find_visible(queries, row, kv, slot0);
        const uint32_t n = visible.end - visible.first;
        score_keys(&w, queries, row, kv, slot0 + visible.first, n);
        for (size_t g = 0; g < group; g++) {
            exponentials(w.weights + g * AG_ATTENTION_SPAN, n, &out->max[first + g],
                         &out->sum[first + g]);
        }
        float *values = out->values + first * ag_cpu_value_stride(kv->head_dim);
        sum_values(&w, values, kv, group, slot0 + visible.first, n);
    }
}

void ag_attention_merge__common(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                                size_t head_dim) {
    const size_t stride = ag_cpu_value_stride(head_dim);
    for (size_t q = 0; q < n; q++) {
        const float max = fmaxf(into->max[q], from->max[q]), base = max == -INFINITY ? 0 : max;
        const double a = exp((double)into->max[q] - base), b = exp((double)from->max[q] - base);
        float *x = into->values + q * stride;
        const float *y = from->values + q * stride;
        for (size_t i = 0; i < head_dim; i++) x[i] = (float)(x[i] * a + y[i] * b);
        into->sum[q] = (float)(into->sum[q] * a + from->sum[q] * b);
        into->max[q] = max;
    }
}

void ag_attention_scores__common(float *scores, const ag_cpu_queries *queries,
                                 const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                                 const float *sum, float *kept, void *scratch) {
    const size_t group = queries->group;
    const work w = work_in(scratch, kv->head_dim, group);
    (void)kept;
    for (size_t row = 0; row < queries->n_rows; row++, max += group, sum += group) {
        const kv_range visible = find_visible(queries, row, kv, slot0);
        const uint32_t n = visible.end - visible.first;
        score_keys(&w, queries, row, kv, slot0 + visible.first, n);
        for (uint32_t s = 0; s < n; s++) {
            float *score = &scores[slot0 + visible.first + s];
            double mean = 0, largest = 0;
            for (size_t g = 0; g < group; g++) {
                const double base = max[g] == -INFINITY ? 0 : max[g];
                const double e = exp(w.weights[g * AG_ATTENTION_SPAN + s] - base);
                const double weight = sum[g] == 0 ? 0 : e / sum[g];
                mean += weight;
                largest = fmax(largest, weight);
            }
            if (queries->score_max) *score = fmaxf(*score, (float)largest);
            else *score += (float)(mean / (double)group);
        }
    }
}

void ag_window_scores__common(float *scores, const ag_cpu_queries *queries,
                              const ag_cpu_kv_head *kv, uint32_t slot0, float *weights,
                              void *scratch) {
    const size_t group = queries->group;
    const work w = work_in(scratch, kv->head_dim, group);
    (void)weights;
    for (size_t row = 0; row < queries->n_rows; row++) {
        const kv_range visible = find_visible(queries, row, kv, slot0);
        const uint32_t n = visible.end - visible.first;
        score_keys(&w, queries, row, kv, slot0 + visible.first, n);
        for (size_t g = 0; g < group; g++) {
            float max, sum;
            double *of = w.weights + g * AG_ATTENTION_SPAN;
            exponentials(of, n, &max, &sum);
            for (uint32_t s = 0; s < n && sum != 0; s++)
                scores[slot0 + visible.first + s] += (float)(of[s] / sum / (double)group);
        }
    }
}
