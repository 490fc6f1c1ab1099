/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C, closed pipes, full disks and terminals. */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ENDLESS "generate", QUICK, "-p", "Once", "-n", "-1", "--ignore-eos"

static void ctrl_c_ends_a_generation_with_statistics_and_130(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS(ENDLESS), .interrupt_after_output = 20});
    assert_code(&r, 130);
    assert_says(r.err, "finish   cancelled");
    assert_says(r.err, "tokens/s");
    assert_int_equal(r.out[r.n_out - 1], '\n');
    cli_free(&r);
}

static void ctrl_c_still_gives_the_json_of_what_was_made(void **state) {
    (void)state;
    /* With --json nothing appears on standard output: the note on the model is the signal. */
    cli_result r =
        cli_run(&(cli_setup){.args = CLI_ARGS(ENDLESS, "--json"), .interrupt_after_errors = 20});
    assert_code(&r, 130);
    if (r.n_out) { /* It may come while the model is still loading. */
        json_t *root = cli_json(&r);
        assert_string_equal(json_string_value(json_object_get(root, "finish_reason")), "cancelled");
        json_decref(root);
    } else {
        assert_says(r.err, "interrupted");
    }
    cli_free(&r);
}

static void ctrl_c_ends_reading_a_long_prompt(void **state) {
    (void)state;
    enum { N = 7600 };
    static char text[N];
    for (size_t i = 0; i < N; i += 4) memcpy(text + i, "fox ", 4);
    cli_result r =
        cli_run(&(cli_setup){.args = CLI_ARGS("generate", QUICK, "--prefill-chunk", "16"),
                             .input = text,
                             .n_input = N,
                             .interrupt_after_errors = 20});
    assert_code(&r, 130);
    cli_free(&r);
}

static void ctrl_c_ends_a_measurement(void **state) {
    (void)state;
    cli_result r =
        cli_run(&(cli_setup){.args = CLI_ARGS("bench", QUICK, "--shape", "tiny", "-n", "64", "-p",
                                              "0", "-o", "csv", "-r", "100", "-v"),
                             .interrupt_after_errors = 10});
    assert_code(&r, 130);
    assert_says(r.err, "interrupted");
    cli_free(&r);
}

static void a_closed_pipe_ends_the_program_silently(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS(ENDLESS, "-q"), .close_output_after = 10});
    assert_true(r.signal == SIGPIPE || r.code == 128 + SIGPIPE);
    assert_string_equal(r.err, "");
    cli_free(&r);
}

static void a_full_disk_is_an_error(void **state) {
    (void)state;
    const char *const *const commands[] = {
        CLI_ARGS("generate", QUICK, "-p", "Once", "-n", "300", "-q"),
        CLI_ARGS("generate", QUICK, "-p", "Once", "-n", "2", "-q", "--json"),
        CLI_ARGS("generate", "--help"),
        CLI_ARGS("--version"),
        CLI_ARGS("tokenize", "-p", "Once", "-q"),
        CLI_ARGS("tokenize", "-p", "1 2 3", "-q", "--decode"),
        CLI_ARGS("info", "-q", "--json"),
        CLI_ARGS("devices"),
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        cli_result r = cli_run(&(cli_setup){.args = commands[i], .output_path = "/dev/full"});
        assert_refused(&r, 1, "standard output: No space left on device");
        cli_free(&r);
    }
}

static void progress_is_drawn_on_a_terminal_only(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){
        .args = CLI_ARGS("generate", QUICK, "-p", "A fox", "-n", "2"), .terminal_errors = true});
    assert_code(&r, 0);
    assert_says(r.err, "loading");
    assert_says(r.err, "###] 100 %");
    assert_says(r.err, "reading the prompt");
    cli_free(&r);
    r = cli_run(&(cli_setup){.args = CLI_ARGS("generate", QUICK, "-p", "A fox", "-n", "2", "-q"),
                             .terminal_errors = true});
    assert_code(&r, 0);
    assert_string_equal(r.err, "");
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "A fox", "-n", "2");
    assert_does_not_say(r.err, "loading");
    assert_does_not_say(r.err, "###");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ctrl_c_ends_a_generation_with_statistics_and_130),
        cmocka_unit_test(ctrl_c_still_gives_the_json_of_what_was_made),
        cmocka_unit_test(ctrl_c_ends_reading_a_long_prompt),
        cmocka_unit_test(ctrl_c_ends_a_measurement),
        cmocka_unit_test(a_closed_pipe_ends_the_program_silently),
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(progress_is_drawn_on_a_terminal_only),
    };
    return cmocka_run_group_tests_name("cli streams", tests, NULL, NULL);
}
