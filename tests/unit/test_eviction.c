/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as pure functions: which slots stay, given a view of them. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"
#include "support/ask_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { MOST = 600 };

typedef struct head {
    ag_eviction_view view;
    uint32_t positions[MOST], work[MOST], keep[MOST];
    float importance[MOST], values[MOST];
} head;

static void make_head(head *h, uint32_t n, uint32_t n_protected, uint32_t n_expired,
                      uint32_t n_recent) {
    h->view = (ag_eviction_view){
        .n_slots = n,
        .n_protected = n_protected,
        .n_expired = n_expired,
        .n_recent = n_recent,
        .n_scored = n,
        .positions = h->positions,
        .importance = h->importance,
        .work = h->work,
        .values = h->values,
    };
    for (uint32_t i = 0; i < n; i++) h->positions[i] = 3 * i;
}

static void plan(const ag_eviction_policy *policy, head *h, uint32_t n_keep) {
    ag_eviction_params p = ag_eviction_defaults();
    policy->select(NULL, &p, &h->view, n_keep, h->keep);
}

static bool stays(const head *h, uint32_t n_keep, uint32_t slot) {
    for (uint32_t i = 0; i < n_keep; i++) {
        if (h->keep[i] == slot) return true;
    }
    return false;
}

static void finds_every_policy_by_name(void **state) {
    (void)state;
    static const char *const names[] = {"none", "sliding", "streaming", "turns",    "snapkv",
                                        "h2o",  "tova",    "keydiff",   "compactor"};
    const ag_eviction_policy *policy;
    size_t n = 0;
    for (; (policy = ag_eviction_policy_at(n)); n++) {
        if (n < 9) assert_string_equal(policy->name, names[n]);
        assert_ptr_equal(ag_eviction_policy_find(policy->name), policy);
    }
    assert_true(n >= 9);
    assert_null(ag_eviction_policy_at(n + 1));
    assert_null(ag_eviction_policy_find("sliding "));
    assert_null(ag_eviction_none.select);
}

/* With any scores: the prefix and the newest stay, none is expired, slots ascend, and their
 * number is right. */
static void policies_keep_prefix_and_newest_and_drop_expired(void **state) {
    (void)state;
    head *h = malloc(sizeof *h);
    srand(7);
    for (int round = 0; round < 400; round++) {
        for (size_t i = 1; ag_eviction_policy_at(i); i++) {
            uint32_t n = 1 + (uint32_t)rand() % MOST, n_protected = (uint32_t)rand() % 6;
            if (n_protected > n) n_protected = n;
            uint32_t n_expired = (uint32_t)rand() % (n - n_protected + 1);
            uint32_t room = n - n_protected - n_expired,
                     recent = room ? (uint32_t)rand() % room : 0;
            uint32_t least = n_protected + recent;
            uint32_t n_keep = least + (uint32_t)rand() % (n - n_expired - least + 1);
            make_head(h, n, n_protected, n_expired, recent);
            for (uint32_t s = 0; s < n; s++) h->importance[s] = (float)(rand() % 9);
            plan(ag_eviction_policy_at(i), h, n_keep);
            for (uint32_t k = 0; k < n_keep; k++) {
                assert_true(h->keep[k] < n && (!k || h->keep[k] > h->keep[k - 1]));
                assert_true(h->keep[k] < n_protected || h->keep[k] >= n_protected + n_expired);
            }
            for (uint32_t s = 0; s < n_protected; s++) assert_int_equal(h->keep[s], s);
            for (uint32_t s = 1; s <= recent; s++) assert_int_equal(h->keep[n_keep - s], n - s);
        }
    }
    free(h);
}

static void keeps_the_lower_slot_among_equals(void **state) {
    (void)state;
    head h;
    make_head(&h, 20, 2, 1, 3);
    for (uint32_t s = 0; s < 20; s++) h.importance[s] = s == 9 ? 2 : 1;
    ag_evict_select(&h.view, h.importance, 3, 9, h.keep);
    const uint32_t want[] = {0, 1, 3, 4, 5, 9, 17, 18, 19};
    assert_memory_equal(h.keep, want, sizeof want);
}

static void select_agrees_with_a_full_sort(void **state) {
    (void)state;
    head *h = malloc(sizeof *h);
    srand(11);
    for (int round = 0; round < 300; round++) {
        uint32_t n = 2 + (uint32_t)rand() % (MOST - 2), n_keep = 1 + (uint32_t)rand() % (n - 1);
        make_head(h, n, 0, 0, 0);
        static const float few[] = {-0.0f, 0.0f, -1, 1, 1.0000001f, -1e-40f, INFINITY, -INFINITY};
        for (uint32_t s = 0; s < n; s++) {
            const int r = rand();
            if (round % 3 == 0) h->importance[s] = few[r % 8];
            else if (round % 3 == 1) h->importance[s] = (float)(r % 5);
            else h->importance[s] = (float)(r % 100000 - 50000) * 1e-3f;
        }
        ag_evict_select(&h->view, h->importance, 0, n_keep, h->keep);
        for (uint32_t s = 0; s < n; s++) {
            uint32_t before = 0; /* slots that precede s */
            for (uint32_t o = 0; o < n; o++) {
                before += h->importance[o] > h->importance[s] ||
                          (h->importance[o] == h->importance[s] && o < s);
            }
            assert_int_equal(stays(h, n_keep, s), before < n_keep);
        }
    }
    free(h);
}

static void sliding_and_streaming_keep_the_newest(void **state) {
    (void)state;
    head h;
    const uint32_t want[] = {0, 1, 2, 3, 46, 47, 48, 49};
    make_head(&h, 50, 4, 0, 2);
    plan(&ag_eviction_sliding, &h, 8);
    assert_memory_equal(h.keep, want, sizeof want);
    plan(&ag_eviction_streaming, &h, 8);
    assert_memory_equal(h.keep, want, sizeof want);
}

static void h2o_splits_between_newest_and_most_attended(void **state) {
    (void)state;
    head h;
    make_head(&h, 100, 2, 0, 4);
    for (uint32_t s = 0; s < 100; s++) h.importance[s] = 0.01f;
    h.importance[30] = h.importance[60] = 5;
    plan(&ag_eviction_h2o, &h, 20);
    for (uint32_t s = 90; s < 100; s++) assert_true(stays(&h, 20, s));
    assert_true(stays(&h, 20, 30) && stays(&h, 20, 60));
    assert_false(stays(&h, 20, 89));
}

static void tova_drops_slots_the_newest_query_ignores(void **state) {
    (void)state;
    head h;
    make_head(&h, 10, 1, 0, 1);
    for (uint32_t s = 0; s < 10; s++) h.importance[s] = s == 4 ? 0.001f : 0.1f;
    plan(&ag_eviction_tova, &h, 9);
    assert_false(stays(&h, 9, 4));
}

static void keydiff_keeps_keys_that_differ(void **state) {
    (void)state;
    enum { N = 40, DIM = 16 };
    float keys[N * DIM];
    head h;
    make_head(&h, N, 0, 0, 0);
    for (uint32_t s = 0; s < N; s++) {
        float length = 1 + (float)(s % 7); /* lengths must not matter */
        for (uint32_t i = 0; i < DIM; i++) {
            keys[s * DIM + i] = length * (s == 13 && i % 2 ? -1.0f : 1.0f + 0.01f * (float)(s % 3));
        }
    }
    memset(keys + 5 * DIM, 0, DIM * sizeof *keys); /* without a direction: the cosine is 0 */
    const ag_eviction_params p = ag_eviction_defaults();
    ask_keys(&ag_eviction_keydiff, &p,
             (ag_eviction_inputs){.n_slots = N,
                                  .dim = DIM,
                                  .positions = h.positions,
                                  .keys = keys,
                                  .importance = h.importance});
    plan(&ag_eviction_keydiff, &h, 2);
    assert_true(stays(&h, 2, 13) && stays(&h, 2, 5));
    assert_true(fabsf(h.importance[0] + 1) < 0.01f);
    assert_true(fabsf(h.importance[13]) < 0.1f);
}

static void snapkv_pools_with_zeros_beyond_the_ends(void **state) {
    (void)state;
    ag_eviction_params p = ag_eviction_defaults();
    p.snapkv_kernel = 3;
    float values[6], x[] = {3, 0, 0, 6, 9, 9}; /* the last slot belongs to the window */
    ag_eviction_snapkv.normalise(NULL, &p, x, 6, 1, values);
    const float averages[] = {1, 1, 2, 5, 5};
    for (int i = 0; i < 5; i++) assert_true(x[i] == averages[i]);
    assert_true(isinf(x[5]));
    float y[] = {3, 0, 0, 6, 1, 9};
    p.snapkv_pool = AG_POOL_MAX;
    ag_eviction_snapkv.normalise(NULL, &p, y, 6, 1, values);
    const float peaks[] = {3, 3, 6, 6, 6};
    for (int i = 0; i < 5; i++) assert_true(y[i] == peaks[i]);
}

static void snapkv_evicts_generated_tokens_oldest_first(void **state) {
    (void)state;
    head h;
    make_head(&h, 12, 0, 0, 2);
    for (uint32_t s = 0; s < 12; s++) h.importance[s] = s < 6 ? 0.001f : 100;
    h.view.n_scored = 6;
    plan(&ag_eviction_snapkv, &h, 9);
    const uint32_t want[] = {0, 1, 2, 3, 4, 5, 9, 10, 11};
    assert_memory_equal(h.keep, want, sizeof want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_policy_by_name),
        cmocka_unit_test(policies_keep_prefix_and_newest_and_drop_expired),
        cmocka_unit_test(keeps_the_lower_slot_among_equals),
        cmocka_unit_test(select_agrees_with_a_full_sort),
        cmocka_unit_test(sliding_and_streaming_keep_the_newest),
        cmocka_unit_test(h2o_splits_between_newest_and_most_attended),
        cmocka_unit_test(tova_drops_slots_the_newest_query_ignores),
        cmocka_unit_test(keydiff_keeps_keys_that_differ),
        cmocka_unit_test(snapkv_pools_with_zeros_beyond_the_ends),
        cmocka_unit_test(snapkv_evicts_generated_tokens_oldest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
