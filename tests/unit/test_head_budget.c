/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that share what their layer keeps: how many slots each earns, and that a session with such
 * heads holds its budget and goes on as any other does. */
#include "cache/cache_manager_impl.h"
#include "cache/eviction/allocate.h"
#include "cache/eviction/policies.h"
#include "cache/kv_cache.h"
#include "core/kv_view.h"
#include "session/session_impl.h"
#include "support/ask_keys.h"
#include "support/one_model.h"
#include "support/resident.h"
#include "support/without_matrix_units.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { LAYERS = 3, HEADS = 2, DIM = 64, BUDGET = 100, RECENT = 8, SINKS = 4, SLACK = 16 };
static const char *const scored[] = {"snapkv", "h2o", "tova", "keydiff", "compactor"};
enum { N_SCORED = sizeof scored / sizeof *scored };
#define WINDOWS AG_SOURCE_DIR "/tests/data/golden/models/gemma2"

/* ---- the choice alone ---- */

enum { MOST_HEADS = 5, MOST = 120 };

typedef struct layer {
    ag_eviction_view heads[MOST_HEADS];
    float importance[MOST_HEADS][MOST], values[MOST], scores[MOST_HEADS * MOST];
    uint32_t work[MOST], order[MOST_HEADS * MOST], keep[MOST_HEADS * MOST];
    uint32_t n_heads, n_keep[MOST_HEADS];
} layer;

static void make_head(layer *l, uint32_t h, uint32_t n, uint32_t n_recent) {
    l->heads[h] = (ag_eviction_view){.n_slots = n,
                                     .n_protected = SINKS < n ? SINKS : n,
                                     .n_recent = n_recent,
                                     .n_scored = n,
                                     .importance = l->importance[h],
                                     .work = l->work,
                                     .values = l->values};
}

static void allocate(layer *l, size_t total, uint32_t most) {
    const ag_allocation a = {
        .total = total, .most = most, .scores = l->scores, .order = l->order, .keep = l->keep};
    ag_evict_allocate(l->heads, l->n_heads, &a, l->n_keep);
}

static bool is_alive(const ag_eviction_view *v, uint32_t s) {
    return s < v->n_protected || s >= v->n_protected + v->n_expired;
}

static bool is_forced(const ag_eviction_view *v, uint32_t s) {
    return is_alive(v, s) && (s < v->n_protected || s + v->n_recent >= v->n_slots);
}

/* Slots of the head that come before slot s in its own order. */
static uint32_t rank_in_head(const ag_eviction_view *v, uint32_t s) {
    uint32_t before = 0;
    for (uint32_t o = 0; o < v->n_slots; o++) {
        if (o == s || !is_alive(v, o)) continue;
        if (is_forced(v, o) != is_forced(v, s)) before += is_forced(v, o);
        else
            before += v->importance[o] > v->importance[s] ||
                      (v->importance[o] == v->importance[s] && o < s);
    }
    return before;
}

/* What the definition gives: forced slots and the best of each head up to its safe share, then the
 * best of the layer. */
static void expect_definition(layer *l, size_t total, uint32_t most) {
    uint32_t want[MOST_HEADS] = {0};
    size_t left = total;
    const uint32_t even = (uint32_t)(total / l->n_heads), safe = even / 5 ? even / 5 : 1;
    bool taken[MOST_HEADS][MOST] = {{false}};
    for (uint32_t h = 0; h < l->n_heads; h++) {
        const ag_eviction_view *v = &l->heads[h];
        for (uint32_t s = 0; s < v->n_slots; s++) {
            if (!is_alive(v, s) || (!is_forced(v, s) && rank_in_head(v, s) >= safe)) continue;
            if (rank_in_head(v, s) >= most) continue;
            taken[h][s] = true;
            want[h]++;
            left--;
        }
    }
    while (left--) {
        uint32_t best_h = MOST_HEADS, best_s = 0;
        for (uint32_t s = 0; s < MOST; s++) {
            for (uint32_t h = 0; h < l->n_heads; h++) {
                const ag_eviction_view *v = &l->heads[h];
                if (s >= v->n_slots || !is_alive(v, s) || taken[h][s]) continue;
                if (rank_in_head(v, s) >= most) continue;
                if (best_h < MOST_HEADS && l->importance[h][s] <= l->importance[best_h][best_s])
                    continue;
                best_h = h;
                best_s = s;
            }
        }
        if (best_h == MOST_HEADS) break; /* nobody has more */
        taken[best_h][best_s] = true;
        want[best_h]++;
    }
    allocate(l, total, most);
    for (uint32_t h = 0; h < l->n_heads; h++) assert_int_equal(l->n_keep[h], want[h]);
}

static void slots_go_where_the_layer_s_best_scores_are(void **state) {
    (void)state;
    layer *l = malloc(sizeof *l);
    srand(3);
    for (int round = 0; round < 120; round++) {
        l->n_heads = 1 + (uint32_t)rand() % MOST_HEADS;
        const uint32_t recent = (uint32_t)rand() % 9, most = round % 3 ? MOST : 60;
        const uint32_t even = SINKS + recent + (uint32_t)rand() % 40;
        for (uint32_t h = 0; h < l->n_heads; h++) {
            const uint32_t n = 20 + (uint32_t)rand() % (MOST - 20);
            make_head(l, h, n, recent);
            l->heads[h].n_expired = round % 4 == 1 ? (uint32_t)rand() % 5 : 0;
            for (uint32_t s = 0; s < n; s++) {
                const int r = rand();
                l->importance[h][s] =
                    round % 2 ? (float)(r % 7) : (float)(r % 9999) * (float)(h + 1);
                if (round % 5 == 0 && r % 11 == 0) l->importance[h][s] = -INFINITY;
                if (round % 5 == 0 && r % 13 == 0) l->importance[h][s] = INFINITY;
            }
        }
        expect_definition(l, (size_t)even * l->n_heads, most);
    }
    free(l);
}

static void a_head_without_any_good_slot_keeps_its_fifth(void **state) {
    (void)state;
    layer *l = malloc(sizeof *l);
    l->n_heads = 2;
    for (uint32_t h = 0; h < 2; h++) {
        make_head(l, h, MOST, 0);
        l->heads[h].n_protected = 0;
        for (uint32_t s = 0; s < MOST; s++) l->importance[h][s] = h ? 100 : 1;
    }
    allocate(l, 2 * 52, MOST);
    assert_int_equal(l->n_keep[0], 10);
    assert_int_equal(l->n_keep[1], 94);
    /* as many as always stay are not beside it */
    l->heads[0].n_recent = 9;
    allocate(l, 2 * 52, MOST);
    assert_int_equal(l->n_keep[0], 10);
    l->heads[0].n_recent = 25;
    allocate(l, 2 * 52, MOST);
    assert_int_equal(l->n_keep[0], 25);
    free(l);
}

static void slots_that_nobody_scored_rank_last_the_newest_first(void **state) {
    (void)state;
    layer *l = malloc(sizeof *l);
    l->n_heads = 2;
    for (uint32_t h = 0; h < 2; h++) {
        make_head(l, h, MOST, 0);
        l->heads[h].n_protected = 0;
        l->heads[h].n_scored = h ? 20 : 50;
        for (uint32_t s = 0; s < MOST; s++) l->importance[h][s] = h && s >= 20 ? 9 : -5;
    }
    allocate(l, 70, MOST);
    assert_int_equal(l->n_keep[0], 50);
    assert_int_equal(l->n_keep[1], 20);
    allocate(l, 70 + 12, MOST);
    assert_int_equal(l->n_keep[0], 56);
    assert_int_equal(l->n_keep[1], 26);
    free(l);
}

static void shares_are_kept_within_bounds(void **state) {
    (void)state;
    srand(5);
    for (int round = 0; round < 500; round++) {
        ag_head_bounds heads[MOST_HEADS];
        float shares[MOST_HEADS];
        uint32_t keep[MOST_HEADS];
        size_t least = 0, most = 0, sum = 0;
        const uint32_t n = 1 + (uint32_t)rand() % MOST_HEADS;
        for (uint32_t h = 0; h < n; h++) {
            heads[h].least = (uint32_t)rand() % 30;
            heads[h].most = heads[h].least + (uint32_t)rand() % 200;
            shares[h] = round % 7 ? (float)(rand() % 100) / 50 : 0;
            least += heads[h].least;
            most += heads[h].most;
        }
        const size_t total = least + (size_t)rand() % (most - least + 10);
        ag_evict_allocate_shares(heads, shares, n, total, keep);
        for (uint32_t h = 0; h < n; h++) {
            assert_true(keep[h] >= heads[h].least && keep[h] <= heads[h].most);
            sum += keep[h];
        }
        assert_int_equal(sum, total < most ? total : most);
    }
    const ag_head_bounds wide[] = {{0, 999}, {0, 999}, {0, 999}}, narrow[] = {{9, 9}, {0, 999}};
    uint32_t keep[3];
    ag_evict_allocate_shares(wide, (const float[]){0.5f, 0.3f, 0.2f}, 3, 100, keep);
    assert_true(keep[0] >= 49 && keep[0] <= 51 && keep[1] >= 29 && keep[1] <= 31);
    ag_evict_allocate_shares(narrow, (const float[]){0.9f, 0.1f}, 2, 100, keep);
    assert_true(keep[0] == 9 && keep[1] == 91);
}

/* ---- sessions ---- */

/* Of the first head of each layer three quarters. */
static const float quarters[] = {0.75f, 0.25f, 0.75f, 0.25f, 0.75f, 0.25f};

static ag_session_params params_of(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.prefill_chunk = 48;
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = BUDGET;
    p.eviction.recent = RECENT;
    p.eviction.slack = SLACK;
    p.eviction.snapkv_window = 8;
    p.eviction.head_budget = AG_HEAD_BUDGET_ADAPTIVE;
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

/* The prefix and the newest of every head, the safe share, and no more than the layer may hold. */
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

static void every_layer_holds_its_even_total(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SCORED; i++) {
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

/* All of a layer's keys as KeyDiff scores them, and what the definition keeps of them. */
static void keydiff_keeps_the_slots_of_the_definition(void **state) {
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

static void forks_and_files_go_on_alike(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SCORED; i++) {
        const ag_session_params p = params_of(scored[i]);
        ag_session *s = session_of(&p), *fork, *last;
        ag_error err;
        prefill(s, 200);
        decode(s, 20);
        must(ag_session_fork(s, &fork, &err), &err);
        must(ag_session_fork(s, &last, &err), &err);
        ag_session *other = restored(s, &p);
        assert_int_equal(other->manager->lengths, AG_HEADS_IN_LAYER);
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

/* It keeps the heads as it finds them, unevenly; and the other way round. */
static void a_fork_may_share_otherwise(void **state) {
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

static void sessions_are_taken_back_and_begun_anew(void **state) {
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

/* Where a cache holds little more than the budget no head takes all of it. */
static void no_head_outgrows_the_cache(void **state) {
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

/* Nor where the other holds so little that the layer is within its budget. */
static void a_full_head_gives_up_slots_below_the_budget(void **state) {
    (void)state;
    ag_session_params p = params_of("keydiff");
    p.max_seq_len = BUDGET + SLACK + 20;
    ag_session *s = session_of(&p);
    prefill(s, BUDGET);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const uint32_t keep[] = {0, 1, 2, 3, 92, 93, 94, 95, 96, 97, 98, 99};
        assert_int_equal(ag_kv_cache_compact(s->cache, l, 1, keep, 12, NULL), AG_OK);
    }
    ag_cache_manager_set_uneven(s->manager, true);
    for (int k = 0; k < 60; k++) {
        decode(s, 1);
        assert_true(ag_kv_cache_length(s->cache) < p.max_seq_len);
        assert_int_equal(n_slots(s, 0, 1), 12 + k + 1);
    }
    const ag_eviction_tally *left = ag_session_evictions(s);
    assert_true(left->n_evictions > 0 && left->n_tokens < 60);
    ag_session_destroy(s);
}

static void decoding_and_evicting_allocate_nothing(void **state) {
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

/* Blocks of 128 slots, and the pages behind them. */
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

/* Any policy, also one without scores. */
static void shares_say_what_each_head_keeps(void **state) {
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

static void shares_that_make_no_sense_are_refused(void **state) {
    (void)state;
    const float wrong[] = {1, 0, 1, 0, 1, NAN};
    ag_session_params p = params_of("streaming");
    ag_session *s;
    ag_error err;
    p.eviction.head_budget = AG_HEAD_BUDGET_SHARES;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "shares of 0 heads for a cache of 6"));
    p.eviction.head_shares = wrong;
    p.eviction.n_head_shares = 5;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "shares of 5 heads for a cache of 6"));
    p.eviction.n_head_shares = 6;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "head 5 has a share of"));
}

static void what_has_no_scores_is_refused(void **state) {
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
    assert_non_null(strstr(err.msg, "of kind 7"));
}

static void plans_count_what_sharing_takes(void **state) {
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
        cmocka_unit_test(slots_go_where_the_layer_s_best_scores_are),
        cmocka_unit_test(a_head_without_any_good_slot_keeps_its_fifth),
        cmocka_unit_test(slots_that_nobody_scored_rank_last_the_newest_first),
        cmocka_unit_test(shares_are_kept_within_bounds),
        cmocka_unit_test(every_layer_holds_its_even_total),
        cmocka_unit_test(keydiff_keeps_the_slots_of_the_definition),
        cmocka_unit_test(forks_and_files_go_on_alike),
        cmocka_unit_test(a_fork_may_share_otherwise),
        cmocka_unit_test(sessions_are_taken_back_and_begun_anew),
        cmocka_unit_test(no_head_outgrows_the_cache),
        cmocka_unit_test(a_full_head_gives_up_slots_below_the_budget),
        cmocka_unit_test(decoding_and_evicting_allocate_nothing),
        cmocka_unit_test(memory_follows_the_slots_of_each_head),
        cmocka_unit_test(layers_with_a_window_share_evenly),
        cmocka_unit_test(shares_say_what_each_head_keeps),
        cmocka_unit_test(shares_that_make_no_sense_are_refused),
        cmocka_unit_test(what_has_no_scores_is_refused),
        cmocka_unit_test(plans_count_what_sharing_takes),
    };
    return cmocka_run_group_tests(tests, load, unload_one_model);
}
