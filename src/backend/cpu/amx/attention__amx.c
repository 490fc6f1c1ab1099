/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of many queries over one span of slots, and their largest weights for its slots. Keys
 * and values of the span are converted to bfloat16 tiles once. Then, for 32 queries at a time, it
 * computes their scores as tiles [16 slots][16 queries], so that a vector has 16 queries and
 * softmax needs no operation across lanes; the weights as bfloat16; and the sums of values as tiles
 * [16 values of the head][16 queries]. Queries, keys, values and weights are rounded to 8 bits of
 * mantissa; sums are in float. */
#include "backend/cpu/amx/amx.h"
#include "backend/cpu/amx/tiles.h"
#include "backend/cpu/amx/transpose.h"
#include "backend/cpu/avx512/vec.h"

#include "backend/cpu/kv_head.h"
#include "backend/cpu/simd/cache_rows.h"
#include "backend/cpu/simd/tanh.h"
#include "core/scratch.h"

#include <math.h>

#define LOG2_E 0x1.715476p+0f

typedef uint16_t bf16;

enum {
    SPAN = AG_ATTENTION_SPAN,
    STEP = 32,        /* slots, or values of a head, in one tile product */
    TILE = 16 * STEP, /* bfloat16 values of an operand */
    SUMS = 16 * 16,   /* floats of a result */
    UNIT = 2,         /* tiles of queries processed at a time */
    LARGEST_HEAD = 256,
};

/* A thread's scratch memory. All arrays start at cache lines. */
typedef struct workspace {
    const ag_cpu_queries *in;
    const ag_cpu_kv_head *kv;
    size_t n_queries, d;
    kv_range slots;  /* slots of the span that any query attends to */
    bf16 *keys;      /* [SPAN / 16][d / 32] tiles of [16 slots][32] */
    bf16 *values;    /* [d / 16][SPAN / 32] tiles of [16][32 slots] */
    bf16 *queries;   /* [tiles of 16][d / 32] tiles of [16 pairs][16 queries][2] */
    uint32_t *first; /* [queries] first visible slot; padded with the last query's */
    uint32_t *end;
    float *scores;    /* [UNIT][SPAN][16 queries] */
    bf16 *weights;    /* [UNIT][SPAN / 32] tiles of [16 pairs of slots][16 queries][2] */
    float *sums;      /* one tile */
    float *converted; /* [STEP][d] rows of the cache as floats */
} workspace;

static size_t tiles_of(size_t n) { return (n + 15) / 16; }

static size_t units_of(size_t n_queries) { return (tiles_of(n_queries) + UNIT - 1) / UNIT; }

/* Sets the arrays of ws. Returns their bytes. */
static size_t layout_scratch(workspace *ws, size_t d, size_t n_queries, void *scratch) {
    const size_t padded = units_of(n_queries) * UNIT * 16;
    ag_scratch s = {.base = scratch};
    ws->keys = ag_scratch_alloc(&s, SPAN * d * sizeof(bf16));
    ws->values = ag_scratch_alloc(&s, SPAN * d * sizeof(bf16));
    ws->queries = ag_scratch_alloc(&s, padded * d * sizeof(bf16));
    ws->first = ag_scratch_alloc(&s, padded * sizeof(uint32_t));
    ws->end = ag_scratch_alloc(&s, padded * sizeof(uint32_t));
    ws->scores = ag_scratch_alloc(&s, UNIT * SPAN * 16 * sizeof(float));
    ws->weights = ag_scratch_alloc(&s, UNIT * SPAN * 16 * sizeof(bf16));
    ws->sums = ag_scratch_alloc(&s, SUMS * sizeof(float));
    ws->converted = ag_scratch_alloc(&s, STEP * d * sizeof(float));
    return s.used;
}

size_t ag_attention_scratch_bytes__amx(uint32_t head_dim, uint32_t n_queries) {
    workspace ws;
    const size_t own = layout_scratch(&ws, head_dim, n_queries, NULL);
    const size_t other = ag_attention_scratch_bytes__avx512(head_dim, n_queries);
    return own > other ? own : other;
}

/* ---- rounding ---- */

/* Prepares rounding to the nearest bfloat16, halves up. x must be finite. */
INLINE __m512i round_up_half(vec x) {
    return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

/* Returns the bfloat16 of `first` and of `second` in each lane. */
INLINE __m512i pair_of(vec first, vec second) {
    const __m512i low = _mm512_srli_epi32(round_up_half(first), 16);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    enum { LOW_OR_HIGH_AND_UPPER = 0xf8 };
    return _mm512_ternarylogic_epi32(low, round_up_half(second), upper, LOW_OR_HIGH_AND_UPPER);
}

/* Returns NaN in lanes where x is NaN or infinite, else `all`. */
INLINE vec note(vec all, vec x) { return v_fma(x, v_zero(), all); }

static bool is_finite(vec all) { return !_mm512_cmp_ps_mask(all, all, _CMP_UNORD_Q); }

/* ---- operands ---- */

/* Packs queries. Like keys, they pair values of the head that are 16 apart. */
static vec pack_queries(const workspace *ws) {
    const size_t d = ws->d, group = ws->in->group;
    /* Scores are in units of ln 2, because 2^x needs fewer instructions than e^x. */
    const vec scale = v_set(ws->in->params.scale * LOG2_E);
    vec all = v_zero();
    for (size_t first = 0; first < units_of(ws->n_queries) * UNIT * 16; first += 16) {
        for (size_t i = 0; i < d; i += STEP) {
            __m512i rows[16];
            for (size_t j = 0; j < 16; j++) {
                rows[j] = _mm512_setzero_si512();
                if (first + j >= ws->n_queries) continue;
                const size_t m = first + j;
                const float *q = ws->in->q + m / group * ws->in->row_stride + m % group * d + i;
                const vec a = v_mul(v_load(q), scale), b = v_mul(v_load(q + 16), scale);
                all = note(note(all, a), b);
                rows[j] = pair_of(a, b);
            }
            transpose_16x16(rows);
            bf16 *tile = ws->queries + (first * d / TILE + i / STEP) * TILE;
            for (size_t j = 0; j < 16; j++) _mm512_store_si512(tile + j * STEP, rows[j]);
        }
    }
    return all;
}

/* Returns the rows of the step from slot s of the span on, converted to floats. Rows that no query
 * attends to are zeros. The type is never F32. */
static const float *rows_of_slots(const workspace *ws, uint32_t slot0, uint32_t s, size_t offset,
                                  const cache_rows *type) {
    const uint32_t begin = s > ws->slots.first ? s : ws->slots.first, slot = slot0 + begin;
    const uint32_t end = s + STEP < ws->slots.end ? s + STEP : ws->slots.end;
    const unsigned char *row = ws->kv->blocks[slot / AG_KV_BLOCK] + offset;
    memset(ws->converted, 0, (begin - s) * ws->d * sizeof *ws->converted);
    (void)load_rows(ws->converted + (begin - s) * ws->d, row + slot % AG_KV_BLOCK * type->row_bytes,
                    end - begin, type);
    memset(ws->converted + (end - s) * ws->d, 0, (s + STEP - end) * ws->d * sizeof *ws->converted);
    return ws->converted;
}

static vec pack_keys(const workspace *ws, size_t s, const float *rows) {
    vec all = v_zero();
    for (size_t j = 0; j < STEP; j++) {
        bf16 *row = ws->keys + (s + j) / 16 * 16 * ws->d + j % 16 * STEP;
        for (size_t i = 0; i < ws->d; i += STEP, row += TILE) {
            const vec a = v_load(rows + j * ws->d + i), b = v_load(rows + j * ws->d + i + 16);
            all = note(note(all, a), b);
            _mm512_store_si512(row, pair_of(a, b));
        }
    }
    return all;
}

static vec pack_values(const workspace *ws, size_t s, const float *rows) {
    vec all = v_zero();
    for (size_t i = 0; i < ws->d; i += 16) {
        __m512i pairs[16];
        for (size_t j = 0; j < 16; j++) {
            const float *row = rows + 2 * j * ws->d + i;
            const vec a = v_load(row), b = v_load(row + ws->d);
            all = note(note(all, a), b);
            pairs[j] = pair_of(a, b);
        }
        transpose_16x16(pairs);
        bf16 *tile = ws->values + (i / 16 * (SPAN / STEP) + s / STEP) * TILE;
        for (size_t j = 0; j < 16; j++) _mm512_store_si512(tile + j * STEP, pairs[j]);
    }
    return all;
}

typedef vec pack_rows_fn(const workspace *ws, size_t s, const float *rows);

/* Packs the keys or the values of all visible slots. */
INLINE vec pack_slots(pack_rows_fn *pack, const workspace *ws, uint32_t slot0, ag_dtype type,
                      size_t offset) {
    const cache_rows rows = cache_rows_of(type, ws->d);
    vec all = v_zero();
    for (uint32_t s = ws->slots.first / STEP * STEP; s < ws->slots.end; s += STEP)
        all = v_add(all, pack(ws, s, rows_of_slots(ws, slot0, s, offset, &rows)));
    return all;
}

/* Finds the slots of the span that each query attends to. */
static void find_visible(workspace *ws, uint32_t slot0) {
    uint32_t first = 0, end = 0;
    for (size_t m = 0; m < units_of(ws->n_queries) * UNIT * 16; m++) {
        if (m < ws->n_queries && m % ws->in->group == 0) {
            first = end = 0;
            for (uint32_t b = slot0 / AG_KV_BLOCK; b < (slot0 + SPAN) / AG_KV_BLOCK; b++) {
                const uint32_t n = kv_head_slots(ws->kv, b, ws->kv->n_slots);
                if (!n) break;
                const kv_range here = kv_head_visible(ws->kv, b, n, ws->in, m / ws->in->group);
                first += here.first;
                end += here.end;
                if (here.end < AG_KV_BLOCK) break; /* later slots have later positions */
            }
        }
        ws->first[m] = first;
        ws->end[m] = end;
    }
    ws->slots = (kv_range){ws->first[0], end}; /* later queries never start earlier */
}

/* ---- scores ---- */

/* Tile registers: 0 to 3 are sums; 4, 5 and 6, 7 are operands. */
static const tile_config config = {.palette = 1,
                                   .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                   .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

/* C[i][j] = sum of a[i] * b[j] for two tiles of each, over n steps. a_apart and b_apart are the
 * strides of the tiles. */
INLINE void multiply_2x2(const bf16 *a, size_t a_apart, const bf16 *b, size_t b_apart, size_t n) {
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (size_t i = 0; i < n; i++, a += TILE, b += TILE) {
        TILE_LOAD(4, a, 64);
        TILE_LOAD(6, b, 64);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, b + b_apart, 64);
        TILE_DOT(1, 4, 7);
        TILE_LOAD(5, a + a_apart, 64);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
}

/* Computes the scores of one unit of queries for slots in complete steps. */
static void score_unit(const workspace *ws, size_t unit, kv_range slots) {
    const size_t d = ws->d;
    const bf16 *queries = ws->queries + unit * UNIT * 16 * d;
    for (size_t s = slots.first; s < slots.end; s += STEP) {
        float *scores = ws->scores + s * 16, *other = scores + SPAN * 16;
        multiply_2x2(ws->keys + s * d, 16 * d, queries, 16 * d, d / STEP);
        TILE_STORE(scores, 64, 0);
        TILE_STORE(other, 64, 1);
        TILE_STORE(scores + SUMS, 64, 2);
        TILE_STORE(other + SUMS, 64, 3);
    }
}

/* ---- weights ---- */

/* Returns 2^x for x <= 0 with a relative error of 2^-18; a bfloat16 weight has 2^-9. */
INLINE vec power_of_2(vec x) {
    x = v_max(v_set(-200.0f), x); /* this order of operands keeps NaN */
    const vec n = _mm512_roundscale_ps(x, 0), r = v_sub(x, n);
    vec p = v_fma(r, v_set(0x1.3a02ccp-7f), v_set(0x1.c9fc46p-5f));
    p = v_fma(p, r, v_set(0x1.ec0378p-3f));
    p = v_fma(p, r, v_set(0x1.62e12cp-1f));
    p = v_fma(p, r, v_set(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* The slots that 16 queries attend to. All of them attend to slots [shared, full). */
typedef struct visible {
    __m512i first, end;
    uint32_t shared, full;
} visible;

static visible visible_to(const workspace *ws, size_t query) {
    const uint32_t *first = ws->first + query, *end = ws->end + query;
    visible all = {_mm512_load_si512(first), _mm512_load_si512(end), first[15], end[0]};
    all.shared = (all.shared + 1) / 2 * 2; /* slots are processed in pairs */
    return all;
}

/* Returns the lanes that attend to slot s. */
INLINE __mmask16 sees(const visible *v, size_t s) {
    const __m512i slot = _mm512_set1_epi32((int)s);
    return _mm512_cmpgt_epi32_mask(v->end, slot) & _mm512_cmple_epi32_mask(v->first, slot);
}

/* Returns the largest score of each lane over its visible slots. */
static vec largest(const float *scores, const visible *v, kv_range slots) {
    vec max[4];
    for (int i = 0; i < 4; i++) max[i] = v_set(-INFINITY);
    for (size_t s = slots.first; s < slots.end; s++) {
        for (; s >= v->shared && s + 4 <= v->full; s += 4) {
            for (size_t i = 0; i < 4; i++) max[i] = v_max(v_load(scores + (s + i) * 16), max[i]);
        }
        if (s == slots.end) break;
        max[0] = _mm512_mask_max_ps(max[0], sees(v, s), v_load(scores + s * 16), max[0]);
    }
    return v_max(v_max(max[0], max[1]), v_max(max[2], max[3]));
}

/* Caps scores. Scores and cap are in units of ln 2. */
INLINE vec cap_score(const workspace *ws, vec score) {
    const vec cap = v_set(ws->in->params.softcap * LOG2_E);
    return ws->in->params.softcap == 0 ? score : v_mul(v_tanh(v_div(score, cap)), cap);
}

static void cap_scores(const workspace *ws, float *scores, kv_range slots) {
    if (ws->in->params.softcap == 0) return;
    for (size_t s = slots.first; s < slots.end; s++)
        v_store(scores + s * 16, cap_score(ws, v_load(scores + s * 16)));
}

/* Converts the scores of tile t of the unit to weights for slots in complete steps. Writes max and
 * sum of each lane. */
static void softmax_span(const workspace *ws, size_t unit, size_t t, kv_range slots, float *max,
                         float *sum) {
    const visible v = visible_to(ws, (unit * UNIT + t) * 16);
    float *scores = ws->scores + t * SPAN * 16;
    bf16 *weights = ws->weights + t * SPAN * 16;
    cap_scores(ws, scores, slots);
    const vec top = largest(scores, &v, slots);
    const vec base = v_if_less(v_set(-INFINITY), top, top, v_zero());
    vec sums[2] = {v_zero(), v_zero()};
    for (size_t s = slots.first; s < slots.end; s += 2) {
        vec a = power_of_2(v_sub(v_load(scores + s * 16), base));
        vec b = power_of_2(v_sub(v_load(scores + (s + 1) * 16), base));
        if (s < v.shared || s + 2 > v.full) {
            a = _mm512_maskz_mov_ps(sees(&v, s), a);
            b = _mm512_maskz_mov_ps(sees(&v, s + 1), b);
        }
        sums[0] = v_add(sums[0], a);
        sums[1] = v_add(sums[1], b);
        _mm512_store_si512(weights + s * 16, pair_of(a, b));
    }
    v_store(max, v_mul(top, v_set(0x1.62e43p-1f)));
    v_store(sum, v_add(sums[0], sums[1]));
}

/* ---- values ---- */

/* Writes ws->sums, [16 values of the head from i on][16 queries], to rows of out. */
static void store_values(const workspace *ws, float *out, size_t tile, size_t i) {
    __m512i rows[16];
    for (size_t j = 0; j < 16; j++) rows[j] = _mm512_load_si512(ws->sums + j * 16);
    transpose_16x16(rows);
    for (size_t j = 0; j < 16 && tile * 16 + j < ws->n_queries; j++) {
        _mm512_storeu_si512(out + (tile * 16 + j) * ws->d + i, rows[j]);
    }
}

/* Multiplies the weights of slots in complete steps with their values, for one unit of queries. */
static void add_values(const workspace *ws, float *out, size_t unit, kv_range slots) {
    const size_t apart = SPAN / STEP * TILE, tile = unit * UNIT;
    const size_t begin = slots.first / STEP * TILE, n_steps = (slots.end - slots.first) / STEP;
    for (size_t i = 0; i < ws->d; i += 2 * 16) {
        multiply_2x2(ws->values + i / 16 * apart + begin, apart, ws->weights + begin, SPAN * 16,
                     n_steps);
        TILE_STORE(ws->sums, 64, 0);
        store_values(ws, out, tile, i);
        TILE_STORE(ws->sums, 64, 1);
        store_values(ws, out, tile + 1, i);
        TILE_STORE(ws->sums, 64, 2);
        store_values(ws, out, tile, i + 16);
        TILE_STORE(ws->sums, 64, 3);
        store_values(ws, out, tile + 1, i + 16);
    }
}

/* ---- a span ---- */

/* Returns the visible slots of a unit's queries, rounded to complete steps. */
static kv_range slots_of(const workspace *ws, size_t unit) {
    const size_t first = unit * UNIT * 16;
    return (kv_range){ws->first[first] / STEP * STEP,
                      (ws->end[first + UNIT * 16 - 1] + STEP - 1) / STEP * STEP};
}

static void attend_unit(const workspace *ws, const ag_cpu_partial *out, size_t unit) {
    const size_t first = unit * UNIT * 16;
    const kv_range slots = slots_of(ws, unit);
    score_unit(ws, unit, slots);
    for (size_t t = 0; t < UNIT; t++) {
        float max[16], sum[16];
        softmax_span(ws, unit, t, slots, max, sum);
        for (size_t j = 0; j < 16 && first + t * 16 + j < ws->n_queries; j++) {
            out->max[first + t * 16 + j] = max[j];
            out->sum[first + t * 16 + j] = sum[j];
        }
    }
    add_values(ws, out->values, unit, slots);
}

/* Returns whether tiles can be used. F32 caches are not rounded to bfloat16. */
static bool fits_tiles(const ag_cpu_queries *in, const ag_cpu_kv_head *kv) {
    return (size_t)in->n_rows * in->group >= AG_ATTENTION_TILE_QUERIES &&
           kv->head_dim % STEP == 0 && kv->head_dim <= LARGEST_HEAD && kv->k_type != AG_F32 &&
           kv->v_type != AG_F32;
}

/* Packs queries, keys and, with with_values, values as tiles. Returns false if the AVX-512 kernel
 * must be used: there are few queries, or an invisible infinity would be multiplied with 0. */
static bool prepare(workspace *ws, const ag_cpu_queries *queries, const ag_cpu_kv_head *kv,
                    uint32_t slot0, bool with_values, void *scratch) {
    if (!fits_tiles(queries, kv)) return false;
    *ws = (workspace){.in = queries, .kv = kv, .d = kv->head_dim};
    ws->n_queries = (size_t)queries->n_rows * queries->group;
    layout_scratch(ws, ws->d, ws->n_queries, scratch);
    find_visible(ws, slot0);
    if (ws->slots.first >= ws->slots.end) return false;
    vec all = v_add(pack_queries(ws), pack_slots(pack_keys, ws, slot0, kv->k_type, 0));
    if (with_values) all = v_add(all, pack_slots(pack_values, ws, slot0, kv->v_type, kv->v_offset));
    return is_finite(all);
}

void ag_attention__amx(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                       const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch) {
    workspace ws;
    if (!prepare(&ws, queries, kv, slot0, true, scratch)) {
        ag_attention__avx512(out, queries, kv, slot0, scratch);
        return;
    }
    tiles_configure(&config);
    for (size_t u = 0; u < units_of(ws.n_queries); u++) attend_unit(&ws, out, u);
    tiles_release();
}

/* ---- the largest weights ---- */

/* Writes for each query log2 of the factor that turns powers of 2 of its scores into weights. */
static void find_bases(const workspace *ws, const float *max, const float *sum, float *bases) {
    for (size_t i = 0; i < units_of(ws->n_queries) * UNIT * 16; i++) {
        const bool sees_any = i < ws->n_queries && sum[i] > 0;
        bases[i] = sees_any ? max[i] * LOG2_E + log2f(sum[i]) : INFINITY;
    }
}

/* Computes the scores of one unit of queries for 16 slots from s on. */
static void score_slots(const workspace *ws, size_t unit, size_t s) {
    const bf16 *keys = ws->keys + s * ws->d, *queries = ws->queries + unit * UNIT * 16 * ws->d;
    const bf16 *others = queries + 16 * ws->d;
    TILE_ZERO(0);
    TILE_ZERO(1);
    for (size_t i = 0; i < 16 * ws->d; i += TILE) {
        TILE_LOAD(4, keys + i, 64);
        TILE_LOAD(6, queries + i, 64);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, others + i, 64);
        TILE_DOT(1, 4, 7);
    }
    TILE_STORE(ws->scores, 64, 0);
    TILE_STORE(ws->scores + SUMS, 64, 1);
}

/* Raises max_logs[j], lane by lane, to the logarithm of the weights that a tile's queries give to
 * slot s + j. */
INLINE void raise_logs(const workspace *ws, size_t query, size_t s, const float *scores, vec base,
                       vec max_logs[16]) {
    const bool all_see = s >= ws->first[query + 15] && s + 16 <= ws->end[query];
    if (all_see && ws->in->params.softcap == 0) {
        for (size_t j = 0; j < 16; j++)
            max_logs[j] = v_max(v_sub(v_load(scores + j * 16), base), max_logs[j]);
        return;
    }
    const visible v = visible_to(ws, query);
    for (size_t j = 0; j < 16; j++) {
        const vec log = v_sub(cap_score(ws, v_load(scores + j * 16)), base);
        max_logs[j] = _mm512_mask_max_ps(max_logs[j], sees(&v, s + j), log, max_logs[j]);
    }
}

/* Raises the largest weights of 16 slots from s on, without slots outside ws->slots. */
static void raise_slots(const workspace *ws, size_t s, const float *bases, float *scores) {
    vec max_logs[16];
    for (size_t j = 0; j < 16; j++) max_logs[j] = v_set(-INFINITY);
    for (size_t u = 0; u < units_of(ws->n_queries); u++) {
        const size_t query = u * UNIT * 16;
        if (s >= ws->end[query + UNIT * 16 - 1] || s + 16 <= ws->first[query]) continue;
        score_slots(ws, u, s);
        for (size_t t = 0; t < UNIT; t++) {
            const size_t of = query + t * 16;
            raise_logs(ws, of, s, ws->scores + t * SUMS, v_load(bases + of), max_logs);
        }
    }
    __m512i rows[16];
    for (size_t j = 0; j < 16; j++) rows[j] = _mm512_castps_si512(max_logs[j]);
    transpose_16x16(rows);
    vec log = _mm512_castsi512_ps(rows[0]);
    for (size_t j = 1; j < 16; j++) log = v_max(_mm512_castsi512_ps(rows[j]), log);
    const size_t end = s + 16 < ws->slots.end ? 16 : ws->slots.end - s;
    const __mmask16 within = (__mmask16)((1u << end) - 1);
    const vec old = _mm512_maskz_loadu_ps(within, scores + s);
    _mm512_mask_storeu_ps(scores + s, within, v_max(power_of_2(log), old));
}

void ag_attention_scores__amx(float *scores, const ag_cpu_queries *queries,
                              const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                              const float *sum, float *kept, void *scratch) {
    workspace ws;
    enum { MOST_QUERIES = UNIT * SPAN * 16 * sizeof(bf16) / sizeof(float) };
    (void)kept;
    if (!queries->score_max || (size_t)queries->n_rows * queries->group > MOST_QUERIES ||
        !prepare(&ws, queries, kv, slot0, false, scratch)) {
        ag_attention_scores__avx512(scores, queries, kv, slot0, max, sum, NULL, scratch);
        return;
    }
    float *bases = (float *)(void *)ws.weights; /* free: no weights are packed here */
    find_bases(&ws, max, sum, bases);
    tiles_configure(&config);
    for (size_t s = ws.slots.first / 16 * 16; s < ws.slots.end; s += 16)
        raise_slots(&ws, s, bases, scores + slot0);
    tiles_release();
}
