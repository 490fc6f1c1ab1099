/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows to another type: casts, embedding lookup, weights prepared for the kernels. */
#include "backend/cpu/cpu_backend.h"
#include "core/fail.h"
#include "quant/quant.h"

enum {
    CHUNK_ELEMENTS = 4096, /* smallest chunk */
    CHUNK_WEIGHTS = 1 << 17,
    GIVE_BACK_BYTES = 1 << 20, /* source bytes to release at a time: it interrupts other threads */
};

typedef struct convert_job {
    ag_cpu_backend *cpu;
    ag_dtype from, to;
    const unsigned char *src;
    unsigned char *dst;
    size_t n, src_bytes, dst_bytes; /* a row's elements and bytes */
    ag_rounding rounding;
    const int32_t *ids; /* source rows; NULL: in order */
    ag_consumed_fn consumed;
    void *user;
} convert_job;

static ag_status convert_row(const convert_job *job, size_t row, size_t dst_row, float *values,
                             size_t *bad) {
    size_t src_row = job->ids ? (size_t)job->ids[row] : row;
    const unsigned char *src = job->src + src_row * job->src_bytes;
    unsigned char *dst = job->dst + dst_row * job->dst_bytes;
    if (job->to == AG_F32 && job->rounding != AG_ROUND_WEIGHT) {
        job->cpu->kernels.kv_load(job->from, (float *)(void *)dst, src, job->n);
        return AG_OK;
    }
    if (job->rounding == AG_ROUND_WEIGHT) {
        return ag_convert_weights(&job->cpu->kernels.rounding, job->to, dst, job->from, src, values,
                                  job->n, bad);
    }
    return ag_convert_row(job->to, dst, job->from, src, values, job->n, job->rounding, bad);
}

/* Converts rows [begin, end) to rows dst_row, dst_row + 1, ... */
static bool convert_rows_to(const convert_job *job, size_t begin, size_t end, size_t dst_row,
                            uint32_t thread) {
    float *values = ag_cpu_thread_scratch(job->cpu, thread);
    for (size_t i = begin; i < end; i++) {
        size_t bad;
        ag_status st = convert_row(job, i, dst_row + (i - begin), values, &bad);
        if (st == AG_OK) continue;
        job->cpu->bad_rows[thread] = (ag_cpu_bad_row){.row = i, .col = bad, .status = st};
        return false;
    }
    return true;
}

/* Reports consumed rows. If the caller cancels, this thread skips its remaining rows. */
static bool report_consumed(const convert_job *job, size_t row0, size_t n, uint32_t thread) {
    if (!job->consumed || job->consumed(job->user, row0, n)) return true;
    job->cpu->bad_rows[thread] = (ag_cpu_bad_row){.row = row0 + n, .status = AG_CANCELLED};
    return false;
}

static void convert_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const convert_job *job = ctx;
    if (ag_cpu_bad_row_seen(job->cpu, thread)) return;
    const size_t some = job->consumed ? GIVE_BACK_BYTES / job->src_bytes + 1 : end - begin;
    for (size_t at = begin; at < end; at += some) {
        const size_t n = end - at < some ? end - at : some;
        if (!convert_rows_to(job, at, at + n, at, thread)) return;
        if (!report_consumed(job, at, n, thread)) return;
    }
}

/* Fails with AG_FORMAT. Reads the bad value again for the message. */
static ag_status report_bad_row(const convert_job *job, ag_cpu_bad_row bad) {
    if (bad.status == AG_CANCELLED) {
        return AG_FAIL(&job->cpu->base.err, CANCELLED, "given up after row %zu", bad.row);
    }
    float *values = ag_cpu_thread_scratch(job->cpu, 0);
    ag_dequantize_row(job->from, values, job->src + bad.row * job->src_bytes, job->n);
    AG_FAIL(&job->cpu->base.err, FORMAT, "row %zu, column %zu: %g cannot be kept as %s", bad.row,
            bad.col, (double)values[bad.col], ag_dtype_name(job->to));
    job->cpu->base.err.status = bad.status;
    return bad.status;
}

/* Prepares a conversion. Each thread gets scratch for one row of floats and `more` bytes. */
static ag_status begin_conversion(convert_job *job, size_t more) {
    job->src_bytes = ag_dtype_row_bytes(job->from, job->n);
    job->dst_bytes = ag_dtype_row_bytes(job->to, job->n);
    ag_cpu_bad_rows_clear(job->cpu);
    return ag_cpu_need_threads(job->cpu, job->n * sizeof(float) + more);
}

static ag_status end_conversion(const convert_job *job) {
    ag_cpu_bad_row bad = ag_cpu_bad_row_lowest(job->cpu);
    return bad.row == SIZE_MAX ? AG_OK : report_bad_row(job, bad);
}

static ag_status convert(convert_job *job, size_t n_rows, size_t min_elements) {
    if (!n_rows || !job->n) return AG_OK;
    ag_status st = begin_conversion(job, 0);
    if (st != AG_OK) return st;
    size_t min_rows = min_elements / job->n + (min_elements % job->n != 0);
    ag_pool_run(job->cpu->pool, n_rows, ag_cpu_grain(job->cpu, n_rows, min_rows), convert_rows,
                job);
    return end_conversion(job);
}

static convert_job job_of(ag_backend *b, void *dst, ag_dtype to, const ag_tensor *src,
                          ag_rounding rounding) {
    return (convert_job){.cpu = ag_cpu_of(b),
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

/* ---- weights ---- */

typedef struct prepare_job {
    convert_job convert; /* dst has the groups */
    const ag_cpu_layout *layout;
    size_t n_rows, group_bytes;
} prepare_job;

/* Returns a thread's scratch for one group's rows, which follows the row of floats. */
static unsigned char *group_rows(const convert_job *job, uint32_t thread) {
    return (unsigned char *)ag_cpu_thread_scratch(job->cpu, thread) + job->n * sizeof(float);
}

static void prepare_groups(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const prepare_job *prepare = ctx;
    convert_job job = prepare->convert;
    const size_t group = prepare->layout->rows;
    job.dst = group_rows(&job, thread);
    job.consumed = NULL;
    if (ag_cpu_bad_row_seen(job.cpu, thread)) return;
    size_t given_back = begin * group;
    for (size_t i = begin; i < end; i++) {
        const size_t row0 = i * group, left = prepare->n_rows - row0;
        const size_t n = left < group ? left : group, used = row0 + n - given_back;
        if (!convert_rows_to(&job, row0, row0 + n, 0, thread)) return;
        prepare->layout->fill(prepare->convert.dst + i * prepare->group_bytes, job.dst,
                              job.dst_bytes, n, job.n);
        if (i + 1 < end && used < GIVE_BACK_BYTES / job.src_bytes) continue;
        if (!report_consumed(&prepare->convert, given_back, used, thread)) return;
        given_back += used;
    }
}

/* Converts the rows of a weight to the groups of its layout. */
static ag_status prepare(prepare_job *job) {
    convert_job *convert = &job->convert;
    const size_t group = job->layout->rows, n_groups = (job->n_rows + group - 1) / group;
    ag_status st = begin_conversion(convert, group * ag_dtype_row_bytes(convert->to, convert->n));
    if (st != AG_OK) return st;
    const size_t min_groups = CHUNK_WEIGHTS / (group * convert->n) + 1;
    ag_pool_run(convert->cpu->pool, n_groups, ag_cpu_grain(convert->cpu, n_groups, min_groups),
                prepare_groups, job);
    return end_conversion(convert);
}

static size_t groups_of(size_t n_rows, const ag_cpu_layout *layout) {
    return n_rows / layout->rows + (n_rows % layout->rows != 0);
}

size_t ag_cpu_prepared_bytes(const ag_backend *b, ag_dtype type, size_t rows, size_t cols) {
    const ag_cpu_matmul *kernel = ((const ag_cpu_backend *)(const void *)b)->kernels.prepared[type];
    const ag_cpu_layout *layout = kernel ? kernel->layout : NULL;
    const size_t row = ag_dtype_row_bytes(type, cols);
    if (!row || rows > SIZE_MAX / 4 / row) return 0;
    return layout ? groups_of(rows, layout) * layout->group_bytes(cols) : rows * row;
}

/* Allocates a buffer for the groups, whose size differs from that of rows, or for rows. */
static ag_status alloc_weight(ag_cpu_backend *cpu, ag_tensor *w, ag_buffer **owner,
                              const prepare_job *job) {
    if (!job->layout) {
        return ag_tensor_alloc(w, owner, cpu->memory, AG_USAGE_WEIGHTS, w->dtype, w->shape,
                               &cpu->base.err);
    }
    const size_t n_groups = groups_of(job->n_rows, job->layout);
    if (n_groups > SIZE_MAX / job->group_bytes) {
        return AG_FAIL(&cpu->base.err, SHAPE, "%zu groups of %zu bytes", n_groups,
                       job->group_bytes);
    }
    AG_TRY(ag_memory_alloc(cpu->memory, n_groups * job->group_bytes, AG_USAGE_WEIGHTS, owner,
                           &cpu->base.err));
    w->buffer = *owner;
    return AG_OK;
}

/* Prepares a weight into *w, or, if *w has no buffer, into a new buffer. */
static ag_status prepare_into(ag_cpu_backend *cpu, ag_tensor *w, ag_buffer **owner,
                              const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                              void *user) {
    const ag_cpu_matmul *kernel = cpu->kernels.prepared[want];
    prepare_job job = {.convert = job_of(&cpu->base, NULL, want, src, AG_ROUND_WEIGHT),
                       .layout = kernel ? kernel->layout : NULL,
                       .n_rows = ag_shape_rows(&src->shape)};
    if (!job.n_rows || !job.convert.n) job.layout = NULL;
    w->dtype = want;
    w->shape = src->shape;
    if (job.layout) {
        job.group_bytes = job.layout->group_bytes(job.convert.n);
        w->layout = job.layout->id;
    }
    if (!w->buffer) AG_TRY(alloc_weight(cpu, w, owner, &job));
    job.convert.dst = ag_tensor_data(w);
    job.convert.consumed = consumed;
    job.convert.user = user;
    return job.layout ? prepare(&job) : convert(&job.convert, job.n_rows, CHUNK_WEIGHTS);
}

ag_status ag_cpu_prepare_weight_at(ag_backend *b, ag_tensor *w, ag_buffer *buffer, size_t offset,
                                   const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                   void *user) {
    *w = (ag_tensor){.buffer = buffer, .offset = offset};
    return prepare_into(ag_cpu_of(b), w, NULL, src, want, consumed, user);
}

ag_status ag_cpu_prepare_weight(ag_backend *b, ag_tensor *w, ag_buffer **owner,
                                const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                void *user) {
    *w = (ag_tensor){.buffer = NULL};
    const ag_status st = prepare_into(ag_cpu_of(b), w, owner, src, want, consumed, user);
    if (st != AG_OK) ag_buffer_release(owner);
    return st;
}
