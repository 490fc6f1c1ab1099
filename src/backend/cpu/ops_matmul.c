/* SPDX-License-Identifier: Apache-2.0 */
/* Products. Activations are packed in panels that fit the second-level cache; for each panel one
 * dispatch hands out the rows of all weights that share it. */
#include "backend/cpu/cpu_backend.h"

#include <string.h>

enum { PANEL_BYTES = 1 << 20, PANEL_ROWS_MIN = 8, PANEL_ROWS_MAX = 256 };
enum { CHUNK_PRODUCTS = 16384 }; /* multiplications that are worth the claim of a chunk */

typedef struct product {
    ag_cpu_weight w;
    const ag_cpu_matmul *kernel;
    float *y;
    size_t n_rows, first; /* rows of w; of the dispatch's rows, the first that is in w */
} product;

typedef struct group_job {
    ag_cpu_backend *cpu;
    product products[AG_MATMUL_GROUP_MAX];
    size_t n_products, n_rows; /* rows of all products together */
    const float *x;            /* of this panel, as are y and m */
    size_t m, k, packed_bytes;
} group_job;

static void pack_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const group_job *job = ctx;
    unsigned char *packed = job->cpu->scratch.shared;
    for (size_t i = begin; i < end; i++) {
        job->products[0].kernel->pack(packed + i * job->packed_bytes, job->x + i * job->k, job->k);
    }
}

static void multiply_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const group_job *job = ctx;
    void *scratch = ag_cpu_thread_scratch(job->cpu, thread);
    for (size_t i = 0; i < job->n_products; i++) {
        const product *p = &job->products[i];
        if (end <= p->first || begin >= p->first + p->n_rows) continue;
        size_t row0 = begin > p->first ? begin - p->first : 0;
        size_t row1 = end - p->first < p->n_rows ? end - p->first : p->n_rows;
        p->kernel->rows(p->y + row0, p->n_rows, job->cpu->scratch.shared, job->m, &p->w, row0,
                        row1 - row0, scratch);
    }
}

static size_t panel_rows(size_t m, size_t packed_bytes) {
    size_t rows = PANEL_BYTES / packed_bytes;
    if (rows < PANEL_ROWS_MIN) rows = PANEL_ROWS_MIN;
    if (rows > PANEL_ROWS_MAX) rows = PANEL_ROWS_MAX;
    return rows < m ? rows : m;
}

static void run_panel(group_job *job) {
    ag_pool *pool = job->cpu->pool;
    size_t least_pack = CHUNK_PRODUCTS / job->k + 1;
    ag_pool_run(pool, job->m, ag_cpu_grain(job->cpu, job->m, least_pack), pack_rows, job);
    size_t least = CHUNK_PRODUCTS / (job->k * job->m) + 1;
    ag_pool_run(pool, job->n_rows, ag_cpu_grain(job->cpu, job->n_rows, least), multiply_rows, job);
}

/* Products whose kernels pack their activations in the same way. */
static ag_status run_group(group_job *job, const ag_tensor *x) {
    const size_t m = ag_shape_rows(&x->shape), k = job->k;
    const ag_cpu_matmul *first = job->products[0].kernel;
    job->packed_bytes = first->packed_bytes(k);
    const size_t panel = panel_rows(m, job->packed_bytes);
    size_t scratch_bytes = 0;
    for (size_t i = 0; i < job->n_products; i++) {
        size_t bytes = job->products[i].kernel->scratch_bytes(k);
        if (bytes > scratch_bytes) scratch_bytes = bytes;
    }
    ag_status st = ag_cpu_need_shared(job->cpu, panel * job->packed_bytes);
    if (st == AG_OK) st = ag_cpu_need_threads(job->cpu, scratch_bytes);
    if (st != AG_OK) return st;
    job->x = ag_tensor_data(x);
    for (size_t row = 0; row < m; row += job->m) {
        job->m = m - row < panel ? m - row : panel;
        run_panel(job);
        job->x += job->m * k;
        for (size_t i = 0; i < job->n_products; i++) {
            job->products[i].y += job->m * job->products[i].n_rows;
        }
    }
    return AG_OK;
}

static void add_product(group_job *job, ag_tensor *y, const ag_tensor *w) {
    product *p = &job->products[job->n_products++];
    p->w = (ag_cpu_weight){ag_tensor_data(w), ag_dtype_row_bytes(w->dtype, job->k), job->k};
    p->kernel = job->cpu->kernels.matmul[w->dtype];
    p->y = ag_tensor_data(y);
    p->n_rows = ag_shape_rows(&w->shape);
    p->first = job->n_rows;
    job->n_rows += p->n_rows;
}

ag_status ag_cpu_matmul_group(ag_backend *b, ag_tensor *const y[], const ag_tensor *x,
                              const ag_tensor *const w[], size_t n) {
    ag_cpu_backend *cpu = (ag_cpu_backend *)(void *)b;
    if (!ag_shape_numel(&x->shape)) { /* no rows, or sums of nothing */
        for (size_t i = 0; i < n; i++) memset(ag_tensor_data(y[i]), 0, ag_tensor_bytes(y[i]));
        return AG_OK;
    }
    for (size_t i = 0; i < n;) {
        group_job job = {.cpu = cpu, .k = ag_shape_cols(&x->shape)};
        const ag_cpu_matmul *first = cpu->kernels.matmul[w[i]->dtype];
        for (; i < n && cpu->kernels.matmul[w[i]->dtype]->pack == first->pack; i++) {
            add_product(&job, y[i], w[i]);
        }
        ag_status st = run_group(&job, x);
        if (st != AG_OK) return st;
    }
    return AG_OK;
}

ag_status ag_cpu_matmul_transposed(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                   const ag_tensor *w) {
    return ag_cpu_matmul_group(b, &y, x, &w, 1);
}

/* ---- the plain product ---- */

typedef struct plain_job {
    const ag_cpu_backend *cpu;
    float *y;
    const float *a, *x;
    size_t k, n, strips; /* strips of columns in a row of y: the unit that is handed out */
} plain_job;

enum { STRIP_COLUMNS = 256 };

static void plain_strips(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const plain_job *job = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / job->strips, column = i % job->strips * STRIP_COLUMNS;
        size_t width = job->n - column < STRIP_COLUMNS ? job->n - column : STRIP_COLUMNS;
        job->cpu->kernels.vecmat(job->y + row * job->n + column, job->a + row * job->k,
                                 job->x + column, job->n, job->k, width);
    }
}

ag_status ag_cpu_matmul_plain(ag_backend *b, ag_tensor *y, const ag_tensor *a, const ag_tensor *x) {
    const ag_cpu_backend *cpu = (const ag_cpu_backend *)(const void *)b;
    const size_t m = ag_shape_rows(&a->shape), k = ag_shape_cols(&a->shape);
    const size_t n = ag_shape_cols(&x->shape);
    plain_job job = {.cpu = cpu,
                     .y = ag_tensor_data(y),
                     .a = ag_tensor_data(a),
                     .x = ag_tensor_data(x),
                     .k = k,
                     .n = n,
                     .strips = n / STRIP_COLUMNS + (n % STRIP_COLUMNS != 0)};
    if (!m || !n) return AG_OK;
    ag_pool_run(cpu->pool, m * job.strips, ag_cpu_grain(cpu, m * job.strips, 1), plain_strips,
                &job);
    return AG_OK;
}
