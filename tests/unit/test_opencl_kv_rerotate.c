/* SPDX-License-Identifier: Apache-2.0 */
/* The device rotates the protected prefix past the trained length to the same bytes as the CPU
 * backend, after any operation on the cache, without reading back. */
#include "cache/kv_cache.h"
#include "cache/saved_state.h"
#include "support/byte_stream.h"
#include "unit/opencl_forwarded.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 3, HEADS = 2, DIM = 64, SLOTS = 600, TRAINED = 100, BOTH = 2 };

static forwarder_controls *forwarder;
static ag_backend *backends[BOTH]; /* the CPU, the device */
static float inv_freq[DIM / 2];
static const ag_rope_table rope[LAYERS] = {
    {inv_freq, DIM, 1}, {inv_freq, DIM, 1}, {inv_freq, DIM, 1}};

typedef struct pair {
    ag_kv_cache *of[BOTH];
} pair;

static const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
enum { N_TYPES = sizeof types / sizeof types[0] };

static ag_kv_params params_of(ag_dtype type, bool hadamard, uint32_t n_protected) {
    return (ag_kv_params){.n_layers = LAYERS,
                          .n_kv_heads = HEADS,
                          .head_dim = DIM,
                          .max_slots = SLOTS,
                          .k_type = type,
                          .v_type = type,
                          .n_protected = n_protected,
                          .hadamard = hadamard};
}

static pair make(const ag_kv_params *p) {
    pair r;
    for (int i = 0; i < BOTH; i++) {
        assert_int_equal(ag_kv_cache_create(backends[i], p, &r.of[i], NULL), AG_OK);
    }
    return r;
}

static void drop(pair *r) {
    for (int i = 0; i < BOTH; i++) ag_kv_cache_destroy(r->of[i]);
}

/* Appends tokens [first, first + n) with the copies of the protected ones. */
static void append(pair *r, uint32_t first, uint32_t n) {
    const size_t count = (size_t)n * HEADS * DIM, bytes = count * sizeof(float);
    float *values = malloc(bytes);
    uint32_t *positions = malloc(n * sizeof *positions);
    for (uint32_t i = 0; i < n; i++) positions[i] = first + i;
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < count; i++) values[i] = (float)(rand() % 4001 - 2000) / 999;
        for (int c = 0; c < BOTH; c++) {
            ag_tensor t;
            ag_buffer *owner;
            assert_int_equal(ag_tensor_alloc(&t, &owner, ag_backend_memory(backends[c]),
                                             AG_USAGE_SCRATCH, AG_F32, ag_shape_3d(n, HEADS, DIM),
                                             NULL),
                             AG_OK);
            assert_int_equal(ag_buffer_upload(owner, 0, values, bytes, NULL), AG_OK);
            assert_int_equal(ag_kv_cache_keep_unrotated(r->of[c], l, &t, positions, NULL), AG_OK);
            assert_int_equal(ag_kv_cache_update(r->of[c], l, &t, &t, positions, NULL), AG_OK);
            ag_buffer_release(&owner);
        }
    }
    free(positions);
    free(values);
}

static void turn(pair *r, uint32_t newest) {
    for (int i = 0; i < BOTH; i++) {
        assert_int_equal(ag_kv_cache_rerotate(r->of[i], rope, newest, TRAINED, NULL), AG_OK);
    }
}

/* ---- all that a cache holds, as it would be saved ---- */

static void lengths(const ag_kv_cache *c, uint32_t *n_slots) {
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) {
        n_slots[i] = ag_kv_cache_n_slots(c, i / HEADS, i % HEADS);
    }
}

static byte_stream saved(ag_kv_cache *c) {
    uint32_t n_slots[LAYERS * HEADS];
    lengths(c, n_slots);
    byte_stream s = {.bytes = malloc(ag_kv_cache_saved_bytes(ag_kv_cache_params(c), n_slots))};
    assert_int_equal(ag_kv_cache_save(c, stream_put, &s, NULL), AG_OK);
    return s;
}

static void expect_equal(const pair *r) {
    byte_stream s[BOTH] = {saved(r->of[0]), saved(r->of[1])};
    assert_int_equal(s[0].n, s[1].n);
    assert_memory_equal(s[0].bytes, s[1].bytes, s[0].n);
    for (int i = 0; i < BOTH; i++) free(s[i].bytes);
}

static pair restored(const pair *r, uint32_t position) {
    pair out = make(ag_kv_cache_params(r->of[0]));
    uint32_t n_slots[LAYERS * HEADS];
    for (int i = 0; i < BOTH; i++) {
        byte_stream s = saved(r->of[1 - i]);
        lengths(r->of[i], n_slots);
        assert_int_equal(
            ag_kv_cache_load(out.of[i], n_slots, position, "stream", stream_get, &s, NULL), AG_OK);
        free(s.bytes);
    }
    return out;
}

/* Keeps every third slot after the prefix; one head also loses part of the prefix. */
static void evict(pair *r, uint32_t n_protected) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            uint32_t keep[SLOTS], n = 0;
            for (uint32_t s = 0; s < ag_kv_cache_n_slots(r->of[0], l, h); s++) {
                const bool leaves = l == 1 && h == 1 && s == 1;
                if (!leaves && (s < n_protected || s % 3 == 0)) keep[n++] = s;
            }
            for (int i = 0; i < BOTH; i++) {
                assert_int_equal(ag_kv_cache_compact(r->of[i], l, h, keep, n, NULL), AG_OK);
            }
        }
    }
}

/* ---- tests ---- */

static void rotates_keys_like_the_cpu(void **state) {
    (void)state;
    srand(3);
    for (int t = 0; t < 2 * N_TYPES; t++) {
        const ag_kv_params p = params_of(types[t / 2], t % 2, 4);
        pair r = make(&p);
        append(&r, 0, 90);
        turn(&r, 99);
        expect_equal(&r);
        for (uint32_t newest = 100; newest < 5000; newest += 1633) {
            turn(&r, newest);
            expect_equal(&r);
        }
        drop(&r);
    }
}

static void rotates_a_prefix_of_several_blocks(void **state) {
    (void)state;
    srand(4);
    const ag_kv_params p = params_of(AG_Q8_0, false, 140);
    pair r = make(&p);
    append(&r, 0, 2);
    append(&r, 2, 138);
    append(&r, 140, 60);
    evict(&r, 140);
    turn(&r, 777);
    expect_equal(&r);
    drop(&r);
}

static void rotates_after_forks_and_evictions(void **state) {
    (void)state;
    srand(5);
    for (int t = 0; t < N_TYPES; t++) {
        const ag_kv_params p = params_of(types[t], types[t] == AG_Q4_0, 4);
        pair r = make(&p), f, back;
        append(&r, 0, 300);
        turn(&r, 400);
        evict(&r, 4);
        turn(&r, 401);
        expect_equal(&r);
        for (int i = 0; i < BOTH; i++) {
            assert_int_equal(ag_kv_cache_fork(r.of[i], &f.of[i], NULL), AG_OK);
        }
        turn(&f, 450); /* into blocks of its own */
        expect_equal(&f);
        expect_equal(&r);
        append(&f, 451, 3);
        turn(&f, 460);
        turn(&r, 402);
        expect_equal(&f);
        expect_equal(&r);
        back = restored(&f, 461);
        drop(&f);
        turn(&back, 470);
        expect_equal(&back);
        drop(&back);
        for (int i = 0; i < BOTH; i++) {
            assert_int_equal(ag_kv_cache_truncate(r.of[i], 2, NULL), AG_OK);
        }
        append(&r, 2, 50); /* other tokens at the end of the prefix */
        turn(&r, 51);      /* back to the first rotation */
        expect_equal(&r);
        turn(&r, 300);
        expect_equal(&r);
        for (int i = 0; i < BOTH; i++) ag_kv_cache_clear(r.of[i]);
        append(&r, 0, 9);
        turn(&r, 250);
        expect_equal(&r);
        drop(&r);
    }
}

static void rotates_in_one_launch_without_reading(void **state) {
    (void)state;
    const ag_kv_params p = params_of(AG_F16, false, 4);
    pair r = make(&p);
    append(&r, 0, 200);
    turn(&r, 300);
    for (uint32_t newest = 301; newest < 400; newest++) {
        const forwarder_controls before = *forwarder;
        turn(&r, newest);
        assert_int_equal(forwarder->n_launches - before.n_launches, 1);
        assert_in_range(forwarder->n_writes - before.n_writes, 1, 2);
        assert_int_equal(forwarder->n_reads, before.n_reads);
        assert_int_equal(forwarder->n_finishes, before.n_finishes);
        assert_int_equal(forwarder->n_buffers, before.n_buffers);
    }
    expect_equal(&r);
    drop(&r);
}

static void recovers_from_any_failed_call_of_a_rotation(void **state) {
    (void)state;
    const ag_kv_params p = params_of(AG_Q8_0, true, 4);
    pair r = make(&p);
    append(&r, 0, 50);
    turn(&r, 200);
    size_t n = 1;
    for (bool more = true; more; n++) {
        ag_error err = {0};
        forwarder->n_calls = 0;
        forwarder->failed = NULL;
        forwarder->fail_at = n;
        ag_status st = ag_kv_cache_rerotate(r.of[1], rope, 200 + (uint32_t)n, TRAINED, &err);
        forwarder->fail_at = 0;
        more = forwarder->failed != NULL;
        assert_true(more ? st != AG_OK && err.msg[0] : st == AG_OK);
        turn(&r, 200 + (uint32_t)n); /* repeats what failed */
        expect_equal(&r);
    }
    print_message("%zu calls\n", n - 2);
    assert_true(n > 4);
    drop(&r);
}

int main(void) {
    const int unfit = open_forwarded(AG_FORWARDER, &forwarder, &backends[1]);
    if (unfit) return unfit;
    if (ag_backend_create(NULL, &backends[0], NULL) != AG_OK) return EXIT_FAILURE;
    for (int i = 0; i < DIM / 2; i++) inv_freq[i] = powf(10000, -2.0f * (float)i / DIM);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotates_keys_like_the_cpu),
        cmocka_unit_test(rotates_a_prefix_of_several_blocks),
        cmocka_unit_test(rotates_after_forks_and_evictions),
        cmocka_unit_test(rotates_in_one_launch_without_reading),
        cmocka_unit_test(recovers_from_any_failed_call_of_a_rotation),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < BOTH; i++) ag_backend_destroy(backends[i]);
    return failed;
}
