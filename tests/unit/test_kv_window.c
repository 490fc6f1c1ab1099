/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with windows hold what their queries see in a bounded number of blocks, with any
 * policy, type and memory, and report how far a sequence can be truncated. */
#include "cache/cache_manager.h"
#include "cache/saved_state.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "support/byte_stream.h"
#include "support/named_backend.h"
#include "support/plain_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { HEADS = 2, DIM = 32, LAYERS = 2, SLOTS = 700, ROWS = 100, BUDGET = 150, TRAINED = 100000 };

static ag_backend *backend;
static uint32_t n_tokens = 5000; /* lower for slow cases */
/* Samples the cases: each policy gets other types and windows. On a device each slot is read by
 * a call of its own. */
static bool some_cases;

static const float inv_freq[DIM / 2] = {0};
static const ag_rope_table rope[LAYERS] = {{inv_freq, DIM, 1}, {inv_freq, DIM, 1}};
static const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};

/* A sequence whose first layer has the window. `full`: its second layer has none. */
typedef struct sequence {
    ag_kv_layer layers[LAYERS];
    ag_kv_cache *cache;
    ag_cache_manager *manager;
    ag_eviction_params eviction;
    uint32_t window, position;
} sequence;

static sequence begin(uint32_t window, bool full, const char *policy, ag_dtype type) {
    sequence s = {.window = window, .eviction = ag_eviction_defaults()};
    s.layers[0] = s.layers[1] = (ag_kv_layer){HEADS, DIM, window};
    if (full) s.layers[1].window = 0;
    s.eviction.policy = ag_eviction_policy_find(policy);
    s.eviction.budget_tokens = BUDGET;
    const ag_kv_params p = {.n_layers = LAYERS,
                            .max_slots = SLOTS,
                            .k_type = type,
                            .v_type = type,
                            .n_protected = 4,
                            .layers = s.layers,
                            .step_rows = ROWS};
    ag_error err;
    if (ag_kv_cache_create(backend, &p, &s.cache, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_cache_manager_create(s.cache, &s.eviction, rope, TRAINED, &s.manager, &err) != AG_OK)
        fail_msg("%s", err.msg);
    return s;
}

static void end(sequence *s) {
    ag_cache_manager_destroy(s->manager);
    ag_kv_cache_destroy(s->cache);
    assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(backend)), 0);
}

/* ---- steps ---- */

/* Returns keys and values that identify a token's position, exact in every type. */
static float value_of(uint32_t position, size_t i) {
    return position >> (i % 16) & 1 ? 7.0f : i % 16 == 15 ? -8.0f : 0.0f;
}

static ag_tensor tensor(ag_buffer **owner, const float *values, uint32_t n) {
    ag_tensor t;
    const size_t bytes = (size_t)n * HEADS * DIM * sizeof *values;
    assert_int_equal(ag_tensor_alloc(&t, owner, ag_backend_memory(backend), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(n, HEADS, DIM), NULL),
                     AG_OK);
    if (values) assert_int_equal(ag_buffer_upload(*owner, 0, values, bytes, NULL), AG_OK);
    return t;
}

static ag_status attend(sequence *s, uint32_t layer, const ag_tensor *rows, ag_tensor *out,
                        const uint32_t *positions, const ag_attention_scores *scores) {
    ag_attention_seq seq = {.n_rows = rows->shape.dim[0], .visible_until = positions};
    if (!scores->sums) return AG_OK;
    ag_score_sums_set_layer(scores, layer, &seq);
    ag_kv_cache_get_view(s->cache, layer, &seq.kv);
    const ag_attention_params params = {.scale = 0.1f};
    return ag_attention(backend, out, rows, &seq, 1, &params);
}

/* Reads the sums of the first layer's last head, by position. */
static void read_sums(const sequence *s, float *by_position) {
    ag_score_sums *sums = ag_cache_manager_sums(s->manager);
    assert_int_equal(ag_score_sums_fetch(sums, 0, NULL), AG_OK);
    for (uint32_t i = 0; i < ag_kv_cache_n_slots(s->cache, 0, HEADS - 1); i++) {
        const uint32_t at = ag_kv_cache_position(s->cache, 0, HEADS - 1, i);
        by_position[at] = ag_score_sums_of(sums, 0, HEADS - 1)[i];
    }
    assert_int_equal(ag_score_sums_store(sums, 0, false, NULL), AG_OK);
}

static float *sums_before_after; /* NULL: not recorded */

static void pass(sequence *s, uint32_t n, uint32_t n_left) {
    uint32_t positions[ROWS];
    static float values[ROWS * HEADS * DIM];
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = s->position + i;
        for (size_t j = 0; j < HEADS * DIM; j++)
            values[i * HEADS * DIM + j] = value_of(positions[i], j % DIM);
    }
    ag_buffer *owners[2];
    ag_tensor rows = tensor(&owners[0], values, n), out = tensor(&owners[1], NULL, n);
    ag_attention_scores scores = {0};
    ag_error err;
    ag_status st = ag_cache_manager_before(s->manager, s->position, n, n_left, &scores, &err);
    for (uint32_t l = 0; l < LAYERS && st == AG_OK; l++) {
        st = ag_kv_cache_keep_unrotated(s->cache, l, &rows, positions, &err);
        if (st == AG_OK) st = ag_kv_cache_update(s->cache, l, &rows, &rows, positions, &err);
        if (st == AG_OK) st = attend(s, l, &rows, &out, positions, &scores);
    }
    s->position += n;
    if (sums_before_after) read_sums(s, sums_before_after);
    if (st == AG_OK) ag_cache_manager_after(s->manager, s->position, n_left);
    if (st == AG_OK) st = ag_cache_manager_settle(s->manager, &err);
    if (st == AG_OK && !s->manager) st = ag_kv_cache_expire(s->cache, s->position, &err);
    if (st != AG_OK) fail_msg("position %u: %s", s->position, err.msg);
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
}

static void consume(sequence *s, uint32_t n) {
    const ag_phase phase = n > 1 ? AG_PHASE_PROMPT : AG_PHASE_DECODE;
    assert_int_equal(ag_cache_manager_begin(s->manager, phase, n, NULL), AG_OK);
    while (n) {
        const uint32_t chunk = (uint32_t)ag_cache_manager_chunk(s->manager, s->position, n, ROWS);
        n -= chunk;
        pass(s, chunk, n);
    }
}

/* ---- what must hold ---- */

static uint32_t blocks_of(uint32_t n) { return (n + 127) / 128; }

static uint32_t length(const sequence *s, uint32_t layer, uint32_t head) {
    return ag_kv_cache_n_slots(s->cache, layer, head);
}

/* Checks that the last n slots hold the newest n positions and their values. */
static void expect_newest(const sequence *s, uint32_t layer, uint32_t n) {
    if (n > s->position) n = s->position;
    for (uint32_t h = 0; h < HEADS; h++) {
        const uint32_t held = length(s, layer, h);
        assert_true(held >= n);
        for (uint32_t i = 1; i <= n; i += n > 40 && i > 20 && i < n - 20 ? 37 : 1) {
            float k[DIM], v[DIM];
            const uint32_t position = s->position - i;
            assert_int_equal(ag_kv_cache_position(s->cache, layer, h, held - i), position);
            assert_int_equal(ag_kv_cache_read(s->cache, layer, h, held - i, k, v, NULL), AG_OK);
            for (size_t j = 0; j < DIM; j++) {
                assert_true(fabsf(k[j] - value_of(position, j)) < 0.1f);
                assert_true(fabsf(v[j] - value_of(position, j)) < 0.1f);
            }
        }
    }
}

static void expect_bounds(const sequence *s) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        const uint32_t window = s->layers[l].window;
        for (uint32_t h = 0; window && window < SLOTS && h < HEADS; h++) {
            assert_true(blocks_of(length(s, l, h)) <= blocks_of(window) + 1);
        }
    }
}

/* Alternates steps of one token and prompts, within SLOTS. */
static uint32_t some_tokens(void) { return rand() % 3 ? 1 : 1 + (uint32_t)rand() % 300; }

static const uint32_t windows[] = {1, 24, 127, 128, 129, 600, 1000};
enum { N_WINDOWS = sizeof windows / sizeof windows[0] };

static void layers_stay_within_their_windows(void **state) {
    (void)state;
    srand(4);
    for (size_t i = 0; ag_eviction_policy_at(i); i++) {
        for (size_t w = 0; w < N_WINDOWS; w++) {
            for (size_t t = 0; t < 4; t++) {
                const char *policy = ag_eviction_policy_at(i)->name;
                if (!i && windows[w] > SLOTS) continue; /* the cache would be full */
                if (some_cases && (i + w) % 4 != t) continue;
                sequence s = begin(windows[w], i, policy, types[t]);
                while (s.position < n_tokens) {
                    consume(&s, some_tokens());
                    expect_bounds(&s);
                    const bool whole = !i || windows[w] <= BUDGET;
                    if (rand() % 50 == 0) expect_newest(&s, 0, whole ? windows[w] - 1 : 32);
                    if (i) assert_true(length(&s, 1, 0) <= BUDGET + 64);
                    if (!whole) assert_true(length(&s, 0, 1) <= BUDGET + 64);
                }
                end(&s);
            }
        }
    }
}

/* A layer whose window is above the budget. */
static void policy_selects_among_visible_slots(void **state) {
    (void)state;
    enum { WINDOW = 200, MOST = BUDGET + 64 };
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(i);
        const bool newest = !strcmp(policy->name, "streaming") || !strcmp(policy->name, "sliding");
        sequence s = begin(WINDOW, true, policy->name, AG_F32);
        consume(&s, 90);
        while (s.position < 1500) {
            const uint64_t n = ag_cache_manager_stats(s.manager)->n_evictions;
            consume(&s, 1);
            assert_true(length(&s, 0, 0) <= MOST && length(&s, 1, 0) <= MOST);
            for (uint32_t p = 0; p < 4; p++) /* sinks stay in layers without a window */
                assert_int_equal(ag_kv_cache_position(s.cache, 1, 0, p), p);
            if (n == ag_cache_manager_stats(s.manager)->n_evictions) continue;
            const uint32_t first = ag_kv_cache_position(s.cache, 0, 1, 0);
            assert_int_equal(length(&s, 0, 1), BUDGET);
            if (s.position < WINDOW + 4) continue;
            assert_true(first + WINDOW > s.position);
            if (newest) assert_int_equal(first, s.position - BUDGET);
        }
        /* The last 64 tokens can be truncated, even after the policy has removed slots that they
         * see. */
        assert_int_equal(ag_kv_cache_truncate(s.cache, s.position - 64, NULL), AG_OK);
        end(&s);
    }
}

static void takes_memory_for_the_window_only(void **state) {
    (void)state;
    const ag_memory *memory = ag_backend_memory(backend);
    sequence s = begin(300, true, "none", AG_F16), other = begin(300, false, "none", AG_F16);
    const size_t block = ag_kv_bytes_of_tokens(ag_kv_cache_params(s.cache), 1) / 2;
    const uint32_t own = blocks_of(300) + 1 + blocks_of(ROWS);
    assert_int_equal(ag_kv_cache_capacity_bytes(s.cache), (own + blocks_of(SLOTS)) * block);
    assert_int_equal(ag_kv_cache_plan_bytes(ag_kv_cache_params(other.cache)), 2 * own * block);
    assert_int_equal(ag_kv_bytes_of_tokens(ag_kv_cache_params(s.cache), 6), (4 + 6) * block);
    assert_int_equal(ag_eviction_tokens_in(ag_kv_cache_params(s.cache), 10 * block), 6 * 128);
    assert_int_equal(ag_eviction_tokens_in(ag_kv_cache_params(other.cache), 8 * block), UINT32_MAX);
    ag_kv_cache_destroy(s.cache);
    const size_t before = ag_memory_bytes_in_use(memory);
    size_t most = 0;
    while (other.position < 5000) {
        consume(&other, some_tokens());
        const size_t used = ag_kv_cache_memory_usage_bytes(other.cache);
        if (used > most) most = used;
    }
    assert_true(most <= 2 * (blocks_of(300) + 1) * block);
    assert_true(ag_memory_bytes_in_use(memory) - before <= 2 * own * block);
    end(&other);
}

static void only_full_attention_layers_fill_a_cache(void **state) {
    (void)state;
    sequence s = begin(24, true, "none", AG_F32), all = begin(24, false, "none", AG_F32);
    ag_error err;
    for (int i = 0; i < 6; i++) {
        consume(&s, ROWS);
        consume(&all, ROWS);
        assert_int_equal(ag_kv_cache_length(s.cache), s.position);
        assert_int_equal(ag_kv_cache_free_slots(s.cache), SLOTS - s.position);
        assert_int_equal(ag_kv_cache_free_slots(all.cache), UINT32_MAX);
    }
    assert_true(ag_kv_cache_length(all.cache) <= 256);
    assert_int_equal(ag_kv_cache_reserve(s.cache, SLOTS - s.position, &err), AG_OK);
    assert_int_equal(ag_kv_cache_reserve(s.cache, SLOTS - s.position + 1, &err), AG_LIMIT);
    assert_int_equal(ag_kv_cache_reserve(all.cache, 2 * SLOTS, &err), AG_LIMIT);
    ag_kv_cache_destroy(s.cache);
    end(&all);
}

static void truncates_within_the_window(void **state) {
    (void)state;
    srand(9);
    for (size_t w = some_cases; w < 6; w += some_cases ? 2 : 1) {
        sequence s = begin(windows[w], false, "none", AG_F16);
        uint32_t highest = 0;
        for (int i = 0; i < 60; i++) {
            for (int j = rand() % 40; j >= 0; j--) consume(&s, some_tokens());
            const uint32_t oldest = ag_kv_cache_oldest_reachable(s.cache), held = length(&s, 0, 0);
            if (s.position > highest) highest = s.position;
            assert_true(highest <= 64 || oldest <= highest - 64);
            assert_true(!oldest || s.position - oldest <= held);
            ag_error err;
            if (oldest > 1) {
                assert_int_equal(ag_kv_cache_truncate(s.cache, oldest - 1, &err), AG_INVALID);
                char name[32];
                snprintf(name, sizeof name, "allow %u or later", oldest);
                assert_non_null(strstr(err.msg, name));
                assert_int_equal(length(&s, 0, 0), held);
            }
            s.position -= (uint32_t)rand() % (s.position - oldest + 1);
            if (i == 30) s.position = oldest;
            if (i == 50) s.position = highest = 0;
            assert_int_equal(ag_kv_cache_truncate(s.cache, s.position, &err), AG_OK);
            expect_newest(&s, 0, windows[w] - 1);
            if (!s.position) assert_int_equal(ag_kv_cache_oldest_reachable(s.cache), 0);
        }
        ag_kv_cache_clear(s.cache);
        assert_int_equal(ag_kv_cache_oldest_reachable(s.cache), 0);
        end(&s);
    }
}

/* ---- saved, restored, forked ---- */

static void expect_same_slots(const sequence *a, const sequence *b) {
    assert_int_equal(a->position, b->position);
    assert_int_equal(ag_kv_cache_oldest_reachable(a->cache),
                     ag_kv_cache_oldest_reachable(b->cache));
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_int_equal(length(a, l, h), length(b, l, h));
            for (uint32_t s = 0; s < length(a, l, h); s++) {
                float k[2][DIM];
                assert_int_equal(ag_kv_cache_position(a->cache, l, h, s),
                                 ag_kv_cache_position(b->cache, l, h, s));
                ag_kv_cache_read(a->cache, l, h, s, k[0], NULL, NULL);
                ag_kv_cache_read(b->cache, l, h, s, k[1], NULL, NULL);
                assert_memory_equal(k[0], k[1], sizeof k[0]);
            }
        }
    }
}

/* ---- tokens that may be taken back ---- */

static void verify(sequence *s, uint32_t n) {
    assert_int_equal(ag_cache_manager_begin(s->manager, AG_PHASE_VERIFY, n, NULL), AG_OK);
    pass(s, n, 0);
}

static void take_back(sequence *s, uint32_t n) {
    s->position -= n;
    assert_int_equal(ag_kv_cache_truncate(s->cache, s->position, NULL), AG_OK);
    ag_cache_manager_truncate(s->manager, s->position);
}

static void truncated_tokens_leave_no_trace(void **state) {
    (void)state;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const char *policy = ag_eviction_policy_at(i)->name;
        for (size_t w = 1; w < N_WINDOWS; w += 2) {
            if (some_cases && w / 2 != i % 3) continue;
            sequence plain = begin(windows[w], true, policy, AG_F16);
            sequence tried = begin(windows[w], true, policy, AG_F16);
            for (uint32_t step = 0; step < 400; step++) {
                const uint32_t n = step == 0 || step == 50 ? 180 : 1;
                consume(&plain, n);
                consume(&tried, n);
                if (step % 7) continue;
                const ag_eviction_stats *stats = ag_cache_manager_stats(tried.manager);
                const uint64_t n_evictions = stats->n_evictions;
                verify(&tried, 1 + step % ROWS);
                assert_int_equal(stats->n_evictions, n_evictions);
                take_back(&tried, 1 + step % ROWS);
            }
            expect_same_slots(&plain, &tried);
            ag_cache_manager_destroy(plain.manager);
            ag_kv_cache_destroy(plain.cache);
            end(&tried);
        }
    }
}

static void verify_passes_stay_within_the_window(void **state) {
    (void)state;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(i);
        sequence s = begin(24, true, policy->name, AG_F16);
        const uint32_t most = policy->importance == AG_IMPORTANCE_NEWEST ? SLOTS : BUDGET + 64 + 5;
        consume(&s, 100);
        for (uint32_t round = 0; s.position < 2000; round++) {
            verify(&s, 5);
            assert_true(length(&s, 1, 1) <= most);
            assert_true(length(&s, 0, 1) <= 256 + 5);
            if (!some_cases || round % 16 == 0) expect_newest(&s, 0, 23 + 5);
            take_back(&s, s.position % 5);
        }
        consume(&s, 1);
        expect_bounds(&s);
        assert_true(length(&s, 1, 1) <= BUDGET + 64);
        end(&s);
    }
}

static void score_sums_move_with_their_slots(void **state) {
    (void)state;
    enum { N = 3000 };
    static float before[N], after[N];
    sequence s = begin(24, true, "h2o", AG_F16);
    uint32_t n_expired = 0;
    sums_before_after = before;
    while (s.position < N - ROWS) {
        const uint32_t reachable = ag_kv_cache_oldest_reachable(s.cache);
        consume(&s, s.position % 300 ? 1 : ROWS);
        n_expired += ag_kv_cache_oldest_reachable(s.cache) != reachable;
        read_sums(&s, after);
        const uint32_t held = length(&s, 0, HEADS - 1);
        for (uint32_t at = s.position - held; at < s.position; at++)
            assert_true(after[at] == before[at]);
    }
    sums_before_after = NULL;
    assert_true(n_expired > 10);
    end(&s);
}

static ag_status no_copy(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                         size_t src_offset, size_t n) {
    (void)dst, (void)dst_offset, (void)src, (void)src_offset;
    return AG_FAIL(&b->err, NOMEM, "copying %zu bytes", n);
}

/* Checks that the sums of every slot hold the number of the token. */
static void expect_sums(const sequence *s, ag_score_sums *sums) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(ag_score_sums_fetch(sums, l, NULL), AG_OK);
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t n = ag_kv_cache_n_slots(s->cache, l, h);
            for (uint32_t i = 0; i < n; i++) {
                const float want = (float)ag_kv_cache_position(s->cache, l, h, i);
                assert_true(ag_score_sums_of(sums, l, h)[i] == want);
            }
        }
    }
}

/* A block shared with a fork must be copied first. */
static void score_sums_stay_with_slots_that_cannot_move(void **state) {
    (void)state;
    static const float values[HEADS * DIM];
    sequence s = begin(24, false, "none", AG_F16);
    ag_score_sums *sums;
    ag_buffer *owner;
    ag_tensor row = tensor(&owner, values, 1);
    ag_kv_cache *fork;
    ag_error err;
    while (length(&s, 0, 0) < 2 * 128 + 1) {
        for (uint32_t l = 0; l < LAYERS; l++)
            assert_int_equal(ag_kv_cache_update(s.cache, l, &row, &row, &s.position, &err), AG_OK);
        s.position++;
    }
    assert_int_equal(ag_score_sums_create_for(s.cache, &sums, &err), AG_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        ag_score_sums_replace(sums, l);
        for (uint32_t i = 0; i < HEADS * (2 * 128 + 1); i++) {
            const uint32_t head = i / (2 * 128 + 1), slot = i % (2 * 128 + 1);
            ag_score_sums_of(sums, l, head)[slot] =
                (float)ag_kv_cache_position(s.cache, l, head, slot);
        }
        assert_int_equal(ag_score_sums_store(sums, l, true, &err), AG_OK);
    }
    assert_int_equal(ag_kv_cache_fork(s.cache, &fork, &err), AG_OK);
    const ag_backend_ops *const ops = backend->ops;
    ag_backend_ops failing = *ops;
    failing.copy_bytes = no_copy;
    backend->ops = &failing;
    assert_int_equal(ag_kv_cache_expire_with(s.cache, s.position, sums, &err), AG_NOMEM);
    backend->ops = ops;
    expect_sums(&s, sums);
    assert_int_equal(length(&s, 0, 0), 2 * 128 + 1);
    assert_int_equal(ag_kv_cache_expire_with(s.cache, s.position, sums, &err), AG_OK);
    expect_sums(&s, sums);
    assert_in_range(length(&s, 0, 0), 24, 128);
    ag_score_sums_destroy(sums);
    ag_kv_cache_destroy(fork);
    ag_buffer_release(&owner);
    end(&s);
}

/* ---- streams ---- */

static sequence restored(sequence *s, const char *policy) {
    sequence r = begin(s->window, true, policy, AG_Q8_0);
    byte_stream st = {.bytes = malloc(1 << 20)};
    uint32_t n_slots[LAYERS * HEADS];
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) n_slots[i] = length(s, i / HEADS, i % HEADS);
    ag_score_sums *sums, *from = ag_cache_manager_sums(s->manager);
    assert_int_equal(ag_kv_cache_save(s->cache, stream_put, &st, NULL), AG_OK);
    assert_int_equal(st.n, ag_kv_cache_saved_bytes(ag_kv_cache_params(s->cache), n_slots));
    assert_int_equal(ag_score_sums_save(from, s->cache, stream_put, &st, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_load(r.cache, n_slots, s->position, "", stream_get, &st, NULL),
                     AG_OK);
    assert_int_equal(ag_score_sums_create(r.eviction.policy, r.cache, &sums, NULL), AG_OK);
    ag_score_sums_set_position(sums, ag_score_sums_position(from));
    assert_int_equal(ag_score_sums_load(sums, r.cache, stream_get, &st, NULL), AG_OK);
    ag_cache_manager_restore(r.manager, &sums, &(ag_turns){0}, NULL);
    ag_score_sums_destroy(sums);
    free(st.bytes);
    r.position = s->position;
    return r;
}

static void forks_and_restored_caches_continue_alike(void **state) {
    (void)state;
    static const char *const policies[] = {"streaming", "keydiff", "h2o", "snapkv"};
    for (size_t i = 0; i < 4; i++) {
        for (size_t w = 1; w < 6; w += 2) {
            if (some_cases && w / 2 != i % 3) continue;
            sequence s = begin(windows[w], true, policies[i], AG_Q8_0);
            srand(3);
            while (s.position < 1000) consume(&s, some_tokens());
            sequence of[3] = {s, restored(&s, policies[i]),
                              begin(windows[w], true, policies[i], AG_Q8_0)};
            assert_int_equal(ag_kv_cache_share(of[2].cache, s.cache, NULL), AG_OK);
            assert_int_equal(ag_cache_manager_copy(of[2].manager, s.manager, NULL), AG_OK);
            of[2].position = s.position;
            for (int c = 1; c < 3; c++) expect_same_slots(&of[0], &of[c]);
            for (int c = 0; c < 3; c++) {
                srand(5);
                while (of[c].position < 2000) consume(&of[c], some_tokens());
                if (c) expect_same_slots(&of[0], &of[c]);
            }
            for (int c = 0; c < 3; c++) {
                ag_cache_manager_destroy(of[c].manager);
                ag_kv_cache_destroy(of[c].cache);
            }
        }
    }
}

static void rejects_a_damaged_window(void **state) {
    (void)state;
    sequence s = begin(24, false, "none", AG_F32);
    ag_error err;
    while (s.position < 600) consume(&s, 60);
    uint32_t n_slots[LAYERS * HEADS];
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) n_slots[i] = length(&s, i / HEADS, i % HEADS);
    byte_stream st = {.bytes = malloc(1 << 20)};
    assert_int_equal(ag_kv_cache_save(s.cache, stream_put, &st, NULL), AG_OK);
    ag_kv_cache_clear(s.cache);
    st.bytes[st.n - 3] = 0xff; /* the last layer claims that positions up to 60,000 have expired */
    assert_int_equal(ag_kv_cache_load(s.cache, n_slots, 600, "it", stream_get, &st, &err),
                     AG_FORMAT);
    assert_non_null(strstr(err.msg, "layer 1, window 24"));
    free(st.bytes);
    end(&s);
}

/* Usage: test_kv_window [BACKEND [TOKENS [some]]]. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_stay_within_their_windows),
        cmocka_unit_test(policy_selects_among_visible_slots),
        cmocka_unit_test(takes_memory_for_the_window_only),
        cmocka_unit_test(only_full_attention_layers_fill_a_cache),
        cmocka_unit_test(truncates_within_the_window),
        cmocka_unit_test(forks_and_restored_caches_continue_alike),
        cmocka_unit_test(score_sums_move_with_their_slots),
        cmocka_unit_test(score_sums_stay_with_slots_that_cannot_move),
        cmocka_unit_test(truncated_tokens_leave_no_trace),
        cmocka_unit_test(verify_passes_stay_within_the_window),
        cmocka_unit_test(rejects_a_damaged_window),
    };
    int failed;
    const bool takes_all = argc > 1 && strcmp(argv[1], "all") == 0;
    if (argc < 2 || takes_all) { /* memory that the host does not see */
        backend = plain_backend_create(false);
        n_tokens = 400;
        some_cases = !takes_all;
        failed = cmocka_run_group_tests(tests, NULL, NULL);
        ag_backend_destroy(backend);
        return failed;
    }
    backend = open_backend(argv[1], 1);
    if (!backend) return EXIT_SKIPPED;
    if (argc > 2) n_tokens = (uint32_t)atoi(argv[2]);
    some_cases = argc > 3 && strcmp(argv[3], "some") == 0;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(backend);
    return failed;
}
