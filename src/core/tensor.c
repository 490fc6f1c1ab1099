/* SPDX-License-Identifier: Apache-2.0 */
#include "core/fail.h"

#include <antigravity/tensor.h>

enum { SHAPE_TEXT = 96 };

/* Returns 0 if the shape is impossible in this dtype or overflows. */
static size_t bytes_of(ag_dtype dtype, const ag_shape *shape) {
    size_t rows = ag_shape_rows(shape);
    size_t row_bytes = ag_dtype_row_bytes(dtype, ag_shape_cols(shape));
    if (row_bytes == 0 || rows > SIZE_MAX / row_bytes) return 0;
    return rows * row_bytes;
}

size_t ag_tensor_bytes(const ag_tensor *t) { return bytes_of(t->dtype, &t->shape); }

/* Checks that a tensor has at least one element and a size that fits size_t. */
static ag_status check_shape(ag_dtype dtype, const ag_shape *shape, ag_error *err) {
    if ((unsigned)dtype >= AG_DTYPE_COUNT) {
        return AG_FAIL(err, DTYPE, "unknown dtype %d; there are %d", (int)dtype,
                       (int)AG_DTYPE_COUNT);
    }
    if (shape->n_dims < 1 || shape->n_dims > AG_MAX_DIMS) {
        return AG_FAIL(err, SHAPE, "the tensor has %d dims; it must have 1 to %d", shape->n_dims,
                       AG_MAX_DIMS);
    }
    if (bytes_of(dtype, shape) > 0) return AG_OK;
    char text[SHAPE_TEXT];
    ag_shape_format(shape, text, sizeof text);
    size_t cols = ag_shape_cols(shape), block = ag_dtype_block(dtype);
    if (ag_shape_numel(shape) == 0) return AG_FAIL(err, SHAPE, "%s has no elements", text);
    if (cols % block != 0) {
        return AG_FAIL(err, SHAPE,
                       "%s: rows of %zu are not a multiple of the block of %s, which is %zu", text,
                       cols, ag_dtype_name(dtype), block);
    }
    return AG_FAIL(err, SHAPE, "%s in %s overflows %zu bytes", text, ag_dtype_name(dtype),
                   (size_t)SIZE_MAX);
}

ag_status ag_tensor_make(ag_tensor *out, ag_dtype dtype, ag_shape shape, ag_buffer *buffer,
                         size_t offset, ag_error *err) {
    AG_TRY(check_shape(dtype, &shape, err));
    size_t bytes = bytes_of(dtype, &shape), size = ag_buffer_size(buffer);
    if (offset > size || bytes > size - offset) {
        char text[SHAPE_TEXT];
        return AG_FAIL(err, SHAPE, "%s in %s at byte %zu needs %zu bytes, but the buffer has %zu",
                       ag_shape_format(&shape, text, sizeof text), ag_dtype_name(dtype), offset,
                       bytes, size);
    }
    *out = (ag_tensor){.dtype = dtype, .shape = shape, .offset = offset, .buffer = buffer};
    return AG_OK;
}

ag_status ag_tensor_alloc(ag_tensor *out, ag_buffer **owner, ag_memory *mem, ag_usage usage,
                          ag_dtype dtype, ag_shape shape, ag_error *err) {
    *owner = NULL;
    AG_TRY(check_shape(dtype, &shape, err));
    AG_TRY(ag_memory_alloc(mem, bytes_of(dtype, &shape), usage, owner, err));
    *out = (ag_tensor){.dtype = dtype, .shape = shape, .buffer = *owner};
    return AG_OK;
}

static ag_status check_plain(const ag_tensor *t, ag_error *err) {
    if (t->layout == 0) return AG_OK;
    return AG_FAIL(err, INVALID, "cannot make a view of a prepared weight (layout %u, not 0)",
                   (unsigned)t->layout);
}

ag_status ag_tensor_rows(ag_tensor *out, const ag_tensor *t, size_t row0, size_t n, ag_error *err) {
    AG_TRY(check_plain(t, err));
    size_t rows = ag_shape_rows(&t->shape), cols = ag_shape_cols(&t->shape);
    if (n == 0 || row0 > rows || n > rows - row0) {
        char text[SHAPE_TEXT];
        return AG_FAIL(err, SHAPE, "%zu rows from row %zu of %s, which has %zu", n, row0,
                       ag_shape_format(&t->shape, text, sizeof text), rows);
    }
    ag_tensor view = *t;
    view.shape = ag_shape_2d(n, cols);
    view.offset += row0 * ag_dtype_row_bytes(t->dtype, cols);
    *out = view;
    return AG_OK;
}

ag_status ag_tensor_reshape(ag_tensor *out, const ag_tensor *t, ag_shape shape, ag_error *err) {
    AG_TRY(check_plain(t, err));
    AG_TRY(check_shape(t->dtype, &shape, err));
    if (ag_shape_numel(&shape) != ag_shape_numel(&t->shape)) {
        char was[SHAPE_TEXT], will[SHAPE_TEXT];
        return AG_FAIL(err, SHAPE, "%s has %zu elements, %s has %zu",
                       ag_shape_format(&t->shape, was, sizeof was), ag_shape_numel(&t->shape),
                       ag_shape_format(&shape, will, sizeof will), ag_shape_numel(&shape));
    }
    ag_tensor view = *t;
    view.shape = shape;
    *out = view;
    return AG_OK;
}

void *ag_tensor_data(const ag_tensor *t) {
    unsigned char *p = ag_buffer_map(t->buffer);
    return p ? p + t->offset : NULL;
}

/* Returns NULL for data that is not aligned: tensors of a file may start at any byte. */
static void *aligned_data(const ag_tensor *t, size_t alignment) {
    void *p = ag_tensor_data(t);
    return (uintptr_t)p % alignment == 0 ? p : NULL;
}

float *ag_tensor_f32(const ag_tensor *t) {
    return t->dtype == AG_F32 ? aligned_data(t, _Alignof(float)) : NULL;
}

uint16_t *ag_tensor_f16(const ag_tensor *t) {
    bool half = t->dtype == AG_F16 || t->dtype == AG_BF16;
    return half ? aligned_data(t, _Alignof(uint16_t)) : NULL;
}

int32_t *ag_tensor_i32(const ag_tensor *t) {
    return t->dtype == AG_I32 ? aligned_data(t, _Alignof(int32_t)) : NULL;
}

uint8_t *ag_tensor_u8(const ag_tensor *t) { return t->dtype == AG_U8 ? ag_tensor_data(t) : NULL; }
