/* SPDX-License-Identifier: Apache-2.0 */
/* Products of up to eight rows: one launch reads each weight once, and every row has the bits that
 * it has alone. */
#include "backend/opencl/ops.h"
#include "memory/galloc.h"
#include "unit/float_tensor.h"
#include "unit/opencl_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8, N = 37, K = 768 };

static ag_backend *device;
static ag_memory *host;
static float x_values[MOST * K], w_values[N * K];

/* Multiplies m rows of x with the weight, and checks for one launch over all rows of x. */
static void multiply(const ag_tensor *w, const float *x, size_t m, float *out) {
    ag_launch_info kinds[8];
    ag_buffer *owners[2];
    ag_error err;
    size_t n;
    ag_memory *memory = ag_backend_memory(device);
    const ag_tensor in = float_tensor(memory, &owners[0], x, m, K);
    ag_tensor y = float_tensor(memory, &owners[1], NULL, m, N);
    assert_int_equal(ag_backend_launches(device, kinds, 8, &n), AG_OK);
    assert_int_equal(ag_matmul_transposed(device, &y, &in, w), AG_OK);
    assert_int_equal(ag_backend_launches(device, kinds, 8, &n), AG_OK);
    assert_int_equal(n, 1);
    assert_int_equal(kinds[0].n, 1);
    assert_int_equal(strncmp(kinds[0].name, "matvec ", 7), 0);
    assert_non_null(strstr(kinds[0].name, "x1 of "));
    assert_int_equal(ag_buffer_download(out, owners[1], 0, m * N * sizeof *out, &err), AG_OK);
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
}

static void check_type(ag_dtype type) {
    ag_buffer *source_owner, *owner;
    ag_tensor w, source = float_tensor(host, &source_owner, w_values, N, K);
    float alone[MOST * N], together[MOST * N];
    assert_int_equal(ag_prepare_weight(device, &w, &owner, &source, type, NULL, NULL), AG_OK);
    for (size_t r = 0; r < MOST; r++) multiply(&w, x_values + r * K, 1, alone + r * N);
    for (size_t m = 2; m <= MOST; m++) {
        multiply(&w, x_values, m, together);
        assert_memory_equal(together, alone, m * N * sizeof *alone);
    }
    ag_buffer_release(&owner);
    ag_buffer_release(&source_owner);
}

static void rows_have_the_bits_that_they_have_alone(void **state) {
    (void)state;
    static const struct {
        ag_dtype type;
        bool int_dot;
    } cases[] = {{AG_BF16, false}, {AG_Q4_0, false}, {AG_Q6_K, true}};
    uint32_t random = 3;
    for (size_t i = 0; i < MOST * K; i++) {
        x_values[i] = (float)(int32_t)(random = random * 1664525u + 1013904223u) * 0x1p-31f;
    }
    for (size_t i = 0; i < N * K; i++) {
        w_values[i] = (float)(int32_t)(random = random * 1664525u + 1013904223u) * 0x1p-31f;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ag_cl_of(device)->int_dot = cases[i].int_dot;
        check_type(cases[i].type);
    }
}

int main(void) {
    const ag_backend_params params = {.time_launches = true};
    ag_error err;
    setenv("AG_OPENCL_LANES", "1", 1);
    setenv("AG_OPENCL_MMA", "0", 1);
    if (ag_cl_backend_create(&params, &device, &err) != AG_OK) {
        printf("skipped: %s\n", err.msg);
        return EXIT_SKIPPED;
    }
    if (ag_galloc_create(&host, NULL) != AG_OK) return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_have_the_bits_that_they_have_alone)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_galloc_destroy(host);
    ag_backend_destroy(device);
    return failed;
}
