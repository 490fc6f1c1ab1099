/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity info --program and bench --ops. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static size_t count_lines(const char *text) {
    size_t n = 0;
    for (; (text = strchr(text, '\n')); text++) n++;
    return n;
}

static void info_prints_one_operation_per_line(void **state) {
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

/* ---- times ---- */

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

typedef struct totals {
    double by_code, by_layer, operations, test;
    size_t n_by_code, n_by_layer, n_operations; /* operations */
    size_t n_codes, n_layers;
} totals;

/* Sums the rows of one test. */
static totals add_rows(const json_t *rows, const char *test) {
    totals t = {0};
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        const double seconds = number(row, "seconds");
        const size_t n = (size_t)number(row, "ops");
        if (strcmp(text(row, "test"), test) != 0) continue;
        /* the gate of two products runs with them */
        if (strcmp(text(row, "name"), "GATE") != 0) assert_true(seconds > 0);
        if (!strcmp(text(row, "by"), "code")) {
            t.by_code += seconds;
            t.n_by_code += n;
            t.n_codes++;
        } else if (!strcmp(text(row, "by"), "layer")) {
            t.by_layer += seconds;
            t.n_by_layer += n;
            t.n_layers++;
        } else if (!strcmp(text(row, "name"), "operations")) {
            t.operations = seconds;
            t.n_operations = n;
        } else {
            t.test = seconds;
        }
    }
    return t;
}

static bool are_near(double a, double b) { return a - b < 1e-9 * b && b - a < 1e-9 * b; }

static void bench_sums_times_of_operations(void **state) {
    (void)state;
    static const char *const tests[] = {"pp8", "tg4"};
    cli_result r = CLI("bench", "-q", QUICK, "-m", DEMO, "-p", "8", "-n", "4", "-r", "2", "-t", "1",
                       "--ops", "--json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    for (int i = 0; i < 2; i++) {
        const totals t = add_rows(json_object_get(root, "rows"), tests[i]);
        assert_int_equal(t.n_codes, 5); /* NORM, PRODUCTS, ATTEND, ADD, GATE */
        assert_int_equal(t.n_layers, 11);
        assert_int_equal(t.n_operations, 102);
        assert_int_equal(t.n_by_code, 102);
        assert_int_equal(t.n_by_layer, 102);
        assert_true(are_near(t.by_code, t.operations) && are_near(t.by_layer, t.operations));
        assert_true(t.operations < t.test);
    }
    json_decref(root);
    cli_free(&r);
}

static void bench_prints_operations_with_option(void **state) {
    (void)state;
    cli_result r = CLI("bench", "-q", QUICK, "-m", TINY, "-p", "4", "-n", "0", "-r", "1", "--ops");
    assert_code(&r, 0);
    assert_says(r.out, "| threads | test | by | name | operations | seconds | share |\n");
    assert_says(r.out, "| pp4 | code | PRODUCTS | ");
    assert_says(r.out, "| pp4 | layer | 0 | ");
    assert_says(r.out, " | 100.0 % |\n");
    cli_free(&r);
    r = CLI("bench", "-q", QUICK, "-m", TINY, "-p", "4", "-n", "0", "-r", "1");
    assert_does_not_say(r.out, "PRODUCTS");
    cli_free(&r);
    r = CLI("bench", "--shape", "tiny", "--ops", "--replay", "file");
    assert_refused(&r, 2, "--ops, --launches and --replay exclude each other");
    cli_free(&r);
}

/* Adds the rows of launches of a table. Writes the row "all launches" to *all. */
static double add_launches(json_t *rows, double *all, json_int_t *n) {
    double sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        const char *kernel = json_string_value(json_object_get(row, "kernel"));
        const double seconds = json_number_value(json_object_get(row, "seconds"));
        if (!strcmp(kernel, "all launches")) {
            *all = seconds;
            *n = json_integer_value(json_object_get(row, "launches"));
        } else if (strcmp(kernel, "test") != 0) {
            sum += seconds;
        }
    }
    return sum;
}

static void bench_sums_times_of_launches(void **state) {
    (void)state;
    cli_result r =
        CLI("bench", "-q", "-b", "cpu", "--shape", "tiny", "-p", "4", "-n", "0", "--launches");
    assert_refused(&r, 1, "has no device");
    cli_free(&r);
    r = CLI("devices");
    const bool has_device = strstr(r.out, "opencl   0:") != NULL;
    cli_free(&r);
    if (!has_device) skip();
    r = CLI("bench", "-q", QUICK, "-b", "opencl", "-m", TINY, "-p", "4", "-n", "0", "-r", "2",
            "--launches", "--json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    double all = 0;
    json_int_t n = 0;
    const double sum = add_launches(json_object_get(root, "rows"), &all, &n);
    assert_true(sum > 0 && are_near(sum, all));
    assert_true(n > 20 && n % 2 == 0); /* both repetitions, without the warm-up */
    json_decref(root);
    cli_free(&r);
}

/* Returns the launches of kv_write in two layers for a prompt of 1,024 tokens: two for each chunk.
 */
static json_int_t count_writes(const char *option, const char *value) {
    cli_result r = CLI("bench", "-q", "-b", "opencl", "--shape", "tiny", "--layers", "2", "-p",
                       "1024", "-n", "0", "-r", "1", option, value, "--launches", "--json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r), *row;
    json_int_t n = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "rows"), i, row) {
        const char *kernel = json_string_value(json_object_get(row, "kernel"));
        if (!strncmp(kernel, "kv_write ", 9))
            n += json_integer_value(json_object_get(row, "launches"));
    }
    json_decref(root);
    cli_free(&r);
    return n;
}

static void opencl_reads_prompts_in_chunks_of_1024(void **state) {
    (void)state;
    cli_result r = CLI("devices");
    const bool has_device = strstr(r.out, "opencl   0:") != NULL;
    cli_free(&r);
    if (!has_device) skip();
    assert_int_equal(count_writes("-t", "2"), 2);
    assert_int_equal(count_writes("--prefill-chunk", "512"), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info_prints_one_operation_per_line),
        cmocka_unit_test(info_prints_operations_as_json),
        cmocka_unit_test(bench_sums_times_of_operations),
        cmocka_unit_test(bench_prints_operations_with_option),
        cmocka_unit_test(bench_sums_times_of_launches),
        cmocka_unit_test(opencl_reads_prompts_in_chunks_of_1024),
    };
    return cmocka_run_group_tests_name("cli program", tests, NULL, NULL);
}
