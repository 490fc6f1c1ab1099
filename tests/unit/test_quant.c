/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/quant.h"
#include "support/dtypes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROW = 8192 };

/* ---- material ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15;

static double uniform(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

static float gaussian(double sigma) {
    return (float)(sigma * sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform()));
}

static double squared_error(const float *x, const float *y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

/* Returns the squared error of a row after rounding; INFINITY on failure. */
static double error_of(ag_dtype dtype, const float *x, size_t n, ag_rounding rounding) {
    static unsigned char packed[MAX_ROW * 4];
    static float back[MAX_ROW];
    if (ag_quantize_row(dtype, packed, x, n, rounding, NULL) != AG_OK) return INFINITY;
    ag_dequantize_row(dtype, back, packed, n);
    return squared_error(x, back, n);
}

/* The reference rule in plain C, written independently. */
static double error_of_written_rule(const float *x, size_t n) {
    double sum = 0;
    for (size_t b = 0; b < n; b += 32) {
        float largest = 0;
        for (size_t i = b; i < b + 32; i++) largest = fmaxf(largest, fabsf(x[i]));
        float d = largest / 7, id = 1 / d, stored = ag_f16_to_f32(ag_f32_to_f16(d));
        for (size_t i = b; i < b + 32; i++) {
            float q = stored > 0 ? fminf(fmaxf(roundf(x[i] * id), -8), 7) : 0;
            sum += ((double)x[i] - q * stored) * ((double)x[i] - q * stored);
        }
    }
    return sum;
}

/* Compares block by block, for types whose errors have equal weights. The search sums in floats,
 * so equal errors may differ in the last bits. */
static void expect_weights_no_worse(const char *what, const float *x, size_t n) {
    static const ag_dtype types[] = {AG_Q4_0, AG_Q8_0};
    for (size_t b = 0; b < n; b += 32) {
        for (size_t t = 0; t < 2; t++) {
            double best = error_of(types[t], x + b, 32, AG_ROUND_WEIGHT);
            double rule = error_of(types[t], x + b, 32, AG_ROUND_REFERENCE);
            if (best > rule * (1 + 1e-5)) {
                fail_msg("%s, block %zu, %s: error %.9g, the rule's is %.9g", what, b / 32,
                         ag_dtype_name(types[t]), best, rule);
            }
        }
        double best = error_of(AG_Q4_0, x + b, 32, AG_ROUND_WEIGHT);
        double rule = error_of_written_rule(x + b, 32);
        if (best > rule * (1 + 1e-5)) {
            fail_msg("%s, block %zu: error %.9g, the written rule's is %.9g", what, b / 32, best,
                     rule);
        }
    }
}

/* ---- formats ---- */

static void nibbles_of_a_byte_are_16_elements_apart(void **state) {
    (void)state;
    ag_block_q4_0 q4 = {.d = ag_f32_to_f16(0.5f)};
    for (int i = 0; i < 16; i++) q4.qs[i] = (uint8_t)(i | (15 - i) << 4);
    float y[32];
    ag_dequantize_row(AG_Q4_0, y, &q4, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(y[i] == (float)(i - 8) * 0.5f);
        assert_true(y[i + 16] == (float)(7 - i) * 0.5f);
    }
    ag_block_q4_1 q41 = {.d = ag_f32_to_f16(0.25f), .m = ag_f32_to_f16(-3)};
    memcpy(q41.qs, q4.qs, sizeof q41.qs);
    ag_dequantize_row(AG_Q4_1, y, &q41, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(y[i] == (float)i * 0.25f - 3);
        assert_true(y[i + 16] == (float)(15 - i) * 0.25f - 3);
    }
    ag_block_q8_0 q8 = {.d = ag_f32_to_f16(-2)};
    for (int i = 0; i < 32; i++) q8.qs[i] = (int8_t)(i * 8 - 128);
    ag_dequantize_row(AG_Q8_0, y, &q8, 32);
    for (int i = 0; i < 32; i++) assert_true(y[i] == (float)(i * 8 - 128) * -2);
}

static void rounding_rules_give_expected_blocks(void **state) {
    (void)state;
    float x[32];
    for (int i = 0; i < 32; i++) x[i] = (float)(i % 15 - 7) * 0.5f;
    ag_block_q4_0 q4;
    assert_int_equal(ag_quantize_row(AG_Q4_0, &q4, x, 32, AG_ROUND_REFERENCE, NULL), AG_OK);
    assert_int_equal(q4.d, ag_f32_to_f16(0.5f));
    for (int i = 0; i < 16; i++) {
        assert_int_equal(q4.qs[i] & 15, i % 15 + 1);
        assert_int_equal(q4.qs[i] >> 4, (i + 16) % 15 + 1);
    }
    x[9] = 4;
    assert_int_equal(ag_quantize_row(AG_Q4_0, &q4, x, 32, AG_ROUND_KV, NULL), AG_OK);
    assert_int_equal(q4.d, ag_f32_to_f16(-0.5f));
    assert_int_equal(q4.qs[9] & 15, 0);
    assert_int_equal(q4.qs[0] & 15, 15);
    x[9] = 3, x[3] = -3.5f, x[4] = 3.5f; /* equal extremes: the negative one wins */
    assert_int_equal(ag_quantize_row(AG_Q4_0, &q4, x, 32, AG_ROUND_KV, NULL), AG_OK);
    assert_int_equal(q4.d, ag_f32_to_f16(3.5f / 8));
    ag_block_q4_1 q41;
    for (int i = 0; i < 32; i++) x[i] = 10 + (float)(i % 16) * 0.25f;
    assert_int_equal(ag_quantize_row(AG_Q4_1, &q41, x, 32, AG_ROUND_REFERENCE, NULL), AG_OK);
    assert_int_equal(q41.d, ag_f32_to_f16(0.25f));
    assert_int_equal(q41.m, ag_f32_to_f16(10));
    for (int i = 0; i < 16; i++) assert_int_equal(q41.qs[i], i | i << 4);
    ag_block_q8_0 q8;
    for (int i = 0; i < 32; i++) x[i] = (float)(i * 8 - 127) * 0.125f;
    assert_int_equal(ag_quantize_row(AG_Q8_0, &q8, x, 32, AG_ROUND_REFERENCE, NULL), AG_OK);
    assert_int_equal(q8.d, ag_f32_to_f16(0.125f));
    for (int i = 0; i < 32; i++) assert_int_equal(q8.qs[i], i * 8 - 127);
}

/* d = max / 127 bounds each error by half a step, whatever the rounding of d. */
static void q8_0_error_is_below_half_a_step(void **state) {
    (void)state;
    float x[32], y[32];
    ag_block_q8_0 q;
    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < 32; i++) x[i] = gaussian(pow(2, uniform() * 20 - 10));
        assert_int_equal(ag_quantize_row(AG_Q8_0, &q, x, 32, AG_ROUND_REFERENCE, NULL), AG_OK);
        ag_dequantize_row(AG_Q8_0, y, &q, 32);
        float d = ag_f16_to_f32(q.d), largest = 0;
        for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[i]));
        for (int i = 0; i < 32; i++) {
            assert_true(fabsf(x[i] - y[i]) <= d * 0.5001f + largest * 0.0005f);
        }
    }
}

static void converts_unaligned_rows(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    enum { N = 256 };
    float x[N], y[N], z[N];
    unsigned char even[4 * N + 1], odd[4 * N + 1];
    for (int i = 0; i < N; i++) x[i] = gaussian(1);
    for (size_t t = 0; t < types.n; t++) {
        assert_int_equal(ag_quantize_row(types.v[t], even, x, N, AG_ROUND_WEIGHT, NULL), AG_OK);
        assert_int_equal(ag_quantize_row(types.v[t], odd + 1, x, N, AG_ROUND_WEIGHT, NULL), AG_OK);
        assert_memory_equal(even, odd + 1, ag_dtype_row_bytes(types.v[t], N));
        ag_dequantize_row(types.v[t], y, even, N);
        ag_dequantize_row(types.v[t], z, odd + 1, N);
        assert_memory_equal(y, z, sizeof y);
    }
}

/* ---- quality ---- */

static void random_weights_are_never_worse_than_the_rules(void **state) {
    (void)state;
    static float x[MAX_ROW];
    for (size_t i = 0; i < MAX_ROW; i++) x[i] = gaussian(0.02);
    expect_weights_no_worse("gaussian", x, MAX_ROW);
    double best = error_of(AG_Q4_0, x, MAX_ROW, AG_ROUND_WEIGHT);
    assert_true(best < 0.72 * error_of(AG_Q4_0, x, MAX_ROW, AG_ROUND_REFERENCE));
    assert_true(best < 0.91 * error_of(AG_Q4_0, x, MAX_ROW, AG_ROUND_KV));
    assert_true(error_of(AG_Q4_1, x, MAX_ROW, AG_ROUND_WEIGHT) <
                0.88 * error_of(AG_Q4_1, x, MAX_ROW, AG_ROUND_REFERENCE));
    for (size_t i = 0; i < MAX_ROW; i++) x[i] = (float)(uniform() * 2 - 1);
    expect_weights_no_worse("uniform", x, MAX_ROW);
    for (size_t i = 0; i < MAX_ROW; i++) x[i] = (float)uniform() + 3;
    expect_weights_no_worse("one sign", x, MAX_ROW);
    for (size_t i = 0; i < MAX_ROW; i++) x[i] = gaussian(pow(10, uniform() * 8 - 6));
    expect_weights_no_worse("heavy tails", x, MAX_ROW);
    for (size_t i = 0; i < MAX_ROW; i++) x[i] = gaussian(pow(2, -18 - (double)(i / 32) / 4));
    expect_weights_no_worse("ever smaller", x, MAX_ROW);
}

static void real_weights_are_never_worse_than_the_rules(void **state) {
    (void)state;
    FILE *f = fopen(AG_SOURCE_DIR "/models/demo/model.safetensors", "rb");
    assert_non_null(f);
    uint64_t header;
    assert_int_equal(fread(&header, sizeof header, 1, f), 1);
    static uint16_t bytes[MAX_ROW];
    static float x[MAX_ROW];
    double best = 0, rule = 0;
    for (long at = 0; at < 16; at++) {
        assert_int_equal(fseek(f, (long)(8 + header) + at * (1L << 20), SEEK_SET), 0);
        assert_int_equal(fread(bytes, sizeof bytes, 1, f), 1);
        ag_dequantize_row(AG_BF16, x, bytes, MAX_ROW);
        expect_weights_no_worse("demo model", x, MAX_ROW);
        best += error_of(AG_Q4_0, x, MAX_ROW, AG_ROUND_WEIGHT);
        rule += error_of(AG_Q4_0, x, MAX_ROW, AG_ROUND_REFERENCE);
    }
    fclose(f);
    assert_true(best < 0.75 * rule);
}

static void outlier_affects_only_its_block(void **state) {
    (void)state;
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = gaussian(0.01);
    double alone = error_of(AG_Q4_0, x + 32, 32, AG_ROUND_WEIGHT);
    for (int at = 0; at < 32; at += 5) {
        x[at] = at % 2 ? -50.0f : 50.0f;
        expect_weights_no_worse("outlier", x, 64);
        assert_true(error_of(AG_Q4_0, x + 32, 32, AG_ROUND_WEIGHT) == alone);
        x[at] = 0.01f;
    }
}

/* ---- limits ---- */

static void quantises_zeros_and_denormals(void **state) {
    (void)state;
    static const ag_dtype types[] = {AG_Q4_0, AG_Q4_1, AG_Q8_0};
    static const float values[] = {0.0f,     -0.0f,    1e-45f,    -1e-40f,  0x1p-126f, 1e-10f,
                                   0x1p-27f, 0x1p-26f, -0x1p-25f, 0x1p-24f, 3e-7f};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        float x[32] = {0}, y[32];
        for (int i = 0; i < 32; i += 3) x[i] = i % 2 ? values[v] : -values[v] / 2;
        expect_weights_no_worse("denormals", x, 32);
        for (size_t t = 0; t < 3; t++) {
            for (int rounding = AG_ROUND_WEIGHT; rounding <= AG_ROUND_KV; rounding++) {
                unsigned char packed[34];
                assert_int_equal(ag_quantize_row(types[t], packed, x, 32, rounding, NULL), AG_OK);
                ag_dequantize_row(types[t], y, packed, 32);
                for (int i = 0; i < 32; i++) {
                    assert_true(fabsf(y[i]) <= fabsf(values[v]) * 1.01f + 0x1p-20f);
                }
            }
        }
    }
    float zeros[32] = {0};
    ag_block_q4_0 q;
    assert_int_equal(ag_quantize_row(AG_Q4_0, &q, zeros, 32, AG_ROUND_WEIGHT, NULL), AG_OK);
    assert_int_equal(q.d & 0x7fff, 0);
    for (int i = 0; i < 16; i++) assert_int_equal(q.qs[i], 0x88);
}

static void expect_refused(ag_dtype dtype, ag_rounding rounding, const float *x, size_t n,
                           size_t where) {
    unsigned char packed[256 * 4];
    size_t bad = 999;
    assert_int_equal(ag_quantize_row(dtype, packed, x, n, rounding, &bad), AG_FORMAT);
    assert_int_equal(bad, where);
    assert_int_equal(ag_quantize_row(dtype, packed, x, n, rounding, NULL), AG_FORMAT);
}

static void rejects_scales_beyond_a_half(void **state) {
    (void)state;
    float x[64] = {0};
    unsigned char packed[64 * 4];
    for (int sign = -1; sign <= 1; sign += 2) {
        x[40] = (float)sign * 65504 * 7;
        assert_int_equal(ag_quantize_row(AG_Q4_0, packed, x, 64, AG_ROUND_REFERENCE, NULL), AG_OK);
        expect_weights_no_worse("largest", x, 64);
        x[40] = (float)sign * 65600 * 7;
        expect_refused(AG_Q4_0, AG_ROUND_REFERENCE, x, 64, 40);
        assert_true(error_of(AG_Q4_0, x, 64, AG_ROUND_WEIGHT) < 1e8); /* because of the level -8 */
        x[40] = (float)sign * 65504 * 8;
        assert_int_equal(ag_quantize_row(AG_Q4_0, packed, x, 64, AG_ROUND_KV, NULL), AG_OK);
        x[40] = (float)sign * 65600 * 8;
        expect_refused(AG_Q4_0, AG_ROUND_KV, x, 64, 40);
        expect_refused(AG_Q4_0, AG_ROUND_WEIGHT, x, 64, 40);
        x[40] = (float)sign * 65504 * 127;
        assert_int_equal(ag_quantize_row(AG_Q8_0, packed, x, 64, AG_ROUND_WEIGHT, NULL), AG_OK);
        x[40] = (float)sign * 65600 * 127;
        expect_refused(AG_Q8_0, AG_ROUND_WEIGHT, x, 64, 40);
        x[40] = (float)sign * 65504 * 15;
        assert_int_equal(ag_quantize_row(AG_Q4_1, packed, x, 64, AG_ROUND_WEIGHT, NULL),
                         sign < 0 ? AG_FORMAT : AG_OK); /* the minimum is a half, too */
        x[40] = (float)sign * 3.4e38f;
        for (int rounding = AG_ROUND_WEIGHT; rounding <= AG_ROUND_KV; rounding++) {
            expect_refused(AG_Q4_0, rounding, x, 64, 40);
            expect_refused(AG_Q4_1, rounding, x, 64, 40);
            expect_refused(AG_Q8_0, rounding, x, 64, 40);
            expect_refused(AG_F16, rounding, x, 64, 40);
        }
        x[40] = (float)sign * 65519;
        assert_int_equal(ag_quantize_row(AG_F16, packed, x, 64, AG_ROUND_WEIGHT, NULL), AG_OK);
        x[40] = (float)sign * 65520;
        expect_refused(AG_F16, AG_ROUND_WEIGHT, x, 64, 40);
        x[40] = (float)sign * 3.402e38f;
        expect_refused(AG_BF16, AG_ROUND_WEIGHT, x, 64, 40);
        assert_int_equal(ag_quantize_row(AG_F32, packed, x, 64, AG_ROUND_WEIGHT, NULL), AG_OK);
    }
    for (int i = 0; i < 32; i++) x[i] = i % 2 ? 3.4e38f : -3.4e38f;
    expect_refused(AG_Q4_1, AG_ROUND_WEIGHT, x, 32, 0);
}

static void rejects_values_that_are_not_finite(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    static const float values[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t t = 0; t < types.n; t++) {
        for (size_t v = 0; v < 4; v++) {
            float x[256] = {0};
            x[255] = values[v];
            expect_refused(types.v[t], AG_ROUND_WEIGHT, x, 256, 255);
            expect_refused(types.v[t], AG_ROUND_KV, x, 256, 255);
            x[17] = values[3 - v];
            expect_refused(types.v[t], AG_ROUND_REFERENCE, x, 256, 17);
        }
    }
}

/* With the scale of the entire block. MXFP4 reaches as far as F32. */
static void every_type_rejects_scales_beyond_a_half(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    for (size_t t = 0; t < types.n; t++) {
        const ag_dtype type = types.v[t];
        float x[512] = {0}, y[512];
        unsigned char packed[512 * 4];
        if (!ag_dtype_is_quantized(type)) continue;
        x[300] = -3e38f;
        size_t bad = 999;
        if (type != AG_MXFP4) {
            assert_int_equal(ag_quantize_row(type, packed, x, 512, AG_ROUND_WEIGHT, &bad),
                             AG_FORMAT);
            assert_int_equal(bad, 300);
            x[300] = -30000;
        }
        x[1] = 1e-30f; /* alone in its block: below any half */
        assert_int_equal(ag_quantize_row(type, packed, x, 512, AG_ROUND_WEIGHT, &bad), AG_OK);
        ag_dequantize_row(type, y, packed, 512);
        assert_true(fabsf(y[300] - x[300]) < 0.4f * fabsf(x[300]));
        for (size_t i = 0; i < 256; i++) assert_true(fabsf(y[i]) < 1e-6f);
    }
}

static void same_type_is_copied(void **state) {
    (void)state;
    float x[64], values[64];
    unsigned char a[136], b[136];
    for (int i = 0; i < 64; i++) x[i] = gaussian(1);
    assert_int_equal(ag_quantize_row(AG_Q4_0, a, x, 64, AG_ROUND_REFERENCE, NULL), AG_OK);
    assert_int_equal(ag_convert_row(AG_Q4_0, b, AG_Q4_0, a, values, 64, AG_ROUND_WEIGHT, NULL),
                     AG_OK);
    assert_memory_equal(a, b, 36);
    assert_int_equal(ag_convert_row(AG_Q8_0, b, AG_Q4_0, a, values, 64, AG_ROUND_WEIGHT, NULL),
                     AG_OK);
    ag_dequantize_row(AG_Q8_0, x, b, 64);
    assert_true(squared_error(x, values, 64) < 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nibbles_of_a_byte_are_16_elements_apart),
        cmocka_unit_test(rounding_rules_give_expected_blocks),
        cmocka_unit_test(q8_0_error_is_below_half_a_step),
        cmocka_unit_test(converts_unaligned_rows),
        cmocka_unit_test(random_weights_are_never_worse_than_the_rules),
        cmocka_unit_test(real_weights_are_never_worse_than_the_rules),
        cmocka_unit_test(outlier_affects_only_its_block),
        cmocka_unit_test(quantises_zeros_and_denormals),
        cmocka_unit_test(rejects_scales_beyond_a_half),
        cmocka_unit_test(rejects_values_that_are_not_finite),
        cmocka_unit_test(every_type_rejects_scales_beyond_a_half),
        cmocka_unit_test(same_type_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
