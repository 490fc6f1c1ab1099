/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that change their type: casts, looked-up embeddings, weights prepared for the kernels. */
#include "backend/cpu/cpu_backend.h"
#include "core/fail.h"
#include "quant/quant.h"

enum { CHUNK_ELEMENTS = 4096, CHUNK_WEIGHTS = 1 << 17 }; /* worth a claim; worth giving back */

typedef struct convert_job {
    ag_cpu_backend *cpu;
    ag_dtype from, to;
    const unsigned char *src;
    unsigned char *dst;
    size_t n, src_bytes, dst_bytes; /* of a row */
    ag_rounding rounding;
    const int32_t *ids; /* of source rows; NULL: in order */
    ag_consumed_fn consumed;
    void *user;
} convert_job;

static ag_status convert_row(const convert_job *job, size_t row, float *values, size_t *bad) {
    size_t src_row = job->ids ? (size_t)job->ids[row] : row;
    const unsigned char *src = job->src + src_row * job->src_bytes;
    unsigned char *dst = job->dst + row * job->dst_bytes;
    if (job->to == AG_F32 && job->rounding != AG_ROUND_WEIGHT) {
        ag_dequantize_row(job->from, (float *)(void *)dst, src, job->n);
        return AG_OK;
    }
    return ag_convert_row(job->to, dst, job->from, src, values, job->n, job->rounding, bad);
}

static void convert_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const convert_job *job = ctx;
    float *values = ag_cpu_thread_scratch(job->cpu, thread);
    if (ag_cpu_bad_row_seen(job->cpu, thread)) return;
    for (size_t i = begin; i < end; i++) {
        size_t bad;
        ag_status st = convert_row(job, i, values, &bad);
        if (st == AG_OK) continue;
        job->cpu->bad_rows[thread] = (ag_cpu_bad_row){.row = i, .col = bad, .status = st};
        return;
    }
    if (job->consumed) job->consumed(job->user, begin, end - begin);
}

/* The value at fault is read once more, for the message. */
static ag_status report_bad_row(const convert_job *job, ag_cpu_bad_row bad) {
    float *values = ag_cpu_thread_scratch(job->cpu, 0);
    ag_dequantize_row(job->from, values, job->src + bad.row * job->src_bytes, job->n);
    AG_FAIL(&job->cpu->base.err, FORMAT, "row %zu, column %zu: %g cannot be kept as %s", bad.row,
            bad.col, (double)values[bad.col], ag_dtype_name(job->to));
    job->cpu->base.err.status = bad.status;
    return bad.status;
}

static ag_status convert(convert_job *job, size_t n_rows, size_t least_elements) {
    if (!n_rows || !job->n) return AG_OK;
    job->src_bytes = ag_dtype_row_bytes(job->from, job->n);
    job->dst_bytes = ag_dtype_row_bytes(job->to, job->n);
    ag_status st = ag_cpu_need_threads(job->cpu, job->n * sizeof(float));
    if (st != AG_OK) return st;
    ag_cpu_bad_rows_clear(job->cpu);
    size_t least = least_elements / job->n + (least_elements % job->n != 0);
    ag_pool_run(job->cpu->pool, n_rows, ag_cpu_grain(job->cpu, n_rows, least), convert_rows, job);
    ag_cpu_bad_row bad = ag_cpu_bad_row_lowest(job->cpu);
    return bad.row == SIZE_MAX ? AG_OK : report_bad_row(job, bad);
}

static convert_job job_of(ag_backend *b, void *dst, ag_dtype to, const ag_tensor *src,
                          ag_rounding rounding) {
    return (convert_job){.cpu = (ag_cpu_backend *)(void *)b,
                         .from = src->dtype,
                         .to = to,
                         .src = ag_tensor_data(src),
                         .dst = dst,
                         .n = ag_shape_cols(&src->shape),
                         .rounding = rounding};
}

ag_status ag_cpu_cast(ag_backend *b, ag_tensor *dst, const ag_tensor *src) {
    convert_job job = job_of(b, ag_tensor_data(dst), dst->dtype, src, AG_ROUND_REFERENCE);
    return convert(&job, ag_shape_rows(&src->shape), CHUNK_ELEMENTS);
}

ag_status ag_cpu_gather(ag_backend *b, ag_tensor *dst, const ag_tensor *table, const int32_t *ids,
                        size_t n) {
    convert_job job = job_of(b, ag_tensor_data(dst), AG_F32, table, AG_ROUND_REFERENCE);
    job.ids = ids;
    return convert(&job, n, CHUNK_ELEMENTS);
}

/* Layout 0: the common kernels read rows as the type says. */
ag_status ag_cpu_prepare_weight(ag_backend *b, ag_tensor *w, ag_buffer **owner,
                                const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                void *user) {
    ag_cpu_backend *cpu = (ag_cpu_backend *)(void *)b;
    ag_status st =
        ag_tensor_alloc(w, owner, cpu->memory, AG_USAGE_WEIGHTS, want, src->shape, &b->err);
    if (st != AG_OK) return st;
    convert_job job = job_of(b, ag_tensor_data(w), want, src, AG_ROUND_WEIGHT);
    job.consumed = consumed;
    job.user = user;
    st = convert(&job, ag_shape_rows(&src->shape), CHUNK_WEIGHTS);
    if (st != AG_OK) ag_buffer_release(owner);
    return st;
}
