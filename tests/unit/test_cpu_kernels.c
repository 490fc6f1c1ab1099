/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the kernels of all instruction sets of this machine. The oracle sees only entire
 * operations. */
#include "backend/cpu/features.h"
#include "backend/cpu/kernels.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const isas[] = {"avx2", "avxvnni",      "avx512",   "amx",
                                   "neon", "neon_dotprod", "neon_i8mm"};
enum { N_ISAS = sizeof isas / sizeof isas[0] };
static const ag_dtype block_types[] = {
#define BLOCK_TYPE(NAME, name) AG_##NAME,
    AG_X16_MAP(BLOCK_TYPE)
#undef BLOCK_TYPE
};
enum { N_BLOCK_TYPES = sizeof block_types / sizeof block_types[0] };

/* The table of isas[i]; false where the machine has another best set below it. */
static bool table_of(size_t i, ag_cpu_kernels *table) {
    return !strcmp(ag_cpu_kernels_init(table, isas[i]), isas[i]);
}

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static float *random_floats(size_t n, uint32_t seed) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = ldexpf((float)(int32_t)next_random(&seed), -31 + (int)(seed >> 8) % 5);
    }
    return x;
}

static void *lines(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

/* A product of random numbers, prepared and packed as the kernel wants it. */
typedef struct problem {
    size_t m, n, k, row_bytes;
    float *x, *y;
    unsigned char *rows, *groups, *panel, *scratch;
} problem;

static void fill_groups(problem *p, const ag_cpu_layout *layout) {
    const size_t group_bytes = layout->group_bytes(p->k);
    for (size_t j = 0; j < p->n; j += layout->rows) {
        layout->fill(p->groups + j / layout->rows * group_bytes, p->rows + j * p->row_bytes,
                     p->row_bytes, p->n - j < layout->rows ? p->n - j : layout->rows, p->k);
    }
}

/* Takes x [m][k] and w [n][k] over. */
static problem make_problem_of(const ag_cpu_matmul *kernel, ag_dtype type, size_t m, size_t n,
                               size_t k, float *x, float *w) {
    const ag_cpu_layout *layout = kernel->layout;
    problem p = {.m = m, .n = n, .k = k, .row_bytes = ag_dtype_row_bytes(type, k), .x = x};
    p.y = calloc(m * n, sizeof *p.y);
    p.rows = malloc(n * p.row_bytes);
    for (size_t j = 0; j < n; j++) {
        ag_quantize_row(type, p.rows + j * p.row_bytes, w + j * k, k, AG_ROUND_REFERENCE, NULL);
    }
    free(w);
    p.groups = lines((n + layout->rows - 1) / layout->rows * layout->group_bytes(k));
    fill_groups(&p, layout);
    p.panel = lines(m * kernel->packed_bytes(k));
    for (size_t i = 0; i < m; i++) kernel->pack(p.panel, p.x + i * k, i, m, k);
    p.scratch = lines(kernel->scratch_bytes ? kernel->scratch_bytes(k) : 64);
    return p;
}

static problem make_problem(const ag_cpu_matmul *kernel, ag_dtype type, size_t m, size_t n,
                            size_t k) {
    const size_t block = ag_dtype_block(type);
    k = (k + block - 1) / block * block;
    return make_problem_of(kernel, type, m, n, k, random_floats(m * k, 1), random_floats(n * k, 2));
}

static void free_problem(problem *p) {
    free(p->x);
    free(p->y);
    free(p->rows);
    free(p->groups);
    free(p->panel);
    free(p->scratch);
}

static void multiply(const ag_cpu_matmul *kernel, problem *p) {
    const ag_cpu_weight w = {.data = p->groups, .k = p->k};
    kernel->rows(p->y, p->n, p->panel, p->m, &w, 0, p->n, p->scratch);
}

static const size_t sizes[][3] = {{1, 16, 32},  {1, 33, 96},   {2, 15, 64},   {15, 17, 2080},
                                  {16, 80, 64}, {17, 31, 128}, {33, 64, 288}, {40, 130, 1056}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

/* x rounded as the packing is documented to do it. */
static void round_block(double *x, const float *from) {
    float largest = 0;
    for (size_t i = 0; i < AG_QK; i++) largest = fmaxf(largest, fabsf(from[i]));
    const float d = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
    for (size_t i = 0; i < AG_QK; i++) x[i] = (double)d * nearbyintf(from[i] * inverse);
}

static void check_against_rounded_input(const problem *p, ag_dtype type) {
    float *w = malloc(p->k * sizeof *w);
    double *x = malloc(p->m * p->k * sizeof *x);
    for (size_t i = 0; i < p->m * p->k; i += AG_QK) round_block(x + i, p->x + i);
    for (size_t j = 0; j < p->n; j++) {
        ag_dequantize_row(type, w, p->rows + j * p->row_bytes, p->k);
        for (size_t i = 0; i < p->m; i++) {
            double sum = 0, magnitude = 0;
            for (size_t l = 0; l < p->k; l++) {
                sum += x[i * p->k + l] * w[l];
                magnitude += fabs(x[i * p->k + l] * w[l]);
            }
            const double off = fabs(p->y[i * p->n + j] - sum);
            if (off > 2e-6 * magnitude) {
                fail_msg("%s m %zu n %zu k %zu: y[%zu][%zu] is %g, not %g", ag_dtype_name(type),
                         p->m, p->n, p->k, i, j, (double)p->y[i * p->n + j], sum);
            }
        }
    }
    free(x);
    free(w);
}

static void block_products_equal_those_of_the_rounded_input(void **state) {
    (void)state;
    for (size_t isa = 0; isa < N_ISAS; isa++) {
        ag_cpu_kernels table;
        if (!table_of(isa, &table)) continue;
        for (size_t t = 0; t < N_BLOCK_TYPES; t++) {
            const ag_cpu_matmul *kernel = table.prepared[block_types[t]];
            for (size_t s = 0; s < N_SIZES; s++) {
                problem p =
                    make_problem(kernel, block_types[t], sizes[s][0], sizes[s][1], sizes[s][2]);
                multiply(kernel, &p);
                check_against_rounded_input(&p, block_types[t]);
                free_problem(&p);
            }
        }
    }
}

/* Row i of a product is the same as when it is the only one. */
static void product_row_is_independent_of_other_rows(void **state) {
    (void)state;
    for (size_t isa = 0; isa < N_ISAS; isa++) {
        ag_cpu_kernels table;
        if (!table_of(isa, &table)) continue;
        for (size_t t = 0; t < N_BLOCK_TYPES; t++) {
            const ag_cpu_matmul *kernel = table.prepared[block_types[t]];
            problem p = make_problem(kernel, block_types[t], 45, 33, 1056);
            multiply(kernel, &p);
            float row[33];
            const ag_cpu_weight w = {.data = p.groups, .k = p.k};
            for (size_t i = 0; i < p.m; i++) {
                kernel->pack(p.panel, p.x + i * p.k, 0, 1, p.k);
                kernel->rows(row, p.n, p.panel, 1, &w, 0, p.n, p.scratch);
                assert_memory_equal(row, p.y + i * p.n, sizeof row);
            }
            free_problem(&p);
        }
    }
}

/* The product whose sums of integers are the largest: activations of +-127, and 31 of 32 levels at
 * one end of their range. */
static problem make_largest_problem(const ag_cpu_matmul *kernel, ag_dtype type) {
    enum { M = 18, N = 64, K = 512 };
    float *x = malloc(M * K * sizeof *x), *w = malloc(N * K * sizeof *w);
    for (size_t i = 0; i < M; i++) {
        for (size_t l = 0; l < K; l++) x[i * K + l] = (i >> l % 3 & 1) ? 1 : -1;
    }
    for (size_t j = 0; j < N; j++) {
        for (size_t l = 0; l < K; l++) w[j * K + l] = (l + j / 2) % AG_QK ? 1 : -1;
        for (size_t l = 0; j % 2 && l < K; l++) w[j * K + l] *= -1;
    }
    return make_problem_of(kernel, type, M, N, K, x, w);
}

/* Sets with one layout agree to the last bit: a model says the same on each. */
static void compare_isas(problem (*make)(const ag_cpu_matmul *kernel, ag_dtype type)) {
    for (size_t t = 0; t < N_BLOCK_TYPES; t++) {
        problem first = {0};
        const ag_cpu_layout *layout = NULL;
        for (size_t isa = 0; isa < N_ISAS; isa++) {
            ag_cpu_kernels table;
            if (!table_of(isa, &table)) continue;
            const ag_cpu_matmul *kernel = table.prepared[block_types[t]];
            problem p = make(kernel, block_types[t]);
            multiply(kernel, &p);
            if (kernel->layout == layout) {
                assert_memory_equal(p.y, first.y, p.m * p.n * sizeof *p.y);
            }
            free_problem(&first);
            first = p;
            layout = kernel->layout;
        }
        free_problem(&first);
    }
}

static problem make_random_problem(const ag_cpu_matmul *kernel, ag_dtype type) {
    return make_problem(kernel, type, 37, 49, 2080);
}

static void isas_with_one_layout_give_equal_bits(void **state) {
    (void)state;
    compare_isas(make_random_problem);
    compare_isas(make_largest_problem);
}

/* Row j of the weights has the exponent byte exponents[j] in all blocks, and every code. */
static void mxfp4_exponents_reach_from_denormals_to_nan(void **state) {
    (void)state;
    enum { M = 6, K = 96, ROW_BYTES = K / AG_QK * 17 };
    static const uint8_t exponents[] = {0, 1, 2, 3, 127, 128, 150, 170, 255, 0};
    enum { N = sizeof exponents };
    for (size_t isa = 0; isa < N_ISAS; isa++) {
        ag_cpu_kernels table;
        if (!table_of(isa, &table)) continue;
        const ag_cpu_matmul *kernel = table.prepared[AG_MXFP4];
        for (size_t m = 1; m <= M; m += M - 1) {
            problem p = make_problem(kernel, AG_MXFP4, m, N, K);
            assert_int_equal(p.row_bytes, ROW_BYTES);
            for (size_t i = 0; i < m * K; i++) p.x[i] *= 0x1p60f;
            for (size_t i = 0; i < m; i++) kernel->pack(p.panel, p.x + i * K, i, m, K);
            for (size_t i = 0; i < N * ROW_BYTES; i++) {
                const size_t in_block = i % 17;
                p.rows[i] = (uint8_t)(in_block ? 97 * i + i / 17 : exponents[i / ROW_BYTES]);
            }
            fill_groups(&p, kernel->layout);
            multiply(kernel, &p);
            for (size_t j = 0; j < N; j++) {
                for (size_t i = 0; i < m; i++) {
                    assert_true(isnan(p.y[i * N + j]) == (exponents[j] == 255));
                }
            }
            for (size_t i = 0; i < m; i++) p.y[i * N + 8] = 0; /* instead of NaN */
            memset(p.rows + 8 * ROW_BYTES, 0, ROW_BYTES);
            check_against_rounded_input(&p, AG_MXFP4);
            free_problem(&p);
        }
    }
}

enum { ROUNDED = 19 * AG_QK }; /* two whole batches of the search, and some */

static void expect_same_blocks(const char *isa, const ag_cpu_kernels *table, const float *x,
                               size_t n) {
    unsigned char want[ROUNDED], got[ROUNDED];
    size_t bad = n;
    const ag_status st = ag_quantize_row(AG_Q4_0, want, x, n, AG_ROUND_WEIGHT, &bad);
    const size_t whole = (st == AG_OK ? n : bad / AG_QK * AG_QK) / AG_QK * sizeof(ag_block_q4_0);
    if (table->rounding.q4_0(got + 1, x, n) != (st == AG_OK ? n : bad)) {
        fail_msg("%s: another value is at fault", isa);
    }
    if (st == AG_OK && memcmp(got + 1, want, whole) != 0) fail_msg("%s: other blocks", isa);
}

/* Rows of all kinds of values, of one block of 256 and of several. */
static void scales_are_searched_to_the_same_bits_by_every_set(void **state) {
    (void)state;
    enum { MOST = 5 * AG_QK_K };
    static unsigned char want[4 * MOST], got[4 * MOST];
    for (size_t isa = 0; isa < N_ISAS; isa++) {
        ag_cpu_kernels table;
        if (!table_of(isa, &table)) continue;
        for (uint32_t seed = 0; seed < 60; seed++) {
            float *x = random_floats(MOST, seed), *importance = random_floats(MOST, seed + 99);
            const size_t n = (size_t)(1 + seed % 5) * AG_QK_K;
            for (size_t i = 0; i < n; i++) {
                importance[i] = seed % 2 ? fabsf(importance[i]) : 1;
                if (seed % 3 == 0) x[i] = rintf(8 * x[i]); /* between two levels */
                if (seed % 4 == 1) x[i] = ldexpf(x[i], (int)(i / 16) % 40 - 30);
                if (seed % 7 == 6 && i / 64 % 3 == 0) x[i] = 0;
                if (seed % 6 == 5) x[i] += 3;
            }
            if (seed == 50) x[200] = 3e38f;
            for (ag_dtype type = 0; type < AG_DTYPE_COUNT; type++) {
                if (!ag_has_search(type)) continue;
                size_t bad[2] = {n, n};
                ag_quantize_weights(&ag_reference_rounding, type, want, x, n, importance, &bad[0]);
                ag_quantize_weights(&table.rounding, type, got, x, n, importance, &bad[1]);
                assert_int_equal(bad[0], bad[1]);
                if (bad[0] < n || !memcmp(want, got, ag_dtype_row_bytes(type, n))) continue;
                fail_msg("%s, %s, seed %u: other blocks", isas[isa], ag_dtype_name(type), seed);
            }
            free(importance);
            free(x);
        }
    }
}

static void weights_are_rounded_to_the_same_bits_by_every_set(void **state) {
    (void)state;
    static const float odd[] = {NAN,   INFINITY, -INFINITY, 524288.0f, -524032.0f, 523900.0f,
                                3e38f, 1e-40f,   0x1p-26f,  -0x1p-27f, 0x1p-24f};
    float *x = random_floats(ROUNDED, 7);
    for (size_t isa = 0; isa < N_ISAS; isa++) {
        ag_cpu_kernels table;
        if (!table_of(isa, &table)) continue;
        for (uint32_t seed = 0; seed < 300; seed++) {
            float *y = random_floats(ROUNDED, seed);
            for (size_t i = 0; i < ROUNDED; i++) {
                const float level = (float)(int)(seed % 8) * rintf(8 * y[i] / ldexpf(1, -1));
                if (seed % 3 == 0) y[i] = level; /* values between two levels */
                else y[i] = ldexpf(y[i], (int)(i / AG_QK) * 3 - 40);
            }
            if (seed % 5 == 4) memset(y + 3 * AG_QK, 0, 2 * AG_QK * sizeof *y);
            for (size_t n = AG_QK; n <= ROUNDED; n += 6 * AG_QK) {
                expect_same_blocks(isas[isa], &table, y, n);
            }
            free(y);
        }
        for (size_t v = 0; v < sizeof odd / sizeof odd[0]; v++) {
            for (size_t i = 0; i < ROUNDED; i += 97) {
                const float kept = x[i];
                x[i] = odd[v];
                expect_same_blocks(isas[isa], &table, x, ROUNDED);
                x[i] = kept;
            }
        }
    }
    free(x);
}

/* Every 997th float of a sign, from 0 to beyond infinity's neighbour. */
static void silu_keeps_its_digits_over_the_whole_range(void **state) {
    (void)state;
    for (size_t isa = 0; isa < N_ISAS; isa++) {
        ag_cpu_kernels table;
        if (!table_of(isa, &table)) continue;
        for (uint64_t bits = 0; bits < 1u << 31; bits += 997 * 16) {
            float a[16], x[16], one[16];
            for (uint32_t i = 0; i < 16; i++) {
                uint32_t b = ((uint32_t)bits + i * 997) | (i & 1) << 31;
                if ((b & 0x7fffffff) >= 0x7f800000) b = 0;
                memcpy(&x[i], &b, sizeof b);
                a[i] = x[i];
                one[i] = 1;
            }
            table.silu_mul(a, one, 16);
            for (size_t i = 0; i < 16; i++) {
                const double want = x[i] / (1 + exp(-(double)x[i]));
                const double off = fabs(a[i] - want);
                if (!(off <= 4e-7 * fabs(want) + 1e-43)) {
                    fail_msg("%s: silu(%g) is %g, not %g", isas[isa], (double)x[i], (double)a[i],
                             want);
                }
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_products_equal_those_of_the_rounded_input),
        cmocka_unit_test(product_row_is_independent_of_other_rows),
        cmocka_unit_test(isas_with_one_layout_give_equal_bits),
        cmocka_unit_test(mxfp4_exponents_reach_from_denormals_to_nan),
        cmocka_unit_test(scales_are_searched_to_the_same_bits_by_every_set),
        cmocka_unit_test(weights_are_rounded_to_the_same_bits_by_every_set),
        cmocka_unit_test(silu_keeps_its_digits_over_the_whole_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
