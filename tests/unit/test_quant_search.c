/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for the scales of blocks of weights. */
#include "quant/blocks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ag_dtype types[] = {AG_Q4_0, AG_Q4_1, AG_Q5_0, AG_Q5_1, AG_Q4_K, AG_Q5_K, AG_Q6_K};
enum { N_TYPES = sizeof types / sizeof types[0], ROW = 8 * AG_QK_K, MAX_BYTES = 4 * ROW };

static uint64_t random_state = 0x9e3779b97f4a7c15;

static double uniform(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

static float gaussian(void) {
    return (float)(sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform()));
}

/* ---- rows ---- */

typedef float value_fn(size_t i);
static float plain(size_t i) {
    (void)i;
    return gaussian() * 0.03f;
}
static float shifted(size_t i) { return plain(i) + 0.1f; }
static float negative(size_t i) { return -fabsf(plain(i)) - 0.01f; }
static float with_outliers(size_t i) { return plain(i) * (i % 37 == 0 ? 12 : 1); }
static float of_many_sizes(size_t i) { return plain(i) * powf(2, (float)(i / 64 % 24) - 16); }
static float zeros(size_t i) { return i % 512 < 256 ? 0 : plain(i); }
static float constant(size_t i) {
    (void)i;
    return 0.7f;
}
static float tiny(size_t i) { return plain(i) * 1e-7f; }
static float vanishing(size_t i) { return plain(i) * 1e-38f; }
static float large(size_t i) { return gaussian() * 8000 + (float)(i % 2); }

static value_fn *const rows[] = {plain, shifted,  negative, with_outliers, of_many_sizes,
                                 zeros, constant, tiny,     vanishing,     large};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void fill(float *x, value_fn *value) {
    for (size_t i = 0; i < ROW; i++) x[i] = value(i);
}

static double error_of(ag_dtype type, const void *blocks, const float *x, const float *w,
                       size_t n) {
    static float back[ROW];
    double sum = 0;
    ag_dequantize_row(type, back, blocks, n);
    for (size_t i = 0; i < n; i++) {
        const double e = (double)x[i] - (double)back[i];
        assert_true(isfinite(back[i]));
        sum += (w ? (double)w[i] : 1) * e * e;
    }
    return sum;
}

/* ---- tests ---- */

static void blocks_are_never_worse_than_the_reference_rule(void **state) {
    (void)state;
    static float x[ROW], w[ROW];
    unsigned char found[256], rule[256];
    for (size_t r = 0; r < N_ROWS; r++) {
        fill(x, rows[r]);
        for (size_t i = 0; i < ROW; i++) w[i] = r % 2 ? (float)exp(4 * uniform()) : 1;
        for (size_t t = 0; t < N_TYPES; t++) {
            const size_t n = ag_dtype_block(types[t]);
            for (size_t b = 0; b < ROW; b += n) {
                assert_int_equal(ag_search_blocks(types[t], found, x + b, w + b, 1), 1);
                assert_int_equal(
                    ag_quantize_row(types[t], rule, x + b, n, AG_ROUND_REFERENCE, NULL), AG_OK);
                const double have = error_of(types[t], found, x + b, w + b, n);
                const double limit = error_of(types[t], rule, x + b, w + b, n);
                /* Errors are compared in floats. */
                if (have <= limit * 1.00001 + 1e-45) continue;
                fail_msg("%s, row %zu, block %zu: %g, the rule's %g", ag_dtype_name(types[t]), r,
                         b / n, have, limit);
            }
        }
    }
}

/* Compares with the error of the reference rule. */
static void search_lowers_the_error(void **state) {
    (void)state;
    static const double most[N_TYPES] = {0.9, 0.95, 0.98, 0.97, 0.85, 0.9, 0.95};
    static float x[ROW];
    unsigned char found[MAX_BYTES], rule[MAX_BYTES];
    fill(x, plain);
    for (size_t t = 0; t < N_TYPES; t++) {
        const ag_dtype type = types[t];
        ag_quantize_weights(&ag_reference_rounding, type, found, x, ROW, NULL, NULL);
        ag_quantize_row(type, rule, x, ROW, AG_ROUND_REFERENCE, NULL);
        const double share =
            error_of(type, found, x, NULL, ROW) / error_of(type, rule, x, NULL, ROW);
        if (share > most[t]) fail_msg("%s: %.3f of the rule's error", ag_dtype_name(type), share);
    }
}

static void importance_lowers_the_weighted_error(void **state) {
    (void)state;
    static float x[ROW], importance[ROW];
    unsigned char with[MAX_BYTES], without[MAX_BYTES];
    for (size_t r = 0; r < 5; r++) {
        fill(x, rows[r]);
        for (size_t i = 0; i < ROW; i++) importance[i] = (float)exp(3 * (double)gaussian());
        for (size_t t = 0; t < N_TYPES; t++) {
            const ag_dtype type = types[t];
            assert_int_equal(
                ag_quantize_weights(&ag_reference_rounding, type, with, x, ROW, importance, NULL),
                AG_OK);
            assert_int_equal(
                ag_quantize_weights(&ag_reference_rounding, type, without, x, ROW, NULL, NULL),
                AG_OK);
            const double a = error_of(type, with, x, importance, ROW);
            const double b = error_of(type, without, x, importance, ROW);
            if (!(a < 0.95 * b)) {
                fail_msg("%s, row %zu: %g with importance, %g without", ag_dtype_name(type), r, a,
                         b);
            }
        }
    }
}

/* Columns without any recorded input. */
static void zero_importance_equals_no_importance(void **state) {
    (void)state;
    static float x[ROW], importance[ROW];
    unsigned char with[MAX_BYTES], without[MAX_BYTES];
    fill(x, plain);
    for (size_t t = 0; t < N_TYPES; t++) {
        const ag_dtype type = types[t];
        ag_quantize_weights(&ag_reference_rounding, type, with, x, ROW, importance, NULL);
        ag_quantize_weights(&ag_reference_rounding, type, without, x, ROW, NULL, NULL);
        assert_memory_equal(with, without, ag_dtype_row_bytes(type, ROW));
    }
}

static void rejects_values_beyond_the_largest_scale(void **state) {
    (void)state;
    static float x[ROW];
    unsigned char out[MAX_BYTES];
    for (size_t t = 0; t < N_TYPES; t++) {
        size_t bad = 0;
        fill(x, plain);
        x[700] = 3e38f;
        assert_int_equal(
            ag_quantize_weights(&ag_reference_rounding, types[t], out, x, ROW, NULL, &bad),
            AG_FORMAT);
        assert_int_equal(bad, 700);
        x[700] = NAN;
        bad = 0;
        assert_int_equal(
            ag_quantize_weights(&ag_reference_rounding, types[t], out, x, ROW, NULL, &bad),
            AG_FORMAT);
        assert_int_equal(bad, 700);
    }
}

static void types_without_a_search_use_their_rule(void **state) {
    (void)state;
    static const ag_dtype others[] = {AG_F32, AG_F16, AG_BF16, AG_Q8_0};
    static float x[ROW];
    unsigned char found[MAX_BYTES], rule[MAX_BYTES];
    fill(x, plain);
    for (size_t t = 0; t < sizeof others / sizeof others[0]; t++) {
        ag_quantize_weights(&ag_reference_rounding, others[t], found, x, ROW, x, NULL);
        ag_quantize_row(others[t], rule, x, ROW, AG_ROUND_WEIGHT, NULL);
        assert_memory_equal(found, rule, ag_dtype_row_bytes(others[t], ROW));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_never_worse_than_the_reference_rule),
        cmocka_unit_test(search_lowers_the_error),
        cmocka_unit_test(importance_lowers_the_weighted_error),
        cmocka_unit_test(zero_importance_equals_no_importance),
        cmocka_unit_test(rejects_values_beyond_the_largest_scale),
        cmocka_unit_test(types_without_a_search_use_their_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
