/* SPDX-License-Identifier: Apache-2.0 */
/* What a decode step has, and that a backend is asked only for what it says it covers. */
#include "support/plain_backend.h"

#include "core/backend_ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 3, HEAD_DIM = 8 };

/* A step that has no feature, and what tests change of it. */
typedef struct example {
    ag_decode_layer layers[LAYERS];
    ag_kv_view kv[LAYERS];
    ag_tensor some, wide, inv_freq, half_freq, other_freq;
    ag_decode_step step;
} example;

static void plain_step(example *e) {
    *e = (example){
        .some = {.shape = ag_shape_1d(HEAD_DIM)},
        .wide = {.shape = ag_shape_1d(2 * HEAD_DIM)},
        .inv_freq = {.shape = ag_shape_1d(HEAD_DIM / 2)},
        .half_freq = {.shape = ag_shape_1d(HEAD_DIM / 4)},
        .other_freq = {.shape = ag_shape_1d(HEAD_DIM / 2), .offset = 64},
        .step = {.layers = e->layers, .kv = e->kv, .n_layers = LAYERS},
    };
    for (int i = 0; i < LAYERS; i++) {
        e->kv[i] =
            (ag_kv_view){.k_type = AG_F16, .v_type = AG_F16, .n_kv_heads = 2, .head_dim = HEAD_DIM};
        e->layers[i] = (ag_decode_layer){.attention_norm = &e->some,
                                         .ffn_norm = &e->some,
                                         .inv_freq = &e->inv_freq,
                                         .n_heads = 4,
                                         .scale = 0.5f};
    }
}

/* Each gives the example one feature; most of them in its last layer alone. */
static void bq(example *e) { e->layers[2].bq = &e->some; }
static void bk(example *e) { e->layers[2].bk = &e->some; }
static void bv(example *e) { e->layers[2].bv = &e->some; }
static void bo(example *e) { e->layers[2].bo = &e->some; }
static void b_gate(example *e) { e->layers[2].b_gate = &e->some; }
static void b_up(example *e) { e->layers[2].b_up = &e->some; }
static void b_down(example *e) { e->layers[2].b_down = &e->some; }
static void q_norm(example *e) { e->layers[2].q_norm = &e->some; }
static void k_norm(example *e) { e->layers[2].k_norm = &e->some; }
static void wide_q_norm(example *e) { e->layers[2].q_norm = &e->wide; }
static void wide_k_norm(example *e) { e->layers[2].k_norm = &e->wide; }
static void query_periods(example *e) { e->step.query_periods = 2; }
static void after_attention(example *e) { e->layers[2].post_attention_norm = &e->some; }
static void after_ffn(example *e) { e->layers[2].post_ffn_norm = &e->some; }
static void no_attention_norm(example *e) { e->layers[2].attention_norm = NULL; }
static void no_ffn_norm(example *e) { e->layers[2].ffn_norm = NULL; }
static void window(example *e) { e->layers[2].window = 4; }
static void logit_softcap(example *e) { e->step.logit_softcap = 30; }
static void hadamard(example *e) { e->step.hadamard = true; }
static void scores(example *e) { e->step.device_scores = (ag_buffer *)(void *)e; }

static void gelu(example *e) {
    for (int i = 0; i < LAYERS; i++) e->layers[i].activation = AG_ACTIVATION_GELU_TANH;
}

static void softcap(example *e) {
    for (int i = 0; i < LAYERS; i++) e->layers[i].softcap = 50;
}

static void half_rope(example *e) {
    for (int i = 0; i < LAYERS; i++) e->layers[i].inv_freq = &e->half_freq;
}

static void no_rope(example *e) {
    for (int i = 0; i < LAYERS; i++) e->layers[i].inv_freq = NULL;
}

static void heads_differ(example *e) { e->layers[2].n_heads = 2; }
static void kv_heads_differ(example *e) { e->kv[2].n_kv_heads = 1; }
static void types_differ(example *e) { e->kv[2].v_type = AG_Q8_0; }
static void scales_differ(example *e) { e->layers[2].scale = 0.25f; }
static void rotations_differ(example *e) { e->layers[2].inv_freq = &e->other_freq; }
static void factors_differ(example *e) { e->layers[2].rope_factor = 1.5f; }

static const struct {
    void (*give)(example *e);
    uint32_t features;
} cases[] = {
    {bq, AG_STEP_QKV_BIAS},
    {bk, AG_STEP_QKV_BIAS},
    {bv, AG_STEP_QKV_BIAS},
    {bo, AG_STEP_OUT_BIAS},
    {b_gate, AG_STEP_FFN_BIAS},
    {b_up, AG_STEP_FFN_BIAS},
    {b_down, AG_STEP_FFN_BIAS},
    {q_norm, AG_STEP_QK_NORM},
    {k_norm, AG_STEP_QK_NORM},
    {wide_q_norm, AG_STEP_QK_NORM | AG_STEP_WHOLE_QK_NORM},
    {wide_k_norm, AG_STEP_QK_NORM | AG_STEP_WHOLE_QK_NORM},
    {query_periods, AG_STEP_QUERY_FACTOR},
    {after_attention, AG_STEP_POST_NORM},
    {after_ffn, AG_STEP_POST_NORM},
    {no_attention_norm, AG_STEP_NO_PRE_NORM},
    {no_ffn_norm, AG_STEP_NO_PRE_NORM},
    {gelu, AG_STEP_GELU},
    {window, AG_STEP_WINDOW},
    {softcap, AG_STEP_SOFTCAP},
    {logit_softcap, AG_STEP_LOGIT_SOFTCAP},
    {half_rope, AG_STEP_PARTIAL_ROPE},
    {no_rope, AG_STEP_PARTIAL_ROPE},
    {heads_differ, AG_STEP_LAYER_KINDS},
    {kv_heads_differ, AG_STEP_LAYER_KINDS},
    {types_differ, AG_STEP_LAYER_KINDS},
    {scales_differ, AG_STEP_LAYER_KINDS},
    {rotations_differ, AG_STEP_LAYER_KINDS},
    {factors_differ, AG_STEP_LAYER_KINDS},
    {hadamard, AG_STEP_HADAMARD},
    {scores, AG_STEP_SCORES},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void names_every_feature_of_a_step(void **state) {
    (void)state;
    uint32_t all = 0;
    example e;
    plain_step(&e);
    assert_int_equal(ag_step_features(&e.step), 0);
    for (size_t i = 0; i < CASES; i++) {
        plain_step(&e);
        cases[i].give(&e);
        assert_int_equal(ag_step_features(&e.step), cases[i].features);
        all |= cases[i].features;
    }
    assert_int_equal(all, (AG_STEP_QUERY_FACTOR << 1) - 1); /* no bit without a case */
}

/* ---- what a backend is asked for ---- */

static int n_decoded;

static ag_status decode_step(ag_backend *b, const ag_decode_step *step, bool *taken) {
    (void)b;
    (void)step;
    n_decoded++;
    *taken = true;
    return AG_OK;
}

/* The slot, covering these features. */
static void expect_step(const ag_decode_step *step, uint32_t covered, bool decoded) {
    ag_backend *be = plain_backend_create(true);
    assert_non_null(be);
    const ag_backend_ops *plain = be->ops;
    ag_backend_ops ops = *plain;
    ops.decode_step = decode_step;
    ops.step_features = covered;
    be->ops = &ops;
    bool taken = !decoded;
    n_decoded = 0;
    assert_int_equal(ag_try_decode_step(be, step, &taken), AG_OK);
    assert_int_equal(taken, decoded);
    assert_int_equal(n_decoded, decoded);
    be->ops = plain;
    ag_backend_destroy(be);
}

static void asks_only_for_what_is_covered(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        example e;
        plain_step(&e);
        expect_step(&e.step, 0, true);
        cases[i].give(&e);
        const uint32_t its = cases[i].features;
        expect_step(&e.step, its, true);
        expect_step(&e.step, ~its, false);
        e.layers[1].window = 7; /* and something else that is not covered */
        if (its != AG_STEP_WINDOW) expect_step(&e.step, its, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_every_feature_of_a_step),
        cmocka_unit_test(asks_only_for_what_is_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
