/* SPDX-License-Identifier: Apache-2.0 */
/* Attention after evictions against attention over all slots, on constructed keys and values.
 * The error falls as the budget grows, and grows without attention sinks. */
#include "cache/eviction/policies.h"
#include "cache/kv_cache.h"
#include "core/backend_ops.h"
#include "support/ask_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

/* The last WINDOW queries select slots; later queries are compared. */
enum { N = 400, HEADS = 2, GROUP = 2, DIM = 64, WINDOW = 32, N_ASKED = 32, N_SINKS = 4 };
enum { QUERIES = HEADS * GROUP * DIM, KEYS = HEADS * DIM };

static ag_backend *backend;
static float k[N * KEYS], v[N * KEYS], q[(WINDOW + N_ASKED) * QUERIES];

static int load(void **state) {
    (void)state;
    return ag_backend_create(&(ag_backend_params){.n_threads = 1}, &backend, NULL) != AG_OK;
}

static int unload(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

static float noise(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

/* Every query head looks for a few subjects, always the same: slots 7 i + 5 of its KV head. */
static void construct(void) {
    srand(17);
    for (size_t i = 0; i < N * KEYS; i++) k[i] = noise();
    for (size_t i = 0; i < N * KEYS; i++) v[i] = noise();
    for (size_t r = 0; r < WINDOW + N_ASKED; r++) {
        for (size_t h = 0; h < HEADS * GROUP; h++) {
            float *x = q + r * QUERIES + h * DIM;
            const float *head = k + h / GROUP * DIM;
            for (size_t i = 0; i < DIM; i++) x[i] = noise();
            for (size_t subject = 0; subject < 3; subject++) {
                const float *key = head + ((size_t)rand() % (N / 7) * 7 + 5) * KEYS;
                for (size_t i = 0; i < DIM; i++) x[i] += 2.5f * key[i];
            }
        }
    }
}

/* Attention without a match goes to the first tokens, whose values are noise. */
static void construct_sinks(void) {
    construct();
    for (size_t r = 0; r < WINDOW + N_ASKED; r++) {
        for (size_t h = 0; h < HEADS * GROUP; h++) q[r * QUERIES + h * DIM] = 16;
    }
    for (size_t s = 0; s < N; s++) {
        for (size_t h = 0; h < HEADS; h++) {
            k[s * KEYS + h * DIM] = s < N_SINKS ? 5 : 0;
            for (size_t i = 0; s < N_SINKS && i < DIM; i++) v[s * KEYS + h * DIM + i] *= 0.01f;
        }
    }
}

static ag_tensor tensor(ag_buffer **owner, size_t rows, size_t heads, const float *values) {
    ag_tensor t;
    assert_int_equal(ag_tensor_alloc(&t, owner, ag_backend_memory(backend), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(rows, heads, DIM), NULL),
                     AG_OK);
    if (values) memcpy(ag_tensor_f32(&t), values, rows * heads * DIM * sizeof *values);
    return t;
}

static ag_kv_cache *fill_cache(void) {
    ag_kv_params p = {.n_layers = 1,
                      .n_kv_heads = HEADS,
                      .head_dim = DIM,
                      .max_slots = N,
                      .k_type = AG_F32,
                      .v_type = AG_F32};
    ag_kv_cache *c;
    ag_buffer *owners[2];
    uint32_t positions[N];
    for (uint32_t s = 0; s < N; s++) positions[s] = s;
    assert_int_equal(ag_kv_cache_create(backend, &p, &c, NULL), AG_OK);
    ag_tensor keys = tensor(&owners[0], N, HEADS, k), values = tensor(&owners[1], N, HEADS, v);
    assert_int_equal(ag_kv_cache_update(c, 0, &keys, &values, positions, NULL), AG_OK);
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
    return c;
}

/* Computes rows [row0, row0 + n) of q; scores [HEADS][N] may be NULL. All queries see all slots. */
static void attend(ag_kv_cache *c, size_t row0, size_t n, float *scores, float *out) {
    ag_buffer *owners[2];
    uint32_t positions[WINDOW + N_ASKED];
    for (size_t i = 0; i < n; i++) positions[i] = N;
    ag_tensor asked = tensor(&owners[0], n, HEADS * GROUP, q + row0 * QUERIES);
    ag_tensor given = tensor(&owners[1], n, HEADS * GROUP, NULL);
    ag_attention_seq seq = {
        .n_rows = n, .visible_until = positions, .scores = scores, .score_stride = N};
    ag_kv_cache_get_view(c, 0, &seq.kv);
    assert_int_equal(ag_attention(backend, &given, &asked, &seq, 1,
                                  &(ag_attention_params){.scale = 1 / sqrtf(DIM)}),
                     AG_OK);
    if (out) memcpy(out, ag_tensor_f32(&given), n * QUERIES * sizeof *out);
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
}

static void evict(ag_kv_cache *c, const ag_eviction_policy *policy, uint32_t n_protected,
                  uint32_t budget) {
    static uint32_t positions[N], work[N], keep[N];
    static float scores[HEADS * N], values[N], keys[N * DIM], head_v[N * DIM], sums[N];
    ag_eviction_params p = ag_eviction_defaults();
    p.snapkv_kernel = 1; /* neighbours are unrelated here */
    memset(scores, 0, sizeof scores);
    size_t first = policy->importance == AG_IMPORTANCE_NEWEST ? WINDOW - 1 : 0;
    attend(c, first, WINDOW - first, scores, NULL);
    for (uint32_t h = 0; h < HEADS; h++) {
        float *importance = scores + h * N;
        assert_int_equal(ag_kv_cache_read_positions(c, 0, h, positions, NULL), AG_OK);
        if (policy->from_keys) {
            assert_int_equal(ag_kv_cache_read_keys(c, 0, h, keys, NULL), AG_OK);
            assert_int_equal(ag_kv_cache_read_values(c, 0, h, head_v, NULL), AG_OK);
            memcpy(sums, importance, sizeof sums);
            ask_keys(policy, &p,
                     (ag_eviction_inputs){.n_slots = N,
                                          .dim = DIM,
                                          .n_protected = n_protected,
                                          .removed = 1 - (float)budget / N,
                                          .positions = positions,
                                          .keys = keys,
                                          .values = head_v,
                                          .sums = sums,
                                          .importance = importance});
        }
        ag_eviction_view view = {.n_slots = N,
                                 .n_protected = n_protected,
                                 .n_recent = 8,
                                 .n_scored = N,
                                 .positions = positions,
                                 .importance = importance,
                                 .work = work,
                                 .values = values};
        policy->select(NULL, &p, &view, budget, keep);
        assert_int_equal(ag_kv_cache_compact(c, 0, h, keep, budget, NULL), AG_OK);
    }
}

/* Returns the error of the last queries, relative to attention over all slots. */
static double error_of(const char *policy, uint32_t n_protected, uint32_t budget) {
    static float want[N_ASKED * QUERIES], have[N_ASKED * QUERIES];
    ag_kv_cache *c = fill_cache();
    attend(c, WINDOW, N_ASKED, NULL, want);
    if (budget < N) evict(c, ag_eviction_policy_find(policy), n_protected, budget);
    attend(c, WINDOW, N_ASKED, NULL, have);
    ag_kv_cache_destroy(c);
    double difference = 0, size = 0;
    for (size_t i = 0; i < N_ASKED * QUERIES; i++) {
        difference += pow((double)have[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    return sqrt(difference / size);
}

static void error_falls_as_the_budget_grows(void **state) {
    (void)state;
    construct();
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(i);
        double last = INFINITY;
        for (uint32_t budget = N / 8; budget < N; budget *= 2) {
            double error = error_of(policy->name, N_SINKS, budget);
            print_message("%-10s %3u of %d: %.4f\n", policy->name, budget, N, error);
            assert_true(error > 0 && error < last);
            last = error;
        }
        assert_true(error_of(policy->name, N_SINKS, N) == 0);
    }
}

/* The queries of the window look for the same slots as the later ones. */
static void attention_finds_the_needed_slots(void **state) {
    (void)state;
    construct();
    double blind = error_of("streaming", N_SINKS, N / 4);
    assert_true(error_of("snapkv", N_SINKS, N / 4) < blind / 2);
    assert_true(error_of("h2o", N_SINKS, N / 4) < blind);
}

/* Without sinks their attention goes to other slots, whose values distort the output. */
static void error_grows_without_attention_sinks(void **state) {
    (void)state;
    construct_sinks();
    for (uint32_t part = 2; part <= 8; part *= 2) {
        double with = error_of("streaming", N_SINKS, N / part);
        double without = error_of("streaming", 0, N / part);
        print_message("1/%u: %.3f with sinks, %.3f without\n", part, with, without);
        assert_true(with < 1 && without > 2 * with && without > 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_falls_as_the_budget_grows),
        cmocka_unit_test(attention_finds_the_needed_slots),
        cmocka_unit_test(error_grows_without_attention_sinks),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
