/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/pack_x16.h"

void ag_pack_x16__neon(void *panel, const float *x, size_t row, size_t m, size_t k) {
    pack_x16(panel, x, row, m, k, 0);
}
