/* SPDX-License-Identifier: Apache-2.0 */
#include "support/one_model.h"
#include "support/without_matrix_units.h"

#include <antigravity/expert.h>

static int load(void **state) {
    without_matrix_units();
    return load_one_model(state);
}

static ag_session *make(uint32_t max_seq_len, uint32_t chunk) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = max_seq_len;
    p.prefill_chunk = chunk;
    return session_of(&p);
}

static void numbered_ids(int32_t *ids, size_t n, int32_t seed) {
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7 + (size_t)seed * 31) % 300) + 3;
}

static void same_logits(const ag_session *a, const ag_session *b) {
    assert_non_null(ag_session_logits(a));
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n_vocab * sizeof(float));
}

/* Appends every key and value of one cache to another. */
static void copy_cache(ag_kv_cache *to, ag_kv_cache *from) {
    const ag_kv_params *p = ag_kv_cache_params(from);
    const uint32_t n = ag_kv_cache_length(from), d = p->head_dim;
    ag_tensor k, v;
    ag_buffer *buffers[2];
    ag_error err;
    const ag_shape shape = ag_shape_3d(1, p->n_kv_heads, d);
    ag_memory *mem = ag_backend_memory(backend);
    assert_int_equal(ag_tensor_alloc(&k, &buffers[0], mem, AG_USAGE_SCRATCH, AG_F32, shape, &err),
                     AG_OK);
    assert_int_equal(ag_tensor_alloc(&v, &buffers[1], mem, AG_USAGE_SCRATCH, AG_F32, shape, &err),
                     AG_OK);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        for (uint32_t slot = 0; slot < n; slot++) {
            for (uint32_t h = 0; h < p->n_kv_heads; h++) {
                assert_int_equal(ag_kv_cache_read(from, l, h, slot, ag_tensor_f32(&k) + h * d,
                                                  ag_tensor_f32(&v) + h * d, &err),
                                 AG_OK);
            }
            const uint32_t position = ag_kv_cache_position(from, l, 0, slot);
            assert_int_equal(ag_kv_cache_update(to, l, &k, &v, &position, &err), AG_OK);
        }
    }
    ag_buffer_release(&buffers[0]);
    ag_buffer_release(&buffers[1]);
}

static void follows_a_cache_that_the_caller_filled(void **state) {
    (void)state;
    enum { N = 20 };
    int32_t ids[N];
    ag_error err;
    ag_session *a = make(64, 16), *b = make(64, 16);
    numbered_ids(ids, N, 1);
    assert_int_equal(ag_session_prefill(a, ids, N, NULL, NULL, &err), AG_OK);
    copy_cache(ag_session_kv_cache(b), ag_session_kv_cache(a));
    assert_int_equal(ag_session_follow_cache(b, &err), AG_OK);
    assert_int_equal(ag_session_position(b), N);
    assert_null(ag_session_logits(b));
    assert_int_equal(ag_session_decode(a, 5, &err), AG_OK);
    assert_int_equal(ag_session_decode(b, 5, &err), AG_OK);
    same_logits(a, b);

    assert_int_equal(ag_session_truncate(b, N, &err), AG_OK);
    assert_int_equal(ag_session_decode(b, 5, &err), AG_OK);
    same_logits(a, b);

    const uint32_t first = 0;
    assert_int_equal(ag_kv_cache_compact(ag_session_kv_cache(b), 1, 0, &first, 1, &err), AG_OK);
    assert_int_equal(ag_session_follow_cache(b, &err), AG_INVALID);
    assert_string_equal(
        err.msg, "cannot follow the cache: layer 1, KV head 0 ends before position 1, not 21");
    assert_int_equal(ag_session_position(b), N + 1);
    ag_session_destroy(a);
    ag_session_destroy(b);
}

static void rejects_following_a_managed_cache(void **state) {
    (void)state;
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.eviction.policy = ag_eviction_policy_find("streaming");
    p.eviction.budget_tokens = 64;
    if (ag_session_create(model, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_int_equal(ag_session_follow_cache(s, &err), AG_INVALID);
    ag_session_destroy(s);
}

static void batched_decoding_matches_single_sessions(void **state) {
    (void)state;
    enum { N = 20, STEPS = 5 };
    ag_session *alone[N], *together[N];
    ag_error err;
    for (size_t i = 0; i < N; i++) {
        int32_t ids[64];
        size_t n = 1 + i * 3 % 40;
        numbered_ids(ids, n, (int32_t)i);
        alone[i] = make(64, 16);
        together[i] = make(64, 16);
        assert_int_equal(ag_session_prefill(alone[i], ids, n, NULL, NULL, &err), AG_OK);
        assert_int_equal(ag_session_prefill(together[i], ids, n, NULL, NULL, &err), AG_OK);
    }
    for (int32_t step = 0; step < STEPS; step++) {
        int32_t ids[N];
        numbered_ids(ids, N, step);
        assert_int_equal(ag_session_decode_batch(together, ids, N, &err), AG_OK);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(ag_session_decode(alone[i], ids[i], &err), AG_OK);
            same_logits(alone[i], together[i]);
            assert_int_equal(ag_session_position(alone[i]), ag_session_position(together[i]));
        }
    }
    for (size_t i = 0; i < N; i++) {
        ag_session_destroy(alone[i]);
        ag_session_destroy(together[i]);
    }
}

static void failed_batch_changes_no_session(void **state) {
    (void)state;
    ag_session *s[2] = {make(64, 16), make(4, 4)};
    ag_error err;
    int32_t ids[4] = {3, 4, 5, 6};
    assert_int_equal(ag_session_prefill(s[0], ids, 4, NULL, NULL, &err), AG_OK);
    assert_int_equal(ag_session_prefill(s[1], ids, 4, NULL, NULL, &err), AG_OK);
    assert_int_equal(ag_session_decode_batch(s, ids, 2, &err), AG_LIMIT);
    assert_int_equal(ag_session_position(s[0]), 4);
    assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(s[0])), 4);
    ag_session *twice[2] = {s[0], s[0]};
    assert_int_equal(ag_session_decode_batch(twice, ids, 2, &err), AG_INVALID);
    assert_int_equal(ag_session_decode_batch(s, ids, 0, &err), AG_INVALID);
    ag_session_destroy(s[0]);
    ag_session_destroy(s[1]);
}

static void decoding_does_not_allocate(void **state) {
    (void)state;
    ag_session *s = make(512, 64);
    ag_error err;
    int32_t ids[40];
    numbered_ids(ids, 40, 1);
    assert_int_equal(ag_session_prefill(s, ids, 40, NULL, NULL, &err), AG_OK);
    size_t before = ag_allocation_count();
    for (int i = 0; i < 400; i++) assert_int_equal(ag_session_decode(s, 9, &err), AG_OK);
    assert_int_equal(ag_allocation_count() - before, 0);
    ag_session_destroy(s);
}

/* Attention needs more scratch for a longer cache. It is allocated when the session is created. */
static void decoding_far_into_a_cache_does_not_allocate(void **state) {
    (void)state;
    enum { N = 36000, CHUNK = 500 };
    ag_backend *fresh; /* a backend whose scratch nothing else has grown */
    ag_model *tiny;
    ag_session *s;
    ag_error err;
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = N + 10;
    p.k_type = p.v_type = AG_Q4_0;
    const ag_backend_params bp = {.n_threads = 2};
    assert_int_equal(ag_backend_create(&bp, &fresh, &err), AG_OK);
    if (ag_model_synthetic(fresh, "tiny", NULL, &tiny, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_session_create(tiny, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(ag_session_decode(s, i, &err), AG_OK);

    ag_kv_cache *cache = ag_session_kv_cache(s);
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    ag_tensor rows; /* rows of zeros */
    ag_buffer *owner;
    uint32_t positions[CHUNK];
    assert_int_equal(ag_tensor_alloc(&rows, &owner, ag_backend_memory(fresh), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(CHUNK, kv->n_kv_heads, kv->head_dim),
                                     &err),
                     AG_OK);
    for (uint32_t first = 3; first + CHUNK <= N; first += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++) positions[i] = first + i;
        for (uint32_t l = 0; l < kv->n_layers; l++) {
            assert_int_equal(ag_kv_cache_update(cache, l, &rows, &rows, positions, &err), AG_OK);
        }
    }
    assert_int_equal(ag_session_follow_cache(s, &err), AG_OK);
    const size_t before = ag_allocation_count();
    for (int i = 0; i < 5; i++) assert_int_equal(ag_session_decode(s, 9, &err), AG_OK);
    assert_int_equal(ag_allocation_count() - before, 0);
    ag_buffer_release(&owner);
    ag_session_destroy(s);
    ag_model_destroy(tiny);
    ag_backend_destroy(fresh);
}

static void full_cache_fails_with_limit(void **state) {
    (void)state;
    ag_session *s = make(10, 4);
    ag_error err;
    int32_t ids[16];
    numbered_ids(ids, 16, 2);
    assert_int_equal(ag_session_prefill(s, ids, 11, NULL, NULL, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "11 tokens"));
    assert_int_equal(ag_session_position(s), 0);
    assert_int_equal(ag_session_prefill(s, ids, 10, NULL, NULL, &err), AG_OK);
    assert_int_equal(ag_session_capacity_left(s), 0);
    assert_int_equal(ag_session_decode(s, 3, &err), AG_LIMIT);
    ag_session_reset(s);
    assert_null(ag_session_logits(s));
    assert_int_equal(ag_session_capacity_left(s), 10);
    assert_int_equal(ag_session_prefill(s, ids, 1, NULL, NULL, &err), AG_OK);
    ag_session_destroy(s);
}

static void does_not_use_untrained_positions(void **state) {
    (void)state;
    ag_session *s = make(100000, 512);
    assert_int_equal(ag_session_capacity_left(s), ag_model_get_info(model)->max_positions);
    ag_session_destroy(s);
}

static void rejects_bad_ids_without_consuming_tokens(void **state) {
    (void)state;
    ag_session *s = make(64, 16);
    ag_error err;
    const int32_t ids[] = {3, 4, 320};
    assert_int_equal(ag_session_prefill(s, ids, 3, NULL, NULL, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "320"));
    const int32_t negative = -1;
    assert_int_equal(ag_session_decode(s, negative, &err), AG_INVALID);
    assert_int_equal(ag_session_prefill(s, ids, 0, NULL, NULL, &err), AG_INVALID);
    assert_int_equal(ag_session_position(s), 0);
    ag_session_destroy(s);
}

static bool cancel_at_half(void *user, uint64_t done, uint64_t total) {
    *(uint64_t *)user = done;
    return done * 2 < total;
}

static void cancelled_prefill_keeps_full_chunks(void **state) {
    (void)state;
    ag_session *s = make(128, 16), *other = make(128, 16);
    ag_error err;
    int32_t ids[100];
    numbered_ids(ids, 100, 3);
    uint64_t done = 0;
    assert_int_equal(ag_session_prefill(s, ids, 100, cancel_at_half, &done, &err), AG_CANCELLED);
    assert_int_equal(done, 64);
    assert_int_equal(ag_session_position(s), 64);
    assert_null(ag_session_logits(s));
    assert_int_equal(ag_session_prefill(s, ids + 64, 36, NULL, NULL, &err), AG_OK);
    assert_int_equal(ag_session_prefill(other, ids, 100, NULL, NULL, &err), AG_OK);
    same_logits(s, other);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static bool fail_in_scoring(void *user, size_t i, const float *logits) {
    (void)logits;
    return i < *(size_t *)user;
}

static void scoring_can_be_cancelled(void **state) {
    (void)state;
    ag_session *s = make(128, 16);
    ag_error err;
    int32_t ids[40];
    numbered_ids(ids, 40, 4);
    size_t last = 20;
    assert_int_equal(ag_session_score(s, ids, 40, fail_in_scoring, &last, &err), AG_CANCELLED);
    assert_int_equal(ag_session_position(s), 16); /* the cancelled chunk is not consumed */
    ag_session_destroy(s);
}

/* Measures the squared distance relative to the squared length: 1e-7, 2e-4 and 6e-2. Products of
 * these weights do not round their input, which would hide the smallest. */
static void every_cache_type_stays_near_f32(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    const double limits[] = {0, 1e-6, 5e-4, 0.1};
    float *want = NULL;
    int32_t ids[60];
    numbered_ids(ids, 60, 5);
    ag_model *exact;
    const ag_model_params f32 = {.weights = AG_F32};
    assert_int_equal(ag_model_load(backend, ONE_MODEL, &f32, &exact, NULL), AG_OK);
    for (size_t i = 0; i < 4; i++) {
        ag_session_params p = ag_session_defaults();
        p.k_type = p.v_type = types[i];
        ag_session *s;
        ag_error err;
        assert_int_equal(ag_session_create(exact, &p, &s, &err), AG_OK);
        assert_int_equal(ag_session_prefill(s, ids, 60, NULL, NULL, &err), AG_OK);
        const float *have = ag_session_logits(s);
        if (!want) {
            want = malloc(n_vocab * sizeof *want);
            memcpy(want, have, n_vocab * sizeof *want);
        }
        double off = 0, length = 0;
        for (size_t k = 0; k < n_vocab; k++) {
            off += (have[k] - want[k]) * (have[k] - want[k]);
            length += want[k] * want[k];
        }
        print_message("%s: %.2g\n", ag_dtype_name(types[i]), off / length);
        assert_true(off / length <= limits[i]);
        ag_session_destroy(s);
    }
    free(want);
    ag_model_destroy(exact);
}

static void plan_matches_the_memory_of_a_session(void **state) {
    (void)state;
    ag_session_plan plan;
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 256;
    assert_int_equal(ag_session_plan_memory(ag_model_get_info(model), &p, &plan, NULL), AG_OK);
    ag_session *s = make(256, 512);
    assert_int_equal(plan.kv_bytes, ag_kv_cache_capacity_bytes(ag_session_kv_cache(s)));
    assert_true(plan.workspace_bytes > 256 * 128 * sizeof(float));
    ag_session_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_a_cache_that_the_caller_filled),
        cmocka_unit_test(rejects_following_a_managed_cache),
        cmocka_unit_test(batched_decoding_matches_single_sessions),
        cmocka_unit_test(failed_batch_changes_no_session),
        cmocka_unit_test(decoding_does_not_allocate),
        cmocka_unit_test(decoding_far_into_a_cache_does_not_allocate),
        cmocka_unit_test(full_cache_fails_with_limit),
        cmocka_unit_test(does_not_use_untrained_positions),
        cmocka_unit_test(rejects_bad_ids_without_consuming_tokens),
        cmocka_unit_test(cancelled_prefill_keeps_full_chunks),
        cmocka_unit_test(scoring_can_be_cancelled),
        cmocka_unit_test(every_cache_type_stays_near_f32),
        cmocka_unit_test(plan_matches_the_memory_of_a_session),
    };
    return cmocka_run_group_tests(tests, load, unload_one_model);
}
