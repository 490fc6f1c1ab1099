/* SPDX-License-Identifier: Apache-2.0 */
/* Option --speculate and bench --replay: equal texts, and the statistics of drafts. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLAY AG_SOURCE_DIR "/tests/data/replay/"
/* The demo model repeats its answer and the continuation many times. */
#define STORY                                                                                  \
    "The secret of Tom's red box is 123 blue. Question: What is the secret of Tom's red box? " \
    "Answer:"

#define RUN(...) \
    CLI("generate", GREEDY, "-p", STORY, "-n", "60", "--ignore-eos", "--json", __VA_ARGS__)

static json_int_t number(const json_t *root, const char *group, const char *name) {
    return json_integer_value(json_object_get(json_object_get(root, group), name));
}

static void counts_drafts_and_keeps_text(void **state) {
    (void)state;
    cli_result plain = RUN("--speculate", "off");
    assert_code(&plain, 0);
    assert_does_not_say(plain.err, "drafts ");
    json_t *want = cli_json(&plain);
    assert_int_equal(number(want, "drafts", "drafted"), 0);
    const char *const most[] = {"1", "7", "14"};
    for (size_t i = 0; i < 3; i++) {
        cli_result r = RUN("--speculate", "always", "--draft-max", most[i]);
        assert_code(&r, 0);
        assert_says(r.err, "drafts ");
        assert_says(r.err, " accepted in ");
        json_t *have = cli_json(&r);
        assert_true(json_equal(json_object_get(have, "ids"), json_object_get(want, "ids")));
        assert_true(json_equal(json_object_get(have, "text"), json_object_get(want, "text")));
        const json_int_t drafted = number(have, "drafts", "drafted");
        assert_true(number(have, "drafts", "accepted") > 0);
        assert_true(drafted >= number(have, "drafts", "accepted"));
        assert_true(drafted <= number(have, "drafts", "steps") * atoi(most[i]));
        assert_int_equal(number(have, "settings", "draft_max"), atoi(most[i]));
        json_decref(have);
        cli_free(&r);
    }
    json_decref(want);
    cli_free(&plain);
}

static void drafts_keep_sampled_text(void **state) {
    (void)state;
#define SAMPLED(how)                                                                         \
    CLI("generate", QUICK, "-p", STORY, "-n", "60", "--seed", "3", "-q", "--speculate", how, \
        "--stop", "zzz", "--repetition-penalty", "1.1")
    cli_result plain = SAMPLED("off"), drafted = SAMPLED("always"), usual = SAMPLED("auto");
    assert_code(&plain, 0);
    assert_true(plain.n_out > 50);
    assert_string_equal(drafted.out, plain.out);
    assert_string_equal(usual.out, plain.out);
    cli_free(&plain);
    cli_free(&drafted);
    cli_free(&usual);
}

static void drafts_with_another_model(void **state) {
    (void)state;
    cli_result plain = RUN("--speculate", "off", "--draft-model", "/nowhere"); /* not opened */
    assert_code(&plain, 0);
    cli_result r = RUN("--speculate", "always", "--draft-model", DEMO, "-v");
    assert_code(&r, 0);
    assert_says(r.err, "drafts, ");
    assert_says(r.err, "MiB more for the draft model");
    json_t *want = cli_json(&plain), *have = cli_json(&r);
    assert_true(json_equal(json_object_get(have, "ids"), json_object_get(want, "ids")));
    assert_true(number(have, "drafts", "accepted") > 25);
    json_decref(want);
    json_decref(have);
    cli_free(&plain);
    cli_free(&r);
    r = CLI("generate", GREEDY, "-p", "x", "-n", "1", "-q", "--draft-model", TINY);
    assert_refused(&r, 1, "--draft-model: ");
    cli_free(&r);
}

static void decodes_recording_with_and_without_drafts(void **state) {
    (void)state;
    cli_result r = CLI("bench", "--shape", "tiny", "-r", "1", "-q", "-o", "json", "--replay",
                       REPLAY "edit-copy.json", "--replay", REPLAY "prose.json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r), *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 2);
    const json_t *edit = json_array_get(rows, 0);
    assert_string_equal(json_string_value(json_object_get(edit, "text")), "edit-copy.json");
    assert_int_equal(json_integer_value(json_object_get(edit, "n_prompt")), 290);
    assert_int_equal(json_integer_value(json_object_get(edit, "n_gen")), 243);
    assert_true(json_number_value(json_object_get(edit, "plain")) > 0);
    assert_true(json_number_value(json_object_get(edit, "gain")) > 0);
    json_decref(root);
    cli_free(&r);
}

static void rejects_invalid_recordings(void **state) {
    (void)state;
    char dir[64];
    make_directory(dir);
    static const char *const bad[] = {"{", "[1]", "{\"prompt_ids\": [1], \"ids\": [1]}"};
    for (size_t i = 0; i < 3; i++) {
        char path[80];
        write_file(dir, "bad.json", bad[i], strlen(bad[i]));
        snprintf(path, sizeof path, "%s/bad.json", dir);
        cli_result r = CLI("bench", "--shape", "tiny", "-q", "--replay", path);
        assert_refused(&r, 1, i ? "must be lists of tokens" : "bad.json: line 1: ");
        cli_free(&r);
    }
    cli_result r = CLI("generate", "-p", "x", "--draft-max", "15");
    assert_refused(&r, 2, "draft-max");
    cli_free(&r);
    remove_directory(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_drafts_and_keeps_text),
        cmocka_unit_test(drafts_keep_sampled_text),
        cmocka_unit_test(drafts_with_another_model),
        cmocka_unit_test(decodes_recording_with_and_without_drafts),
        cmocka_unit_test(rejects_invalid_recordings),
    };
    return cmocka_run_group_tests_name("cli_speculate", tests, NULL, NULL);
}
