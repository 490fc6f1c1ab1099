/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/blocks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(float f) {
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}

static float float_of(uint32_t b) {
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

/* Returns the value by the definition of binary16; exact in double. */
static double value_of_half(unsigned h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v;
}

static void converts_all_halves_to_floats_exactly(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = ag_f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
        } else if ((h & 0x7fff) == 0x7c00) {
            assert_true(isinf(f) && (f < 0) == (h >= 0x8000));
        } else if ((double)f != value_of_half(h) || !signbit(f) != (h < 0x8000)) {
            fail_msg("half %04x is %.9g, not %.9g", h, (double)f, value_of_half(h));
        }
    }
}

static void converts_all_halves_back(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        unsigned back = ag_f32_to_f16(ag_f16_to_f32((uint16_t)h));
        bool nan = (h & 0x7fff) > 0x7c00;
        if (nan ? (back & 0x7fff) <= 0x7c00 || ((back ^ h) & 0x8000) : back != h) {
            fail_msg("half %04x came back as %04x", h, back);
        }
    }
}

static void expect_half(float f, unsigned want) {
    for (unsigned sign = 0; sign < 2; sign++) {
        unsigned got = ag_f32_to_f16(sign ? -f : f);
        if (got != (want | sign << 15)) {
            fail_msg("%.9g became %04x, not %04x", (double)f, got, want | sign << 15);
        }
    }
}

/* Between two neighbours the middle rounds to the even one, its neighbours to the nearer. The
 * neighbour of the largest half is 65536, where infinity begins. */
static void rounds_floats_to_the_nearest_half(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        double next = h == 0x7bff ? 65536 : value_of_half(h + 1);
        float middle = (float)((value_of_half(h) + next) / 2);
        assert_true((double)middle == (value_of_half(h) + next) / 2);
        expect_half(middle, h % 2 ? h + 1 : h);
        expect_half(nextafterf(middle, 0), h);
        expect_half(nextafterf(middle, INFINITY), h + 1);
    }
    expect_half(0x1p-149f, 0);
    expect_half(3.4e38f, 0x7c00);
    expect_half(INFINITY, 0x7c00);
}

static void rounds_bf16_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        float exact = float_of(h << 16), middle = float_of(h << 16 | 0x8000);
        assert_int_equal(bits_of(ag_bf16_to_f32((uint16_t)h)), h << 16);
        assert_int_equal(ag_f32_to_bf16(exact), h);
        assert_int_equal(ag_f32_to_bf16(middle), h % 2 ? h + 1 : h);
        assert_int_equal(ag_f32_to_bf16(float_of(bits_of(middle) - 1)), h);
        assert_int_equal(ag_f32_to_bf16(float_of(bits_of(middle) + 1)), h + 1);
        assert_int_equal(ag_f32_to_bf16(-exact), h | 0x8000);
    }
    assert_true(isnan(ag_bf16_to_f32(ag_f32_to_bf16(float_of(0x7f800001)))));
    assert_true(isinf(ag_bf16_to_f32(ag_f32_to_bf16(INFINITY))));
}

static void rows_equal_single_values(void **state) {
    (void)state;
    enum { N = 1031 };
    float x[N], y[N];
    unsigned char halves[2 * N + 1], *odd = halves + 1; /* rows in files are not aligned */
    for (int i = 0; i < N; i++) x[i] = ldexpf((float)(i - 500), i % 40 - 30);
    ag_f32_to_f16_row(odd, x, N);
    ag_f16_to_f32_row(y, odd, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(bits_of(y[i]), bits_of(ag_f16_to_f32(ag_f32_to_f16(x[i]))));
    }
    ag_f32_to_bf16_row(odd, x, N);
    ag_bf16_to_f32_row(y, odd, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(bits_of(y[i]), bits_of(ag_bf16_to_f32(ag_f32_to_bf16(x[i]))));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converts_all_halves_to_floats_exactly),
        cmocka_unit_test(converts_all_halves_back),
        cmocka_unit_test(rounds_floats_to_the_nearest_half),
        cmocka_unit_test(rounds_bf16_to_nearest_even),
        cmocka_unit_test(rows_equal_single_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
