/* SPDX-License-Identifier: Apache-2.0 */
/* The policy turns evicts entire turns of a conversation first. The model is random, small and
 * trained for 512 positions. Results are compared with a session without a policy, from whose
 * cache the test removes the expected slots. */
#include "cache/eviction/policies.h"
#include "cache/turns.h"
#include "support/failing_allocator.h"
#include "support/one_model.h"

#include <antigravity/antigravity.h>
#include <antigravity/kv_cache.h>

#include <stdio.h>
#include <unistd.h>

#define MODELS AG_GOLDEN_MODELS "/"
enum { LAYERS = 3, HEADS = 2, TRAINED = 512, SLOTS = 256, BUDGET = 160, SINKS = 20, MOST = 700 };

static ag_session_params params_of(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = SLOTS;
    p.prefill_chunk = 64;
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = policy ? ag_eviction_policy_find(policy) : NULL;
    p.eviction.budget_tokens = policy ? BUDGET : 0;
    p.eviction.protected_prefix = SINKS;
    p.eviction.recent = 8;
    p.eviction.slack = 16;
    return p;
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static void feed(ag_session *s, size_t n) {
    int32_t ids[MOST];
    ag_error err;
    const uint32_t first = ag_session_position(s);
    for (size_t i = 0; i < n; i++) ids[i] = id_at(first + i);
    must(ag_session_prefill(s, ids, n, NULL, NULL, &err), &err);
}

static void decode(ag_session *s, size_t n) {
    ag_error err;
    for (size_t i = 0; i < n; i++)
        must(ag_session_decode(s, id_at(ag_session_position(s)), &err), &err);
}

/* Feeds a question as a prompt and an answer of the same length token by token. */
static void turn(ag_session *s, size_t n_question, size_t n_answer) {
    ag_error err;
    must(ag_session_begin_turn(s, ag_session_position(s), &err), &err);
    feed(s, n_question);
    decode(s, n_answer);
}

static uint32_t length(ag_session *s) { return ag_kv_cache_length(ag_session_kv_cache(s)); }

/* Checks that heads of layers without a window hold the first n_sinks tokens and those from
 * `first` to the newest. */
static void holds(ag_session *s, uint32_t n_sinks, uint32_t first) {
    const uint32_t next = ag_session_position(s);
    const ag_kv_cache *c = ag_session_kv_cache(s);
    const ag_kv_layer *layer;
    for (uint32_t l = 0; (layer = ag_kv_cache_layer(c, l)); l++) {
        for (uint32_t h = 0; h < layer->n_kv_heads && !layer->window; h++) {
            assert_int_equal(ag_kv_cache_n_slots(c, l, h), n_sinks + next - first);
            for (uint32_t i = 0; i < n_sinks + next - first; i++) {
                const uint32_t want = i < n_sinks ? i : first + i - n_sinks;
                assert_int_equal(ag_kv_cache_position(c, l, h, i), want);
            }
        }
    }
}

/* Removes positions [from, until) from an unmanaged cache. */
static void take_out(ag_session *s, uint32_t from, uint32_t until) {
    ag_error err;
    ag_kv_cache *c = ag_session_kv_cache(s);
    const ag_kv_layer *layer;
    for (uint32_t l = 0; (layer = ag_kv_cache_layer(c, l)); l++) {
        for (uint32_t h = 0; h < layer->n_kv_heads && !layer->window; h++) {
            uint32_t keep[SLOTS], n = 0;
            for (uint32_t i = 0; i < ag_kv_cache_n_slots(c, l, h); i++) {
                const uint32_t at = ag_kv_cache_position(c, l, h, i);
                if (at < from || at >= until) keep[n++] = i;
            }
            must(ag_kv_cache_compact(c, l, h, keep, n, &err), &err);
        }
    }
}

static void same_logits(const ag_session *a, const ag_session *b) {
    assert_non_null(ag_session_logits(a));
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n_vocab * sizeof(float));
}

/* ---- the policy alone ---- */

static uint32_t n_staying(const uint32_t *turns, size_t n_turns, uint32_t n_slots,
                          uint32_t n_keep) {
    uint32_t positions[300];
    for (uint32_t i = 0; i < n_slots; i++) positions[i] = i < 10 ? i : 90 + i; /* from 100 on */
    const ag_eviction_view v = {.n_slots = n_slots,
                                .n_protected = 10,
                                .n_recent = 4,
                                .positions = positions,
                                .turns = turns,
                                .n_turns = n_turns};
    const ag_eviction_params p = ag_eviction_defaults();
    return ag_eviction_turns.count(NULL, &p, &v, n_keep);
}

static void evicts_up_to_the_next_turn(void **state) {
    (void)state;
    const uint32_t turns[] = {0, 10, 120, 150, 180};
    /* 110 slots: the sinks and positions 100 to 199. */
    assert_int_equal(n_staying(turns, 5, 110, 109),
                     90); /* 101 belongs to the turn that ends at 120 */
    assert_int_equal(n_staying(turns, 5, 110, 90), 90); /* 120 is a start */
    assert_int_equal(n_staying(turns, 5, 110, 89), 60);
    assert_int_equal(n_staying(turns, 5, 110, 110), 110);
    /* Half of the possible slots stay, whatever the turns. */
    assert_int_equal(n_staying(turns, 5, 110, 50), 30);
    assert_int_equal(n_staying(turns, 5, 110, 59), 59);
}

static void keeps_newest_tokens_when_no_turns_are_marked(void **state) {
    (void)state;
    assert_int_equal(n_staying(NULL, 0, 110, 50), 50);
}

static void evicts_the_newest_turn_piece_by_piece(void **state) {
    (void)state;
    const uint32_t turns[] = {0, 110}, empty[] = {0, 110, 200};
    assert_int_equal(n_staying(turns, 2, 110, 70), 70);
    assert_int_equal(n_staying(empty, 3, 110, 70), 70); /* the last turn has no token yet */
}

/* ---- sessions ---- */

/* Returns the first start of a turn from which on everything fits the budget. */
static uint32_t expected_first(const uint32_t *begins, size_t n, uint32_t next) {
    for (size_t i = 0; i < n; i++)
        if (SINKS + next - begins[i] <= BUDGET) return begins[i];
    fail_msg("no turn fits");
    return 0;
}

/* A conversation of `model` and a copy whose cache the test empties. */
static void compare_with_mirror(void) {
    const ag_session_params managed = params_of("turns"), plain = params_of(NULL);
    ag_session *s = session_of(&managed), *mirror = session_of(&plain);
    uint32_t begins[20], first = SINKS;
    size_t n_evictions = 0;
    for (size_t t = 0; ag_session_position(s) < TRAINED - 60; t++) {
        begins[t] = ag_session_position(s);
        const size_t question = t ? 9 + t * 5 % 17 : SINKS, answer = 11 + t * 7 % 23;
        for (size_t i = 0; i <= answer; i++) {
            ag_error err;
            if (!i) must(ag_session_begin_turn(s, begins[t], &err), &err);
            const uint32_t before = length(s);
            if (i) decode(s, 1), decode(mirror, 1);
            else feed(s, question), feed(mirror, question);
            same_logits(s, mirror);
            if (length(s) >= before) continue;
            first = expected_first(begins, t + 1, ag_session_position(s));
            holds(s, SINKS, first);
            take_out(mirror, SINKS, first);
            n_evictions++;
        }
        holds(s, SINKS, first);
    }
    assert_true(n_evictions > 4);
    assert_int_equal(ag_session_evictions(s)->n_evictions, n_evictions);
    ag_session_destroy(s);
    ag_session_destroy(mirror);
}

/* Windows and states continue unchanged while the turns of other layers are evicted. */
static void retained_turns_are_bit_identical(void **state) {
    (void)state;
    static const char *const names[] = {MODELS "gemma3", MODELS "qwen3.5", MODELS "lfm2"};
    compare_with_mirror();
    ag_model *first = model;
    const size_t first_vocab = n_vocab;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ag_error err;
        must(ag_model_load(backend, names[i], NULL, &model, &err), &err);
        n_vocab = ag_model_get_info(model)->n_vocab;
        compare_with_mirror();
        ag_model_destroy(model);
    }
    model = first;
    n_vocab = first_vocab;
}

static void turn_longer_than_the_cache_loses_its_start(void **state) {
    (void)state;
    const ag_session_params p = params_of("turns");
    ag_session *s = session_of(&p);
    turn(s, SINKS, 30);
    turn(s, 40, 20);
    const uint32_t begin = ag_session_position(s);
    turn(s, 400, 0); /* in chunks: does not fit at once */
    holds(s, SINKS, ag_session_position(s) - (BUDGET - SINKS));
    turn(s, 10, 0); /* evicts the end of the long turn, since at least half of the slots stay */
    assert_int_equal(length(s), BUDGET);
    for (int i = 0; i < 5; i++) turn(s, 10, 10);
    assert_true(length(s) <= BUDGET + 16 && length(s) > BUDGET / 2);
    assert_true(ag_kv_cache_position(ag_session_kv_cache(s), 0, 0, SINKS) > begin);
    decode(s, 300);
    assert_true(length(s) <= BUDGET + 16);
    ag_session_destroy(s);
}

static void truncate_removes_turn_starts(void **state) {
    (void)state;
    const ag_session_params p = params_of("turns");
    ag_error err;
    ag_session *s = session_of(&p);
    turn(s, SINKS, 0);
    turn(s, 30, 0);
    const uint32_t second = ag_session_position(s);
    turn(s, 20, 0);
    must(ag_session_truncate(s, second, &err), &err);
    assert_int_equal(ag_session_begin_turn(s, second - 1, &err), AG_INVALID);
    must(ag_session_begin_turn(s, second + 60, &err), &err);
    assert_int_equal(ag_session_begin_turn(s, second + 59, &err), AG_INVALID);
    must(ag_session_truncate(s, second - 3, &err), &err);
    feed(s, 53); /* tokens of the turn before */
    const uint32_t third = ag_session_position(s);
    turn(s, 70, 0);
    holds(s, SINKS, third);
    ag_session_destroy(s);
}

static void protects_fewer_tokens_later(void **state) {
    (void)state;
    ag_error err;
    ag_session_params p = params_of("turns");
    p.max_seq_len = TRAINED;
    p.eviction.budget_tokens = TRAINED - 1;
    ag_session *s = session_of(&p);
    p.eviction.protected_prefix = 8;
    ag_session *other = session_of(&p);
    assert_int_equal(ag_session_protected(s), SINKS);
    turn(s, 10, 0);
    turn(other, 10, 0);
    turn(s, 4, 0);
    turn(other, 4, 0);
    assert_int_equal(ag_session_protect(s, SINKS + 1, &err), AG_INVALID);
    must(ag_session_protect(s, 8, &err), &err);
    assert_int_equal(ag_session_protected(s), 8);
    assert_int_equal(ag_session_protect(s, 9, &err), AG_INVALID);
    /* Past the trained length only protected keys are rotated again. */
    uint32_t lowest =
        UINT32_MAX; /* the lowest position that lost its protection and was cached then */
    while (ag_session_position(s) < 2 * TRAINED) {
        turn(s, 2, ag_session_position(s) % 3);
        turn(other, 2, ag_session_position(other) % 3);
        same_logits(s, other);
        const uint32_t next = ag_kv_cache_position(ag_session_kv_cache(s), 0, 0, 8);
        if (ag_session_position(s) >= TRAINED && next < lowest) lowest = next;
    }
    assert_int_equal(lowest, 10);
    ag_session_reset(s);
    assert_int_equal(ag_session_protected(s), SINKS);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static void same_slots(ag_session *a, ag_session *b) {
    assert_int_equal(length(a), length(b));
    for (uint32_t i = 0; i < length(a); i++) {
        assert_int_equal(ag_kv_cache_position(ag_session_kv_cache(a), LAYERS - 1, 0, i),
                         ag_kv_cache_position(ag_session_kv_cache(b), LAYERS - 1, 0, i));
    }
}

static void forks_and_saved_sessions_keep_turns(void **state) {
    (void)state;
    char path[] = "/tmp/antigravity-turns-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ag_error err;
    ag_session_params p = params_of("turns");
    ag_session *s = session_of(&p), *fork = NULL, *restored = session_of(&p);
    turn(s, SINKS - 5, 15);
    must(ag_session_protect(s, SINKS - 5, &err), &err);
    for (int i = 0; i < 6; i++) turn(s, 13, 17);
    must(ag_session_fork(s, &fork, &err), &err);
    must(ag_session_save(s, path, NULL, NULL, 0, &err), &err);
    must(ag_session_restore(restored, path, NULL, NULL, &err), &err);
    assert_int_equal(ag_session_protected(fork), SINKS - 5);
    assert_int_equal(ag_session_protected(restored), SINKS - 5);
    for (int i = 0; i < 12; i++) {
        turn(s, 11, 19);
        turn(fork, 11, 19);
        turn(restored, 11, 19);
        same_slots(s, fork);
        same_slots(s, restored);
        same_logits(s, fork);
        same_logits(s, restored);
    }
    unlink(path);
    ag_session_destroy(s);
    ag_session_destroy(fork);
    ag_session_destroy(restored);
}

static void rejects_a_damaged_list_of_turns(void **state) {
    (void)state;
    char path[] = "/tmp/antigravity-turns-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    ag_error err;
    const ag_session_params p = params_of("turns");
    ag_session *s = session_of(&p), *restored = session_of(&p);
    turn(s, SINKS, 5);
    turn(s, 10, 5);
    must(ag_session_save(s, path, NULL, NULL, 0, &err), &err);
    /* After the header: four numbers, the length of each head, then the turns. */
    unsigned char head[16];
    close(fd);
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fread(head, 1, sizeof head, f), sizeof head);
    const long at = 24 + head[12] + 256 * head[13] + 8 + 4 * 4 + 4 * LAYERS * HEADS;
    const struct {
        long offset;
        int byte;
    } damages[] = {{0, SINKS + 1}, {4, 200}, {8, 99}, {12, 0}};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        fseek(f, at + damages[i].offset, SEEK_SET);
        const int was = fgetc(f);
        fseek(f, at + damages[i].offset, SEEK_SET);
        fputc(damages[i].byte, f);
        fflush(f);
        assert_int_equal(ag_session_restore(restored, path, NULL, NULL, &err), AG_FORMAT);
        assert_non_null(strstr(err.msg, i < 2    ? "turns of"
                                        : i == 2 ? "turn 0 of 2"
                                                 : "turn 1 of 2"));
        fseek(f, at + damages[i].offset, SEEK_SET);
        fputc(was, f);
        fflush(f);
    }
    fclose(f);
    must(ag_session_restore(restored, path, NULL, NULL, &err), &err);
    unlink(path);
    ag_session_destroy(s);
    ag_session_destroy(restored);
}

static void begin_turn_fails_without_memory(void **state) {
    (void)state;
    failing_allocator f;
    ag_turns turns = {0};
    ag_error err;
    failing_install(&f, 0);
    assert_int_equal(ag_turns_add(&turns, 3, &err), AG_NOMEM);
    assert_int_equal(turns.n, 0);
    assert_int_equal(ag_turns_add(&turns, 3, &err), AG_OK);
    assert_int_equal(ag_turns_add(&turns, 3, &err), AG_OK);
    assert_int_equal(turns.n, 1);
    ag_turns_release(&turns);
    ag_set_allocator(NULL);
}

/* count() is called only if unexpired slots must be evicted. */
static size_t n_asked;
static uint32_t count_asked(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                            uint32_t n_keep) {
    n_asked++;
    assert_true(n_keep < v->n_slots - v->n_expired);
    return ag_eviction_turns.count(user, p, v, n_keep);
}

static void does_not_call_the_policy_below_the_budget(void **state) {
    (void)state;
    ag_error err;
    ag_model *windowed; /* most layers see 24 tokens */
    ag_eviction_policy asking = ag_eviction_turns;
    asking.count = count_asked;
    must(ag_model_load(backend, MODELS "gemma3", NULL, &windowed, &err), &err);
    for (uint32_t budget = 8; budget <= 24; budget += 4) {
        ag_session_params p = params_of("turns");
        ag_session *s;
        p.prefill_chunk = 16;
        p.eviction.policy = &asking;
        p.eviction.budget_tokens = budget;
        p.eviction.protected_prefix = 4; /* which the windows evict */
        p.eviction.recent = 1;
        p.eviction.slack = 1;
        n_asked = 0;
        must(ag_session_create(windowed, &p, &s, &err), &err);
        for (size_t t = 0; t < 12; t++) turn(s, 1 + t * 7 % 4, 5 + t * 5 % 9);
        assert_true(n_asked > 0);
        ag_session_destroy(s);
    }
    ag_model_destroy(windowed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicts_up_to_the_next_turn),
        cmocka_unit_test(keeps_newest_tokens_when_no_turns_are_marked),
        cmocka_unit_test(evicts_the_newest_turn_piece_by_piece),
        cmocka_unit_test(retained_turns_are_bit_identical),
        cmocka_unit_test(turn_longer_than_the_cache_loses_its_start),
        cmocka_unit_test(truncate_removes_turn_starts),
        cmocka_unit_test(protects_fewer_tokens_later),
        cmocka_unit_test(forks_and_saved_sessions_keep_turns),
        cmocka_unit_test(rejects_a_damaged_list_of_turns),
        cmocka_unit_test(begin_turn_fails_without_memory),
        cmocka_unit_test(does_not_call_the_policy_below_the_budget),
    };
    return cmocka_run_group_tests(tests, load_one_model, unload_one_model);
}
