/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that get addresses in place of memory objects: results, arguments, and memory that is
 * released while a kernel may use it. */
#include "unit/opencl_forwarded.h"

#include <antigravity/antigravity.h>
#include <antigravity/operations.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 100 };

static forwarder_controls *forwarder;
static ag_backend *device;

static ag_tensor new_tensor(ag_buffer **owner, size_t n, float value) {
    ag_tensor t;
    ag_error err;
    float values[2 * N];
    for (size_t i = 0; i < n; i++) values[i] = value;
    assert_int_equal(ag_tensor_alloc(&t, owner, ag_backend_memory(device), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_1d(n), &err),
                     AG_OK);
    assert_int_equal(ag_buffer_upload(*owner, 0, values, n * sizeof *values, &err), AG_OK);
    return t;
}

static void check_values(ag_buffer *owner, size_t n, float wanted) {
    float values[2 * N];
    ag_error err;
    assert_int_equal(ag_buffer_download(values, owner, 0, n * sizeof *values, &err), AG_OK);
    for (size_t i = 0; i < n; i++) assert_true(values[i] == wanted);
}

/* A released buffer's memory, or its handle, may belong to the next one. */
static void finds_new_buffers_in_the_place_of_old_ones(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        const size_t n = i % 3 ? N : 2 * N;
        ag_buffer *owners[2];
        ag_tensor x = new_tensor(&owners[0], n, (float)i);
        const ag_tensor y = new_tensor(&owners[1], n, 1000);
        assert_int_equal(ag_add_assign(device, &x, &y), AG_OK);
        check_values(owners[0], n, 1000 + (float)i);
        check_values(owners[1], n, 1000);
        ag_buffer_release(&owners[i % 2]);
        ag_buffer_release(&owners[1 - i % 2]);
    }
}

/* Another tensor changes an address, which is one argument, and a release changes none. */
static void sets_only_the_address(void **state) {
    (void)state;
    ag_buffer *owners[3];
    ag_tensor x = new_tensor(&owners[0], N, 1), y = new_tensor(&owners[1], N, 2);
    (void)new_tensor(&owners[2], N, 3);
    assert_int_equal(ag_scale(device, &x, 2), AG_OK);
    assert_int_equal(ag_scale(device, &y, 2), AG_OK); /* its address is known from now on */
    const size_t before = forwarder->n_arguments;
    assert_int_equal(ag_scale(device, &x, 2), AG_OK);
    assert_int_equal(forwarder->n_arguments - before, 1);
    ag_buffer_release(&owners[2]);
    assert_int_equal(ag_scale(device, &x, 2), AG_OK);
    assert_int_equal(forwarder->n_arguments - before, 1);
    check_values(owners[0], N, 8);
    check_values(owners[1], N, 4);
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
}

/* The driver does not know which memory a kernel uses. */
static void waits_before_memory_is_released(void **state) {
    (void)state;
    ag_buffer *owner;
    ag_tensor x = new_tensor(&owner, N, 1);
    assert_int_equal(ag_scale(device, &x, 2), AG_OK);
    const size_t before = forwarder->n_finishes;
    ag_buffer_release(&owner);
    assert_int_equal(forwarder->n_finishes - before, 1);
}

int main(void) {
    ag_error err;
    ag_backend_params params = {.name = "opencl"};
    const int unfit = open_forwarded(AG_FORWARDER, &forwarder, NULL);
    if (unfit) return unfit;
    setenv("AG_OPENCL_ADDRESSES", "1", 1);
    if (ag_backend_create(&params, &device, &err) != AG_OK) {
        print_error("%s\n", err.msg);
        return EXIT_FAILURE;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_new_buffers_in_the_place_of_old_ones),
        cmocka_unit_test(sets_only_the_address),
        cmocka_unit_test(waits_before_memory_is_released),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(device);
    return failed;
}
