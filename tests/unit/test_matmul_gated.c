/* SPDX-License-Identifier: Apache-2.0 */
/* Compares gated products with a product and a gate after it, bit by bit. */
#include "backend/cpu/cpu_backend.h"
#include "core/backend_ops.h"
#include "oracle/oracle.h"
#include "support/stride.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { K = 512, ROWS_MAX = 150 };

/* NULL: the processor does not have the instruction set. */
static ag_backend *make_backend(const char *isa, uint32_t n_threads) {
    ag_backend *be;
    const ag_backend_params params = {.name = "cpu", .n_threads = n_threads};
    char used[32];
    setenv("AG_CPU_ISA", isa, 1);
    assert_int_equal(ag_backend_create(&params, &be, NULL), AG_OK);
    (void)snprintf(used, sizeof used, ", %s (", isa);
    if (strstr(ag_backend_describe(be), used)) return be;
    ag_backend_destroy(be);
    return NULL;
}

typedef struct matrix {
    ag_tensor w;
    ag_buffer *owner; /* NULL: w is the rows */
    guarded rows;
} matrix;

static void make_matrix(matrix *m, oracle_run *run, ag_dtype type, size_t n_rows, size_t k,
                        bool prepared) {
    *m = (matrix){.rows = guarded_make(run, type, ag_shape_2d(n_rows, k), 0, DATA_PLAIN)};
    m->w = m->rows.t;
    if (!prepared) return;
    assert_int_equal(ag_prepare_weight(run->be, &m->w, &m->owner, &m->rows.t, type, NULL, NULL),
                     AG_OK);
}

static void free_matrix(matrix *m) {
    ag_buffer_release(&m->owner);
    guarded_free(&m->rows);
}

typedef struct gated_case {
    ag_dtype types[2];
    size_t m, n_rows, k;
    bool prepared;
} gated_case;

static void compare(ag_backend *be, const gated_case *c, ag_gate_kind kind) {
    oracle_run run = {.be = be, .random = c->m};
    matrix w[2];
    for (int i = 0; i < 2; i++) make_matrix(&w[i], &run, c->types[i], c->n_rows, c->k, c->prepared);
    guarded x = guarded_make(&run, AG_F32, ag_shape_2d(c->m, c->k), 0, DATA_PLAIN);
    guarded y[4];
    for (int i = 0; i < 4; i++)
        y[i] = guarded_make(&run, AG_F32, ag_shape_2d(c->m, c->n_rows), 0, DATA_PLAIN);
    assert_false(run.out_of_memory);
    const ag_tensor *const weights[] = {&w[0].w, &w[1].w};
    ag_tensor *const gated[] = {&y[0].t, &y[1].t}, *const separate[] = {&y[2].t, &y[3].t};
    assert_int_equal(ag_matmul_gated(be, kind, gated, &x.t, weights), AG_OK);
    assert_int_equal(ag_matmul_group(be, separate, &x.t, weights, 2), AG_OK);
    const bool is_silu = kind == AG_GATE_SILU;
    assert_int_equal((is_silu ? ag_silu_mul : ag_gelu_mul)(be, separate[0], separate[1]), AG_OK);
    if (memcmp(ag_tensor_data(gated[0]), ag_tensor_data(separate[0]),
               ag_tensor_bytes(separate[0]))) {
        fail_msg("%s: %s and %s, %zu rows by %zu, differ", ag_backend_describe(be),
                 ag_dtype_name(c->types[0]), ag_dtype_name(c->types[1]), c->m, c->n_rows);
    }
    for (int i = 0; i < 4; i++) guarded_free(&y[i]);
    for (int i = 0; i < 2; i++) free_matrix(&w[i]);
    guarded_free(&x);
}

static void equals_products_and_gate(void **state) {
    (void)state;
    static const ag_dtype types[][2] = {{AG_Q4_0, AG_Q4_0}, {AG_Q4_K, AG_Q6_K},
                                        {AG_BF16, AG_BF16}, {AG_Q8_0, AG_F16},
                                        {AG_F32, AG_F32},   {AG_IQ4_NL, AG_Q4_0}};
    static const size_t rows[] = {1, 3, 16, 40, ROWS_MAX}, units[] = {16, 40, 333};
    static const char *const isas[] = {"common", "avx2", "avxvnni", "avx512", "amx", "neon"};
    size_t n_sets = 0;
    for (size_t s = 0; s < sizeof isas / sizeof isas[0]; s++) {
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            ag_backend *be = make_backend(isas[s], threads);
            if (!be) break;
            n_sets++;
            for (size_t i = 0; i < 6 * 5 * 3 * 4; i += test_stride() | 1) {
                const size_t t = i / 4 % 6;
                const gated_case c = {.types = {types[t][0], types[t][1]},
                                      .k = K,
                                      .m = rows[i / 24 % 5],
                                      .n_rows = units[i / 120],
                                      .prepared = i / 2 % 2};
                compare(be, &c, i % 2 ? AG_GATE_SILU : AG_GATE_GELU_TANH);
            }
            const gated_case panels = {{AG_Q4_0, AG_Q4_0}, 300, 40, 4 * K, true};
            compare(be, &panels, AG_GATE_SILU);
            ag_backend_destroy(be);
        }
    }
    assert_true(n_sets >= 2);
}

/* Operands with other shapes fail, and name what is wrong. */
static void rejects_products_of_unequal_sizes(void **state) {
    (void)state;
    ag_backend *be = make_backend("common", 1);
    oracle_run run = {.be = be};
    matrix w[2];
    make_matrix(&w[0], &run, AG_Q4_0, 32, K, false);
    make_matrix(&w[1], &run, AG_Q4_0, 48, K, false);
    guarded x = guarded_make(&run, AG_F32, ag_shape_2d(2, K), 0, DATA_PLAIN);
    guarded y0 = guarded_make(&run, AG_F32, ag_shape_2d(2, 32), 0, DATA_PLAIN);
    guarded y1 = guarded_make(&run, AG_F32, ag_shape_2d(2, 48), 0, DATA_PLAIN);
    ag_tensor *const y[] = {&y0.t, &y1.t}, *const same[] = {&y0.t, &y0.t};
    const ag_tensor *const weights[] = {&w[0].w, &w[1].w}, *const twice[] = {&w[0].w, &w[0].w};
    assert_int_equal(ag_matmul_gated(be, AG_GATE_SILU, y, &x.t, weights), AG_SHAPE);
    assert_int_equal(ag_matmul_gated(be, AG_GATE_SILU, same, &x.t, twice), AG_INVALID);
    guarded_free(&x);
    guarded_free(&y0);
    guarded_free(&y1);
    for (int i = 0; i < 2; i++) free_matrix(&w[i]);
    ag_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_products_and_gate),
        cmocka_unit_test(rejects_products_of_unequal_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
