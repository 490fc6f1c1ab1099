/* SPDX-License-Identifier: Apache-2.0 */
/* Values of blocks have the bits of the format's reference (tools/make_block_vectors.py). */
#include "quant/quant.h"
#include "support/dtypes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_BYTES = 200000 };

typedef struct record {
    char name[8];
    uint32_t n_blocks, block_bytes;
} record;

/* Returns the bytes of the record. */
static size_t check_record(const unsigned char *p, ag_dtype *type) {
    record r;
    memcpy(&r, p, sizeof r);
    char name[9] = {0};
    memcpy(name, r.name, sizeof r.name);
    assert_true(ag_dtype_parse(name, type));
    assert_int_equal(r.block_bytes, ag_dtype_block_bytes(*type));
    const size_t each = ag_dtype_block(*type), n = r.n_blocks * each;
    const unsigned char *blocks = p + sizeof r, *want = blocks + r.n_blocks * r.block_bytes;
    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    ag_dequantize_row(*type, got, blocks, n);
    for (size_t i = 0; i < n; i++) {
        if (!memcmp(&got[i], want + i * sizeof *got, sizeof *got)) continue;
        float value;
        memcpy(&value, want + i * sizeof value, sizeof value);
        fail_msg("%s, block %zu, value %zu: %a, not %a", name, i / each, i % each, (double)got[i],
                 (double)value);
    }
    free(got);
    return sizeof r + r.n_blocks * r.block_bytes + n * sizeof *got;
}

static void blocks_have_the_reference_values(void **state) {
    (void)state;
    static unsigned char bytes[MOST_BYTES];
    bool seen[AG_DTYPE_COUNT] = {false};
    FILE *f = fopen(AG_SOURCE_DIR "/tests/data/quant/blocks.bin", "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t at = 0; at < n;) {
        ag_dtype type;
        at += check_record(bytes + at, &type);
        assert_true(at <= n);
        seen[type] = true;
    }
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    for (size_t t = 0; t < types.n; t++) {
        assert_true(seen[types.v[t]] == ag_dtype_is_quantized(types.v[t]));
    }
}

static void rounding_stays_within_error_bounds(void **state) {
    (void)state;
    static const struct {
        ag_dtype type;
        double nmse; /* bound for uniform values: a fifth above the measured value */
    } most[] = {{AG_Q5_0, 1.2e-3}, {AG_Q5_1, 1.1e-3}, {AG_Q2_K, 0.09},
                {AG_Q3_K, 0.022},  {AG_Q4_K, 4.5e-3}, {AG_Q5_K, 1.1e-3},
                {AG_Q6_K, 2.6e-4}, {AG_IQ4_NL, 6e-3}, {AG_MXFP4, 0.025}};
    enum { N = 64 * AG_QK_K };
    static float x[N], y[N];
    static unsigned char packed[N * 2];
    uint32_t random = 11;
    for (size_t t = 0; t < sizeof most / sizeof most[0]; t++) {
        for (size_t i = 0; i < N; i++) {
            random = random * 1664525u + 1013904223u;
            x[i] = (float)(int32_t)random * 0x1p-31f;
        }
        assert_int_equal(ag_quantize_row(most[t].type, packed, x, N, AG_ROUND_REFERENCE, NULL),
                         AG_OK);
        ag_dequantize_row(most[t].type, y, packed, N);
        double error = 0, square = 0;
        for (size_t i = 0; i < N; i++) {
            error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
            square += (double)x[i] * x[i];
        }
        if (!(error / square < most[t].nmse)) {
            fail_msg("%s: %g", ag_dtype_name(most[t].type), error / square);
        }
    }
}

/* All bits set: halves that are NaN, and an exponent beyond float. */
static void rejects_blocks_that_are_not_finite(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    enum { N = 2 * AG_QK_K };
    static unsigned char from[N * 4], to[N * 4];
    float values[N];
    for (size_t t = 0; t < types.n; t++) {
        const ag_dtype type = types.v[t];
        if (!ag_dtype_is_quantized(type)) continue;
        const size_t block = ag_dtype_block(type);
        memset(from, 0, sizeof from);
        memset(from + ag_dtype_row_bytes(type, AG_QK_K), 0xff, ag_dtype_block_bytes(type));
        size_t bad = 0;
        assert_int_equal(ag_convert_row(type, to, type, from, values, N, AG_ROUND_WEIGHT, &bad),
                         AG_FORMAT);
        assert_in_range(bad, AG_QK_K, AG_QK_K + block - 1);
        assert_int_equal(
            ag_convert_row(type, to, type, from, values, AG_QK_K, AG_ROUND_WEIGHT, NULL), AG_OK);
        assert_memory_equal(to, from, ag_dtype_row_bytes(type, AG_QK_K));
    }
}

/* By the OCP specification, whatever the codes, also those of 0. */
static void mxfp4_scale_255_is_nan(void **state) {
    (void)state;
    unsigned char block[17] = {255, 0x08, 0x10};
    float values[AG_QK];
    ag_dequantize_row(AG_MXFP4, values, block, AG_QK);
    for (size_t i = 0; i < AG_QK; i++) assert_true(values[i] != values[i]);
    block[0] = 254;
    ag_dequantize_row(AG_MXFP4, values, block, AG_QK);
    assert_true(values[AG_QK / 2 + 1] == 0x1p126f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_reference_values),
        cmocka_unit_test(rounding_stays_within_error_bounds),
        cmocka_unit_test(mxfp4_scale_255_is_nan),
        cmocka_unit_test(rejects_blocks_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
