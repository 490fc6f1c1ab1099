/* SPDX-License-Identifier: Apache-2.0 */
/* Tests programs with features of single families. If the kernel for entire tokens supports them,
 * its values equal those of the operations up to rounding. If not, the operations run. */
#include "models/model_impl.h"
#include "unit/opencl_device.h"

#include <antigravity/antigravity.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, DIM = 256, FFN = 512, VOCAB = 512, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64 };
enum { WINDOW = 3, TOKENS = 150, FEW = 6 };

static ag_backend *be;

/* ---- what differs from a plain program ---- */

static void window(ag_model_spec *s) { s->kinds[1].window = WINDOW; }
static void qk_norm(ag_model_spec *s) { s->kinds[0].qk_norm = s->kinds[1].qk_norm = true; }
static void gelu(ag_model_spec *s) {
    s->kinds[0].activation = s->kinds[1].activation = AG_ACTIVATION_GELU_TANH;
}
static void biases(ag_model_spec *s) {
    s->kinds[0].qkv_bias = true; /* in one layer only */
    s->kinds[1].out_bias = true;
}
static void all_of_them(ag_model_spec *s) {
    window(s);
    qk_norm(s);
    gelu(s);
    biases(s);
}
/* Until its first period is over. */
static void query_factor(ag_model_spec *s) {
    s->query_beta = 0.1f;
    s->query_period = FEW;
}
static void gelu_in_layer_1(ag_model_spec *s) { s->kinds[1].activation = AG_ACTIVATION_GELU_TANH; }
static void full_norm(ag_model_spec *s) { s->kinds[0].full_qk_norm = true; }
static void half_rope(ag_model_spec *s) { s->ropes[0].n_rotated = HEAD_DIM / 2; }
static void no_rope(ag_model_spec *s) { s->kinds[0].rope = s->kinds[1].rope = AG_NO_ROPE; }
static void no_rope_in_layer_1(ag_model_spec *s) { s->kinds[1].rope = AG_NO_ROPE; }
static void another_scale(ag_model_spec *s) { s->kinds[1].scale = 0.2f; }
static void fewer_heads(ag_model_spec *s) { s->kinds[1].n_heads = KV_HEADS; }
static void another_ffn(ag_model_spec *s) { s->kinds[1].ffn_dim = FFN / 2; }
static void softcap(ag_model_spec *s) { s->kinds[0].softcap = s->kinds[1].softcap = 3; }
static void post_norms(ag_model_spec *s) { s->kinds[0].post_norms = true; }
static void wide_heads(ag_model_spec *s) {
    s->ropes[0].n_rotated = s->kinds[0].head_dim = s->kinds[1].head_dim = 256;
}

/* n: tokens from the first on that are taken, of TOKENS or FEW + 1. */
static const struct {
    const char *name;
    void (*give)(ag_model_spec *s);
    uint32_t n;
} cases[] = {
    {"windows, norms of heads, GELU and biases", all_of_them, TOKENS},
    {"queries that grow after some tokens", query_factor, FEW},
    {"GELU in one layer", gelu_in_layer_1, 0},
    {"norms of all heads together", full_norm, 0},
    {"heads that rotate in part", half_rope, 0},
    {"no rotation", no_rope, 0},
    {"rotation in one layer", no_rope_in_layer_1, 0},
    {"two scales", another_scale, 0},
    {"fewer heads in one layer", fewer_heads, 0},
    {"another width in one layer", another_ffn, 0},
    {"scores with a soft cap", softcap, 0},
    {"norms behind branches", post_norms, 0},
    {"heads of 256", wide_heads, 0},
};

/* ---- models and sessions ---- */

static uint32_t random_state = 5;

/* Weights of norms and biases are not all alike. */
static void fill(const ag_tensor *t, float low, float high) {
    float values[HEADS * HEAD_DIM];
    const size_t n = t->buffer ? ag_shape_numel(&t->shape) : 0;
    ag_error err;
    assert_true(n <= sizeof values / sizeof values[0]);
    for (size_t i = 0; i < n; i++) {
        random_state = random_state * 1664525 + 1013904223;
        values[i] = low + (high - low) * (float)(random_state >> 8) * 0x1p-24f;
    }
    if (n && ag_buffer_upload(t->buffer, t->offset, values, n * sizeof *values, &err) != AG_OK)
        fail_msg("%s", err.msg);
}

/* up: the type of one layer's `up`. */
static ag_model *new_model(void (*give)(ag_model_spec *s), ag_dtype weights, ag_dtype up) {
    static ag_model_spec s;
    s = ag_spec_plain(HEADS, KV_HEADS, HEAD_DIM);
    s.vocab_size = VOCAB;
    s.hidden_size = DIM;
    s.intermediate_size = FFN;
    s.n_layers = LAYERS;
    s.max_positions = 4096;
    s.n_kinds = 2;
    s.kinds[1] = s.kinds[0];
    s.kind_of[1] = 1;
    if (give) give(&s);
    ag_model_params params = ag_model_defaults();
    const ag_tensor_type types[] = {{"blk.0.ffn_up", up}};
    params.weights = weights;
    params.tensor_types = types;
    params.n_tensor_types = 1;
    ag_model *m;
    ag_error err;
    if (ag_model_random(be, &s, &params, &m, &err) != AG_OK) fail_msg("%s", err.msg);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const ag_tensor *of = m->weights.layers[l].of;
        fill(&of[AG_LT_ATTENTION_NORM], 0.5f, 1.5f);
        fill(&of[AG_LT_FFN_NORM], 0.5f, 1.5f);
        fill(&of[AG_LT_Q_NORM], 0.5f, 2);
        fill(&of[AG_LT_K_NORM], 0.5f, 2);
        fill(&of[AG_LT_BQ], -1, 1);
        fill(&of[AG_LT_BK], -1, 1);
        fill(&of[AG_LT_BV], -1, 1);
        fill(&of[AG_LT_BO], -1, 1);
    }
    return m;
}

static ag_session *new_session(ag_model *m, const ag_session_params *p) {
    ag_session *s;
    ag_error err;
    if (ag_session_create(m, p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

/* True if the token went in one launch. */
static bool consume(ag_session *s, ag_cl_switch wanted) {
    ag_error err;
    const int32_t id = (int32_t)(ag_session_position(s) * 2654435761u % VOCAB);
    const uint32_t before = ag_cl_of(be)->counts.launched;
    ag_cl_of(be)->switches.token = wanted;
    if (ag_session_prefill(s, &id, 1, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    return ag_cl_of(be)->counts.launched != before;
}

static double distance(ag_session *a, ag_session *b) {
    const float *x = ag_session_logits(a), *y = ag_session_logits(b);
    double difference = 0, size = 0;
    for (int i = 0; i < VOCAB; i++) {
        difference += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)y[i] * y[i];
    }
    return sqrt(difference / size);
}

/* ---- tests ---- */

static void run(ag_model *m, uint32_t n_taken, uint32_t n) {
    ag_session *whole = new_session(m, NULL), *parts = new_session(m, NULL);
    double worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool taken = consume(whole, AG_CL_ON);
        assert_int_equal(taken, i < n_taken);
        assert_false(consume(parts, AG_CL_OFF));
        worst = fmax(worst, distance(whole, parts));
    }
    printf("largest distance of the logits: %.4f\n", worst);
    assert_true(worst < 0.03);
    ag_session_destroy(whole);
    ag_session_destroy(parts);
}

static void programs_are_taken_or_left(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        printf("%s: ", cases[i].name);
        ag_model *m = new_model(cases[i].give, AG_Q4_0, AG_Q4_0);
        run(m, cases[i].n, cases[i].n == TOKENS ? TOKENS : FEW + 1);
        ag_model_destroy(m);
    }
}

/* Products with F32 weights, and with float and quantised weights of one input. */
static void other_weights_are_left(void **state) {
    (void)state;
    static const ag_dtype types[][2] = {{AG_F32, AG_F32}, {AG_Q4_0, AG_BF16}, {AG_F16, AG_Q8_0}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        ag_model *m = new_model(NULL, types[i][0], types[i][1]);
        run(m, 0, 2);
        ag_model_destroy(m);
    }
}

/* An entry of one session is not used for another that has its addresses. */
static void session_at_a_reused_address_gets_a_new_entry(void **state) {
    (void)state;
    ag_model *m = new_model(all_of_them, AG_Q4_0, AG_Q4_0);
    static const ag_dtype types[] = {AG_F16, AG_Q8_0, AG_F16, AG_F32};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        ag_session_params p = ag_session_defaults();
        p.k_type = p.v_type = types[i];
        p.k_rotation = i % 2 ? AG_K_ROTATION_ON : AG_K_ROTATION_OFF;
        ag_session *whole = new_session(m, &p), *parts = new_session(m, &p);
        for (int t = 0; t < FEW; t++) {
            assert_true(consume(whole, AG_CL_ON));
            assert_false(consume(parts, AG_CL_OFF));
            assert_true(distance(whole, parts) < 0.03);
        }
        ag_session_destroy(whole);
        ag_session_destroy(parts);
    }
    ag_model_destroy(m);
}

static void more_sessions_than_entries_take_turns(void **state) {
    (void)state;
    enum { SESSIONS = AG_CL_STEP_ENTRIES + 1 };
    ag_model *m = new_model(NULL, AG_Q4_0, AG_Q4_0);
    ag_session *whole[SESSIONS], *parts = new_session(m, NULL);
    for (int i = 0; i < SESSIONS; i++) whole[i] = new_session(m, NULL);
    for (int t = 0; t < 3; t++) {
        assert_false(consume(parts, AG_CL_OFF));
        for (int i = 0; i < SESSIONS; i++) {
            assert_true(consume(whole[i], AG_CL_ON));
            assert_true(distance(whole[i], parts) < 0.03);
        }
    }
    for (int i = 0; i < SESSIONS; i++) ag_session_destroy(whole[i]);
    ag_session_destroy(parts);
    ag_model_destroy(m);
}

int main(void) {
    be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_are_taken_or_left),
        cmocka_unit_test(other_weights_are_left),
        cmocka_unit_test(session_at_a_reused_address_gets_a_new_entry),
        cmocka_unit_test(more_sessions_than_entries_take_turns),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(be);
    return failed;
}
