/* SPDX-License-Identifier: Apache-2.0 */
/* A cache in memory that the host does not see holds the same as one in host memory, and returns
 * its memory. */
#include "cache/kv_cache.h"
#include "cache/saved_state.h"
#include "core/backend_ops.h"
#include "support/byte_stream.h"
#include "support/named_backend.h"
#include "support/plain_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, HEADS = 3, DIM = 32, SLOTS = 1100, FIRST = 700, CACHES = 2 };

typedef struct rig {
    ag_backend *be[CACHES]; /* host memory, hidden memory */
    ag_kv_cache *cache[CACHES];
} rig;

static const ag_dtype type_pairs[][2] = {{AG_F32, AG_F16}, {AG_Q8_0, AG_Q4_0}};

static size_t in_use(const rig *r) { return ag_memory_bytes_in_use(ag_backend_memory(r->be[1])); }

static const char *device_backend; /* NULL: one with hidden memory */

static ag_backend *open_device(void) {
    ag_backend *be;
    ag_backend_params p = {.name = device_backend};
    if (!device_backend) return plain_backend_create(false);
    assert_int_equal(ag_backend_create(&p, &be, NULL), AG_OK);
    return be;
}

static rig make(ag_dtype k_type, ag_dtype v_type) {
    rig r = {{plain_backend_create(true), open_device()}, {NULL}};
    ag_kv_params p = {.n_layers = LAYERS,
                      .n_kv_heads = HEADS,
                      .head_dim = DIM,
                      .max_slots = SLOTS,
                      .k_type = k_type,
                      .v_type = v_type};
    for (int i = 0; i < CACHES; i++) {
        assert_non_null(r.be[i]);
        assert_int_equal(ag_kv_cache_create(r.be[i], &p, &r.cache[i], NULL), AG_OK);
    }
    return r;
}

static void drop(rig *r) {
    for (int i = 0; i < CACHES; i++) {
        ag_kv_cache_destroy(r->cache[i]);
        assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(r->be[i])), 0);
        ag_backend_destroy(r->be[i]);
    }
}

static void append(rig *r, uint32_t first, uint32_t n) {
    size_t count = (size_t)n * HEADS * DIM;
    float *values = malloc(count * sizeof *values);
    uint32_t *positions = malloc(n * sizeof *positions);
    for (uint32_t i = 0; i < n; i++) positions[i] = first + i;
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < count; i++) values[i] = (float)(rand() % 2001 - 1000) / 500;
        for (int c = 0; c < CACHES; c++) {
            ag_tensor t[2];
            ag_buffer *owners[2];
            for (int i = 0; i < 2; i++) {
                assert_int_equal(ag_tensor_alloc(&t[i], &owners[i], ag_backend_memory(r->be[c]),
                                                 AG_USAGE_SCRATCH, AG_F32,
                                                 ag_shape_3d(n, HEADS, DIM), NULL),
                                 AG_OK);
                ag_buffer_upload(owners[i], 0, values, count * sizeof *values, NULL);
            }
            assert_int_equal(ag_kv_cache_update(r->cache[c], l, &t[0], &t[1], positions, NULL),
                             AG_OK);
            ag_buffer_release(&owners[0]);
            ag_buffer_release(&owners[1]);
        }
    }
    free(positions);
    free(values);
}

/* Reads the positions in the blocks; the cache may use its host copy instead. */
static void expect_positions_in_memory(ag_kv_cache *c, uint32_t layer, uint32_t head,
                                       const uint32_t *want, uint32_t n) {
    ag_kv_view view;
    ag_kv_cache_get_view(c, layer, &view);
    for (uint32_t s = 0; s < n; s++) {
        const ag_kv_block *b = ag_kv_view_block(&view, head, s / AG_KV_BLOCK);
        const size_t row = s % AG_KV_BLOCK;
        uint32_t have;
        assert_int_equal(ag_buffer_download(&have, b->buffer,
                                            b->offset + view.p_offset + row * sizeof have,
                                            sizeof have, NULL),
                         AG_OK);
        assert_int_equal(have, want[s]);
    }
}

static void expect_equal_heads(rig *r, uint32_t layer, uint32_t head) {
    uint32_t n = ag_kv_cache_n_slots(r->cache[0], layer, head), positions[CACHES][SLOTS];
    assert_int_equal(ag_kv_cache_n_slots(r->cache[1], layer, head), n);
    float *keys[CACHES], k[CACHES][DIM], v[CACHES][DIM];
    for (int c = 0; c < CACHES; c++) {
        keys[c] = calloc((size_t)n * DIM + 1, sizeof *keys[c]);
        assert_int_equal(ag_kv_cache_read_keys(r->cache[c], layer, head, keys[c], NULL), AG_OK);
        assert_int_equal(ag_kv_cache_read_positions(r->cache[c], layer, head, positions[c], NULL),
                         AG_OK);
    }
    assert_memory_equal(keys[0], keys[1], (size_t)n * DIM * sizeof **keys);
    assert_memory_equal(positions[0], positions[1], n * sizeof **positions);
    expect_positions_in_memory(r->cache[1], layer, head, positions[0], n);
    for (uint32_t s = 0; s < n; s++) {
        for (int c = 0; c < CACHES; c++) {
            assert_int_equal(ag_kv_cache_read(r->cache[c], layer, head, s, k[c], v[c], NULL),
                             AG_OK);
        }
        assert_memory_equal(k[0], k[1], sizeof k[0]);
        assert_memory_equal(v[0], v[1], sizeof v[0]);
    }
    for (int c = 0; c < CACHES; c++) free(keys[c]);
}

static void expect_equal(rig *r) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) expect_equal_heads(r, l, h);
    }
}

static void device_memory_holds_the_same_slots(void **state) {
    (void)state;
    srand(5);
    for (size_t t = 0; t < sizeof type_pairs / sizeof type_pairs[0]; t++) {
        rig r = make(type_pairs[t][0], type_pairs[t][1]);
        append(&r, 0, FIRST);
        expect_equal(&r);
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t h = 0; h < HEADS; h++) {
                uint32_t keep[FIRST], n = 0;
                for (uint32_t s = 0; s < FIRST; s++) {
                    if (rand() % 3 == 0 || (s > 100 && s < 290)) keep[n++] = s;
                }
                for (int c = 0; c < CACHES; c++) {
                    assert_int_equal(ag_kv_cache_compact(r.cache[c], l, h, keep, n, NULL), AG_OK);
                }
            }
        }
        expect_equal(&r);
        append(&r, FIRST, 60);
        for (int c = 0; c < CACHES; c++) {
            assert_int_equal(ag_kv_cache_prune_prefix(r.cache[c], 37, NULL), AG_OK);
            assert_int_equal(ag_kv_cache_truncate(r.cache[c], FIRST + 50, NULL), AG_OK);
        }
        expect_equal(&r);
        append(&r, FIRST + 50, 5);
        expect_equal(&r);
        drop(&r);
    }
}

static void device_memory_follows_the_slots(void **state) {
    (void)state;
    rig r = make(AG_F16, AG_F16);
    const size_t capacity = ag_kv_cache_capacity_bytes(r.cache[1]);
    assert_int_equal(in_use(&r), 0);
    append(&r, 0, 1);
    const size_t row = in_use(&r); /* one block of every head */
    assert_int_equal(row, capacity / ag_kv_blocks_for(SLOTS));
    append(&r, 1, SLOTS - 1);
    assert_int_equal(in_use(&r), capacity);
    uint32_t keep[10];
    for (uint32_t i = 0; i < 10; i++) keep[i] = 50 * i;
    for (uint32_t l = 0; l < LAYERS; l++) {
        const size_t before = in_use(&r);
        for (uint32_t h = 0; h < HEADS; h++) {
            for (int c = 0; c < CACHES; c++)
                assert_int_equal(ag_kv_cache_compact(r.cache[c], l, h, keep, 10, NULL), AG_OK);
        }
        assert_true(in_use(&r) < before);
    }
    expect_equal(&r);
    /* The next block of a head triggers the release of free blocks. */
    append(&r, SLOTS, 128);
    assert_true(in_use(&r) <= 3 * row);
    expect_equal(&r);
    ag_kv_cache_clear(r.cache[1]);
    assert_int_equal(in_use(&r), 0);
    ag_kv_cache_clear(r.cache[0]);
    append(&r, 5, 200);
    expect_equal(&r);
    drop(&r);
}

static void forks_share_blocks_until_they_write(void **state) {
    (void)state;
    srand(7);
    rig r = make(AG_F16, AG_Q4_0);
    append(&r, 0, FIRST);
    rig f = r;
    size_t before = in_use(&r);
    for (int c = 0; c < CACHES; c++)
        assert_int_equal(ag_kv_cache_fork(r.cache[c], &f.cache[c], NULL), AG_OK);
    assert_int_equal(in_use(&r), before);
    append(&f, FIRST, 30);
    assert_true(in_use(&r) > before);
    expect_equal(&f);
    expect_equal(&r);
    uint32_t keep[50];
    for (uint32_t i = 0; i < 50; i++) keep[i] = i * 14;
    for (int c = 0; c < CACHES; c++)
        assert_int_equal(ag_kv_cache_compact(r.cache[c], 1, 1, keep, 50, NULL), AG_OK);
    append(&r, FIRST, 3);
    expect_equal(&f);
    expect_equal(&r);
    assert_int_equal(ag_kv_cache_position(f.cache[1], 1, 1, 49), 49);
    assert_int_equal(ag_kv_cache_position(r.cache[1], 1, 1, 49), 49 * 14);
    for (int c = 0; c < CACHES; c++) ag_kv_cache_destroy(r.cache[c]);
    expect_equal(&f);
    append(&f, FIRST + 30, 100);
    expect_equal(&f);
    drop(&f);
}

static void saved_bytes_do_not_depend_on_the_memory(void **state) {
    (void)state;
    srand(6);
    rig r = make(AG_Q8_0, AG_F16);
    append(&r, 0, FIRST);
    for (int c = 0; c < CACHES; c++)
        assert_int_equal(ag_kv_cache_prune_prefix(r.cache[c], 37, NULL), AG_OK);
    uint32_t n_slots[LAYERS * HEADS];
    for (int i = 0; i < LAYERS * HEADS; i++) n_slots[i] = FIRST - 37;
    byte_stream s[CACHES] = {{0}};
    size_t expected = ag_kv_cache_saved_bytes(ag_kv_cache_params(r.cache[0]), n_slots);
    for (int c = 0; c < CACHES; c++) {
        s[c].bytes = malloc(expected);
        assert_int_equal(ag_kv_cache_save(r.cache[c], stream_put, &s[c], NULL), AG_OK);
        assert_int_equal(s[c].n, expected);
    }
    assert_memory_equal(s[0].bytes, s[1].bytes, expected);
    for (int c = 0; c < CACHES; c++) {
        ag_kv_cache_clear(r.cache[c]);
        assert_int_equal(
            ag_kv_cache_load(r.cache[c], n_slots, FIRST, "stream", stream_get, &s[1 - c], NULL),
            AG_OK);
    }
    expect_equal(&r);
    assert_int_equal(ag_kv_cache_position(r.cache[1], 1, 2, 0), 37);
    append(&r, FIRST, 5);
    expect_equal(&r);
    for (int c = 0; c < CACHES; c++) free(s[c].bytes);
    drop(&r);
}

/* Usage: test_kv_device [BACKEND]. */
int main(int argc, char **argv) {
    device_backend = argc > 1 ? argv[1] : NULL;
    ag_backend *be = open_backend(device_backend, 0);
    if (!be) return EXIT_SKIPPED;
    ag_backend_destroy(be);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_memory_holds_the_same_slots),
        cmocka_unit_test(device_memory_follows_the_slots),
        cmocka_unit_test(forks_share_blocks_until_they_write),
        cmocka_unit_test(saved_bytes_do_not_depend_on_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
