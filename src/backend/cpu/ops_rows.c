/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on independent rows or elements. */
#include "backend/cpu/cpu_backend.h"

enum { CHUNK_ELEMENTS = 4096, CHUNK_EXPONENTIALS = 512 }; /* smallest chunks */

typedef struct rows_job {
    const ag_cpu_backend *cpu;
    float *y; /* the destination */
    const float *x, *w;
    size_t n;    /* columns */
    float value; /* eps, factor or cap */
} rows_job;

/* Divides rows of n columns (or elements if n is 1) into chunks of at least `min_elements`
 * elements. */
static void run_rows(const rows_job *job, size_t n_rows, size_t n, size_t min_elements,
                     ag_pool_fn work) {
    if (!n_rows || !n) return;
    size_t grain = ag_cpu_grain(job->cpu, n_rows, min_elements / n + (min_elements % n != 0));
    rows_job copy = *job;
    ag_pool_run(job->cpu->pool, n_rows, grain, work, &copy);
}

static void rms_norm_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    for (size_t i = begin; i < end; i++) {
        job->cpu->kernels.rms_norm(job->y + i * job->n, job->x + i * job->n, job->w, job->n,
                                   job->value);
    }
}

ag_status ag_cpu_rms_norm(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                          float eps) {
    rows_job job = {.cpu = ag_cpu_of(b),
                    .y = ag_tensor_data(y),
                    .x = ag_tensor_data(x),
                    .w = ag_tensor_data(w),
                    .n = ag_shape_cols(&x->shape),
                    .value = eps};
    run_rows(&job, ag_shape_rows(&x->shape), job.n, CHUNK_ELEMENTS, rms_norm_rows);
    return AG_OK;
}

static void softmax_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    for (size_t i = begin; i < end; i++) job->cpu->kernels.softmax(job->y + i * job->n, job->n);
}

ag_status ag_cpu_softmax(ag_backend *b, ag_tensor *x) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(x), .n = ag_shape_cols(&x->shape)};
    run_rows(&job, ag_shape_rows(&x->shape), job.n, CHUNK_EXPONENTIALS, softmax_rows);
    return AG_OK;
}

static void silu_mul_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.silu_mul(job->y + begin, job->x + begin, end - begin);
}

ag_status ag_cpu_silu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(a), .x = ag_tensor_data(x)};
    run_rows(&job, ag_shape_numel(&a->shape), 1, CHUNK_EXPONENTIALS, silu_mul_elements);
    return AG_OK;
}

static void gelu_mul_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.gelu_mul(job->y + begin, job->x + begin, end - begin);
}

ag_status ag_cpu_gelu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(a), .x = ag_tensor_data(x)};
    run_rows(&job, ag_shape_numel(&a->shape), 1, CHUNK_EXPONENTIALS, gelu_mul_elements);
    return AG_OK;
}

static void mul_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.mul(job->y + begin, job->x + begin, end - begin);
}

ag_status ag_cpu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(a), .x = ag_tensor_data(x)};
    run_rows(&job, ag_shape_numel(&a->shape), 1, CHUNK_ELEMENTS, mul_elements);
    return AG_OK;
}

static void sigmoid_mul_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.sigmoid_mul(job->y + begin, job->x + begin, end - begin);
}

ag_status ag_cpu_sigmoid_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(a), .x = ag_tensor_data(x)};
    run_rows(&job, ag_shape_numel(&a->shape), 1, CHUNK_EXPONENTIALS, sigmoid_mul_elements);
    return AG_OK;
}

static void swiglu_clamped_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.swiglu_clamped(job->y + begin, job->x + begin, job->value, end - begin);
}

ag_status ag_cpu_swiglu_clamped(ag_backend *b, ag_tensor *a, const ag_tensor *x, float limit) {
    rows_job job = {
        .cpu = ag_cpu_of(b), .y = ag_tensor_data(a), .x = ag_tensor_data(x), .value = limit};
    run_rows(&job, ag_shape_numel(&a->shape), 1, CHUNK_EXPONENTIALS, swiglu_clamped_elements);
    return AG_OK;
}

static void softcap_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.softcap(job->y + begin, job->value, end - begin);
}

ag_status ag_cpu_softcap(ag_backend *b, ag_tensor *x, float cap) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(x), .value = cap};
    run_rows(&job, ag_shape_numel(&x->shape), 1, CHUNK_EXPONENTIALS, softcap_elements);
    return AG_OK;
}

static void add_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.add(job->y + begin, job->x + begin, end - begin);
}

ag_status ag_cpu_add_assign(ag_backend *b, ag_tensor *x, const ag_tensor *y) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(x), .x = ag_tensor_data(y)};
    run_rows(&job, ag_shape_numel(&x->shape), 1, CHUNK_ELEMENTS, add_elements);
    return AG_OK;
}

static void add_bias_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    for (size_t i = begin; i < end; i++) {
        job->cpu->kernels.add(job->y + i * job->n, job->w, job->n);
    }
}

ag_status ag_cpu_add_bias(ag_backend *b, ag_tensor *x, const ag_tensor *bias) {
    rows_job job = {.cpu = ag_cpu_of(b),
                    .y = ag_tensor_data(x),
                    .w = ag_tensor_data(bias),
                    .n = ag_shape_cols(&x->shape)};
    run_rows(&job, ag_shape_rows(&x->shape), job.n, CHUNK_ELEMENTS, add_bias_rows);
    return AG_OK;
}

static void scale_elements(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const rows_job *job = ctx;
    job->cpu->kernels.scale(job->y + begin, job->value, end - begin);
}

ag_status ag_cpu_scale(ag_backend *b, ag_tensor *x, float v) {
    rows_job job = {.cpu = ag_cpu_of(b), .y = ag_tensor_data(x), .value = v};
    run_rows(&job, ag_shape_numel(&x->shape), 1, CHUNK_ELEMENTS, scale_elements);
    return AG_OK;
}
