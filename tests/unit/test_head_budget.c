/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that share the slots of their layer: sessions hold their budget, keep the slots of the
 * reference, and continue after forks and restores. */
#include "cache/cache_manager_impl.h"
#include "cache/eviction/importance.h"
#include "cache/eviction/policies.h"
#include "cache/kv_cache.h"
#include "core/kv_view.h"
#include "session/session_impl.h"
#include "support/ask_keys.h"
#include "support/one_model.h"
#include "support/resident.h"
#include "support/without_matrix_units.h"
#include "unit/head_choice.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { LAYERS = 3, HEADS = 2, DIM = 64, BUDGET = 100, RECENT = 8, SLACK = 16 };
static const char *const scored[] = {"snapkv", "h2o", "tova", "keydiff", "compactor"};
enum { N_SCORED = sizeof scored / sizeof *scored };
#define WINDOWS AG_GOLDEN_MODELS "/gemma2"

/* ---- sessions ---- */

/* Three quarters for the first head of each layer. */
static const float quarters[] = {0.75f, 0.25f, 0.75f, 0.25f, 0.75f, 0.25f};

static ag_head_budget kind = AG_HEAD_BUDGET_ADAPTIVE;
static size_t n_scored = N_SCORED;

/* The first three of `scored` use attention. */
static int count_values(void **state) {
    (void)state;
    kind = AG_HEAD_BUDGET_VALUES;
    n_scored = 3;
    return 0;
}

static int count_none(void **state) {
    (void)state;
    kind = AG_HEAD_BUDGET_ADAPTIVE;
    n_scored = N_SCORED;
    return 0;
}

static ag_session_params params_of(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.prefill_chunk = 48;
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = BUDGET;
    p.eviction.recent = RECENT;
    p.eviction.slack = SLACK;
    p.eviction.snapkv_window = 8;
    p.eviction.head_budget = kind;
    return p;
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static void prefill(ag_session *s, size_t n) {
    int32_t *ids = malloc(n * sizeof *ids);
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = id_at(ag_session_position(s) + i);
    must(ag_session_prefill(s, ids, n, NULL, NULL, &err), &err);
    free(ids);
}

static void decode(ag_session *s, size_t n) {
    ag_error err;
    while (n--) must(ag_session_decode(s, id_at(ag_session_position(s)), &err), &err);
}

static uint32_t n_slots(ag_session *s, uint32_t l, uint32_t h) {
    return ag_kv_cache_n_slots(ag_session_kv_cache(s), l, h);
}

static size_t in_layer(ag_session *s, uint32_t l) {
    const uint32_t heads = ag_kv_cache_layer(ag_session_kv_cache(s), l)->n_kv_heads;
    size_t n = 0;
    for (uint32_t h = 0; h < heads; h++) n += n_slots(s, l, h);
    return n;
}

static bool heads_differ(ag_session *s) {
    bool differ = false;
    for (uint32_t l = 0; l < LAYERS; l++) differ |= n_slots(s, l, 0) != n_slots(s, l, 1);
    return differ;
}

/* Checks that every head keeps its prefix, its newest slots and its safe share, and that the
 * layer stays within its limit. */
static void check_invariants(ag_session *s, size_t over) {
    const uint32_t next = ag_session_position(s);
    const ag_kv_cache *c = ag_session_kv_cache(s);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_true(in_layer(s, l) <= HEADS * (BUDGET + over));
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t n = n_slots(s, l, h);
            assert_true(n >= BUDGET / 5);
            for (uint32_t i = 0; i < SINKS; i++)
                assert_int_equal(ag_kv_cache_position(c, l, h, i), i);
            for (uint32_t i = 1; i <= RECENT; i++)
                assert_int_equal(ag_kv_cache_position(c, l, h, n - i), next - i);
        }
    }
}

static void layers_hold_their_even_total(void **state) {
    (void)state;
    for (size_t i = 0; i < n_scored; i++) {
        for (int whole = 0; whole < 2; whole++) {
            ag_session_params p = params_of(scored[i]);
            p.eviction.prefill = whole ? AG_KV_PREFILL_WHOLE : AG_KV_PREFILL_BOUNDED;
            ag_session *s = session_of(&p);
            prefill(s, 300);
            for (uint32_t l = 0; l < LAYERS; l++) assert_int_equal(in_layer(s, l), HEADS * BUDGET);
            assert_true(heads_differ(s));
            check_invariants(s, 0);
            const ag_eviction *last = &ag_session_evictions(s)->last;
            assert_int_equal(last->n_kept, BUDGET);
            for (int k = 0; k < 100; k++) {
                decode(s, 1);
                check_invariants(s, SLACK);
            }
            assert_true(ag_session_evictions(s)->n_evictions >= 100 / (SLACK + 1));
            assert_int_equal(last->n_before, BUDGET + SLACK + 1);
            prefill(s, 77);
            check_invariants(s, 0);
            ag_session_destroy(s);
        }
    }
}

/* Computes KeyDiff scores of all keys of a layer and the slots that the reference keeps. */
static void keydiff_keeps_the_slots_of_the_reference(void **state) {
    (void)state;
    enum { N = 118 };
    ag_session_params p = params_of("keydiff"), full = p;
    full.eviction.policy = NULL;
    full.eviction.head_budget = AG_HEAD_BUDGET_EVEN;
    p.eviction.prefill = AG_KV_PREFILL_WHOLE;
    p.eviction.budget_tokens = 50;
    ag_session *s = session_of(&p), *all = session_of(&full);
    prefill(s, N);
    prefill(all, N);
    layer *of = malloc(sizeof *of);
    float *keys = malloc(N * DIM * sizeof *keys);
    uint32_t positions[N];
    for (uint32_t l = 0; l < LAYERS; l++) {
        of->n_heads = HEADS;
        for (uint32_t h = 0; h < HEADS; h++) {
            ag_kv_cache *c = ag_session_kv_cache(all);
            make_head(of, h, N, RECENT);
            must(ag_kv_cache_read_keys(c, l, h, keys, NULL), NULL);
            must(ag_kv_cache_read_positions(c, l, h, positions, NULL), NULL);
            ask_keys(&ag_eviction_keydiff, &p.eviction,
                     (ag_eviction_inputs){.n_slots = N,
                                          .dim = DIM,
                                          .positions = positions,
                                          .keys = keys,
                                          .importance = of->importance[h]});
        }
        expect_definition(of, HEADS * 50, MOST);
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_int_equal(n_slots(s, l, h), of->n_keep[h]);
            for (uint32_t i = 0; i < n_slots(s, l, h); i++) {
                const uint32_t at = ag_kv_cache_position(ag_session_kv_cache(s), l, h, i);
                assert_true(rank_in_head(&of->heads[h], at) < of->n_keep[h]);
            }
        }
    }
    assert_true(heads_differ(s));
    free(keys);
    free(of);
    ag_session_destroy(s);
    ag_session_destroy(all);
}

/* Returns how far the output of weights p moves if a slot is removed and the others take over
 * its weight. */
static float moved_without(const float *p, const float *values, size_t n, size_t slot) {
    double total = 0, square = 0;
    for (size_t s = 0; s < n; s++) total += (double)p[s];
    for (size_t d = 0; d < DIM; d++) {
        double with = 0, without = 0;
        for (size_t s = 0; s < n; s++) {
            const double v = (double)p[s] * (double)values[s * DIM + d];
            with += v / total;
            if (s != slot) without += v / (total - (double)p[slot]);
        }
        square += (with - without) * (with - without);
    }
    return (float)sqrt(square);
}

static void forced_slots_count_no_values(void **state) {
    (void)state;
    enum { N = 12, KNOWN = 9 };
    float attention[N], importance[N], values[N * DIM], mean[DIM];
    srand(4);
    for (size_t s = 0; s < N; s++) {
        attention[s] = s % 4 == 1 ? 0 : (float)(1 + rand() % 100);
        importance[s] = s < KNOWN ? attention[s] : INFINITY;
        for (size_t d = 0; d < DIM; d++) values[s * DIM + d] = (float)(rand() % 200 - 100);
    }
    ag_value_losses(importance, N, values, DIM, mean);
    for (size_t s = 0; s < N; s++) {
        const float want = s < KNOWN ? moved_without(attention, values, KNOWN, s) : INFINITY;
        assert_true(importance[s] == want || fabsf(importance[s] / want - 1) < 1e-4f);
    }
    float nothing[2] = {0, INFINITY};
    ag_value_losses(nothing, 2, values, DIM, mean);
    assert_true(nothing[0] == 0 && isinf(nothing[1]));
}

/* h2o has sums without an eviction. Half of the retained slots are the newest. */
static void counted_values_keep_the_slots_of_the_reference(void **state) {
    (void)state;
    enum { N = 118, STAY = 25 };
    layer *of = malloc(sizeof *of);
    float *values = malloc(N * DIM * sizeof *values);
    ag_session_params p = params_of("h2o"), full = p;
    p.eviction.prefill = full.eviction.prefill = AG_KV_PREFILL_WHOLE;
    p.eviction.budget_tokens = STAY;
    full.eviction.budget_tokens = N + SLACK;
    ag_session *s = session_of(&p), *all = session_of(&full);
    prefill(s, N);
    prefill(all, N);
    ag_cache_manager *m = all->manager;
    for (uint32_t l = 0; l < LAYERS; l++) {
        of->n_heads = HEADS;
        must(ag_score_sums_fetch(m->evictor.sums, l, NULL), NULL);
        for (uint32_t h = 0; h < HEADS; h++) {
            const float *sums = ag_score_sums_of(m->evictor.sums, l, h);
            make_head(of, h, N, RECENT);
            must(ag_kv_cache_read_values(m->evictor.cache, l, h, values, NULL), NULL);
            for (size_t k = 0; k < N; k++) of->importance[h][k] = moved_without(sums, values, N, k);
        }
        expect_definition(of, HEADS * STAY, MOST);
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_int_equal(n_slots(s, l, h), of->n_keep[h]);
            for (uint32_t k = 0; k < n_slots(s, l, h); k++) {
                const uint32_t at = ag_kv_cache_position(ag_session_kv_cache(s), l, h, k);
                const bool is_new = at + of->n_keep[h] / 2 + 1 >= N;
                assert_true(is_new || rank_in_head(&of->heads[h], at) < of->n_keep[h]);
            }
        }
    }
    assert_true(heads_differ(s));
    ag_session_destroy(s);
    ag_session_destroy(all);
    free(values);
    free(of);
}

static void same_sessions(ag_session *a, ag_session *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t h = 0; h < HEADS; h++) {
                assert_int_equal(n_slots(a, l, h), n_slots(b, l, h));
                for (uint32_t k = 0; k < n_slots(a, l, h); k++)
                    assert_int_equal(ag_kv_cache_position(ag_session_kv_cache(a), l, h, k),
                                     ag_kv_cache_position(ag_session_kv_cache(b), l, h, k));
            }
        }
        decode(a, 1);
        decode(b, 1);
        assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n_vocab * sizeof(float));
    }
}

static ag_session *restored(ag_session *s, const ag_session_params *p) {
    char path[] = "/tmp/ag_head_budget_XXXXXX";
    ag_error err;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ag_session *r = session_of(p);
    must(ag_session_save(s, path, NULL, NULL, 0, &err), &err);
    must(ag_session_restore(r, path, NULL, NULL, &err), &err);
    remove(path);
    return r;
}

static void forks_and_restored_sessions_continue_alike(void **state) {
    (void)state;
    for (size_t i = 0; i < n_scored; i++) {
        const ag_session_params p = params_of(scored[i]);
        ag_session *s = session_of(&p), *fork, *last;
        ag_error err;
        prefill(s, 200);
        decode(s, 20);
        must(ag_session_fork(s, &fork, &err), &err);
        must(ag_session_fork(s, &last, &err), &err);
        ag_session *other = restored(s, &p);
        assert_int_equal(other->manager->evictor.lengths, AG_HEADS_RAGGED_IN_LAYER);
        same_sessions(s, fork, 2 * SLACK);
        same_sessions(last, other, 2 * SLACK);
        check_invariants(other, SLACK);
        assert_true(heads_differ(other));
        ag_session_destroy(s);
        ag_session_destroy(fork);
        ag_session_destroy(last);
        ag_session_destroy(other);
    }
}

/* The fork keeps ragged heads, and the other way round. */
static void fork_may_use_another_head_budget(void **state) {
    (void)state;
    const ag_session_params adaptive = params_of("keydiff");
    ag_session_params even = adaptive;
    even.eviction.head_budget = AG_HEAD_BUDGET_EVEN;
    ag_error err;
    for (int way = 0; way < 2; way++) {
        ag_session *s = session_of(way ? &even : &adaptive), *fork;
        prefill(s, 200);
        assert_int_equal(heads_differ(s), !way);
        must(ag_session_fork_with(s, way ? &adaptive.eviction : &even.eviction, &fork, &err), &err);
        decode(fork, 40);
        assert_true(heads_differ(fork));
        for (uint32_t l = 0; l < LAYERS; l++)
            assert_true(in_layer(fork, l) <= HEADS * (BUDGET + SLACK));
        ag_session *other = restored(s, way ? &adaptive : &even);
        decode(other, 40);
        for (uint32_t l = 0; l < LAYERS; l++)
            assert_int_equal(in_layer(fork, l), in_layer(other, l));
        ag_session_destroy(s);
        ag_session_destroy(fork);
        ag_session_destroy(other);
    }
}

static void truncates_and_resets_ragged_sessions(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SCORED; i++) {
        const ag_session_params p = params_of(scored[i]);
        ag_session *s = session_of(&p), *fresh = session_of(&p);
        ag_error err;
        prefill(s, 200);
        decode(s, 50);
        must(ag_session_truncate(s, 100, &err), &err);
        decode(s, 2 * BUDGET);
        check_invariants(s, SLACK);
        ag_session_reset(s);
        prefill(s, 150);
        prefill(fresh, 150);
        same_sessions(s, fresh, SLACK + 2);
        ag_session_destroy(s);
        ag_session_destroy(fresh);
    }
}

/* In a cache that holds little more than the budget no head may take everything. */
static void heads_stay_within_the_cache(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SCORED; i++) {
        ag_session_params p = params_of(scored[i]);
        p.max_seq_len = BUDGET + SLACK + 6;
        ag_session *s = session_of(&p);
        prefill(s, 250);
        for (int k = 0; k < 90; k++) {
            decode(s, 1);
            assert_true(ag_kv_cache_length(ag_session_kv_cache(s)) < p.max_seq_len);
        }
        check_invariants(s, SLACK);
        ag_session_destroy(s);
    }
}

/* The same if the other head is so short that the layer is within its budget. */
static void full_head_gives_up_slots_below_the_budget(void **state) {
    (void)state;
    ag_session_params p = params_of("keydiff");
    p.max_seq_len = BUDGET + SLACK + 20;
    ag_session *s = session_of(&p);
    prefill(s, BUDGET);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const uint32_t keep[] = {0, 1, 2, 3, 92, 93, 94, 95, 96, 97, 98, 99};
        assert_int_equal(ag_kv_cache_compact(s->cache, l, 1, keep, 12, NULL), AG_OK);
    }
    ag_cache_manager_set_ragged(s->manager, true);
    for (int k = 0; k < 60; k++) {
        decode(s, 1);
        assert_true(ag_kv_cache_length(s->cache) < p.max_seq_len);
        assert_int_equal(n_slots(s, 0, 1), 12 + k + 1);
    }
    const ag_eviction_stats *left = ag_session_evictions(s);
    assert_true(left->n_evictions > 0 && left->n_tokens < 60);
    ag_session_destroy(s);
}

static void decode_and_evict_allocate_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SCORED; i++) {
        const ag_session_params p = params_of(scored[i]);
        ag_session *s = session_of(&p);
        prefill(s, 150);
        decode(s, 40);
        const size_t before = ag_allocation_count();
        decode(s, 100);
        assert_int_equal(ag_allocation_count() - before, 0);
        assert_true(heads_differ(s));
        ag_session_destroy(s);
    }
}

/* Memory follows the blocks of 128 slots, and their pages. */
static void memory_follows_the_slots_of_each_head(void **state) {
    (void)state;
    ag_session_params p = params_of("keydiff");
    p.k_type = p.v_type = AG_F16;
    p.eviction.budget_tokens = 200;
    p.eviction.prefill = AG_KV_PREFILL_WHOLE;
    ag_session *s = session_of(&p);
    const ag_kv_cache *c = ag_session_kv_cache(s);
    const size_t row = 2 * 2 * DIM + sizeof(uint32_t), block = row * AG_KV_BLOCK;
    size_t slots = 0, blocks = 0;
    prefill(s, 480);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            slots += n_slots(s, l, h);
            blocks += ag_kv_blocks_for(n_slots(s, l, h));
        }
    }
    assert_int_equal(slots, LAYERS * HEADS * 200);
    assert_true(heads_differ(s));
    assert_int_equal(ag_kv_cache_memory_usage_bytes(c), blocks * block);
    ag_kv_view kv;
    ag_kv_cache_get_view(c, 0, &kv);
    const size_t resident = resident_bytes(ag_kv_view_block(&kv, 0, 0)->buffer);
    print_message("%zu bytes kept, %zu resident\n", slots * row, resident);
    assert_true(resident >= slots * row);
    assert_true(resident <= slots * row + LAYERS * HEADS * (block + page_bytes()));
    ag_session_destroy(s);
}

static void layers_with_a_window_share_evenly(void **state) {
    (void)state;
    ag_session_params p = params_of("keydiff");
    ag_model *own = model, *windows;
    ag_error err;
    must(ag_model_load(backend, WINDOWS, NULL, &windows, &err), &err);
    p.eviction.budget_tokens = 20;
    p.eviction.recent = 4;
    p.eviction.slack = 2;
    model = windows;
    ag_session *s = session_of(&p);
    model = own;
    const ag_kv_cache *c = ag_session_kv_cache(s);
    bool differ = false;
    prefill(s, 60);
    for (int k = 0; k < 40; k++) {
        decode(s, 1);
        for (uint32_t l = 0; ag_kv_cache_layer(c, l); l++) {
            assert_true(in_layer(s, l) <= HEADS * (20 + 2));
            if (ag_kv_cache_layer(c, l)->window)
                assert_int_equal(n_slots(s, l, 0), n_slots(s, l, 1));
            else differ |= n_slots(s, l, 0) != n_slots(s, l, 1);
        }
    }
    assert_true(differ);
    ag_session_destroy(s);
    ag_model_destroy(windows);
}

/* Works with any policy, also without scores. */
static void heads_keep_their_given_shares(void **state) {
    (void)state;
    const char *const names[] = {"streaming", "sliding", "tova", "snapkv", "keydiff"};
    for (size_t i = 0; i < 5; i++) {
        ag_session_params p = params_of(names[i]);
        ag_error err;
        p.eviction.head_budget = AG_HEAD_BUDGET_SHARES;
        p.eviction.head_shares = quarters;
        p.eviction.n_head_shares = LAYERS * HEADS;
        p.eviction.prefill = AG_KV_PREFILL_WHOLE;
        ag_session *s = session_of(&p), *fork;
        prefill(s, 300);
        for (uint32_t l = 0; l < LAYERS; l++) {
            assert_int_equal(in_layer(s, l), HEADS * BUDGET);
            assert_true(n_slots(s, l, 0) >= 149 && n_slots(s, l, 0) <= 151);
        }
        decode(s, 20);
        check_invariants(s, SLACK);
        must(ag_session_fork(s, &fork, &err), &err);
        ag_session *other = restored(s, &p);
        same_sessions(s, fork, SLACK + 3);
        decode(other, SLACK + 3);
        same_sessions(fork, other, 2);
        ag_session_destroy(s);
        ag_session_destroy(fork);
        ag_session_destroy(other);
    }
}

static void rejects_invalid_shares(void **state) {
    (void)state;
    const float wrong[] = {1, 0, 1, 0, 1, NAN};
    ag_session_params p = params_of("streaming");
    ag_session *s;
    ag_error err;
    p.eviction.head_budget = AG_HEAD_BUDGET_SHARES;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "head_shares has 0 values: the cache has 6 KV heads"));
    p.eviction.head_shares = wrong;
    p.eviction.n_head_shares = 5;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "head_shares has 5 values: the cache has 6 KV heads"));
    p.eviction.n_head_shares = 6;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "head_shares[5] is "));
}

static void rejects_policies_without_scores(void **state) {
    (void)state;
    const char *const names[] = {"streaming", "sliding", "turns"};
    ag_session *s;
    ag_error err;
    for (size_t i = 0; i < 3; i++) {
        const ag_session_params p = params_of(names[i]);
        assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
        assert_non_null(strstr(err.msg, names[i]));
        assert_non_null(strstr(err.msg, "no scores"));
    }
    ag_session_params p = params_of("keydiff");
    p.eviction.head_budget = (ag_head_budget)7;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "head_budget is 7"));
}

static void plan_includes_head_sharing(void **state) {
    (void)state;
    ag_session_params p = params_of("h2o");
    ag_session_plan adaptive, even;
    must(ag_session_plan_memory(ag_model_get_info(model), &p, &adaptive, NULL), NULL);
    p.eviction.head_budget = AG_HEAD_BUDGET_EVEN;
    must(ag_session_plan_memory(ag_model_get_info(model), &p, &even, NULL), NULL);
    const size_t slots = 512, lists = 4 * sizeof(float) * HEADS * slots - sizeof(float) * slots;
    assert_int_equal(adaptive.eviction_bytes - even.eviction_bytes,
                     lists + HEADS * sizeof(ag_eviction_view));
    assert_int_equal(adaptive.kv_bytes, even.kv_bytes);
}

static int load(void **state) {
    without_matrix_units();
    return load_one_model(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_hold_their_even_total),
        cmocka_unit_test(keydiff_keeps_the_slots_of_the_reference),
        cmocka_unit_test(forks_and_restored_sessions_continue_alike),
        cmocka_unit_test_setup_teardown(layers_hold_their_even_total, count_values, count_none),
        cmocka_unit_test(forced_slots_count_no_values),
        cmocka_unit_test_setup_teardown(counted_values_keep_the_slots_of_the_reference,
                                        count_values, count_none),
        cmocka_unit_test_setup_teardown(forks_and_restored_sessions_continue_alike, count_values,
                                        count_none),
        cmocka_unit_test(fork_may_use_another_head_budget),
        cmocka_unit_test(truncates_and_resets_ragged_sessions),
        cmocka_unit_test(heads_stay_within_the_cache),
        cmocka_unit_test(full_head_gives_up_slots_below_the_budget),
        cmocka_unit_test(decode_and_evict_allocate_nothing),
        cmocka_unit_test(memory_follows_the_slots_of_each_head),
        cmocka_unit_test(layers_with_a_window_share_evenly),
        cmocka_unit_test(heads_keep_their_given_shares),
        cmocka_unit_test(rejects_invalid_shares),
        cmocka_unit_test(rejects_policies_without_scores),
        cmocka_unit_test(plan_includes_head_sharing),
    };
    return cmocka_run_group_tests(tests, load, unload_one_model);
}
