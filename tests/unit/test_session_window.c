/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of models with windows: they run in constant memory, and can be truncated as far as
 * their windows reach. */
#include "models/model_impl.h"
#include "support/without_matrix_units.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

enum { LAYERS = 3, WINDOW = 64, BLOCK = 128, N_TOKENS = 20000, BUDGET = 150, VOCAB = 96 };

static ag_backend *backend;
static ag_model *windowed, *mixed; /* all layers have the window; all but the last one */

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_model *make_model(bool full_layer) {
    ag_model_spec spec = ag_spec_plain(2, 1, 16);
    const ag_model_params params = {.weights = AG_F32};
    ag_model *out;
    ag_error err;
    spec.vocab_size = VOCAB;
    spec.hidden_size = 32;
    spec.intermediate_size = 64;
    spec.n_layers = LAYERS;
    spec.max_positions = 4 * N_TOKENS;
    spec.kinds[0].window = WINDOW;
    if (full_layer) {
        ag_layer_spec full = spec.kinds[0];
        full.window = 0;
        must(ag_spec_set_layer(&spec, LAYERS - 1, &full, &err), &err);
    }
    must(ag_model_random(backend, &spec, &params, &out, &err), &err);
    return out;
}

static int load(void **state) {
    (void)state;
    const ag_backend_params params = {.n_threads = 1};
    without_matrix_units();
    if (ag_backend_create(&params, &backend, NULL) != AG_OK) return 1;
    windowed = make_model(false);
    mixed = make_model(true);
    return 0;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(windowed);
    ag_model_destroy(mixed);
    ag_backend_destroy(backend);
    return 0;
}

static ag_session *make(ag_model *m, const char *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = 1024;
    p.prefill_chunk = 32;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = BUDGET;
    p.eviction.slack = 16;
    must(ag_session_create(m, &p, &s, &err), &err);
    return s;
}

static int32_t id_at(uint32_t position) {
    return (int32_t)((position * 7 + position * position % 61) % VOCAB);
}

/* Decodes up to position `end`; `other`: tokens of another text. */
static void go_to(ag_session *s, uint32_t end, bool other) {
    ag_error err;
    for (uint32_t i = ag_session_position(s); i < end; i++) {
        must(ag_session_decode(s, other ? 1 : id_at(i), &err), &err);
    }
}

static void are_finite(const float *logits) {
    for (size_t i = 0; i < VOCAB; i++) assert_true(isfinite(logits[i]));
}

/* Slots of a layer may be stored elsewhere, so sums round differently. */
static void continue_alike(ag_session *a, ag_session *b, int steps) {
    assert_int_equal(ag_session_position(a), ag_session_position(b));
    for (int i = 0; i < steps; i++) {
        const uint32_t end = ag_session_position(a) + 1;
        go_to(a, end, false);
        go_to(b, end, false);
        const float *x = ag_session_logits(a), *y = ag_session_logits(b);
        for (size_t k = 0; k < VOCAB; k++) {
            if (!(fabsf(x[k] - y[k]) <= 1e-5f * (1 + fabsf(y[k]))))
                fail_msg("position %u, logit %zu: %g and %g", end, k, (double)x[k], (double)y[k]);
        }
    }
}

/* ---- memory ---- */

static size_t block_bytes(const ag_session *s) {
    const ag_model_info *info = ag_session_model_info(s);
    const ag_session_params d = ag_session_defaults();
    const ag_kv_params one = {.n_layers = 1,
                              .n_kv_heads = info->n_kv_heads,
                              .head_dim = info->head_dim,
                              .max_slots = BLOCK,
                              .k_type = d.k_type,
                              .v_type = d.v_type};
    return ag_kv_cache_plan_bytes(&one);
}

/* Checks that the maximum is reached early. */
static void stays_flat(ag_model *m, const char *policy, size_t most_blocks) {
    ag_session *s = make(m, policy);
    size_t early = 0, late = 0;
    ag_error err;
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        must(ag_session_decode(s, id_at(i), &err), &err);
        const size_t bytes = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s));
        size_t *most = i < 1000 ? &early : &late;
        if (bytes > *most) *most = bytes;
        are_finite(ag_session_logits(s));
    }
    assert_int_equal(early, late);
    assert_true(late > 0 && late <= most_blocks * block_bytes(s));
    ag_session_destroy(s);
}

static void memory_is_constant_without_a_policy(void **state) {
    (void)state;
    stays_flat(windowed, "none", LAYERS * ((WINDOW + BLOCK - 1) / BLOCK + 1));
}

static void memory_is_constant_with_a_policy(void **state) {
    (void)state;
    const size_t full = (BUDGET + 16 + BLOCK) / BLOCK;
    stays_flat(mixed, "streaming", (LAYERS - 1) * ((WINDOW + BLOCK - 1) / BLOCK + 1) + full);
}

/* ---- truncation ---- */

/* At any position, since slots expire from time to time. */
static void truncates_a_draft_of_64_tokens(void **state) {
    (void)state;
    ag_model *const models[] = {windowed, mixed};
    for (size_t m = 0; m < 2; m++) {
        ag_session *s = make(models[m], "none");
        for (uint32_t position = 400; position < 400 + 2 * BLOCK; position++) {
            ag_session *went, *stayed;
            ag_error err;
            go_to(s, position, false);
            must(ag_session_fork(s, &went, &err), &err);
            must(ag_session_fork(s, &stayed, &err), &err);
            go_to(went, position + 64, true);
            must(ag_session_truncate(went, position, &err), &err);
            assert_null(ag_session_logits(went));
            continue_alike(went, stayed, 3);
            ag_session_destroy(went);
            ag_session_destroy(stayed);
        }
        ag_session_destroy(s);
    }
}

static void rejects_truncation_before_the_window(void **state) {
    (void)state;
    ag_model *const models[] = {windowed, mixed};
    for (size_t m = 0; m < 2; m++) {
        ag_session *s = make(models[m], "none"), *plain = make(models[m], "none"), *untouched;
        char name[32];
        ag_error err;
        go_to(s, 700, false);
        must(ag_session_fork(s, &untouched, &err), &err);
        const uint32_t oldest = ag_kv_cache_oldest_reachable(ag_session_kv_cache(s));
        assert_true(oldest > 0 && oldest <= 700 - 64);
        assert_int_equal(ag_session_truncate(s, oldest - 1, &err), AG_INVALID);
        snprintf(name, sizeof name, "%u", oldest);
        if (!strstr(err.msg, name)) fail_msg("'%s' does not name %s", err.msg, name);
        assert_int_equal(ag_session_truncate(s, 1, &err), AG_INVALID);
        assert_int_equal(ag_session_position(s), 700);
        continue_alike(s, untouched, 90);

        /* The oldest reachable position can be continued, and so can position 0. */
        must(ag_session_truncate(
                 untouched, ag_kv_cache_oldest_reachable(ag_session_kv_cache(untouched)), &err),
             &err);
        go_to(plain, ag_session_position(untouched), false);
        continue_alike(untouched, plain, 90);
        must(ag_session_truncate(s, 0, &err), &err);
        ag_session_reset(plain);
        continue_alike(s, plain, 90);
        ag_session_destroy(s);
        ag_session_destroy(plain);
        ag_session_destroy(untouched);
    }
}

/* ---- heads ---- */

/* Each layer kind has its own number and size of heads. */
static void layer_kinds_may_differ_in_heads(void **state) {
    (void)state;
    ag_model_spec spec = ag_spec_plain(4, 2, 16);
    const ag_model_params params = {.weights = AG_F32};
    ag_layer_spec other = spec.kinds[0];
    int32_t ids[100];
    ag_model *m;
    ag_error err;
    spec.vocab_size = VOCAB;
    spec.hidden_size = 32;
    spec.intermediate_size = 64;
    spec.n_layers = LAYERS;
    spec.max_positions = 1024;
    spec.n_ropes = 2;
    spec.ropes[1] = (ag_rope_spec){.theta = 500, .n_rotated = 16};
    other.n_heads = 3;
    other.n_kv_heads = 1;
    other.head_dim = 32;
    other.rope = 1;
    other.window = 24;
    must(ag_spec_set_layer(&spec, 1, &other, &err), &err);
    must(ag_model_random(backend, &spec, &params, &m, &err), &err);
    for (uint32_t i = 0; i < 100; i++) ids[i] = id_at(i);
    ag_session *a = make(m, "none"), *b = make(m, "none");
    must(ag_session_prefill(a, ids, 100, NULL, NULL, &err), &err);
    go_to(b, 100, false);
    continue_alike(a, b, 30);
    must(ag_session_follow_cache(a, &err), &err);
    assert_int_equal(ag_session_position(a), 130);
    continue_alike(a, b, 30);
    ag_session_destroy(a);
    ag_session_destroy(b);
    ag_model_destroy(m);
}

/* The models differ only in their configuration: weights, heads and positions are equal. */
static void rejects_a_cache_of_another_window(void **state) {
    (void)state;
    enum { N_MODELS = 4 };
    char path[] = "/tmp/ag-window-XXXXXX";
    const ag_model_params params = {.weights = AG_F32};
    ag_model *models[N_MODELS];
    ag_error err;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < N_MODELS; i++) {
        ag_model_spec spec = ag_spec_plain(2, 1, 16);
        spec.vocab_size = VOCAB;
        spec.hidden_size = 32;
        spec.intermediate_size = 64;
        spec.n_layers = 1;
        spec.max_positions = 256;
        if (i == 1) spec.kinds[0].window = 24;
        if (i == 2) spec.kinds[0].softcap = 5;
        if (i == 3) spec.kinds[0].scale = 1;
        must(ag_model_random(backend, &spec, &params, &models[i], &err), &err);
    }
    for (int i = 0; i < N_MODELS; i++) {
        ag_session *saved = make(models[i], "none");
        go_to(saved, 40, false);
        must(ag_session_save(saved, path, NULL, NULL, 0, &err), &err);
        for (int k = 0; k < N_MODELS; k++) {
            ag_session *s = make(models[k], "none");
            const ag_status st = ag_session_restore(s, path, NULL, NULL, &err);
            assert_int_equal(st, i == k ? AG_OK : AG_UNSUPPORTED);
            if (i != k) assert_non_null(strstr(err.msg, "saved for layers_of_cache"));
            ag_session_destroy(s);
        }
        ag_session_destroy(saved);
    }
    for (int i = 0; i < N_MODELS; i++) ag_model_destroy(models[i]);
    unlink(path);
}

/* A draft that may be truncated is saved with all its slots. */
static void rejects_a_cache_larger_than_the_window(void **state) {
    (void)state;
    enum { DRAFT = 400 };
    char path[] = "/tmp/ag-window-XXXXXX";
    int32_t ids[DRAFT];
    ag_error err;
    ag_session *s = make(windowed, "none"), *drafted;
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 1024;
    p.prefill_chunk = DRAFT;
    must(ag_session_create(windowed, &p, &drafted, &err), &err);
    for (uint32_t i = 0; i < DRAFT; i++) ids[i] = id_at(i);
    const ag_step_item item = {
        .session = drafted, .ids = ids, .n = DRAFT, .phase = AG_PHASE_VERIFY};
    must(ag_session_step(&item, 1, &err), &err);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    must(ag_session_save(drafted, path, NULL, NULL, 0, &err), &err);
    assert_int_equal(ag_session_restore(s, path, NULL, NULL, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "saved with 400 slots, this session has 384 (prefill_chunk)"));
    go_to(drafted, DRAFT + 1, false);
    must(ag_session_save(drafted, path, NULL, NULL, 0, &err), &err);
    must(ag_session_restore(s, path, NULL, NULL, &err), &err);
    continue_alike(s, drafted, 30);
    ag_session_destroy(s);
    ag_session_destroy(drafted);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_constant_without_a_policy),
        cmocka_unit_test(memory_is_constant_with_a_policy),
        cmocka_unit_test(truncates_a_draft_of_64_tokens),
        cmocka_unit_test(rejects_truncation_before_the_window),
        cmocka_unit_test(layer_kinds_may_differ_in_heads),
        cmocka_unit_test(rejects_a_cache_of_another_window),
        cmocka_unit_test(rejects_a_cache_larger_than_the_window),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
