/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"
#include "quant/quant.h"

void ag_kv_load__common(ag_dtype type, float *dst, const void *src, size_t n) {
    ag_dequantize_row(type, dst, src, n);
}

bool ag_kv_store__common(ag_dtype type, void *dst, const float *src, size_t n) {
    return ag_quantize_row(type, dst, src, n, AG_ROUND_KV, NULL) == AG_OK;
}
