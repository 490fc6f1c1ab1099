/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kv_head.h"
#include "core/fail.h"

typedef struct scores_job {
    const ag_cpu_backend *cpu;
    const ag_kv_view *kv;
    const unsigned char **blocks; /* [kv_heads][n_blocks] base addresses */
    size_t n_blocks;              /* blocks of the longest head */
    float *scores;
    size_t stride;
} scores_job;

/* Scores heads [begin, end). The result does not depend on the division among threads. */
static void score_heads(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const scores_job *job = ctx;
    const ag_kv_view *kv = job->kv;
    for (size_t h = begin; h < end; h++) {
        ag_cpu_map_blocks(job->blocks + h * job->n_blocks, kv, h);
        const ag_cpu_kv_head head = kv_head_of(kv, h, job->blocks, job->n_blocks);
        job->cpu->kernels.key_scores(job->scores + h * job->stride, &head,
                                     ag_cpu_thread_scratch(job->cpu, thread));
    }
}

ag_status ag_cpu_key_scores(ag_backend *b, const ag_kv_view *kv, float *scores, size_t stride) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    const size_t width = ag_cpu_value_stride(kv->head_dim);
    AG_TRY(ag_cpu_need_threads(cpu, (AG_KEY_SCORE_ROWS + 1) * width * sizeof(float)));
    const size_t n_blocks = ag_kv_blocks_for(ag_kv_view_max_slots(kv));
    AG_TRY(ag_cpu_need_shared(cpu, kv->n_kv_heads * n_blocks * sizeof(unsigned char *)));
    scores_job job = {cpu,      kv,     (const unsigned char **)(void *)cpu->scratch.shared,
                      n_blocks, scores, stride};
    ag_pool_run(cpu->pool, kv->n_kv_heads, 1, score_heads, &job);
    return AG_OK;
}
