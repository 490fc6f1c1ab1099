/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/rows.cl: operations on independent rows or elements. */
#include "backend/opencl/ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>
#include <stdio.h>

static const char file[] = "rows.cl";
enum { WG = 64 }; /* as in the file */

/* Work-items for a long row on GPUs, where few of them are bound by latency. */
enum { LONG_WG = 256, LONG_ROW = 1024 };

static size_t row_group(const ag_cl_backend *cl, size_t cols) {
    return cl->is_gpu && cols >= LONG_ROW && cl->device.max_group >= LONG_WG ? LONG_WG : WG;
}

/* Begins a launch with a work-group for each row, or (cols 0) a work-item for each element. */
static ag_status begin_rows(ag_cl_launch *l, ag_backend *b, const char *kernel, size_t cols) {
    ag_cl_backend *cl = ag_cl_of(b);
    char options[96];
    snprintf(options, sizeof options, "-DWG=%zu%s", row_group(cl, cols),
             ag_cl_vendor_sums(&cl->vendor));
    return ag_cl_begin(l, cl, file, kernel, options);
}

static ag_status each_row(ag_cl_launch *l, const ag_tensor *x) {
    const size_t wg = row_group(l->cl, ag_shape_cols(&x->shape));
    return ag_cl_enqueue(l, 1, (size_t[]){ag_shape_rows(&x->shape) * wg}, (size_t[]){wg});
}

/* Enqueues a work-item for each element. */
static ag_status each_element(ag_cl_launch *l, size_t n) {
    return ag_cl_enqueue(l, 1, (size_t[]){ag_cl_items(n, WG)}, (size_t[]){WG});
}

/* Normalises x, with `add` x + add, which is stored in x. */
static ag_status norm(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *add,
                      const ag_tensor *w, float eps) {
    enum { ALIGN = 16 };
    const size_t cols = ag_shape_cols(&x->shape);
    const bool packs =
        add && (x->offset | add->offset | w->offset) % ALIGN == 0 && ag_cl_packs(ag_cl_of(b), y);
    if (!ag_shape_numel(&x->shape)) return AG_OK;
    ag_cl_launch l;
    if (packs) AG_TRY(ag_cl_begin_pack(&l, ag_cl_of(b), "add_rms_norm_pack", y, ""));
    else AG_TRY(begin_rows(&l, b, add ? "add_rms_norm" : "rms_norm", cols));
    AG_CL_ARG_TENSORS(&l, y, x);
    if (add) ag_cl_arg_tensor(&l, add);
    ag_cl_arg_tensor(&l, w);
    ag_cl_arg_u32(&l, (uint32_t)cols);
    ag_cl_arg_f32(&l, eps);
    return packs ? ag_cl_finish_pack(&l, y) : each_row(&l, x);
}

ag_status ag_cl_rms_norm(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                         float eps) {
    return norm(b, y, x, NULL, w, eps);
}

ag_status ag_cl_add_rms_norm(ag_backend *b, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                             const ag_tensor *w, float eps) {
    return norm(b, y, x, add, w, eps);
}

ag_status ag_cl_softmax(ag_backend *b, ag_tensor *x) {
    if (!ag_shape_numel(&x->shape)) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_rows(&l, b, "softmax", ag_shape_cols(&x->shape)));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    return each_row(&l, x);
}

/* Launches a kernel with two tensors and their number of elements. GPUs move four at a time. */
static ag_status with_pair(ag_backend *b, const char *kernel, ag_tensor *x, const ag_tensor *y) {
    enum { WIDTH = 4, ALIGN = WIDTH * sizeof(float) };
    const ag_cl_backend *cl = ag_cl_of(b);
    const size_t n = ag_shape_numel(&x->shape);
    const bool wide =
        cl->is_gpu && n % WIDTH == 0 && x->offset % ALIGN == 0 && y->offset % ALIGN == 0;
    if (!n) return AG_OK;
    ag_cl_launch l;
    if (wide) AG_TRY(ag_cl_begin(&l, ag_cl_of(b), file, kernel, "-DWIDTH=4"));
    else AG_TRY(begin_rows(&l, b, kernel, 0));
    AG_CL_ARG_TENSORS(&l, x, y);
    ag_cl_arg_u64(&l, wide ? n / WIDTH : n);
    return each_element(&l, wide ? n / WIDTH : n);
}

ag_status ag_cl_add_assign(ag_backend *b, ag_tensor *x, const ag_tensor *y) {
    return with_pair(b, "add_assign", x, y);
}

static ag_status gate(ag_backend *b, ag_tensor *a, const ag_tensor *x, bool gelu) {
    if (x->offset % 16 || !ag_cl_packs(ag_cl_of(b), a)) {
        return with_pair(b, gelu ? "gelu_mul" : "silu_mul", a, x);
    }
    ag_cl_launch l;
    AG_TRY(ag_cl_begin_pack(&l, ag_cl_of(b), "gate_pack", a, gelu ? " -DGELU=1" : ""));
    AG_CL_ARG_TENSORS(&l, a, x);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&a->shape));
    return ag_cl_finish_pack(&l, a);
}

ag_status ag_cl_silu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    return gate(b, a, x, false);
}

ag_status ag_cl_gelu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    return gate(b, a, x, true);
}

ag_status ag_cl_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    return with_pair(b, "multiply", a, x);
}

ag_status ag_cl_sigmoid_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    return with_pair(b, "sigmoid_mul", a, x);
}

ag_status ag_cl_add_bias(ag_backend *b, ag_tensor *x, const ag_tensor *bias) {
    const size_t n = ag_shape_numel(&x->shape);
    if (!n) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_rows(&l, b, "add_bias", 0));
    AG_CL_ARG_TENSORS(&l, x, bias);
    ag_cl_arg_u64(&l, n);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    return each_element(&l, n);
}

/* Launches a kernel with a tensor, its number of elements and a number. */
static ag_status with_number(ag_backend *b, const char *kernel, ag_tensor *x, float v) {
    const size_t n = ag_shape_numel(&x->shape);
    if (!n) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_rows(&l, b, kernel, 0));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u64(&l, n);
    ag_cl_arg_f32(&l, v);
    return each_element(&l, n);
}

ag_status ag_cl_scale(ag_backend *b, ag_tensor *x, float v) {
    return with_number(b, "scale", x, v);
}

ag_status ag_cl_softcap(ag_backend *b, ag_tensor *x, float cap) {
    return with_number(b, "softcap", x, cap);
}

/* Rotates x and k (may be NULL). Each row of the launch has the pairs of x, then those of k. */
static ag_status rotate(ag_backend *b, ag_tensor *x, ag_tensor *k, const uint32_t *positions,
                        const ag_tensor *inv_freq, float factor) {
    const size_t heads = x->shape.dim[1], more = k ? k->shape.dim[1] : 0;
    const size_t dim = x->shape.dim[2], half = ag_shape_numel(&inv_freq->shape);
    const size_t n = x->shape.dim[0], pairs = (heads + more) * half;
    if (!n || !pairs) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_rows(&l, b, "rope", 0));
    AG_CL_ARG_TENSORS(&l, x, k ? k : x);
    ag_cl_arg_staged(&l, positions, n * sizeof *positions);
    ag_cl_arg_staged(&l, ag_tensor_f32(inv_freq), half * sizeof(float));
    AG_CL_ARG_U32S(&l, heads, more, half, dim);
    ag_cl_arg_f32(&l, factor);
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(pairs, WG), n}, (size_t[]){WG, 1});
}

ag_status ag_cl_rope(ag_backend *b, ag_tensor *x, const uint32_t *positions,
                     const ag_tensor *inv_freq, float factor) {
    return rotate(b, x, NULL, positions, inv_freq, factor);
}

ag_status ag_cl_rope_pair(ag_backend *b, ag_tensor *q, ag_tensor *k, const uint32_t *positions,
                          const ag_tensor *inv_freq, float factor) {
    return rotate(b, q, k, positions, inv_freq, factor);
}

ag_status ag_cl_hadamard(ag_backend *b, ag_tensor *x) {
    const size_t n = ag_shape_numel(&x->shape), piece = ag_hadamard_piece(ag_shape_cols(&x->shape));
    if (!n) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_rows(&l, b, "hadamard", 0));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u64(&l, n);
    ag_cl_arg_u32(&l, (uint32_t)piece);
    ag_cl_arg_f32(&l, 1 / sqrtf((float)piece));
    return each_element(&l, n);
}
