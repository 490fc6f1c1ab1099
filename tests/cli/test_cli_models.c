/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity models and rm, and -m with names of the store. */
#include "cli.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64], store[128];

static int remove_any(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

static void make_model(const char *name) {
    char dir[256];
    snprintf(dir, sizeof dir, "%s/%s", store, name);
    assert_int_equal(mkdir(dir, 0777), 0);
    link_file(dir, TINY, "config.json");
    link_file(dir, TINY, "model.safetensors");
}

/* Fills root/store: two models, a link to one outside, a file that is not a model, an incomplete
 * model and a damaged one. */
static int before_each(void **state) {
    (void)state;
    make_directory(root);
    snprintf(store, sizeof store, "%s/store", root);
    assert_int_equal(mkdir(store, 0777), 0);
    setenv("ANTIGRAVITY_MODELS", store, 1);
    make_model("Tiny-1M-Base");
    make_model("Tiny-1M-Chat");
    make_model("../outside");
    char target[128], name[256];
    snprintf(target, sizeof target, "%s/outside", root);
    snprintf(name, sizeof name, "%s/linked", store);
    assert_int_equal(symlink(target, name), 0);
    make_model("half.part");
    write_file(store, "broken.gguf", "GGUF", 4);
    write_file(store, "notes.txt", "x", 1);
    return 0;
}

static int after_each(void **state) {
    (void)state;
    nftw(root, remove_any, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static bool is_there(const char *name) {
    char path[256];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", store, name);
    return lstat(path, &s) == 0;
}

static const json_t *row_of(const json_t *root_value, const char *name) {
    const json_t *rows = json_object_get(root_value, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!strcmp(json_string_value(json_object_get(row, "name")), name)) return row;
    }
    fail_msg("%s is not listed", name);
    return NULL;
}

static void lists_valid_and_broken_models(void **state) {
    (void)state;
    cli_result r = CLI("models");
    assert_code(&r, 0);
    assert_int_equal(r.n_err, 0);
    assert_says(r.out, "| Tiny-1M-Base | LlamaForCausalLM, ");
    assert_says(r.out, "| linked | LlamaForCausalLM, ");
    assert_says(r.out, "| half | incomplete");
    assert_says(r.out, "store/broken.gguf");
    assert_does_not_say(r.out, "notes");
    cli_result list = CLI("list"), ls = CLI("ls");
    assert_string_equal(list.out, r.out);
    assert_string_equal(ls.out, r.out);
    cli_free(&list);
    cli_free(&ls);
    cli_free(&r);
    r = CLI("models", "--json");
    assert_code(&r, 0);
    json_t *value = cli_json(&r);
    assert_string_equal(json_string_value(json_object_get(value, "store")), store);
    const json_t *row = row_of(value, "Tiny-1M-Chat");
    assert_true(json_integer_value(json_object_get(row, "parameters")) > 0);
    assert_true(json_integer_value(json_object_get(row, "bytes")) > 1000);
    assert_true(json_is_true(json_object_get(row, "complete")));
    assert_true(json_is_null(json_object_get(row_of(value, "broken"), "parameters")));
    assert_true(json_is_false(json_object_get(row_of(value, "half"), "complete")));
    json_decref(value);
    cli_free(&r);
}

static void lists_empty_store(void **state) {
    (void)state;
    setenv("ANTIGRAVITY_MODELS", "/nowhere/at/all", 1);
    cli_result r = CLI("models");
    assert_code(&r, 0);
    assert_says(r.err, "/nowhere/at/all: no models yet");
    cli_free(&r);
    r = CLI("models", "--json");
    assert_code(&r, 0);
    json_t *value = cli_json(&r);
    assert_int_equal(json_array_size(json_object_get(value, "rows")), 0);
    json_decref(value);
    cli_free(&r);
}

static void finds_store_by_environment(void **state) {
    (void)state;
    char place[160];
    unsetenv("ANTIGRAVITY_MODELS");
    setenv("XDG_DATA_HOME", root, 1);
    snprintf(place, sizeof place, "%s/antigravity/models", root);
    cli_result r = CLI("models");
    assert_says(r.err, place);
    cli_free(&r);
    setenv("XDG_DATA_HOME", "relative", 1);
    setenv("HOME", root, 1);
    snprintf(place, sizeof place, "%s/.local/share/antigravity/models", root);
    r = CLI("models");
    assert_says(r.err, place);
    cli_free(&r);
    unsetenv("XDG_DATA_HOME");
    unsetenv("HOME");
    r = CLI("models");
    assert_refused(&r, 1, "set ANTIGRAVITY_MODELS or HOME");
    cli_free(&r);
    r = CLI("info", "-m", "tiny");
    assert_refused(&r, 1, "tiny");
    cli_free(&r);
}

static void finds_models_by_name_and_prefix(void **state) {
    (void)state;
    const char *known[] = {"Tiny-1M-Base", "tiny-1m-base", "tiny-1m-b", "Linked", "l"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        cli_result r = CLI("info", "-m", known[i]);
        assert_code(&r, 0);
        assert_says(r.out, i < 3 ? "store/Tiny-1M-Base\n" : "store/linked\n");
        cli_free(&r);
    }
    cli_result r = CLI("info", "tiny");
    assert_refused(&r, 2, "-m tiny: ambiguous: Tiny-1M-Base, Tiny-1M-Chat; give more of the name");
    cli_free(&r);
    r = CLI("generate", "-m", "small", "-p", "x");
    assert_refused(&r, 1, "small: no such file or directory here, and no model of that name in");
    cli_free(&r);
    r = CLI("tokenize", "-m", "half", "-p", "x");
    assert_refused(&r, 1, "half: incomplete");
    cli_free(&r);
}

static void path_takes_precedence_over_name(void **state) {
    (void)state;
    char here[256];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(root), 0);
    assert_int_equal(mkdir("Tiny-1M-Base", 0777), 0);
    cli_result r = CLI("info", "-m", "Tiny-1M-Base");
    assert_int_equal(chdir(here), 0);
    assert_refused(&r, 1, "Tiny-1M-Base: is not a model");
    cli_free(&r);
}

static void shows_time_of_last_use(void **state) {
    (void)state;
    cli_result r = CLI("info", "-m", "tiny-1m-c");
    assert_code(&r, 0);
    cli_free(&r);
    r = CLI("models", "--json");
    json_t *value = cli_json(&r);
    const json_t *used = json_object_get(row_of(value, "Tiny-1M-Chat"), "used");
    assert_int_equal(strlen(json_string_value(used)), strlen("2026-11-22 09:14"));
    used = json_object_get(row_of(value, "Tiny-1M-Base"), "used");
    assert_true(json_is_null(used));
    json_decref(value);
    cli_free(&r);
}

static void finds_split_files_by_directory(void **state) {
    (void)state;
    char dir[256];
    snprintf(dir, sizeof dir, "%s/split", store);
    assert_int_equal(mkdir(dir, 0777), 0);
    write_file(dir, "m-00001-of-00002.gguf", "GGUF", 4);
    write_file(dir, "m-00002-of-00002.gguf", "GGUF", 4);
    cli_result r = CLI("info", "-m", "split");
    assert_refused(&r, 1, "split/m-00001-of-00002.gguf");
    cli_free(&r);
}

static void removes_named_model(void **state) {
    (void)state;
    cli_result r = CLI("rm", "Tiny-1M-Base");
    assert_refused(&r, 2, "give --yes");
    cli_free(&r);
    r = CLI("rm", "tiny", "--yes");
    assert_refused(&r, 1, "'tiny': no such model");
    assert_says(r.err, "did you mean Tiny-1M-Base, Tiny-1M-Chat");
    cli_free(&r);
    r = CLI("rm", "-y", "Tiny-1M-Base", "half", "broken");
    assert_code(&r, 0);
    assert_int_equal(r.n_out + r.n_err, 0);
    cli_free(&r);
    assert_false(is_there("Tiny-1M-Base") || is_there("Tiny-1M-Base.part"));
    assert_false(is_there("half.part") || is_there("broken.gguf"));
    assert_true(is_there("Tiny-1M-Chat") && is_there("linked") && is_there("notes.txt"));
}

static void keeps_targets_of_links(void **state) {
    (void)state;
    const char *names[] = {"../outside", "..", ".", "", "notes.txt", "store/../Tiny-1M-Chat"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cli_result r = CLI("rm", "--yes", names[i]);
        assert_refused(&r, 1, "no such model");
        cli_free(&r);
    }
    cli_result r = CLI("rm", "--yes", "linked", "Tiny-1M-Chat");
    assert_code(&r, 0);
    cli_free(&r);
    assert_false(is_there("linked") || is_there("Tiny-1M-Chat"));
    assert_true(is_there("../outside/config.json") && is_there("../outside/model.safetensors"));
    assert_int_equal(access(TINY "/model.safetensors", F_OK), 0);
}

static void asks_before_removal_on_terminal(void **state) {
    (void)state;
    const char *answers[] = {"n\n", "y\n"};
    for (size_t i = 0; i < 2; i++) {
        cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS("rm", "Tiny-1M-Chat"),
                                            .terminal_input = true,
                                            .terminal_errors = true,
                                            .input = answers[i],
                                            .n_input = 2});
        assert_says(r.err, "remove Tiny-1M-Chat (");
        assert_code(&r, i ? 0 : 1);
        assert_int_equal(is_there("Tiny-1M-Chat"), !i);
        cli_free(&r);
    }
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, before_each, after_each)

static void names_may_have_tags(void **state) {
    static const char *const spellings[] = {"Tiny-1M-Chat:latest", "tiny:1m-chat", "tiny-1m:c"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        cli_result r = CLI("info", "-m", spellings[i]);
        assert_code(&r, 0);
        assert_says(r.out, "Tiny-1M-Chat");
        cli_free(&r);
    }
    cli_result r = CLI("info", "-m", "tiny:1m");
    assert_refused(&r, 2, "ambiguous");
    cli_free(&r);
}

/* `run NAME` is `chat -m NAME`, also with a tag. */
static void run_chats_with_a_model_of_the_store(void **state) {
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s/Tale-2M", store);
    assert_int_equal(symlink(DEMO, path), 0);
    cli_result run =
        CLI("run", "tale:2m", "Once upon a time", "-n", "8", "--seed", "3", "-q", QUICK);
    cli_result chat =
        CLI("chat", "-m", path, "-p", "Once upon a time", "-n", "8", "--seed", "3", "-q", QUICK);
    assert_code(&run, 0);
    assert_code(&chat, 0);
    assert_true(run.n_out > 10);
    assert_string_equal(run.out, chat.out);
    cli_free(&run);
    cli_free(&chat);
    run = CLI("run", "absent");
    assert_refused(&run, 1, "'antigravity pull ORG/NAME' fetches one, such as");
    cli_free(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        EACH(lists_valid_and_broken_models),
        EACH(lists_empty_store),
        EACH(finds_models_by_name_and_prefix),
        EACH(names_may_have_tags),
        EACH(run_chats_with_a_model_of_the_store),
        EACH(path_takes_precedence_over_name),
        EACH(shows_time_of_last_use),
        EACH(finds_split_files_by_directory),
        EACH(removes_named_model),
        EACH(keeps_targets_of_links),
        EACH(asks_before_removal_on_terminal),
        EACH(finds_store_by_environment),
    };
    return cmocka_run_group_tests_name("cli models", tests, NULL, NULL);
}
