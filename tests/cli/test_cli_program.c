/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity info --program. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static size_t count_lines(const char *text) {
    size_t n = 0;
    for (; (text = strchr(text, '\n')); text++) n++;
    return n;
}

static void info_prints_one_operation_a_line(void **state) {
    (void)state;
    cli_result r = CLI("info", "-q", "--program", "-m", DEMO, "--weights", "q4_0");
    assert_code(&r, 0);
    assert_int_equal(count_lines(r.out), 102);
    assert_says(r.out, "0  -  NORM attention_norm  stream[256] -> normed[256]  eps 1e-05  f32\n"
                       "1  0  PRODUCTS wq,wk,wv  normed[256] -> q[256] k[128] v[128]  q4_0\n"
                       "2  0  ATTEND  q[256] k[128] v[128] -> attended[256]  cache 0, ");
    assert_says(r.out, "\n101  -  PRODUCTS head  hidden[256] -> logits[4096]  q4_0\n");
    assert_does_not_say(r.out, "memory");
    cli_free(&r);
    r = CLI("info", "-q", "-m", DEMO);
    assert_does_not_say(r.out, "PRODUCTS");
    cli_free(&r);
}

static void info_prints_operations_as_json(void **state) {
    (void)state;
    cli_result r = CLI("info", "-q", "--program", "--json", "-m", TINY, "--weights", "f32");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_int_equal(json_object_size(root), 1);
    assert_true(json_is_null(json_find(root, "program.0.layer")));
    assert_string_equal(json_string_value(json_find(root, "program.1.code")), "PRODUCTS");
    assert_int_equal(json_integer_value(json_find(root, "program.1.layer")), 0);
    assert_says(json_string_value(json_find(root, "program.1.text")),
                "1  0  PRODUCTS wq,wk,wv  normed[");
    json_decref(root);
    cli_free(&r);
    r = CLI("info", "-q", "--program", "-m", "/absent");
    assert_refused(&r, 1, "/absent");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info_prints_one_operation_a_line),
        cmocka_unit_test(info_prints_operations_as_json),
    };
    return cmocka_run_group_tests_name("cli program", tests, NULL, NULL);
}
