/* SPDX-License-Identifier: Apache-2.0 */
/* From signals to decisions: levels, hysteresis, periods. */
#include "cache/pressure.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MB = 1 << 20, HELD = 1000 * MB, FLOOR = 100 * MB };

static const ag_memory_watch watch = {.threshold_bytes = 256 * MB, .target_ratio = 0.75f};

static ag_memory_signals available(uint64_t mb) {
    return (ag_memory_signals){.has_available = true, .available = mb * MB};
}

static ag_pressure_decision decide(ag_memory_signals s, uint64_t now_ms, ag_pressure_state *st) {
    return ag_pressure_decide(&watch, &s, now_ms, HELD, FLOOR, st);
}

static ag_pressure first_level(ag_memory_signals s) {
    ag_pressure_state st = {0};
    decide(s, 5000, &st);
    return st.level;
}

static void level_follows_available_memory(void **state) {
    (void)state;
    assert_int_equal(first_level(available(256)), AG_PRESSURE_NORMAL);
    assert_int_equal(first_level(available(255)), AG_PRESSURE_SOFT);
    assert_int_equal(first_level(available(127)), AG_PRESSURE_HARD);
    assert_int_equal(first_level(available(63)), AG_PRESSURE_CRITICAL);
    assert_int_equal(first_level((ag_memory_signals){.available = 0}), AG_PRESSURE_NORMAL);
    assert_int_equal(first_level((ag_memory_signals){.hint = AG_PRESSURE_HARD}), AG_PRESSURE_HARD);
}

static void group_thresholds_scale_with_its_limit(void **state) {
    (void)state;
    ag_memory_signals s = {.has_group = true, .group_limit = 800 * MB};
    s.group_used = 699 * MB;
    assert_int_equal(first_level(s), AG_PRESSURE_NORMAL);
    s.group_used = 701 * MB;
    assert_int_equal(first_level(s), AG_PRESSURE_SOFT);
    s.group_used = 900 * MB; /* over its limit */
    assert_int_equal(first_level(s), AG_PRESSURE_CRITICAL);
    s.group_limit = (uint64_t)64000 * MB;
    s.group_used = (uint64_t)63800 * MB;
    assert_int_equal(first_level(s), AG_PRESSURE_SOFT);
}

static void stalls_of_5_percent_are_soft_of_15_hard(void **state) {
    (void)state;
    ag_memory_signals s = {.has_stalls = true, .stalled_some = 0.049};
    assert_int_equal(first_level(s), AG_PRESSURE_NORMAL);
    s.stalled_some = 0.05;
    assert_int_equal(first_level(s), AG_PRESSURE_SOFT);
    s.stalled_some = 0.15;
    assert_int_equal(first_level(s), AG_PRESSURE_HARD);
    s = (ag_memory_signals){.has_stalls = true, .stalled_some = 0.06, .stalled_full = 0.05};
    assert_int_equal(first_level(s), AG_PRESSURE_HARD);
}

static void targets_75_50_and_25_percent(void **state) {
    (void)state;
    const uint64_t left[] = {200, 100, 50};
    const size_t parts[] = {75, 50, 25};
    for (int i = 0; i < 3; i++) {
        ag_pressure_state st = {0};
        ag_pressure_decision d = decide(available(left[i]), 0, &st);
        assert_true(d.evict && !d.refuse);
        assert_int_equal((d.target_bytes + MB / 2) / (HELD / 100), parts[i]);
    }
}

static void level_begins_at_once_and_ends_slowly(void **state) {
    (void)state;
    ag_pressure_state st = {0};
    decide(available(100), 1000, &st);
    assert_int_equal(st.level, AG_PRESSURE_HARD);
    /* Better by less than 15 %: the level stays. */
    for (uint64_t t = 2000; t < 60000; t += 500) decide(available(140), t, &st);
    assert_int_equal(st.level, AG_PRESSURE_HARD);
    /* Much better: the level ends after ten calm seconds. */
    for (uint64_t t = 60000; t < 70000; t += 500) {
        decide(available(900), t, &st);
        assert_int_equal(st.level, AG_PRESSURE_HARD);
    }
    decide(available(900), 70000, &st);
    assert_int_equal(st.level, AG_PRESSURE_NORMAL);
    decide(available(10), 70001, &st);
    assert_int_equal(st.level, AG_PRESSURE_CRITICAL);
}

static void calm_period_restarts_after_a_bad_reading(void **state) {
    (void)state;
    ag_pressure_state st = {0};
    decide(available(200), 0, &st);
    for (uint64_t t = 1000; t < 100000; t += 1000) {
        decide(available(t % 9000 ? 900 : 200), t, &st);
        assert_int_equal(st.level, AG_PRESSURE_SOFT);
    }
}

static void evicts_once_a_period(void **state) {
    (void)state;
    ag_pressure_state st = {0};
    int evictions = 0;
    for (uint64_t t = 0; t < 60000; t += 20) {
        evictions += decide(available(t / 20 % 2 ? 20 : 200), t, &st).evict;
    }
    assert_int_equal(evictions, 6);
}

static void floor_size_refuses_work_when_critical(void **state) {
    (void)state;
    ag_pressure_state st = {0};
    ag_memory_signals s = available(100);
    ag_pressure_decision d = ag_pressure_decide(&watch, &s, 0, FLOOR, FLOOR, &st);
    assert_true(!d.evict && !d.refuse);
    s = available(10);
    d = ag_pressure_decide(&watch, &s, 1, FLOOR, FLOOR, &st);
    assert_true(!d.evict && d.refuse);
    /* A decision without an eviction starts no period. */
    d = ag_pressure_decide(&watch, &s, 2, HELD, FLOOR, &st);
    assert_true(d.evict && !d.refuse);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(level_follows_available_memory),
        cmocka_unit_test(group_thresholds_scale_with_its_limit),
        cmocka_unit_test(stalls_of_5_percent_are_soft_of_15_hard),
        cmocka_unit_test(targets_75_50_and_25_percent),
        cmocka_unit_test(level_begins_at_once_and_ends_slowly),
        cmocka_unit_test(calm_period_restarts_after_a_bad_reading),
        cmocka_unit_test(evicts_once_a_period),
        cmocka_unit_test(floor_size_refuses_work_when_critical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
