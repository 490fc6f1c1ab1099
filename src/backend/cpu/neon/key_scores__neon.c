/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/vec.h"

#include "backend/cpu/simd/key_scores.h"

void ag_key_scores__neon(float *scores, const ag_cpu_kv_head *kv, void *scratch) {
    score_keys(scores, kv, scratch);
}
