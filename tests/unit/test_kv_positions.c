/* SPDX-License-Identifier: Apache-2.0 */
/* After an eviction keys and queries keep the rotations of their own positions. Attention over
 * the retained slots equals attention with all rotated again, in F32, by the same shift. A query
 * at the cache's length as its position would see another text. */
#include "cache/eviction/policies.h"
#include "cache/kv_cache.h"
#include "core/backend_ops.h"
#include "support/ask_keys.h"
#include "support/plain_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { N = 400, KEEP = 100, HEADS = 2, GROUP = 2, DIM = 64, QUERY = 430, TARGET = 3 };

static float inv_freq[DIM / 2];

static float noise(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

static void rotate(float *x, double position) {
    for (int i = 0; i < DIM / 2; i++) {
        double c = cos(position * inv_freq[i]), s = sin(position * inv_freq[i]);
        double lo = x[i], hi = x[i + DIM / 2];
        x[i] = (float)(lo * c - hi * s);
        x[i + DIM / 2] = (float)(hi * c + lo * s);
    }
}

static ag_tensor tensor(ag_backend *be, ag_buffer **owner, size_t rows, size_t heads) {
    ag_tensor t;
    assert_int_equal(ag_tensor_alloc(&t, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(rows, heads, DIM), NULL),
                     AG_OK);
    return t;
}

static ag_kv_cache *fill_cache(ag_backend *be, ag_dtype type) {
    ag_kv_params p = {.n_layers = 1,
                      .n_kv_heads = HEADS,
                      .head_dim = DIM,
                      .max_slots = N,
                      .k_type = type,
                      .v_type = type};
    ag_kv_cache *c;
    ag_buffer *owners[2];
    uint32_t positions[N];
    assert_int_equal(ag_kv_cache_create(be, &p, &c, NULL), AG_OK);
    ag_tensor k = tensor(be, &owners[0], N, HEADS), v = tensor(be, &owners[1], N, HEADS);
    for (uint32_t s = 0; s < N; s++) {
        positions[s] = s;
        for (uint32_t h = 0; h < HEADS; h++) {
            float *row = ag_tensor_f32(&k) + (s * HEADS + h) * DIM;
            for (int i = 0; i < DIM; i++) row[i] = noise();
            rotate(row, s);
        }
    }
    for (size_t i = 0; i < (size_t)N * HEADS * DIM; i++) ag_tensor_f32(&v)[i] = noise();
    assert_int_equal(ag_kv_cache_update(c, 0, &k, &v, positions, NULL), AG_OK);
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
    return c;
}

static void evict(ag_kv_cache *c, const ag_eviction_policy *policy) {
    static uint32_t positions[N], work[N], keep[N];
    static float importance[N], values[N], keys[N * DIM], head_v[N * DIM], sums[N];
    ag_eviction_params p = ag_eviction_defaults();
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t s = 0; s < N; s++) importance[s] = noise();
        assert_int_equal(ag_kv_cache_read_positions(c, 0, h, positions, NULL), AG_OK);
        if (policy->from_keys) {
            assert_int_equal(ag_kv_cache_read_keys(c, 0, h, keys, NULL), AG_OK);
            assert_int_equal(ag_kv_cache_read_values(c, 0, h, head_v, NULL), AG_OK);
            memcpy(sums, importance, sizeof sums);
            ask_keys(policy, &p,
                     (ag_eviction_inputs){.n_slots = N,
                                          .dim = DIM,
                                          .n_protected = 4,
                                          .removed = 1 - (float)KEEP / N,
                                          .positions = positions,
                                          .keys = keys,
                                          .values = head_v,
                                          .sums = sums,
                                          .importance = importance});
        }
        ag_eviction_view v = {.n_slots = N,
                              .n_protected = 4,
                              .n_recent = 8,
                              .n_scored = N,
                              .positions = positions,
                              .importance = importance,
                              .work = work,
                              .values = values};
        policy->select(NULL, &p, &v, KEEP, keep);
        assert_int_equal(ag_kv_cache_compact(c, 0, h, keep, KEEP, NULL), AG_OK);
    }
}

/* Computes softmax attention over keys and values of one head, [KEEP][DIM], in double. */
static void attend(const float *q, const float *k, const float *v, double *out) {
    double w[KEEP], highest = -INFINITY, sum = 0;
    for (int s = 0; s < KEEP; s++) {
        w[s] = 0;
        for (int i = 0; i < DIM; i++) w[s] += (double)q[i] * k[s * DIM + i];
        w[s] /= sqrt(DIM);
        highest = fmax(highest, w[s]);
    }
    for (int s = 0; s < KEEP; s++) sum += w[s] = exp(w[s] - highest);
    for (int i = 0; i < DIM; i++) {
        out[i] = 0;
        for (int s = 0; s < KEEP; s++) out[i] += w[s] / sum * v[s * DIM + i];
    }
}

static double error_of(const float *have, const double *want, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += (have[i] - want[i]) * (have[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(difference / size);
}

typedef struct errors {
    double kept, reset;
} errors;

static void measure(ag_backend *be, ag_dtype type, const ag_eviction_policy *policy, errors *e) {
    static float k[KEEP * DIM], v[KEEP * DIM], plain[HEADS * GROUP * DIM];
    double want[HEADS * GROUP * DIM];
    ag_kv_cache *c = fill_cache(be, type);
    evict(c, policy);
    ag_buffer *owners[2];
    ag_tensor q = tensor(be, &owners[0], 1, HEADS * GROUP);
    ag_tensor out = tensor(be, &owners[1], 1, HEADS * GROUP);
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t s = 0; s < KEEP; s++) {
            float *row = k + s * DIM;
            assert_int_equal(ag_kv_cache_read(c, 0, h, s, row, v + s * DIM, NULL), AG_OK);
        }
        for (uint32_t g = 0; g < GROUP; g++) {
            float *x = plain + (h * GROUP + g) * DIM;
            /* The query looks for one token at its distance, so that a wrong distance finds
             * another. */
            for (int i = 0; i < DIM; i++) x[i] = 12 * k[(TARGET + 40 * g) * DIM + i];
            rotate(x, -(double)QUERY);
            /* Shifts the query and every key alike: only distances matter. */
            const double by = -271;
            float moved[DIM], shifted[KEEP * DIM];
            memcpy(moved, x, sizeof moved);
            memcpy(shifted, k, sizeof shifted);
            rotate(moved, QUERY + by);
            for (int s = 0; s < KEEP; s++) rotate(shifted + s * DIM, by);
            attend(moved, shifted, v, want + (h * GROUP + g) * DIM);
        }
    }
    const uint32_t at[] = {QUERY, KEEP};
    for (int i = 0; i < 2; i++) {
        memcpy(ag_tensor_f32(&q), plain, sizeof plain);
        for (int h = 0; h < HEADS * GROUP; h++) rotate(ag_tensor_f32(&q) + h * DIM, at[i]);
        uint32_t sees = QUERY; /* excludes the mask as the cause */
        ag_attention_seq seq = {.n_rows = 1, .visible_until = &sees};
        ag_kv_cache_get_view(c, 0, &seq.kv);
        assert_int_equal(
            ag_attention(be, &out, &q, &seq, 1, &(ag_attention_params){.scale = 1 / sqrtf(DIM)}),
            AG_OK);
        *(i ? &e->reset : &e->kept) = error_of(ag_tensor_f32(&out), want, HEADS * GROUP * DIM);
    }
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
    ag_kv_cache_destroy(c);
}

static void check_backend(ag_backend *be) {
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    srand(5);
    for (int i = 0; i < DIM / 2; i++) inv_freq[i] = powf(100, -2.0f * (float)i / DIM);
    for (size_t p = 1; ag_eviction_policy_at(p); p++) {
        for (int t = 0; t < 4; t++) {
            errors e;
            measure(be, types[t], ag_eviction_policy_at(p), &e);
            if (e.kept >= 0.01 || e.reset <= 1) {
                fail_msg("%s, %s: %.4f with kept positions, %.2f with a reset one",
                         ag_eviction_policy_at(p)->name, ag_dtype_name(types[t]), e.kept, e.reset);
            }
        }
    }
    ag_backend_destroy(be);
}

static void retained_keys_keep_their_positions_on_the_cpu(void **state) {
    (void)state;
    ag_backend *be;
    assert_int_equal(ag_backend_create(&(ag_backend_params){.n_threads = 2}, &be, NULL), AG_OK);
    check_backend(be);
}

static void retained_keys_keep_their_positions_when_composed(void **state) {
    (void)state;
    check_backend(plain_backend_create(true));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retained_keys_keep_their_positions_on_the_cpu),
        cmocka_unit_test(retained_keys_keep_their_positions_when_composed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
