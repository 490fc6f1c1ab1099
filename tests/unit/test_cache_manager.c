/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions with a managed cache: budgets, retained slots, reports, and equal results below the
 * budget. The model is random, small and trained for 512 positions. */
#include "cache/kv_cache.h"
#include "support/one_model.h"
#include "support/stride.h"
#include "support/without_matrix_units.h"

#include <antigravity/antigravity.h>

#include <math.h>

enum { LAYERS = 3, HEADS = 2, TRAINED = 512, BUDGET = 100, SLACK = 16, CHUNK = 48 };

static int load(void **state) {
    without_matrix_units();
    return load_one_model(state);
}

static ag_session_params params_of(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.prefill_chunk = CHUNK;
    p.eviction.policy = policy ? ag_eviction_policy_find(policy) : NULL;
    p.eviction.budget_tokens = BUDGET;
    p.eviction.recent = 8;
    p.eviction.slack = SLACK;
    p.eviction.snapkv_window = 8;
    return p;
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static void prefill(ag_session *s, size_t first, size_t n) {
    int32_t *ids = malloc(n * sizeof *ids);
    ag_error err;
    for (size_t i = 0; i < n; i++) ids[i] = id_at(first + i);
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    free(ids);
}

static void decode(ag_session *s, size_t first, size_t n) {
    ag_error err;
    for (size_t i = first; i < first + n; i++) {
        if (ag_session_decode(s, id_at(i), &err) != AG_OK) fail_msg("%s", err.msg);
    }
}

static void same_logits(const ag_session *a, const ag_session *b) {
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n_vocab * sizeof(float));
}

static uint32_t position(ag_session *s, uint32_t layer, uint32_t head, uint32_t slot) {
    return ag_kv_cache_position(ag_session_kv_cache(s), layer, head, slot);
}

static bool same_slots(ag_session *a, ag_session *b) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            uint32_t n = ag_kv_cache_n_slots(ag_session_kv_cache(a), l, h);
            if (n != ag_kv_cache_n_slots(ag_session_kv_cache(b), l, h)) return false;
            for (uint32_t i = 0; i < n; i++) {
                if (position(a, l, h, i) != position(b, l, h, i)) return false;
            }
        }
    }
    return true;
}

/* Checks that the prefix and the newest slots stay, positions ascend, and none is too far from
 * the last token. */
static void check_invariants(ag_session *s) {
    uint32_t next = ag_session_position(s);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            uint32_t n = ag_kv_cache_n_slots(ag_session_kv_cache(s), l, h);
            for (uint32_t i = 0; i < 4; i++) assert_int_equal(position(s, l, h, i), i);
            for (uint32_t i = 1; i <= 8; i++) assert_int_equal(position(s, l, h, n - i), next - i);
            for (uint32_t i = 4; i < n; i++) {
                assert_true(position(s, l, h, i) > position(s, l, h, i - 1));
                assert_true(position(s, l, h, i) + TRAINED >= next);
            }
        }
    }
}

typedef struct event_log {
    size_t n, n_tokens, bytes;
    uint32_t highest;
} event_log;

static void note(void *user, const ag_eviction *e) {
    event_log *log = user;
    log->n++;
    log->n_tokens += e->n_before - e->n_kept;
    log->bytes += e->bytes_returned;
    if (e->n_before > log->highest) log->highest = e->n_before;
}

static void policies_hold_budget_and_required_slots(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        for (size_t t = 0; t < 4; t++) {
            if ((4 * i + t) % test_stride()) continue;
            event_log log = {0};
            ag_session_params p = params_of(ag_eviction_policy_at(i)->name);
            p.k_type = types[t];
            p.v_type = types[3 - t];
            p.eviction.prefill = AG_KV_PREFILL_BOUNDED;
            p.eviction.on_eviction = note;
            p.eviction.on_eviction_user = &log;
            ag_session *s = session_of(&p);
            prefill(s, 0, 300);
            assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(s)), BUDGET);
            assert_true(log.n > 0 && log.highest <= BUDGET + CHUNK);
            check_invariants(s);
            log.highest = 0;
            for (size_t at = 300; at < 1200; at++) {
                decode(s, at, 1);
                assert_true(ag_kv_cache_length(ag_session_kv_cache(s)) <= BUDGET + SLACK);
                if (at % 37 == 0) check_invariants(s);
            }
            assert_int_equal(log.highest, BUDGET + SLACK + 1);
            assert_true(log.n <= 6 + 900 / SLACK);
            prefill(s, 1200, 77);
            check_invariants(s);
            assert_int_equal(ag_session_position(s), 1277);
            const ag_eviction_stats *all = ag_session_evictions(s);
            assert_int_equal(all->n_evictions, log.n);
            assert_int_equal(all->n_tokens, log.n_tokens);
            assert_int_equal(all->bytes_returned, log.bytes);
            assert_true(ag_session_last_evictions(s)->n_evictions > 0);
            assert_int_equal(ag_session_last_evictions(s)->last.n_kept, all->last.n_kept);
            ag_session_destroy(s);
        }
    }
}

static void logits_are_equal_below_the_budget(void **state) {
    (void)state;
    ag_session_params plain = ag_session_defaults(), none = params_of("none");
    plain.prefill_chunk = CHUNK;
    memset(&plain.eviction, 0, sizeof plain.eviction);
    for (size_t i = 0; ag_eviction_policy_at(i); i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i)->name);
        p.eviction.budget_tokens = 400;
        ag_session *a = session_of(&plain), *b = session_of(i ? &p : &none);
        prefill(a, 0, 150);
        prefill(b, 0, 150);
        same_logits(a, b);
        for (size_t at = 150; at < 200; at++) {
            decode(a, at, 1);
            decode(b, at, 1);
            same_logits(a, b);
        }
        assert_int_equal(ag_session_evictions(b)->n_evictions, 0);
        ag_session_destroy(a);
        ag_session_destroy(b);
    }
}

static void slots_do_not_depend_on_the_prefill_chunk(void **state) {
    (void)state;
    static const char *const names[] = {"sliding", "streaming", "snapkv", "compactor"};
    const uint32_t chunks[] = {200, 64, 17, 5, 3};
    for (size_t i = 0; i < 4; i++) {
        ag_session *first = NULL;
        for (size_t c = 0; c < 5; c++) {
            ag_session_params p = params_of(names[i]);
            p.prefill_chunk = chunks[c];
            ag_session *s = session_of(&p);
            prefill(s, 0, 203);
            assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(s)), BUDGET);
            if (first) {
                assert_true(same_slots(first, s));
                ag_session_destroy(s);
            } else {
                first = s;
            }
        }
        ag_session_destroy(first);
    }
}

/* Prompts in pieces of any size, which may end inside chunks, and a fork that continues inside a
 * chunk. */
static void compactor_slots_do_not_depend_on_prompt_chunks(void **state) {
    (void)state;
    enum { PROMPT = 490 };
    const uint32_t pieces[] = {PROMPT, 256, 300, 100, 33, 8};
    ag_session *first = NULL;
    for (size_t c = 0; c < sizeof pieces / sizeof pieces[0]; c++) {
        ag_session_params p = params_of("compactor");
        int32_t ids[PROMPT];
        ag_error err;
        p.prefill_chunk = PROMPT;
        p.max_seq_len = PROMPT + 10;
        p.eviction.budget_tokens = 200;
        ag_session *s = session_of(&p);
        for (size_t i = 0; i < PROMPT; i++) ids[i] = id_at(i);
        assert_int_equal(ag_session_begin_prompt(s, PROMPT, &err), AG_OK);
        for (uint32_t at = 0, n; at < PROMPT; at += n) {
            n = PROMPT - at < pieces[c] ? PROMPT - at : pieces[c];
            const ag_step_item item = {.session = s,
                                       .ids = ids + at,
                                       .n = n,
                                       .phase = AG_PHASE_PROMPT,
                                       .logits = AG_LOGITS_NONE};
            if (ag_session_step(&item, 1, &err) != AG_OK) fail_msg("%s", err.msg);
        }
        assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(s)), 200);
        assert_int_equal(position(s, 0, 0, 7), 7);
        assert_int_equal(ag_session_evictions(s)->n_evictions, 1);
        if (first) assert_true(same_slots(first, s));
        if (first) ag_session_destroy(s);
        else first = s;
    }
    ag_session_destroy(first);
}

static void policies_keep_different_slots(void **state) {
    (void)state;
    enum { N = 7 };
    ag_session *s[N];
    for (size_t i = 0; i < N; i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i + 1)->name);
        s[i] = session_of(&p);
        prefill(s[i], 0, 400);
    }
    /* sliding, streaming and, for a single text, turns are the same rule if their budgets are
     * equal. */
    assert_true(same_slots(s[0], s[1]) && same_slots(s[0], s[2]));
    for (size_t i = 2; i < N; i++) {
        for (size_t j = i + 1; j < N; j++) assert_false(same_slots(s[i], s[j]));
    }
    for (size_t i = 0; i < N; i++) ag_session_destroy(s[i]);
}

static void tova_keeps_the_same_slots_in_all_heads(void **state) {
    (void)state;
    ag_session_params p = params_of("tova");
    ag_session *s = session_of(&p);
    prefill(s, 0, 300);
    decode(s, 300, 100);
    bool layers_differ = false;
    for (uint32_t i = 0; i < BUDGET; i++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            assert_int_equal(position(s, l, 0, i), position(s, l, 1, i));
            layers_differ |= position(s, l, 0, i) != position(s, 0, 0, i);
        }
    }
    assert_true(layers_differ);
    ag_session_destroy(s);
}

/* Slots of the prompt outlast the tokens after it. */
static void snapkv_keeps_the_prompt_while_decoding(void **state) {
    (void)state;
    ag_session_params p = params_of("snapkv");
    p.eviction.prefill = AG_KV_PREFILL_WHOLE;
    ag_session *s = session_of(&p);
    prefill(s, 0, 200);
    decode(s, 200, 40);
    for (uint32_t h = 0; h < HEADS; h++) {
        uint32_t n = ag_kv_cache_n_slots(ag_session_kv_cache(s), 1, h), prompt = 0;
        while (prompt < n && position(s, 1, h, prompt) < 200) prompt++;
        assert_true(prompt >= BUDGET - 8);
        /* the tokens of the query window are among them */
        for (uint32_t i = 1; i <= 8; i++) {
            assert_int_equal(position(s, 1, h, prompt - i), 200 - i);
        }
    }
    ag_session_destroy(s);
}

static void batches_evict_like_single_sessions(void **state) {
    (void)state;
    enum { N = 6 };
    ag_session *alone[N], *together[N];
    ag_error err;
    for (size_t i = 0; i < N; i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i + 1)->name);
        alone[i] = session_of(&p);
        together[i] = session_of(&p);
        prefill(alone[i], i, 90 + 5 * i);
        prefill(together[i], i, 90 + 5 * i);
    }
    for (size_t step = 0; step < 60; step++) {
        int32_t ids[N];
        for (size_t i = 0; i < N; i++) ids[i] = id_at(step + i);
        assert_int_equal(ag_session_decode_batch(together, ids, N, &err), AG_OK);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(ag_session_decode(alone[i], ids[i], &err), AG_OK);
            same_logits(alone[i], together[i]);
        }
    }
    for (size_t i = 0; i < N; i++) {
        assert_true(ag_session_evictions(alone[i])->n_evictions > 0);
        assert_true(same_slots(alone[i], together[i]));
        ag_session_destroy(alone[i]);
        ag_session_destroy(together[i]);
    }
}

static void decode_and_evict_allocate_nothing(void **state) {
    (void)state;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i)->name);
        p.k_type = i % 2 ? AG_Q4_0 : AG_F16;
        ag_session *s = session_of(&p);
        prefill(s, 0, 90);
        decode(s, 90, 40);
        size_t before = ag_allocation_count();
        decode(s, 130, 500);
        assert_int_equal(ag_allocation_count() - before, 0);
        assert_true(ag_session_evictions(s)->n_evictions > 20);
        ag_session_destroy(s);
    }
}

static void reset_session_equals_a_new_one(void **state) {
    (void)state;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        ag_session_params p = params_of(ag_eviction_policy_at(i)->name);
        ag_session *used = session_of(&p), *fresh = session_of(&p);
        prefill(used, 50, 400);
        decode(used, 450, 300);
        ag_session_reset(used);
        assert_int_equal(ag_session_evictions(used)->n_evictions, 0);
        prefill(used, 0, 150);
        prefill(fresh, 0, 150);
        decode(used, 150, 60);
        decode(fresh, 150, 60);
        same_logits(used, fresh);
        assert_true(same_slots(used, fresh));
        ag_session_destroy(used);
        ag_session_destroy(fresh);
    }
}

static void accepts_budgets_in_tokens_bytes_and_ratios(void **state) {
    (void)state;
    ag_session_params p = params_of("streaming");
    ag_session *s = session_of(&p);
    prefill(s, 0, 300);
    assert_int_equal(ag_session_kv_budget(s), BUDGET);
    size_t block = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s));
    ag_session_destroy(s);
    p.eviction.budget_tokens = 0;
    p.eviction.budget_bytes = 2 * block + block / 2;
    s = session_of(&p);
    assert_int_equal(ag_session_kv_budget(s), 256);
    prefill(s, 0, 400);
    assert_true(ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s)) <= 2 * block);
    ag_session_destroy(s);
    p.eviction.budget_ratio = 0.25f; /* the smaller of the two applies */
    s = session_of(&p);
    assert_int_equal(ag_session_kv_budget(s), 128);
    ag_session_destroy(s);
    p.eviction.budget_bytes = 0;
    p.eviction.budget_ratio = 0;
    s = session_of(&p); /* the default of 1024 does not fit 512 slots */
    assert_int_equal(ag_session_kv_budget(s), 511 - SLACK);
    ag_session_destroy(s);
    p = params_of("sliding");
    p.eviction.budget_tokens = 0;
    p.eviction.window = 64;
    s = session_of(&p);
    assert_int_equal(ag_session_kv_budget(s), 68);
    ag_session_destroy(s);
    p = params_of("none");
    s = session_of(&p);
    assert_int_equal(ag_session_kv_budget(s), 0);
    ag_session_destroy(s);
}

static void refuse(const ag_session_params *p, const char *why) {
    ag_session *s;
    ag_error err;
    assert_int_equal(ag_session_create(model, p, &s, &err), AG_INVALID);
    assert_null(s);
    if (!strstr(err.msg, why)) fail_msg("'%s' does not say '%s'", err.msg, why);
}

static void rejects_invalid_budgets(void **state) {
    (void)state;
    ag_session_params p = params_of("keydiff");
    p.eviction.budget_tokens = 512;
    refuse(&p, "budget_tokens is 512: it must be below max_seq_len, 512");
    p.eviction.budget_tokens = 11;
    refuse(&p, "the budget of 11 tokens is too small: 4 protected and 8 newest tokens");
    p.eviction.budget_tokens = 0;
    p.eviction.budget_bytes = 1000;
    refuse(&p, "budget_bytes is 1000");
    p.eviction.budget_bytes = 0;
    p.eviction.budget_ratio = -0.5f;
    refuse(&p, "-0.5");
    p.eviction.budget_ratio = NAN;
    refuse(&p, "nan");
    p = params_of("snapkv");
    p.eviction.snapkv_kernel = 4;
    refuse(&p, "4");
    p.eviction.snapkv_kernel = 5;
    p.eviction.snapkv_window = 97;
    refuse(&p, "97 newest");
}

static void rejects_a_whole_prefill_that_does_not_fit(void **state) {
    (void)state;
    ag_session_params p = params_of("keydiff");
    p.eviction.prefill = AG_KV_PREFILL_WHOLE;
    ag_session *s = session_of(&p);
    int32_t ids[600];
    ag_error err;
    for (size_t i = 0; i < 600; i++) ids[i] = id_at(i);
    assert_int_equal(ag_session_prefill(s, ids, 600, NULL, NULL, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "600 tokens"));
    assert_int_equal(ag_session_position(s), 0);
    assert_int_equal(ag_session_prefill(s, ids, 500, NULL, NULL, &err), AG_OK);
    assert_int_equal(ag_session_evictions(s)->n_evictions, 1);
    assert_int_equal(ag_session_evictions(s)->last.n_before, 500);
    ag_session_destroy(s);
    p.eviction.prefill = AG_KV_PREFILL_AUTO;
    p.eviction.policy = ag_eviction_policy_find("snapkv");
    s = session_of(&p); /* in one piece if it fits, else in pieces */
    assert_int_equal(ag_session_prefill(s, ids, 600, NULL, NULL, &err), AG_OK);
    assert_true(ag_session_evictions(s)->n_evictions > 1);
    ag_session_destroy(s);
}

/* ---- a policy of one's own ---- */

typedef struct calls {
    size_t checks, budgets, selects;
} calls;

/* Parameters of the custom policy. */
typedef struct every_other_params {
    uint32_t budget;
} every_other_params;

static ag_status check_every_other(void *user, const ag_eviction_params *p, ag_error *err) {
    const every_other_params *own = p->policy_params;
    ((calls *)user)->checks++;
    if (own->budget) return AG_OK;
    strcpy(err->msg, "every other of none");
    return err->status = AG_INVALID;
}

static uint32_t budget_every_other(void *user, const ag_eviction_params *p) {
    ((calls *)user)->budgets++;
    return ((const every_other_params *)p->policy_params)->budget;
}

/* Keeps every other slot, the newest first. */
static void select_every_other(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                               uint32_t n_keep, uint32_t *keep) {
    (void)p;
    ((calls *)user)->selects++;
    uint32_t first = v->n_protected + v->n_expired, n = n_keep, stays = v->n_recent;
    for (uint32_t slot = v->n_slots; slot-- > first && n > v->n_protected;) {
        uint32_t spare = slot - first, wanted = n - v->n_protected;
        bool chosen = stays || slot % 2 || spare < wanted;
        if (stays) stays--;
        if (chosen) keep[--n] = slot;
    }
    for (uint32_t slot = 0; slot < v->n_protected; slot++) keep[slot] = slot;
}

static void custom_policy_gets_its_own_parameters(void **state) {
    (void)state;
    calls n = {0};
    every_other_params own = {.budget = 0};
    ag_session *s;
    ag_error err;
    const ag_eviction_policy every_other = {.name = "every other",
                                            .user = &n,
                                            .check = check_every_other,
                                            .default_budget = budget_every_other,
                                            .select = select_every_other};
    ag_session_params p = params_of(NULL);
    p.eviction.policy = &every_other;
    p.eviction.policy_params = &own;
    p.eviction.budget_tokens = 0;
    own.budget = 64;
    assert_int_equal(ag_session_create(model, &p, &s, NULL), AG_OK);
    ag_session_destroy(s);
    own.budget = BUDGET;
    s = session_of(&p);
    prefill(s, 0, 140);
    decode(s, 140, 900);
    check_invariants(s);
    assert_string_equal(ag_session_evictions(s)->last.policy, "every other");
    assert_int_equal(ag_session_kv_budget(s), BUDGET);
    assert_true(ag_kv_cache_length(ag_session_kv_cache(s)) <= BUDGET + SLACK);
    assert_true(n.checks && n.budgets && n.selects >= LAYERS * HEADS);
    ag_session_destroy(s);
    own.budget = 0;
    p.eviction.budget_tokens = BUDGET;
    assert_int_equal(ag_session_create(model, &p, &s, &err), AG_INVALID);
    assert_string_equal(err.msg, "every other of none");
    assert_int_equal(ag_session_create(model, &p, &s, NULL), AG_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_hold_budget_and_required_slots),
        cmocka_unit_test(logits_are_equal_below_the_budget),
        cmocka_unit_test(slots_do_not_depend_on_the_prefill_chunk),
        cmocka_unit_test(compactor_slots_do_not_depend_on_prompt_chunks),
        cmocka_unit_test(policies_keep_different_slots),
        cmocka_unit_test(tova_keeps_the_same_slots_in_all_heads),
        cmocka_unit_test(snapkv_keeps_the_prompt_while_decoding),
        cmocka_unit_test(batches_evict_like_single_sessions),
        cmocka_unit_test(decode_and_evict_allocate_nothing),
        cmocka_unit_test(reset_session_equals_a_new_one),
        cmocka_unit_test(accepts_budgets_in_tokens_bytes_and_ratios),
        cmocka_unit_test(rejects_invalid_budgets),
        cmocka_unit_test(rejects_a_whole_prefill_that_does_not_fit),
        cmocka_unit_test(custom_policy_gets_its_own_parameters),
    };
    return cmocka_run_group_tests(tests, load, unload_one_model);
}
