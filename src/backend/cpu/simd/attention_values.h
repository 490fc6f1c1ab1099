/* SPDX-License-Identifier: Apache-2.0 */
/* Weighted sums of values for all queries of a tile over slots of one block. A vector has adjacent
 * values of the head; each query has its own sums. Weights include the scales of quantised values.
 */
#ifndef AG_BACKEND_CPU_SIMD_ATTENTION_VALUES_H
#define AG_BACKEND_CPU_SIMD_ATTENTION_VALUES_H

#include "backend/cpu/simd/attention_tile.h"

typedef struct value_step {
    const unsigned char *rows; /* rows from slot s0 on, row_bytes apart */
    size_t row_bytes;
    uint32_t s0, n;    /* slots of the block */
    size_t first, end; /* values of the head */
    ahead next;
} value_step;

/* Stride in floats of a vector of queries if weights include scales: [n_vecs][COLUMN_BLOCKS]
 * [AG_KV_BLOCK / 4][LANES]. */
enum { SCALED_STRIDE = COLUMN_BLOCKS * SCORE_STRIDE };

/* Returns the offset of query r from the first of the queries that share vectors. */
INLINE size_t query_apart(const bool scaled, int r) {
    return (size_t)(r / QUADS * (scaled ? SCALED_STRIDE : SCORE_STRIDE) + r % QUADS * 4);
}

/* acc += weights of R queries for a slot times its values from `at` on. If weights include scales,
 * each block of 32 values has its own weights. */
INLINE void add_slot(const ag_dtype type, const bool scaled, const int R, const int NV,
                     vec acc[][VALUE_VECS], const float *weights, const unsigned char *row,
                     const size_t at) {
    const int n_sets = scaled ? (NV * LANES + AG_QK - 1) / AG_QK : 1, each = NV / n_sets;
    vec value[VALUE_VECS];
    load_values(type, NV, value, row, at);
    for (int r = 0; r < R; r++) {
        for (int set = 0; set < n_sets; set++) {
            const vec weight = v_set(weights[query_apart(scaled, r) + (size_t)set * SCORE_STRIDE]);
            for (int v = set * each; v < (set + 1) * each; v++) {
                acc[r][v] = v_fma(weight, value[v], acc[r][v]);
            }
        }
    }
}

/* Adds a slot that some of the R queries do not attend to. It may have any value, so those queries
 * are skipped: 0 * inf would be NaN. */
INLINE void add_edge(const ag_dtype type, const bool scaled, const int R, const int NV,
                     vec acc[][VALUE_VECS], const float *weights, const kv_range *ranges,
                     const unsigned char *row, const size_t at, uint32_t slot) {
    for (int r = 0; r < R; r++) {
        if (slot < ranges[r].first || slot >= ranges[r].end) continue;
        const float *own = weights + slot / 4 * LANES + slot % 4 + query_apart(scaled, r);
        add_slot(type, scaled, 1, NV, acc + r, own, row, at);
    }
}

/* Slots of a step that any of several queries attends to, and complete chunks of 4 that all do. */
typedef struct step_slots {
    uint32_t begin, all_begin, all_end, end;
} step_slots;

INLINE step_slots slots_of_step(const kv_range *ranges, const int n, const value_step *step) {
    const joint_range r = joint_range_of(ranges, n);
    const uint32_t step_end = step->s0 + step->n;
    const uint32_t begin = r.any.first > step->s0 ? r.any.first : step->s0;
    const uint32_t end = r.any.end < step_end ? r.any.end : step_end;
    const uint32_t all_begin = ((r.all.first > begin ? r.all.first : begin) + 3) / 4 * 4;
    const uint32_t all_end = r.all.end < end ? r.all.end : end;
    return (step_slots){begin, all_begin < end ? all_begin : end, all_end / 4 * 4, end};
}

/* Adds NV vectors of the head from value i + at on for R queries from m on. Rows are of `type`,
 * without their scales if the weights include those. */
INLINE void add_values(const ag_dtype type, const bool scaled, const int R, const int NV,
                       float *out, const tile *t, size_t m, size_t i, const size_t at,
                       const value_step *step, const step_slots slots) {
    vec acc[4][VALUE_VECS];
    float *sums = out + m * t->width + i + at;
    for (int r = 0; r < R; r++) {
        const vec factor = v_set(t->factor[m + (size_t)r]);
        for (int v = 0; v < NV; v++) {
            acc[r][v] = v_mul(v_load(sums + (size_t)r * t->width + v * LANES), factor);
        }
    }
    const float *weights =
        scaled ? t->scaled + (i - step->first) / AG_QK * SCORE_STRIDE : t->scores;
    weights += m / QUADS * (scaled ? SCALED_STRIDE : SCORE_STRIDE) + m % QUADS * 4;
    /* The rows are read again for every four queries and every range of columns. Each of these
     * passes prefetches a part of the next rows. */
    const size_t n_columns = (size_t)(NV * LANES), n_ranges = (step->end - step->first) / n_columns;
    fetcher f = fetcher_of(&step->next, step->n, step->n);
    keep_part(&f, m / 4 * n_ranges + (i + at - step->first) / n_columns,
              (t->n_queries + 3) / 4 * n_ranges, step->n);
    const kv_range *ranges = t->ranges + m;
    uint32_t s = slots.begin;
    const unsigned char *row =
        step->rows + bytes_before(type, i) + (s - step->s0) * step->row_bytes;
    for (; s < slots.all_begin; s++, row += step->row_bytes) {
        add_edge(type, scaled, R, NV, acc, weights, ranges, row, at, s);
    }
    for (const float *w = weights + s / 4 * LANES; s < slots.all_end; s += 4, w += LANES) {
        for (uint32_t k = 0; k < 4; k++, row += step->row_bytes) {
            fetch_step(&f);
            add_slot(type, scaled, R, NV, acc, w + k, row, at);
        }
    }
    for (; s < slots.end; s++, row += step->row_bytes) {
        add_edge(type, scaled, R, NV, acc, weights, ranges, row, at, s);
    }
    for (int r = 0; r < R; r++) {
        for (int v = 0; v < NV; v++) v_store(sums + (size_t)r * t->width + v * LANES, acc[r][v]);
    }
}

/* Adds the values of the step for R queries. */
INLINE void add_rows(const ag_dtype type, const bool scaled, const int R, float *out, const tile *t,
                     size_t m, const value_step *step) {
    enum { WIDE = VALUE_VECS * LANES, HALF = WIDE < AG_QK ? WIDE : 0 };
    const step_slots slots = slots_of_step(t->ranges + m, R, step);
    size_t i = step->first;
    for (; i + COLUMNS <= step->end; i += COLUMNS) {
        add_values(type, scaled, R, VALUE_VECS, out, t, m, i, 0, step, slots);
        if (HALF) add_values(type, scaled, R, VALUE_VECS, out, t, m, i, HALF, step, slots);
    }
    for (; i + AG_QK <= step->end; i += AG_QK) {
        add_values(type, scaled, R, AG_QK / LANES, out, t, m, i, 0, step, slots);
    }
    for (; i < step->end; i += LANES) add_values(type, false, R, 1, out, t, m, i, 0, step, slots);
}

INLINE void add_queries(const ag_dtype type, const bool scaled, float *out, const tile *t,
                        const value_step *step) {
    size_t m = 0;
    for (; m + 4 <= t->n_queries; m += 4) add_rows(type, scaled, 4, out, t, m, step);
    for (; m + 2 <= t->n_queries; m += 2) add_rows(type, scaled, 2, out, t, m, step);
    if (m < t->n_queries) add_rows(type, scaled, 1, out, t, m, step);
}

/* Multiplies the weights of the step's slots with the scales of each block of 32 columns. */
static void scale_weights(const tile *t, const value_step *step) {
    const size_t begin = step->s0 / 4, end = (step->s0 + step->n + 3) / 4;
    const size_t n_blocks = (step->end - step->first) / AG_QK;
    for (size_t v = 0; v < t->n_vecs; v++) {
        const float *weights = t->scores + v * SCORE_STRIDE;
        for (size_t b = 0; b < n_blocks; b++) {
            float *scaled = t->scaled + v * SCALED_STRIDE + b * SCORE_STRIDE;
            const float *scales = t->scales + (step->first / AG_QK + b) * AG_KV_BLOCK;
            for (size_t c = begin; c < end; c++) {
                const vec weight = v_load(weights + c * LANES);
                v_store(scaled + c * LANES, v_mul(weight, v_quad(scales + 4 * c)));
            }
        }
    }
}

/* Adds all columns in steps, with weights that include scales. */
INLINE void add_scaled(const ag_dtype type, float *out, const tile *t, const value_step *all) {
    value_step step = *all;
    for (step.first = 0; step.first < t->width; step.first = step.end) {
        step.end = step.first + COLUMNS < t->width ? step.first + COLUMNS : t->width;
        scale_weights(t, &step);
        add_queries(type, true, out, t, &step);
    }
}

static void add_step(const ag_dtype type, const bool scaled, float *out, const tile *t,
                     const value_step *step) {
    if (!scaled && type == AG_F16) add_queries(AG_F16, false, out, t, step);
    else if (!scaled) add_queries(AG_F32, false, out, t, step);
    else if (type == AG_Q8_0) add_scaled(AG_Q8_0, out, t, step);
    else if (type == AG_Q4_0) add_scaled(AG_Q4_0, out, t, step);
    else add_scaled(AG_F32, out, t, step);
    for (size_t q = 0; q < t->n_queries; q++) t->factor[q] = 1;
}

/* Adds a range of slots of block b. For many queries rows are converted first; for few they are
 * converted in registers. */
static void add_block(const tile *t, float *out, uint32_t b, kv_range slots, stream next) {
    const stream here = values_of(t, b);
    const bool scaled = has_scales(t->values.type);
    const bool directly = t->n_queries <= FEW_QUERIES && t->values.n_values == t->width &&
                          is_loaded_directly(t->values.type);
    const uint32_t at_once = directly ? AG_KV_BLOCK : t->rows_at_once;
    if (scaled) load_scales(t->scales, here.rows, slots.end, &t->values);
    for (uint32_t s = slots.first / STEP * STEP; s < slots.end; s += at_once) {
        const uint32_t rows = slots.end - s < at_once ? slots.end - s : at_once;
        value_step step = {.rows = row_of(&here, s),
                           .row_bytes = here.row_bytes,
                           .s0 = s,
                           .n = rows,
                           .end = t->width,
                           .next = {next, s}};
        if (directly) {
            add_step(t->values.type, scaled, out, t, &step);
            continue;
        }
        step.rows = (const unsigned char *)load_levels(t->converted, step.rows, rows, &t->values);
        step.row_bytes = t->width * sizeof(float);
        add_step(AG_F32, scaled, out, t, &step);
    }
}

#endif
