/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the interpreter take linear time and memory: quadratic work would reach a limit. */
#include "jinja/jinja.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_ITEMS = 60000, N_KEYS = 8000 };

/* Renders the template and compares the result. Takes ownership of variables. */
static void expect(const char *template, json_t *variables, const char *text) {
    ag_jinja *t;
    ag_jinja_output out = {0};
    ag_error err = {0};
    assert_non_null(variables);
    if (ag_jinja_parse("test", template, strlen(template), &t, &err) != AG_OK)
        fail_msg("%s", err.msg);
    const ag_jinja_input in = {.variables = variables};
    if (ag_jinja_render(t, &in, &out, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_string_equal(out.text, text);
    ag_jinja_output_free(&out);
    ag_jinja_destroy(t);
    json_decref(variables);
}

static json_t *numbers(size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer((json_int_t)i));
    return json_pack("{s:o}", "list", list);
}

static void appends_to_a_list_in_linear_time(void **state) {
    (void)state;
    expect(
        "{% set ns = namespace(l=[]) %}{% for x in list %}{% set ns.l = ns.l + [x] %}{% endfor %}"
        "{{ ns.l | length }} {{ ns.l[0] }} {{ ns.l[59999] }} {{ ns.l | sum }}",
        numbers(N_ITEMS), "60000 0 59999 1799970000");
}

static void keeps_lists_with_a_shared_prefix_independent(void **state) {
    (void)state;
    expect("{% set a = [1] + [2] %}{% set b = a + [3] %}{% set c = a + [4] %}{% set d = b + b %}"
           "{% set e = b + [5] %}{% set f = d[1:3] + [6] %}{{ [a, b, c, d, e, f] }}",
           numbers(0),
           "[[1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 3, 1, 2, 3], [1, 2, 3, 5], [2, 3, 6]]");
    expect("{% set a = (1,) + (2,) %}{% set b = a + (3,) %}{{ a + (4,) }}{{ b }}", numbers(0),
           "(1, 2, 4)(1, 2, 3)");
}

static void shares_items_between_list_and_slice(void **state) {
    (void)state;
    expect("{% set ns = namespace(n=0) %}{% for x in list %}"
           "{% set ns.n = ns.n + list[loop.index0:][0] - x + 1 %}{% endfor %}{{ ns.n }} "
           "{{ list[1:4] }} {{ list[:0] }} {{ list[59998:70000] }} {{ list[4:1:-2] }}",
           numbers(N_ITEMS), "60000 [1, 2, 3] [] [59998, 59999] [4, 2]");
}

/* Returns keys of 16 bytes with equal hash under a hash without a random key: the second half of
 * each is solved for. */
static json_t *keys_with_equal_hash(void) {
    const uint64_t factor = 0x9E3779B97F4A7C15u, wanted = 0x123456789abcdefu;
    json_t *object = json_object();
    for (uint64_t i = 0; json_object_size(object) < N_KEYS; i++) {
        char key[17];
        uint64_t second;
        bool is_ascii = true;
        snprintf(key, sizeof key, "%08x", (unsigned)i);
        memcpy(&second, key, 8);
        second = ((0xCBF29CE484222325u ^ 16) ^ second) * factor;
        second ^= second >> 29;
        second ^= wanted;
        memcpy(key + 8, &second, 8);
        for (size_t k = 8; k < 16; k++) is_ascii = is_ascii && key[k] > 0;
        key[16] = '\0';
        if (is_ascii) json_object_set_new(object, key, json_integer(1));
    }
    return json_pack("{s:o}", "object", object);
}

static void resists_keys_with_equal_unkeyed_hashes(void **state) {
    (void)state;
    expect("{% set ns = namespace(n=0) %}{% for k in object %}{% set ns.n = ns.n + object[k] %}"
           "{% endfor %}{{ ns.n }}",
           keys_with_equal_hash(), "8000");
}

static void tests_range_membership_without_iterating(void **state) {
    (void)state;
    expect("{{ [0 in range(5), 4 in range(5), 5 in range(5), -1 in range(5), 3 in range(1, 9, 2), "
           "4 in range(1, 9, 2), 9 in range(1, 9, 2), 7 in range(9, 1, -2), 1 in range(9, 1, -2), "
           "9 in range(9, 1, -2), 2 in range(9, 1, -2), 0 in range(0), 2.0 in range(5), "
           "2.5 in range(5), 'a' in range(5)] | map('int') | join }}",
           numbers(0), "110010010100100");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_to_a_list_in_linear_time),
        cmocka_unit_test(keeps_lists_with_a_shared_prefix_independent),
        cmocka_unit_test(shares_items_between_list_and_slice),
        cmocka_unit_test(resists_keys_with_equal_unkeyed_hashes),
        cmocka_unit_test(tests_range_membership_without_iterating),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
