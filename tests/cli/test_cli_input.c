/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of prompts and models, and bad ones. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char continued[] = ", there was a\n";

static cli_result generate_from(const void *input, size_t n, const char *const *args) {
    return cli_run(&(cli_setup){.args = args, .input = input, .n_input = n});
}

static void reads_prompt_from_standard_input(void **state) {
    (void)state;
    static const char *const endings[] = {"", "\n", "\r\n"};
    for (size_t i = 0; i < 3; i++) {
        char text[64];
        int n = snprintf(text, sizeof text, "Once upon a time%s", endings[i]);
        cli_result r =
            generate_from(text, (size_t)n, CLI_ARGS("generate", "-n", "4", "-q", GREEDY));
        assert_code(&r, 0);
        assert_string_equal(r.out, continued);
        cli_free(&r);
        r = generate_from(text, (size_t)n,
                          CLI_ARGS("generate", "-n", "4", "-q", GREEDY, "-f", "-"));
        assert_string_equal(r.out, continued);
        cli_free(&r);
    }
}

static void reads_prompt_from_file(void **state) {
    (void)state;
    char dir[64], path[96];
    make_directory(dir);
    write_file(dir, "prompt.txt", "Once upon a time\n", 17);
    snprintf(path, sizeof path, "%s/prompt.txt", dir);
    static const char *const spellings[] = {"-f", "--file", "--prompt-file"};
    for (size_t i = 0; i < 3; i++) {
        cli_result r = CLI("generate", "-n", "4", "-q", GREEDY, spellings[i], path);
        assert_code(&r, 0);
        assert_string_equal(r.out, continued);
        cli_free(&r);
    }
    remove_directory(dir);
}

static void takes_operand_as_prompt(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-n", "4", "-q", GREEDY, "Once upon a time");
    assert_code(&r, 0);
    assert_string_equal(r.out, continued);
    cli_free(&r);
    r = CLI("generate", "Once upon a time", "-n", "4", "-q", GREEDY, "-r", "there");
    assert_code(&r, 0);
    assert_string_equal(r.out, ", \n"); /* -r is --stop */
    cli_free(&r);
    r = CLI("info", "-q", TINY);
    assert_code(&r, 0);
    assert_says(r.out, TINY);
    cli_free(&r);
}

static void replaces_escapes_with_option(void **state) {
    (void)state;
    static const char raw[] = "a\\nb\\t\\\"\\\\\\x", meant[] = "a\nb\t\"\\\\x";
    cli_result with = CLI("tokenize", "-q", "-e", raw), plain = CLI("tokenize", "-q", meant);
    cli_result without = CLI("tokenize", "-q", raw);
    assert_code(&with, 0);
    assert_string_equal(with.out, plain.out);
    assert_string_not_equal(with.out, without.out);
    cli_free(&with);
    cli_free(&plain);
    cli_free(&without);
}

static size_t count_ids(const cli_result *r) {
    json_t *root = cli_json(r);
    size_t n = json_array_size(json_object_get(root, "prompt_ids"));
    json_decref(root);
    return n;
}

static void accepts_nul_in_prompt(void **state) {
    (void)state;
    cli_result r =
        generate_from("a\0b", 3, CLI_ARGS("generate", QUICK, "-n", "1", "-q", "--json", "--echo"));
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    json_t *text = json_object_get(root, "text");
    assert_true(json_string_length(text) >= 3);
    assert_memory_equal(json_string_value(text), "a\0b", 3);
    json_decref(root);
    cli_free(&r);
}

static void options_control_bos_and_special_tokens(void **state) {
    (void)state;
    cli_result with = CLI("generate", QUICK, "-p", "A fox", "-n", "0", "-q", "--json");
    cli_result without =
        CLI("generate", QUICK, "-p", "A fox", "-n", "0", "-q", "--json", "--no-bos");
    assert_int_equal(count_ids(&with), count_ids(&without) + 1);
    cli_free(&with);
    cli_free(&without);
    with = CLI("generate", QUICK, "-p", "<|eot_id|>", "-n", "0", "-q", "--json", "--parse-special");
    without = CLI("generate", QUICK, "-p", "<|eot_id|>", "-n", "0", "-q", "--json");
    assert_int_equal(count_ids(&with), 2);
    assert_true(count_ids(&without) > 2);
    cli_free(&with);
    cli_free(&without);
}

static void empty_prompt_needs_bos(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "", "-n", "2", "-q");
    assert_code(&r, 0);
    assert_true(r.n_out > 0);
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "", "-n", "2", "-q", "--no-bos");
    assert_refused(&r, 2, "the prompt is empty");
    cli_free(&r);
}

static void rejects_invalid_utf8_with_location(void **state) {
    (void)state;
    cli_result r = generate_from("abc\xff", 4, CLI_ARGS("generate", QUICK, "-q"));
    assert_refused(&r, 1, "the prompt");
    assert_says(r.err, "3");
    cli_free(&r);
    r = CLI("generate", QUICK, "-q", "-p", "\xe2\x82");
    assert_refused(&r, 1, "the prompt");
    cli_free(&r);
}

static void rejects_long_prompt_before_loading(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "Once upon a time", "-c", "3", "-q");
    assert_refused(&r, 1, "5 tokens");
    assert_says(r.err, "holds 3");
    assert_says(r.err, "--max-seq-len");
    cli_free(&r);
    /* The requested context is larger, but the model's limit is 2048. */
    char text[12001];
    for (size_t i = 0; i < 12000; i += 4) memcpy(text + i, "fox ", 4);
    r = generate_from(text, 12000, CLI_ARGS("generate", QUICK, "-c", "100000", "-q"));
    assert_refused(&r, 1, "holds 2048");
    cli_free(&r);
}

static void reports_a_context_above_the_models(void **state) {
    (void)state;
    static const char report[] = " has 2048 positions; the context holds 2048 tokens\n";
    cli_result r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-c", "100000000");
    assert_code(&r, 0);
    assert_says(r.err, "generate: -c 100000000: ");
    assert_says(r.err, report);
    cli_free(&r);
    r = CLI("info", "-c", "2049");
    assert_code(&r, 0);
    assert_says(r.err, report);
    cli_free(&r);
    static const char *const fitting[] = {"0", "2048"};
    for (size_t i = 0; i < 2; i++) {
        r = CLI("info", "-c", fitting[i]);
        assert_code(&r, 0);
        assert_does_not_say(r.err, report);
        cli_free(&r);
    }
    r = CLI("chat", QUICK, "-p", "x", "-n", "1"); /* the default is 4096 */
    assert_code(&r, 0);
    assert_does_not_say(r.err, report);
    cli_free(&r);
}

static void names_options_of_a_budget_above_the_context(void **state) {
    (void)state;
    static const struct {
        const char *args[12], *message;
    } cases[] = {
        {{"generate", "-p", "x", "--kv-budget", "4096"},
         "--kv-budget 4096: it must be below the context of 2048 tokens\n"},
        {{"generate", "-p", "x", "-c", "512", "--kv-budget", "512"},
         "--kv-budget 512: it must be below -c 512; use a context of at least 513 tokens (-c)\n"},
        {{"chat", "-c", "512", "--kv-budget", "600"},
         "--kv-budget 600: it must be below -c 512; use"},
        {{"info", "-c", "512", "--kv-budget", "600"}, "--kv-budget 600: it must be below -c 512\n"},
        {{"serve", "-c", "512", "--kv-budget", "600"},
         "--kv-budget 600: it must be below -c 512\n"},
        {{"eval", "kl", "-p", "Once upon a time", "-c", "512", "--kv-budget", "64,600"},
         "--kv-budget 600: it must be below -c 512\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *args[16] = {NULL};
        size_t n = 0;
        while (cases[i].args[n]) args[n] = cases[i].args[n], n++;
        args[n] = "-q";
        args[n + 1] = "--eviction-policy";
        args[n + 2] = "h2o";
        cli_result r = cli_run(&(cli_setup){.args = args});
        assert_refused(&r, 2, cases[i].message);
        cli_free(&r);
    }
}

static void full_context_prompt_gives_one_token(void **state) {
    (void)state;
    cli_result r =
        CLI("generate", QUICK, "-p", "Once upon a time", "-c", "5", "-q", "--json", "-n", "9");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_int_equal(json_array_size(json_object_get(root, "ids")), 1);
    assert_string_equal(json_string_value(json_object_get(root, "finish_detail")), "context");
    json_decref(root);
    cli_free(&r);
}

static void rejects_ids_outside_vocabulary(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "--prompt-ids", "1,4096", "-q");
    assert_refused(&r, 2, "token 1 of the prompt: 4096");
    assert_says(r.err, "0 to 4095");
    cli_free(&r);
}

static void rejects_missing_prompt_on_terminal(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS("generate"), .terminal_input = true});
    assert_refused(&r, 2, "no prompt: give -p TEXT");
    cli_free(&r);
    r = cli_run(&(cli_setup){.args = CLI_ARGS("tokenize"), .terminal_input = true});
    assert_refused(&r, 2, "no prompt");
    cli_free(&r);
}

static void names_unreadable_prompt_files(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-f", "/nonexistent/prompt");
    assert_refused(&r, 1, "/nonexistent/prompt: No such file");
    cli_free(&r);
    r = CLI("generate", QUICK, "-f", "/tmp");
    assert_refused(&r, 1, "/tmp: Is a directory");
    cli_free(&r);
}

static void names_the_remedies_for_long_prompts(void **state) {
    (void)state;
    cli_result r =
        CLI("generate", QUICK, "-q", "-c", "4", "-p", "Once upon a time there was a fox");
    assert_refused(&r, 1, "the context holds 4 (--max-seq-len;");
    assert_says(r.err, "--eviction-policy streaming");
    cli_free(&r);
}

static void rejects_files_that_are_not_models(void **state) {
    (void)state;
    char dir[64], path[96];
    make_directory(dir);
    cli_result r = CLI("generate", QUICK, "-p", "x", "-m", dir);
    assert_refused(&r, 1, "is not a model: it holds neither config.json nor a .gguf file");
    assert_says(r.err, dir);
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "x", "-m", "/dev/null");
    assert_refused(&r, 1, "/dev/null: is not a model; this version reads GGUF files");
    cli_free(&r);
    write_file(dir, "config.json", "{]", 2);
    r = CLI("generate", QUICK, "-p", "x", "-m", dir);
    assert_refused(&r, 1, "config.json");
    cli_free(&r);
    snprintf(path, sizeof path, "%s/config.json", dir);
    r = CLI("generate", QUICK, "-p", "x", "-m", path);
    assert_refused(&r, 1, path);
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "x", "-m", "/nonexistent");
    assert_refused(&r, 1, "/nonexistent");
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "x", "-m", "");
    assert_refused(&r, 2, "the name is empty");
    cli_free(&r);
    if (geteuid() != 0) { /* root can read every file */
        assert_int_equal(chmod(path, 0), 0);
        r = CLI("generate", QUICK, "-p", "x", "-m", dir);
        assert_refused(&r, 1, "Permission denied");
        cli_free(&r);
    }
    remove_directory(dir);
}

/* Files of other formats in a directory, and the message about each. */
static void names_unsupported_model_formats(void **state) {
    (void)state;
    static const struct {
        const char *name, *message;
    } kinds[] = {
        {"story-Q4_K_M-00002-of-00002.gguf", "a part of a GGUF model without the first part"},
        {"mmproj-story.gguf", "a part of a GGUF model"},
        {"pytorch_model.bin", "PyTorch weights: save them again as safetensors"},
        {"pytorch_model-00001-of-00002.bin", "PyTorch weights"},
        {"consolidated.00.pth", "their maker's own layout"},
        {"tf_model.h5", "TensorFlow weights"},
        {"flax_model.msgpack", "Flax weights"},
        {"weights.npz", "MLX weights"},
        {"model.onnx", "an ONNX graph"},
        {"adapter_config.json", "merge it into the model"},
        {"snapshots", "give the directory in its snapshots"},
    };
    char dir[64];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        make_directory(dir);
        write_file(dir, kinds[i].name, "bytes", 5);
        if (i % 2) link_file(dir, DEMO, "config.json");
        cli_result r = CLI("generate", QUICK, "-p", "x", "-m", dir);
        assert_refused(&r, 1, kinds[i].message);
        assert_says(r.err, "weights in model.safetensors");
        cli_free(&r);
        /* With readable weights in the directory the file is ignored. */
        link_file(dir, DEMO, "model.safetensors");
        if (!(i % 2)) link_file(dir, DEMO, "config.json");
        r = CLI("info", "-m", dir);
        assert_code(&r, 0);
        cli_free(&r);
        remove_directory(dir);
    }
}

static void names_wrong_model_paths(void **state) {
    (void)state;
    static const struct {
        const char *name, *bytes, *message;
    } files[] = {
        {"a.gguf", "GGUF\3", "a.gguf, byte 4: the version takes 4 bytes, but 1 are left"},
        {"no-suffix", "GGUF\1\1\1\1", "no-suffix, byte 4: is GGUF version 16843009"},
        {"b.gguf", "GGML", "b.gguf, byte 0: does not begin with \"GGUF\""},
        {"model.pt", "PK\3\4", "is a PyTorch checkpoint"},
        {"model.safetensors", "", "give the directory that holds it"},
        {"notes.txt", "hello", "notes.txt: is not a model"},
    };
    char dir[64], path[128];
    make_directory(dir);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_file(dir, files[i].name, files[i].bytes, strlen(files[i].bytes));
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        cli_result r = CLI("info", "-m", path);
        assert_refused(&r, 1, files[i].message);
        cli_free(&r);
    }
    remove_directory(dir);
    cli_result r = CLI("tokenize", "-p", "x", "-m", "some-org/Some-1.5B");
    assert_refused(&r, 1, "antigravity pull some-org/Some-1.5B' fetches a repository");
    cli_free(&r);
    r = CLI("generate", "-p", "x", "-m", "./some-dir");
    assert_refused(&r, 1,
                   "./some-dir: No such file or directory; give a GGUF file, a Hugging Face "
                   "directory or a name that 'antigravity models' lists\n");
    cli_free(&r);
    r = CLI("generate", "-p", "x", "-m", "models/some.gguf");
    assert_refused(&r, 1, "models/some.gguf: No such file or directory; give a GGUF file");
    cli_free(&r);
}

static void names_options_of_missing_files(void **state) {
    (void)state;
    static const struct {
        const char *args[12], *message;
    } cases[] = {
        {{"generate", "-q", "-p", "x", "--grammar", "/none"},
         "--grammar /none: No such file or directory; rules in place of a file have '::='\n"},
        {{"generate", "-q", "-p", "x", "--json-schema", "/none"},
         "--json-schema /none: No such file or directory; a schema in place of a file begins with "
         "'{'\n"},
        {{"generate", "-q", "-p", "x", "--draft-model", "/none"},
         "/none: No such file or directory; give"},
        {{"generate", "-p", "x", "--load-cache", "/none"}, "--load-cache /none: No such file"},
        {{"generate", "-q", "-p", "x", "--chat", "--system-file", "/none"},
         "--system-file /none: No such file"},
        {{"chat", "-q", "--tools", "/none"}, "--tools /none: No such file"},
        {{"serve", "--config", "/none"}, "--config /none: No such file"},
        {{"eval", "needle", "-q", "--text", "/none"}, "--text /none: No such file"},
        {{"eval", "ruler", "-q", "--haystack", "/none"}, "--haystack /none: No such file"},
        {{"bench", "--replay", "/none"},
         "--replay /none: No such file or directory; 'antigravity generate --json' prints"},
        {{"imatrix", "-p", "x", "-o", "/dev/null", "--in-file", "/none"},
         "--in-file /none: No such file"},
        {{"quantize", DEMO, "/none/x", "q4_0", "--imatrix", "/none"},
         "--imatrix /none: No such file or directory; 'antigravity imatrix' writes such a file\n"},
        {{"quantize", "/none", "/none/x", "q4_0"},
         "/none: No such file or directory; give a GGUF file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_result r = cli_run(&(cli_setup){.args = cases[i].args});
        assert_refused(&r, 1, cases[i].message);
        cli_free(&r);
    }
}

static void names_git_lfs_pointers(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0123456789abcdef\nsize 17821232\n";
    char dir[64];
    for (size_t which = 0; which < 3; which++) {
        make_directory(dir);
        for (size_t i = 0; i < 3; i++) {
            if (i == which) write_file(dir, files[i], pointer, strlen(pointer));
            else link_file(dir, DEMO, files[i]);
        }
        cli_result r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-m", dir);
        assert_refused(&r, 1, files[which]);
        assert_says(r.err, "run 'git lfs pull'");
        cli_free(&r);
        remove_directory(dir);
    }
}

static void rejects_model_with_missing_shards(void **state) {
    (void)state;
    char dir[64];
    static char bytes[1000];
    make_directory(dir);
    link_file(dir, DEMO, "config.json");
    link_file(dir, DEMO, "tokenizer.json");
    cli_result r = CLI("generate", QUICK, "-p", "x", "-m", dir);
    assert_refused(&r, 1, "model.safetensors");
    cli_free(&r);
    write_file(dir, "model.safetensors", bytes, sizeof bytes);
    r = CLI("generate", QUICK, "-p", "x", "-m", dir);
    assert_refused(&r, 1, "model.safetensors");
    cli_free(&r);
    remove_directory(dir);
}

/* The template is in the configuration or a file; null means no template. */
static void warns_about_raw_prompt_of_chat_model(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors",
                                        "generation_config.json"};
    static const char yes[] = "{\"chat_template\": \"{{ messages }}\"}";
    static const char no[] = "{\"chat_template\": null}";
    char dir[64];
    make_directory(dir);
    for (size_t i = 0; i < 4; i++) link_file(dir, DEMO, files[i]);
    write_file(dir, "tokenizer_config.json", no, strlen(no));
    cli_result r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-m", dir);
    assert_does_not_say(r.err, "chat model");
    cli_free(&r);
    write_file(dir, "tokenizer_config.json", yes, strlen(yes));
    r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-m", dir);
    assert_code(&r, 0);
    assert_says(r.err, "this is a chat model");
    assert_says(r.err, "use --chat");
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-m", dir, "--parse-special");
    assert_does_not_say(r.err, "chat model");
    cli_free(&r);
    write_file(dir, "tokenizer_config.json", no, strlen(no));
    write_file(dir, "chat_template.jinja", "x", 1);
    r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-m", dir);
    assert_says(r.err, "this is a chat model");
    cli_free(&r);
    remove_directory(dir);
}

/* Tries every file of a model. */
static void reports_dangling_links(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors",
                                        "generation_config.json"};
    char dir[64];
    for (size_t lost = 0; lost < 4; lost++) {
        make_directory(dir);
        for (size_t i = 0; i < 4; i++) {
            link_file(dir, i == lost ? "/nonexistent" : DEMO, files[i]);
        }
        cli_result r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-m", dir);
        assert_refused(&r, 1, files[lost]);
        assert_says(r.err, "is a link to /nonexistent/");
        cli_free(&r);
        remove_directory(dir);
    }
    static const char *const more[] = {"tokenizer_config.json", "chat_template.jinja"};
    for (size_t lost = 0; lost < 2; lost++) {
        make_directory(dir);
        for (size_t i = 0; i < 4; i++) link_file(dir, DEMO, files[i]);
        link_file(dir, "/nonexistent", more[lost]);
        cli_result r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-m", dir);
        assert_code(&r, 0);
        assert_says(r.err, more[lost]);
        assert_says(r.err, "dangling link");
        cli_free(&r);
        r = CLI("generate", QUICK, "-p", "x", "-n", "1", "-q", "-m", dir);
        assert_code(&r, 0);
        assert_string_equal(r.err, "");
        cli_free(&r);
        remove_directory(dir);
    }
}

static void keeps_reason_after_long_path(void **state) {
    (void)state;
    char path[2001];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    cli_result r = CLI("generate", QUICK, "-p", "x", "-m", path);
    assert_refused(&r, 1, "/xxxxxxx");
    assert_says(r.err, "x...x");
    assert_says(r.err, ": File name too long\n");
    cli_free(&r);
}

static void ignores_pipe_in_model_directory(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors",
                                        "generation_config.json"};
    char dir[64], path[96];
    make_directory(dir);
    for (size_t i = 0; i < 4; i++) link_file(dir, DEMO, files[i]);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    cli_result r = CLI("info", "-m", dir);
    assert_code(&r, 0);
    cli_free(&r);
    remove_directory(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_prompt_from_standard_input),
        cmocka_unit_test(reads_prompt_from_file),
        cmocka_unit_test(takes_operand_as_prompt),
        cmocka_unit_test(replaces_escapes_with_option),
        cmocka_unit_test(accepts_nul_in_prompt),
        cmocka_unit_test(options_control_bos_and_special_tokens),
        cmocka_unit_test(empty_prompt_needs_bos),
        cmocka_unit_test(rejects_invalid_utf8_with_location),
        cmocka_unit_test(rejects_long_prompt_before_loading),
        cmocka_unit_test(reports_a_context_above_the_models),
        cmocka_unit_test(names_options_of_a_budget_above_the_context),
        cmocka_unit_test(full_context_prompt_gives_one_token),
        cmocka_unit_test(rejects_ids_outside_vocabulary),
        cmocka_unit_test(rejects_missing_prompt_on_terminal),
        cmocka_unit_test(names_unreadable_prompt_files),
        cmocka_unit_test(names_the_remedies_for_long_prompts),
        cmocka_unit_test(rejects_files_that_are_not_models),
        cmocka_unit_test(names_unsupported_model_formats),
        cmocka_unit_test(names_wrong_model_paths),
        cmocka_unit_test(names_options_of_missing_files),
        cmocka_unit_test(names_git_lfs_pointers),
        cmocka_unit_test(rejects_model_with_missing_shards),
        cmocka_unit_test(warns_about_raw_prompt_of_chat_model),
        cmocka_unit_test(reports_dangling_links),
        cmocka_unit_test(keeps_reason_after_long_path),
        cmocka_unit_test(ignores_pipe_in_model_directory),
    };
    return cmocka_run_group_tests_name("cli input", tests, NULL, NULL);
}
