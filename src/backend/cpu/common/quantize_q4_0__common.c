/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"
#include "quant/quant.h"

size_t ag_quantize_q4_0__common(void *dst, const float *src, size_t n) {
    size_t bad;
    return ag_quantize_row(AG_Q4_0, dst, src, n, AG_ROUND_WEIGHT, &bad) == AG_OK ? n : bad;
}
