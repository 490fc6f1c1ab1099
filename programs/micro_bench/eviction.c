/* SPDX-License-Identifier: Apache-2.0 */
/* One eviction from 4096 tokens to 1024, per policy, in a cache of a 1B model: 16 layers of 8 KV
 * heads of 64. */
#include "bandwidth.h"
#include "cache/cache_manager.h"
#include "micro_bench.h"

#include <stdlib.h>

enum { LAYERS = 16, HEADS = 8, DIM = 64, FULL = 4096, RETAINED = 1024, CHUNK = 512 };

static const ag_dtype types[] = {AG_F16, AG_Q8_0};
enum { N_TYPES = sizeof types / sizeof types[0] };

static const ag_eviction_policy *policy_at(size_t i) {
    for (size_t p = 0; ag_eviction_policy_at(p); p++) {
        if (ag_eviction_policy_at(p)->select && !i--) return ag_eviction_policy_at(p);
    }
    return NULL;
}

bool eviction_name_at(size_t i, const char **op, ag_dtype *type) {
    const ag_eviction_policy *policy = policy_at(i / N_TYPES);
    if (!policy) return false;
    *op = policy->name;
    *type = types[i % N_TYPES];
    return true;
}

static bool fill(ag_kv_cache *cache, const ag_tensor *rows) {
    uint32_t positions[CHUNK];
    for (uint32_t first = 0; first < FULL; first += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++) positions[i] = first + i;
        for (uint32_t l = 0; l < LAYERS; l++) {
            if (ag_kv_cache_update(cache, l, rows, rows, positions, NULL) != AG_OK) return false;
        }
    }
    return true;
}

/* Evicts as after a decoded token that attended to all slots. Returns seconds; -1 on failure. */
static double evict(ag_cache_manager *m, ag_kv_cache *cache, const options *o, bandwidth *memory) {
    ag_attention_scores scores;
    ag_score_sums *sums = ag_cache_manager_sums(m);
    ag_cache_manager_reset(m);
    if (ag_cache_manager_begin(m, AG_PHASE_DECODE, 1, NULL) != AG_OK ||
        ag_cache_manager_before(m, FULL, 1, 0, &scores, NULL) != AG_OK) {
        return -1;
    }
    for (uint32_t l = 0; sums && l < LAYERS; l++) {
        ag_score_sums_replace(sums, l);
        for (uint32_t h = 0; h < HEADS; h++) {
            float *of = ag_score_sums_of(sums, l, h);
            for (size_t i = 0; i < FULL; i++) of[i] = (float)rand() / (float)RAND_MAX;
        }
        if (ag_score_sums_store(sums, l, true, NULL) != AG_OK) return -1;
    }
    ag_score_sums_set_position(sums, FULL);
    if (o->cold) bandwidth_sweep(memory);
    ag_cache_manager_after(m, FULL + 1, 0);
    return ag_kv_cache_length(cache) == RETAINED ? ag_cache_manager_stats(m)->longest_s : -1;
}

static void measure(ag_kv_cache *cache, ag_cache_manager *m, const ag_tensor *rows,
                    const options *o, bandwidth *memory, row *r) {
    static double seconds[MAX_RUNS];
    size_t n = 0;
    r->verdict = "ok";
    for (double total = 0; n < o->max_runs && (total < o->min_s || n < o->min_runs); n++) {
        ag_kv_cache_clear(cache);
        seconds[n] = fill(cache, rows) ? evict(m, cache, o, memory) : -1;
        if (seconds[n] < 0) {
            r->verdict = "FAILED";
            return;
        }
        total += seconds[n];
    }
    row_set_times(r, seconds, n);
}

bool eviction_time(size_t i, ag_backend *be, const options *o, bandwidth *memory, row *r) {
    const ag_dtype type = types[i % N_TYPES];
    const ag_kv_params params = {.n_layers = LAYERS,
                                 .n_kv_heads = HEADS,
                                 .head_dim = DIM,
                                 .max_slots = FULL + 1,
                                 .k_type = type,
                                 .v_type = type};
    ag_eviction_params eviction = ag_eviction_defaults();
    eviction.policy = policy_at(i / N_TYPES);
    eviction.budget_tokens = eviction.window = RETAINED;
    const float inv_freq[DIM / 2] = {0};
    ag_rope_table rope[LAYERS];
    for (int l = 0; l < LAYERS; l++) rope[l] = (ag_rope_table){inv_freq, DIM, 1};
    ag_kv_cache *cache = NULL;
    ag_cache_manager *manager = NULL;
    ag_tensor rows;
    ag_buffer *owner = NULL;
    bool made =
        ag_kv_cache_create(be, &params, &cache, NULL) == AG_OK &&
        ag_cache_manager_create(cache, &eviction, rope, UINT32_MAX / 2, &manager, NULL) == AG_OK &&
        ag_tensor_alloc(&rows, &owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                        ag_shape_3d(CHUNK, HEADS, DIM), NULL) == AG_OK;
    *r = (row){.op = eviction.policy->name, .type = type, .m = RETAINED, .n = FULL, .k = DIM};
    if (made) {
        oracle_run random = {.random = 1};
        oracle_fill(&random, ag_tensor_f32(&rows), (size_t)CHUNK * HEADS * DIM, DATA_PLAIN);
        measure(cache, manager, &rows, o, memory, r);
    }
    ag_buffer_release(&owner);
    ag_cache_manager_destroy(manager);
    ag_kv_cache_destroy(cache);
    return made;
}
