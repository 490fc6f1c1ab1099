/* SPDX-License-Identifier: Apache-2.0 */
/* The policy compactor against its rule in double: importance from given sums, and the sums from
 * a pass. */
#include "cache/cache_manager.h"
#include "cache/eviction/chunk_scores.h"
#include "cache/eviction/importance.h"
#include "cache/eviction/policies.h"
#include "core/backend_ops.h"
#include "support/without_matrix_units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { HEADS = 2, GROUP = 2, DIM = 64, SKETCH = 48, MOST = 700, FIRST = 8, LAST = 4 };

static float noise(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

/* ---- importance ---- */

/* Computes l_i = x_i G^-1 x_i^T by elimination, with rows x of the projected, centred keys
 * [n][DIM]. */
static void leverage(const float *keys, size_t n, const float *sketch, double *out) {
    static double x[MOST][SKETCH], g[SKETCH][2 * SKETCH];
    double mean[DIM] = {0};
    for (size_t i = 0; i < n * DIM; i++) mean[i % DIM] += keys[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < SKETCH; j++) {
            x[i][j] = 0;
            for (size_t d = 0; d < DIM; d++)
                x[i][j] += (keys[i * DIM + d] - mean[d]) * sketch[d * SKETCH + j];
        }
    }
    for (size_t a = 0; a < SKETCH; a++) {
        for (size_t b = 0; b < SKETCH; b++) {
            double sum = a == b ? 1e-2 : 0;
            for (size_t i = 0; i < n; i++) sum += x[i][a] * x[i][b];
            g[a][b] = sum;
            g[a][SKETCH + b] = a == b;
        }
    }
    for (size_t c = 0; c < SKETCH; c++) { /* positive definite: needs no pivoting */
        const double pivot = g[c][c];
        for (size_t b = 0; b < 2 * SKETCH; b++) g[c][b] /= pivot;
        for (size_t a = 0; a < SKETCH; a++) {
            const double by = g[a][c];
            for (size_t b = 0; a != c && b < 2 * SKETCH; b++) g[a][b] -= by * g[c][b];
        }
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        for (size_t a = 0; a < SKETCH; a++) {
            for (size_t b = 0; b < SKETCH; b++) out[i] += x[i][a] * g[a][SKETCH + b] * x[i][b];
        }
    }
}

static void normalise(double *x, size_t n) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    for (size_t i = 0; i < n; i++) x[i] = (x[i] - mean) / sqrt(squares / (double)(n - 1));
}

/* Returns the mean of component d: some are far from 0, as in real keys. Steep: they differ so
 * much that the Gram matrix is badly conditioned. */
static float component(size_t i, bool steep) {
    if (steep) return noise() * expf(3 - (float)(i % DIM) / 6);
    return noise() * (float)(1 + i % 7) + (i % 9 ? 0 : 30);
}

static void check_importance(bool steep, double tolerance) {
    enum { N = 600, INNER = N - FIRST - LAST };
    static float keys[HEADS][N * DIM], values[HEADS][N * DIM], sums[HEADS][N], sketch[DIM * SKETCH];
    static float scratch[N * DIM], importance[HEADS][N], more[HEADS][N];
    static double a[HEADS * INNER], l[HEADS * INNER];
    uint32_t positions[N];
    ag_eviction_inputs heads[HEADS];
    ag_eviction_params p = ag_eviction_defaults();
    const ag_compactor_params own = {.sketch = sketch};
    const ag_eviction_policy *policy = &ag_eviction_compactor;
    float *work = calloc(policy->work_floats(NULL, DIM), sizeof *work);
    srand(3);
    p.policy_params = &own;
    for (size_t i = 0; i < DIM * SKETCH; i++) sketch[i] = noise() / 4;
    for (uint32_t s = 0; s < N; s++) positions[s] = s;
    for (size_t h = 0; h < HEADS; h++) {
        for (size_t i = 0; i < N * DIM; i++) keys[h][i] = component(i, steep);
        for (size_t i = 0; i < N * DIM; i++) values[h][i] = noise() * (float)(1 + h);
        for (size_t s = 0; s < N; s++) sums[h][s] = expf(2 * noise());
        memcpy(scratch, keys[h], sizeof scratch);
        heads[h] = (ag_eviction_inputs){.n_slots = N,
                                        .dim = DIM,
                                        .removed = 0.75f,
                                        .positions = positions,
                                        .keys = scratch,
                                        .values = values[h],
                                        .sums = sums[h],
                                        .importance = importance[h],
                                        .more = more[h],
                                        .work = work};
        policy->from_keys(NULL, &p, &heads[h]);
        leverage(keys[h] + FIRST * DIM, INNER, sketch, l + h * INNER);
        double weighted[INNER + 2] = {0};
        for (size_t i = 0; i < INNER; i++) {
            double squares = 0;
            for (size_t d = 0; d < DIM; d++) squares += pow(values[h][(FIRST + i) * DIM + d], 2);
            weighted[i + 1] = sums[h][FIRST + i] * sqrt(squares);
        }
        for (size_t i = 0; i < INNER; i++)
            a[h * INNER + i] = (weighted[i] + weighted[i + 1] + weighted[i + 2]) / 3;
    }
    policy->compare(NULL, &p, heads, HEADS);
    normalise(a, HEADS * INNER);
    normalise(l, HEADS * INNER);
    for (size_t h = 0; h < HEADS; h++) {
        for (size_t s = 0; s < N; s++) {
            if (s < FIRST || s >= N - LAST) {
                assert_true(importance[h][s] == INFINITY);
                continue;
            }
            const double want = a[h * INNER + s - FIRST] + 0.75 * l[h * INNER + s - FIRST];
            assert_true(fabs(importance[h][s] - want) < tolerance);
        }
    }
    free(work);
}

static void computes_importance_by_the_rule(void **state) {
    (void)state;
    check_importance(false, 3e-5);
    check_importance(true, 1e-2);
}

/* Tokens outside chunks rank by their leverage, as if their attention were the mean. */
static void ranks_slots_outside_chunks_by_leverage(void **state) {
    (void)state;
    enum { N = 120 };
    static float keys[2][N * DIM], values[N * DIM], sums[N], importance[2][N], more[N];
    uint32_t positions[N];
    ag_eviction_params p = ag_eviction_defaults();
    const ag_eviction_policy *policy = &ag_eviction_compactor;
    srand(5);
    for (size_t i = 0; i < N * DIM; i++) keys[0][i] = noise();
    for (size_t d = 0; d < DIM; d++) keys[0][90 * DIM + d] *= 20;
    memcpy(keys[1], keys[0], sizeof keys[0]);
    for (size_t i = 0; i < N * DIM; i++) values[i] = noise();
    for (uint32_t s = 0; s < N; s++) positions[s] = s + 100;
    for (uint32_t s = 0; s < 80; s++) sums[s] = 1 + noise() / 2;
    for (int round = 0; round < 2; round++) {
        float *work = calloc(policy->work_floats(NULL, DIM), sizeof *work);
        ag_eviction_inputs in = {.n_slots = N,
                                 .dim = DIM,
                                 .removed = 0.5f,
                                 .positions = positions,
                                 .keys = keys[round],
                                 .values = values,
                                 .sums = sums,
                                 .importance = importance[round],
                                 .more = more,
                                 .work = work};
        policy->from_keys(NULL, &p, &in);
        policy->compare(NULL, &p, &in, 1);
        free(work);
    }
    for (size_t s = 80; s < N - LAST; s++) {
        assert_true(isfinite(importance[0][s]));
        assert_true(s == 90 || importance[0][s] < importance[0][90]);
    }
    /* the sketch is the same in every run */
    assert_memory_equal(importance[0], importance[1], sizeof importance[0]);
}

/* ---- keys as they were ---- */

static void unrotates_keys(void **state) {
    (void)state;
    enum { N = 500, ROTATED = 48 };
    static float keys[N * DIM], want[N * DIM];
    float inv_freq[ROTATED / 2], far[2 * ROTATED];
    uint32_t positions[N];
    const ag_rope_table rope = {inv_freq, ROTATED, 1.25f};
    float *table = calloc(ag_unrotate_table_floats(ROTATED), sizeof *table);
    srand(6);
    for (int i = 0; i < ROTATED / 2; i++) inv_freq[i] = powf(10000, -2.0f * (float)i / ROTATED);
    for (uint32_t s = 0; s < N; s++) positions[s] = 3 * s + s / 100 * 1000;
    for (size_t s = 0; s < N; s++) {
        float *x = want + s * DIM, *k = keys + s * DIM;
        for (size_t d = 0; d < DIM; d++) k[d] = x[d] = noise();
        for (size_t i = 0; i < ROTATED / 2; i++) {
            const double angle = (double)positions[s] * inv_freq[i];
            const double c = 1.25 * cos(angle), n = 1.25 * sin(angle);
            k[i] = (float)(x[i] * c - x[i + ROTATED / 2] * n);
            k[i + ROTATED / 2] = (float)(x[i] * n + x[i + ROTATED / 2] * c);
        }
    }
    ag_unrotate_table(&rope, table);
    ag_unrotate(keys, N, DIM, positions, &rope, table, far);
    for (size_t i = 0; i < N * DIM; i++) assert_true(fabsf(keys[i] - want[i]) < 1e-5f);
    free(table);
}

/* ---- attention inside chunks ---- */

typedef struct run {
    ag_backend *be;
    ag_kv_cache *cache;
    ag_score_sums *sums;
    ag_chunk_scores *chunks;
} run;

static float k[MOST * HEADS * DIM], q[MOST * HEADS * GROUP * DIM];
static const ag_attention_params params = {.scale = 0.125f};

static run begin_run(ag_backend *be, const ag_eviction_policy *policy,
                     const ag_compactor_params *own) {
    run r = {.be = be};
    ag_eviction_params p = ag_eviction_defaults();
    p.policy = policy;
    p.policy_params = own;
    const ag_kv_params kv = {.n_layers = 1,
                             .n_kv_heads = HEADS,
                             .head_dim = DIM,
                             .max_slots = MOST,
                             .k_type = AG_F32,
                             .v_type = AG_F32};
    assert_int_equal(ag_kv_cache_create(be, &kv, &r.cache, NULL), AG_OK);
    assert_int_equal(ag_score_sums_create(p.policy, r.cache, &r.sums, NULL), AG_OK);
    assert_int_equal(ag_chunk_scores_create(&p, r.cache, &r.chunks, NULL), AG_OK);
    return r;
}

static void end_run(run *r) {
    ag_chunk_scores_destroy(r->chunks);
    ag_score_sums_destroy(r->sums);
    ag_kv_cache_destroy(r->cache);
}

static ag_tensor rows(ag_backend *be, ag_buffer **owner, size_t n, size_t heads,
                      const float *from) {
    ag_tensor t;
    assert_int_equal(ag_tensor_alloc(&t, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(n, heads, DIM), NULL),
                     AG_OK);
    memcpy(ag_tensor_f32(&t), from, n * heads * DIM * sizeof *from);
    return t;
}

/* Tokens [at, at + n) of a prompt of `total`. */
static void pass(run *r, uint32_t at, uint32_t n, uint32_t total) {
    ag_buffer *owners[3];
    uint32_t positions[MOST];
    for (uint32_t i = 0; i < n; i++) positions[i] = at + i;
    ag_tensor keys = rows(r->be, &owners[0], n, HEADS, k + (size_t)at * HEADS * DIM);
    const float *asked = q + (size_t)at * HEADS * GROUP * DIM;
    ag_tensor queries = rows(r->be, &owners[1], n, (size_t)HEADS * GROUP, asked);
    ag_tensor out = rows(r->be, &owners[2], n, (size_t)HEADS * GROUP, asked);
    ag_score_sums_begin(r->sums, n, false);
    const bool adds = ag_chunk_scores_begin(r->chunks, at, n, total - at - n, at + n == total);
    ag_attention_scores scores = {.sums = r->sums};
    if (adds) scores = ag_score_sums_request(r->sums, 0);
    ag_attention_seq part = {0};
    assert_int_equal(ag_kv_cache_update(r->cache, 0, &keys, &keys, positions, NULL), AG_OK);
    ag_score_sums_set_layer(&scores, 0, &part);
    ag_kv_cache_get_view(r->cache, 0, &part.kv);
    assert_int_equal(ag_chunk_scores_add(r->chunks, 0, &queries, &out, &part, &params, NULL),
                     AG_OK);
    ag_chunk_scores_end(r->chunks);
    for (int i = 0; i < 3; i++) ag_buffer_release(&owners[i]);
}

/* Computes the weight that the chunk of slot s gives to it, in double. */
static double paid_to(size_t head, size_t s, size_t total, double scale) {
    if (s < FIRST || s >= total - LAST) return 0;
    const size_t first = FIRST + (s - FIRST) / 256 * 256;
    const size_t end = first + 256 < total - LAST ? first + 256 : total - LAST;
    double paid = 0;
    for (size_t g = 0; g < GROUP; g++) {
        for (size_t i = first; i < end; i++) {
            const float *ask = q + ((i * HEADS + head) * GROUP + g) * DIM;
            double sum = 0, own = 0;
            for (size_t j = first; j < end; j++) {
                double dot = 0;
                for (size_t d = 0; d < DIM; d++)
                    dot += (double)ask[d] * k[(j * HEADS + head) * DIM + d];
                sum += exp(dot * scale);
                if (j == s) own = exp(dot * scale);
            }
            paid += own / sum / GROUP;
        }
    }
    return paid;
}

static void chunk_scores_do_not_depend_on_passes(void **state) {
    (void)state;
    enum { TOTAL = 600 };
    const uint32_t cuts[][4] = {{600}, {264, 336}, {5, 300, 200, 95}, {100, 100, 399, 1}};
    static float sums[4][HEADS][TOTAL];
    ag_backend *be;
    srand(7);
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) k[i] = noise();
    for (size_t i = 0; i < sizeof q / sizeof *q; i++) q[i] = noise() * 3;
    assert_int_equal(ag_backend_create(&(ag_backend_params){.n_threads = 1}, &be, NULL), AG_OK);
    for (size_t c = 0; c < 4; c++) {
        run r = begin_run(be, &ag_eviction_compactor, NULL);
        for (uint32_t at = 0, i = 0; at < TOTAL; at += cuts[c][i++])
            pass(&r, at, cuts[c][i], TOTAL);
        for (uint32_t h = 0; h < HEADS; h++)
            memcpy(sums[c][h], ag_score_sums_of(r.sums, 0, h), sizeof sums[c][h]);
        assert_memory_equal(sums[c], sums[0], sizeof sums[0]);
        end_run(&r);
    }
    const size_t some[] = {0, 7, 8, 9, 200, 263, 264, 519, 520, 590, 595, 596, 599};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const double want = paid_to(1, some[i], TOTAL, 0.125);
        assert_true(fabs(sums[0][1][some[i]] - want) <= 1e-4 * want);
    }
    const ag_compactor_params plain = {.query_scale = 0.5f};
    run r = begin_run(be, &ag_eviction_compactor, &plain);
    pass(&r, 0, TOTAL, TOTAL);
    const double want = paid_to(0, 300, TOTAL, 0.5);
    assert_true(fabs(ag_score_sums_of(r.sums, 0, 0)[300] - want) <= 1e-4 * want);
    end_run(&r);
    ag_backend_destroy(be);
}

static void other_from_keys(void *user, const ag_eviction_params *p, const ag_eviction_inputs *in) {
    (void)user, (void)p, (void)in;
}

/* The parameters of another policy have another type. */
static void ignores_parameters_of_other_chunk_policies(void **state) {
    (void)state;
    enum { TOTAL = 300 };
    ag_eviction_policy other = ag_eviction_compactor;
    const ag_compactor_params own = {.query_scale = 0.5f};
    ag_backend *be;
    other.from_keys = other_from_keys;
    assert_int_equal(ag_backend_create(&(ag_backend_params){.n_threads = 1}, &be, NULL), AG_OK);
    run r = begin_run(be, &other, &own);
    pass(&r, 0, TOTAL, TOTAL);
    const double want = paid_to(0, 200, TOTAL, 0.125);
    assert_true(fabs(ag_score_sums_of(r.sums, 0, 0)[200] - want) <= 1e-4 * want);
    end_run(&r);
    ag_backend_destroy(be);
}

int main(void) {
    without_matrix_units();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computes_importance_by_the_rule),
        cmocka_unit_test(ranks_slots_outside_chunks_by_leverage),
        cmocka_unit_test(unrotates_keys),
        cmocka_unit_test(chunk_scores_do_not_depend_on_passes),
        cmocka_unit_test(ignores_parameters_of_other_chunk_policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
