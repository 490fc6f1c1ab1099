/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of floats in a chosen memory, for tests of operations. */
#ifndef TEST_FLOAT_TENSOR_H
#define TEST_FLOAT_TENSOR_H

#include <antigravity/tensor.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* Returns a matrix with the values, or of zeros if they are NULL. Release *owner. */
static inline ag_tensor float_tensor(ag_memory *memory, ag_buffer **owner, const float *values,
                                     size_t rows, size_t cols) {
    ag_tensor t;
    ag_error err;
    const size_t bytes = rows * cols * sizeof *values;
    assert_int_equal(
        ag_tensor_alloc(&t, owner, memory, AG_USAGE_SCRATCH, AG_F32, ag_shape_2d(rows, cols), &err),
        AG_OK);
    if (values) assert_int_equal(ag_buffer_upload(*owner, 0, values, bytes, &err), AG_OK);
    return t;
}

#endif
