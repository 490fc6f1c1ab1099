/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that a backend may run on a cache in its own memory. Backends without them have
 * nothing to compare. */
#include "oracle/oracle.h"

#include "core/hadamard.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, BLOCKS = 2, ROWS = HEADS * AG_KV_BLOCK };

/* Positions are spread over both blocks; every fifth has no slot. */
static uint32_t slot_of(size_t layer, size_t head, size_t position) {
    if ((position + layer + head) % 5 == 4) return UINT32_MAX;
    return (uint32_t)(position + position / 3 + head);
}

/* The key at its angles, as the cache keeps it, in floats. */
static void want_key(double *want, const float *key, const float *cos_sin, const oracle_case *c,
                     bool hadamard) {
    const size_t half = c->k / 2;
    float x[256];
    unsigned char packed[sizeof x];
    for (size_t i = 0; i < half; i++) {
        const float cosine = cos_sin[2 * i], sine = cos_sin[2 * i + 1];
        x[i] = key[i] * cosine - key[i + half] * sine;
        x[i + half] = key[i + half] * cosine + key[i] * sine;
    }
    if (hadamard) ag_hadamard(x, 1, c->k);
    ag_quantize_row(c->type, packed, x, c->k, AG_ROUND_KV, NULL);
    ag_dequantize_row(c->type, x, packed, c->k);
    for (size_t i = 0; i < c->k; i++) want[i] = x[i];
}

typedef struct turning {
    guarded cache, keys, angles;
    uint32_t *slots;
    ag_kv_block *blocks;
    ag_kv_rerotate turn;
} turning;

static void want_cache(double *want, const turning *t, const oracle_case *c) {
    for (size_t i = 0; i < c->n * BLOCKS * ROWS * c->k; i++) want[i] = t->cache.values[i];
    for (size_t l = 0; l < c->n; l++) {
        for (size_t h = 0; h < HEADS; h++) {
            for (size_t p = 0; p < c->m; p++) {
                const uint32_t slot = slot_of(l, h, p);
                if (slot == UINT32_MAX) continue;
                const size_t block = l * BLOCKS + slot / AG_KV_BLOCK;
                const size_t row = (block * HEADS + h) * AG_KV_BLOCK + slot % AG_KV_BLOCK;
                want_key(want + row * c->k, t->keys.values + ((l * c->m + p) * HEADS + h) * c->k,
                         t->angles.values + p * c->k, c, t->turn.hadamard);
            }
        }
    }
}

static void lay_out(turning *t, const oracle_case *c) {
    const size_t bytes = AG_KV_BLOCK * ag_dtype_row_bytes(c->type, c->k);
    for (size_t i = 0; i < c->n * HEADS * BLOCKS; i++) {
        const size_t at = (i / BLOCKS / HEADS * BLOCKS + i % BLOCKS) * HEADS + i / BLOCKS % HEADS;
        t->blocks[i] = (ag_kv_block){t->cache.buffer, t->cache.t.offset + at * bytes};
    }
    for (size_t i = 0; i < c->n * HEADS * c->m; i++) {
        t->slots[i] = slot_of(i / c->m / HEADS, i / c->m % HEADS, i % c->m);
    }
    t->turn = (ag_kv_rerotate){
        .blocks = t->blocks,
        .n_blocks = BLOCKS,
        .blocks_per_head = BLOCKS,
        .n_layers = (uint32_t)c->n,
        .n_kv_heads = HEADS,
        .head_dim = (uint32_t)c->k,
        .n_positions = (uint32_t)c->m,
        .n_rotated = (uint32_t)c->k,
        .k_type = c->type,
        .hadamard = c->m % 2 == 0,
        .keys = t->keys.buffer,
        .cos_sin = t->angles.values,
        .slots = t->slots,
    };
}

/* m positions of n layers, heads of k values. The copies begin where their buffer does. */
void oracle_kv_rerotate(const oracle_case *c, oracle_run *run) {
    turning t = {0};
    const size_t n_keys = c->n * HEADS * c->m;
    if (!ag_has_kv_rerotate(run->be)) return;
    t.cache = guarded_make(run, c->type, ag_shape_2d(c->n * BLOCKS * ROWS, c->k), 0, DATA_PLAIN);
    t.keys = guarded_make(run, AG_F32, ag_shape_1d(n_keys * c->k), 0, run->data);
    t.angles = guarded_make_on_host(run, AG_F32, ag_shape_1d(c->m * c->k), 0, DATA_PLAIN);
    t.slots = malloc(n_keys * sizeof *t.slots);
    t.blocks = malloc(c->n * HEADS * BLOCKS * sizeof *t.blocks);
    run->out_of_memory |= !t.slots || !t.blocks;
    if (!run->out_of_memory) {
        const size_t bytes = n_keys * c->k * sizeof(float);
        memcpy(t.keys.image, t.keys.values, bytes);
        ag_buffer_upload(t.keys.buffer, 0, t.keys.image, t.keys.bytes, NULL);
        lay_out(&t, c);
        while (oracle_again(run, NULL)) run->status = ag_rerotate_keys(run->be, &t.turn);
        double *want = oracle_take(run, &t.cache);
        if (want) want_cache(want, &t, c);
    }
    guarded_check(run, &t.cache, true);
    guarded_check(run, &t.keys, false);
    guarded_free(&t.cache);
    guarded_free(&t.keys);
    guarded_free(&t.angles);
    free(t.slots);
    free(t.blocks);
}

/* ---- key_scores ---- */

/* The scores of one head of n keys that are HEADS * AG_KV_BLOCK rows from one block to the next. */
static void want_scores(double *want, const float *keys, size_t n, size_t d) {
    double *mean = calloc(d, sizeof *mean), square = 0;
    for (size_t pass = 0; mean && pass < 2; pass++) {
        for (size_t s = 0; s < n; s++) {
            const float *key = keys + (s / AG_KV_BLOCK * ROWS + s % AG_KV_BLOCK) * d;
            double own = 0, dot = 0;
            for (size_t i = 0; i < d; i++) own += (double)key[i] * key[i];
            for (size_t i = 0; i < d; i++) dot += key[i] * mean[i];
            want[s] = own > 0 && square > 0 ? -dot / sqrt(own * square) : 0;
            for (size_t i = 0; i < d && !pass && own > 0; i++) mean[i] += key[i] / sqrt(own);
        }
        square = 0;
        for (size_t i = 0; i < d; i++) square += mean[i] * mean[i];
    }
    free(mean);
}

/* A layer of HEADS heads, of n slots and three quarters of them, keys of k values, one of them 0.
 */
void oracle_key_scores(const oracle_case *c, oracle_run *run) {
    enum { MARGIN = 5, MOST_BLOCKS = 8 };
    const size_t n_blocks = (c->n + AG_KV_BLOCK - 1) / AG_KV_BLOCK, stride = c->n + MARGIN;
    const size_t row = ag_dtype_row_bytes(c->type, c->k);
    const uint32_t n_slots[HEADS] = {(uint32_t)c->n, (uint32_t)(c->n - c->n / 4)};
    ag_kv_block blocks[HEADS][MOST_BLOCKS] = {0};
    if (!ag_has_key_scores(run->be)) return;
    guarded keys = guarded_make(run, c->type, ag_shape_2d(n_blocks * ROWS, c->k), 0, run->data);
    guarded scores = guarded_make(run, AG_F32, ag_shape_1d(HEADS * stride), 0, DATA_PLAIN);
    if (!run->out_of_memory) {
        memset(keys.values, 0, c->k * sizeof *keys.values);
        memset(keys.image + keys.t.offset, 0, row);
        ag_buffer_upload(keys.buffer, 0, keys.image, keys.bytes, NULL);
        for (size_t i = 0; i < HEADS * n_blocks; i++) {
            const size_t h = i % HEADS, b = i / HEADS;
            if (b * AG_KV_BLOCK >= n_slots[h]) continue;
            blocks[h][b] = (ag_kv_block){keys.buffer, keys.t.offset + i * AG_KV_BLOCK * row};
        }
        const ag_kv_view kv = {.k_type = c->type,
                               .v_type = c->type,
                               .n_kv_heads = HEADS,
                               .head_dim = (uint32_t)c->k,
                               .blocks = blocks[0],
                               .blocks_per_head = MOST_BLOCKS,
                               .n_slots = n_slots};
        while (oracle_again(run, NULL)) {
            run->status = ag_score_keys(run->be, &kv, scores.values, stride);
        }
        /* Values after a head's slots are undefined. */
        for (size_t h = 0; h < HEADS; h++) {
            for (size_t s = n_slots[h]; s < stride; s++) scores.values[h * stride + s] = 0;
        }
        ag_buffer_upload(scores.buffer, scores.t.offset, scores.values, ag_tensor_bytes(&scores.t),
                         NULL);
        double *want = oracle_take(run, &scores);
        if (want) memset(want, 0, HEADS * stride * sizeof *want);
        for (size_t h = 0; want && h < HEADS; h++) {
            want_scores(want + h * stride, keys.values + h * AG_KV_BLOCK * c->k, n_slots[h], c->k);
        }
    }
    guarded_check(run, &keys, false);
    guarded_free(&keys);
    guarded_free(&scores);
}

/* ---- rows_times ---- */

/* Multiplies c->n rows of c->k values; APART unused values separate the rows. */
void oracle_rows_times(const oracle_case *c, oracle_run *run) {
    enum { APART = 3 };
    const size_t stride = c->k + APART;
    guarded x = guarded_make(run, AG_F32, ag_shape_2d(c->n, stride), 0, run->data);
    guarded matrix = guarded_make(run, AG_F32, ag_shape_2d(c->k, AG_SKINNY_COLS), 0, run->data);
    guarded out = guarded_make(run, AG_F32, ag_shape_2d(c->n, AG_SKINNY_COLS), 0, DATA_PLAIN);
    if (!run->out_of_memory) {
        while (oracle_again(run, NULL)) {
            ag_rows_times_of(run->be)(out.values, x.values, stride, c->n, matrix.values, c->k);
            run->status = AG_OK;
        }
        ag_buffer_upload(out.buffer, out.t.offset, out.values, ag_tensor_bytes(&out.t), NULL);
        double *want = oracle_take(run, &out);
        for (size_t i = 0; want && i < c->n * AG_SKINNY_COLS; i++) {
            const float *row = x.values + i / AG_SKINNY_COLS * stride;
            want[i] = 0;
            for (size_t d = 0; d < c->k; d++)
                want[i] += (double)row[d] * matrix.values[d * AG_SKINNY_COLS + i % AG_SKINNY_COLS];
        }
    }
    guarded_check(run, &x, false);
    guarded_check(run, &matrix, false);
    guarded_free(&x);
    guarded_free(&matrix);
    guarded_free(&out);
}
