/* SPDX-License-Identifier: Apache-2.0 */
/* Attention tile: packed queries of one KV head, and a thread's scratch for one block of slots.
 *
 * key_words.h computes scores of quantised keys. For other keys, queries are packed four values at
 * a time: a quad of a vector has four partial sums of one query (values i, i + 4, ...), and four
 * values of a key are loaded into all quads. The sums of four keys are transposed within their
 * quads to four scores. A vector then has the scores of QUADS queries for four adjacent slots, and
 * is stored so. */
#ifndef AG_BACKEND_CPU_SIMD_ATTENTION_TILE_H
#define AG_BACKEND_CPU_SIMD_ATTENTION_TILE_H

#include "backend/cpu/kv_head.h"
#include "backend/cpu/simd/cache_rows.h"
#include "backend/cpu/simd/key_words.h"
#include "core/scratch.h"

enum {
    CONVERTED_FLOATS = 4096, /* rows of the cache as floats: half of L1 */
    STEP = 8,                /* rows are converted in multiples of STEP */
    FEW_QUERIES = 8,
    FEW_ROWS = 32,
    /* Columns of a head that are summed at a time if weights include scales. */
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
    query_words words; /* packed queries for quantised keys */
    float *scores;     /* [n_vecs][AG_KV_BLOCK / 4][LANES] */
    float *scaled;     /* [COLUMN_BLOCKS][n_vecs][AG_KV_BLOCK / 4][LANES] weights times scales */
    float *max;        /* [n_vecs][LANES] equal in all lanes of a quad */
    float *sum;        /* [n_vecs][LANES] lane i of a quad: slots i, i + 4, ... */
    kv_range *ranges;  /* [n_vecs * QUADS] slots of the block that each query sees; behind the last
                        * query its own */
    float *factor;     /* [n_vecs * QUADS] factors of earlier sums */
    float *scales;     /* [width / 32][AG_KV_BLOCK] of quantised rows */
    float *converted;  /* [rows_at_once][width] rows of the cache as floats */
} tile;

static size_t vectors_of(size_t n_queries) { return (n_queries + QUADS - 1) / QUADS; }

/* Returns the floats of the packed queries, as floats or as words. */
static size_t query_floats(size_t n_vecs, size_t width) {
    const size_t floats = n_vecs * (width / 4) * LANES, words = query_words_floats(n_vecs, width);
    return floats > words ? floats : words;
}

/* Returns the rows to convert at a time. Few queries take few rows, which spreads prefetches. Many
 * queries read the same rows repeatedly. */
static uint32_t rows_at_once(size_t n_queries, size_t width) {
    size_t rows = CONVERTED_FLOATS / width / STEP * STEP;
    if (rows > AG_KV_BLOCK) rows = AG_KV_BLOCK;
    if (n_queries <= FEW_QUERIES && rows > FEW_ROWS) rows = FEW_ROWS;
    return rows < STEP ? STEP : (uint32_t)rows;
}

static float *take_floats(ag_scratch *s, size_t n) {
    return ag_scratch_alloc(s, n * sizeof(float));
}

/* Sets the arrays of t, whose sizes are set. Returns their bytes. */
static size_t layout_scratch(tile *t, void *scratch) {
    const size_t n = t->n_vecs, width = t->width, step = STEP * width;
    ag_scratch s = {.base = scratch};
    t->converted = take_floats(&s, CONVERTED_FLOATS > step ? CONVERTED_FLOATS : step);
    t->q = take_floats(&s, query_floats(n, width));
    t->words = (query_words){(int32_t *)(void *)t->q, n, width / AG_QK};
    t->scores = take_floats(&s, n * SCORE_STRIDE);
    t->scaled = take_floats(&s, COLUMN_BLOCKS * n * SCORE_STRIDE);
    t->scales = take_floats(&s, (width + AG_QK - 1) / AG_QK * AG_KV_BLOCK);
    t->max = take_floats(&s, n * LANES);
    t->sum = take_floats(&s, n * LANES);
    t->ranges = ag_scratch_alloc(&s, n * QUADS * sizeof *t->ranges);
    t->factor = take_floats(&s, n * QUADS);
    return s.used;
}

size_t SET(ag_attention_scratch_bytes)(uint32_t head_dim, uint32_t n_queries) {
    tile t = {.n_vecs = vectors_of(n_queries), .width = ag_cpu_value_stride(head_dim)};
    return layout_scratch(&t, NULL);
}

static void pack_queries(const tile *t) {
    const size_t d = t->kv->head_dim, group = t->in->group;
    const bool as_words = has_scales(t->kv->k_type);
    memset(t->q, 0, query_floats(t->n_vecs, t->width) * sizeof *t->q);
    for (size_t m = 0; m < t->n_queries; m++) {
        const float *src = t->in->q + m / group * t->in->row_stride + m % group * d;
        if (as_words) {
            pack_query_words(&t->words, m, src, t->in->params.scale, key_bias(t->kv->k_type));
            continue;
        }
        float *dst = t->q + m / QUADS * (t->width / 4 * LANES) + m % QUADS * 4;
        for (size_t i = 0; i < d; i++) dst[i / 4 * LANES + i % 4] = src[i] * t->in->params.scale;
    }
}

/* Makes a tile. Queries are packed later, when a block is visible to one of them. */
static tile make_tile(const ag_cpu_queries *in, const ag_cpu_kv_head *kv, void *scratch) {
    tile t = {.in = in, .kv = kv, .n_queries = (size_t)in->n_rows * in->group};
    t.keys = cache_rows_of(kv->k_type, kv->head_dim);
    t.values = cache_rows_of(kv->v_type, kv->head_dim);
    t.width = t.keys.width;
    t.n_vecs = vectors_of(t.n_queries);
    t.rows_at_once = rows_at_once(t.n_queries, t.width);
    layout_scratch(&t, scratch);
    return t;
}

/* Writes the slots of block b that each query attends to. Returns the range from the first to the
 * last of them; ranges of later queries never start earlier. */
static kv_range find_visible(const tile *t, uint32_t b) {
    const uint32_t n = kv_head_slots(t->kv, b, t->kv->n_slots);
    kv_range all = {n, 0}, range = {0, 0};
    for (size_t m = 0; m < t->n_vecs * QUADS; m++) {
        if (m < t->n_queries && m % t->in->group == 0) {
            range = kv_head_visible(t->kv, b, n, t->in, m / t->in->group);
            if (range.first < all.first) all.first = range.first;
            if (range.end > all.end) all.end = range.end;
        }
        t->ranges[m] = range;
    }
    return all;
}

/* Slots that any of several queries attends to, and slots that all attend to. `all` may be empty,
 * with its end before its first. */
typedef struct joint_range {
    kv_range any, all;
} joint_range;

INLINE joint_range joint_range_of(const kv_range *ranges, const int n) {
    joint_range r = {ranges[0], ranges[0]};
    for (int i = 1; i < n; i++) {
        if (ranges[i].first < r.any.first) r.any.first = ranges[i].first;
        if (ranges[i].end > r.any.end) r.any.end = ranges[i].end;
        if (ranges[i].first > r.all.first) r.all.first = ranges[i].first;
        if (ranges[i].end < r.all.end) r.all.end = ranges[i].end;
    }
    return r;
}

static const unsigned char *rows_at(const tile *t, uint32_t b, size_t offset) {
    return t->kv->blocks[b] + offset;
}

static stream keys_of(const tile *t, uint32_t b) { return stream_of(rows_at(t, b, 0), &t->keys); }

static stream values_of(const tile *t, uint32_t b) {
    return stream_of(rows_at(t, b, t->kv->v_offset), &t->values);
}

#endif
