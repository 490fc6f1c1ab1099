/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of a layer's slots to its heads, by scores and by shares. */
#include "unit/head_choice.h"

#include <math.h>
#include <stdlib.h>

static void allocates_slots_to_the_best_scores(void **state) {
    (void)state;
    layer *l = malloc(sizeof *l);
    srand(3);
    for (int round = 0; round < 120; round++) {
        l->n_heads = 1 + (uint32_t)rand() % MOST_HEADS;
        const uint32_t recent = (uint32_t)rand() % 9, max = round % 3 ? MOST : 60;
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
        expect_definition(l, (size_t)even * l->n_heads, max);
    }
    free(l);
}

static void low_scoring_head_keeps_its_safe_share(void **state) {
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
    /* the slots that always stay are part of the safe share */
    l->heads[0].n_recent = 9;
    allocate(l, 2 * 52, MOST);
    assert_int_equal(l->n_keep[0], 10);
    l->heads[0].n_recent = 25;
    allocate(l, 2 * 52, MOST);
    assert_int_equal(l->n_keep[0], 25);
    free(l);
}

static void unscored_slots_rank_last_newest_first(void **state) {
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

static void allocates_shares_within_bounds(void **state) {
    (void)state;
    srand(5);
    for (int round = 0; round < 500; round++) {
        ag_head_bounds heads[MOST_HEADS];
        float shares[MOST_HEADS];
        uint32_t keep[MOST_HEADS];
        size_t min = 0, max = 0, sum = 0;
        const uint32_t n = 1 + (uint32_t)rand() % MOST_HEADS;
        for (uint32_t h = 0; h < n; h++) {
            heads[h].min = (uint32_t)rand() % 30;
            heads[h].max = heads[h].min + (uint32_t)rand() % 200;
            shares[h] = round % 7 ? (float)(rand() % 100) / 50 : 0;
            min += heads[h].min;
            max += heads[h].max;
        }
        const size_t total = min + (size_t)rand() % (max - min + 10);
        ag_evict_allocate_shares(heads, shares, n, total, keep);
        for (uint32_t h = 0; h < n; h++) {
            assert_true(keep[h] >= heads[h].min && keep[h] <= heads[h].max);
            sum += keep[h];
        }
        assert_int_equal(sum, total < max ? total : max);
    }
    const ag_head_bounds wide[] = {{0, 999}, {0, 999}, {0, 999}}, narrow[] = {{9, 9}, {0, 999}};
    uint32_t keep[3];
    ag_evict_allocate_shares(wide, (const float[]){0.5f, 0.3f, 0.2f}, 3, 100, keep);
    assert_true(keep[0] >= 49 && keep[0] <= 51 && keep[1] >= 29 && keep[1] <= 31);
    ag_evict_allocate_shares(narrow, (const float[]){0.9f, 0.1f}, 2, 100, keep);
    assert_true(keep[0] == 9 && keep[1] == 91);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocates_slots_to_the_best_scores),
        cmocka_unit_test(low_scoring_head_keeps_its_safe_share),
        cmocka_unit_test(unscored_slots_rank_last_newest_first),
        cmocka_unit_test(allocates_shares_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
