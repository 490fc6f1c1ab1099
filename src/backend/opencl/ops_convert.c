/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of rows. Conversions to F32 run on the device. Others run on the host, because a value
 * may be out of range and the error must name it. */
#include "backend/opencl/ops.h"
#include "core/alloc.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

enum { WG = 64 }; /* as in kernels/convert.cl */
enum { ALIGN = 16 };

/* Enqueues the kernel whose first four arguments, dst and the source, are set. ids NULL: the rows
 * in order. */
static ag_status convert_rows(ag_cl_launch *l, const ag_tensor *dst, ag_dtype from,
                              const int32_t *ids, float scale) {
    const size_t rows = ag_shape_rows(&dst->shape), cols = ag_shape_cols(&dst->shape);
    const int32_t none = 0;
    ag_cl_arg_staged(l, ids ? ids : &none, (ids ? rows : 1) * sizeof *ids);
    AG_CL_ARG_U32S(l, !ids, from, cols);
    ag_cl_arg_f32(l, scale);
    return ag_cl_enqueue(l, 2, (size_t[]){ag_cl_items(cols, WG), rows}, (size_t[]){WG, 1});
}

static ag_status rows_to_floats(ag_backend *b, ag_tensor *dst, const ag_tensor *src,
                                const int32_t *ids) {
    if (!ag_shape_rows(&dst->shape) || !ag_shape_cols(&dst->shape)) return AG_OK;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), "convert.cl", "gather", NULL));
    AG_CL_ARG_TENSORS(&l, dst, src);
    return convert_rows(&l, dst, src->dtype, ids, 1);
}

/* Sends parts of at most half of the ring: a larger ring would have to wait for the queue. */
ag_status ag_cl_upload_rows(ag_backend *b, ag_tensor *dst, ag_dtype src_type, const void *src,
                            float scale) {
    ag_cl_backend *cl = ag_cl_of(b);
    const size_t bytes = ag_dtype_row_bytes(src_type, ag_shape_cols(&dst->shape));
    const size_t rows = bytes ? ag_shape_rows(&dst->shape) : 0;
    const size_t max = bytes < cl->staging.bytes / 2 ? cl->staging.bytes / 2 / bytes : 1;
    for (size_t row = 0; row < rows; row += max) {
        const size_t n = rows - row < max ? rows - row : max;
        ag_tensor part;
        ag_cl_launch l;
        AG_TRY(ag_tensor_rows(&part, dst, row, n, &cl->base.err));
        AG_TRY(ag_cl_begin(&l, cl, "convert.cl", "gather", NULL));
        ag_cl_arg_tensor(&l, &part);
        ag_cl_arg_staged(&l, (const unsigned char *)src + row * bytes, n * bytes);
        AG_TRY(convert_rows(&l, &part, src_type, NULL, scale));
    }
    return AG_OK;
}

ag_status ag_cl_refuse_type(ag_cl_backend *cl, const char *what, ag_dtype type) {
    return AG_FAIL(&cl->base.err, UNSUPPORTED, "the OpenCL backend has no kernels for %s as %s",
                   what, ag_dtype_name(type));
}

ag_status ag_cl_gather(ag_backend *b, ag_tensor *dst, const ag_tensor *table, const int32_t *ids,
                       size_t n) {
    if (!ag_cl_buffer_of(ag_cl_of(b), table->buffer) || !ag_cl_has_kernels(table->dtype)) {
        return ag_compose_gather(b, dst, table, ids, n);
    }
    return rows_to_floats(b, dst, table, ids);
}

/* Converts rows in host memory. values: one row. */
static ag_status cast_rows(ag_backend *b, const ag_tensor *dst, unsigned char *to,
                           const ag_tensor *src, const unsigned char *from, float *values) {
    const size_t cols = ag_shape_cols(&src->shape), rows = ag_shape_rows(&src->shape);
    const size_t from_bytes = ag_dtype_row_bytes(src->dtype, cols);
    const size_t to_bytes = ag_dtype_row_bytes(dst->dtype, cols);
    for (size_t row = 0; row < rows; row++) {
        size_t bad = 0;
        ag_status st =
            ag_convert_row(dst->dtype, to + row * to_bytes, src->dtype, from + row * from_bytes,
                           values, cols, AG_ROUND_REFERENCE, &bad);
        if (st == AG_OK) continue;
        return AG_FAIL(&b->err, FORMAT, "row %zu, column %zu: %g cannot be kept as %s", row, bad,
                       (double)values[bad], ag_dtype_name(dst->dtype));
    }
    return AG_OK;
}

static ag_status cast_on_host(ag_backend *b, ag_tensor *dst, const ag_tensor *src) {
    const size_t from_all = ag_tensor_bytes(src), to_all = ag_tensor_bytes(dst);
    const size_t row = ag_cl_items(ag_shape_cols(&src->shape) * sizeof(float), ALIGN);
    const size_t bytes = row + ag_cl_items(from_all, ALIGN) + to_all;
    if (!from_all) return AG_OK;
    unsigned char *memory = ag_malloc(bytes);
    if (!memory) return AG_FAIL(&b->err, NOMEM, "conversion of %zu bytes on the host", bytes);
    unsigned char *from = memory + row, *to = from + ag_cl_items(from_all, ALIGN);
    ag_status st = ag_buffer_download(from, src->buffer, src->offset, from_all, &b->err);
    if (st == AG_OK) st = cast_rows(b, dst, to, src, from, (float *)(void *)memory);
    if (st == AG_OK) st = ag_buffer_upload(dst->buffer, dst->offset, to, to_all, &b->err);
    ag_free(memory);
    return st;
}

ag_status ag_cl_cast(ag_backend *b, ag_tensor *dst, const ag_tensor *src) {
    const ag_cl_backend *cl = ag_cl_of(b);
    const bool here = ag_cl_buffer_of(cl, dst->buffer) && ag_cl_buffer_of(cl, src->buffer);
    if (dst->dtype == AG_F32 && here && ag_cl_has_kernels(src->dtype))
        return rows_to_floats(b, dst, src, NULL);
    return cast_on_host(b, dst, src);
}
