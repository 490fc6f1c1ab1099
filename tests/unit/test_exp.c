/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the exponentials of SiLU and of attention and softmax, over all floats of its domain, and
 * SiLU, GELU and soft caps over all floats: every 4099th of them, or with AG_ALL_FLOATS=1 in
 * the environment every one (minutes). */
#include "backend/cpu/features.h"
#include "backend/cpu/kernels.h"
#include "support/exp_rows.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROW = 4096 };
static const uint32_t minus_zero = 0x80000000, minus_infinity = 0xff800000;

static const struct {
    ag_cpu_isa isa;
    void (*rows)(float *y, float *weights, const float *x, size_t n);
} sets[] = {
#ifdef AG_HAVE_AVX2
    {AG_CPU_AVX2, exp_rows_avx2},
#endif
#ifdef AG_HAVE_AVX512
    {AG_CPU_AVX512, exp_rows_avx512},
#endif
#ifdef AG_HAVE_NEON
    {AG_CPU_NEON, exp_rows_neon},
#endif
    {AG_CPU_COMMON, NULL}, /* libm's, in double */
};
enum { N_SETS = sizeof sets / sizeof sets[0] };

static uint32_t step(void) { return getenv("AG_ALL_FLOATS") ? 1 : 4099; }

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Returns the distance of got from want, in units of the last place of a float of want's size. */
static double ulps(float got, double want) {
    const double size = fabs(want) < (double)FLT_MIN ? (double)FLT_MIN : fabs(want);
    return fabs((double)got - want) / ldexp(1, ilogb(size) - 23);
}

typedef struct row {
    float x[ROW], y[ROW], weights[ROW];
    size_t n;
} row;

typedef struct worst {
    double off;
    float at;
} worst;

static void check_exp(row *r, void (*rows)(float *, float *, const float *, size_t), worst *w) {
    while (r->n % 16) r->x[r->n] = r->x[r->n - 1], r->n++;
    rows(r->y, r->weights, r->x, r->n);
    for (size_t i = 0; i < r->n; i++) {
        const double off = ulps(r->y[i], exp((double)r->x[i]));
        if (off > w->off) *w = (worst){off, r->x[i]};
        assert_true(r->y[i] >= 0 && r->y[i] <= 1); /* not so for NaN */
        if (r->x[i] <= -104) assert_true(r->y[i] == 0);
        /* a weight is the same number, or 0 for a subnormal one */
        assert_true(r->weights[i] == (r->x[i] < -87.33f ? 0 : r->y[i]));
        assert_true(r->weights[i] == 0 || r->weights[i] >= FLT_MIN);
    }
    r->n = 0;
}

static void exponential_is_within_2_ulp(void **state) {
    (void)state;
    static row r;
    for (size_t s = 0; s < N_SETS; s++) {
        if (!sets[s].rows || !(ag_cpu_features() >> sets[s].isa & 1)) continue;
        worst w = {0, 0};
        r.n = 0;
        for (uint64_t b = minus_zero; b <= minus_infinity; b += step()) {
            r.x[r.n++] = float_of((uint32_t)b);
            if (r.n == ROW) check_exp(&r, sets[s].rows, &w);
        }
        const float edges[] = {0,      -0.0f,  -FLT_MIN, -FLT_TRUE_MIN, -FLT_MAX, -INFINITY,
                               -87.3f, -87.4f, -88.7f,   -103.9f,       -103.98f, -104,
                               -110,   -1,     -87.33f,  -87.34f};
        for (size_t e = 0; e < sizeof edges / sizeof edges[0]; e++) r.x[r.n++] = edges[e];
        check_exp(&r, sets[s].rows, &w);
        print_message("%s: %.3f ulp at %g\n", ag_cpu_isa_name(sets[s].isa), w.off, (double)w.at);
        assert_true(w.off <= 2);

        for (size_t i = 0; i < 16; i++) r.x[i] = i % 2 ? NAN : -1;
        sets[s].rows(r.y, r.weights, r.x, 16);
        for (size_t i = 0; i < 16; i++) {
            assert_int_equal(isnan(r.y[i]) != 0, i % 2);
            assert_int_equal(isnan(r.weights[i]) != 0, i % 2);
        }
    }
}

/* Function of one value: the kernel that changes a row in place, the exact result at x, and the
 * absolute error that is ignored at x. */
typedef struct function {
    void (*rows)(const ag_cpu_kernels *k, float *x, size_t n);
    double (*want)(double x);
    double (*margin)(double x);
    double most; /* units of the last place */
} function;

static float ones[ROW];

static void silu_rows(const ag_cpu_kernels *k, float *x, size_t n) { k->silu_mul(x, ones, n); }
static void gelu_rows(const ag_cpu_kernels *k, float *x, size_t n) { k->gelu_mul(x, ones, n); }
static void tanh_rows(const ag_cpu_kernels *k, float *x, size_t n) { k->softcap(x, 1, n); }

static double silu(double x) { return x / (1 + exp(-x)); }

static double gelu(double x) {
    if (fabs(x) > 100) return x > 0 ? x : 0; /* the cube of larger ones is infinite */
    return x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* Down at -104 the exponential is a subnormal of one unit or two, times that. */
static double subnormals(double x) {
    (void)x;
    return 105 * (double)FLT_TRUE_MIN;
}

/* GELU's exponential is of a sum that is itself rounded: it loses digits where it is small. */
static double of_exponent(double x) {
    return x < -1 ? fabs(gelu(x)) * 0x1p-22 * fabs(x * x * x) + subnormals(x) : subnormals(x);
}

static void check_row(row *r, const ag_cpu_kernels *k, const function *f, worst *w) {
    memcpy(r->y, r->x, r->n * sizeof *r->y);
    f->rows(k, r->y, r->n);
    for (size_t i = 0; i < r->n; i++) {
        const double x = r->x[i], want = f->want(x), off = ulps(r->y[i], want);
        const bool least = fabs((double)r->y[i] - want) <= f->margin(x);
        if (!least && off > w->off) *w = (worst){off, r->x[i]};
        assert_false(isnan(r->y[i]));
    }
    r->n = 0;
}

static void check_function(const function *f) {
    static row r;
    for (size_t i = 0; i < ROW; i++) ones[i] = 1;
    for (size_t s = 0; s < N_SETS; s++) {
        ag_cpu_kernels k;
        if (!(ag_cpu_features() >> sets[s].isa & 1)) continue;
        ag_cpu_kernels_init(&k, ag_cpu_isa_name(sets[s].isa));
        worst w = {0, 0};
        r.n = 0;
        for (uint64_t b = 0; b <= UINT32_MAX; b += step()) {
            const float x = float_of((uint32_t)b);
            if (isfinite(x)) r.x[r.n++] = x;
            if (r.n == ROW) check_row(&r, &k, f, &w);
        }
        check_row(&r, &k, f, &w);
        print_message("%s: %.3f ulp at %g\n", ag_cpu_isa_name(sets[s].isa), w.off, (double)w.at);
        assert_true(w.off <= f->most);
    }
}

static void silu_is_within_five_units_of_the_last_place(void **state) {
    (void)state;
    check_function(&(function){silu_rows, silu, subnormals, 5});
}

static void gelu_is_within_five_units_of_the_last_place(void **state) {
    (void)state;
    check_function(&(function){gelu_rows, gelu, of_exponent, 5});
}

static void soft_cap_is_within_5_ulp(void **state) {
    (void)state;
    check_function(&(function){tanh_rows, tanh, subnormals, 5});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_is_within_2_ulp),
        cmocka_unit_test(silu_is_within_five_units_of_the_last_place),
        cmocka_unit_test(gelu_is_within_five_units_of_the_last_place),
        cmocka_unit_test(soft_cap_is_within_5_ulp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
