/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu_backend.h"
#include "oracle/oracle.h"
#include "support/dtypes.h"
#include "support/stride.h"

#include <antigravity/alloc.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_THREADS = 8 };

static ag_backend *make_backend(uint32_t n_threads) {
    ag_backend *be;
    ag_error err;
    const ag_backend_params params = {.name = "cpu", .n_threads = n_threads};
    if (ag_backend_create(&params, &be, &err) != AG_OK) fail_msg("%s", err.msg);
    return be;
}

/* ---- one result, whatever the threads and the cuts ---- */

static void operations_give_equal_bits_on_1_to_8_threads(void **state) {
    (void)state;
    const size_t stride = test_stride();
    ag_backend *be[MOST_THREADS + 1];
    for (uint32_t n = 1; n <= MOST_THREADS; n++) be[n] = make_backend(n);
    oracle_case c;
    for (size_t i = 0; oracle_case_at(i, &c); i += stride) {
        oracle_run alone;
        oracle_case_results(&c, be[1], i, &alone);
        assert_int_equal(alone.status, AG_OK);
        const uint32_t others[] = {2 + (uint32_t)(i / stride % 6),
                                   MOST_THREADS}; /* each gets its turn */
        for (int j = 0; j < 2; j++) {
            const uint32_t n = others[j];
            oracle_run together;
            oracle_case_results(&c, be[n], i, &together);
            assert_int_equal(together.n, alone.n);
            if (alone.n && memcmp(together.got, alone.got, alone.n * sizeof *alone.got) != 0) {
                fail_msg("%s %s [%zu,%zu,%zu] differs on %u threads", c.op, ag_dtype_name(c.type),
                         c.m, c.n, c.k, n);
            }
            oracle_run_free(&together);
        }
        oracle_run_free(&alone);
    }
    for (uint32_t n = 1; n <= MOST_THREADS; n++) ag_backend_destroy(be[n]);
}

static void results_without_wanted_values_are_all_results(void **state) {
    (void)state;
    ag_backend *be = make_backend(1);
    oracle_case c;
    for (size_t i = 0; oracle_case_at(i, &c); i++) {
        oracle_run checked, results;
        if (c.m * c.n * (c.k ? c.k : 1) > 2500) continue;
        oracle_case_run(&c, be, i, &checked);
        oracle_case_results(&c, be, i, &results);
        if (results.n != checked.n) fail_msg("%s: %zu of %zu results", c.op, results.n, checked.n);
        if (results.n) {
            assert_memory_equal(results.got, checked.got, results.n * sizeof *results.got);
        }
        oracle_run_free(&checked);
        oracle_run_free(&results);
    }
    ag_backend_destroy(be);
}

static void product_row_is_independent_of_other_rows(void **state) {
    (void)state;
    enum { M = 37, N = 19, K = 256 };
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    ag_backend *be = make_backend(3);
    for (size_t i = 0; i < types.n; i++) {
        oracle_run run = {.be = be, .random = i};
        guarded x = guarded_make(&run, AG_F32, ag_shape_2d(M, K), 0, DATA_PLAIN);
        guarded y = guarded_make(&run, AG_F32, ag_shape_2d(M, N), 0, DATA_PLAIN);
        guarded z = guarded_make(&run, AG_F32, ag_shape_2d(1, 5), 0, DATA_PLAIN);
        guarded w = guarded_make(&run, types.v[i], ag_shape_2d(N, K), 0, DATA_PLAIN);
        assert_false(run.out_of_memory);
        assert_int_equal(ag_matmul_transposed(be, &y.t, &x.t, &w.t), AG_OK);
        for (size_t row = 0; row < M; row++) {
            ag_tensor one;
            ag_tensor_rows(&one, &x.t, row, 1, NULL);
            assert_int_equal(ag_matmul_slice(be, &z.t, &one, &w.t, 11), AG_OK);
            assert_memory_equal(ag_tensor_f32(&z.t), ag_tensor_f32(&y.t) + row * N + 11,
                                5 * sizeof(float));
        }
        guarded_free(&x), guarded_free(&y), guarded_free(&z), guarded_free(&w);
    }
    ag_backend_destroy(be);
}

/* ---- a small cache of its own ---- */

enum { SLOTS = 200, DIM = 16, HEADS = 4, QUERIES = 40 };

typedef struct small_cache {
    ag_kv_view view;
    ag_kv_block blocks[2][2]; /* blocks of each head */
    uint32_t n_slots[2], positions[SLOTS];
    guarded k, v, q, out;
} small_cache;

static void cache_make(small_cache *c, oracle_run *run) {
    enum { PART = AG_KV_BLOCK * DIM * sizeof(float) };
    memset(c, 0, sizeof *c);
    c->view = (ag_kv_view){.k_type = AG_F32,
                           .v_type = AG_F32,
                           .n_kv_heads = 2,
                           .head_dim = DIM,
                           .v_offset = PART,
                           .p_offset = 2 * PART,
                           .blocks = c->blocks[0],
                           .blocks_per_head = 2,
                           .n_slots = c->n_slots};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ag_memory_alloc(ag_backend_memory(run->be), 2 * PART + 4096, AG_USAGE_KV,
                                         &c->blocks[i / 2][i % 2].buffer, NULL),
                         AG_OK);
    }
    for (uint32_t i = 0; i < SLOTS; i++) c->positions[i] = i;
    c->k = guarded_make(run, AG_F32, ag_shape_3d(SLOTS, 2, DIM), 0, DATA_PLAIN);
    c->v = guarded_make(run, AG_F32, ag_shape_3d(SLOTS, 2, DIM), 0, DATA_PLAIN);
    c->q = guarded_make(run, AG_F32, ag_shape_3d(QUERIES, HEADS, DIM), 0, DATA_PLAIN);
    c->out = guarded_make(run, AG_F32, ag_shape_3d(QUERIES, HEADS, DIM), 0, DATA_PLAIN);
    assert_false(run->out_of_memory);
}

static void cache_free(small_cache *c) {
    guarded_free(&c->k), guarded_free(&c->v), guarded_free(&c->q), guarded_free(&c->out);
    for (int i = 0; i < 4; i++) ag_buffer_release(&c->blocks[i / 2][i % 2].buffer);
}

static void attend(small_cache *c, ag_backend *be, size_t row0, size_t n_rows, float *scores) {
    const ag_attention_seq seq = {.kv = c->view,
                                  .row0 = row0,
                                  .n_rows = n_rows,
                                  .visible_until = c->positions + SLOTS - QUERIES + row0,
                                  .scores = scores,
                                  .score_stride = SLOTS};
    assert_int_equal(
        ag_attention(be, &c->out.t, &c->q.t, &seq, 1, &(ag_attention_params){.scale = 0.25f}),
        AG_OK);
}

static void attention_is_independent_of_the_split_into_calls(void **state) {
    (void)state;
    ag_backend *be = make_backend(3);
    oracle_run run = {.be = be, .random = 5};
    small_cache c;
    static float scores[2][2 * SLOTS], whole[QUERIES * HEADS * DIM];
    memset(scores, 0, sizeof scores);
    cache_make(&c, &run);
    assert_int_equal(ag_kv_write(be, &c.view, &c.k.t, &c.v.t, c.positions), AG_OK);
    c.n_slots[0] = c.n_slots[1] = SLOTS;
    attend(&c, be, 0, QUERIES, scores[0]);
    memcpy(whole, ag_tensor_f32(&c.out.t), sizeof whole);
    memset(ag_tensor_f32(&c.out.t), 0, sizeof whole);
    for (size_t row = 0; row < QUERIES; row += 7) {
        attend(&c, be, row, QUERIES - row < 7 ? QUERIES - row : 7, scores[1]);
    }
    assert_memory_equal(ag_tensor_f32(&c.out.t), whole, sizeof whole);
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    double mass = 0; /* one for each query, on each KV head */
    for (size_t i = 0; i < SLOTS; i++) mass += (double)scores[0][i];
    assert_true(fabs(mass - QUERIES) < 1e-4);
    cache_free(&c);
    ag_backend_destroy(be);
}

static void repeated_operations_allocate_nothing(void **state) {
    (void)state;
    ag_backend *be = make_backend(4);
    oracle_run run = {.be = be, .random = 6};
    small_cache c;
    static float scores[2 * SLOTS];
    cache_make(&c, &run);
    guarded x = guarded_make(&run, AG_F32, ag_shape_2d(1, 20000), 0, DATA_PLAIN);
    guarded w = guarded_make(&run, AG_F16, ag_shape_2d(9, 20000), 0, DATA_PLAIN);
    guarded y = guarded_make(&run, AG_F32, ag_shape_2d(1, 9), 0, DATA_PLAIN);
    size_t before = 0;
    for (int round = 0; round < 3; round++) {
        c.n_slots[0] = c.n_slots[1] = 0;
        assert_int_equal(ag_kv_write(be, &c.view, &c.k.t, &c.v.t, c.positions), AG_OK);
        c.n_slots[0] = c.n_slots[1] = SLOTS;
        attend(&c, be, 3, 1, round ? scores : NULL);
        assert_int_equal(ag_matmul_transposed(be, &y.t, &x.t, &w.t), AG_OK);
        if (round) assert_int_equal(ag_allocation_count(), before);
        before = ag_allocation_count();
    }
    guarded_free(&x), guarded_free(&w), guarded_free(&y);
    cache_free(&c);
    ag_backend_destroy(be);
}

static void rejects_an_unrepresentable_key_with_its_position(void **state) {
    (void)state;
    ag_backend *be = make_backend(4);
    oracle_run run = {.be = be, .random = 7};
    small_cache c;
    cache_make(&c, &run);
    ag_tensor_f32(&c.v.t)[(150 * 2 + 1) * DIM + 3] = INFINITY;
    ag_tensor_f32(&c.v.t)[(151 * 2 + 0) * DIM + 4] = NAN;
    assert_int_equal(ag_kv_write(be, &c.view, &c.k.t, &c.v.t, c.positions), AG_FORMAT);
    assert_string_equal(ag_backend_error(be)->msg,
                        "token 150, KV head 1: component 3 of key or value cannot be kept");
    cache_free(&c);
    ag_backend_destroy(be);
}

/* ---- preparing weights ---- */

enum { ROWS = 5000, COLS = 64 };

static bool count_rows(void *user, size_t row0, size_t n_rows) {
    atomic_uchar *seen = user;
    for (size_t i = row0; i < row0 + n_rows; i++) atomic_fetch_add(&seen[i], 1);
    return true;
}

static void every_source_row_is_reported_consumed_once(void **state) {
    (void)state;
    static atomic_uchar seen[ROWS];
    ag_backend *be = make_backend(4);
    oracle_run run = {.be = be, .random = 8};
    guarded src = guarded_make(&run, AG_BF16, ag_shape_2d(ROWS, COLS), 1, DATA_PLAIN);
    ag_tensor w;
    ag_buffer *owner;
    assert_int_equal(ag_prepare_weight(be, &w, &owner, &src.t, AG_Q8_0, count_rows, seen), AG_OK);
    assert_int_equal(w.dtype, AG_Q8_0);
    for (size_t i = 0; i < ROWS; i++) assert_int_equal(seen[i], 1);
    ag_buffer_release(&owner);
    guarded_free(&src);
    ag_backend_destroy(be);
}

static void names_the_first_bad_weight_on_any_thread_count(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= MOST_THREADS; threads++) {
        ag_backend *be = make_backend(threads);
        const size_t in_use = ag_memory_bytes_in_use(ag_backend_memory(be));
        oracle_run run = {.be = be, .random = threads};
        guarded src = guarded_make(&run, AG_F32, ag_shape_2d(ROWS, COLS), 0, DATA_PLAIN);
        float *values = ag_tensor_f32(&src.t);
        for (size_t row = 3000; row < ROWS; row += 7) values[row * COLS + 9] = NAN;
        values[4999 * COLS] = INFINITY;
        ag_tensor w;
        ag_buffer *owner;
        assert_int_equal(ag_prepare_weight(be, &w, &owner, &src.t, AG_F16, NULL, NULL), AG_FORMAT);
        assert_null(owner);
        assert_string_equal(ag_backend_error(be)->msg,
                            "row 3000, column 9: nan cannot be kept as f16");
        values[3 * COLS + 2] = 70000;
        assert_int_equal(ag_prepare_weight(be, &w, &owner, &src.t, AG_F16, NULL, NULL), AG_FORMAT);
        assert_string_equal(ag_backend_error(be)->msg,
                            "row 3, column 2: 70000 cannot be kept as f16");
        guarded_free(&src);
        assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(be)), in_use);
        ag_backend_destroy(be);
    }
}

/* ---- nothing ---- */

static void inputs_without_rows_are_fine(void **state) {
    (void)state;
    ag_backend *be = make_backend(2);
    oracle_run run = {.be = be};
    guarded x = guarded_make(&run, AG_F32, ag_shape_2d(2, 64), 0, DATA_PLAIN);
    guarded y = guarded_make(&run, AG_F32, ag_shape_2d(2, 64), 0, DATA_PLAIN);
    guarded w = guarded_make(&run, AG_Q4_0, ag_shape_2d(3, 64), 0, DATA_PLAIN);
    guarded v = guarded_make(&run, AG_F32, ag_shape_1d(64), 0, DATA_PLAIN);
    ag_tensor none = x.t, product = y.t, empty = y.t;
    none.shape = empty.shape = ag_shape_2d(0, 64);
    product.shape = ag_shape_2d(0, 3);
    assert_int_equal(ag_matmul_transposed(be, &product, &none, &w.t), AG_OK);
    assert_int_equal(ag_rms_norm(be, &empty, &none, &v.t, 1e-5f), AG_OK);
    assert_int_equal(ag_add_assign(be, &empty, &none), AG_OK);
    assert_int_equal(ag_add_bias(be, &empty, &v.t), AG_OK);
    assert_int_equal(ag_silu_mul(be, &empty, &none), AG_OK);
    assert_int_equal(ag_softmax(be, &empty), AG_OK);
    assert_int_equal(ag_scale(be, &empty, 2), AG_OK);
    assert_int_equal(ag_gather(be, &empty, &w.t, NULL, 0), AG_OK);
    empty.shape = ag_shape_3d(0, 2, 32);
    v.t.shape = ag_shape_1d(16);
    assert_int_equal(ag_rope(be, &empty, NULL, &v.t), AG_OK);
    v.t.shape = ag_shape_1d(64);
    guarded_check(&run, &x, false), guarded_check(&run, &y, false);
    assert_int_equal(run.guard_faults, 0);
    guarded_free(&x), guarded_free(&y), guarded_free(&w), guarded_free(&v);
    ag_backend_destroy(be);
}

/* ---- making one ---- */

static void rejects_an_unknown_backend_with_the_list(void **state) {
    (void)state;
    ag_backend *be = (void *)1;
    ag_error err;
    assert_int_equal(ag_backend_create(&(ag_backend_params){.name = "tpu"}, &be, &err),
                     AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "unknown backend 'tpu' (built in: cpu"));
    assert_null(be);
    assert_non_null(strstr(err.msg, "'tpu'"));
    assert_non_null(strstr(err.msg, "cpu"));
    assert_string_equal(ag_backend_list(0), "cpu");
}

static void caps_the_instruction_set_by_name(void **state) {
    (void)state;
    char *before = getenv("AG_CPU_ISA");
    before = before ? strdup(before) : NULL;
    ag_backend *be;
    ag_error err;
    setenv("AG_CPU_ISA", "mmx", 1);
    assert_int_equal(ag_backend_create(NULL, &be, &err), AG_INVALID);
    assert_null(be);
    assert_non_null(strstr(err.msg, "unknown instruction set 'mmx'; known: common avx2"));
    setenv("AG_CPU_ISA", "common", 1);
    assert_int_equal(ag_backend_create(&(ag_backend_params){.n_threads = 2}, &be, &err), AG_OK);
    assert_non_null(strstr(ag_backend_describe(be), "cpu: 2 threads, common"));
    assert_int_equal(ag_backend_threads(be), 2);
    assert_string_equal(ag_backend_name(be), "cpu");
    ag_backend_destroy(be);
    if (before) setenv("AG_CPU_ISA", before, 1);
    else unsetenv("AG_CPU_ISA");
    free(before);
}

static size_t allocations_left;

static void *alloc_some(void *user, size_t bytes) {
    (void)user;
    return allocations_left && allocations_left-- ? malloc(bytes) : NULL;
}

static void *resize(void *user, void *p, size_t bytes) {
    (void)user;
    return realloc(p, bytes);
}

static void release(void *user, void *p) {
    (void)user;
    free(p);
}

static void open_fails_cleanly_at_every_allocation(void **state) {
    (void)state;
    ag_backend *be = NULL;
    ag_error err;
    size_t n = 0;
    ag_set_allocator(&(ag_allocator){alloc_some, resize, release, NULL});
    for (;; n++) {
        allocations_left = n;
        if (ag_backend_create(&(ag_backend_params){.n_threads = 3}, &be, &err) == AG_OK) break;
        assert_int_equal(err.status, AG_NOMEM);
        assert_null(be);
    }
    assert_true(n >= 5);
    ag_backend_destroy(be);
    ag_set_allocator(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_give_equal_bits_on_1_to_8_threads),
        cmocka_unit_test(results_without_wanted_values_are_all_results),
        cmocka_unit_test(product_row_is_independent_of_other_rows),
        cmocka_unit_test(attention_is_independent_of_the_split_into_calls),
        cmocka_unit_test(repeated_operations_allocate_nothing),
        cmocka_unit_test(rejects_an_unrepresentable_key_with_its_position),
        cmocka_unit_test(every_source_row_is_reported_consumed_once),
        cmocka_unit_test(names_the_first_bad_weight_on_any_thread_count),
        cmocka_unit_test(inputs_without_rows_are_fine),
        cmocka_unit_test(rejects_an_unknown_backend_with_the_list),
        cmocka_unit_test(caps_the_instruction_set_by_name),
        cmocka_unit_test(open_fails_cleanly_at_every_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
