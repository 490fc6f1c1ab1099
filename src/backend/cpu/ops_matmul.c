/* SPDX-License-Identifier: Apache-2.0 */
/* Products. Activations are packed in panels that fit the L2 cache. For each panel, one dispatch
 * divides the rows of all weights that use it. */
#include "backend/cpu/cpu_backend.h"

#include <string.h>

enum { PANEL_BYTES = 3 << 19, PANEL_ROWS_MIN = 16, PANEL_ROWS_MAX = 256 };
enum { PART_PRODUCTS = 1 << 17, PACK_ELEMENTS = 1 << 15 }; /* smallest work of a thread */
enum { CHUNK_PRODUCTS = 1 << 17, CHUNK_UNITS_MAX = 4 };    /* smallest chunk; largest one */

typedef struct product {
    ag_cpu_weight w;
    const ag_cpu_matmul *kernel;
    float *y;
    size_t n_rows, first; /* rows of w; index of its first unit in the dispatch */
} product;

typedef struct group_job {
    ag_cpu_backend *cpu;
    product products[AG_MATMUL_GROUP_MAX];
    size_t n_products, n_units; /* n_units: units of AG_ROW_UNIT rows over all products */
    const float *x;             /* x, y and m belong to this panel */
    size_t m, k, packed_bytes;
    size_t chunk, n_parts; /* units of a claim; number of threads' shares */
} group_job;

static void pack_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const group_job *job = ctx;
    for (size_t i = begin; i < end; i++) {
        job->products[0].kernel->pack(job->cpu->scratch.shared, job->x + i * job->k, i, job->m,
                                      job->k);
    }
}

/* Returns the first byte of a unit, also of the one past the last. */
static const unsigned char *unit_address(const product *p, size_t unit, size_t k) {
    const ag_cpu_layout *layout = p->kernel->layout;
    const size_t bytes =
        layout ? layout->group_bytes(k) * AG_ROW_UNIT / layout->rows : p->w.row_bytes * AG_ROW_UNIT;
    return (const unsigned char *)p->w.data + unit * bytes;
}

/* Multiplies units [begin, end). This thread continues with the units before `ahead`. */
static void multiply_units(const group_job *job, size_t begin, size_t end, size_t ahead,
                           uint32_t thread) {
    void *scratch = ag_cpu_thread_scratch(job->cpu, thread);
    for (size_t i = 0; i < job->n_products && begin < end; i++) {
        const product *p = &job->products[i];
        const size_t units = (p->n_rows + AG_ROW_UNIT - 1) / AG_ROW_UNIT;
        if (begin >= p->first + units) continue;
        const size_t unit0 = begin - p->first;
        const size_t unit1 = end - p->first < units ? end - p->first : units;
        const size_t last = ahead - p->first < units ? ahead - p->first : units;
        const size_t row0 = unit0 * AG_ROW_UNIT;
        const size_t row1 = unit1 * AG_ROW_UNIT < p->n_rows ? unit1 * AG_ROW_UNIT : p->n_rows;
        ag_cpu_weight w = p->w;
        w.prefetch_end = unit_address(p, last, job->k);
        p->kernel->rows(p->y + row0, p->n_rows, job->cpu->scratch.shared, job->m, &w, row0,
                        row1 - row0, scratch);
        begin = p->first + unit1;
    }
}

/* Multiplies the thread's own share, then takes units of other shares. */
static void multiply_parts(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const group_job *job = ctx;
    for (size_t own = begin; own < end; own++) {
        for (size_t i = 0; i < job->n_parts; i++) {
            ag_cpu_part *part = &job->cpu->parts[(own + i) % job->n_parts];
            for (;;) {
                size_t at =
                    atomic_fetch_add_explicit(&part->next, job->chunk, memory_order_relaxed);
                if (at >= part->end) break;
                size_t stop = part->end - at < job->chunk ? part->end : at + job->chunk;
                multiply_units(job, at, stop, i == 0 ? part->end : stop, thread);
            }
        }
    }
}

/* Divides the units into equal shares of complete chunks. */
static void make_parts(group_job *job) {
    const size_t unit_products = AG_ROW_UNIT * job->k * job->m;
    const size_t max_parts = job->n_units / (PART_PRODUCTS / unit_products + 1);
    job->n_parts = ag_pool_threads(job->cpu->pool);
    if (job->n_parts > max_parts) job->n_parts = max_parts ? max_parts : 1;
    job->chunk = CHUNK_PRODUCTS / unit_products + 1;
    if (job->m > 1) job->chunk = CHUNK_UNITS_MAX;
    const ag_cpu_matmul *kernel = job->products[0].kernel;
    if (kernel->call_rows) job->chunk = kernel->call_rows(job->m) / AG_ROW_UNIT;
    for (size_t i = 0; i < job->n_parts; i++) {
        ag_cpu_part *part = &job->cpu->parts[i];
        atomic_store_explicit(&part->next, job->n_units * i / job->n_parts, memory_order_relaxed);
        part->end = job->n_units * (i + 1) / job->n_parts;
    }
}

static size_t panel_rows(const ag_cpu_matmul *kernel, size_t m, size_t packed_bytes) {
    const size_t bytes = kernel->panel_bytes ? kernel->panel_bytes : PANEL_BYTES;
    size_t rows = bytes / packed_bytes / PANEL_ROWS_MIN * PANEL_ROWS_MIN;
    if (rows < PANEL_ROWS_MIN) rows = PANEL_ROWS_MIN;
    if (rows > PANEL_ROWS_MAX && !kernel->panel_bytes) rows = PANEL_ROWS_MAX;
    return rows < m ? rows : m;
}

static void run_panel(group_job *job) {
    ag_pool *pool = job->cpu->pool;
    ag_pool_run(pool, job->m, PACK_ELEMENTS / job->k + 1, pack_rows, job);
    make_parts(job);
    ag_pool_run(pool, job->n_parts, 1, multiply_parts, job);
}

/* Computes products whose kernels use the same packing. */
static ag_status run_group(group_job *job, const ag_tensor *x) {
    const size_t m = ag_shape_rows(&x->shape), k = job->k;
    const ag_cpu_matmul *first = job->products[0].kernel;
    job->packed_bytes = first->packed_bytes(k);
    const size_t panel = panel_rows(first, m, job->packed_bytes);
    const size_t panel_room = (panel + AG_ROW_UNIT - 1) / AG_ROW_UNIT * AG_ROW_UNIT;
    size_t scratch_bytes = 0;
    for (size_t i = 0; i < job->n_products; i++) {
        const ag_cpu_matmul *kernel = job->products[i].kernel;
        size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(k) : 0;
        if (bytes > scratch_bytes) scratch_bytes = bytes;
    }
    ag_status st = ag_cpu_need_shared(job->cpu, panel_room * job->packed_bytes);
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

/* Returns the kernel for a product with m rows. */
static const ag_cpu_matmul *kernel_of(const ag_cpu_backend *cpu, const ag_tensor *w, size_t m) {
    const ag_cpu_matmul *kernel =
        w->layout ? cpu->kernels.prepared[w->dtype] : cpu->kernels.matmul[w->dtype];
    return kernel->many && m >= kernel->many_rows ? kernel->many : kernel;
}

static void add_product(group_job *job, ag_tensor *y, const ag_tensor *w,
                        const ag_cpu_matmul *kernel) {
    product *p = &job->products[job->n_products++];
    p->w = (ag_cpu_weight){.data = ag_tensor_data(w),
                           .row_bytes = ag_dtype_row_bytes(w->dtype, job->k),
                           .k = job->k,
                           .dtype = w->dtype};
    p->kernel = kernel;
    p->y = ag_tensor_data(y);
    p->n_rows = ag_shape_rows(&w->shape);
    p->first = job->n_units;
    job->n_units += (p->n_rows + AG_ROW_UNIT - 1) / AG_ROW_UNIT;
}

ag_status ag_cpu_matmul_group(ag_backend *b, ag_tensor *const y[], const ag_tensor *x,
                              const ag_tensor *const w[], size_t n) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    if (!ag_shape_numel(&x->shape)) { /* no rows or no columns */
        for (size_t i = 0; i < n; i++) memset(ag_tensor_data(y[i]), 0, ag_tensor_bytes(y[i]));
        return AG_OK;
    }
    const size_t m = ag_shape_rows(&x->shape);
    for (size_t i = 0; i < n;) {
        group_job job = {.cpu = cpu, .k = ag_shape_cols(&x->shape)};
        const ag_cpu_matmul *first = kernel_of(cpu, w[i], m);
        for (; i < n; i++) {
            const ag_cpu_matmul *kernel = kernel_of(cpu, w[i], m);
            if (kernel->pack != first->pack) break;
            add_product(&job, y[i], w[i], kernel);
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
    size_t k, n, strips; /* strips: strips of columns in a row of y, the unit of work */
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
