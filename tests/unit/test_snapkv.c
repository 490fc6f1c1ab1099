/* SPDX-License-Identifier: Apache-2.0 */
/* SnapKV from queries and keys to slots, through the backend's attention, against an independent
 * implementation (tools/snapkv_reference.py). */
#include "cache/eviction/policies.h"
#include "cache/kv_cache.h"
#include "core/backend_ops.h"
#include "support/plain_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

enum { MOST = 128 };

static json_t *cases;

static int load(void **state) {
    (void)state;
    json_t *file = json_load_file(AG_SOURCE_DIR "/tests/data/snapkv/cases.json", 0, NULL);
    cases = json_incref(json_object_get(file, "cases"));
    json_decref(file);
    return json_array_size(cases) != 50;
}

static int unload(void **state) {
    (void)state;
    json_decref(cases);
    return 0;
}

static uint32_t number(const json_t *c, const char *key) {
    return (uint32_t)json_integer_value(json_object_get(c, key));
}

/* [heads, rows, dim] in the file, [rows, heads, dim] in the tensor. */
static void fill(ag_tensor *t, const json_t *values, size_t heads, size_t rows, size_t dim) {
    for (size_t h = 0; h < heads; h++) {
        for (size_t r = 0; r < rows; r++) {
            for (size_t i = 0; i < dim; i++) {
                const json_t *v = json_array_get(values, (h * rows + r) * dim + i);
                ag_tensor_f32(t)[(r * heads + h) * dim + i] = (float)json_integer_value(v) / 32;
            }
        }
    }
}

static ag_tensor tensor(ag_backend *be, ag_buffer **owner, size_t rows, size_t heads, size_t dim) {
    ag_tensor t;
    assert_int_equal(ag_tensor_alloc(&t, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(rows, heads, dim), NULL),
                     AG_OK);
    return t;
}

/* Computes the weights that the last `window` queries give to each slot, [kv_heads][MOST]. */
static void weigh(ag_backend *be, const json_t *c, float *scores) {
    uint32_t n = number(c, "n"), window = number(c, "window"), dim = number(c, "dim");
    uint32_t heads = number(c, "heads"), kv_heads = number(c, "kv_heads"), positions[MOST];
    for (uint32_t i = 0; i < n; i++) positions[i] = i;
    ag_kv_params kp = {.n_layers = 1,
                       .n_kv_heads = kv_heads,
                       .head_dim = dim,
                       .max_slots = n,
                       .k_type = AG_F32,
                       .v_type = AG_F32};
    ag_kv_cache *cache;
    ag_buffer *owners[3];
    assert_int_equal(ag_kv_cache_create(be, &kp, &cache, NULL), AG_OK);
    ag_tensor k = tensor(be, &owners[0], n, kv_heads, dim);
    ag_tensor q = tensor(be, &owners[1], window, heads, dim);
    ag_tensor out = tensor(be, &owners[2], window, heads, dim);
    fill(&k, json_object_get(c, "k"), kv_heads, n, dim);
    fill(&q, json_object_get(c, "q"), heads, window, dim);
    assert_int_equal(ag_kv_cache_update(cache, 0, &k, &k, positions, NULL), AG_OK);
    ag_attention_seq seq = {.n_rows = window,
                            .visible_until = positions + n - window,
                            .scores = scores,
                            .score_stride = MOST};
    ag_kv_cache_get_view(cache, 0, &seq.kv);
    memset(scores, 0, kv_heads * MOST * sizeof *scores);
    assert_int_equal(
        ag_attention(be, &out, &q, &seq, 1, &(ag_attention_params){.scale = 1 / sqrtf((float)dim)}),
        AG_OK);
    for (int i = 0; i < 3; i++) ag_buffer_release(&owners[i]);
    ag_kv_cache_destroy(cache);
}

static void check_case(const json_t *c, float *scores, size_t index) {
    uint32_t n = number(c, "n"), window = number(c, "window"), budget = number(c, "budget");
    uint32_t positions[MOST], work[MOST], keep[MOST];
    float values[MOST];
    ag_eviction_params p = ag_eviction_defaults();
    p.protected_prefix = 0;
    p.recent = p.snapkv_window = window;
    p.snapkv_kernel = number(c, "kernel");
    const char *pool = json_string_value(json_object_get(c, "pool"));
    p.snapkv_pool = strcmp(pool, "max") ? AG_POOL_AVERAGE : AG_POOL_MAX;
    for (uint32_t h = 0; h < number(c, "kv_heads"); h++) {
        float *importance = scores + h * MOST;
        ag_eviction_snapkv.normalise(NULL, &p, importance, n, window, values);
        ag_eviction_view v = {.n_slots = n,
                              .n_recent = window,
                              .n_scored = n,
                              .positions = positions,
                              .importance = importance,
                              .work = work,
                              .values = values};
        ag_eviction_snapkv.select(NULL, &p, &v, budget, keep);
        const json_t *want = json_array_get(json_object_get(c, "keep"), h);
        assert_int_equal(json_array_size(want), budget);
        for (uint32_t i = 0; i < budget; i++) {
            if (keep[i] == json_integer_value(json_array_get(want, i))) continue;
            fail_msg("case %zu, head %u: slot %u stays as number %u", index, h, keep[i], i);
        }
    }
}

static void check_all(ag_backend *be) {
    float *scores = malloc(8 * MOST * sizeof *scores);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        weigh(be, json_array_get(cases, i), scores);
        check_case(json_array_get(cases, i), scores, i);
    }
    free(scores);
    ag_backend_destroy(be);
}

static void cpu_keeps_the_same_slots_as_the_reference(void **state) {
    (void)state;
    ag_backend *be;
    assert_int_equal(ag_backend_create(&(ag_backend_params){.n_threads = 2}, &be, NULL), AG_OK);
    check_all(be);
}

static void composed_attention_keeps_the_same_slots(void **state) {
    (void)state;
    check_all(plain_backend_create(true));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_keeps_the_same_slots_as_the_reference),
        cmocka_unit_test(composed_attention_keeps_the_same_slots),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
