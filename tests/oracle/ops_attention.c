/* SPDX-License-Identifier: Apache-2.0 */
/* kv_write and attention together. Sizes: m queries of each of two sequences over one cache of n
 * slots, heads of k values; two KV heads that hold different numbers of slots, three query heads
 * each. The second sequence asks for the attention weights of its later half, the first, where the
 * backend adds them up in its own memory, for those of all its queries: their sums, or the largest
 * of them. With windows the queries of the first sequence see about equally many slots, those of
 * the second see ranges that begin anywhere. Slots that no query sees hold NaN. Cases for weights
 * only have the second sequence alone, whose queries share windows. Every second block of the heads
 * is stored in reverse order, and the second head loses the blocks that none of its slots needs. */
#include "oracle/oracle.h"

#include "backend/cpu/kernels.h" /* AG_ATTENTION_SPAN */
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KV_HEADS = 2, GROUP = 3, HEADS = KV_HEADS * GROUP, MAX_BLOCKS = 8, MAX_QUERIES = 64 };
enum { PAGE = 4096, SCORE_MARGIN = 3 };

typedef struct cache {
    ag_kv_view view;
    ag_buffer *buffers[MAX_BLOCKS];
    ag_kv_block blocks[KV_HEADS][MAX_BLOCKS];
    uint32_t n_slots[KV_HEADS];
    uint32_t *positions; /* [n] */
} cache;

/* The types of a cache whose keys are of the case's type: mixed where they are quantised. */
static ag_dtype value_type(ag_dtype keys) {
    return keys == AG_Q8_0 ? AG_Q4_0 : keys == AG_Q4_0 ? AG_F16 : keys;
}

static void cache_make(cache *kv, const oracle_case *c, oracle_run *run) {
    const size_t n_blocks = (c->n + AG_KV_BLOCK - 1) / AG_KV_BLOCK;
    memset(kv, 0, sizeof *kv);
    kv->view = (ag_kv_view){
        .k_type = c->type,
        .v_type = value_type(c->type),
        .n_kv_heads = KV_HEADS,
        .head_dim = (uint32_t)c->k,
        .blocks = kv->blocks[0],
        .blocks_per_head = MAX_BLOCKS,
        .n_slots = kv->n_slots,
    };
    const ag_kv_sections part = ag_kv_sections_of(c->type, kv->view.v_type, kv->view.head_dim);
    kv->view.v_offset = part.v_offset;
    kv->view.p_offset = part.p_offset;
    kv->positions = malloc(c->n * sizeof *kv->positions);
    run->out_of_memory |= !kv->positions;
    for (size_t i = 0; i < n_blocks; i++) {
        ag_status st = ag_memory_alloc(ag_backend_memory(run->be), PAGE + KV_HEADS * part.bytes,
                                       AG_USAGE_KV, &kv->buffers[i], NULL);
        run->out_of_memory |= st != AG_OK;
        for (size_t h = 0; h < KV_HEADS; h++) {
            const size_t at = PAGE + (h + i) % KV_HEADS * part.bytes;
            kv->blocks[h][i] = (ag_kv_block){kv->buffers[i], at};
        }
    }
    for (size_t i = 0; kv->positions && i < c->n; i++) kv->positions[i] = (uint32_t)(2 * i + 1);
}

static void cache_free(cache *kv) {
    for (size_t i = 0; i < MAX_BLOCKS; i++) ag_buffer_release(&kv->buffers[i]);
    free(kv->positions);
}

/* Writes all tokens in two calls, then takes a quarter of the slots from the second head. */
static ag_status cache_fill(cache *kv, const oracle_case *c, oracle_run *run, const ag_tensor *k,
                            const ag_tensor *v) {
    const size_t n_first = c->n * 2 / 3, ends[2] = {n_first, c->n};
    size_t begin = 0;
    ag_status st = AG_OK;
    for (int i = 0; i < 2 && st == AG_OK; i++) {
        ag_tensor ks, vs;
        ag_tensor_rows(&ks, k, begin * KV_HEADS, (ends[i] - begin) * KV_HEADS, NULL);
        ag_tensor_rows(&vs, v, begin * KV_HEADS, (ends[i] - begin) * KV_HEADS, NULL);
        ag_tensor_reshape(&ks, &ks, ag_shape_3d(ends[i] - begin, KV_HEADS, c->k), NULL);
        ag_tensor_reshape(&vs, &vs, ag_shape_3d(ends[i] - begin, KV_HEADS, c->k), NULL);
        if (ends[i] > begin) st = ag_kv_write(run->be, &kv->view, &ks, &vs, kv->positions + begin);
        kv->n_slots[0] = kv->n_slots[1] = (uint32_t)ends[i];
        begin = ends[i];
    }
    kv->n_slots[1] -= (uint32_t)(c->n / 4);
    for (uint32_t i = ag_kv_blocks_for(kv->n_slots[1]); i < MAX_BLOCKS; i++)
        kv->blocks[1][i] = (ag_kv_block){0};
    return st;
}

static void round_rows(ag_dtype dtype, float *values, size_t n_rows, size_t d) {
    unsigned char packed[1024];
    for (size_t i = 0; i < n_rows; i++) {
        ag_quantize_row(dtype, packed, values + i * d, d, AG_ROUND_KV, NULL);
        ag_dequantize_row(dtype, values + i * d, packed, d);
    }
}

typedef struct range {
    uint32_t from, until;
} range;

static bool is_visible(const cache *kv, size_t slot, range r) {
    return kv->positions[slot] >= r.from && kv->positions[slot] <= r.until;
}

/* sink: a logit without a value; NULL: none. One query head: out[d], and the weights of all slots,
 * 0 where it sees none. */
static void want_head(double *out, double *weights, const float *q, const guarded *k,
                      const guarded *v, const cache *kv, size_t head, range visible,
                      const ag_attention_params *params, const float *sink) {
    const size_t d = kv->view.head_dim, n = kv->n_slots[head];
    const double cap = (double)params->softcap;
    double max = -INFINITY, sum = 0;
    for (size_t s = 0; s < n; s++) {
        const float *key = k->values + (s * KV_HEADS + head) * d;
        double dot = 0;
        for (size_t i = 0; i < d; i++) dot += (double)q[i] * key[i];
        dot *= (double)params->scale;
        if (cap > 0) dot = cap * tanh(dot / cap);
        weights[s] = is_visible(kv, s, visible) ? dot : -INFINITY;
        if (weights[s] > max) max = weights[s];
    }
    for (size_t s = 0; s < n; s++) {
        weights[s] = max == -INFINITY ? 0 : exp(weights[s] - max);
        sum += weights[s];
    }
    if (sink && max > -INFINITY) sum += exp((double)*sink - max);
    memset(out, 0, d * sizeof *out);
    for (size_t s = 0; s < n && sum > 0; s++) {
        const float *value = v->values + (s * KV_HEADS + head) * d;
        weights[s] /= sum;
        for (size_t i = 0; i < d; i++) out[i] += weights[s] * value[i];
    }
}

typedef struct attention {
    const oracle_case *c;
    cache kv;
    guarded out, q, k, v;
    guarded sinks;                                     /* [HEADS]; no buffer: none */
    uint32_t until[MAX_QUERIES], from[2][MAX_QUERIES]; /* ranges of both sequences */
    bool windows, most, only, unscored;
    float score_start; /* value of each score before the call */
    float *scores;     /* [KV_HEADS, n + SCORE_MARGIN] */
    guarded held;      /* [n, KV_HEADS]; no buffer if they stay on the host */
    uint32_t scored[KV_HEADS];
    ag_attention_params params;
    size_t score_row0;
} attention;

static range range_of(const attention *a, size_t row) {
    const size_t m = a->c->m;
    return (range){a->windows ? a->from[row / m][row % m] : 0, a->until[row % m]};
}

static int compare_numbers(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The first query sees nothing, the last one all that its window has. Windows of three slots, of a
 * third of all, and of a block more than that; the last one of a sequence begins with a block where
 * there are two. */
static void set_ranges(attention *a, oracle_run *run) {
    const uint32_t m = (uint32_t)a->c->m, n = (uint32_t)a->c->n, edge = 2 * AG_KV_BLOCK + 1;
    const uint32_t widths[] = {6, 2 * n / 3, 2 * n / 3 + 2 * AG_KV_BLOCK};
    const uint32_t width = n > AG_KV_BLOCK && m % 2 ? 2 * n - edge + 1 : widths[m % 3];
    for (uint32_t i = 0; i < m; i++) {
        a->until[i] = m > 1 ? i * 2 * n / (m - 1) : 2 * n;
        a->from[0][i] = a->until[i] < width ? 0 : a->until[i] - width + 1;
        a->from[1][i] = oracle_below(run, 2 * n + 2);
    }
    qsort(a->from[1], m, sizeof *a->from[1], compare_numbers);
}

/* Four queries share a window, which has the most positions that a window may have. With an even
 * number of queries, windows overlap. */
static void share_ranges(attention *a) {
    const uint32_t m = (uint32_t)a->c->m, n = (uint32_t)a->c->n, n_windows = (m + 3) / 4;
    const uint32_t most = AG_ATTENTION_SPAN - AG_KV_BLOCK, each = 2 * n / n_windows;
    const uint32_t step = each < most ? each : most;
    for (uint32_t i = 0; i < m; i++) {
        a->from[0][i] = a->from[1][i] = i / 4 * step;
        a->until[i] = a->from[1][i] + step - (m % 2 && step ? 1 : 0);
    }
}

static ag_status spoil_slot(const cache *kv, size_t slot, size_t head) {
    const ag_kv_block *b = &kv->blocks[head][slot / AG_KV_BLOCK];
    const size_t row = slot % AG_KV_BLOCK;
    if (!b->buffer) return AG_OK;
    const size_t k = ag_dtype_row_bytes(kv->view.k_type, kv->view.head_dim);
    const size_t v = ag_dtype_row_bytes(kv->view.v_type, kv->view.head_dim);
    unsigned char ones[1024];
    memset(ones, 0xff, sizeof ones);
    ag_status st = ag_buffer_upload(b->buffer, b->offset + row * k, ones, k, NULL);
    if (st != AG_OK) return st;
    return ag_buffer_upload(b->buffer, b->offset + kv->view.v_offset + row * v, ones, v, NULL);
}

/* Slots that no query sees: keys and values that are no numbers. */
static ag_status spoil(const attention *a) {
    ag_status st = AG_OK;
    for (size_t slot = 0; slot < a->c->n; slot++) {
        bool visible = false;
        for (size_t row = 0; row < 2 * a->c->m; row++) {
            visible |= is_visible(&a->kv, slot, range_of(a, row));
        }
        for (size_t h = 0; h < KV_HEADS && !visible && st == AG_OK; h++) {
            st = spoil_slot(&a->kv, slot, h);
        }
    }
    return st;
}

static void attend(attention *a, oracle_run *run) {
    const oracle_case *c = a->c;
    const size_t stride = c->n + SCORE_MARGIN;
    run->status = cache_fill(&a->kv, c, run, &a->k.t, &a->v.t);
    if (a->windows && run->status == AG_OK) run->status = spoil(a);
    const ag_attention_seq seqs[2] = {
        {.kv = a->kv.view,
         .row0 = 0,
         .n_rows = c->m,
         .visible_until = a->until,
         .visible_from = a->windows ? a->from[0] : NULL,
         .score_max = a->most,
         .device_scores = a->held.buffer,
         .device_scores_at = a->held.t.offset,
         .scored = a->scored},
        {.kv = a->kv.view,
         .row0 = c->m,
         .n_rows = c->m,
         .visible_until = a->until,
         .visible_from = a->windows ? a->from[1] : NULL,
         .score_max = a->most,
         .score_only = a->only,
         .scores = a->unscored ? NULL : a->scores,
         .score_row0 = a->score_row0,
         .score_stride = stride},
    };
    while (run->status == AG_OK && oracle_again(run, a->held.buffer ? &a->held : NULL)) {
        for (size_t i = 0; i < KV_HEADS * stride; i++) a->scores[i] = a->score_start;
        run->status = ag_attention(run->be, &a->out.t, &a->q.t, a->only ? seqs + 1 : seqs,
                                   a->only ? 1 : 2, &a->params);
    }
}

static void want_score(const attention *a, double *score, double weight) {
    if (!a->most) *score += weight / GROUP;
    else if (weight > *score) *score = weight;
}

/* A query head's weights among the sums that the backend holds. */
static void want_held(const attention *a, double *held, const double *weights, size_t head) {
    for (size_t s = 0; s < a->kv.n_slots[head]; s++) {
        want_score(a, &held[s * KV_HEADS + head], weights[s]);
    }
}

/* held NULL: the backend keeps none. */
static void want_attention(attention *a, double *want, double *scores, double *held) {
    const oracle_case *c = a->c;
    const size_t stride = c->n + SCORE_MARGIN;
    double *weights = malloc(c->n * sizeof *weights);
    round_rows(a->kv.view.k_type, a->k.values, c->n * KV_HEADS, c->k);
    round_rows(a->kv.view.v_type, a->v.values, c->n * KV_HEADS, c->k);
    for (size_t i = 0; i < KV_HEADS * stride; i++) scores[i] = (double)a->score_start;
    for (size_t i = 0; held && i < c->n * KV_HEADS; i++) {
        const size_t slot = i / KV_HEADS, head = i % KV_HEADS;
        const bool fresh = slot >= a->scored[head] && slot < a->kv.n_slots[head];
        held[i] = fresh ? 0 : (double)a->held.values[i];
    }
    for (size_t i = 0; weights && i < 2 * c->m * HEADS; i++) {
        const size_t row = i / HEADS, head = i % HEADS / GROUP;
        want_head(want + i * c->k, weights, a->q.values + i * c->k, &a->k, &a->v, &a->kv, head,
                  range_of(a, row), &a->params,
                  a->sinks.values ? a->sinks.values + i % HEADS : NULL);
        if (row < c->m && held) want_held(a, held, weights, head);
        if (row < c->m + a->score_row0) continue;
        for (size_t s = 0; s < a->kv.n_slots[head]; s++) {
            want_score(a, &scores[head * stride + s], weights[s]);
        }
    }
    free(weights);
}

/* Appends the scores to the outputs in run->got. Each row of scores ends with its guards. */
static void take_results(attention *a, oracle_run *run) {
    const size_t n_scores = KV_HEADS * (a->c->n + SCORE_MARGIN);
    const size_t at = run->n;
    guarded scores = guarded_make(run, AG_F32, ag_shape_1d(n_scores), 0, DATA_PLAIN);
    if (scores.buffer) {
        ag_buffer_upload(scores.buffer, scores.t.offset, a->scores, n_scores * sizeof(float), NULL);
    }
    const bool outputs = a->only || oracle_take(run, &a->out);
    const bool taken = oracle_take(run, &scores) && outputs;
    const size_t scores_at = run->n - n_scores, device_scores_at = run->n;
    const bool held = a->held.buffer && oracle_take(run, &a->held);
    if (taken) {
        double *want = run->want;
        double *unread = a->only ? malloc(2 * a->c->m * HEADS * a->c->k * sizeof *unread) : NULL;
        run->out_of_memory |= a->only && !unread;
        if (!run->out_of_memory) {
            want_attention(a, unread ? unread : want + at, want + scores_at,
                           held ? want + device_scores_at : NULL);
        }
        free(unread);
    }
    guarded_free(&scores);
}

bool oracle_attention_fits_tiles(ag_dtype type, size_t m, size_t k) {
    return type != AG_F32 && m * GROUP >= 32 && k % 32 == 0;
}

typedef enum score_kind { SUMS, MOST, ONLY, NONE } score_kind;

static void run_with(const oracle_case *c, oracle_run *run, bool windows, float softcap,
                     score_kind kind, bool sinks) {
    attention a = {.c = c, .windows = windows, .most = kind == MOST, .only = kind == ONLY};
    a.unscored = kind == NONE;
    a.score_row0 = a.unscored ? c->m : a.only ? 0 : c->m / 2;
    a.score_start = a.most ? 1 / (float)c->n : 1; /* some weights are above it */
    a.params = (ag_attention_params){8 / sqrtf((float)c->k), softcap, NULL};
    const ag_shape rows = ag_shape_3d(2 * c->m, HEADS, c->k);
    const ag_shape tokens = ag_shape_3d(c->n, KV_HEADS, c->k);
    cache_make(&a.kv, c, run);
    a.out = guarded_make(run, AG_F32, rows, 0, DATA_PLAIN);
    a.q = guarded_make(run, AG_F32, rows, 0, run->data);
    a.k = guarded_make(run, AG_F32, tokens, 0, run->data);
    a.v = guarded_make(run, AG_F32, tokens, 0, run->data);
    if (sinks) {
        a.sinks = guarded_make(run, AG_F32, ag_shape_1d(HEADS), 0, DATA_PLAIN);
        a.params.sinks = &a.sinks.t;
    }
    a.scores = malloc(KV_HEADS * (c->n + SCORE_MARGIN) * sizeof *a.scores);
    if (a.only) share_ranges(&a);
    else set_ranges(&a, run);
    /* Sums in the backend's memory are of calls without windows and caps so far. */
    if (ag_keeps_scores(run->be, c->k) && !a.only && !a.unscored) {
        a.held = guarded_make(run, AG_F32, ag_shape_2d(c->n, KV_HEADS), 0, DATA_PLAIN);
    }
    for (uint32_t h = 0; h < KV_HEADS; h++) a.scored[h] = (uint32_t)c->n / 2 + h;
    run->out_of_memory |= !a.scores;
    if (!run->out_of_memory) attend(&a, run);
    if (!run->out_of_memory) take_results(&a, run);
    guarded *inputs[] = {&a.q, &a.k, &a.v};
    guarded_check(run, &a.out, true);
    guarded_check(run, &a.held, true);
    guarded_free(&a.out);
    guarded_free(&a.held);
    for (int i = 0; i < 3; i++) {
        guarded_check(run, inputs[i], false);
        guarded_free(inputs[i]);
    }
    guarded_check(run, &a.sinks, false);
    guarded_free(&a.sinks);
    free(a.scores);
    cache_free(&a.kv);
}

static void run_case(const oracle_case *c, oracle_run *run, bool windows, float softcap,
                     score_kind kind) {
    run_with(c, run, windows, softcap, kind, false);
}

void oracle_attention_sinks(const oracle_case *c, oracle_run *run) {
    run_with(c, run, c->m % 2, 0, SUMS, true);
}

void oracle_attention_sinks_most(const oracle_case *c, oracle_run *run) {
    run_with(c, run, c->m % 2, 0, MOST, true);
}

void oracle_attention_sinks_weights(const oracle_case *c, oracle_run *run) {
    run_with(c, run, true, 0, ONLY, true);
}

void oracle_attention(const oracle_case *c, oracle_run *run) { run_case(c, run, false, 0, SUMS); }

void oracle_attention_window(const oracle_case *c, oracle_run *run) {
    run_case(c, run, true, 0, SUMS);
}

void oracle_attention_softcap(const oracle_case *c, oracle_run *run) {
    run_case(c, run, false, 3, SUMS);
}

void oracle_attention_window_softcap(const oracle_case *c, oracle_run *run) {
    run_case(c, run, true, 3, SUMS);
}

void oracle_attention_most(const oracle_case *c, oracle_run *run) {
    run_case(c, run, false, 0, MOST);
}

void oracle_attention_window_softcap_most(const oracle_case *c, oracle_run *run) {
    run_case(c, run, true, 3, MOST);
}

void oracle_attention_weights(const oracle_case *c, oracle_run *run) {
    run_case(c, run, true, 0, ONLY);
}

void oracle_attention_weights_softcap(const oracle_case *c, oracle_run *run) {
    run_case(c, run, true, 3, ONLY);
}

void oracle_attention_unscored(const oracle_case *c, oracle_run *run) {
    run_case(c, run, false, 0, NONE);
}

void oracle_attention_window_unscored(const oracle_case *c, oracle_run *run) {
    run_case(c, run, true, 0, NONE);
}

void oracle_attention_window_softcap_unscored(const oracle_case *c, oracle_run *run) {
    run_case(c, run, true, 3, NONE);
}
