/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/galloc.h"
#include "support/failing_allocator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int make_memory(void **state) {
    ag_memory *mem;
    int failed = ag_galloc_create(&mem, NULL) != AG_OK;
    *state = mem;
    return failed;
}

static int drop_memory(void **state) {
    assert_int_equal(ag_memory_bytes_in_use(*state), 0);
    ag_galloc_destroy(*state);
    return 0;
}

static void shape_products_do_not_overflow(void **state) {
    (void)state;
    ag_shape s = ag_shape_3d(2, 3, 5), none = {0}, huge = ag_shape_2d(SIZE_MAX / 2, 3);
    assert_int_equal(ag_shape_numel(&s), 30);
    assert_int_equal(ag_shape_rows(&s), 6);
    assert_int_equal(ag_shape_cols(&s), 5);
    assert_int_equal(ag_shape_numel(&none), 0);
    assert_int_equal(ag_shape_cols(&none), 0);
    assert_true(ag_shape_numel(&huge) == SIZE_MAX);
    ag_shape with_zero = ag_shape_4d(SIZE_MAX, SIZE_MAX, 0, 7);
    assert_int_equal(ag_shape_numel(&with_zero), 0);
    ag_shape vector = ag_shape_1d(7), row = ag_shape_2d(1, 7);
    assert_int_equal(ag_shape_rows(&vector), 1);
    assert_false(ag_shape_equal(&vector, &row));
    assert_true(ag_shape_equal(&row, &row));
}

static void formats_shapes_as_lists(void **state) {
    (void)state;
    char text[32], tiny[4];
    ag_shape s = ag_shape_2d(4096, 2048), none = {0};
    assert_string_equal(ag_shape_format(&s, text, sizeof text), "[4096,2048]");
    assert_string_equal(ag_shape_format(&s, tiny, sizeof tiny), "[40");
    assert_string_equal(ag_shape_format(&none, text, sizeof text), "[]");
    ag_shape large = ag_shape_4d(SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX);
    char whole[96];
    assert_int_equal(strlen(ag_shape_format(&large, whole, sizeof whole)), 4 * 20 + 5);
}

static void rejects_tensors_beyond_their_buffer(void **state) {
    ag_buffer *buf;
    assert_int_equal(ag_memory_alloc(*state, 1000, AG_USAGE_SCRATCH, &buf, NULL), AG_OK);
    ag_tensor t;
    ag_error err;
    assert_int_equal(ag_tensor_make(&t, AG_F32, ag_shape_2d(10, 25), buf, 0, &err), AG_OK);
    assert_int_equal(ag_tensor_bytes(&t), 1000);
    assert_int_equal(ag_tensor_make(&t, AG_F32, ag_shape_2d(10, 25), buf, 1, &err), AG_SHAPE);
    assert_non_null(strstr(err.msg, "[10,25]"));
    assert_non_null(strstr(err.msg, "1000"));
    assert_int_equal(ag_tensor_make(&t, AG_U8, ag_shape_1d(1), buf, 1001, &err), AG_SHAPE);
    assert_int_equal(ag_tensor_make(&t, AG_U8, ag_shape_1d(1), buf, SIZE_MAX, &err), AG_SHAPE);
    assert_int_equal(ag_tensor_make(&t, AG_F32, ag_shape_2d(SIZE_MAX / 2, 3), buf, 0, &err),
                     AG_SHAPE);
    assert_non_null(strstr(err.msg, "overflows"));
    assert_int_equal(ag_tensor_make(&t, AG_Q4_0, ag_shape_2d(2, 33), buf, 0, &err), AG_SHAPE);
    assert_non_null(strstr(err.msg, "33"));
    assert_int_equal(ag_tensor_make(&t, AG_F32, ag_shape_2d(0, 4), buf, 0, &err), AG_SHAPE);
    assert_int_equal(ag_tensor_make(&t, (ag_dtype)77, ag_shape_1d(4), buf, 0, &err), AG_DTYPE);
    assert_int_equal(ag_tensor_make(&t, AG_U8, (ag_shape){.n_dims = 5}, buf, 0, &err), AG_SHAPE);
    ag_buffer_release(&buf);
}

static void views_share_bytes(void **state) {
    ag_tensor t, rows, flat;
    ag_buffer *owner;
    assert_int_equal(
        ag_tensor_alloc(&t, &owner, *state, AG_USAGE_SCRATCH, AG_F32, ag_shape_3d(2, 3, 4), NULL),
        AG_OK);
    float *x = ag_tensor_f32(&t);
    for (int i = 0; i < 24; i++) x[i] = (float)i;
    assert_int_equal(ag_tensor_rows(&rows, &t, 4, 2, NULL), AG_OK);
    assert_int_equal(rows.shape.dim[0], 2);
    assert_true(ag_tensor_f32(&rows)[0] == 16);
    ag_error err;
    assert_int_equal(ag_tensor_rows(&rows, &t, 4, 3, &err), AG_SHAPE);
    assert_int_equal(ag_tensor_rows(&rows, &t, SIZE_MAX, 1, &err), AG_SHAPE);
    assert_int_equal(ag_tensor_rows(&rows, &t, 0, 0, &err), AG_SHAPE);
    assert_int_equal(ag_tensor_reshape(&flat, &t, ag_shape_1d(24), NULL), AG_OK);
    assert_ptr_equal(ag_tensor_data(&flat), x);
    assert_int_equal(ag_tensor_reshape(&flat, &t, ag_shape_1d(25), &err), AG_SHAPE);
    assert_non_null(strstr(err.msg, "24"));
    t.layout = 3;
    assert_int_equal(ag_tensor_rows(&rows, &t, 0, 1, &err), AG_INVALID);
    ag_buffer_release(&owner);
}

static void block_rows_start_at_blocks(void **state) {
    ag_tensor t, rows;
    ag_buffer *owner;
    assert_int_equal(
        ag_tensor_alloc(&t, &owner, *state, AG_USAGE_SCRATCH, AG_Q4_0, ag_shape_2d(5, 64), NULL),
        AG_OK);
    assert_int_equal(ag_buffer_size(owner), 5 * 36);
    assert_int_equal(ag_tensor_rows(&rows, &t, 3, 1, NULL), AG_OK);
    assert_int_equal(rows.offset, 3 * 36);
    assert_int_equal(ag_tensor_reshape(&rows, &t, ag_shape_2d(20, 16), NULL), AG_SHAPE);
    ag_buffer_release(&owner);
}

static void typed_access_checks_the_type(void **state) {
    ag_tensor t;
    ag_buffer *owner;
    assert_int_equal(
        ag_tensor_alloc(&t, &owner, *state, AG_USAGE_SCRATCH, AG_U8, ag_shape_1d(64), NULL), AG_OK);
    assert_non_null(ag_tensor_u8(&t));
    assert_null(ag_tensor_f32(&t));
    assert_null(ag_tensor_i32(&t));
    assert_null(ag_tensor_f16(&t));
    ag_tensor odd;
    assert_int_equal(ag_tensor_make(&odd, AG_F32, ag_shape_1d(2), owner, 3, NULL), AG_OK);
    assert_null(ag_tensor_f32(&odd));
    assert_non_null(ag_tensor_data(&odd));
    odd.offset = 8;
    assert_non_null(ag_tensor_f32(&odd));
    odd.dtype = AG_BF16;
    assert_non_null(ag_tensor_f16(&odd));
    odd.dtype = AG_I32;
    assert_non_null(ag_tensor_i32(&odd));
    ag_buffer_release(&owner);
}

static void failed_allocation_is_reported(void **state) {
    failing_allocator f;
    for (size_t n = 0;; n++) {
        failing_install(&f, n);
        ag_tensor t;
        ag_buffer *owner = (ag_buffer *)&t;
        ag_status st =
            ag_tensor_alloc(&t, &owner, *state, AG_USAGE_SCRATCH, AG_F32, ag_shape_1d(100), NULL);
        if (st == AG_OK) ag_buffer_release(&owner);
        else assert_int_equal(st, AG_NOMEM);
        assert_null(owner);
        ag_set_allocator(NULL);
        assert_int_equal(f.in_use, 0);
        if (!f.failed) break;
        assert_int_equal(st, AG_NOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_products_do_not_overflow),
        cmocka_unit_test(formats_shapes_as_lists),
        cmocka_unit_test(rejects_tensors_beyond_their_buffer),
        cmocka_unit_test(views_share_bytes),
        cmocka_unit_test(block_rows_start_at_blocks),
        cmocka_unit_test(typed_access_checks_the_type),
        cmocka_unit_test(failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, make_memory, drop_memory);
}
