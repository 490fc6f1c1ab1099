/* SPDX-License-Identifier: Apache-2.0 */
/* Options --help and --version of the program and of each command. */
#include "cli.h"

#include <string.h>

static const char *const commands[] = {"chat", "generate", "tokenize",  "eval",     "bench",
                                       "info", "imatrix",  "calibrate", "quantize", "devices",
                                       "pull", "models",   "rm",        "run",      "doctor"};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void assert_lines_fit(const char *text) {
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        if (n > 100) fail_msg("%zu columns: %.*s", n, (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void help_lists_commands(void **state) {
    (void)state;
    cli_result r = CLI("--help");
    assert_code(&r, 0);
    assert_int_equal(r.n_err, 0);
    for (size_t i = 0; i < N_COMMANDS; i++) assert_says(r.out, commands[i]);
    assert_lines_fit(r.out);
    cli_free(&r);
}

static void missing_command_prints_help_as_error(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){.args = (const char *const[]){NULL}});
    assert_code(&r, 2);
    assert_int_equal(r.n_out, 0);
    assert_says(r.err, "Usage: antigravity COMMAND");
    cli_free(&r);
}

static void missing_command_on_terminal_prints_next_steps(void **state) {
    (void)state;
    cli_result r =
        cli_run(&(cli_setup){.args = (const char *const[]){NULL}, .terminal_errors = true});
    assert_code(&r, 2);
    assert_int_equal(r.n_out, 0);
    assert_says(r.err, "antigravity chat ");
    assert_says(r.err, "antigravity doctor ");
    assert_does_not_say(r.err, "Usage:");
    cli_free(&r);
}

static void each_command_has_complete_help(void **state) {
    (void)state;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        cli_result r = CLI(commands[i], "--help");
        assert_code(&r, 0);
        assert_int_equal(r.n_err, 0);
        assert_says(r.out, "Usage: antigravity ");
        assert_says(r.out, commands[i]);
        assert_says(r.out, "\nExamples:\n");
        assert_lines_fit(r.out);
        cli_result same = CLI("help", commands[i]), brief = CLI(commands[i], "-h");
        assert_string_equal(r.out, same.out);
        assert_string_equal(r.out, brief.out);
        cli_free(&same);
        cli_free(&brief);
        cli_free(&r);
    }
}

static void generate_help_names_options_and_defaults(void **state) {
    (void)state;
    static const char *const parts[] = {
        "-m, --model",
        "-p, --prompt",
        "-f, --prompt-file",
        "--prompt-ids",
        "-n, --max-tokens",
        "default 128",
        "-b, --backend",
        "-t, --threads",
        "-c, --max-seq-len",
        "default 2048",
        "--ctx-size",
        "--weights",
        "default auto",
        "--kv-type",
        "-ctk",
        "-ctv",
        "default f16",
        "--eviction-policy",
        "--eviction-window",
        "--kv-budget",
        "--protected-prefix",
        "--memory-threshold-mb",
        "--eviction-target-ratio",
        "--temperature",
        "--temp",
        "default 0.8",
        "--top-p",
        "default 0.95",
        "--top-k",
        "default 40",
        "--min-p",
        "--typical",
        "--top-n-sigma",
        "--xtc-probability",
        "--dynatemp-range",
        "--dry-multiplier",
        "--repetition-penalty",
        "--repeat-penalty",
        "default 1; also",
        "--repetition-window",
        "--repeat-last-n",
        "default 64",
        "--presence-penalty",
        "--frequency-penalty",
        "--logit-bias",
        "-s, --seed",
        "-e, --escape",
        "-r, --reverse-prompt",
        "--no-display-prompt",
        "--stop",
        "--ignore-eos",
        "--prefill-chunk",
        "default 512",
        "--device",
        "--zero-copy",
        "--gpu-attn",
        "--no-gpu-attn",
        "-ngl",
        "--echo",
        "--json",
        "-q, --quiet",
        "-v, --verbose",
        "--version",
        "--parse-special",
        "--no-bos",
    };
    cli_result r = CLI("generate", "--help");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) assert_says(r.out, parts[i]);
    cli_free(&r);
}

/* The help shows the defaults of the fields that are parsed into. */
static void help_wins_within_a_word_of_letters(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-hq", "-n", "2", "-p", "x");
    assert_code(&r, 0);
    assert_says(r.out, "Usage: antigravity generate");
    cli_free(&r);
}

static void help_shows_defaults_of_lists_and_words(void **state) {
    (void)state;
    cli_result r = CLI("bench", "--help");
    assert_says(r.out, "(default 128)");
    assert_says(r.out, "(default md)");
    cli_free(&r);
    r = cli_run(&(cli_setup){.args = CLI_ARGS("eval", "needle", "--help")});
    assert_says(r.out, "(default 10,30,50,70,90)");
    assert_says(r.out, "(default inside)");
    assert_says(r.out, "(default avg)");
    cli_free(&r);
    r = CLI("eval", "ruler", "--help");
    assert_says(r.out, "(default unseen)");
    assert_says(r.out, "(default 1024)");
    cli_free(&r);
}

/* `takers` has a letter for each command that takes the option, in the order of `helped`. */
static void shared_options_have_equal_help(void **state) {
    (void)state;
    static const char *const helped[][2] = {
        {"generate"},   {"tokenize"},       {"bench"}, {"info"},          {"eval", "ppl"},
        {"eval", "kl"}, {"eval", "needle"}, {"chat"},  {"eval", "ruler"},
    };
    static const struct {
        const char *option, *takers; /* G T B I P K N C R */
    } rows[] = {
        {"  -p, --prompt TEXT ", "GTPK"},
        {"  -f, --prompt-file FILE ", "GTPK"},
        {"      --prompt-ids ", "GTPK"},
        {"      --parse-special ", "GTPK"},
        {"      --no-bos ", "GTPK"},
        {"  -m, --model MODEL ", "GBIPKNCR"},
        {"      --weights TYPE ", "GBIPKNCR"},
        {"  -c, --max-seq-len N ", "GIPKC"},
        {"      --cache-type-k ", "GBIPR"},
        {"      --k-rotation ", "GBIPKNR"},
        {"      --kv-prefill ", "GIPKNCR"},
        {"      --memory-threshold-mb ", "GIPC"},
        {"  -t, --threads N ", "GIPKNCR"},
        {"      --temperature ", "GC"},
        {"  -C, --cpu-mask ", "GBIPKNR"},
        {"  -b, --backend NAME|auto ", "GBIPKNR"},
        {"      --device ", "GBIPKNR"},
        {"      --gpu-layers ", "GBIPKNR"},
        {"  -q, --quiet ", "GBIPKNR"},
        {"  -v, --verbose ", "GBIPKNR"},
        {"  -o, --output md|csv|json ", "BKNR"},
    };
    enum { N_HELPED = sizeof helped / sizeof helped[0] };
    cli_result help[N_HELPED];
    for (size_t i = 0; i < N_HELPED; i++) {
        help[i] =
            helped[i][1] ? CLI(helped[i][0], helped[i][1], "--help") : CLI(helped[i][0], "--help");
        assert_code(&help[i], 0);
    }
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        const char *first = NULL;
        size_t n = 0;
        for (size_t i = 0; i < N_HELPED; i++) {
            if (!strchr(rows[k].takers, "GTBIPKNCR"[i])) continue;
            const char *row = strstr(help[i].out, rows[k].option);
            if (!row) fail_msg("%s %s lacks %s", helped[i][0], helped[i][1], rows[k].option);
            /* Defaults may differ, and so may the line breaks before them. */
            if (!first) n = strcspn(first = row, "(\n");
            while (n && first[n - 1] == ' ') n--;
            assert_int_equal(strncmp(first, row, n), 0);
        }
    }
    for (size_t i = 0; i < N_HELPED; i++) cli_free(&help[i]);
}

static void version_prints_one_line(void **state) {
    (void)state;
    cli_result r = CLI("--version");
    assert_code(&r, 0);
    assert_int_equal(strncmp(r.out, "antigravity ", 12), 0);
    assert_ptr_equal(strchr(r.out, '\n'), r.out + r.n_out - 1);
    cli_result word = CLI("version"), letter = CLI("-V");
    assert_string_equal(r.out, word.out);
    assert_string_equal(r.out, letter.out);
    cli_free(&word);
    cli_free(&letter);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        cli_result same = CLI(commands[i], i % 2 ? "-V" : "--version");
        assert_code(&same, 0);
        assert_string_equal(r.out, same.out);
        cli_free(&same);
    }
    cli_free(&r);
}

static void suggests_command_for_unknown_one(void **state) {
    (void)state;
    cli_result r = CLI("generat");
    assert_refused(&r, 2, "did you mean 'generate'?");
    cli_free(&r);
    r = CLI("xyzzy");
    assert_refused(&r, 2, "unknown command 'xyzzy'");
    cli_free(&r);
    r = CLI("help", "xyzzy");
    assert_refused(&r, 2, "unknown command 'xyzzy'");
    cli_free(&r);
    r = CLI("-p", "Once");
    assert_refused(&r, 2, "antigravity generate -p");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_lists_commands),
        cmocka_unit_test(missing_command_prints_help_as_error),
        cmocka_unit_test(missing_command_on_terminal_prints_next_steps),
        cmocka_unit_test(each_command_has_complete_help),
        cmocka_unit_test(generate_help_names_options_and_defaults),
        cmocka_unit_test(help_wins_within_a_word_of_letters),
        cmocka_unit_test(help_shows_defaults_of_lists_and_words),
        cmocka_unit_test(shared_options_have_equal_help),
        cmocka_unit_test(version_prints_one_line),
        cmocka_unit_test(suggests_command_for_unknown_one),
    };
    return cmocka_run_group_tests_name("cli help", tests, NULL, NULL);
}
