/* SPDX-License-Identifier: Apache-2.0 */
/* What a backend may do with a cache where it lies. Where it has no way of its own, there is
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
    ag_kv_turn turn;
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
    const size_t bytes = ROWS * ag_dtype_row_bytes(c->type, c->k);
    for (size_t i = 0; i < c->n * BLOCKS; i++) {
        t->blocks[i] = (ag_kv_block){t->cache.buffer, t->cache.t.offset + i * bytes};
    }
    for (size_t i = 0; i < c->n * HEADS * c->m; i++) {
        t->slots[i] = slot_of(i / c->m / HEADS, i / c->m % HEADS, i % c->m);
    }
    t->turn = (ag_kv_turn){
        .blocks = t->blocks,
        .n_blocks = BLOCKS,
        .blocks_per_layer = BLOCKS,
        .n_layers = (uint32_t)c->n,
        .n_kv_heads = HEADS,
        .head_dim = (uint32_t)c->k,
        .n_positions = (uint32_t)c->m,
        .k_type = c->type,
        .hadamard = c->m % 2 == 0,
        .keys = t->keys.buffer,
        .cos_sin = t->angles.values,
        .slots = t->slots,
    };
}

/* m positions of n layers, heads of k values. The copies begin where their buffer does. */
void oracle_kv_turn(const oracle_case *c, oracle_run *run) {
    turning t = {0};
    const size_t n_keys = c->n * HEADS * c->m;
    if (!ag_has_kv_turn(run->be)) return;
    t.cache = guarded_make(run, c->type, ag_shape_2d(c->n * BLOCKS * ROWS, c->k), 0, DATA_PLAIN);
    t.keys = guarded_make(run, AG_F32, ag_shape_1d(n_keys * c->k), 0, run->data);
    t.angles = guarded_make_on_host(run, AG_F32, ag_shape_1d(c->m * c->k), 0, DATA_PLAIN);
    t.slots = malloc(n_keys * sizeof *t.slots);
    t.blocks = malloc(c->n * BLOCKS * sizeof *t.blocks);
    run->out_of_memory |= !t.slots || !t.blocks;
    if (!run->out_of_memory) {
        const size_t bytes = n_keys * c->k * sizeof(float);
        memcpy(t.keys.image, t.keys.values, bytes);
        ag_buffer_upload(t.keys.buffer, 0, t.keys.image, t.keys.bytes, NULL);
        lay_out(&t, c);
        while (oracle_again(run, NULL)) run->status = ag_turn_keys(run->be, &t.turn);
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
