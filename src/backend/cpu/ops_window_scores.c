/* SPDX-License-Identifier: Apache-2.0 */
/* Attention weights of the slots of windows, without the attention output. Threads take windows of
 * KV heads; the rows of one window are processed in order. */
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kv_head.h"
#include "core/fail.h"

enum { TILE_QUERIES = 64 };

typedef struct windows_job {
    const ag_cpu_backend *cpu;
    const ag_attention_seq *seq;
    const ag_attention_params *params;
    const float *q;
    size_t n_heads, head_dim, group, tile_rows;
    const unsigned char **blocks; /* [kv_heads][n_blocks] base addresses */
    size_t n_blocks;              /* blocks of the longest head */
    size_t n_windows;
    size_t weights_bytes; /* weights in a thread's scratch; the kernel's scratch follows */
} windows_job;

/* Returns the end of the rows that attend to the same slots as `row`. */
static size_t window_end(const ag_attention_seq *seq, size_t row) {
    size_t end = row + 1;
    while (end < seq->n_rows && seq->visible_from[end] == seq->visible_from[row] &&
           seq->visible_until[end] == seq->visible_until[row]) {
        end++;
    }
    return end;
}

bool ag_cpu_scores_windows(const ag_attention_seq *seq) {
    if (!seq->score_only || !seq->scores || seq->score_max || seq->score_row0 || !seq->visible_from)
        return false;
    for (size_t row = 0, end; row < seq->n_rows; row = end) {
        const uint64_t past = (uint64_t)seq->visible_until[row] + 1;
        /* A window that starts at a block's last slot must end before that block's span does. */
        if (past > (uint64_t)seq->visible_from[row] + AG_ATTENTION_SPAN - AG_KV_BLOCK) return false;
        end = window_end(seq, row);
        /* Two threads never write the same slot. */
        if (end < seq->n_rows && seq->visible_from[end] < past) return false;
    }
    return true;
}

static void score_window(const windows_job *job, size_t head, size_t row0, size_t end,
                         uint32_t thread) {
    const ag_attention_seq *seq = job->seq;
    unsigned char *scratch = ag_cpu_thread_scratch(job->cpu, thread);
    const size_t row_stride = job->n_heads * job->head_dim;
    const ag_cpu_kv_head kv = kv_head_of(&seq->kv, head, job->blocks, job->n_blocks);
    const uint32_t slot0 = kv_head_block_from(&kv, seq->visible_from[row0]) * AG_KV_BLOCK;
    for (size_t row = row0; row < end; row += job->tile_rows) {
        const size_t n = end - row < job->tile_rows ? end - row : job->tile_rows;
        const float *q =
            job->q + (seq->row0 + row) * row_stride + head * job->group * job->head_dim;
        const ag_cpu_queries queries = {.q = q,
                                        .row_stride = row_stride,
                                        .visible_until = seq->visible_until + row,
                                        .visible_from = seq->visible_from + row,
                                        .n_rows = (uint32_t)n,
                                        .group = (uint32_t)job->group,
                                        .params = *job->params};
        job->cpu->kernels.window_scores(seq->scores + head * seq->score_stride, &queries, &kv,
                                        slot0, (float *)(void *)scratch,
                                        scratch + job->weights_bytes);
    }
}

static void score_windows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const windows_job *job = ctx;
    for (size_t item = begin; item < end; item++) {
        size_t row = 0;
        for (size_t i = item % job->n_windows; i; i--) row = window_end(job->seq, row);
        score_window(job, item / job->n_windows, row, window_end(job->seq, row), thread);
    }
}

ag_status ag_cpu_window_scores(ag_cpu_backend *cpu, const ag_tensor *q, const ag_attention_seq *seq,
                               const ag_attention_params *params) {
    const ag_kv_view *kv = &seq->kv;
    windows_job job = {.cpu = cpu,
                       .seq = seq,
                       .params = params,
                       .q = ag_tensor_data(q),
                       .n_heads = q->shape.dim[1],
                       .head_dim = q->shape.dim[2],
                       .group = q->shape.dim[1] / kv->n_kv_heads,
                       .n_blocks = ag_kv_blocks_for(ag_kv_view_max_slots(kv))};
    job.tile_rows = job.group < TILE_QUERIES ? TILE_QUERIES / job.group : 1;
    const size_t queries = job.tile_rows * job.group;
    job.weights_bytes = (queries + AG_WINDOW_SPARE_QUERIES) * AG_ATTENTION_SPAN * sizeof(float);
    AG_TRY(ag_cpu_need_threads(
        cpu, job.weights_bytes +
                 cpu->kernels.attention_scratch_bytes((uint32_t)job.head_dim, (uint32_t)queries)));
    AG_TRY(ag_cpu_need_shared(cpu, kv->n_kv_heads * job.n_blocks * sizeof *job.blocks));
    job.blocks = (const unsigned char **)(void *)cpu->scratch.shared;
    for (size_t h = 0; h < kv->n_kv_heads; h++)
        ag_cpu_map_blocks(job.blocks + h * job.n_blocks, kv, h);
    for (size_t row = 0; row < seq->n_rows; row = window_end(seq, row)) job.n_windows++;
    ag_pool_run(cpu->pool, kv->n_kv_heads * job.n_windows, 1, score_windows, &job);
    return AG_OK;
}
