/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of a longrope model: each keeps its short or long frequencies, also in a pass with the
 * other kind and in a file. */
#include "models/model_impl.h"
#include "session/session_impl.h"
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

enum { ORIGINAL = 32, VOCAB = 64, N_TOKENS = 20 };

static ag_backend *backend;
static ag_model *model;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_model *make_model(float query_beta, uint32_t rope_of_last) {
    ag_model_spec spec = ag_spec_plain(2, 1, 16);
    const ag_model_params params = {.weights = AG_F32};
    ag_rope_spec *rope = &spec.ropes[0];
    spec.kinds[0].scale = 60; /* random weights are small */
    ag_layer_spec last = spec.kinds[0];
    ag_model *out;
    ag_error err;
    spec.vocab_size = VOCAB;
    spec.hidden_size = 32;
    spec.intermediate_size = 64;
    spec.n_layers = 2;
    spec.max_positions = 1024;
    spec.query_beta = query_beta;
    spec.query_period = 8;
    last.rope = rope_of_last;
    must(ag_spec_set_layer(&spec, 1, &last, &err), &err);
    rope->scaling.type = AG_ROPE_LONGROPE;
    rope->scaling.original_max_position_embeddings = ORIGINAL;
    rope->attention_factor = 1.25f;
    rope->n_divisors = rope->n_rotated / 2;
    for (uint32_t i = 0; i < rope->n_divisors; i++) {
        rope->divisors[0][i] = 1;
        rope->divisors[1][i] = 2 + (float)i;
    }
    must(ag_model_random(backend, &spec, &params, &out, &err), &err);
    return out;
}

static int load(void **state) {
    (void)state;
    const ag_backend_params params = {.n_threads = 1};
    without_matrix_units();
    if (ag_backend_create(&params, &backend, NULL) != AG_OK) return 1;
    model = make_model(0, 0);
    return 0;
}

static int unload(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static ag_session *make(ag_model *m, uint32_t max_seq_len, const char *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.k_type = p.v_type = AG_F32;
    p.max_seq_len = max_seq_len;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = 16;
    p.eviction.protected_prefix = 2;
    p.eviction.recent = 4;
    must(ag_session_create(m, &p, &s, &err), &err);
    return s;
}

static int32_t id_at(uint32_t position) { return (int32_t)(position * 7 % VOCAB); }

static void decode(ag_session *s, uint32_t n) {
    ag_error err;
    for (uint32_t i = 0; i < n; i++)
        must(ag_session_decode(s, id_at(ag_session_position(s)), &err), &err);
}

static double distance(const ag_session *a, const ag_session *b) {
    double largest = 0;
    for (int i = 0; i < VOCAB; i++) {
        const double d = fabs((double)(ag_session_logits(a)[i] - ag_session_logits(b)[i]));
        if (!(d <= largest)) largest = d;
    }
    return largest;
}

static void max_seq_len_selects_the_frequencies(void **state) {
    (void)state;
    const struct {
        uint32_t max_seq_len;
        const char *policy;
        bool is_long;
    } cases[] = {
        {ORIGINAL, "none", false},
        {ORIGINAL + 1, "none", true},
        {ORIGINAL, "streaming", true}, /* unlimited positions */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_session *s = make(model, cases[i].max_seq_len, cases[i].policy), *fork;
        assert_int_equal(s->is_long, cases[i].is_long);
        must(ag_session_fork(s, &fork, NULL), NULL);
        assert_int_equal(fork->is_long, cases[i].is_long);
        ag_session_destroy(fork);
        ag_session_destroy(s);
    }
}

/* A session among sessions of the other kind gets the logits that it gets alone. */
static void long_and_short_sessions_share_a_pass(void **state) {
    (void)state;
    static const uint32_t limits[] = {ORIGINAL, 512, 512, ORIGINAL};
    ag_session *alone[4], *together[4];
    ag_error err;
    for (int i = 0; i < 4; i++) {
        alone[i] = make(model, limits[i], "none");
        together[i] = make(model, limits[i], "none");
        decode(together[i], (uint32_t)i);
        decode(alone[i], N_TOKENS + (uint32_t)i);
    }
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        ag_step_item items[4];
        int32_t ids[4];
        for (int i = 0; i < 4; i++) {
            ids[i] = id_at(ag_session_position(together[i]));
            items[i] = (ag_step_item){.session = together[i],
                                      .ids = &ids[i],
                                      .n = 1,
                                      .phase = AG_PHASE_DECODE,
                                      .logits = AG_LOGITS_LAST};
        }
        must(ag_session_step(items, 4, &err), &err);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(distance(alone[i], together[i]) < 1e-5);
        ag_session_destroy(together[i]);
    }
    /* The same text gives other logits with the other frequencies. */
    decode(alone[0], 3);
    decode(alone[1], 2);
    assert_true(distance(alone[0], alone[3]) < 1e-5);
    assert_true(distance(alone[0], alone[1]) > 1e-3);
    for (int i = 0; i < 4; i++) ag_session_destroy(alone[i]);
}

static void expect_restored(const char *path, ag_model *m, uint32_t max_seq_len, const char *why) {
    ag_session *s = make(m, max_seq_len, "none");
    ag_error err = {.msg = ""};
    const ag_status st = ag_session_restore(s, path, NULL, NULL, &err);
    assert_int_equal(st, why ? AG_UNSUPPORTED : AG_OK);
    if (why && !strstr(err.msg, why)) fail_msg("%s", err.msg);
    ag_session_destroy(s);
}

static void saved_cache_keeps_its_frequencies(void **state) {
    (void)state;
    char path[] = "/tmp/ag-longrope-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ag_model *grows = make_model(0.5f, 0), *partly = make_model(0, AG_NO_ROPE);
    for (int is_long = 0; is_long < 2; is_long++) {
        ag_session *s = make(model, is_long ? 512 : ORIGINAL, "none");
        decode(s, N_TOKENS);
        must(ag_session_save(s, path, NULL, NULL, 0, NULL), NULL);
        ag_session_destroy(s);
        expect_restored(path, model, is_long ? 400 : ORIGINAL - 2, NULL);
        expect_restored(path, model, is_long ? ORIGINAL : 512, "saved for rope_scaling longrope");
        expect_restored(path, grows, is_long ? 400 : ORIGINAL, "layers_of_cache");
        expect_restored(path, partly, is_long ? 400 : ORIGINAL, "layers_of_cache");
    }
    ag_model_destroy(grows);
    ag_model_destroy(partly);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_seq_len_selects_the_frequencies),
        cmocka_unit_test(long_and_short_sessions_share_a_pass),
        cmocka_unit_test(saved_cache_keeps_its_frequencies),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
