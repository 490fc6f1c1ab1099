/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_opencl_policies [some]: fewer calls fail.
 *
 * Policies on a device keep the same slots as on the CPU for equal keys, values and queries,
 * after any operation on the cache, and read back few bytes. */
#include "cache/cache_manager.h"
#include "cache/eviction/chunk_scores.h"
#include "cache/eviction/policies.h"
#include "cache/saved_state.h"
#include "core/fail.h"
#include "support/byte_stream.h"
#include "support/without_matrix_units.h"
#include "unit/opencl_forwarded.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, HEADS = 2, GROUP = 2, DIM = 64, SLOTS = 400, TRAINED = 260, BOTH = 2 };
enum { CHUNK = 64, PROMPT = 230, BUDGET = 90, SLACK = 12, KV_ROW = HEADS * DIM };
enum { Q_ROW = GROUP * KV_ROW };

static forwarder_controls *forwarder;
static size_t call_step = 3;       /* step between calls that fail */
static ag_backend *backends[BOTH]; /* the CPU, the device */
static ag_buffer *room[BOTH][4];   /* k, v, q, output of a pass */
static float inv_freq[DIM / 2];
static const ag_rope_table rope[LAYERS] = {{inv_freq, DIM, 1}, {inv_freq, DIM, 1}};
static uint32_t n_layers = LAYERS;
static ag_head_budget head_budget = AG_HEAD_BUDGET_EVEN; /* for new sequences */

/* One sequence, with its cache and manager on both. */
typedef struct sequence {
    ag_kv_cache *cache[BOTH];
    ag_cache_manager *manager[BOTH];
    uint32_t position;
} sequence;

static const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
enum { N_TYPES = sizeof types / sizeof types[0] };

static ag_eviction_params eviction_of(const ag_eviction_policy *policy) {
    ag_eviction_params p = ag_eviction_defaults();
    p.policy = policy;
    p.budget_tokens = BUDGET;
    p.slack = SLACK;
    p.recent = 10;
    p.snapkv_window = 16;
    p.head_budget = head_budget;
    return p;
}

static sequence begin_sequence(const ag_eviction_policy *policy, ag_dtype type) {
    sequence s = {.position = 0};
    const ag_eviction_params e = eviction_of(policy);
    const ag_kv_params p = {.n_layers = n_layers,
                            .n_kv_heads = HEADS,
                            .head_dim = DIM,
                            .max_slots = SLOTS,
                            .k_type = type,
                            .v_type = type,
                            .n_protected = e.protected_prefix};
    for (int i = 0; i < BOTH; i++) {
        assert_int_equal(ag_kv_cache_create(backends[i], &p, &s.cache[i], NULL), AG_OK);
        assert_int_equal(
            ag_cache_manager_create(s.cache[i], &e, rope, TRAINED, &s.manager[i], NULL), AG_OK);
    }
    return s;
}

static void end_sequence(sequence *s) {
    for (int i = 0; i < BOTH; i++) {
        ag_cache_manager_destroy(s->manager[i]);
        ag_kv_cache_destroy(s->cache[i]);
    }
}

/* ---- a pass ---- */

static float values[LAYERS][3][CHUNK * Q_ROW]; /* k, v, q */

static void draw(size_t n) {
    for (int l = 0; l < LAYERS; l++) {
        for (int part = 0; part < 3; part++) {
            for (size_t i = 0; i < n * Q_ROW; i++) {
                values[l][part][i] = (float)(rand() % 4001 - 2000) / 1100;
            }
        }
    }
}

static ag_status run_layer(sequence *s, int which, uint32_t layer, const uint32_t *positions,
                           size_t n, const ag_attention_scores *scores, ag_error *err) {
    ag_backend *be = backends[which];
    const size_t heads[4] = {HEADS, HEADS, HEADS * GROUP, HEADS * GROUP};
    ag_tensor t[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            ag_tensor_make(&t[i], AG_F32, ag_shape_3d(n, heads[i], DIM), room[which][i], 0, NULL),
            AG_OK);
        ag_status st = i < 3 ? ag_buffer_upload(room[which][i], 0, values[layer][i],
                                                ag_tensor_bytes(&t[i]), err)
                             : AG_OK;
        if (st != AG_OK) return st;
    }
    ag_kv_cache *c = s->cache[which];
    ag_status st = ag_kv_cache_keep_unrotated(c, layer, &t[0], positions, err);
    if (st == AG_OK) st = ag_kv_cache_update(c, layer, &t[0], &t[1], positions, err);
    if (st != AG_OK) return st;
    ag_attention_seq seq = {.n_rows = n, .visible_until = positions}, part = {0};
    const ag_attention_params params = {.scale = 1 / sqrtf(DIM)};
    ag_kv_cache_get_view(c, layer, &seq.kv);
    ag_kv_cache_get_view(c, layer, &part.kv);
    ag_score_sums_set_layer(scores, layer, scores->chunks ? &part : &seq);
    AG_TRY(ag_chunk_scores_add(scores->chunks, layer, &t[2], &t[3], &part, &params, err));
    st = ag_attention(be, &t[3], &t[2], &seq, 1, &params);
    return ag_take_error(be, st, err);
}

static ag_status run_pass(sequence *s, int which, size_t n, size_t n_left, ag_error *err) {
    uint32_t positions[CHUNK];
    ag_attention_scores scores;
    for (uint32_t i = 0; i < n; i++) positions[i] = s->position + i;
    ag_cache_manager *m = s->manager[which];
    ag_status st = ag_cache_manager_before(m, s->position, n, n_left, &scores, err);
    for (uint32_t l = 0; l < n_layers && st == AG_OK; l++) {
        st = run_layer(s, which, l, positions, n, &scores, err);
    }
    if (st == AG_OK) ag_cache_manager_after(m, s->position + (uint32_t)n, n_left);
    return st;
}

static void expect_equal_slots(const sequence *s) {
    uint32_t positions[BOTH][SLOTS];
    for (uint32_t l = 0; l < n_layers; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t n = ag_kv_cache_n_slots(s->cache[0], l, h);
            assert_int_equal(ag_kv_cache_n_slots(s->cache[1], l, h), n);
            for (int i = 0; i < BOTH; i++) {
                assert_int_equal(ag_kv_cache_read_positions(s->cache[i], l, h, positions[i], NULL),
                                 AG_OK);
            }
            assert_memory_equal(positions[0], positions[1], n * sizeof **positions);
        }
    }
}

static void pass(sequence *s, size_t n, size_t n_left) {
    draw(n);
    for (int i = 0; i < BOTH; i++) {
        ag_error err;
        if (run_pass(s, i, n, n_left, &err) != AG_OK) fail_msg("%s", err.msg);
    }
    s->position += (uint32_t)n;
    expect_equal_slots(s);
}

static void prompt(sequence *s, size_t n) {
    for (int i = 0; i < BOTH; i++) {
        assert_int_equal(ag_cache_manager_begin(s->manager[i], AG_PHASE_PROMPT, n, NULL), AG_OK);
    }
    while (n) {
        const size_t chunk = ag_cache_manager_chunk(s->manager[0], s->position, n, CHUNK);
        assert_int_equal(ag_cache_manager_chunk(s->manager[1], s->position, n, CHUNK), chunk);
        n -= chunk;
        pass(s, chunk, n);
    }
}

static void decode(sequence *s, int n) {
    while (n--) {
        for (int i = 0; i < BOTH; i++) {
            assert_int_equal(ag_cache_manager_begin(s->manager[i], AG_PHASE_DECODE, 1, NULL),
                             AG_OK);
        }
        pass(s, 1, 0);
    }
}

/* ---- what becomes of a sequence ---- */

static sequence fork_of(const sequence *s, const ag_eviction_policy *policy, ag_dtype type) {
    sequence f = begin_sequence(policy, type);
    for (int i = 0; i < BOTH; i++) {
        assert_int_equal(ag_kv_cache_share(f.cache[i], s->cache[i], NULL), AG_OK);
        assert_int_equal(ag_cache_manager_copy(f.manager[i], s->manager[i], NULL), AG_OK);
    }
    f.position = s->position;
    return f;
}

/* The CPU continues from a save of the device, and vice versa. */
static sequence restored(const sequence *s, const ag_eviction_policy *policy, ag_dtype type) {
    sequence r = begin_sequence(policy, type);
    uint32_t n_slots[LAYERS * HEADS];
    for (uint32_t i = 0; i < n_layers * HEADS; i++) {
        n_slots[i] = ag_kv_cache_n_slots(s->cache[0], i / HEADS, i % HEADS);
    }
    for (int i = 0; i < BOTH; i++) {
        byte_stream st = {.bytes = malloc(1 << 20)};
        ag_score_sums *sums, *from = ag_cache_manager_sums(s->manager[1 - i]);
        assert_int_equal(ag_kv_cache_save(s->cache[1 - i], stream_put, &st, NULL), AG_OK);
        assert_int_equal(ag_score_sums_save(from, s->cache[1 - i], stream_put, &st, NULL), AG_OK);
        assert_true(st.n <= 1 << 20);
        assert_int_equal(
            ag_kv_cache_load(r.cache[i], n_slots, s->position, "", stream_get, &st, NULL), AG_OK);
        assert_int_equal(ag_score_sums_create(policy, r.cache[i], &sums, NULL), AG_OK);
        ag_score_sums_set_position(sums, ag_score_sums_position(from));
        assert_int_equal(ag_score_sums_load(sums, r.cache[i], stream_get, &st, NULL), AG_OK);
        ag_cache_manager_restore(r.manager[i], &sums, &(ag_turns){0}, NULL);
        ag_score_sums_destroy(sums);
        free(st.bytes);
    }
    r.position = s->position;
    return r;
}

static void truncate_to(sequence *s, uint32_t position) {
    for (int i = 0; i < BOTH; i++) {
        assert_int_equal(ag_kv_cache_truncate(s->cache[i], position, NULL), AG_OK);
        ag_cache_manager_truncate(s->manager[i], position);
    }
    s->position = position;
}

/* ---- tests ---- */

static void keeps_the_same_slots_as_the_cpu(void **state) {
    (void)state;
    srand(11);
    for (size_t p = 1; ag_eviction_policy_at(p); p++) {
        for (int t = 0; t < N_TYPES; t++) {
            sequence s = begin_sequence(ag_eviction_policy_at(p), types[t]);
            prompt(&s, PROMPT);
            decode(&s, 3 * SLACK);
            assert_true(ag_cache_manager_stats(s.manager[1])->n_evictions > 2);
            assert_int_equal(ag_cache_manager_stats(s.manager[1])->n_tokens,
                             ag_cache_manager_stats(s.manager[0])->n_tokens);
            end_sequence(&s);
        }
    }
}

static bool heads_differ(const sequence *s) {
    bool differ = false;
    for (uint32_t l = 0; l < n_layers; l++)
        differ |= ag_kv_cache_n_slots(s->cache[1], l, 0) != ag_kv_cache_n_slots(s->cache[1], l, 1);
    return differ;
}

/* Both compute the scores by which heads share slots. */
static void heads_keep_the_slots_that_they_keep_on_the_cpu(ag_head_budget budget) {
    srand(16);
    head_budget = budget;
    for (size_t p = 1; ag_eviction_policy_at(p); p++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(p);
        if (policy->importance == AG_IMPORTANCE_NONE) continue;
        if (budget == AG_HEAD_BUDGET_VALUES && !ag_importance_traits_of(policy)->is_attention)
            continue;
        sequence s = begin_sequence(policy, AG_F16);
        prompt(&s, PROMPT);
        assert_true(heads_differ(&s));
        decode(&s, 2 * SLACK);
        sequence f = fork_of(&s, policy, AG_F16);
        for (int i = 0; i < BOTH; i++) ag_cache_manager_set_ragged(f.manager[i], true);
        decode(&f, SLACK + 3);
        sequence r = restored(&f, policy, AG_F16);
        for (int i = 0; i < BOTH; i++) ag_cache_manager_set_ragged(r.manager[i], true);
        end_sequence(&f);
        decode(&r, SLACK + 2);
        truncate_to(&r, r.position - 6);
        prompt(&r, 40);
        decode(&r, SLACK + 3);
        for (uint32_t l = 0; l < n_layers; l++) {
            uint32_t n = 0;
            for (uint32_t h = 0; h < HEADS; h++) n += ag_kv_cache_n_slots(r.cache[1], l, h);
            assert_true(n <= HEADS * (BUDGET + SLACK));
        }
        end_sequence(&r);
        end_sequence(&s);
    }
    head_budget = AG_HEAD_BUDGET_EVEN;
}

static void adaptive_heads_keep_the_same_slots_as_the_cpu(void **state) {
    (void)state;
    heads_keep_the_slots_that_they_keep_on_the_cpu(AG_HEAD_BUDGET_ADAPTIVE);
}

static void counted_values_keep_the_same_slots_as_the_cpu(void **state) {
    (void)state;
    heads_keep_the_slots_that_they_keep_on_the_cpu(AG_HEAD_BUDGET_VALUES);
}

static void continues_after_forks_truncations_and_restores(void **state) {
    (void)state;
    srand(12);
    for (size_t p = 1; ag_eviction_policy_at(p); p++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(p);
        sequence s = begin_sequence(policy, AG_F16);
        prompt(&s, 100);
        decode(&s, 5);
        sequence f = fork_of(&s, policy, AG_F16);
        decode(&f, SLACK + 3);
        decode(&s, SLACK + 4);
        sequence r = restored(&f, policy, AG_F16);
        end_sequence(&f);
        decode(&r, SLACK + 2);
        truncate_to(&r, r.position - 6);
        decode(&r, SLACK + 3);
        prompt(&r, 40);
        decode(&r, SLACK + 3);
        end_sequence(&r);
        expect_equal_slots(&s);
        end_sequence(&s);
    }
}

/* Saving downloads the sums of a layer; later passes add to those on the device. With one layer,
 * the last layer that was downloaded is the first that an eviction needs. */
static void rereads_sums_for_an_eviction_after_saving(void **state) {
    (void)state;
    srand(15);
    n_layers = 1;
    for (size_t p = 1; ag_eviction_policy_at(p); p++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(p);
        sequence s = begin_sequence(policy, AG_F16);
        prompt(&s, BUDGET - 5);
        sequence r = restored(&s, policy, AG_F16);
        end_sequence(&r);
        decode(&s, 5 + SLACK + 1);
        assert_int_equal(ag_cache_manager_stats(s.manager[1])->n_evictions, 1);
        end_sequence(&s);
    }
    n_layers = LAYERS;
}

static void reads_back_few_bytes(void **state) {
    (void)state;
    srand(13);
    for (size_t p = 1; ag_eviction_policy_at(p); p++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(p);
        const size_t most = policy->importance == AG_IMPORTANCE_NONE ? 0 : LAYERS;
        if (policy->with_values) continue; /* it reads the cache */
        sequence s = begin_sequence(policy, AG_F16);
        prompt(&s, PROMPT);
        decode(&s, 2);
        for (int i = 0; i < 3 * SLACK; i++) {
            const forwarder_controls before = *forwarder;
            decode(&s, 1);
            const size_t reads = forwarder->n_reads - before.n_reads;
            const bool evicted = ag_cache_manager_last_stats(s.manager[1])->n_evictions;
            assert_true(reads <= (evicted ? most : 0));
            assert_true(forwarder->read_bytes - before.read_bytes <=
                        reads * HEADS * SLOTS * sizeof(float));
            assert_int_equal(forwarder->n_finishes, before.n_finishes);
        }
        end_sequence(&s);
    }
}

static void recovers_from_any_failed_call_of_an_eviction(void **state) {
    (void)state;
    const char *const names[] = {"h2o", "keydiff"};
    const size_t n_live = forwarder->n_live;
    for (size_t p = 0; p < 2; p++) {
        size_t n = 1 + p;
        for (bool more = true; more; n += call_step) { /* the other policy takes the other calls */
            srand(14);
            sequence s = begin_sequence(ag_eviction_policy_find(names[p]), AG_F16);
            prompt(&s, BUDGET);
            decode(&s, SLACK);
            draw(1);
            ag_error err = {0}, none;
            forwarder->n_calls = 0;
            forwarder->failed = NULL;
            forwarder->fail_at = n;
            ag_status st = run_pass(&s, 1, 1, 0, &err);
            forwarder->fail_at = 0;
            more = forwarder->failed != NULL;
            assert_true(st == AG_OK || err.msg[0]);
            if (st == AG_OK) { /* runs an eviction that failed after the pass */
                assert_int_equal(ag_cache_manager_settle(s.manager[1], &none), AG_OK);
                assert_int_equal(run_pass(&s, 0, 1, 0, &none), AG_OK);
                assert_true(ag_cache_manager_stats(s.manager[1])->n_evictions == 1);
                expect_equal_slots(&s);
                s.position++;
                decode(&s, 2 * SLACK);
            }
            end_sequence(&s);
            assert_int_equal(forwarder->n_live, n_live);
        }
        print_message("%s: about %zu calls\n", names[p], n);
        assert_true(n > 50);
    }
}

static void make_room(void) {
    for (int i = 0; i < BOTH; i++) {
        for (int part = 0; part < 4; part++) {
            assert_int_equal(ag_memory_alloc(ag_backend_memory(backends[i]),
                                             CHUNK * Q_ROW * sizeof(float), AG_USAGE_SCRATCH,
                                             &room[i][part], NULL),
                             AG_OK);
        }
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "some") == 0) call_step = 12;
    const int unfit = open_forwarded(AG_FORWARDER, &forwarder, &backends[1]);
    if (unfit) return unfit;
    without_matrix_units();
    if (ag_backend_create(NULL, &backends[0], NULL) != AG_OK) return EXIT_FAILURE;
    for (int i = 0; i < DIM / 2; i++) inv_freq[i] = powf(10000, -2.0f * (float)i / DIM);
    make_room();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_same_slots_as_the_cpu),
        cmocka_unit_test(adaptive_heads_keep_the_same_slots_as_the_cpu),
        cmocka_unit_test(counted_values_keep_the_same_slots_as_the_cpu),
        cmocka_unit_test(continues_after_forks_truncations_and_restores),
        cmocka_unit_test(rereads_sums_for_an_eviction_after_saving),
        cmocka_unit_test(reads_back_few_bytes),
        cmocka_unit_test(recovers_from_any_failed_call_of_an_eviction),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < BOTH; i++) {
        for (int part = 0; part < 4; part++) ag_buffer_release(&room[i][part]);
        ag_backend_destroy(backends[i]);
    }
    return failed;
}
