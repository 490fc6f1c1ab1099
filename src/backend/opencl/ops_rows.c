/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/rows.cl: operations on independent rows or elements. */
#include "backend/opencl/ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>
#include <stdio.h>

static const char file[] = "rows.cl";
enum { WG = 64 }; /* as in the file */

static ag_status begin_launch(ag_cl_launch *l, ag_backend *b, const char *kernel) {
    ag_cl_backend *cl = ag_cl_of(b);
    return ag_cl_begin(l, cl, file, kernel, ag_cl_vendor_sums(&cl->vendor));
}

/* Enqueues a work-group for each row. */
static ag_status each_row(ag_cl_launch *l, size_t n_rows) {
    return ag_cl_enqueue(l, 1, (size_t[]){n_rows * WG}, (size_t[]){WG});
}

/* Work-items for the norm of a long row on GPUs, where few of them are bound by latency. */
enum { LONG_WG = 256, LONG_ROW = 1024 };

static size_t norm_group(const ag_cl_backend *cl, size_t cols) {
    return cl->is_gpu && cols >= LONG_ROW && cl->device.max_group >= LONG_WG ? LONG_WG : WG;
}

/* Begins a launch of a norm of rows. */
static ag_status begin_norm(ag_cl_launch *l, ag_backend *b, const char *kernel, size_t cols) {
    ag_cl_backend *cl = ag_cl_of(b);
    char options[96];
    snprintf(options, sizeof options, "-DWG=%zu%s", norm_group(cl, cols),
             ag_cl_vendor_sums(&cl->vendor));
    return ag_cl_begin(l, cl, file, kernel, options);
}

static ag_status each_norm(ag_cl_launch *l, const ag_tensor *x) {
    const size_t wg = norm_group(l->cl, ag_shape_cols(&x->shape));
    return ag_cl_enqueue(l, 1, (size_t[]){ag_shape_rows(&x->shape) * wg}, (size_t[]){wg});
}

/* Enqueues a work-item for each element. */
static ag_status each_element(ag_cl_launch *l, size_t n) {
    return ag_cl_enqueue(l, 1, (size_t[]){ag_cl_items(n, WG)}, (size_t[]){WG});
}

ag_status ag_cl_rms_norm(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                         float eps) {
    if (!ag_shape_numel(&x->shape)) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_norm(&l, b, "rms_norm", ag_shape_cols(&x->shape)));
    ag_cl_arg_tensor(&l, y);
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_tensor(&l, w);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    ag_cl_arg_f32(&l, eps);
    return each_norm(&l, x);
}

ag_status ag_cl_add_rms_norm(ag_backend *b, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                             const ag_tensor *w, float eps) {
    enum { ALIGN = 16 };
    const bool aligned = !((x->offset | add->offset | w->offset) % ALIGN);
    if (!ag_shape_numel(&x->shape)) return AG_OK;
    if (aligned && ag_cl_packs(ag_cl_of(b), y)) {
        return ag_cl_add_rms_norm_pack(ag_cl_of(b), y, x, add, w, eps);
    }
    ag_cl_launch l;
    AG_TRY(begin_norm(&l, b, "add_rms_norm", ag_shape_cols(&x->shape)));
    ag_cl_arg_tensor(&l, y);
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_tensor(&l, add);
    ag_cl_arg_tensor(&l, w);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    ag_cl_arg_f32(&l, eps);
    return each_norm(&l, x);
}

ag_status ag_cl_softmax(ag_backend *b, ag_tensor *x) {
    if (!ag_shape_numel(&x->shape)) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_launch(&l, b, "softmax"));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    return each_row(&l, ag_shape_rows(&x->shape));
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
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), file, kernel, wide ? "-DWIDTH=4" : NULL));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_tensor(&l, y);
    ag_cl_arg_u64(&l, wide ? n / WIDTH : n);
    return each_element(&l, wide ? n / WIDTH : n);
}

ag_status ag_cl_add_assign(ag_backend *b, ag_tensor *x, const ag_tensor *y) {
    return with_pair(b, "add_assign", x, y);
}

static ag_status gate(ag_backend *b, ag_tensor *a, const ag_tensor *x, bool gelu) {
    if (x->offset % 16 == 0 && ag_cl_packs(ag_cl_of(b), a)) {
        return ag_cl_gate_pack(ag_cl_of(b), a, x, gelu);
    }
    return with_pair(b, gelu ? "gelu_mul" : "silu_mul", a, x);
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
    AG_TRY(begin_launch(&l, b, "add_bias"));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_tensor(&l, bias);
    ag_cl_arg_u64(&l, n);
    ag_cl_arg_u32(&l, (uint32_t)ag_shape_cols(&x->shape));
    return each_element(&l, n);
}

/* Launches a kernel with a tensor, its number of elements and a number. */
static ag_status with_number(ag_backend *b, const char *kernel, ag_tensor *x, float v) {
    const size_t n = ag_shape_numel(&x->shape);
    if (!n) return AG_OK;
    ag_cl_launch l;
    AG_TRY(begin_launch(&l, b, kernel));
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
    AG_TRY(begin_launch(&l, b, "rope"));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_tensor(&l, k ? k : x);
    ag_cl_arg_staged(&l, positions, n * sizeof *positions);
    ag_cl_arg_staged(&l, ag_tensor_f32(inv_freq), half * sizeof(float));
    ag_cl_arg_u32(&l, (uint32_t)heads);
    ag_cl_arg_u32(&l, (uint32_t)more);
    ag_cl_arg_u32(&l, (uint32_t)half);
    ag_cl_arg_u32(&l, (uint32_t)dim);
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
    AG_TRY(begin_launch(&l, b, "hadamard"));
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u64(&l, n);
    ag_cl_arg_u32(&l, (uint32_t)piece);
    ag_cl_arg_f32(&l, 1 / sqrtf((float)piece));
    return each_element(&l, n);
}
