/* SPDX-License-Identifier: Apache-2.0 */
/* Compares layers with different numbers and sizes of heads in one cache with the same layers in
 * separate caches. */
#include "cache/kv_cache.h"
#include "cache/saved_state.h"
#include "core/backend_ops.h"
#include "support/byte_stream.h"
#include "support/named_backend.h"
#include "support/plain_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { LAYERS = 5, SLOTS = 900, PROTECTED = 4, MOST_DIM = 96, TRAINED = 300 };

static const ag_kv_layer layers[LAYERS] = {
    {.n_kv_heads = 2, .head_dim = 64}, {.n_kv_heads = 2, .head_dim = 64},
    {.n_kv_heads = 5, .head_dim = 32}, {.n_kv_heads = 1, .head_dim = MOST_DIM},
    {.n_kv_heads = 2, .head_dim = 64},
};

/* The fourth layer rotates half of each head, the last none. */
static float slow[MOST_DIM / 2], fast[MOST_DIM / 2];
static const ag_rope_table rope[LAYERS] = {
    {slow, 64, 1}, {fast, 64, 1.5f}, {slow, 32, 1}, {fast, MOST_DIM / 2, 1.25f}, {NULL, 0, 1}};

/* One cache with all layers, and a separate cache for each. */
typedef struct rig {
    ag_kv_cache *all, *own[LAYERS];
} rig;

static ag_backend *backend;
static uint32_t apart =
    1; /* step between slots that are read; on a device each needs a call of its own */

static rig make(ag_dtype k, ag_dtype v, bool hadamard) {
    rig r;
    ag_kv_params p = {.n_layers = LAYERS,
                      .max_slots = SLOTS,
                      .k_type = k,
                      .v_type = v,
                      .n_protected = PROTECTED,
                      .hadamard = hadamard,
                      .layers = layers};
    assert_int_equal(ag_kv_cache_create(backend, &p, &r.all, NULL), AG_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        p.n_layers = 1;
        p.layers = NULL;
        p.n_kv_heads = layers[l].n_kv_heads;
        p.head_dim = layers[l].head_dim;
        assert_int_equal(ag_kv_cache_create(backend, &p, &r.own[l], NULL), AG_OK);
    }
    return r;
}

static void drop(rig *r) {
    ag_kv_cache_destroy(r->all);
    for (uint32_t l = 0; l < LAYERS; l++) ag_kv_cache_destroy(r->own[l]);
    assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(backend)), 0);
}

static void append_layer(rig *r, uint32_t l, const uint32_t *positions, uint32_t n) {
    const size_t row = (size_t)layers[l].n_kv_heads * layers[l].head_dim;
    float *values = malloc(n * row * sizeof *values);
    ag_tensor t[2];
    ag_buffer *owners[2];
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < n * row; j++) values[j] = (float)(rand() % 2001 - 1000) / 500;
        const ag_shape shape = ag_shape_3d(n, layers[l].n_kv_heads, layers[l].head_dim);
        assert_int_equal(ag_tensor_alloc(&t[i], &owners[i], ag_backend_memory(backend),
                                         AG_USAGE_SCRATCH, AG_F32, shape, NULL),
                         AG_OK);
        assert_int_equal(ag_buffer_upload(owners[i], 0, values, n * row * sizeof *values, NULL),
                         AG_OK);
    }
    ag_kv_cache *to[] = {r->all, r->own[l]};
    for (int i = 0; i < 2; i++) {
        const uint32_t at = i ? 0 : l;
        assert_int_equal(ag_kv_cache_keep_unrotated(to[i], at, &t[0], positions, NULL), AG_OK);
        assert_int_equal(ag_kv_cache_update(to[i], at, &t[0], &t[1], positions, NULL), AG_OK);
    }
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
    free(values);
}

static void append(rig *r, uint32_t first, uint32_t n) {
    uint32_t positions[SLOTS];
    for (uint32_t i = 0; i < n; i++) positions[i] = first + i;
    for (uint32_t l = 0; l < LAYERS; l++) append_layer(r, l, positions, n);
}

static void expect_equal(const rig *r) {
    size_t bytes = 0, capacity = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        bytes += ag_kv_cache_memory_usage_bytes(r->own[l]);
        capacity += ag_kv_cache_capacity_bytes(r->own[l]);
        for (uint32_t h = 0; h < layers[l].n_kv_heads; h++) {
            const uint32_t n = ag_kv_cache_n_slots(r->own[l], 0, h);
            assert_int_equal(ag_kv_cache_n_slots(r->all, l, h), n);
            for (uint32_t s = l % apart; s < n; s += apart) {
                float k[2][MOST_DIM] = {{0}}, v[2][MOST_DIM] = {{0}};
                assert_int_equal(ag_kv_cache_read(r->all, l, h, s, k[0], v[0], NULL), AG_OK);
                assert_int_equal(ag_kv_cache_read(r->own[l], 0, h, s, k[1], v[1], NULL), AG_OK);
                assert_memory_equal(k[0], k[1], sizeof k[0]);
                assert_memory_equal(v[0], v[1], sizeof v[0]);
                assert_int_equal(ag_kv_cache_position(r->all, l, h, s),
                                 ag_kv_cache_position(r->own[l], 0, h, s));
            }
        }
    }
    assert_int_equal(ag_kv_cache_memory_usage_bytes(r->all), bytes);
    assert_int_equal(ag_kv_cache_capacity_bytes(r->all), capacity);
    assert_int_equal(ag_kv_cache_plan_bytes(ag_kv_cache_params(r->all)), capacity);
}

static void rerotate(rig *r, uint32_t newest) {
    assert_int_equal(ag_kv_cache_rerotate(r->all, rope, newest, TRAINED, NULL), AG_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(ag_kv_cache_rerotate(r->own[l], &rope[l], newest, TRAINED, NULL), AG_OK);
    }
}

static void thin_out(rig *r) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < layers[l].n_kv_heads; h++) {
            uint32_t keep[SLOTS], n = 0;
            for (uint32_t s = 0; s < ag_kv_cache_n_slots(r->all, l, h); s++) {
                if (s < 3 || rand() % 3 == 0 || (s > 100 && s < 290)) keep[n++] = s;
            }
            assert_int_equal(ag_kv_cache_compact(r->all, l, h, keep, n, NULL), AG_OK);
            assert_int_equal(ag_kv_cache_compact(r->own[l], 0, h, keep, n, NULL), AG_OK);
        }
    }
}

static void truncate_to(rig *r, uint32_t position) {
    assert_int_equal(ag_kv_cache_truncate(r->all, position, NULL), AG_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(ag_kv_cache_truncate(r->own[l], position, NULL), AG_OK);
    }
}

static void mixed_layers_equal_single_layers(void **state) {
    (void)state;
    const ag_dtype types[][2] = {
        {AG_F32, AG_F16}, {AG_Q8_0, AG_Q4_0}, {AG_Q4_0, AG_F32}, {AG_F16, AG_Q8_0}};
    srand(8);
    for (size_t t = 0; t < 4; t++) {
        rig r = make(types[t][0], types[t][1], t % 2);
        append(&r, 0, 500);
        expect_equal(&r);
        rerotate(&r, TRAINED + 250);
        expect_equal(&r);
        thin_out(&r);
        expect_equal(&r);
        append(&r, 500, 300);
        rerotate(&r, 799);
        truncate_to(&r, 640);
        expect_equal(&r);
        append(&r, 640, 7);
        expect_equal(&r);
        drop(&r);
    }
}

/* ---- forks and saved caches ---- */

static rig fork_of(const rig *r) {
    rig f;
    assert_int_equal(ag_kv_cache_fork(r->all, &f.all, NULL), AG_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(ag_kv_cache_fork(r->own[l], &f.own[l], NULL), AG_OK);
    }
    return f;
}

static void forks_write_to_their_own_blocks(void **state) {
    (void)state;
    rig r = make(AG_F16, AG_Q4_0, false);
    append(&r, 0, 500);
    rig f = fork_of(&r);
    assert_int_equal(ag_kv_cache_shared_bytes(f.all), ag_kv_cache_memory_usage_bytes(r.all));
    append(&f, 500, 100);
    thin_out(&r);
    rerotate(&f, 2 * TRAINED);
    expect_equal(&r);
    expect_equal(&f);
    ag_kv_cache_destroy(r.all);
    for (uint32_t l = 0; l < LAYERS; l++) ag_kv_cache_destroy(r.own[l]);
    expect_equal(&f);
    drop(&f);
}

static void restored_cache_continues_like_the_saved_one(void **state) {
    (void)state;
    rig r = make(AG_Q8_0, AG_F16, false);
    append(&r, 0, 500);
    thin_out(&r);
    uint32_t n_slots[32], n = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < layers[l].n_kv_heads; h++)
            n_slots[n++] = ag_kv_cache_n_slots(r.all, l, h);
    }
    const uint64_t bytes = ag_kv_cache_saved_bytes(ag_kv_cache_params(r.all), n_slots);
    byte_stream s = {.bytes = malloc(bytes)};
    assert_int_equal(ag_kv_cache_save(r.all, stream_put, &s, NULL), AG_OK);
    assert_int_equal(s.n, bytes);
    ag_kv_cache_clear(r.all);
    assert_int_equal(ag_kv_cache_load(r.all, n_slots, 500, "stream", stream_get, &s, NULL), AG_OK);
    expect_equal(&r);
    append(&r, 500, 9);
    rerotate(&r, TRAINED + 209);
    expect_equal(&r);
    free(s.bytes);
    drop(&r);
}

/* ---- invalid layers ---- */

static void rejects_invalid_layers_by_number(void **state) {
    (void)state;
    ag_kv_layer bad[LAYERS];
    ag_kv_params p = {
        .n_layers = LAYERS, .max_slots = SLOTS, .k_type = AG_Q8_0, .v_type = AG_F16, .layers = bad};
    ag_kv_cache *c;
    ag_error err;
    memcpy(bad, layers, sizeof bad);
    bad[2].head_dim = 40;
    assert_int_equal(ag_kv_cache_create(backend, &p, &c, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "40"));
    assert_null(c);
    bad[2].head_dim = 0;
    assert_int_equal(ag_kv_cache_create(backend, &p, &c, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "layer 2"));
    assert_int_equal(ag_kv_cache_plan_bytes(&p), 0);
}

/* Usage: test_kv_layers [BACKEND [STEP]]. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_layers_equal_single_layers),
        cmocka_unit_test(forks_write_to_their_own_blocks),
        cmocka_unit_test(restored_cache_continues_like_the_saved_one),
        cmocka_unit_test(rejects_invalid_layers_by_number),
    };
    for (int i = 0; i < MOST_DIM / 2; i++) {
        slow[i] = powf(500000, -(float)i / 32);
        fast[i] = powf(10000, -(float)i / 24);
    }
    int failed = 0;
    for (int visible = 0; argc < 2 && visible < 2; visible++) {
        backend = plain_backend_create(visible);
        failed += cmocka_run_group_tests(tests, NULL, NULL);
        ag_backend_destroy(backend);
    }
    if (argc < 2) return failed;
    if (argc > 2) apart = (uint32_t)atoi(argv[2]);
    backend = open_backend(argv[1], 0);
    if (!backend) return EXIT_SKIPPED;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(backend);
    return failed;
}
