/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/vec.h"

#include "backend/cpu/simd/key_scores.h"

void ag_key_scores__avx512(float *scores, const ag_cpu_kv_head *kv, void *scratch) {
    score_keys(scores, kv, scratch);
}
