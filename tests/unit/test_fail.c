/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of errors: one line, and however long the names in it are, the reason is there. */
#include "core/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LONGEST = 4096, ROOM = sizeof((ag_error *)0)->msg };

/* n bytes of a path: the unit again and again, then the end. */
static const char *path_of(size_t n, const char *unit, const char *end) {
    static char path[2][LONGEST + 64];
    static int turn;
    char *p = path[turn ^= 1];
    for (size_t i = 0; i < n; i++) p[i] = unit[i % strlen(unit)];
    strcpy(p + n, end);
    return p;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static void keeps_a_message_that_fits(void **state) {
    (void)state;
    ag_error err;
    const char *path = path_of(ROOM - 1 - strlen("/m.json: no"), "/dir", "/m.json");
    AG_FAIL(&err, IO, "%s: no", path);
    assert_int_equal(strlen(err.msg), ROOM - 1);
    assert_memory_equal(err.msg, path, strlen(path));
    AG_FAIL(&err, IO, "a\nb\x7f");
    assert_string_equal(err.msg, "a?b?");
}

static void names_out_of_memory_once(void **state) {
    (void)state;
    ag_error err;
    AG_FAIL(&err, NOMEM, "buffer of %zu bytes", (size_t)12);
    assert_string_equal(err.msg, "out of memory: buffer of 12 bytes");
    ag_error_prefix(&err, err.status, "tensor %s", "a");
    assert_string_equal(err.msg, "tensor a: out of memory: buffer of 12 bytes");
}

static void keeps_the_reason_after_a_long_path(void **state) {
    (void)state;
    for (size_t n = 1; n <= LONGEST; n++) {
        ag_error err;
        AG_FAIL(&err, IO, "%s: byte %d: a reason", path_of(n, "/models", "/name.json"), 12);
        assert_in_range(strlen(err.msg), 1, ROOM - 1);
        assert_int_equal(err.msg[0], '/');
        if (!ends_with(err.msg, "/name.json: byte 12: a reason")) fail_msg("%zu: %s", n, err.msg);
        if (n > ROOM) {
            assert_non_null(strstr(err.msg, "/models/..."));
            assert_true(strlen(err.msg) > ROOM * 3 / 4);
        }
    }
}

static void prefix_keeps_the_full_message(void **state) {
    (void)state;
    for (size_t n = 1; n <= LONGEST; n += 7) {
        ag_error err;
        AG_FAIL(&err, IO, "row %d: a reason", 3);
        ag_error_prefix(&err, err.status, "tensor %s", "lm_head");
        ag_error_prefix(&err, err.status, "%s", path_of(n, "/a b", "/name"));
        if (!ends_with(err.msg, "/name: tensor lm_head: row 3: a reason")) {
            fail_msg("%zu: %s", n, err.msg);
        }
    }
}

static void shortens_both_of_two_long_names(void **state) {
    (void)state;
    ag_error err;
    AG_FAIL(&err, IO, "%s: %s: a reason", path_of(LONGEST, "/one", "/a"),
            path_of(LONGEST, "/two", "/b"));
    assert_non_null(strstr(err.msg, "/a: /two"));
    assert_true(ends_with(err.msg, "/b: a reason"));
}

static void shortens_between_characters(void **state) {
    (void)state;
    static const char *const names[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x8d\x89"};
    for (size_t i = 0; i < 3; i++) {
        const size_t bytes = strlen(names[i]);
        for (size_t n = 600; n < 620; n++) {
            ag_error err;
            AG_FAIL(&err, IO, "%s: a reason", path_of(n * bytes, names[i], ""));
            const char *gap = strstr(err.msg, "...");
            assert_non_null(gap);
            assert_int_equal((size_t)(gap - err.msg) % bytes, 0);
            assert_int_equal((strlen(gap + 3) - strlen(": a reason")) % bytes, 0);
        }
    }
}

/* There is nothing to choose between: the beginning stays. */
static void truncates_many_short_sections_at_the_end(void **state) {
    (void)state;
    ag_error err;
    AG_FAIL(&err, IO, "%s", path_of(LONGEST, "part: ", ""));
    assert_int_equal(strlen(err.msg), ROOM - 1);
    assert_memory_equal(err.msg, "part: part: ", 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_a_message_that_fits),
        cmocka_unit_test(names_out_of_memory_once),
        cmocka_unit_test(keeps_the_reason_after_a_long_path),
        cmocka_unit_test(prefix_keeps_the_full_message),
        cmocka_unit_test(shortens_both_of_two_long_names),
        cmocka_unit_test(shortens_between_characters),
        cmocka_unit_test(truncates_many_short_sections_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
