/* SPDX-License-Identifier: Apache-2.0 */
/* Products of experts at the size of published models, against sums in double, and their bits. */
#include "core/backend_ops.h"
#include "core/experts.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EXPERTS = 128, USED = 8, COLS = 2048, ROWS = 768, MAX_ROWS = 500 };
/* Experts with different numbers of rows. The other picked rows are of experts from OTHERS on. */
static const uint32_t n_picked[] = {0, 1, 15, 16, 17, 500};
enum { COUNTED = sizeof n_picked / sizeof n_picked[0], OTHERS = 8 };

static uint64_t random_state = 1;

static uint32_t draw(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static float draw_float(void) { return (float)draw() * 0x1p-30f - 1; }

static void must(const ag_backend *be, ag_status st) {
    if (st != AG_OK) fail_msg("%s", ag_backend_error(be)->msg);
}

/* ---- fixtures ---- */

typedef struct tensor {
    ag_tensor t;
    ag_buffer *owner;
} tensor;

static tensor make(ag_backend *be, ag_dtype type, size_t rows, size_t cols) {
    tensor t;
    must(be, ag_tensor_alloc(&t.t, &t.owner, ag_backend_memory(be), AG_USAGE_SCRATCH, type,
                             ag_shape_2d(rows, cols), &be->err));
    return t;
}

static void fill(tensor *t) {
    float *values = ag_tensor_f32(&t->t);
    const size_t n = ag_shape_numel(&t->t.shape);
    for (size_t i = 0; i < n; i++) values[i] = draw_float();
}

/* Experts of one type in one buffer. Experts from COUNTED on have the same rows. */
typedef struct expert_table {
    ag_tensor w[EXPERTS];
    ag_buffer *owner;
    unsigned char *rows[COUNTED + 1]; /* owned; the rows before they were prepared */
} expert_table;

static expert_table make_experts(ag_backend *be, ag_dtype type, size_t n_rows, size_t cols) {
    expert_table e = {.owner = NULL};
    const size_t row_bytes = ag_dtype_row_bytes(type, cols);
    const size_t bytes = (ag_prepared_bytes(be, type, n_rows, cols) + 63) / 64 * 64;
    float *values = malloc(cols * sizeof *values);
    assert_non_null(values);
    must(be, ag_memory_alloc(ag_backend_memory(be), (COUNTED + 1) * bytes, AG_USAGE_WEIGHTS,
                             &e.owner, &be->err));
    for (size_t i = 0; i <= COUNTED; i++) {
        tensor src = make(be, type, n_rows, cols);
        e.rows[i] = malloc(n_rows * row_bytes);
        assert_non_null(e.rows[i]);
        for (size_t r = 0; r < n_rows; r++) {
            for (size_t c = 0; c < cols; c++) values[c] = draw_float();
            ag_quantize_row(type, e.rows[i] + r * row_bytes, values, cols, AG_ROUND_REFERENCE,
                            NULL);
        }
        memcpy(ag_tensor_data(&src.t), e.rows[i], n_rows * row_bytes);
        must(be, ag_prepare_weight_at(be, &e.w[i], e.owner, i * bytes, &src.t, type, NULL, NULL));
        ag_buffer_release(&src.owner);
    }
    for (size_t i = COUNTED + 1; i < EXPERTS; i++) e.w[i] = e.w[COUNTED];
    free(values);
    return e;
}

static void free_experts(expert_table *e) {
    ag_buffer_release(&e->owner);
    for (size_t i = 0; i <= COUNTED; i++) free(e->rows[i]);
}

/* Writes routes as ag_route() does: scores of chosen experts are 1. */
static void route(ag_backend *be, tensor *routes, const bool *chosen, size_t n) {
    const ag_route_params p = {
        .n_experts = EXPERTS, .n_used = USED, .scoring = AG_SCORING_CHOSEN, .factor = 1};
    tensor logits = make(be, AG_F32, n, EXPERTS);
    for (size_t i = 0; i < n * EXPERTS; i++) ag_tensor_f32(&logits.t)[i] = chosen[i] ? 1 : -1;
    must(be, ag_route(be, &routes->t, &logits.t, NULL, NULL, &p));
    ag_buffer_release(&logits.owner);
}

/* Chooses USED experts for row r of n: the counted ones by their numbers of rows. */
static void choose(bool *chosen, size_t r, size_t n) {
    size_t used = 0;
    for (size_t e = 0; e < COUNTED; e++) used += chosen[e] = n - 1 - r < n_picked[e];
    while (used < USED) {
        const size_t e = OTHERS + draw() % (EXPERTS - OTHERS);
        used += !chosen[e];
        chosen[e] = true;
    }
}

static void multiply(ag_backend *be, tensor *y, const tensor *x, const expert_table *e,
                     const tensor *routes) {
    ag_tensor *out = &y->t;
    const ag_tensor *table = e->w;
    const ag_expert_call call = {&out, &x->t, &table, 1, &routes->t, EXPERTS, USED, false};
    must(be, ag_matmul_experts(be, &call));
}

/* ---- against sums in double ---- */

static double nmse_of(const tensor *y, const tensor *x, const expert_table *e, ag_dtype type,
                      const tensor *routes, size_t expert) {
    const float *r = ag_tensor_f32(&routes->t), *in = ag_tensor_f32(&x->t);
    const size_t row_bytes = ag_dtype_row_bytes(type, COLS);
    double errors = 0, squares = 0;
    float *w = malloc(COLS * sizeof *w);
    assert_non_null(w);
    size_t n = 0;
    for (size_t j = 0; j < ROWS; j += 7) {
        ag_dequantize_row(type, w, e->rows[expert] + j * row_bytes, COLS);
        n = 0;
        for (size_t i = 0; i < MAX_ROWS * USED; i++) {
            const float *row = r + i / USED * ag_route_cols(USED);
            if (row[i % USED] != (float)expert) continue;
            const float *from = in + i / USED * COLS;
            double sum = 0;
            for (size_t c = 0; c < COLS; c++) sum += (double)from[c] * (double)w[c];
            const size_t at = (size_t)row[2 * USED + i % USED] * ROWS + j;
            const double error = (double)ag_tensor_f32(&y->t)[at] - sum;
            errors += error * error;
            squares += sum * sum;
            n++;
        }
    }
    free(w);
    assert_int_equal(n, n_picked[expert]);
    return n ? errors / squares : 0;
}

static void equals_sums_in_double_at_full_size(void **state) {
    static const ag_dtype types[] = {AG_Q4_K, AG_Q5_K, AG_Q6_K, AG_Q8_0};
    static bool chosen[MAX_ROWS * EXPERTS];
    ag_backend *be = *state;
    tensor x = make(be, AG_F32, MAX_ROWS, COLS), y = make(be, AG_F32, MAX_ROWS * USED, ROWS);
    tensor routes = make(be, AG_F32, MAX_ROWS, ag_route_cols(USED));
    fill(&x);
    memset(chosen, 0, sizeof chosen);
    for (size_t r = 0; r < MAX_ROWS; r++) choose(chosen + r * EXPERTS, r, MAX_ROWS);
    route(be, &routes, chosen, MAX_ROWS);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        expert_table e = make_experts(be, types[t], ROWS, COLS);
        multiply(be, &y, &x, &e, &routes);
        for (size_t i = 0; i < COUNTED; i++) {
            const double nmse = nmse_of(&y, &x, &e, types[t], &routes, i);
            if (!(nmse < 2e-4)) /* activations are rounded to 8 bits */
                fail_msg("%s, %u rows: nmse %g", ag_dtype_name(types[t]), n_picked[i], nmse);
        }
        free_experts(&e);
    }
    ag_buffer_release(&routes.owner);
    ag_buffer_release(&y.owner);
    ag_buffer_release(&x.owner);
}

/* ---- bits ---- */

enum { SMALL_ROWS = 40, SMALL_COLS = 256 };

/* Returns a row's results in order of experts: [USED][SMALL_ROWS], owned by the caller. The other
 * rows of the pass choose by `seed`. */
static float *results_of(ag_backend *be, const expert_table *e, const float *row,
                         const bool *choice, size_t n, size_t at, uint64_t seed) {
    tensor x = make(be, AG_F32, n, SMALL_COLS), y = make(be, AG_F32, n * USED, SMALL_ROWS);
    tensor routes = make(be, AG_F32, n, ag_route_cols(USED));
    bool *chosen = calloc(n, EXPERTS);
    float *out = malloc(USED * SMALL_ROWS * sizeof *out);
    assert_true(chosen && out);
    random_state = seed;
    fill(&x);
    for (size_t r = 0; r < n; r++) choose(chosen + r * EXPERTS, draw() % MAX_ROWS, MAX_ROWS);
    memcpy(chosen + at * EXPERTS, choice, EXPERTS);
    memcpy(ag_tensor_f32(&x.t) + at * SMALL_COLS, row, SMALL_COLS * sizeof *row);
    route(be, &routes, chosen, n);
    multiply(be, &y, &x, e, &routes);
    const float *places = ag_tensor_f32(&routes.t) + at * ag_route_cols(USED) + 2 * USED;
    for (size_t k = 0; k < USED; k++)
        memcpy(out + k * SMALL_ROWS, ag_tensor_f32(&y.t) + (size_t)places[k] * SMALL_ROWS,
               SMALL_ROWS * sizeof *out);
    free(chosen);
    ag_buffer_release(&routes.owner);
    ag_buffer_release(&y.owner);
    ag_buffer_release(&x.owner);
    return out;
}

static void expect_same(float *have, const float *want, const char *what, size_t n) {
    if (memcmp(have, want, USED * SMALL_ROWS * sizeof *have) != 0)
        fail_msg("%s of %zu rows: other bits", what, n);
    free(have);
}

/* In passes of up to 15 rows a row has the bits that it has alone; in longer ones they depend on
 * neither the choices of other rows nor the number of threads. */
static void bits_of_a_row_do_not_depend_on_others(void **state) {
    static const ag_dtype types[] = {AG_Q4_K, AG_Q8_0, AG_F32};
    bool choice[EXPERTS] = {0};
    float row[SMALL_COLS];
    ag_backend *be = *state, *many;
    const ag_backend_params params = {.n_threads = 5};
    assert_int_equal(ag_backend_create(&params, &many, NULL), AG_OK);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        random_state = 3;
        expert_table e = make_experts(be, types[t], SMALL_ROWS, SMALL_COLS);
        for (size_t i = 0; i < SMALL_COLS; i++) row[i] = draw_float();
        memset(choice, 0, sizeof choice);
        choose(choice, MAX_ROWS - 1, MAX_ROWS);
        float *alone = results_of(be, &e, row, choice, 1, 0, 1);
        for (size_t n = 2; n <= 15; n += 4)
            expect_same(results_of(be, &e, row, choice, n, n / 2, n), alone, "pass", n);
        for (size_t n = 16; n < 90; n += 37) {
            float *one = results_of(be, &e, row, choice, n, 2, 7);
            expect_same(results_of(be, &e, row, choice, n, n - 1, 8), one, "pass", n);
            expect_same(results_of(many, &e, row, choice, n, 5, 9), one, "pass of 5 threads", n);
            free(one);
        }
        free(alone);
        free_experts(&e);
    }
    ag_backend_destroy(many);
}

/* ---- the choice ---- */

static void equal_scores_go_to_the_lower_number(void **state) {
    ag_backend *be = *state;
    const ag_route_params p = {
        .n_experts = 6, .n_used = 3, .scoring = AG_SCORING_SOFTMAX, .normalise = true, .factor = 1};
    tensor logits = make(be, AG_F32, 1, 6), routes = make(be, AG_F32, 1, ag_route_cols(3));
    static const float scores[] = {1, 2, 1, 1, 2, 1};
    memcpy(ag_tensor_f32(&logits.t), scores, sizeof scores);
    must(be, ag_route(be, &routes.t, &logits.t, NULL, NULL, &p));
    const float *r = ag_tensor_f32(&routes.t);
    assert_true(r[0] == 0 && r[1] == 1 && r[2] == 4);
    assert_true(r[4] == r[5] && r[3] < r[4]);
    assert_true(fabsf(r[3] + r[4] + r[5] - 1) < 1e-6f);
    assert_true(r[6] == 0 && r[7] == 1 && r[8] == 2);
    ag_buffer_release(&routes.owner);
    ag_buffer_release(&logits.owner);
}

static void a_bias_chooses_but_does_not_weigh(void **state) {
    ag_backend *be = *state;
    const ag_route_params p = {
        .n_experts = 3, .n_used = 1, .scoring = AG_SCORING_SIGMOID, .factor = 2};
    tensor logits = make(be, AG_F32, 1, 3), bias = make(be, AG_F32, 1, 3);
    tensor routes = make(be, AG_F32, 1, ag_route_cols(1));
    static const float scores[] = {3, 0, 1}, biases[] = {0, 1, 0};
    memcpy(ag_tensor_f32(&logits.t), scores, sizeof scores);
    memcpy(ag_tensor_f32(&bias.t), biases, sizeof biases);
    must(be, ag_route(be, &routes.t, &logits.t, &bias.t, NULL, &p));
    assert_true(ag_tensor_f32(&routes.t)[0] == 1);
    assert_true(ag_tensor_f32(&routes.t)[1] == 1); /* 2 * sigmoid(0) */
    ag_buffer_release(&routes.owner);
    ag_buffer_release(&bias.owner);
    ag_buffer_release(&logits.owner);
}

static void nan_is_chosen_last(void **state) {
    ag_backend *be = *state;
    const ag_route_params p = {
        .n_experts = 4, .n_used = 2, .scoring = AG_SCORING_CHOSEN, .factor = 1};
    tensor logits = make(be, AG_F32, 1, 4), routes = make(be, AG_F32, 1, ag_route_cols(2));
    const float scores[] = {NAN, -1, NAN, -2};
    memcpy(ag_tensor_f32(&logits.t), scores, sizeof scores);
    must(be, ag_route(be, &routes.t, &logits.t, NULL, NULL, &p));
    assert_true(ag_tensor_f32(&routes.t)[0] == 1 && ag_tensor_f32(&routes.t)[1] == 3);
    ag_buffer_release(&routes.owner);
    ag_buffer_release(&logits.owner);
}

/* A row so long that fewer panels fit into a batch than a token uses experts. */
static void experts_beyond_a_batch_share_a_row(void **state) {
    enum { LONG = 65536, MANY = 1000 };
    ag_backend *be = *state;
    const ag_route_params p = {
        .n_experts = MANY, .n_used = MANY, .scoring = AG_SCORING_SOFTMAX, .factor = 1};
    tensor w = make(be, AG_F32, 1, LONG), x = make(be, AG_F32, 1, LONG);
    tensor y = make(be, AG_F32, MANY, 1), logits = make(be, AG_F32, 1, MANY);
    tensor routes = make(be, AG_F32, 1, ag_route_cols(MANY));
    ag_tensor prepared, experts[MANY], *out = &y.t;
    ag_buffer *owner = NULL;
    const ag_tensor *table = experts;
    const ag_expert_call call = {&out, &x.t, &table, 1, &routes.t, MANY, MANY, false};
    random_state = 9;
    fill(&w);
    fill(&x);
    fill(&logits);
    must(be, ag_memory_alloc(ag_backend_memory(be), ag_prepared_bytes(be, AG_F32, 1, LONG),
                             AG_USAGE_WEIGHTS, &owner, &be->err));
    must(be, ag_prepare_weight_at(be, &prepared, owner, 0, &w.t, AG_F32, NULL, NULL));
    for (size_t i = 0; i < MANY; i++) experts[i] = prepared;
    must(be, ag_route(be, &routes.t, &logits.t, NULL, NULL, &p));
    must(be, ag_matmul_experts(be, &call));
    for (size_t i = 1; i < MANY; i++) assert_true(ag_tensor_f32(&y.t)[i] == ag_tensor_f32(&y.t)[0]);
    double sum = 0;
    for (size_t c = 0; c < LONG; c++)
        sum += (double)ag_tensor_f32(&x.t)[c] * (double)ag_tensor_f32(&w.t)[c];
    assert_true(fabs((double)ag_tensor_f32(&y.t)[0] - sum) < 0.05);
    ag_buffer_release(&owner);
    tensor *const all[] = {&w, &x, &y, &logits, &routes};
    for (size_t i = 0; i < 5; i++) ag_buffer_release(&all[i]->owner);
}

static void rejects_routes_that_are_no_result(void **state) {
    ag_backend *be = *state;
    random_state = 5;
    expert_table e = make_experts(be, AG_Q8_0, SMALL_ROWS, SMALL_COLS);
    tensor x = make(be, AG_F32, 1, SMALL_COLS), y = make(be, AG_F32, USED, SMALL_ROWS);
    tensor routes = make(be, AG_F32, 1, ag_route_cols(USED));
    ag_tensor *out = &y.t;
    const ag_tensor *table = e.w;
    const ag_expert_call call = {&out, &x.t, &table, 1, &routes.t, EXPERTS, USED, false};
    for (size_t i = 0; i < ag_route_cols(USED); i++) ag_tensor_f32(&routes.t)[i] = NAN;
    assert_int_equal(ag_matmul_experts(be, &call), AG_INVALID);
    for (size_t i = 0; i < ag_route_cols(USED); i++) ag_tensor_f32(&routes.t)[i] = EXPERTS;
    assert_int_equal(ag_matmul_experts(be, &call), AG_INVALID);
    ag_buffer_release(&routes.owner);
    ag_buffer_release(&y.owner);
    ag_buffer_release(&x.owner);
    free_experts(&e);
}

static int open_backend(void **state) {
    const ag_backend_params params = {.n_threads = 2};
    return ag_backend_create(&params, (ag_backend **)state, NULL) != AG_OK;
}

static int close_backend(void **state) {
    ag_backend_destroy(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_sums_in_double_at_full_size),
        cmocka_unit_test(bits_of_a_row_do_not_depend_on_others),
        cmocka_unit_test(equal_scores_go_to_the_lower_number),
        cmocka_unit_test(a_bias_chooses_but_does_not_weigh),
        cmocka_unit_test(nan_is_chosen_last),
        cmocka_unit_test(experts_beyond_a_batch_share_a_row),
        cmocka_unit_test(rejects_routes_that_are_no_result),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
