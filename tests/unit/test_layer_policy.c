/* SPDX-License-Identifier: Apache-2.0 */
/* Policies whose functions get an entire layer: they retain the slots of the policies whose
 * functions get one head, and their errors fail the next step. */
#include "cache/kv_cache.h"
#include "core/fail.h"
#include "support/one_model.h"

#include <antigravity/antigravity.h>

#include <pthread.h>

enum { LAYERS = 3, HEADS = 2, BUDGET = 100, SLACK = 16, PROMPT = 250, STEPS = 90 };

/* A policy of the library in layer form: `user` of its table. */
typedef struct layer_form {
    const ag_eviction_policy *of;
    size_t n_scored, n_selected; /* calls */
    size_t fail_at;              /* selections from this one on fail; 0: none */
    size_t n_failing;
    pthread_t thread;
    uint32_t max_heads;
} layer_form;

static void check_call(layer_form *form, uint32_t layer, size_t n_heads) {
    assert_true(pthread_equal(form->thread, pthread_self()));
    assert_true(layer < LAYERS && n_heads > 0 && n_heads <= HEADS);
    if (n_heads > form->max_heads) form->max_heads = (uint32_t)n_heads;
}

static ag_status score_layer(void *user, const ag_eviction_params *p, uint32_t layer,
                             const ag_eviction_inputs *heads, size_t n_heads, ag_error *err) {
    layer_form *form = user;
    (void)err;
    check_call(form, layer, n_heads);
    form->n_scored++;
    float more[HEADS][1024];
    ag_eviction_inputs own[HEADS];
    for (size_t h = 0; h < n_heads; h++) {
        own[h] = heads[h];
        own[h].more = more[h];
        assert_true(!h || (own[h].keys != own[h - 1].keys && own[h].work != own[h - 1].work &&
                           own[h].importance != own[h - 1].importance));
        form->of->from_keys(NULL, p, &own[h]);
    }
    if (form->of->compare) form->of->compare(NULL, p, own, n_heads);
    return AG_OK;
}

static ag_status select_layer(void *user, const ag_eviction_params *p, uint32_t layer,
                              const ag_eviction_head *heads, size_t n_heads, ag_error *err) {
    layer_form *form = user;
    check_call(form, layer, n_heads);
    const size_t i = ++form->n_selected;
    if (form->fail_at && i >= form->fail_at && i < form->fail_at + form->n_failing)
        return AG_FAIL(err, INVALID, "selection %zu", i);
    for (size_t h = 0; h < n_heads; h++) {
        assert_true(heads[h].head < HEADS && (!h || heads[h].head > heads[h - 1].head));
        const ag_eviction_view *v = &heads[h].view;
        assert_true(heads[h].n_keep < v->n_slots);
        for (uint32_t s = 1; s < v->n_slots; s++)
            assert_true(v->positions[s] > v->positions[s - 1]);
        form->of->select(NULL, p, &heads[h].view, heads[h].n_keep, heads[h].keep);
    }
    return AG_OK;
}

/* Returns the policy with functions that get a layer in place of those that get a head. */
static ag_eviction_policy in_layer_form(const ag_eviction_policy *of, layer_form *form) {
    ag_eviction_policy policy = *of;
    *form = (layer_form){.of = of, .thread = pthread_self()};
    policy.user = form;
    policy.select = NULL;
    policy.select_layer = select_layer;
    policy.device_scores = false;
    if (of->from_keys) policy.from_keys_layer = score_layer;
    policy.from_keys = NULL;
    policy.compare = NULL;
    return policy;
}

static ag_session *make(const ag_eviction_policy *policy, ag_head_budget heads) {
    static const float shares[LAYERS * HEADS] = {1, 2, 1, 1, 3, 1};
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 480;
    p.prefill_chunk = 48;
    p.eviction.policy = policy;
    p.eviction.budget_tokens = BUDGET;
    p.eviction.recent = 8;
    p.eviction.slack = SLACK;
    p.eviction.snapkv_window = 8;
    p.eviction.head_budget = heads;
    p.eviction.head_shares = heads == AG_HEAD_BUDGET_SHARES ? shares : NULL;
    p.eviction.n_head_shares = heads == AG_HEAD_BUDGET_SHARES ? LAYERS * HEADS : 0;
    return session_of(&p);
}

static int32_t id_at(size_t i) { return (int32_t)((i * 7 + i * i % 61) % 300) + 3; }

static void feed(ag_session *s) {
    int32_t ids[PROMPT];
    ag_error err;
    for (size_t i = 0; i < PROMPT; i++) ids[i] = id_at(i);
    must(ag_session_prefill(s, ids, PROMPT, NULL, NULL, &err), &err);
    for (size_t i = PROMPT; i < PROMPT + STEPS; i++)
        must(ag_session_decode(s, id_at(i), &err), &err);
}

static void same(ag_session *a, ag_session *b) {
    const ag_kv_cache *kv[] = {ag_session_kv_cache(a), ag_session_kv_cache(b)};
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t n = ag_kv_cache_n_slots(kv[0], l, h);
            assert_int_equal(n, ag_kv_cache_n_slots(kv[1], l, h));
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(ag_kv_cache_position(kv[0], l, h, i),
                                 ag_kv_cache_position(kv[1], l, h, i));
        }
    }
    assert_memory_equal(ag_session_logits(a), ag_session_logits(b), n_vocab * sizeof(float));
}

static bool accepts(const ag_eviction_policy *policy, ag_head_budget heads) {
    const bool attends = policy->importance && !policy->from_keys;
    if (heads == AG_HEAD_BUDGET_VALUES) return attends;
    return heads != AG_HEAD_BUDGET_ADAPTIVE || policy->importance;
}

static void layer_form_retains_the_same_slots(void **state) {
    (void)state;
    for (size_t i = 1; ag_eviction_policy_at(i); i++) {
        const ag_eviction_policy *policy = ag_eviction_policy_at(i);
        for (int heads = AG_HEAD_BUDGET_EVEN; heads <= AG_HEAD_BUDGET_VALUES; heads++) {
            if (!accepts(policy, (ag_head_budget)heads)) continue;
            layer_form form;
            const ag_eviction_policy twin = in_layer_form(policy, &form);
            ag_session *a = make(policy, (ag_head_budget)heads),
                       *b = make(&twin, (ag_head_budget)heads);
            feed(a);
            feed(b);
            same(a, b);
            const size_t n = ag_session_evictions(b)->n_evictions;
            assert_int_equal(n, ag_session_evictions(a)->n_evictions);
            assert_true(n > 3 && form.max_heads == HEADS);
            if (heads == AG_HEAD_BUDGET_EVEN) assert_int_equal(form.n_selected, n * LAYERS);
            if (policy->from_keys) assert_true(form.n_scored > 3);
            ag_session_destroy(a);
            ag_session_destroy(b);
        }
    }
}

/* Returns the number of failed steps while the same tokens are fed. */
static size_t feed_stubbornly(ag_session *s) {
    size_t n_failed = 0;
    ag_error err;
    int32_t ids[BUDGET];
    for (size_t i = 0; i < BUDGET; i++) ids[i] = id_at(i);
    must(ag_session_prefill(s, ids, BUDGET, NULL, NULL, &err), &err);
    while (ag_session_position(s) < PROMPT + STEPS) {
        const uint32_t position = ag_session_position(s);
        if (ag_session_decode(s, id_at(position), &err) == AG_OK) continue;
        assert_int_equal(err.status, AG_INVALID);
        assert_non_null(strstr(err.msg, "selection "));
        assert_int_equal(ag_session_position(s), position);
        assert_true(++n_failed < 10);
    }
    return n_failed;
}

/* The selection fails after a step, and again at the start of the next ones. */
static void error_of_a_selection_fails_the_next_step(void **state) {
    (void)state;
    const ag_eviction_policy *policy = ag_eviction_policy_find("keydiff");
    layer_form form, failing_form;
    const ag_eviction_policy twin = in_layer_form(policy, &form),
                             failing = in_layer_form(policy, &failing_form);
    ag_session *a = make(&twin, AG_HEAD_BUDGET_EVEN), *b = make(&failing, AG_HEAD_BUDGET_EVEN);
    failing_form.fail_at = LAYERS + 2; /* the second layer of the second eviction */
    failing_form.n_failing = 4;
    assert_int_equal(feed_stubbornly(a), 0);
    assert_int_equal(feed_stubbornly(b), 3);
    same(a, b);
    assert_int_equal(failing_form.n_selected, form.n_selected + failing_form.n_failing);
    ag_session_destroy(a);
    ag_session_destroy(b);
}

/* The scratch of a layer is part of the plan. */
static void plan_counts_the_memory_of_a_layer(void **state) {
    (void)state;
    layer_form form;
    const ag_eviction_policy *policy = ag_eviction_policy_find("keydiff");
    const ag_eviction_policy twin = in_layer_form(policy, &form);
    ag_session_plan plans[2];
    for (int i = 0; i < 2; i++) {
        ag_session_params p = ag_session_defaults();
        ag_error err;
        p.max_seq_len = 480;
        p.eviction.policy = i ? &twin : policy;
        must(ag_session_plan_memory(ag_model_get_info(model), &p, &plans[i], &err), &err);
    }
    const size_t keys = 480 * ag_model_get_info(model)->head_dim * sizeof(float);
    assert_true(plans[1].eviction_bytes >= plans[0].eviction_bytes + HEADS * keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_form_retains_the_same_slots),
        cmocka_unit_test(error_of_a_selection_fails_the_next_step),
        cmocka_unit_test(plan_counts_the_memory_of_a_layer),
    };
    return cmocka_run_group_tests(tests, load_one_model, unload_one_model);
}
