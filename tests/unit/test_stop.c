/* SPDX-License-Identifier: Apache-2.0 */
#include "session/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *const *stops, size_t n, const char *text, size_t show, bool found) {
    bool is;
    const ag_stop_list list = {stops, n};
    assert_int_equal(ag_stop_scan(&list, text, strlen(text), &is), show);
    assert_int_equal(is, found);
}

static void shows_text_before_a_stop_string(void **state) {
    (void)state;
    const char *stops[] = {"\n\n", "END"};
    expect(stops, 2, "one\n\ntwo", 3, true);
    expect(stops, 2, "xENDy\n\n", 1, true);
    expect(stops, 2, "nothing here", 12, false);
    expect(stops, 0, "END", 3, false);
}

static void holds_back_a_partial_stop_string(void **state) {
    (void)state;
    const char *stops[] = {"END"};
    expect(stops, 1, "the EN", 4, false);
    expect(stops, 1, "the E", 4, false);
    expect(stops, 1, "the ENd", 7, false);
    expect(stops, 1, "EEN", 1, false);
    const char *repeated[] = {"aab"};
    expect(repeated, 1, "aaa", 1, false);
    expect(repeated, 1, "aaab", 1, true);
}

static void prefers_complete_over_partial_matches(void **state) {
    (void)state;
    const char *stops[] = {"abcX", "bc"};
    expect(stops, 2, "abc", 1, true);
    expect(stops, 2, "ab", 0, false);
    const char *same_place[] = {"abcd", "ab"};
    expect(same_place, 2, "zab", 1, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_text_before_a_stop_string),
        cmocka_unit_test(holds_back_a_partial_stop_string),
        cmocka_unit_test(prefers_complete_over_partial_matches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
