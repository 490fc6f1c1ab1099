/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of a model's description that its program does not show, because embedding rows, weights
 * and rotary tables hold them: each changes the logits of a random model. test_lower.c has all
 * other numbers. */
#include "models/model_impl.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 64, N_TOKENS = 24, HEAD_DIM = 32, ORIGINAL = 32 };

static ag_backend *backend;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_model_spec make_spec(ag_rope_type type) {
    ag_model_spec s = ag_spec_plain(2, 1, HEAD_DIM);
    ag_rope_spec *rope = &s.ropes[0];
    s.kinds[0].scale = 60; /* random weights are small */
    s.vocab_size = VOCAB;
    s.hidden_size = 64;
    s.intermediate_size = 64;
    s.n_layers = 2;
    s.norm_eps = 1e-5f;
    s.max_positions = 1024;
    rope->theta = 10000;
    rope->n_rotated = 16;
    rope->n_turned = 8;
    rope->scaling = (ag_rope_scaling){
        .type = type,
        .factor = 4,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .original_max_position_embeddings = type == AG_ROPE_YARN ? 4096 : ORIGINAL,
        .beta_fast = 32,
        .beta_slow = 1,
        .ext_factor = 0.5,
    };
    if (type != AG_ROPE_LONGROPE) return s;
    rope->n_divisors = rope->n_rotated / 2;
    for (uint32_t i = 0; i < rope->n_divisors; i++) {
        rope->divisors[0][i] = 1 + (float)i / 4;
        rope->divisors[1][i] = 2 + (float)i;
    }
    return s;
}

/* Reads a few tokens in a session for max_seq_len positions. */
static ag_status try_logits(const ag_model_spec *s, uint32_t max_seq_len, float logits[VOCAB],
                            ag_error *err) {
    const ag_model_params params = {.weights = AG_F32};
    ag_session_params p = ag_session_defaults();
    int32_t ids[N_TOKENS];
    ag_model *model;
    ag_session *session;
    p.k_type = p.v_type = AG_F32;
    p.max_seq_len = max_seq_len;
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i * 29 % VOCAB;
    must(ag_model_random(backend, s, &params, &model, err), err);
    must(ag_session_create(model, &p, &session, err), err);
    const ag_status st = ag_session_prefill(session, ids, N_TOKENS, NULL, NULL, err);
    if (st == AG_OK) memcpy(logits, ag_session_logits(session), VOCAB * sizeof *logits);
    ag_session_destroy(session);
    ag_model_destroy(model);
    return st;
}

static void compute_logits(const ag_model_spec *s, uint32_t max_seq_len, float logits[VOCAB]) {
    ag_error err;
    must(try_logits(s, max_seq_len, logits, &err), &err);
}

/* ---- numbers ---- */

typedef enum number_type { REAL, DOUBLE, U32, BOOL } number_type;

typedef struct number {
    const char *name;
    size_t offset; /* in a model's description */
    number_type type;
} number;

#define OF(member, type) \
    { #member, offsetof(ag_model_spec, member), type }
#define OF_ROPE(member, type) OF(ropes[0].member, type)

static void change(ag_model_spec *s, const number *n) {
    unsigned char *at = (unsigned char *)s + n->offset;
    if (n->type == REAL) {
        float *real = (float *)(void *)at;
        *real = *real != 0 ? 2 * *real : 0.5f;
    } else if (n->type == DOUBLE) {
        *(double *)(void *)at *= 2;
    } else if (n->type == U32) {
        *(uint32_t *)(void *)at += 2;
    } else {
        *at ^= 1;
    }
}

static void expect_changes(ag_rope_type type, uint32_t max_seq_len, const number *numbers,
                           size_t n) {
    const ag_model_spec s = make_spec(type);
    float before[VOCAB], again[VOCAB], changed[VOCAB];
    compute_logits(&s, max_seq_len, before);
    compute_logits(&s, max_seq_len, again);
    assert_memory_equal(before, again, sizeof before);
    for (size_t i = 0; i < n; i++) {
        ag_model_spec other = s;
        change(&other, &numbers[i]);
        compute_logits(&other, max_seq_len, changed);
        if (!memcmp(before, changed, sizeof before)) {
            fail_msg("%s: another %s gives the same logits", ag_rope_type_name(type),
                     numbers[i].name);
        }
    }
}

#define EXPECT_CHANGES(type, max_seq_len, numbers) \
    expect_changes(type, max_seq_len, numbers, sizeof(numbers) / sizeof *(numbers))

static void numbers_folded_into_weights_change_the_logits(void **state) {
    (void)state;
    static const number numbers[] = {OF(embedding_scale, REAL), OF(logit_factor, REAL)};
    EXPECT_CHANGES(AG_ROPE_DEFAULT, 64, numbers);
}

static void numbers_of_rotary_tables_change_the_logits(void **state) {
    (void)state;
    static const number of_default[] = {OF_ROPE(theta, DOUBLE), OF_ROPE(n_rotated, U32),
                                        OF_ROPE(scaling.type, BOOL)};
    static const number of_linear[] = {OF_ROPE(scaling.factor, DOUBLE)};
    static const number of_llama3[] = {OF_ROPE(scaling.factor, DOUBLE),
                                       OF_ROPE(scaling.low_freq_factor, DOUBLE),
                                       OF_ROPE(scaling.high_freq_factor, DOUBLE),
                                       OF_ROPE(scaling.original_max_position_embeddings, DOUBLE)};
    static const number of_yarn[] = {OF_ROPE(scaling.factor, DOUBLE),
                                     OF_ROPE(scaling.beta_fast, DOUBLE),
                                     OF_ROPE(scaling.beta_slow, DOUBLE),
                                     OF_ROPE(scaling.ext_factor, DOUBLE),
                                     OF_ROPE(scaling.round_to_pairs, BOOL),
                                     OF_ROPE(scaling.original_max_position_embeddings, DOUBLE)};
    static const number of_proportional[] = {OF_ROPE(scaling.factor, DOUBLE),
                                             OF_ROPE(n_turned, U32)};
    EXPECT_CHANGES(AG_ROPE_DEFAULT, 64, of_default);
    EXPECT_CHANGES(AG_ROPE_LINEAR, 64, of_linear);
    EXPECT_CHANGES(AG_ROPE_LLAMA3, 64, of_llama3);
    EXPECT_CHANGES(AG_ROPE_YARN, 64, of_yarn);
    EXPECT_CHANGES(AG_ROPE_PROPORTIONAL, 64, of_proportional);
}

/* A session for at most ORIGINAL positions takes the first list of divisors, a longer one the
 * second. */
static void divisors_change_the_logits(void **state) {
    (void)state;
    static const number of_short[] = {OF_ROPE(divisors[0][0], REAL), OF_ROPE(divisors[0][7], REAL)};
    static const number of_long[] = {OF_ROPE(divisors[1][0], REAL), OF_ROPE(divisors[1][7], REAL),
                                     OF_ROPE(scaling.original_max_position_embeddings, DOUBLE)};
    EXPECT_CHANGES(AG_ROPE_LONGROPE, ORIGINAL, of_short);
    EXPECT_CHANGES(AG_ROPE_LONGROPE, 2 * ORIGINAL, of_long);
    ag_model_spec s = make_spec(AG_ROPE_LONGROPE);
    float divided[VOCAB], plain[VOCAB];
    compute_logits(&s, ORIGINAL, divided);
    s.ropes[0].n_divisors = 0;
    compute_logits(&s, ORIGINAL, plain);
    assert_memory_not_equal(divided, plain, sizeof plain);
}

/* The table of layers' own inputs bounds the ids. */
static void rejects_ids_outside_the_layer_input_table(void **state) {
    (void)state;
    ag_model_spec s = make_spec(AG_ROPE_DEFAULT);
    float logits[VOCAB];
    ag_error err;
    s.layer_input = 16;
    s.n_layer_inputs = VOCAB;
    compute_logits(&s, 64, logits);
    s.n_layer_inputs = 20;
    assert_int_equal(try_logits(&s, 64, logits, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "29"));
    assert_non_null(strstr(err.msg, "20"));
}

static int open_backend(void **state) {
    (void)state;
    const ag_backend_params params = {.n_threads = 1};
    return ag_backend_create(&params, &backend, NULL) != AG_OK;
}

static int close_backend(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_folded_into_weights_change_the_logits),
        cmocka_unit_test(numbers_of_rotary_tables_change_the_logits),
        cmocka_unit_test(divisors_change_the_logits),
        cmocka_unit_test(rejects_ids_outside_the_layer_input_table),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
