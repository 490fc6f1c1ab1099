/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu_backend.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <string.h>

/* Rows of one sequence. */
typedef struct write_job {
    ag_cpu_backend *cpu;
    const ag_kv_view *kv;
    const float *k, *v;
    const uint32_t *positions;
} write_job;

static ag_status store(const write_job *job, ag_dtype type, unsigned char *dst, const float *src,
                       size_t *bad) {
    const size_t n = job->kv->head_dim;
    if (job->cpu->kernels.kv_store(type, dst, src, n)) return AG_OK;
    return ag_quantize_row(type, dst, src, n, AG_ROUND_KV, bad);
}

/* Item: row * n_kv_heads + head. */
static ag_status write_item(const write_job *job, size_t item, size_t *bad) {
    const ag_kv_view *kv = job->kv;
    const size_t row = item / kv->n_kv_heads, head = item % kv->n_kv_heads;
    const size_t slot = kv->n_slots[head] + row, offset = slot % AG_KV_BLOCK;
    const ag_kv_block *block = ag_kv_view_block(kv, head, slot / AG_KV_BLOCK);
    unsigned char *base = (unsigned char *)ag_buffer_map(block->buffer) + block->offset;
    const size_t k_bytes = ag_dtype_row_bytes(kv->k_type, kv->head_dim);
    const size_t v_bytes = ag_dtype_row_bytes(kv->v_type, kv->head_dim);
    memcpy(base + kv->p_offset + offset * sizeof(uint32_t), &job->positions[row], sizeof(uint32_t));
    ag_status st =
        store(job, kv->k_type, base + offset * k_bytes, job->k + item * kv->head_dim, bad);
    if (st != AG_OK) return st;
    return store(job, kv->v_type, base + kv->v_offset + offset * v_bytes,
                 job->v + item * kv->head_dim, bad);
}

static void write_items(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const write_job *job = ctx;
    if (ag_cpu_bad_row_seen(job->cpu, thread)) return;
    for (size_t i = begin; i < end; i++) {
        size_t bad;
        ag_status st = write_item(job, i, &bad);
        if (st == AG_OK) continue;
        job->cpu->bad_rows[thread] = (ag_cpu_bad_row){.row = i, .col = bad, .status = st};
        return;
    }
}

static ag_status write_sequence(ag_backend *b, const ag_attention_seq *s, const ag_tensor *k,
                                const ag_tensor *v) {
    enum { CHUNK_ELEMENTS = 2048 };
    const ag_kv_view *kv = &s->kv;
    const size_t first = s->row0 * kv->n_kv_heads * kv->head_dim;
    write_job job = {.cpu = ag_cpu_of(b),
                     .kv = kv,
                     .k = (const float *)ag_tensor_data(k) + first,
                     .v = (const float *)ag_tensor_data(v) + first,
                     .positions = s->visible_until};
    const size_t n_items = s->n_rows * kv->n_kv_heads;
    if (!n_items) return AG_OK;
    ag_cpu_bad_rows_clear(job.cpu);
    size_t grain = ag_cpu_grain(job.cpu, n_items, CHUNK_ELEMENTS / kv->head_dim);
    ag_pool_run(job.cpu->pool, n_items, grain, write_items, &job);
    ag_cpu_bad_row bad = ag_cpu_bad_row_lowest(job.cpu);
    if (bad.row == SIZE_MAX) return AG_OK;
    AG_FAIL(&b->err, FORMAT, "token %zu, KV head %zu: component %zu of key or value cannot be kept",
            bad.row / kv->n_kv_heads, bad.row % kv->n_kv_heads, bad.col);
    b->err.status = bad.status;
    return bad.status;
}

ag_status ag_cpu_kv_write(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                          const ag_tensor *k, const ag_tensor *v) {
    for (size_t i = 0; i < n_seqs; i++) AG_TRY(write_sequence(b, &seqs[i], k, v));
    return AG_OK;
}

void ag_cpu_unpack(ag_backend *b, ag_dtype type, float *dst, const void *src, size_t n) {
    ag_cpu_of(b)->kernels.kv_load(type, dst, src, n);
}
