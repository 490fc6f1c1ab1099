/* SPDX-License-Identifier: Apache-2.0 */
/* Activations are packed as doubles; a row of the weight is converted to double once and multiplied
 * with every row of the panel. */
#include "backend/cpu/common/common.h"
#include "backend/cpu/common/dot.h"
#include "quant/quant.h"

static size_t round_up_64(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t packed_bytes(size_t k) { return round_up_64(k * sizeof(double)); }

/* One row of the weight: as double, behind it as float. */
static size_t scratch_bytes(size_t k) { return packed_bytes(k) + round_up_64(k * sizeof(float)); }

static void widen(double *dst, const float *src, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = src[i];
}

static void pack(void *panel, const float *x, size_t row, size_t m, size_t k) {
    (void)m;
    widen((double *)panel + row * (packed_bytes(k) / sizeof(double)), x, k);
}

static void matmul_rows(ag_dtype dtype, float *y, size_t y_stride, const void *packed, size_t m,
                        const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const size_t k = w->k, x_stride = packed_bytes(k) / sizeof(double);
    const double *x = packed;
    double *row = scratch;
    float *values = (float *)(void *)((unsigned char *)scratch + packed_bytes(k));
    for (size_t j = 0; j < n_rows; j++) {
        const unsigned char *bytes = (const unsigned char *)w->data + (row0 + j) * w->row_bytes;
        ag_dequantize_row(dtype, values, bytes, k);
        widen(row, values, k);
        for (size_t i = 0; i < m; i++) {
            y[i * y_stride + j] = (float)dot(x + i * x_stride, row, k);
        }
    }
}

static void rows_f32(float *y, size_t y_stride, const void *packed, size_t m,
                     const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    matmul_rows(AG_F32, y, y_stride, packed, m, w, row0, n_rows, scratch);
}

static void rows_f16(float *y, size_t y_stride, const void *packed, size_t m,
                     const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    matmul_rows(AG_F16, y, y_stride, packed, m, w, row0, n_rows, scratch);
}

static void rows_bf16(float *y, size_t y_stride, const void *packed, size_t m,
                      const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    matmul_rows(AG_BF16, y, y_stride, packed, m, w, row0, n_rows, scratch);
}

static void rows_q4_0(float *y, size_t y_stride, const void *packed, size_t m,
                      const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    matmul_rows(AG_Q4_0, y, y_stride, packed, m, w, row0, n_rows, scratch);
}

static void rows_q4_1(float *y, size_t y_stride, const void *packed, size_t m,
                      const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    matmul_rows(AG_Q4_1, y, y_stride, packed, m, w, row0, n_rows, scratch);
}

static void rows_q8_0(float *y, size_t y_stride, const void *packed, size_t m,
                      const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    matmul_rows(AG_Q8_0, y, y_stride, packed, m, w, row0, n_rows, scratch);
}

const ag_cpu_matmul ag_matmul_f32__common = {
    .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes, .pack = pack, .rows = rows_f32};
const ag_cpu_matmul ag_matmul_f16__common = {
    .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes, .pack = pack, .rows = rows_f16};
const ag_cpu_matmul ag_matmul_bf16__common = {
    .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes, .pack = pack, .rows = rows_bf16};
const ag_cpu_matmul ag_matmul_q4_0__common = {
    .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes, .pack = pack, .rows = rows_q4_0};
const ag_cpu_matmul ag_matmul_q4_1__common = {
    .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes, .pack = pack, .rows = rows_q4_1};
const ag_cpu_matmul ag_matmul_q8_0__common = {
    .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes, .pack = pack, .rows = rows_q8_0};
