/* SPDX-License-Identifier: Apache-2.0 */
/* Products. Activations are packed in panels that fit the L2 cache. For each panel, one dispatch
 * divides the rows of all weights that use it. With experts, one dispatch has a panel for each
 * expert. */
#include "backend/cpu/cpu_backend.h"
#include "core/fail.h"
#include "core/scratch.h"

#include <string.h>

enum { PANEL_BYTES = 3 << 19, PANEL_ROWS_MIN = 16, PANEL_ROWS_MAX = 256 };
enum { PART_PRODUCTS = 1 << 17, PACK_ELEMENTS = 1 << 15 }; /* smallest work of a thread */
enum { CHUNK_PRODUCTS = 1 << 17, CHUNK_UNITS_MAX = 4 };    /* smallest chunk; largest one */

/* The product of a panel, packed activations, with a weight. */
typedef struct product {
    ag_cpu_weight w;
    const ag_cpu_matmul *kernel;
    float *y;
    const void *panel;
    size_t m;             /* rows of the panel */
    size_t n_rows, first; /* rows of w; index of its first unit in the dispatch */
} product;

/* A row to be packed. */
typedef struct pack_item {
    const float *x;
    void *panel;
    uint32_t row, m; /* its place in the panel; rows of the panel */
} pack_item;

/* Products whose kernels use the same packing. */
typedef struct group_job {
    ag_cpu_backend *cpu;
    product *products;
    size_t n_products, n_units; /* n_units: units of AG_ROW_UNIT rows over all products */
    size_t k, m;                /* columns; rows of the largest panel */
    const float *x;             /* rows to be packed, if items is NULL */
    const pack_item *items;
    size_t n_items;
    size_t chunk, n_parts; /* units of a claim; number of threads' shares */
    ag_silu_mul_fn *gate;  /* applied to two products; NULL: none */
} group_job;

static void pack_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const group_job *job = ctx;
    for (size_t i = begin; i < end; i++) {
        job->products[0].kernel->pack(job->cpu->scratch.shared, job->x + i * job->k, i, job->m,
                                      job->k);
    }
}

static void pack_items(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    const group_job *job = ctx;
    for (size_t i = begin; i < end; i++) {
        const pack_item *item = &job->items[i];
        job->products[0].kernel->pack(item->panel, item->x, item->row, item->m, job->k);
    }
}

/* Returns the first byte of a unit, also of the one past the last. */
static const unsigned char *unit_address(const product *p, size_t unit, size_t k) {
    const ag_cpu_layout *layout = p->kernel->layout;
    const size_t bytes =
        layout ? layout->group_bytes(k) * AG_ROW_UNIT / layout->rows : p->w.row_bytes * AG_ROW_UNIT;
    return (const unsigned char *)p->w.data + unit * bytes;
}

static size_t units_of(const product *p) { return (p->n_rows + AG_ROW_UNIT - 1) / AG_ROW_UNIT; }

/* Returns the product that has a unit: of several with the same first unit, the last. */
static size_t product_of(const group_job *job, size_t unit) {
    size_t low = 0, high = job->n_products;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (job->products[middle].first <= unit) low = middle;
        else high = middle;
    }
    return low;
}

/* Computes units [begin, end) of a product. This thread continues with the units before `ahead`. */
static void multiply_product(const group_job *job, const product *p, size_t begin, size_t end,
                             size_t ahead, uint32_t thread) {
    const size_t row0 = begin * AG_ROW_UNIT;
    const size_t row1 = end * AG_ROW_UNIT < p->n_rows ? end * AG_ROW_UNIT : p->n_rows;
    ag_cpu_weight w = p->w;
    w.prefetch_end = unit_address(p, ahead, job->k);
    p->kernel->rows(p->y + row0, p->n_rows, p->panel, p->m, &w, row0, row1 - row0,
                    ag_cpu_thread_scratch(job->cpu, thread));
}

/* Multiplies the same units of both products, then gates them while they are cached. */
static void multiply_gated(const group_job *job, size_t begin, size_t end, size_t ahead,
                           uint32_t thread) {
    const product *p = job->products;
    for (int i = 0; i < 2; i++) multiply_product(job, &p[i], begin, end, ahead, thread);
    const size_t row0 = begin * AG_ROW_UNIT;
    const size_t row1 = end * AG_ROW_UNIT < p->n_rows ? end * AG_ROW_UNIT : p->n_rows;
    for (size_t at = row0; at < p->m * p->n_rows; at += p->n_rows)
        job->gate(p[0].y + at, p[1].y + at, row1 - row0);
}

/* Multiplies units [begin, end). This thread continues with the units before `ahead`. */
static void multiply_units(const group_job *job, size_t begin, size_t end, size_t ahead,
                           uint32_t thread) {
    if (job->gate) {
        multiply_gated(job, begin, end, ahead, thread);
        return;
    }
    for (size_t i = product_of(job, begin); i < job->n_products && begin < end; i++) {
        const product *p = &job->products[i];
        const size_t units = units_of(p);
        if (begin >= p->first + units) continue;
        const size_t unit1 = end - p->first < units ? end - p->first : units;
        const size_t last = ahead - p->first < units ? ahead - p->first : units;
        multiply_product(job, p, begin - p->first, unit1, last, thread);
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
    const size_t unit_products = AG_ROW_UNIT * job->k * job->m * (job->gate ? 2 : 1);
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

/* Packs the rows, then multiplies. */
static void run_panels(group_job *job) {
    ag_pool *pool = job->cpu->pool;
    ag_pool_run(pool, job->items ? job->n_items : job->m, PACK_ELEMENTS / job->k + 1,
                job->items ? pack_items : pack_rows, job);
    make_parts(job);
    ag_pool_run(pool, job->n_parts, 1, multiply_parts, job);
}

/* Makes room for the kernels' scratch memory in each thread. */
static ag_status need_threads(const group_job *job) {
    size_t scratch_bytes = 0;
    for (size_t i = 0; i < job->n_products; i++) {
        const ag_cpu_matmul *kernel = job->products[i].kernel;
        size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(job->k) : 0;
        if (bytes > scratch_bytes) scratch_bytes = bytes;
    }
    return ag_cpu_need_threads(job->cpu, scratch_bytes);
}

static size_t panel_bytes(size_t rows, size_t packed_bytes) {
    return (rows + AG_ROW_UNIT - 1) / AG_ROW_UNIT * AG_ROW_UNIT * packed_bytes;
}

/* Computes products with all rows of x, panel by panel. */
static ag_status run_group(group_job *job, const ag_tensor *x) {
    const size_t m = ag_shape_rows(&x->shape), k = job->k;
    const ag_cpu_matmul *first = job->products[0].kernel;
    const size_t packed_bytes = first->packed_bytes(k), panel = panel_rows(first, m, packed_bytes);
    ag_status st = ag_cpu_need_shared(job->cpu, panel_bytes(panel, packed_bytes));
    if (st == AG_OK) st = need_threads(job);
    if (st != AG_OK) return st;
    job->x = ag_tensor_data(x);
    for (size_t row = 0; row < m; row += job->m) {
        job->m = m - row < panel ? m - row : panel;
        for (size_t i = 0; i < job->n_products; i++) {
            job->products[i].panel = job->cpu->scratch.shared;
            job->products[i].m = job->m;
        }
        run_panels(job);
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

static product *add_product(group_job *job, float *y, const ag_tensor *w,
                            const ag_cpu_matmul *kernel) {
    product *p = &job->products[job->n_products++];
    *p = (product){.w = {.data = ag_tensor_data(w),
                         .row_bytes = ag_dtype_row_bytes(w->dtype, job->k),
                         .k = job->k,
                         .dtype = w->dtype},
                   .kernel = kernel,
                   .y = y,
                   .n_rows = ag_shape_rows(&w->shape),
                   .first = job->n_units};
    job->n_units += units_of(p);
    return p;
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
        product products[AG_MATMUL_GROUP_MAX];
        group_job job = {.cpu = cpu, .products = products, .k = ag_shape_cols(&x->shape)};
        const ag_cpu_matmul *first = kernel_of(cpu, w[i], m);
        for (; i < n; i++) {
            const ag_cpu_matmul *kernel = kernel_of(cpu, w[i], m);
            if (kernel->pack != first->pack) break;
            add_product(&job, ag_tensor_data(y[i]), w[i], kernel);
        }
        ag_status st = run_group(&job, x);
        if (st != AG_OK) return st;
    }
    return AG_OK;
}

ag_status ag_cpu_matmul_gated(ag_backend *b, ag_gate_kind kind, ag_tensor *const y[2],
                              const ag_tensor *x, const ag_tensor *const w[2]) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    const size_t m = ag_shape_rows(&x->shape);
    const ag_cpu_matmul *kernels[] = {kernel_of(cpu, w[0], m), kernel_of(cpu, w[1], m)};
    const bool is_silu = kind == AG_GATE_SILU;
    /* Few rows are bound by reading the weights, which is faster one matrix after the other. */
    if (m <= AG_CPU_BATCH_INVARIANT_ROWS || !ag_shape_numel(&x->shape) ||
        kernels[0]->pack != kernels[1]->pack) {
        AG_TRY(ag_cpu_matmul_group(b, y, x, w, 2));
        return (is_silu ? ag_cpu_silu_mul : ag_cpu_gelu_mul)(b, y[0], y[1]);
    }
    product products[2];
    group_job job = {.cpu = cpu, .products = products, .k = ag_shape_cols(&x->shape)};
    for (int i = 0; i < 2; i++) add_product(&job, ag_tensor_data(y[i]), w[i], kernels[i]);
    job.n_units = units_of(&products[0]); /* a unit has rows of both */
    job.gate = is_silu ? cpu->kernels.silu_mul : cpu->kernels.gelu_mul;
    return run_group(&job, x);
}

ag_status ag_cpu_matmul_transposed(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                   const ag_tensor *w) {
    return ag_cpu_matmul_group(b, &y, x, &w, 1);
}

/* ---- products of experts ---- */

/* Rows of all experts' panels that are packed at a time: about the size of a processor's cache. */
enum { EXPERT_PANELS_BYTES = 16 << 20 };

/* Products y[i] = x w[i] for i in [first, end), whose kernels use the same packing. The rows of an
 * expert are a panel, or several. */
typedef struct experts_job {
    group_job group;
    const ag_expert_call *call;
    size_t first, end, n_rows; /* n_rows: rows of the pass, which choose the kernels */
    size_t packed_bytes, panel_rows, batch_rows, n_panels_max;
    uint32_t *first_picked, *picked; /* from ag_list_picked() */
    product *products;               /* [n_panels_max * (end - first)] */
    pack_item *items;                /* [batch_rows] */
    unsigned char *panels;
} experts_job;

static const ag_cpu_matmul *expert_kernel(const experts_job *j, size_t i) {
    return kernel_of(j->group.cpu, &j->call->w[i][0], j->n_rows);
}

/* Lays out the scratch memory. base NULL: returns its size only. */
static size_t layout_experts(experts_job *j, unsigned char *base) {
    const ag_expert_call *c = j->call;
    ag_scratch s = {.base = base};
    j->first_picked = ag_scratch_alloc(&s, (c->n_experts + (size_t)1) * sizeof *j->first_picked);
    j->picked = ag_scratch_alloc(&s, j->n_rows * c->n_used * sizeof *j->picked);
    j->products = ag_scratch_alloc(&s, j->n_panels_max * (j->end - j->first) * sizeof *j->products);
    j->items = ag_scratch_alloc(&s, j->batch_rows * sizeof *j->items);
    /* panels are padded to units, and each starts at one */
    const size_t rows = j->batch_rows + j->n_panels_max * AG_ROW_UNIT;
    j->panels = ag_scratch_alloc(&s, rows * j->packed_bytes);
    return s.used;
}

static ag_status prepare_experts(experts_job *j) {
    ag_cpu_backend *cpu = j->group.cpu;
    const ag_cpu_matmul *kernel = expert_kernel(j, j->first);
    const size_t n_picked = j->n_rows * j->call->n_used;
    j->packed_bytes = kernel->packed_bytes(j->group.k);
    j->panel_rows = panel_rows(kernel, n_picked, j->packed_bytes);
    j->batch_rows = EXPERT_PANELS_BYTES / j->packed_bytes;
    if (j->batch_rows < j->panel_rows) j->batch_rows = j->panel_rows;
    if (j->batch_rows > n_picked) j->batch_rows = n_picked;
    /* an expert has at most one panel that is not full */
    j->n_panels_max = j->batch_rows / j->panel_rows + j->call->n_experts;
    if (j->n_panels_max > j->batch_rows) j->n_panels_max = j->batch_rows;
    AG_TRY(ag_cpu_need_shared(cpu, layout_experts(j, NULL)));
    (void)layout_experts(j, cpu->scratch.shared);
    size_t scratch_bytes = 0;
    for (size_t i = j->first; i < j->end; i++) {
        kernel = expert_kernel(j, i);
        const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(j->group.k) : 0;
        if (bytes > scratch_bytes) scratch_bytes = bytes;
    }
    return ag_cpu_need_threads(cpu, scratch_bytes);
}

/* Returns whether all experts read the same row. */
static bool shares_panel(const experts_job *j) { return j->n_rows == 1 && !j->call->picked; }

/* Adds a panel with n picked rows of an expert from row `at` on, and its products. */
static void add_panel(experts_job *j, uint32_t expert, size_t at, size_t n, unsigned char *panel) {
    const ag_expert_call *c = j->call;
    const float *x = ag_tensor_data(c->x);
    const bool is_packed = shares_panel(j) && at > 0;
    for (size_t i = 0; i < n && !is_packed; i++) {
        const size_t row = c->picked ? at + i : j->picked[at + i];
        j->items[j->group.n_items++] =
            (pack_item){x + row * j->group.k, panel, (uint32_t)i, (uint32_t)n};
    }
    if (n > j->group.m) j->group.m = n;
    for (size_t i = j->first; i < j->end; i++) {
        float *y = ag_tensor_data(c->y[i]);
        product *p = add_product(&j->group, y + at * ag_shape_cols(&c->y[i]->shape),
                                 &c->w[i][expert], expert_kernel(j, i));
        p->panel = panel;
        p->m = n;
    }
}

/* Computes the products, a batch of panels at a time. */
static void run_experts(experts_job *j) {
    group_job *g = &j->group;
    const size_t n_picked = j->n_rows * j->call->n_used;
    uint32_t expert = 0;
    for (size_t at = 0; at < n_picked;) {
        unsigned char *panel = j->panels;
        g->products = j->products;
        g->items = j->items;
        g->n_products = g->n_units = g->n_items = g->m = 0;
        /* A row that all experts share is packed once, so panels need a bound too. */
        while (at < n_picked && g->n_items < j->batch_rows &&
               g->n_products < j->n_panels_max * (j->end - j->first)) {
            while (at >= j->first_picked[expert + 1]) expert++;
            size_t n = j->first_picked[expert + 1] - at;
            if (n > j->panel_rows) n = j->panel_rows;
            if (n > j->batch_rows - g->n_items) n = j->batch_rows - g->n_items;
            add_panel(j, expert, at, n, panel);
            if (!shares_panel(j)) panel += panel_bytes(n, j->packed_bytes);
            at += n;
        }
        run_panels(g);
    }
}

ag_status ag_cpu_matmul_experts(ag_backend *b, const ag_expert_call *call) {
    const size_t n_rows = ag_shape_rows(&call->routes->shape);
    for (size_t i = 0; i < call->n;) {
        experts_job j = {.group = {.cpu = ag_cpu_of(b), .k = ag_shape_cols(&call->x->shape)},
                         .call = call,
                         .first = i,
                         .n_rows = n_rows};
        const ag_cpu_matmul *first = expert_kernel(&j, i);
        while (i < call->n && expert_kernel(&j, i)->pack == first->pack) i++;
        j.end = i;
        AG_TRY(prepare_experts(&j));
        if (!ag_list_picked(ag_tensor_data(call->routes), n_rows, call->n_experts, call->n_used,
                            j.first_picked, j.picked))
            return AG_FAIL(&b->err, INVALID, "routes hold values that ag_route() does not write");
        run_experts(&j);
    }
    return AG_OK;
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
