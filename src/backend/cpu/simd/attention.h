/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over one span of slots, for whoever has included a vec.h and a words.h: block by block
 * with a running maximum. A query's arithmetic is the same whatever queries are beside it.
 *
 * Scores of quantised keys: key_words.h. Of others: queries are packed four values at a time, so
 * that a quad of a vector holds four partial sums of one query (values i, i + 4, ...), and four
 * values of a key are read into all quads. Sums of four keys are turned round in their quads into
 * four scores: a vector then holds the scores of QUADS queries for four neighbouring slots, which
 * is also how they are stored. Values: a vector runs along the head, one sum per query, slot after
 * slot. Scales of quantised values go into the weights. */
#ifndef AG_BACKEND_CPU_SIMD_ATTENTION_H
#define AG_BACKEND_CPU_SIMD_ATTENTION_H

#include "backend/cpu/kv_head.h"
#include "backend/cpu/simd/cache_rows.h"
#include "backend/cpu/simd/key_words.h"

#include <math.h>

enum {
    ROOM_FLOATS = 4096, /* of converted rows: half of a first-level cache */
    STEP = 8,           /* rows are converted a multiple of these at a time */
    FEW_QUERIES = 8,
    FEW_ROWS = 32,
    /* Values of a head that are summed before the next ones are begun, where weights have scales.
     */
    COLUMNS = VALUE_VECS * LANES > AG_QK ? VALUE_VECS *LANES : AG_QK,
    COLUMN_BLOCKS = COLUMNS / AG_QK,
};

typedef struct tile {
    const ag_cpu_queries *in;
    const ag_cpu_kv_head *kv;
    cache_rows keys, values;
    size_t n_queries, n_vecs, width;
    uint32_t rows_at_once;
    float *q;          /* [n_vecs][width / 4][LANES], times scale */
    query_words words; /* the same, for quantised keys */
    float *scores;     /* [n_vecs][AG_KV_BLOCK / 4][LANES] */
    float *scaled;     /* [COLUMN_BLOCKS][n_vecs][AG_KV_BLOCK / 4][LANES] times scales of values */
    float *max;        /* [n_vecs][LANES] the same in all lanes of a quad */
    float *sum;        /* [n_vecs][LANES] lane i of a quad: slots i, i + 4, ... */
    float *seen;   /* [n_vecs * QUADS] slots of the block at hand; behind the last query its own */
    float *factor; /* [n_vecs * QUADS] what earlier sums are multiplied with */
    float *scales; /* [width / 32][AG_KV_BLOCK] of quantised rows */
    float *room;   /* [rows_at_once][width] */
} tile;

static size_t vectors_of(size_t n_queries) { return (n_queries + QUADS - 1) / QUADS; }

/* One room for queries as floats or as words. */
static size_t query_floats(size_t n_vecs, size_t width) {
    const size_t floats = n_vecs * (width / 4) * LANES, words = query_words_floats(n_vecs, width);
    return floats > words ? floats : words;
}

/* Few queries take few rows at a time, so that fetches are spread; many go over the same rows again
 * and again. */
static uint32_t rows_at_once(size_t n_queries, size_t width) {
    size_t rows = ROOM_FLOATS / width / STEP * STEP;
    if (rows > AG_KV_BLOCK) rows = AG_KV_BLOCK;
    if (n_queries <= FEW_QUERIES && rows > FEW_ROWS) rows = FEW_ROWS;
    return rows < STEP ? STEP : (uint32_t)rows;
}

/* Takes part of scratch; NULL: only counts. */
static float *take(float *scratch, size_t *used, size_t n) {
    float *p = scratch ? scratch + *used : NULL;
    *used += (n + 15) / 16 * 16;
    return p;
}

/* Of t, which knows its numbers; returns the floats taken. */
static size_t lay_out(tile *t, float *scratch) {
    const size_t n = t->n_vecs, width = t->width;
    size_t used = 0;
    t->room = take(scratch, &used, ROOM_FLOATS > STEP * width ? ROOM_FLOATS : STEP * width);
    float *q = take(scratch, &used, query_floats(n, width));
    if (scratch) t->q = q, t->words = (query_words){(int32_t *)(void *)q, n, width / AG_QK};
    t->scores = take(scratch, &used, n * SCORE_STRIDE);
    t->scaled = take(scratch, &used, COLUMN_BLOCKS * n * SCORE_STRIDE);
    t->scales = take(scratch, &used, (width + AG_QK - 1) / AG_QK * AG_KV_BLOCK);
    t->max = take(scratch, &used, n * LANES);
    t->sum = take(scratch, &used, n * LANES);
    t->seen = take(scratch, &used, n * QUADS);
    t->factor = take(scratch, &used, n * QUADS);
    return used;
}

static size_t scratch_bytes(uint32_t head_dim, uint32_t n_queries) {
    tile t = {.n_vecs = vectors_of(n_queries), .width = ag_cpu_value_stride(head_dim)};
    return lay_out(&t, NULL) * sizeof(float);
}

static void pack_queries(const tile *t) {
    const size_t d = t->kv->head_dim, group = t->in->group;
    const bool as_words = has_scales(t->kv->k_type);
    memset(t->q, 0, query_floats(t->n_vecs, t->width) * sizeof *t->q);
    for (size_t m = 0; m < t->n_queries; m++) {
        const float *src = t->in->q + m / group * t->in->row_stride + m % group * d;
        if (as_words) {
            pack_query_words(&t->words, m, src, t->in->scale, key_bias(t->kv->k_type));
            continue;
        }
        float *dst = t->q + m / QUADS * (t->width / 4 * LANES) + m % QUADS * 4;
        for (size_t i = 0; i < d; i++) dst[i / 4 * LANES + i % 4] = src[i] * t->in->scale;
    }
}

static tile make_tile(const ag_cpu_queries *in, const ag_cpu_kv_head *kv, void *scratch) {
    tile t = {.in = in, .kv = kv, .n_queries = (size_t)in->n_rows * in->group};
    t.keys = cache_rows_of(kv->k_type, kv->head_dim);
    t.values = cache_rows_of(kv->v_type, kv->head_dim);
    t.width = t.keys.width;
    t.n_vecs = vectors_of(t.n_queries);
    t.rows_at_once = rows_at_once(t.n_queries, t.width);
    lay_out(&t, scratch);
    pack_queries(&t);
    return t;
}

/* How far each query sees into block b; returns the largest. */
static uint32_t look(const tile *t, uint32_t b) {
    const uint32_t n = kv_head_slots(t->kv, b, t->kv->n_slots);
    uint32_t seen = 0;
    for (size_t m = 0; m < t->n_vecs * QUADS; m++) {
        if (m < t->n_queries && m % t->in->group == 0) {
            seen = kv_head_seen(t->kv, b, n, t->in->positions[m / t->in->group]);
        }
        t->seen[m] = (float)seen;
    }
    return seen;
}

/* ---- scores ---- */

/* NV vectors of queries against S keys, `width` apart; S rows of what is wanted next are fetched.
 */
INLINE void score_keys(const int NV, const int S, float *scores, const float *q, const float *keys,
                       size_t width, const ahead *next) {
    vec acc[KEY_VECS][STEP];
    for (int v = 0; v < NV; v++) {
        for (int s = 0; s < S; s++) acc[v][s] = v_zero();
    }
    const size_t q_stride = width * QUADS;
    fetcher f = fetcher_of(next, (size_t)S, width / 4);
    for (size_t i = 0; i < width; i += 4) {
        vec query[KEY_VECS];
        for (int v = 0; v < NV; v++) query[v] = v_load(q + (size_t)v * q_stride + i * QUADS);
        fetch_step(&f);
        for (int s = 0; s < S; s++) {
            const vec key = v_quad(keys + (size_t)s * width + i);
            for (int v = 0; v < NV; v++) acc[v][s] = v_fma(query[v], key, acc[v][s]);
        }
    }
    for (int v = 0; v < NV; v++) {
        for (int s = 0; s < S; s += 4) {
            const vec *a = &acc[v][s];
            const vec low = v_add(v_zip_low(a[0], a[1]), v_zip_high(a[0], a[1]));
            const vec high = v_add(v_zip_low(a[2], a[3]), v_zip_high(a[2], a[3]));
            const vec sum = v_add(v_pairs_low(low, high), v_pairs_high(low, high));
            v_store(scores + v * SCORE_STRIDE + s * QUADS, sum);
        }
    }
}

INLINE void score_rows_of(const size_t width, const tile *t, const float *keys, uint32_t s0,
                          uint32_t n, const ahead *next) {
    const size_t q_stride = width * QUADS;
    size_t v = 0;
    for (; v + KEY_VECS <= t->n_vecs; v += KEY_VECS) {
        float *scores = t->scores + v * SCORE_STRIDE + s0 * QUADS;
        const ahead part = v ? (ahead){NOTHING, 0} : *next;
        for (uint32_t s = 0; s < n; s += 4) {
            const ahead rows = ahead_from(&part, s);
            score_keys(KEY_VECS, 4, scores + s * QUADS, t->q + v * q_stride, keys + s * width,
                       width, &rows);
        }
    }
    for (; v < t->n_vecs; v++) {
        float *scores = t->scores + v * SCORE_STRIDE + s0 * QUADS;
        const ahead part = v ? (ahead){NOTHING, 0} : *next;
        for (uint32_t s = 0; s < n; s += STEP) {
            const ahead rows = ahead_from(&part, s);
            score_keys(1, STEP, scores + s * QUADS, t->q + v * q_stride, keys + s * width, width,
                       &rows);
        }
    }
}

/* All queries against n keys, n rounded up; the scores begin at slot s0. The usual widths are known
 * to the compiler. */
static void score_rows(const tile *t, const float *keys, uint32_t s0, uint32_t n,
                       const ahead *next) {
    if (t->width == 64) score_rows_of(64, t, keys, s0, n, next);
    else if (t->width == 128) score_rows_of(128, t, keys, s0, n, next);
    else score_rows_of(t->width, t, keys, s0, n, next);
}

static const unsigned char *rows_at(const tile *t, uint32_t b, size_t offset) {
    return t->kv->blocks[b] + offset;
}

static stream keys_of(const tile *t, uint32_t b) {
    return stream_of(rows_at(t, b, t->kv->k_offset), &t->keys);
}

static stream values_of(const tile *t, uint32_t b) {
    return stream_of(rows_at(t, b, t->kv->v_offset), &t->values);
}

/* All queries against n keys in whole groups; the scores begin at slot s0. */
INLINE void score_unpacked(const tile *t, const int32_t *keys, uint32_t s0, uint32_t n,
                           const ahead *next) {
    const size_t n_groups = (n + GROUP_ROWS - 1) / GROUP_ROWS;
    for (size_t v = 0; v < t->n_vecs;) {
        const size_t n_vecs = t->n_vecs - v < WORD_VECS ? 1 : WORD_VECS;
        const ahead none = {NOTHING, 0};
        fetcher f = fetcher_of(v ? &none : next, n, n_groups * t->words.n_blocks);
        float *scores = t->scores + v * SCORE_STRIDE + s0 * QUADS;
        const float *scales = t->scales + s0;
        if (n_vecs == 1) score_groups(1, scores, &t->words, v, keys, n_groups, scales, &f);
        else score_groups(WORD_VECS, scores, &t->words, v, keys, n_groups, scales, &f);
        v += n_vecs;
    }
}

static void score_quantised(const tile *t, stream here, uint32_t n, stream next) {
    const ag_dtype type = t->keys.type;
    const size_t row_bytes = t->keys.row_bytes, n_blocks = t->words.n_blocks;
    int32_t *words = (int32_t *)(void *)t->room;
    load_scales(t->scales, here.rows, n, &t->keys);
    for (uint32_t s = 0; s < n; s += t->rows_at_once) {
        const uint32_t rows = n - s < t->rows_at_once ? n - s : t->rows_at_once;
        const ahead meanwhile = {next, s};
        if (type == AG_Q8_0)
            unpack_keys(AG_Q8_0, words, row_of(&here, s), rows, row_bytes, n_blocks);
        else unpack_keys(AG_Q4_0, words, row_of(&here, s), rows, row_bytes, n_blocks);
        score_unpacked(t, words, s, rows, &meanwhile);
    }
}

/* Scores of the first n slots of block b. */
static void score_block(const tile *t, uint32_t b, uint32_t n, stream next) {
    const stream here = keys_of(t, b);
    if (has_scales(t->keys.type)) {
        score_quantised(t, here, n, next);
        return;
    }
    for (uint32_t s = 0; s < n; s += t->rows_at_once) {
        const uint32_t rows = n - s < t->rows_at_once ? n - s : t->rows_at_once;
        const ahead meanwhile = {next, s};
        const float *keys = load_rows(t->room, row_of(&here, s), rows, &t->keys);
        score_rows(t, keys, s, rows, &meanwhile);
    }
}

/* ---- weights ---- */

typedef struct reach {
    vec seen;                /* in all lanes of a quad */
    uint32_t full, n_chunks; /* chunks of 4 slots that all queries see; that one of them sees */
} reach;

static reach reach_of(const tile *t, size_t v) {
    const float *seen = t->seen + v * QUADS;
    float least = seen[0], most = seen[0];
    for (int i = 1; i < QUADS; i++) {
        least = seen[i] < least ? seen[i] : least;
        most = seen[i] > most ? seen[i] : most;
    }
    return (reach){v_quads_of(seen), (uint32_t)least / 4, ((uint32_t)most + 3) / 4};
}

/* -Inf where chunk c is not seen. */
INLINE vec cut(vec scores, uint32_t c, const reach *r) {
    static const float lane[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    const vec slot = v_add(v_set((float)(4 * c)), v_load(lane));
    return v_if_less(slot, r->seen, scores, v_set(-INFINITY));
}

INLINE vec over_quad_max(vec a) {
    a = v_max(a, v_swap_lanes(a));
    return v_max(a, v_swap_pairs(a));
}

INLINE vec over_quad_add(vec a) {
    a = v_add(a, v_swap_lanes(a));
    return v_add(a, v_swap_pairs(a));
}

/* What is subtracted from scores: nothing where the largest is -Inf, for -Inf - -Inf is no number.
 */
INLINE vec base_of(vec max) { return v_if_less(v_set(-INFINITY), max, max, v_zero()); }

/* Scores of one vector of queries become exponentials; its maximum and sum go on. */
static void weigh(const tile *t, size_t v) {
    const reach r = reach_of(t, v);
    float *scores = t->scores + v * SCORE_STRIDE;
    vec max = v_set(-INFINITY);
    for (uint32_t c = 0; c < r.full; c++) max = v_max(v_load(scores + c * LANES), max);
    for (uint32_t c = r.full; c < r.n_chunks; c++) {
        const vec score = cut(v_load(scores + c * LANES), c, &r);
        v_store(scores + c * LANES, score);
        max = v_max(score, max);
    }
    const vec old = v_load(t->max + v * LANES);
    max = v_max(over_quad_max(max), old);
    const vec base = base_of(max), factor = v_exp(v_sub(old, base));
    vec sum = v_zero();
    for (uint32_t c = 0; c < r.n_chunks; c++) {
        const vec weight = v_exp(v_sub(v_load(scores + c * LANES), base));
        v_store(scores + c * LANES, weight);
        sum = v_add(sum, weight);
    }
    v_store(t->max + v * LANES, max);
    v_store(t->sum + v * LANES, v_fma(v_load(t->sum + v * LANES), factor, sum));
    v_store_firsts(t->factor + v * QUADS, factor);
}

/* ---- values ---- */

typedef struct value_step {
    const unsigned char *rows; /* of slot s0 on, row_bytes apart */
    size_t row_bytes;
    uint32_t s0, n;    /* slots of the block */
    size_t first, end; /* values of the head */
    ahead next;
} value_step;

/* Floats from a vector of queries to the next, where weights have scales: [n_vecs][COLUMN_BLOCKS]
 * [AG_KV_BLOCK / 4][LANES]. */
enum { SCALED_STRIDE = COLUMN_BLOCKS * SCORE_STRIDE };

/* From the first of four, two or one queries that share vectors to number r. */
INLINE size_t query_apart(const bool scaled, int r) {
    return (size_t)(r / QUADS * (scaled ? SCALED_STRIDE : SCORE_STRIDE) + r % QUADS * 4);
}

/* acc += the weights of R queries for a slot times its values from `at` on. Values of a block of 32
 * have the same weights, of another block others, if these have scales. */
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

/* R queries from m on, NV vectors of the head from value i + at on; rows as `type` has them,
 * without their scales if the weights have those. */
INLINE void add_values(const ag_dtype type, const bool scaled, const int R, const int NV,
                       float *out, const tile *t, size_t m, size_t i, const size_t at,
                       const value_step *step) {
    vec acc[4][VALUE_VECS];
    float *sums = out + m * t->width + i + at;
    uint32_t full = step->n, most = 0, here[4];
    for (int r = 0; r < R; r++) {
        const uint32_t seen = (uint32_t)t->seen[m + (size_t)r];
        here[r] = seen > step->s0 ? seen - step->s0 : 0;
        full = here[r] < full ? here[r] : full;
        most = here[r] > most ? here[r] : most;
        const vec factor = v_set(t->factor[m + (size_t)r]);
        for (int v = 0; v < NV; v++) {
            acc[r][v] = v_mul(v_load(sums + (size_t)r * t->width + v * LANES), factor);
        }
    }
    const float *weights =
        scaled ? t->scaled + (i - step->first) / AG_QK * SCORE_STRIDE : t->scores;
    weights += m / QUADS * (scaled ? SCALED_STRIDE : SCORE_STRIDE) + m % QUADS * 4;
    weights += step->s0 * QUADS;
    const unsigned char *row = step->rows + bytes_before(type, i);
    const ahead none = {NOTHING, 0};
    fetcher f = fetcher_of(m || i + at ? &none : &step->next, step->n, step->n);
    full = full / 4 * 4;
    uint32_t s = 0;
    for (; s < full; s += 4, weights += LANES) {
        for (uint32_t k = 0; k < 4; k++, row += step->row_bytes) {
            fetch_step(&f);
            add_slot(type, scaled, R, NV, acc, weights + k, row, at);
        }
    }
    for (; s < step->n && s < most; s++, row += step->row_bytes) {
        for (int r = 0; r < R; r++) {
            /* A slot that is not seen may hold anything: 0 * Inf would be NaN. */
            if (s >= here[r]) continue;
            const float *own = weights + (s - full) / 4 * LANES + s % 4 + query_apart(scaled, r);
            add_slot(type, scaled, 1, NV, acc + r, own, row, at);
        }
    }
    for (int r = 0; r < R; r++) {
        for (int v = 0; v < NV; v++) v_store(sums + (size_t)r * t->width + v * LANES, acc[r][v]);
    }
}

/* R queries, the values of the step. */
INLINE void add_rows(const ag_dtype type, const bool scaled, const int R, float *out, const tile *t,
                     size_t m, const value_step *step) {
    enum { WIDE = VALUE_VECS * LANES, HALF = WIDE < AG_QK ? WIDE : 0 };
    size_t i = step->first;
    for (; i + COLUMNS <= step->end; i += COLUMNS) {
        add_values(type, scaled, R, VALUE_VECS, out, t, m, i, 0, step);
        if (HALF) add_values(type, scaled, R, VALUE_VECS, out, t, m, i, HALF, step);
    }
    for (; i + AG_QK <= step->end; i += AG_QK) {
        add_values(type, scaled, R, AG_QK / LANES, out, t, m, i, 0, step);
    }
    for (; i < step->end; i += LANES) add_values(type, false, R, 1, out, t, m, i, 0, step);
}

INLINE void add_queries(const ag_dtype type, const bool scaled, float *out, const tile *t,
                        const value_step *step) {
    size_t m = 0;
    for (; m + 4 <= t->n_queries; m += 4) add_rows(type, scaled, 4, out, t, m, step);
    for (; m + 2 <= t->n_queries; m += 2) add_rows(type, scaled, 2, out, t, m, step);
    if (m < t->n_queries) add_rows(type, scaled, 1, out, t, m, step);
}

/* Weights for the slots of the step, one set for each block of 32 values of its columns. */
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

/* Columns after columns, whose weights have scales. */
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

/* The first n slots of block b. Many queries have rows converted for all of them, few use a row on
 * its way. */
static void add_block(const tile *t, float *out, uint32_t b, uint32_t n, stream next) {
    const stream here = values_of(t, b);
    const bool scaled = has_scales(t->values.type);
    const bool directly = t->n_queries <= FEW_QUERIES && t->values.n_values == t->width &&
                          is_loaded_directly(t->values.type);
    const uint32_t at_once = directly ? n : t->rows_at_once;
    if (scaled) load_scales(t->scales, here.rows, n, &t->values);
    for (uint32_t s = 0; s < n; s += at_once) {
        const uint32_t rows = n - s < at_once ? n - s : at_once;
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
        step.rows = (const unsigned char *)load_levels(t->room, step.rows, rows, &t->values);
        step.row_bytes = t->width * sizeof(float);
        add_step(AG_F32, scaled, out, t, &step);
    }
}

/* ---- a span ---- */

/* Those that look() will ask for. */
static void fetch_positions(const tile *t, uint32_t b) {
    const uint32_t n = kv_head_slots(t->kv, b, t->kv->n_slots);
    if (n) __builtin_prefetch(rows_at(t, b, t->kv->p_offset) + (n - 1) * sizeof(uint32_t));
}

static void store_sums(const tile *t, const ag_cpu_partial *out) {
    for (size_t v = 0; v < t->n_vecs; v++) {
        float max[QUADS], sum[QUADS];
        v_store_firsts(max, v_load(t->max + v * LANES));
        v_store_firsts(sum, over_quad_add(v_load(t->sum + v * LANES)));
        for (size_t q = 0; q < QUADS && v * QUADS + q < t->n_queries; q++) {
            out->max[v * QUADS + q] = max[q];
            out->sum[v * QUADS + q] = sum[q];
        }
    }
}

static void attend(const ag_cpu_partial *out, const ag_cpu_queries *in, const ag_cpu_kv_head *kv,
                   uint32_t slot0, void *scratch) {
    const tile t = make_tile(in, kv, scratch);
    const uint32_t block0 = slot0 / AG_KV_BLOCK, end = block0 + AG_ATTENTION_SPAN / AG_KV_BLOCK;
    for (size_t i = 0; i < t.n_vecs * LANES; i++) t.max[i] = -INFINITY, t.sum[i] = 0;
    memset(out->values, 0, t.n_queries * t.width * sizeof *out->values);
    for (uint32_t b = block0; b < end && b * AG_KV_BLOCK < kv->n_slots; b++) {
        const uint32_t n = look(&t, b);
        if (!n) break; /* later slots have later positions */
        const bool follows = (b + 1) * AG_KV_BLOCK < kv->fetch_end;
        if (follows) fetch_positions(&t, b + 1);
        score_block(&t, b, n, values_of(&t, b));
        for (size_t v = 0; v < t.n_vecs; v++) weigh(&t, v);
        add_block(&t, out->values, b, n, follows ? keys_of(&t, b + 1) : NOTHING);
    }
    store_sums(&t, out);
}

static inline void merge(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                         size_t head_dim) {
    const size_t width = ag_cpu_value_stride(head_dim);
    for (size_t q = 0; q < n; q++) {
        const vec a = v_set(into->max[q]), b = v_set(from->max[q]);
        const vec max = v_max(a, b), base = base_of(max);
        const vec old = v_exp(v_sub(a, base)), new = v_exp(v_sub(b, base));
        float *x = into->values + q * width;
        const float *y = from->values + q * width;
        for (size_t i = 0; i < width; i += LANES) {
            v_store(x + i, v_fma(v_load(y + i), new, v_mul(v_load(x + i), old)));
        }
        /* Not whole vectors: gcc 12 aligns locals of 64 bytes wrongly where the address sanitizer
         * keeps frames on the heap. */
        float sums[QUADS], maxima[QUADS];
        v_store_firsts(sums, v_fma(v_set(from->sum[q]), new, v_mul(v_set(into->sum[q]), old)));
        v_store_firsts(maxima, max);
        into->sum[q] = sums[0];
        into->max[q] = maxima[0];
    }
}

/* ---- attention weights ---- */

/* Scores of one vector of queries become weights. */
static void normalise(const tile *t, size_t v, const float *max, const float *sum) {
    const reach r = reach_of(t, v);
    float *scores = t->scores + v * SCORE_STRIDE, low[QUADS] = {0}, total[QUADS] = {0};
    for (size_t q = 0; q < QUADS && v * QUADS + q < t->n_queries; q++) {
        low[q] = max[v * QUADS + q];
        total[q] = sum[v * QUADS + q];
    }
    const vec base = base_of(v_quads_of(low)), whole = v_quads_of(total);
    for (uint32_t c = 0; c < r.n_chunks; c++) {
        const vec score = cut(v_load(scores + c * LANES), c, &r);
        v_store(scores + c * LANES, v_div(v_exp(v_sub(score, base)), whole));
    }
}

/* Adds the means over the group to the n first slots of the block, row after row. */
static void add_means(const tile *t, float *scores) {
    const size_t group = t->in->group;
    const float share = 1.0f / (float)group;
    for (size_t m = 0; m < t->n_queries; m += group) {
        const uint32_t n = (uint32_t)t->seen[m];
        for (uint32_t s = 0; s < n; s += 4) {
            float sum[4] = {0};
            for (size_t q = m; q < m + group; q++) {
                const float *w = t->scores + q / QUADS * SCORE_STRIDE + s * QUADS + q % QUADS * 4;
                for (int i = 0; i < 4; i++) sum[i] += w[i];
            }
            for (uint32_t i = 0; i < 4 && s + i < n; i++) scores[s + i] += sum[i] * share;
        }
    }
}

static void add_scores(float *scores, const ag_cpu_queries *in, const ag_cpu_kv_head *kv,
                       uint32_t slot0, const float *max, const float *sum, void *scratch) {
    const tile t = make_tile(in, kv, scratch);
    const uint32_t block0 = slot0 / AG_KV_BLOCK, end = block0 + AG_ATTENTION_SPAN / AG_KV_BLOCK;
    for (uint32_t b = block0; b < end && b * AG_KV_BLOCK < kv->n_slots; b++) {
        const uint32_t n = look(&t, b);
        if (!n) break;
        const bool follows = b + 1 < end && (b + 1) * AG_KV_BLOCK < kv->n_slots;
        score_block(&t, b, n, follows ? keys_of(&t, b + 1) : NOTHING);
        for (size_t v = 0; v < t.n_vecs; v++) normalise(&t, v, max, sum);
        add_means(&t, scores + b * AG_KV_BLOCK);
    }
}

#endif
