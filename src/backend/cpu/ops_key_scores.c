/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu_backend.h"
#include "core/fail.h"

typedef struct scores_job {
    const ag_cpu_backend *cpu;
    const ag_kv_view *kv;
    const unsigned char **blocks; /* base address of each */
    float *scores;
    size_t stride;
} scores_job;

/* Heads; which thread has which changes nothing. */
static void score_heads(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const scores_job *job = ctx;
    const ag_kv_view *kv = job->kv;
    for (size_t h = begin; h < end; h++) {
        const size_t row_bytes = ag_dtype_row_bytes(kv->k_type, kv->head_dim);
        const ag_cpu_kv_head head = {.k_type = kv->k_type,
                                     .head_dim = kv->head_dim,
                                     .n_slots = kv->n_slots[h],
                                     .blocks = job->blocks,
                                     .k_offset = h * AG_KV_BLOCK * row_bytes};
        job->cpu->kernels.key_scores(job->scores + h * job->stride, &head,
                                     ag_cpu_thread_scratch(job->cpu, thread));
    }
}

ag_status ag_cpu_key_scores(ag_backend *b, const ag_kv_view *kv, float *scores, size_t stride) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    const size_t width = ag_cpu_value_stride(kv->head_dim);
    AG_TRY(ag_cpu_need_threads(cpu, (AG_KEY_SCORE_ROWS + 1) * width * sizeof(float)));
    AG_TRY(ag_cpu_need_shared(cpu, kv->n_blocks * sizeof(unsigned char *)));
    scores_job job = {cpu, kv, (const unsigned char **)(void *)cpu->scratch.shared, scores, stride};
    for (uint32_t i = 0; i < kv->n_blocks; i++) {
        const ag_kv_block *block = &kv->blocks[i];
        job.blocks[i] = (const unsigned char *)ag_buffer_map(block->buffer) + block->offset;
    }
    ag_pool_run(cpu->pool, kv->n_kv_heads, 1, score_heads, &job);
    return AG_OK;
}
