/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's two operations. Attention hands out one query row and one KV head at a time; where
 * the attention weights are wanted, one KV head with all its scored rows, so that they are summed
 * in the order of the queries whatever the number of threads. */
#include "backend/cpu/cpu_backend.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <string.h>

/* ---- appending ---- */

typedef struct write_job {
    ag_cpu_backend *cpu;
    const ag_kv_view *kv;
    const float *k, *v;
    const uint32_t *positions;
} write_job;

/* Item: row * n_kv_heads + head. */
static ag_status write_item(const write_job *job, size_t item, size_t *bad) {
    const ag_kv_view *kv = job->kv;
    const size_t row = item / kv->n_kv_heads, head = item % kv->n_kv_heads;
    const size_t slot = kv->n_slots[head] + row, place = head * AG_KV_BLOCK + slot % AG_KV_BLOCK;
    const ag_kv_block *block = &kv->blocks[slot / AG_KV_BLOCK];
    unsigned char *base = (unsigned char *)ag_buffer_map(block->buffer) + block->offset;
    const size_t k_bytes = ag_dtype_row_bytes(kv->k_type, kv->head_dim);
    const size_t v_bytes = ag_dtype_row_bytes(kv->v_type, kv->head_dim);
    memcpy(base + kv->p_offset + place * sizeof(uint32_t), &job->positions[row], sizeof(uint32_t));
    ag_status st = ag_quantize_row(kv->k_type, base + place * k_bytes, job->k + item * kv->head_dim,
                                   kv->head_dim, AG_ROUND_KV, bad);
    if (st != AG_OK) return st;
    return ag_quantize_row(kv->v_type, base + kv->v_offset + place * v_bytes,
                           job->v + item * kv->head_dim, kv->head_dim, AG_ROUND_KV, bad);
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

ag_status ag_cpu_kv_write(ag_backend *b, const ag_kv_view *kv, const ag_tensor *k,
                          const ag_tensor *v, const uint32_t *positions) {
    enum { CHUNK_ELEMENTS = 2048 };
    write_job job = {.cpu = (ag_cpu_backend *)(void *)b,
                     .kv = kv,
                     .k = ag_tensor_data(k),
                     .v = ag_tensor_data(v),
                     .positions = positions};
    const size_t n_items = k->shape.dim[0] * kv->n_kv_heads;
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

/* ---- attention ---- */

typedef struct seq_plan {
    const ag_attention_seq *seq;
    const unsigned char *const *blocks; /* base address of each */
    size_t group;                       /* query heads of one KV head */
    size_t heads_an_item;               /* a whole group or a single head */
    size_t n_plain_rows;                /* rows whose weights nobody wants */
    size_t first_item, n_plain_items;   /* behind the plain items: one for each scored KV head */
} seq_plan;

typedef struct attention_job {
    const ag_cpu_backend *cpu;
    float *out;
    const float *q;
    float scale;
    size_t n_heads, n_seqs, n_items;
    size_t weight_bytes; /* at the start of each thread's scratch */
    seq_plan *plans;
} attention_job;

static size_t scored_heads(const ag_attention_seq *seq) {
    return seq->scores && seq->score_row0 < seq->n_rows ? seq->kv.n_kv_heads : 0;
}

static ag_cpu_kv_head kv_head_of(const seq_plan *plan, size_t head) {
    const ag_kv_view *kv = &plan->seq->kv;
    const size_t row = head * AG_KV_BLOCK;
    return (ag_cpu_kv_head){
        .k_type = kv->k_type,
        .v_type = kv->v_type,
        .head_dim = kv->head_dim,
        .n_slots = kv->n_slots[head],
        .blocks = plan->blocks,
        .k_offset = row * ag_dtype_row_bytes(kv->k_type, kv->head_dim),
        .v_offset = kv->v_offset + row * ag_dtype_row_bytes(kv->v_type, kv->head_dim),
        .p_offset = kv->p_offset + row * sizeof(uint32_t),
    };
}

/* Query heads [head0, head0 + n_heads) of one row, all of one KV head's group. Returns the number
 * of visible slots; their weights are in the thread's scratch, `stride` apart. */
static uint32_t attend(const attention_job *job, const seq_plan *plan, const ag_cpu_kv_head *kv,
                       size_t row, size_t head0, size_t n_heads, uint32_t thread) {
    const size_t d = kv->head_dim, stride = (size_t)plan->seq->kv.n_blocks * AG_KV_BLOCK;
    const size_t at = ((plan->seq->row0 + row) * job->n_heads + head0) * d;
    const ag_cpu_attention_query query = {
        .q = job->q + at,
        .out = job->out + at,
        .n_heads = (uint32_t)n_heads,
        .position = plan->seq->positions[row],
        .scale = job->scale,
    };
    unsigned char *scratch = ag_cpu_thread_scratch(job->cpu, thread);
    return job->cpu->kernels.attention(&query, kv, (float *)(void *)scratch, stride,
                                       scratch + job->weight_bytes);
}

static void attend_plain(const attention_job *job, const seq_plan *plan, size_t item,
                         uint32_t thread) {
    const size_t items_a_row = job->n_heads / plan->heads_an_item;
    const size_t row = item / items_a_row, head0 = item % items_a_row * plan->heads_an_item;
    const ag_cpu_kv_head kv = kv_head_of(plan, head0 / plan->group);
    attend(job, plan, &kv, row, head0, plan->heads_an_item, thread);
}

static void attend_scored(const attention_job *job, const seq_plan *plan, size_t head,
                          uint32_t thread) {
    const ag_attention_seq *seq = plan->seq;
    const ag_cpu_kv_head kv = kv_head_of(plan, head);
    const float *weights = ag_cpu_thread_scratch(job->cpu, thread);
    const size_t stride = (size_t)seq->kv.n_blocks * AG_KV_BLOCK;
    float *scores = seq->scores + head * seq->score_stride;
    for (size_t row = plan->n_plain_rows; row < seq->n_rows; row++) {
        uint32_t n = attend(job, plan, &kv, row, head * plan->group, plan->group, thread);
        for (uint32_t slot = 0; slot < n; slot++) {
            double sum = 0;
            for (size_t h = 0; h < plan->group; h++) sum += weights[h * stride + slot];
            scores[slot] += (float)(sum / (double)plan->group);
        }
    }
}

static void attend_items(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const attention_job *job = ctx;
    size_t s = 0;
    for (size_t item = begin; item < end; item++) {
        while (s + 1 < job->n_seqs && item >= job->plans[s + 1].first_item) s++;
        const seq_plan *plan = &job->plans[s];
        const size_t i = item - plan->first_item;
        if (i < plan->n_plain_items) attend_plain(job, plan, i, thread);
        else attend_scored(job, plan, i - plan->n_plain_items, thread);
    }
}

/* A head alone costs the conversion of the cache's rows again: only where a call has too few groups
 * for its threads. */
static bool too_few_groups(const ag_cpu_backend *cpu, const ag_attention_seq *seqs, size_t n_seqs) {
    size_t groups = 0;
    for (size_t s = 0; s < n_seqs; s++) groups += seqs[s].n_rows * seqs[s].kv.n_kv_heads;
    return groups < ag_pool_threads(cpu->pool);
}

static const unsigned char **map_blocks(const ag_kv_view *kv, const unsigned char **out) {
    for (uint32_t i = 0; i < kv->n_blocks; i++) {
        const ag_kv_block *block = &kv->blocks[i];
        *out++ = (const unsigned char *)ag_buffer_map(block->buffer) + block->offset;
    }
    return out;
}

/* Lays plans and block addresses out in the shared scratch and counts the items. */
static ag_status plan_items(attention_job *job, ag_cpu_backend *cpu, const ag_attention_seq *seqs) {
    size_t n_blocks = 0;
    for (size_t s = 0; s < job->n_seqs; s++) n_blocks += seqs[s].kv.n_blocks;
    const size_t plan_bytes = job->n_seqs * sizeof(seq_plan);
    ag_status st = ag_cpu_need_shared(cpu, plan_bytes + n_blocks * sizeof(unsigned char *));
    if (st != AG_OK) return st;
    job->plans = (seq_plan *)(void *)cpu->scratch.shared;
    const unsigned char **blocks = (void *)(cpu->scratch.shared + plan_bytes);
    const bool split = too_few_groups(cpu, seqs, job->n_seqs);
    for (size_t s = 0; s < job->n_seqs; s++) {
        const ag_attention_seq *seq = &seqs[s];
        const size_t n_scored = scored_heads(seq);
        seq_plan *plan = &job->plans[s];
        plan->seq = seq;
        plan->blocks = blocks;
        plan->group = job->n_heads / seq->kv.n_kv_heads;
        plan->heads_an_item = split ? 1 : plan->group;
        plan->n_plain_rows = n_scored ? seq->score_row0 : seq->n_rows;
        plan->first_item = job->n_items;
        plan->n_plain_items = plan->n_plain_rows * (job->n_heads / plan->heads_an_item);
        job->n_items += plan->n_plain_items + n_scored;
        blocks = map_blocks(&seq->kv, blocks);
    }
    return AG_OK;
}

/* Weights of a group over the longest sequence, then the kernel's own. */
static ag_status make_thread_scratch(attention_job *job, ag_cpu_backend *cpu,
                                     const ag_attention_seq *seqs) {
    size_t kernel_bytes = 0;
    for (size_t s = 0; s < job->n_seqs; s++) {
        const ag_kv_view *kv = &seqs[s].kv;
        const size_t group = job->n_heads / kv->n_kv_heads;
        size_t weights = group * kv->n_blocks * AG_KV_BLOCK * sizeof(float);
        size_t own = cpu->kernels.attention_scratch_bytes(kv->head_dim, (uint32_t)group);
        if (weights > job->weight_bytes) job->weight_bytes = weights;
        if (own > kernel_bytes) kernel_bytes = own;
    }
    return ag_cpu_need_threads(cpu, job->weight_bytes + kernel_bytes);
}

ag_status ag_cpu_attention(ag_backend *b, ag_tensor *out, const ag_tensor *q,
                           const ag_attention_seq *seqs, size_t n_seqs, float scale) {
    ag_cpu_backend *cpu = (ag_cpu_backend *)(void *)b;
    if (!n_seqs || !ag_shape_numel(&q->shape)) return AG_OK;
    attention_job job = {.cpu = cpu,
                         .out = ag_tensor_data(out),
                         .q = ag_tensor_data(q),
                         .scale = scale,
                         .n_heads = q->shape.dim[1],
                         .n_seqs = n_seqs};
    ag_status st = make_thread_scratch(&job, cpu, seqs);
    if (st == AG_OK) st = plan_items(&job, cpu, seqs);
    if (st == AG_OK) ag_pool_run(cpu->pool, job.n_items, 1, attend_items, &job);
    return st;
}
