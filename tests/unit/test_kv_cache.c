/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/kv_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { LAYERS = 2, HEADS = 3, DIM = 32, SLOTS = 300, ROW = HEADS * DIM };

static ag_backend *backend;

static int make_backend(void **state) {
    (void)state;
    ag_backend_params p = {.n_threads = 2};
    return ag_backend_create(&p, &backend, NULL) != AG_OK;
}

static int drop_backend(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

static ag_kv_params params_of(ag_dtype k, ag_dtype v) {
    return (ag_kv_params){.n_layers = LAYERS,
                          .n_kv_heads = HEADS,
                          .head_dim = DIM,
                          .max_slots = SLOTS,
                          .k_type = k,
                          .v_type = v};
}

static ag_kv_cache *make_cache(ag_dtype k, ag_dtype v) {
    ag_kv_params p = params_of(k, v);
    ag_kv_cache *c;
    ag_error err;
    if (ag_kv_cache_create(backend, &p, &c, &err) != AG_OK) fail_msg("%s", err.msg);
    return c;
}

/* Returns a value that identifies its position, layer, head and dimension. */
static float value_of(uint32_t layer, uint32_t head, uint32_t position, uint32_t i, bool is_v) {
    return sinf((float)(position * 97 + head * 31 + layer * 13 + i + 7 * is_v));
}

static void fill(float *rows, uint32_t layer, uint32_t first, size_t n, bool is_v) {
    for (size_t t = 0; t < n; t++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            for (uint32_t i = 0; i < DIM; i++) {
                rows[(t * HEADS + h) * DIM + i] = value_of(layer, h, first + (uint32_t)t, i, is_v);
            }
        }
    }
}

static ag_status append(ag_kv_cache *c, uint32_t first, size_t n, ag_error *err) {
    ag_buffer *ko, *vo;
    ag_tensor k, v;
    ag_shape shape = ag_shape_3d(n, HEADS, DIM);
    ag_memory *mem = ag_backend_memory(backend);
    assert_int_equal(ag_tensor_alloc(&k, &ko, mem, AG_USAGE_SCRATCH, AG_F32, shape, err), AG_OK);
    assert_int_equal(ag_tensor_alloc(&v, &vo, mem, AG_USAGE_SCRATCH, AG_F32, shape, err), AG_OK);
    uint32_t *positions = malloc(n * sizeof *positions);
    for (size_t t = 0; t < n; t++) positions[t] = first + (uint32_t)t;
    ag_status st = AG_OK;
    for (uint32_t l = 0; l < LAYERS && st == AG_OK; l++) {
        fill(ag_tensor_f32(&k), l, first, n, false);
        fill(ag_tensor_f32(&v), l, first, n, true);
        st = ag_kv_cache_update(c, l, &k, &v, positions, err);
    }
    free(positions);
    ag_buffer_release(&ko);
    ag_buffer_release(&vo);
    return st;
}

static void check_slot(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                       uint32_t position, float tolerance) {
    float k[DIM], v[DIM];
    assert_int_equal(ag_kv_cache_position(c, layer, head, slot), position);
    assert_int_equal(ag_kv_cache_read(c, layer, head, slot, k, v, NULL), AG_OK);
    for (uint32_t i = 0; i < DIM; i++) {
        assert_true(fabsf(k[i] - value_of(layer, head, position, i, false)) <= tolerance);
        assert_true(fabsf(v[i] - value_of(layer, head, position, i, true)) <= tolerance);
    }
}

static void check_all(ag_kv_cache *c, uint32_t first, uint32_t n, float tolerance) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_int_equal(ag_kv_cache_n_slots(c, l, h), n);
            for (uint32_t s = 0; s < n; s++) check_slot(c, l, h, s, first + s, tolerance);
        }
    }
}

static void reads_back_appended_rows_in_every_type(void **state) {
    (void)state;
    const struct {
        ag_dtype type;
        float tolerance;
    } cases[] = {{AG_F32, 0}, {AG_F16, 0.0005f}, {AG_Q8_0, 0.005f}, {AG_Q4_0, 0.13f}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_kv_cache *c = make_cache(cases[i].type, cases[i].type);
        assert_int_equal(append(c, 0, 1, NULL), AG_OK);
        assert_int_equal(append(c, 1, 126, NULL), AG_OK);
        assert_int_equal(append(c, 127, 150, NULL), AG_OK);
        check_all(c, 0, 277, cases[i].tolerance);
        ag_kv_cache_destroy(c);
    }
}

static void prune_moves_slots_and_keeps_positions(void **state) {
    (void)state;
    for (uint32_t count = 0; count <= 290; count += count < 4 ? 1 : 47) {
        ag_kv_cache *c = make_cache(AG_F16, AG_Q8_0);
        assert_int_equal(append(c, 5, 290, NULL), AG_OK);
        assert_int_equal(ag_kv_cache_prune_prefix(c, count, NULL), AG_OK);
        check_all(c, 5 + count, 290 - count, 0.005f);
        ag_kv_cache_destroy(c);
    }
}

static void returns_emptied_blocks_to_the_system(void **state) {
    (void)state;
    ag_kv_cache *c = make_cache(AG_F32, AG_F32);
    assert_int_equal(ag_kv_cache_memory_usage_bytes(c), 0);
    assert_int_equal(append(c, 0, 128, NULL), AG_OK);
    size_t one = ag_kv_cache_memory_usage_bytes(c);
    assert_true(one >= 2 * LAYERS * 128 * ROW * sizeof(float));
    assert_int_equal(append(c, 128, 1, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_memory_usage_bytes(c), 2 * one);
    assert_int_equal(ag_kv_cache_prune_prefix(c, 1, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_memory_usage_bytes(c), one);
    check_all(c, 1, 128, 0);
    /* A reused block behaves like a new one. */
    assert_int_equal(append(c, 129, 128, NULL), AG_OK);
    check_all(c, 1, 256, 0);
    ag_kv_params p = params_of(AG_F32, AG_F32);
    assert_int_equal(ag_kv_cache_plan_bytes(&p), ag_kv_cache_capacity_bytes(c));
    assert_int_equal(ag_kv_cache_capacity_bytes(c), 3 * one);
    ag_kv_cache_clear(c);
    assert_int_equal(ag_kv_cache_memory_usage_bytes(c), 0);
    ag_kv_cache_destroy(c);
}

static void truncates_to_a_position(void **state) {
    (void)state;
    ag_kv_cache *c = make_cache(AG_F32, AG_F16);
    assert_int_equal(append(c, 0, 200, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_prune_prefix(c, 20, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_truncate(c, 150, NULL), AG_OK);
    check_all(c, 20, 130, 0.0005f);
    assert_int_equal(append(c, 150, 3, NULL), AG_OK);
    check_all(c, 20, 133, 0.0005f);
    ag_kv_cache_destroy(c);
}

static void rejects_appends_that_do_not_fit(void **state) {
    (void)state;
    ag_kv_cache *c = make_cache(AG_F16, AG_F16);
    ag_error err;
    assert_int_equal(append(c, 0, 299, NULL), AG_OK);
    assert_int_equal(append(c, 299, 2, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "299 of 300"));
    assert_int_equal(ag_kv_cache_reserve(c, 2, &err), AG_LIMIT);
    assert_int_equal(ag_kv_cache_reserve(c, 1, &err), AG_OK);
    assert_int_equal(append(c, 298, 1, &err), AG_INVALID); /* already cached */
    assert_int_equal(ag_kv_cache_prune_prefix(c, 300, &err), AG_INVALID);
    check_all(c, 0, 299, 0.0005f);
    ag_kv_cache_destroy(c);
}

static void rejects_invalid_parameters(void **state) {
    (void)state;
    ag_error err;
    ag_kv_cache *c;
    ag_kv_params p = params_of(AG_Q8_0, AG_F16);
    p.head_dim = 48;
    assert_int_equal(ag_kv_cache_create(backend, &p, &c, &err), AG_UNSUPPORTED);
    assert_null(c);
    p = params_of(AG_BF16, AG_F16);
    assert_int_equal(ag_kv_cache_create(backend, &p, &c, &err), AG_UNSUPPORTED);
    assert_string_equal(err.msg,
                        "KV cache type bf16: not supported; use one of f32, f16, q4_0, q8_0");
    p = params_of(AG_F16, AG_F16);
    p.max_slots = 0;
    assert_int_equal(ag_kv_cache_create(backend, &p, &c, &err), AG_INVALID);
    p.max_slots = UINT32_MAX / 2;
    p.n_layers = p.n_kv_heads = p.head_dim = 1 << 20;
    assert_int_equal(ag_kv_cache_create(backend, &p, &c, &err), AG_NOMEM);
    assert_int_equal(ag_kv_cache_plan_bytes(&p), 0);
}

static void returns_no_position_for_missing_slots(void **state) {
    (void)state;
    ag_kv_cache *c = make_cache(AG_F16, AG_F16);
    assert_int_equal(append(c, 0, 3, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_position(c, 0, 0, 3), UINT32_MAX);
    assert_int_equal(ag_kv_cache_position(c, LAYERS, 0, 0), UINT32_MAX);
    assert_int_equal(ag_kv_cache_n_slots(c, 0, HEADS), 0);
    assert_int_equal(ag_kv_cache_read(c, 0, 0, 3, NULL, NULL, NULL), AG_INVALID);
    ag_kv_cache_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_appended_rows_in_every_type),
        cmocka_unit_test(prune_moves_slots_and_keeps_positions),
        cmocka_unit_test(returns_emptied_blocks_to_the_system),
        cmocka_unit_test(truncates_to_a_position),
        cmocka_unit_test(rejects_appends_that_do_not_fit),
        cmocka_unit_test(rejects_invalid_parameters),
        cmocka_unit_test(returns_no_position_for_missing_slots),
    };
    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
