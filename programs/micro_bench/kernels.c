/* SPDX-License-Identifier: Apache-2.0 */
/* The two inner loops of decoding: quantising a row of activations to 8-bit blocks, and its product
 * with a row of 4-bit weights. Scalar versions: the conversion to Q8_0, and a product in double.
 * Vector versions process 16 rows of weights. */
#include "backend/cpu/kernels.h"
#include "core/alloc.h"
#include "micro_bench.h"
#include "platform/clock.h"
#include "quant/quant.h"

#include <string.h>

enum { K = 2048, ROWS = AG_ROW_UNIT };

typedef struct bench_kernel {
    const ag_cpu_matmul *matmul; /* for Q4_0 */
    float *x, *y;                /* [K], [ROWS] */
    unsigned char *rows;         /* weights: row by row, then packed */
    unsigned char *packed, *scratch;
    ag_cpu_weight w;
} bench_kernel;

static void quantize_row(const bench_kernel *b) {
    if (b->matmul->layout) b->matmul->pack(b->packed, b->x, 0, 1, K);
    else ag_quantize_row(AG_Q8_0, b->packed, b->x, K, AG_ROUND_REFERENCE, NULL);
}

static void vec_dot(const bench_kernel *b) {
    b->matmul->rows(b->y, ROWS, b->packed, 1, &b->w, 0, ROWS, b->scratch);
}

static const struct {
    const char *op;
    ag_dtype type;
    void (*run)(const bench_kernel *b);
    double rows; /* rows of K values per run */
} kernels[] = {
    {"quantize_row_q8_0", AG_Q8_0, quantize_row, 1},
    {"vec_dot_q4_0_q8_0", AG_Q4_0, vec_dot, ROWS},
};

bool kernel_name_at(size_t i, const char **op, ag_dtype *type) {
    if (i >= sizeof kernels / sizeof kernels[0]) return false;
    *op = kernels[i].op;
    *type = kernels[i].type;
    return true;
}

static work kernel_work(size_t i, bool of_bytes) {
    const double q4 = (double)ag_dtype_row_bytes(AG_Q4_0, K);
    const double q8 = (double)ag_dtype_row_bytes(AG_Q8_0, K);
    if (i == 0) return (work){.bytes = K * sizeof(float) + q8};
    return (work){q4 + q8 / ROWS + sizeof(float), 2.0 * K, of_bytes};
}

static double time_runs(size_t i, const bench_kernel *b, size_t n) {
    const double begin = ag_now_s();
    for (size_t j = 0; j < n; j++) kernels[i].run(b);
    return (ag_now_s() - begin) / (double)n;
}

static void measure(size_t i, const bench_kernel *b, const options *o, row *r) {
    static double seconds[MAX_RUNS];
    const double sample_s = 20e-6; /* far above the cost of reading the clock */
    size_t n = 0, repeat = 1;
    if (o->max_runs > 1) {
        while (time_runs(i, b, repeat) * (double)repeat < sample_s) repeat *= 2;
    }
    for (double total = 0; n < o->max_runs && (total < o->min_s || n < o->min_runs); n++) {
        const double each = time_runs(i, b, repeat);
        total += each * (double)repeat;
        seconds[n] = each / kernels[i].rows;
    }
    row_set_times(r, seconds, n);
}

/* Makes the weights as rows, then in the kernel's layout. */
static bool make_weights(bench_kernel *b) {
    const ag_cpu_layout *layout = b->matmul->layout;
    const size_t row_bytes = ag_dtype_row_bytes(AG_Q4_0, K);
    const size_t plain = (ROWS * row_bytes + 63) / 64 * 64;
    const size_t group_rows = layout ? layout->rows : ROWS;
    const size_t group_bytes = layout ? layout->group_bytes(K) : 0;
    b->rows = ag_aligned_alloc(plain + (ROWS + group_rows - 1) / group_rows * group_bytes);
    if (!b->rows) return false;
    oracle_run random = {.random = 1};
    for (size_t j = 0; j < ROWS; j++) {
        oracle_fill(&random, b->x, K, DATA_PLAIN);
        ag_quantize_row(AG_Q4_0, b->rows + j * row_bytes, b->x, K, AG_ROUND_REFERENCE, NULL);
    }
    for (size_t j = 0; layout && j < ROWS; j += group_rows) {
        layout->fill(b->rows + plain + j / group_rows * group_bytes, b->rows + j * row_bytes,
                     row_bytes, ROWS - j < group_rows ? ROWS - j : group_rows, K);
    }
    b->w = (ag_cpu_weight){.row_bytes = row_bytes, .k = K, .dtype = AG_Q4_0};
    b->w.data = layout ? b->rows + plain : b->rows;
    return true;
}

static bool make(bench_kernel *b, const char *isa) {
    ag_cpu_kernels table;
    ag_cpu_kernels_init(&table, isa);
    *b = (bench_kernel){.matmul = table.prepared[AG_Q4_0]};
    if (!b->matmul) b->matmul = table.matmul[AG_Q4_0];
    b->x = ag_aligned_alloc(K * sizeof *b->x);
    b->y = ag_aligned_alloc(ROWS * sizeof *b->y);
    b->packed = ag_aligned_alloc(b->matmul->packed_bytes(K));
    b->scratch = ag_aligned_alloc(b->matmul->scratch_bytes ? b->matmul->scratch_bytes(K) : 64);
    if (!b->x || !b->y || !b->packed || !b->scratch || !make_weights(b)) return false;
    b->matmul->pack(b->packed, b->x, 0, 1, K);
    return true;
}

bool kernel_time(size_t i, const char *isa, const options *o, row *r) {
    bench_kernel b;
    const bool made = make(&b, isa);
    *r = (row){.op = kernels[i].op, .isa = isa, .type = kernels[i].type, .verdict = "unchecked"};
    r->m = r->n = 1;
    r->k = K;
    r->threads = 1;
    if (made) {
        r->work = kernel_work(i, b.matmul->layout != NULL);
        measure(i, &b, o, r);
    }
    ag_aligned_free(b.x);
    ag_aligned_free(b.y);
    ag_aligned_free(b.rows);
    ag_aligned_free(b.packed);
    ag_aligned_free(b.scratch);
    return made;
}
