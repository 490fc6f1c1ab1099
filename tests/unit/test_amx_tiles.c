/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the AMX kernels with tiles in plain C. The test links its own kernels, which replace those
 * of the library. */
#include "backend/cpu/features.h"
#include "backend/cpu/kernels.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ag_dtype types[] = {AG_Q4_0, AG_Q4_1, AG_Q8_0, AG_MXFP4};
enum { N_TYPES = sizeof types / sizeof types[0] };

static void *lines(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static float *random_floats(size_t n, uint32_t seed) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        const int exponent = -31 + (int)(seed >> 8) % 5;
        x[i] = ldexpf((float)(int32_t)next_random(&seed), exponent);
    }
    return x;
}

static const ag_cpu_matmul *tiles_of(ag_dtype type) {
    static ag_cpu_kernels amx;
    ag_cpu_kernels_amx(&amx);
    assert_non_null(amx.prepared[type]->many);
    return amx.prepared[type]->many;
}

static void skip_without_avx512(void) {
    if (ag_cpu_features() >> AG_CPU_AVX512 & 1) return;
    print_message("skipped: this machine has no AVX-512\n");
    skip();
}

/* A weight of n rows as its type says and as the kernel wants it. */
typedef struct weight {
    ag_dtype type;
    size_t n, k, row_bytes;
    unsigned char *rows, *groups;
} weight;

static weight make_weight(ag_dtype type, size_t n, size_t k) {
    const ag_cpu_layout *layout = tiles_of(type)->layout;
    weight w = {.type = type, .n = n, .k = k, .row_bytes = ag_dtype_row_bytes(type, k)};
    float *values = random_floats(n * k, 2);
    w.rows = malloc(n * w.row_bytes);
    for (size_t j = 0; j < n; j++) {
        ag_quantize_row(type, w.rows + j * w.row_bytes, values + j * k, k, AG_ROUND_REFERENCE,
                        NULL);
    }
    free(values);
    w.groups = lines((n + layout->rows - 1) / layout->rows * layout->group_bytes(k));
    for (size_t j = 0; j < n; j += layout->rows) {
        layout->fill(w.groups + j / layout->rows * layout->group_bytes(k), w.rows + j * w.row_bytes,
                     w.row_bytes, n - j < layout->rows ? n - j : layout->rows, k);
    }
    return w;
}

static void free_weight(weight *w) {
    free(w->rows);
    free(w->groups);
}

enum { MARGIN = 7 }; /* floats after every row of y, which must not change */
static const float untouched = 0x1.234p+30f;

/* [m][n + MARGIN] */
static float *product(const weight *w, const float *x, size_t m) {
    const ag_cpu_matmul *kernel = tiles_of(w->type);
    const size_t stride = w->n + MARGIN, room = (m + 15) / 16 * 16;
    float *y = malloc(m * stride * sizeof *y);
    for (size_t i = 0; i < m * stride; i++) y[i] = untouched;
    unsigned char *panel = lines(room * kernel->packed_bytes(w->k));
    void *scratch = lines(kernel->scratch_bytes(w->k));
    for (size_t i = 0; i < m; i++) kernel->pack(panel, x + i * w->k, i, m, w->k);
    const ag_cpu_weight part = {.data = w->groups, .k = w->k};
    kernel->rows(y, stride, panel, m, &part, 0, w->n, scratch);
    free(scratch);
    free(panel);
    return y;
}

/* Squared errors over squared sums. */
static double error_of(const weight *w, const float *x, const float *y, size_t m) {
    double errors = 0, squares = 0;
    float *row = malloc(w->k * sizeof *row);
    for (size_t j = 0; j < w->n; j++) {
        ag_dequantize_row(w->type, row, w->rows + j * w->row_bytes, w->k);
        for (size_t i = 0; i < m; i++) {
            double sum = 0;
            for (size_t l = 0; l < w->k; l++) sum += (double)x[i * w->k + l] * row[l];
            const double off = y[i * (w->n + MARGIN) + j] - sum;
            errors += off * off;
            squares += sum * sum;
        }
    }
    free(row);
    return errors / squares;
}

static void products_have_the_error_of_8_mantissa_bits(void **state) {
    (void)state;
    skip_without_avx512();
    static const size_t sizes[][3] = {{16, 16, 32},   {17, 33, 96}, {48, 15, 64},  {64, 31, 2080},
                                      {65, 33, 2080}, {97, 50, 64}, {70, 300, 32}, {130, 17, 4160}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        float *x = random_floats(m * k, 1);
        for (size_t t = 0; t < N_TYPES; t++) {
            weight w = make_weight(types[t], n, k);
            float *y = product(&w, x, m);
            const double error = error_of(&w, x, y, m);
            if (!(error < 1e-5)) {
                fail_msg("%s m %zu n %zu k %zu: %g", ag_dtype_name(types[t]), m, n, k, error);
            }
            for (size_t i = 0; i < m * (n + MARGIN); i++) {
                if (i % (n + MARGIN) >= n) assert_true(y[i] == untouched);
            }
            free(y);
            free_weight(&w);
        }
        free(x);
    }
}

static void row_is_independent_of_the_number_of_rows(void **state) {
    (void)state;
    skip_without_avx512();
    enum { M = 83, N = 40, K = 2112, ROW_BYTES = (N + MARGIN) * sizeof(float) };
    static const size_t parts[] = {16, 33, 64, 66, 82};
    float *x = random_floats(M * K, 5);
    for (size_t t = 0; t < N_TYPES; t++) {
        weight w = make_weight(types[t], N, K);
        float *all = product(&w, x, M);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            const size_t first = M - parts[i];
            float *part = product(&w, x + first * K, parts[i]);
            assert_memory_equal(part, all + first * (N + MARGIN), parts[i] * ROW_BYTES);
            free(part);
        }
        free(all);
        free_weight(&w);
    }
    free(x);
}

static void nan_stays_in_its_row(void **state) {
    (void)state;
    skip_without_avx512();
    enum { M = 70, N = 16, K = 64 };
    float *x = random_floats(M * K, 9);
    weight w = make_weight(AG_Q8_0, N, K);
    x[5 * K + 3] = NAN;
    x[69 * K] = -NAN;
    float *y = product(&w, x, M);
    for (size_t i = 0; i < M; i++) {
        for (size_t j = 0; j < N; j++) {
            assert_int_equal(!!isnan(y[i * (N + MARGIN) + j]), i == 5 || i == 69);
        }
    }
    free(y);
    free_weight(&w);
    free(x);
}

/* ---- attention ---- */

/* One KV head of n slots behind one another. */
typedef struct head {
    ag_cpu_kv_head kv;
    unsigned char *memory;
    const unsigned char *blocks[8];
} head;

static head make_head(ag_dtype k_type, ag_dtype v_type, uint32_t d, uint32_t n) {
    const size_t k_bytes = ag_dtype_row_bytes(k_type, d), v_bytes = ag_dtype_row_bytes(v_type, d);
    head h = {.kv = {k_type, v_type, d, n, n, NULL, 128 * k_bytes, 128 * (k_bytes + v_bytes)}};
    const size_t block = 128 * (k_bytes + v_bytes + sizeof(uint32_t));
    float *values = random_floats((size_t)2 * n * d, 17);
    h.memory = calloc(8, block);
    for (size_t b = 0; b < 8; b++) h.blocks[b] = h.memory + b * block;
    for (uint32_t s = 0; s < n; s++) {
        unsigned char *at = h.memory + s / 128 * block;
        const uint32_t position = 3 * s + 1;
        ag_quantize_row(k_type, at + s % 128 * k_bytes, values + 2 * s * d, d, AG_ROUND_KV, NULL);
        ag_quantize_row(v_type, at + h.kv.v_offset + s % 128 * v_bytes, values + (2 * s + 1) * d, d,
                        AG_ROUND_KV, NULL);
        memcpy(at + h.kv.p_offset + s % 128 * sizeof position, &position, sizeof position);
    }
    free(values);
    return h;
}

enum { QUERIES = 272, WIDEST = 128 };

typedef struct partial {
    float max[QUERIES], sum[QUERIES], values[QUERIES * WIDEST];
} partial;

typedef void attention_fn(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                          const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);

static void attend(attention_fn *attention, const ag_cpu_kernels *table, partial *p,
                   const ag_cpu_queries *queries, head *h, uint32_t slot0) {
    const uint32_t n = queries->n_rows * queries->group;
    const ag_cpu_partial out = {p->max, p->sum, p->values, NULL};
    void *scratch = lines(table->attention_scratch_bytes(h->kv.head_dim, n));
    h->kv.blocks = h->blocks;
    memset(p, 0x7f, sizeof *p);
    attention(&out, queries, &h->kv, slot0, scratch);
    free(scratch);
}

/* Outputs of n queries: squared differences over squares. */
static double difference(const partial *a, const partial *b, size_t n, size_t d) {
    double errors = 0, squares = 0;
    for (size_t i = 0; i < n * d; i++) {
        const double x = a->sum[i / d] > 0 ? (double)a->values[i] / a->sum[i / d] : 0;
        const double y = b->sum[i / d] > 0 ? (double)b->values[i] / b->sum[i / d] : 0;
        errors += (x - y) * (x - y);
        squares += y * y;
    }
    return squares > 0 ? errors / squares : errors;
}

static const struct {
    ag_dtype k_type, v_type;
    uint32_t d, slots, rows, group, slot0, first_position, window;
    float softcap;
} attentions[] = {
    {AG_F16, AG_F16, 64, 1000, 64, 4, 0, 0, 0, 0},
    {AG_F16, AG_F16, 64, 1000, 17, 4, 512, 2000, 0, 0},
    {AG_Q8_0, AG_Q4_0, 32, 513, 33, 1, 512, 0, 0, 0},
    {AG_Q4_0, AG_Q8_0, 128, 100, 68, 4, 0, 100, 0, 0},
    {AG_Q8_0, AG_F16, 96, 700, 11, 3, 0, 1500, 0, 0},
    {AG_F16, AG_F16, 64, 300, 68, 4, 0, 5000, 0, 0},
    {AG_F16, AG_F16, 64, 1000, 64, 4, 0, 0, 100, 0},
    {AG_F16, AG_Q8_0, 32, 1000, 68, 1, 0, 50, 7, 0},
    {AG_Q8_0, AG_F16, 64, 1000, 17, 4, 512, 1400, 900, 3},
    {AG_F16, AG_F16, 64, 1000, 33, 2, 0, 100, 0, 0.5f},
};

/* Input of attention i, for head h. */
typedef struct question {
    head h;
    float *q;
    uint32_t positions[QUERIES], from[QUERIES];
    ag_cpu_queries queries;
} question;

static void ask(question *a, size_t i) {
    const uint32_t d = attentions[i].d, rows = attentions[i].rows, group = attentions[i].group;
    const uint32_t window = attentions[i].window;
    a->h = make_head(attentions[i].k_type, attentions[i].v_type, d, attentions[i].slots);
    a->q = random_floats((size_t)rows * group * d, 23);
    for (uint32_t r = 0; r < rows; r++) {
        a->positions[r] = attentions[i].first_position + 40 * r;
        a->from[r] = a->positions[r] < window ? 0 : a->positions[r] - window + 1;
    }
    a->queries = (ag_cpu_queries){
        a->q,         group * d,
        a->positions, window ? a->from : NULL,
        rows,         group,
        false,        {.scale = 1.0f / (float)d, .softcap = attentions[i].softcap}};
}

static void forget(question *a) {
    free(a->q);
    free(a->h.memory);
}

static void attention_equals_avx512_up_to_rounding(void **state) {
    (void)state;
    skip_without_avx512();
    ag_cpu_kernels avx512 = {0}, amx = {0};
    ag_cpu_kernels_avx512(&avx512);
    ag_cpu_kernels_amx(&amx);
    partial *want = malloc(sizeof *want), *have = malloc(sizeof *have);
    for (size_t i = 0; i < sizeof attentions / sizeof attentions[0]; i++) {
        const size_t n = (size_t)attentions[i].rows * attentions[i].group;
        question a;
        ask(&a, i);
        attend(avx512.attention, &avx512, want, &a.queries, &a.h, attentions[i].slot0);
        attend(amx.attention, &amx, have, &a.queries, &a.h, attentions[i].slot0);
        const double error = difference(have, want, n, attentions[i].d);
        if (!(error < 5e-5)) fail_msg("attention %zu: %g", i, error);
        for (size_t m = 0; m < n; m++) {
            if (want->sum[m] == 0) {
                assert_true(have->sum[m] == 0 && have->max[m] == want->max[m]);
                continue;
            }
            assert_true(fabsf(have->max[m] - want->max[m]) < 0.1f);
            const double total = want->sum[m] * exp((double)want->max[m] - (double)have->max[m]);
            assert_true(fabs(have->sum[m] - total) < 0.05 * total);
        }
        forget(&a);
    }
    free(have);
    free(want);
}

/* Computes the largest weights of a span's slots with the table's own sums over that span. Scores
 * after n_slots must not change. */
static void weigh(const ag_cpu_kernels *table, float *scores, question *a, uint32_t slot0) {
    const uint32_t n = a->queries.n_rows * a->queries.group;
    partial *p = malloc(sizeof *p);
    void *scratch = lines(table->attention_scratch_bytes(a->h.kv.head_dim, n));
    attend(table->attention, table, p, &a->queries, &a->h, slot0);
    for (size_t s = 0; s < 1024; s++) scores[s] = s % 7 ? 0 : 1e-3f;
    a->queries.score_max = true;
    table->attention_scores(scores, &a->queries, &a->h.kv, slot0, p->max, p->sum, NULL, scratch);
    free(scratch);
    free(p);
}

static void largest_weights_equal_avx512_up_to_rounding(void **state) {
    (void)state;
    skip_without_avx512();
    ag_cpu_kernels avx512 = {0}, amx = {0};
    ag_cpu_kernels_avx512(&avx512);
    ag_cpu_kernels_amx(&amx);
    assert_true(amx.attention_scores != avx512.attention_scores);
    for (size_t i = 0; i < sizeof attentions / sizeof attentions[0]; i++) {
        float want[1024], have[1024];
        question a;
        ask(&a, i);
        weigh(&avx512, want, &a, attentions[i].slot0);
        weigh(&amx, have, &a, attentions[i].slot0);
        for (size_t s = 0; s < 1024; s++) {
            /* Operands keep 8 bits, so scores of about 10 are off by up to 0.04, weights by 4 %. */
            if (!(fabsf(have[s] - want[s]) <= 0.05f * want[s]))
                fail_msg("attention %zu, slot %zu: %g, not %g", i, s, (double)have[s],
                         (double)want[s]);
        }
        forget(&a);
    }
}

/* Slots before a query's first and after its last may hold any bits. */
static void attention_ignores_nonfinite_values_outside(void **state) {
    (void)state;
    skip_without_avx512();
    ag_cpu_kernels amx = {0};
    ag_cpu_kernels_amx(&amx);
    head h = make_head(AG_F16, AG_F16, 64, 64);
    float *q = random_floats(64 * 64, 29);
    uint32_t positions[64], from[64];
    for (uint32_t r = 0; r < 64; r++) {
        positions[r] = 3 * r + 1;
        from[r] = 3 * (r < 50 ? r / 2 : r - 9);
    }
    const uint16_t infinity = 0x7c00;
    memcpy(h.memory + h.kv.v_offset + (40 * 64 + 7) * sizeof infinity, &infinity, sizeof infinity);
    const ag_cpu_queries queries = {q, 64, positions, from, 64, 1, false, {.scale = 0.125f}};
    partial *have = malloc(sizeof *have);
    attend(amx.attention, &amx, have, &queries, &h, 0);
    for (size_t m = 0; m < 64; m++) {
        for (size_t i = 0; i < 64; i++) {
            assert_int_equal(!isfinite(have->values[m * 64 + i]), m >= 40 && m < 50 && i == 7);
        }
    }
    free(have);
    free(q);
    free(h.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_error_of_8_mantissa_bits),
        cmocka_unit_test(row_is_independent_of_the_number_of_rows),
        cmocka_unit_test(nan_stays_in_its_row),
        cmocka_unit_test(attention_equals_avx512_up_to_rounding),
        cmocka_unit_test(largest_weights_equal_avx512_up_to_rounding),
        cmocka_unit_test(attention_ignores_nonfinite_values_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
