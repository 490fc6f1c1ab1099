/* SPDX-License-Identifier: Apache-2.0 */
/* Packs activations for products with rows of floats: rows start at a cache line and are padded
 * with zeros. */
#include "backend/cpu/kernels.h"

#include <string.h>

size_t ag_packed_bytes_floats(size_t k) { return ag_floats_row_bytes(k); }

void ag_pack_floats(void *panel, const float *x, size_t row, size_t m, size_t k) {
    (void)m;
    float *to = (float *)panel + row * (ag_floats_row_bytes(k) / sizeof(float));
    memcpy(to, x, k * sizeof *x);
    memset(to + k, 0, ag_floats_row_bytes(k) - k * sizeof *x);
}
