/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval ruler with the bundled model, which does not solve the tasks: tokens read, kept
 * and freed, and the output. */
#include "json_rows.h"

#include <stdio.h>
#include <string.h>

#define SMALL QUICK, "-t", "1", "-q"

/* Every policy reads the same prompts and keeps (int)(S (1 - r)) tokens, as kvpress does. */
static void policies_keep_equal_shares_of_equal_prompts(void **state) {
    (void)state;
    static const char *const policies[] = {"none", "streaming", "streaming", "snapkv", "snapkv",
                                           "h2o",  "h2o",       "keydiff",   "keydiff"};
    cli_result r = CLI("eval", "ruler", SMALL, "--length", "400", "-n", "1", "--tasks",
                       "niah_single_1,niah_single_2", "--eviction-policy",
                       "none,streaming,snapkv,h2o,keydiff", "--ratios", "0.5,0.75", "-o", "json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_string_equal(word(root, "measure"), "ruler");
    assert_string_equal(word(root, "question"), "unseen");
    assert_true(json_is_false(json_object_get(root, "chat_template")));
    assert_int_equal(n_rows(root), 18);
    for (size_t i = 0; i < 18; i++) {
        json_t *row = row_of(root, i), *full = row_of(root, i / 9 * 9);
        const double read = number(row, "tokens_read"), kept = number(row, "tokens_kept");
        assert_string_equal(word(row, "task"), i < 9 ? "niah_single_1" : "niah_single_2");
        assert_string_equal(word(row, "policy"), policies[i % 9]);
        assert_true(read == number(full, "tokens_read"));
        assert_int_equal(json_array_size(json_object_get(row, "scores")), 1);
        if (i % 9 == 0) {
            assert_true(kept == read && json_is_null(json_object_get(row, "removed")));
            continue;
        }
        const double removed = i % 9 % 2 ? 0.5 : 0.75;
        assert_true(number(row, "removed") == removed);
        assert_true(kept == (double)(int)(read * (1 - removed)));
        assert_true(number(row, "evict_ms") > 0);
        assert_true(number(row, "kv_bytes") + number(row, "freed_bytes") ==
                    number(full, "kv_bytes"));
        assert_true(number(row, "freed_bytes") >= 0);
    }
    assert_true(number(row_of(root, 2), "freed_bytes") > 0);
    json_decref(root);
    cli_free(&r);
}

/* Slots needed to repeat the context stay. Their number is fixed in the mean, not in every head. */
static void replay_chooses_among_all_heads(void **state) {
    (void)state;
    static const char *const names[] = {"none", "kvzip", "kvzip", "kvzip 20 %", "kvzip 20 %"};
    cli_result r =
        CLI("eval", "ruler", SMALL, "--length", "400", "-n", "1", "--tasks", "niah_single_1",
            "--eviction-policy", "none", "--replay", "1,0.2", "--ratios", "0.5,0.75", "-o", "json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_int_equal(n_rows(root), 5);
    const double read = number(row_of(root, 0), "tokens_read");
    for (size_t i = 1; i < 5; i++) {
        json_t *row = row_of(root, i);
        const double kept = number(row, "tokens_kept"), share = i % 2 ? 0.5 : 0.25;
        assert_string_equal(word(row, "policy"), names[i]);
        assert_true(kept <= read * share + 1 && kept + 1 >= read * share);
        assert_true(number(row, "freed_bytes") > 0);
    }
    /* A smaller replay takes less time. */
    assert_true(number(row_of(root, 3), "tokens_replayed") * 4 <
                number(row_of(root, 1), "tokens_replayed"));
    json_decref(root);
    cli_free(&r);
}

/* With "seen" the question is read before the eviction. */
static void seen_question_is_read_before_eviction(void **state) {
    (void)state;
    double read[2];
    for (int seen = 0; seen < 2; seen++) {
        cli_result r =
            CLI("eval", "ruler", SMALL, "--length", "400", "-n", "1", "--tasks", "niah_single_1",
                "--eviction-policy", "none", "--question", seen ? "seen" : "unseen", "-o", "json");
        assert_code(&r, 0);
        json_t *root = cli_json(&r);
        assert_int_equal(n_rows(root), 1);
        read[seen] = number(row_of(root, 0), "tokens_read");
        json_decref(root);
        cli_free(&r);
    }
    assert_true(read[0] + 10 < read[1] && read[1] < read[0] + 60);
}

static json_t *line_of(const cli_result *r, size_t i) {
    const char *at = r->out;
    while (i--) at = strchr(at, '\n') + 1;
    json_t *line = json_loadb(at, strcspn(at, "\n"), 0, NULL);
    if (!line) fail_msg("line %zu is no JSON", i);
    return line;
}

/* A prompt is repeated by its number. */
static void prints_prompts_by_number(void **state) {
    (void)state;
    cli_result all = CLI("eval", "ruler", "-q", "--length", "900", "-n", "3", "--tasks", "vt,fwe",
                         "--print-prompts");
    cli_result one = CLI("eval", "ruler", "-q", "--length", "900", "-n", "1", "--tasks", "fwe",
                         "--first", "2", "--print-prompts");
    assert_code(&all, 0);
    assert_code(&one, 0);
    json_t *last = line_of(&all, 5), *again = line_of(&one, 0), *first = line_of(&all, 0);
    assert_true(json_equal(last, again));
    assert_string_equal(word(first, "task"), "vt");
    const size_t n = json_array_size(json_object_get(first, "ids"));
    assert_true(n + number(first, "max_new_tokens") <= 900);
    assert_true(number(first, "n_context") < number(first, "n_question"));
    assert_true(number(first, "n_question") < (double)n);
    json_t *reference = json_array_get(json_object_get(first, "references"), 4);
    assert_non_null(strstr(word(first, "context"), json_string_value(reference)));
    json_decref(first);
    json_decref(last);
    json_decref(again);
    cli_free(&all);
    cli_free(&one);
}

static void applies_template_unless_disabled(void **state) {
    (void)state;
    static const char jinja[] = "{{ '<<' + messages[0]['content'] + '>>' }}";
    char dir[64], path[96];
    make_directory(dir);
    write_file(dir, "jinja", jinja, sizeof jinja - 1);
    snprintf(path, sizeof path, "%s/jinja", dir);
    double n[2];
    for (int in_template = 0; in_template < 2; in_template++) {
        cli_result r = CLI("eval", "ruler", "-q", "--length", "700", "-n", "1", "--tasks",
                           "niah_single_1", in_template ? "--chat-template" : "--no-chat-template",
                           in_template ? path : "--print-prompts", "--print-prompts");
        assert_code(&r, 0);
        json_t *line = line_of(&r, 0);
        n[in_template] = number(line, "n_question");
        json_decref(line);
        cli_free(&r);
    }
    assert_true(n[0] != n[1]);
    remove_directory(dir);
}

static void skips_or_rejects_tasks_that_do_not_fit(void **state) {
    (void)state;
    cli_result r = CLI("eval", "ruler", "-q", "--length", "512", "-n", "1", "--print-prompts");
    assert_code(&r, 0);
    assert_says(r.err, "skipped: cwe: the shortest prompt and its answer take ");
    assert_does_not_say(r.out, "\"cwe\"");
    assert_says(r.out, "\"fwe\"");
    cli_free(&r);
    r = CLI("eval", "ruler", "-q", "--length", "512", "--tasks", "cwe");
    assert_refused(&r, 2, "cwe: the shortest prompt and its answer take ");
    cli_free(&r);
    r = CLI("eval", "ruler", "-q", "--length", "2049");
    assert_refused(&r, 2, "--length: 2049 tokens exceed the 2048 that the model was trained for");
    cli_free(&r);
    r = CLI("eval", "ruler", SMALL, "--length", "420", "-n", "1", "--tasks", "niah_single_1",
            "--ratios", "0.9", "--eviction-policy", "keydiff");
    assert_refused(&r, 2, "too small: 4 protected and 32 newest");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_keep_equal_shares_of_equal_prompts),
        cmocka_unit_test(replay_chooses_among_all_heads),
        cmocka_unit_test(seen_question_is_read_before_eviction),
        cmocka_unit_test(prints_prompts_by_number),
        cmocka_unit_test(applies_template_unless_disabled),
        cmocka_unit_test(skips_or_rejects_tasks_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
