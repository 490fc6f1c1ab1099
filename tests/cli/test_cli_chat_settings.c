/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, models and output of antigravity chat without a terminal. */
#include "chat_home.h"

/* Settings that only the model's sampler can reject leave the conversation as it was. */
static void set_rejects_values_that_no_sampler_accepts(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "logit_bias 9999999:1",
        "top_p 1.5",
        "dry_base nan",
        "dry_sequence_breaker 12345678901234567890123456789012345678901",
    };
    char input[128];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(input, sizeof input, "/set %s\nOnce\n", wrong[i]);
        cli_result r = CHAT(input, GREEDY, "-n", "3", "-q");
        assert_refused(&r, 1, "/set ");
        cli_free(&r);
    }
    /* The text of a breaker outlives its line. */
    cli_result r = CHAT("/set dry_multiplier 0.8\n/set dry_sequence_breaker fox\nOnce upon\n"
                        "/set dry_sequence_breaker x\nThe fox\n",
                        GREEDY, "-n", "8", "-q");
    cli_result same = CHAT("Once upon\nThe fox\n", GREEDY, "-n", "8", "-q", "--dry-multiplier",
                           "0.8", "--dry-sequence-breaker", "fox");
    assert_code(&r, 0);
    assert_code(&same, 0);
    cli_free(&r);
    cli_free(&same);
}

static void shows_one_seed(void **state) {
    (void)state;
    char number[32], expected[64];
    cli_result r = CHAT("Once upon a time\n/set seed\n/stats\n", QUICK, "-v", "-n", "12");
    assert_code(&r, 0);
    const char *note = strstr(r.err, "(seed ");
    assert_non_null(note);
    snprintf(number, sizeof number, "%.*s", (int)strcspn(note + 6, ")"), note + 6);
    snprintf(expected, sizeof expected, "  seed %s\n", number);
    assert_says(r.err, expected);
    snprintf(expected, sizeof expected, "  seed %s, max_tokens 12", number);
    assert_says(r.err, expected);
    cli_result same = CHAT("Once upon a time\n", QUICK, "-q", "-n", "12", "-s", number);
    assert_string_equal(same.out, r.out);
    cli_free(&r);
    cli_free(&same);
    r = CHAT("/set seed -1\n/set seed\n/stats\n", QUICK, "-q", "-s", "5");
    assert_code(&r, 0);
    assert_does_not_say(r.err, "  seed 5\n");
    note = strstr(r.err, "  seed ");
    assert_non_null(note);
    snprintf(expected, sizeof expected, "  seed %.*s, max_tokens", (int)strcspn(note + 7, "\n"),
             note + 7);
    assert_says(r.err, expected);
    cli_free(&r);
}

static void first_word_may_be_a_model(void **state) {
    (void)state;
    char dir[64];
    make_chat_model(dir);
    cli_result r = CHAT("", dir, "A fox", GREEDY, "-n", "12", "-q");
    cli_result same = CHAT("A fox\n", "-m", dir, GREEDY, "-n", "12", "-q");
    assert_code(&r, 0);
    assert_string_equal(r.out, same.out);
    cli_free(&r);
    cli_free(&same);
    char store[64], used[128];
    make_directory(store);
    setenv("ANTIGRAVITY_MODELS", store, 1);
    link_file(store, DEMO "/..", "demo");
    r = CHAT("", "demo", "-q", GREEDY, "-n", "3", "Once");
    same = CHAT("Once\n", GREEDY, "-n", "3", "-q");
    assert_code(&r, 0);
    assert_string_equal(r.out, same.out);
    unsetenv("ANTIGRAVITY_MODELS");
    snprintf(used, sizeof used, "%s/.used", store);
    remove_directory(used);
    remove_directory(store);
    cli_free(&r);
    r = CHAT("", "absent.gguf", "-q");
    assert_refused(&r, 1, "absent.gguf");
    cli_free(&r);
    r = CHAT("", "Once", "upon", "-q");
    assert_refused(&r, 2, "unexpected word 'upon'");
    cli_free(&r);
    r = CHAT("", "-m", dir, "Once", "upon", "-q");
    assert_refused(&r, 2, "unexpected word 'upon'");
    cli_free(&r);
    cli_free(&same);
    remove_directory(dir);
}

/* The messages stay, and the other model reads them in its own template. */
static void changes_model_during_conversation(void **state) {
    (void)state;
    char dir[64], input[256];
    make_chat_model(dir);
    snprintf(input, sizeof input, "A fox\n/model %s\n/retry\n/model\n", dir);
    cli_result r = CHAT(input, GREEDY, "-n", "9", "--system", "Be kind");
    cli_result same = CHAT("A fox\n", GREEDY, "-n", "9", "-m", dir, "--system", "Be kind", "-q");
    assert_code(&r, 0);
    assert_string_equal(r.out + r.n_out - same.n_out, same.out);
    snprintf(input, sizeof input, "the model is %s now", dir);
    assert_says(r.err, input);
    snprintf(input, sizeof input, "  model %s: LlamaForCausalLM", dir);
    assert_says(r.err, input);
    cli_free(&r);
    cli_free(&same);
    /* Models that cannot be used leave the present one: absent, without a tokenizer. */
    static const char *const wrong[] = {"/model absent.gguf", "/model " TINY};
    for (size_t i = 0; i < 2; i++) {
        r = CHAT(wrong[i], GREEDY, "-n", "9", "-q");
        assert_refused(&r, 1, i ? "no tokenizer.json" : "absent.gguf");
        cli_free(&r);
    }
    remove_directory(dir);
}

/* The other model's heads of 16 do not fit blocks of q4_0, which only the session shows: after the
 * weights of the present one were freed. */
static void failed_change_loads_the_present_model_again(void **state) {
    (void)state;
    static const char odd[] = AG_SOURCE_DIR "/tests/data/golden/models/mqa-odd-sizes-f16";
    char dir[64], input[256];
    make_directory(dir);
    link_file(dir, odd, "config.json");
    link_file(dir, odd, "model.safetensors");
    link_file(dir, DEMO, "tokenizer.json");
    snprintf(input, sizeof input, "Once upon a time\n/model %s\n", dir);
    cli_result r = CHAT(input, GREEDY, "-n", "9", "--kv-type", "q4_0", "-v", "--resume", "kept");
    assert_code(&r, 1);
    const char *first = strstr(r.err, "/models/demo: loaded in ");
    assert_true(first && strstr(first + 1, "/models/demo: loaded in "));
    assert_null(strstr(r.err, "the model is "));
    cli_free(&r);
    r = CHAT("The fox\n/stats\n", GREEDY, "-n", "9", "--kv-type", "q4_0", "-q", "--resume", "kept");
    assert_code(&r, 0);
    assert_says(r.err, "in all: 2 turn(s)");
    cli_free(&r);
    remove_directory(dir);
}

static void reports_memory_only_with_v(void **state) {
    (void)state;
    cli_result r = CHAT("/quit\n", QUICK), verbose = CHAT("/quit\n", QUICK, "-v");
    assert_does_not_say(r.err, "memory: ");
    assert_says(verbose.err, "memory: up to ");
    cli_free(&r);
    cli_free(&verbose);
}

/* Lines end before words that do not fit, but not in blocks of code; a pipe gets the text as it
 * is. */
static void wraps_words_at_the_width_of_the_terminal(void **state) {
    (void)state;
    static const char text[] =
        "The old king had three sons and a daughter of the wood\n"
        "  a-word-that-is-longer-than-the-line and more\n"
        "\xe7\x8e\x8b\xe5\xad\x90\xe7\x8e\x8b\xe5\xad\x90\xe7\x8e\x8b\xe5\xad\x90\xe7\x8e\x8b"
        "\xe5\xad\x90\xe7\x8e\x8b\xe5\xad\x90\xe7\x8e\x8b\xe5\xad\x90\n"
        "```c\nint value = first + second + third;\n```\nend of it with a line again";
    static const char wrapped[] =
        "The old king had\nthree sons and a\ndaughter of the wood\n"
        "  a-word-that-is-longer-than-the-line\nand more\n"
        "\xe7\x8e\x8b\xe5\xad\x90\xe7\x8e\x8b\xe5\xad\x90\xe7\x8e\x8b\xe5\xad\x90\xe7\x8e\x8b"
        "\xe5\xad\x90\xe7\x8e\x8b\xe5\xad\x90\n\xe7\x8e\x8b\xe5\xad\x90\n"
        "```c\nint value = first + second + third;\n```\nend of it with a\nline again\n";
    const char *const *args = CLI_ARGS("chat", GREEDY, "-q", "--choice", text, "Once");
    cli_result r =
        cli_run(&(cli_setup){.args = args, .input = "", .terminal_output = true, .columns = 20});
    assert_code(&r, 0);
    /* The terminal turns "\n" into "\r\n". */
    char *shown = calloc(1, r.n_out + 1);
    for (size_t i = 0, n = 0; i < r.n_out; i++)
        if (r.out[i] != '\r') shown[n++] = r.out[i];
    assert_string_equal(shown, wrapped);
    free(shown);
    cli_free(&r);
    r = CHAT("", GREEDY, "-q", "--choice", text, "Once");
    assert_int_equal(strncmp(r.out, text, sizeof text - 1), 0);
    cli_free(&r);
}

static void help_names_the_default_policy(void **state) {
    (void)state;
    cli_result r = CHAT("", "--help"), other = CLI("generate", "--help");
    const char *row = strstr(r.out, "--eviction-policy"), *end = strstr(row, "--kv-budget");
    const char *found = strstr(row, "turns; also --kv-policy)");
    assert_true(found && found < end);
    assert_says(other.out, "none; also --kv-policy)");
    cli_free(&r);
    cli_free(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_rejects_values_that_no_sampler_accepts),
        cmocka_unit_test(shows_one_seed),
        cmocka_unit_test(first_word_may_be_a_model),
        cmocka_unit_test(changes_model_during_conversation),
        cmocka_unit_test(failed_change_loads_the_present_model_again),
        cmocka_unit_test(reports_memory_only_with_v),
        cmocka_unit_test(wraps_words_at_the_width_of_the_terminal),
        cmocka_unit_test(help_names_the_default_policy),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
