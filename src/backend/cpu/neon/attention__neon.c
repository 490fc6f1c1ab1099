/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"
#include "backend/cpu/neon/words.h"

#include "backend/cpu/simd/window_scores.h"

size_t ag_attention_scratch_bytes__neon(uint32_t head_dim, uint32_t n_queries) {
    return scratch_bytes(head_dim, n_queries);
}

size_t ag_kept_floats__neon(uint32_t n_queries) { return kept_floats(n_queries); }

void ag_attention__neon(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                        const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch) {
    attend(out, queries, kv, slot0, scratch);
}

void ag_attention_merge__neon(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                              size_t head_dim) {
    merge(into, from, n, head_dim);
}

void ag_attention_scores__neon(float *scores, const ag_cpu_queries *queries,
                               const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                               const float *sum, float *kept, void *scratch) {
    add_scores(scores, queries, kv, slot0, max, sum, kept, scratch);
}

void ag_window_scores__neon(float *scores, const ag_cpu_queries *queries, const ag_cpu_kv_head *kv,
                            uint32_t slot0, float *weights, void *scratch) {
    score_window(scores, queries, kv, slot0, weights, scratch);
}
