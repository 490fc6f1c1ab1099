/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_step_ends [BACKEND]
 *
 * Steps that fail, are rejected or are cancelled: no session changes, and a correct step works
 * afterwards. */
#include "unit/step_sessions.h"

static bool refuse_row(void *user, size_t i, const float *logits) {
    (void)logits;
    return i != *(const size_t *)user;
}

/* Two sessions at positions 20 and 3, with copies that take no part in the step. */
typedef struct rig {
    ag_session *s[2], *untouched[2];
    ag_step_item items[2]; /* items of a step that succeeds */
} rig;

static rig make_rig(void) {
    rig r;
    int32_t ids[20];
    ag_error err;
    random_ids(ids, 20);
    for (size_t i = 0; i < 2; i++) {
        r.s[i] = make(NULL);
        must(ag_session_prefill(r.s[i], ids, i ? 3 : 20, NULL, NULL, &err), &err);
        must(ag_session_fork(r.s[i], &r.untouched[i], &err), &err);
        r.items[i] = (ag_step_item){
            .session = r.s[i], .ids = some_ids, .n = i ? 1 : 6, .logits = AG_LOGITS_LAST};
    }
    return r;
}

static void drop_rig(rig *r) {
    for (size_t i = 0; i < 2; i++) {
        ag_session_destroy(r->s[i]);
        ag_session_destroy(r->untouched[i]);
    }
}

static void assert_unchanged(const rig *r) {
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ag_session_position(r->s[i]), ag_session_position(r->untouched[i]));
        assert_int_equal(ag_kv_cache_length(ag_session_kv_cache(r->s[i])),
                         ag_kv_cache_length(ag_session_kv_cache(r->untouched[i])));
    }
}

/* Checks that the step fails, and that a correct step afterwards gives the expected logits. */
static void fails(const rig *r, const ag_step_item items[2], ag_status want, const char *message) {
    ag_error err;
    assert_int_equal(ag_session_step(items, 2, &err), want);
    if (!strstr(err.msg, message)) fail_msg("'%s' does not say '%s'", err.msg, message);
    assert_unchanged(r);
}

static void goes_on(rig *r) {
    ag_error err;
    must(ag_session_step(r->items, 2, &err), &err);
    for (size_t i = 0; i < 2; i++) {
        must(ag_session_prefill(r->untouched[i], some_ids, r->items[i].n, NULL, NULL, &err), &err);
        same_logits(r->s[i], r->untouched[i]);
    }
    assert_unchanged(r);
}

static void failed_step_changes_no_session(void **state) {
    (void)state;
    const int32_t unknown[] = {3, (int32_t)n_vocab};
    const size_t second = 1;
    int32_t chosen;
    use(1);
    ag_session *foreign = make(NULL);
    use(0);
    ag_sampler *sampler = sampler_of(0);
    rig r = make_rig();
    ag_error err;
    assert_int_equal(ag_session_step(r.items, 0, &err), AG_INVALID);
    const struct {
        ag_step_item item; /* replaces the second item */
        ag_status want;
        const char *message;
    } cases[] = {
        {{.session = r.s[0], .ids = some_ids, .n = 1},
         AG_INVALID,
         "items 0 and 1 have the same session"},
        {{.session = foreign, .ids = some_ids, .n = 1},
         AG_INVALID,
         "item 1: its session belongs to another model"},
        {{.session = r.s[1], .ids = some_ids, .n = 0}, AG_INVALID, "the list of tokens is empty"},
        {{.session = r.s[1], .ids = some_ids, .n = CHUNK + 1},
         AG_LIMIT,
         "item 1 is too long: 17 tokens"},
        {{.session = r.s[1], .ids = unknown, .n = 2}, AG_INVALID, "outside the vocabulary"},
        {{.session = r.s[1], .ids = some_ids, .n = 1, .sampler = sampler, .chosen = &chosen},
         AG_INVALID,
         "item 1: a sampler needs logits"},
        {{.session = r.s[1], .ids = some_ids, .n = 1, .logits = AG_LOGITS_LAST, .sampler = sampler},
         AG_INVALID,
         "item 1: a sampler needs chosen"},
        {{.session = r.s[1],
          .ids = some_ids,
          .n = 3,
          .logits = AG_LOGITS_ALL,
          .row = refuse_row,
          .row_user = (void *)(uintptr_t)&second},
         AG_CANCELLED,
         "cancelled at token 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ag_step_item items[] = {r.items[0], cases[i].item};
        fails(&r, items, cases[i].want, cases[i].message);
    }
    goes_on(&r);
    drop_rig(&r);
    ag_sampler_destroy(sampler);
    ag_session_destroy(foreign);
}

/* The first item's token is chosen before the second item ends the step. */
static void failed_step_restores_samplers(void **state) {
    (void)state;
    const size_t first = 0;
    int32_t chosen[2];
    ag_error err;
    use(0);
    for (int i = 0; i < 2; i++) {
        ag_sampler_params p = ag_sampler_defaults();
        ag_sampler *sampler;
        rig r = make_rig();
        p.temperature = 50; /* nearly uniform: each random number is another token */
        p.top_p = 1;
        p.top_k = 0;
        p.min_p = 0;
        p.seed = 9;
        must(ag_sampler_create(&p, (int32_t)n_vocab, &sampler, &err), &err);
        ag_step_item items[] = {r.items[0], r.items[1]};
        items[0].sampler = r.items[0].sampler = sampler;
        items[0].chosen = r.items[0].chosen = &chosen[i];
        items[1].row = refuse_row;
        items[1].row_user = (void *)(uintptr_t)&first;
        if (i) fails(&r, items, AG_CANCELLED, "cancelled at token 0");
        must(ag_session_step(r.items, 2, &err), &err);
        drop_rig(&r);
        ag_sampler_destroy(sampler);
    }
    assert_int_equal(chosen[0], chosen[1]);
}

static void full_session_fails_the_step(void **state) {
    (void)state;
    int32_t ids[MAX_SEQ];
    ag_error err;
    use(0);
    rig r = make_rig();
    ag_session *full = make(NULL);
    random_ids(ids, MAX_SEQ);
    must(ag_session_prefill(full, ids, MAX_SEQ - 2, NULL, NULL, &err), &err);
    const ag_step_item items[] = {r.items[0], {.session = full, .ids = some_ids, .n = 3}};
    fails(&r, items, AG_LIMIT, "3 tokens do not fit");
    assert_int_equal(ag_session_position(full), MAX_SEQ - 2);
    goes_on(&r);
    drop_rig(&r);
    ag_session_destroy(full);
}

static void any_session_cancels_a_step(void **state) {
    (void)state;
    for (size_t m = 0; m < n_models; m++) {
        use(m);
        rig r = make_rig();
        ag_session_cancel(r.s[1]);
        fails(&r, r.items, AG_CANCELLED, "cancelled before the step");
        goes_on(&r);
        drop_rig(&r);
    }
}

/* Called after the step has begun. */
static void cancel_meanwhile(void *user, uint64_t now_ms, ag_memory_signals *out) {
    ag_session **s = user;
    (void)now_ms;
    *out = (ag_memory_signals){.hint = AG_PRESSURE_NORMAL};
    if (*s) ag_session_cancel(*s);
    *s = NULL;
}

static uint64_t a_second_later(void *user) {
    static uint64_t now;
    (void)user;
    return now += 1000;
}

static void callback_cancels_a_step_of_several_sessions(void **state) {
    (void)state;
    const int32_t ids[CHUNK] = {3, 5};
    ag_session *cancelled = NULL, *plain, *watched;
    ag_session_params p = ag_session_defaults();
    ag_error err;
    use(0);
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = CHUNK;
    p.eviction.memory.threshold_bytes = 1;
    p.eviction.memory.read = cancel_meanwhile;
    p.eviction.memory.clock_ms = a_second_later;
    p.eviction.memory.user = &cancelled;
    plain = make(NULL);
    must(ag_session_create(model, &p, &watched, &err), &err);
    const ag_step_item items[] = {{.session = plain, .ids = ids, .n = CHUNK},
                                  {.session = watched, .ids = ids, .n = 1}};
    cancelled = plain;
    assert_int_equal(ag_session_step(items, 2, &err), AG_CANCELLED);
    assert_non_null(strstr(err.msg, "layer 0"));
    assert_int_equal(ag_session_position(plain) + ag_session_position(watched), 0);
    must(ag_session_step(items, 2, &err), &err);
    ag_session_destroy(plain);
    ag_session_destroy(watched);
}

static bool stop_at_once(void *user, uint64_t n_done, uint64_t n) {
    (void)user, (void)n_done, (void)n;
    return false;
}

/* Any failure ends the announced prompt: a later step is not part of it. */
static void failure_ends_an_announced_prompt(void **state) {
    (void)state;
    const int32_t ids[2 * CHUNK] = {3}, outside = -1;
    ag_error err;
    use(0);
    ag_session *s = make(NULL);
    ag_step_item item = {.session = s, .ids = &outside, .n = 1, .phase = AG_PHASE_PROMPT};
    must(ag_session_begin_prompt(s, 2 * CHUNK, &err), &err);
    assert_int_equal(ag_session_prompt_rows(s), CHUNK);
    assert_int_equal(ag_session_step(&item, 1, NULL), AG_INVALID);
    assert_int_equal(ag_session_prompt_rows(s), 0);
    must(ag_session_begin_prompt(s, 2 * CHUNK, &err), &err);
    item.ids = ids;
    ag_session_cancel(s);
    assert_int_equal(ag_session_step(&item, 1, NULL), AG_CANCELLED);
    assert_int_equal(ag_session_prompt_rows(s), 0);
    assert_int_equal(ag_session_prefill(s, ids, 2 * CHUNK, stop_at_once, NULL, NULL), AG_CANCELLED);
    assert_int_equal(ag_session_position(s), CHUNK);
    assert_int_equal(ag_session_prompt_rows(s), 0);
    ag_session_destroy(s);
}

int main(int argc, char **argv) {
    const int unfit = open_models(argc > 1 ? argv[1] : NULL);
    if (unfit) return unfit;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_step_changes_no_session),
        cmocka_unit_test(failed_step_restores_samplers),
        cmocka_unit_test(full_session_fails_the_step),
        cmocka_unit_test(any_session_cancels_a_step),
        cmocka_unit_test(callback_cancels_a_step_of_several_sessions),
        cmocka_unit_test(failure_ends_an_announced_prompt),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close_models();
    return failed;
}
