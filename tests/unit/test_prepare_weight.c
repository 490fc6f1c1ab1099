/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are quantised already, through the backend's own slot and through its composition.
 */
#include "core/backend_compose.h"
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 5, COLS = 96 };

typedef struct fixture {
    ag_backend *be;
    ag_buffer *source_owner;
    ag_tensor source; /* Q4_0, values that no rounding of their floats gives back */
} fixture;

static int setup(void **state) {
    static fixture f;
    assert_int_equal(ag_backend_create(NULL, &f.be, NULL), AG_OK);
    assert_int_equal(ag_tensor_alloc(&f.source, &f.source_owner, ag_backend_memory(f.be),
                                     AG_USAGE_SCRATCH, AG_Q4_0, ag_shape_2d(ROWS, COLS), NULL),
                     AG_OK);
    ag_block_q4_0 *blocks = ag_tensor_data(&f.source);
    for (size_t b = 0; b < ROWS * COLS / AG_QK; b++) {
        blocks[b].d = ag_f32_to_f16(0.25f + (float)b);
        for (size_t i = 0; i < sizeof blocks[b].qs; i++) {
            blocks[b].qs[i] = (uint8_t)(0x66 + (b + i) % 3); /* -2 .. 0: far from the extremes */
        }
    }
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    ag_buffer_release(&f->source_owner);
    ag_backend_destroy(f->be);
    return 0;
}

static void composition_copies_blocks_of_equal_type(void **state) {
    fixture *f = *state;
    ag_tensor w;
    ag_buffer *owner;
    assert_int_equal(ag_compose_prepare_weight(f->be, &w, &owner, &f->source, AG_Q4_0, NULL, NULL),
                     AG_OK);
    assert_int_equal(w.dtype, AG_Q4_0);
    assert_memory_equal(ag_tensor_data(&w), ag_tensor_data(&f->source),
                        ag_tensor_bytes(&f->source));
    ag_buffer_release(&owner);
}

/* Row r of the product with the i-th unit vector is w[r][i], whatever the layout. */
static void cpu_backend_preserves_blocks_of_equal_type(void **state) {
    fixture *f = *state;
    ag_tensor w, x, y;
    ag_buffer *owner, *x_owner, *y_owner;
    ag_memory *mem = ag_backend_memory(f->be);
    float values[ROWS * COLS];
    ag_dequantize_row(AG_Q4_0, values, ag_tensor_data(&f->source), ROWS * COLS);
    assert_int_equal(ag_prepare_weight(f->be, &w, &owner, &f->source, AG_Q4_0, NULL, NULL), AG_OK);
    assert_int_equal(w.dtype, AG_Q4_0);
    assert_int_equal(
        ag_tensor_alloc(&x, &x_owner, mem, AG_USAGE_SCRATCH, AG_F32, ag_shape_2d(COLS, COLS), NULL),
        AG_OK);
    assert_int_equal(
        ag_tensor_alloc(&y, &y_owner, mem, AG_USAGE_SCRATCH, AG_F32, ag_shape_2d(COLS, ROWS), NULL),
        AG_OK);
    for (size_t i = 0; i < COLS; i++) ag_tensor_f32(&x)[i * COLS + i] = 127; /* a round scale */
    assert_int_equal(ag_matmul_transposed(f->be, &y, &x, &w), AG_OK);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < COLS; i++) {
            assert_float_equal(ag_tensor_f32(&y)[i * ROWS + r], 127 * values[r * COLS + i], 0);
        }
    }
    ag_buffer_release(&y_owner);
    ag_buffer_release(&x_owner);
    ag_buffer_release(&owner);
}

static void rejects_requantisation(void **state) {
    fixture *f = *state;
    ag_tensor w;
    ag_buffer *owner;
    assert_int_equal(ag_prepare_weight(f->be, &w, &owner, &f->source, AG_Q8_0, NULL, NULL),
                     AG_DTYPE);
    assert_null(owner);
    assert_non_null(strstr(ag_backend_error(f->be)->msg, "q4_0"));
}

static void converts_quantised_weights_to_floats(void **state) {
    fixture *f = *state;
    ag_tensor w;
    ag_buffer *owner;
    assert_int_equal(ag_prepare_weight(f->be, &w, &owner, &f->source, AG_F32, NULL, NULL), AG_OK);
    float *values = malloc(ROWS * COLS * sizeof *values);
    assert_non_null(values);
    ag_dequantize_row(AG_Q4_0, values, ag_tensor_data(&f->source), ROWS * COLS);
    assert_memory_equal(ag_tensor_data(&w), values, ROWS * COLS * sizeof *values);
    free(values);
    ag_buffer_release(&owner);
}

static void rejects_a_nan_scale(void **state) {
    fixture *f = *state;
    ag_tensor w;
    ag_buffer *owner;
    ag_block_q4_0 *blocks = ag_tensor_data(&f->source);
    const uint16_t before = blocks[4].d;
    blocks[4].d = 0x7e00;
    assert_int_equal(ag_prepare_weight(f->be, &w, &owner, &f->source, AG_Q4_0, NULL, NULL),
                     AG_FORMAT);
    assert_null(owner);
    assert_int_equal(ag_compose_prepare_weight(f->be, &w, &owner, &f->source, AG_Q4_0, NULL, NULL),
                     AG_FORMAT);
    assert_null(owner);
    blocks[4].d = before;
}

static bool only_two(void *user, size_t row0, size_t n_rows) {
    size_t *seen = user;
    *seen += n_rows;
    return row0 + n_rows < 2;
}

static void consumed_callback_cancels(void **state) {
    fixture *f = *state;
    ag_tensor w;
    ag_buffer *owner;
    size_t seen = 0;
    assert_int_equal(
        ag_compose_prepare_weight(f->be, &w, &owner, &f->source, AG_Q4_0, only_two, &seen),
        AG_CANCELLED);
    assert_null(owner);
    assert_int_equal(seen, 2);
    assert_int_equal(ag_prepare_weight(f->be, &w, &owner, &f->source, AG_Q4_0, only_two, &seen),
                     AG_CANCELLED);
    assert_null(owner);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composition_copies_blocks_of_equal_type),
        cmocka_unit_test(cpu_backend_preserves_blocks_of_equal_type),
        cmocka_unit_test(rejects_requantisation),
        cmocka_unit_test(converts_quantised_weights_to_floats),
        cmocka_unit_test(rejects_a_nan_scale),
        cmocka_unit_test(consumed_callback_cancels),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
