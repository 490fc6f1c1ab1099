/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/vec.h"

#include "backend/cpu/simd/kv_rows.h"

void ag_kv_load__neon(ag_dtype type, float *dst, const void *src, size_t n) {
    load_row(type, dst, src, n);
}

bool ag_kv_store__neon(ag_dtype type, void *dst, const float *src, size_t n) {
    return store_row(type, dst, src, n);
}
