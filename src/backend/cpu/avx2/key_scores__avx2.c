/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/avx2/vec.h"

#include "backend/cpu/simd/key_scores.h"

void ag_key_scores__avx2(float *scores, const ag_cpu_kv_head *kv, void *scratch) {
    score_keys(scores, kv, scratch);
}
