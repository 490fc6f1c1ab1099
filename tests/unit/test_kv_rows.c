/* SPDX-License-Identifier: Apache-2.0 */
/* Rows stored and loaded by the kernels of every instruction set have the bits of the reference
 * conversions. */
#include "backend/cpu/features.h"
#include "backend/cpu/kernels.h"
#include "quant/quant.h"
#include "support/dtypes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 256, MOST_BYTES = 4 * MOST, GUARD = 64 };
/* Sets *out to the i-th table of this machine; returns false past the end. */
static bool table_at(size_t i, ag_cpu_kernels *table) {
    const uint32_t features = ag_cpu_features();
    for (unsigned isa = 0; isa < AG_CPU_ISA_COUNT; isa++) {
        if (!(features >> isa & 1) || i--) continue;
        ag_cpu_kernels_init(table, ag_cpu_isa_name((ag_cpu_isa)isa));
        return true;
    }
    return false;
}

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

/* Kinds of rows: ordinary, of any float magnitude, with ties for the largest, of multiples of
 * half a step, and mostly zeros. */
enum { KINDS = 6 };

static float value_of(int kind, uint32_t *state, size_t i) {
    const uint32_t r = next_random(state);
    const float even = (float)(int32_t)r * 0x1p-31f;
    switch (kind) {
    case 0:
        return even;
    case 1:
        return ldexpf(even, (int)(next_random(state) >> 24) % 40 - 24);
    case 2:
        return ldexpf(even, (int)(next_random(state) >> 24) - 160); /* subnormal scales as well */
    case 3:
        return (r >> 30) ? (r >> 29 & 1 ? 1.75f : -1.75f) : even;
    case 4:
        return (float)((int)(r >> 24) - 128) * 0.5f;
    default:
        return i % 32 == 7 || r >> 29 == 0 ? even : 0;
    }
}

static size_t check_store(const ag_cpu_kernels *k, ag_dtype type, const float *x, size_t n) {
    unsigned char want[MOST_BYTES + GUARD], got[MOST_BYTES + GUARD];
    const size_t bytes = ag_dtype_row_bytes(type, n);
    memset(got, 0xa5, sizeof got);
    const bool stored = k->kv_store(type, got, x, n);
    for (size_t i = bytes; i < bytes + GUARD; i++) assert_int_equal(got[i], 0xa5);
    const ag_status st = ag_quantize_row(type, want, x, n, AG_ROUND_KV, NULL);
    if (!stored) return 1;
    assert_int_equal(st, AG_OK);
    assert_memory_equal(got, want, bytes);
    return 0;
}

static void stores_rows_like_the_reference(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_CACHE);
    enum { ROWS = 300 };
    ag_cpu_kernels k;
    float x[MOST];
    for (size_t i = 0; table_at(i, &k); i++) {
        for (size_t t = 0; t < types.n; t++) {
            for (int kind = 0; kind < KINDS; kind++) {
                uint32_t seed = 1;
                size_t left = 0;
                for (size_t row = 0; row < ROWS; row++) {
                    size_t n = 1 + row % MOST;
                    if (ag_dtype_is_quantized(types.v[t])) n = 32 * (1 + row % (MOST / 32));
                    for (size_t c = 0; c < n; c++) x[c] = value_of(kind, &seed, c);
                    left += check_store(&k, types.v[t], x, n);
                }
                /* Ordinary rows must not fall back to the reference. */
                if (kind != 2) assert_int_equal(left, 0);
            }
        }
    }
}

static void falls_back_to_the_reference_when_out_of_range(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_CACHE);
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 65520, -70000};
    ag_cpu_kernels k;
    float x[64];
    unsigned char row[MOST_BYTES];
    for (size_t i = 0; table_at(i, &k); i++) {
        for (size_t t = 1; t < types.n; t++) {
            for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++) {
                for (size_t at = 0; at < 64; at += 9) {
                    uint32_t seed = 5;
                    for (size_t c = 0; c < 64; c++) x[c] = value_of(0, &seed, c);
                    x[at] = odd[o];
                    const ag_status st = ag_quantize_row(types.v[t], row, x, 64, AG_ROUND_KV, NULL);
                    const size_t left = check_store(&k, types.v[t], x, 64);
                    if (st != AG_OK) assert_int_equal(left, 1);
                }
            }
            memset(x, 0, sizeof x);
            check_store(&k, types.v[t], x, 64);
            x[40] = -0.0f;
            check_store(&k, types.v[t], x, 64);
        }
    }
}

static void check_load(const ag_cpu_kernels *k, ag_dtype type, const void *row, size_t n) {
    float want[MOST + 16], got[MOST + 16];
    memset(want, 0xa5, sizeof want);
    memset(got, 0xa5, sizeof got);
    ag_dequantize_row(type, want, row, n);
    k->kv_load(type, got, row, n);
    assert_memory_equal(got, want, sizeof want);
}

static void loads_rows_like_the_reference(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_CACHE);
    ag_cpu_kernels k;
    unsigned char row[MOST_BYTES];
    for (size_t i = 0; table_at(i, &k); i++) {
        for (uint32_t h = 0; h < 65536; h += 128) { /* all halves */
            uint16_t halves[128];
            for (uint32_t j = 0; j < 128; j++) halves[j] = (uint16_t)(h + j);
            check_load(&k, AG_F16, halves, 128);
        }
        for (uint32_t r = 0; r < 2000; r++) {
            uint32_t seed = r;
            for (size_t b = 0; b < sizeof row; b++)
                row[b] = (unsigned char)(next_random(&seed) >> 24);
            check_load(&k, AG_F16, row, 1 + r % MOST);
            const size_t n = 32 * (1 + r % (MOST / 32));
            for (size_t t = 2; t < types.n; t++) {
                const size_t bytes = ag_dtype_row_bytes(types.v[t], 32);
                for (size_t b = 0; b < n / 32; b++) row[b * bytes + 1] &= 0xbb; /* finite scales */
                check_load(&k, types.v[t], row, n);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_rows_like_the_reference),
        cmocka_unit_test(falls_back_to_the_reference_when_out_of_range),
        cmocka_unit_test(loads_rows_like_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
