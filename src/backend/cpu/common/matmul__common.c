/* SPDX-License-Identifier: Apache-2.0 */
/* Product with any type of weight. Activations are packed as doubles. A row of the weight is
 * converted to double once and multiplied with every row of the panel. */
#include "backend/cpu/common/common.h"
#include "backend/cpu/common/dot.h"
#include "quant/quant.h"

static size_t round_up_64(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t packed_bytes(size_t k) { return round_up_64(k * sizeof(double)); }

/* Returns the bytes of one row of the weight as double, followed by the row as float. */
static size_t scratch_bytes(size_t k) { return packed_bytes(k) + round_up_64(k * sizeof(float)); }

static void widen(double *dst, const float *src, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = src[i];
}

static void pack(void *panel, const float *x, size_t row, size_t m, size_t k) {
    (void)m;
    widen((double *)panel + row * (packed_bytes(k) / sizeof(double)), x, k);
}

static void matmul_rows(float *y, size_t y_stride, const void *packed, size_t m,
                        const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch) {
    const size_t k = w->k, x_stride = packed_bytes(k) / sizeof(double);
    const double *x = packed;
    double *row = scratch;
    float *values = (float *)(void *)((unsigned char *)scratch + packed_bytes(k));
    for (size_t j = 0; j < n_rows; j++) {
        const unsigned char *bytes = (const unsigned char *)w->data + (row0 + j) * w->row_bytes;
        ag_dequantize_row(w->dtype, values, bytes, k);
        widen(row, values, k);
        for (size_t i = 0; i < m; i++) {
            y[i * y_stride + j] = (float)dot(x + i * x_stride, row, k);
        }
    }
}

const ag_cpu_matmul ag_matmul__common = {.packed_bytes = packed_bytes,
                                         .scratch_bytes = scratch_bytes,
                                         .pack = pack,
                                         .rows = matmul_rows};
