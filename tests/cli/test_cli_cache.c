/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity generate --save-cache, --load-cache and --prompt-cache: each run is a new process. */
#include "cli.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], file[96];

static int set_up(void **state) {
    (void)state;
    make_directory(dir);
    snprintf(file, sizeof file, "%s/cache", dir);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    remove_directory(dir);
    return 0;
}

static size_t n_files(void) {
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static json_t *run_json(const char *const *args) {
    cli_result r = cli_run(&(cli_setup){.args = args});
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    cli_free(&r);
    return root;
}

#define JSON(...) \
    run_json(CLI_ARGS("generate", GREEDY, "--ignore-eos", "--json", "-q", __VA_ARGS__))

static json_t *ids_of(json_t *run) {
    json_t *ids = json_object_get(run, "ids");
    assert_true(json_is_array(ids));
    return ids;
}

/* Asserts that the ids of the parts, joined, equal those of `whole`. */
static void same_ids(json_t *whole, json_t *const *parts, size_t n_parts) {
    json_t *joined = json_array();
    for (size_t i = 0; i < n_parts; i++) json_array_extend(joined, ids_of(parts[i]));
    if (!json_equal(joined, ids_of(whole))) {
        fail_msg("%s\nis not %s", json_dumps(joined, JSON_COMPACT),
                 json_dumps(ids_of(whole), JSON_COMPACT));
    }
    json_decref(joined);
}

static void resumed_text_equals_uninterrupted_text(void **state) {
    (void)state;
    const char *const policies[] = {"streaming", "h2o", "snapkv", "tova", "keydiff"};
    static const char text[] = "The old king had three sons, and the eldest of them was proud, and "
                               "the second was proud too, but the youngest had a good heart.";
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
#define MANAGED                                                                                   \
    "--eviction-policy", policies[i], "--kv-budget", "24", "--kv-recent", "8", "--kv-slack", "4", \
        "--snapkv-window", "8", "--kv-type", "q8_0,q4_0", "-c", "200", "--head-budget",           \
        i ? "adaptive" : "even"
        json_t *whole = JSON("-p", text, "-n", "30", MANAGED);
        json_t *parts[] = {JSON("-p", text, "-n", "12", "--save-cache", file, MANAGED),
                           JSON("-p", "", "-n", "18", "--load-cache", file, MANAGED)};
        same_ids(whole, parts, 2);
        json_decref(whole);
        json_decref(parts[0]);
        json_decref(parts[1]);
    }
    assert_int_equal(n_files(), 1);
}

static void appends_prompt_to_loaded_conversation(void **state) {
    (void)state;
    json_t *first = JSON("--prompt-ids", "4090,790,650,258,469", "-n", "3", "--save-cache", file);
    json_t *second = JSON("--prompt-ids", "300,301", "-n", "6", "--load-cache", file);
    char all[256] = "4090,790,650,258,469";
    json_t *id;
    size_t i;
    json_array_foreach(ids_of(first), i, id) {
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, ",%d", (int)json_integer_value(id));
    }
    strcat(all, ",300,301");
    json_t *whole = JSON("--prompt-ids", all, "-n", "6");
    same_ids(whole, &second, 1);
    json_decref(first);
    json_decref(second);
    json_decref(whole);
}

static void adds_no_second_bos_to_loaded_text(void **state) {
    (void)state;
    cli_result a =
        CLI("generate", GREEDY, "-q", "-p", "Once upon", "-n", "0", "--save-cache", file);
    assert_code(&a, 0);
    cli_result b = CLI("generate", GREEDY, "-q", "-p", " a time", "-n", "6", "--load-cache", file);
    cli_result c = CLI("generate", GREEDY, "-q", "-p", "Once upon a time", "-n", "6");
    assert_code(&b, 0);
    assert_string_equal(b.out, c.out);
    cli_free(&a);
    cli_free(&b);
    cli_free(&c);
}

static void reuses_cached_prompt(void **state) {
    (void)state;
    remove(file);
#define STORY(text, ...) CLI("generate", GREEDY, "-v", "-p", text, "-n", "8", __VA_ARGS__)
    cli_result plain = STORY("Once upon a time there was a fox", "-t", "2");
    cli_result made = STORY("Once upon a time", "--prompt-cache", file);
    assert_code(&made, 0);
    assert_says(made.err, "prompt        5 tokens");
    cli_result longer = STORY("Once upon a time there was a fox", "--prompt-cache", file);
    assert_code(&longer, 0);
    assert_string_equal(longer.out, plain.out);
    assert_says(longer.err, ": 5 of ");
    assert_does_not_say(longer.err, "prompt        0 tokens");
    cli_result again = STORY("Once upon a time there was a fox", "--prompt-cache", file);
    assert_string_equal(again.out, plain.out);
    assert_says(again.err, "prompt        0 tokens");
    cli_result shorter = STORY("Once upon a time", "--prompt-cache", file);
    assert_string_equal(shorter.out, made.out);
    assert_says(shorter.err, "prompt        1 tokens");
    cli_result other = STORY("A fox", "--prompt-cache", file, "-q");
    assert_code(&other, 2); /* -q and -v */
    cli_free(&other);
    other = CLI("generate", GREEDY, "-q", "-p", "A fox", "-n", "8", "--prompt-cache", file);
    cli_result other_plain = CLI("generate", GREEDY, "-q", "-p", "A fox", "-n", "8");
    assert_string_equal(other.out, other_plain.out);
    cli_result *all[] = {&plain, &made, &longer, &again, &shorter, &other, &other_plain};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) cli_free(all[i]);
}

static void reuses_evicted_prompt_only_if_equal(void **state) {
    (void)state;
    remove(file);
#define KING(text, ...)                                                                 \
    CLI("generate", GREEDY, "-q", "-p", text, "-n", "6", "--eviction-policy", "h2o",    \
        "--kv-budget", "16", "--protected-prefix", "4", "--kv-recent", "4", "-c", "64", \
        __VA_ARGS__)
    static const char begin[] = "The old king had three sons, and the eldest of them was proud,";
    static const char other[] = "The old king had three sons, and the eldest of all was a fox,";
    cli_result made = KING(begin, "--prompt-cache", file);
    assert_code(&made, 0);
    cli_result again = KING(begin, "--prompt-cache", file);
    assert_string_equal(again.out, made.out);
    cli_result plain = KING(other, "-t", "1");
    cli_result anew = KING(other, "--prompt-cache", file);
    assert_string_equal(anew.out, plain.out);
    cli_free(&made);
    cli_free(&again);
    cli_free(&plain);
    cli_free(&anew);
}

static void rejects_incompatible_files_by_name(void **state) {
    (void)state;
    cli_result made = CLI("generate", GREEDY, "-q", "-p", "A fox", "-n", "2", "--save-cache", file);
    assert_code(&made, 0);
    cli_free(&made);
#define REFUSED(code, part, ...)                                             \
    do {                                                                     \
        cli_result r = CLI("generate", QUICK, "-q", "-n", "2", __VA_ARGS__); \
        assert_refused(&r, code, part);                                      \
        cli_free(&r);                                                        \
    } while (0)
    REFUSED(1, ": saved for k_rotation none, this session has hadamard", "-p", "A", "--k-rotation",
            "on", "--load-cache", file);
    REFUSED(1, ": saved for k_type f16, this session has q8_0", "-p", "A", "--kv-type", "q8_0,f16",
            "--load-cache", file);
    REFUSED(1, ": saved for ", "--prompt-ids", "1,2", "-m", TINY, "--load-cache", file);
    REFUSED(1, "/nowhere: No such file", "-p", "A", "--load-cache", "/nowhere");
    REFUSED(1, "/nowhere/c: cannot write: No such", "-p", "A", "--save-cache", "/nowhere/c");
    REFUSED(1, "/nowhere/c: cannot write: No such", "-p", "A", "--prompt-cache", "/nowhere/c");
    REFUSED(1, "exists and is not a regular file", "-p", "A", "--save-cache", dir);
    REFUSED(2, "exclude each other", "-p", "A", "--load-cache", file, "--prompt-cache", file);
    REFUSED(2, "the prompt is empty", "-p", "", "--no-bos", "--save-cache", file);
    write_file(dir, "notes", "dear diary, it was a long day", 29);
    char notes[96];
    snprintf(notes, sizeof notes, "%s/notes", dir);
    REFUSED(1, "/notes: not a saved cache", "-p", "A", "--load-cache", notes);
    REFUSED(1, "/notes: not a saved cache", "-p", "A", "--prompt-cache", notes);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1000, SEEK_END), 0);
    assert_int_equal(fwrite("damage", 1, 6, f), 6);
    assert_int_equal(fclose(f), 0);
    REFUSED(1, "/cache: damaged: ", "-p", "A", "--load-cache", file);
    remove(notes);
}

static void reports_missing_file_before_inspecting_model(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-p", "A", "--load-cache", "/nowhere");
    assert_refused(&r, 1, "/nowhere: No such file");
    cli_free(&r);
}

static void rereads_prompt_when_settings_differ(void **state) {
    (void)state;
    static const char other[] =
        "saved for k_type f16, this session has q8_0; the prompt is read again and replaces it\n";
    remove(file);
    cli_result made = STORY("Once upon a time", "--prompt-cache", file);
    assert_code(&made, 0);
    cli_result plain = STORY("Once upon a time", "--kv-type", "q8_0");
    cli_result anew = STORY("Once upon a time", "--kv-type", "q8_0", "--prompt-cache", file);
    assert_code(&anew, 0);
    assert_string_equal(anew.out, plain.out);
    assert_says(anew.err, other);
    assert_says(anew.err, "prompt        5 tokens");
    cli_result again = STORY("Once upon a time", "--kv-type", "q8_0", "--prompt-cache", file);
    assert_string_equal(again.out, plain.out);
    assert_does_not_say(again.err, "read again");
    assert_says(again.err, "prompt        0 tokens");
    /* fewer slots than the saved cache */
    cli_result less = STORY("Once", "--kv-type", "q8_0", "-c", "4", "--prompt-cache", file);
    assert_code(&less, 0);
    assert_says(less.err, "read again");
    cli_result *all[] = {&made, &plain, &anew, &again, &less};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) cli_free(all[i]);
}

static void keeps_old_file_when_disk_is_full(void **state) {
    (void)state;
    struct rlimit before, little;
    remove(file);
    write_file(dir, "cache", "what was there", 14);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = (struct rlimit){4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    cli_result r = CLI("generate", GREEDY, "-q", "-p", "A fox", "-n", "2", "--save-cache", file);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_code(&r, 1);
    assert_says(r.err, "/cache: writing failed: ");
    cli_free(&r);
    assert_int_equal(n_files(), 1);
    char text[32] = "";
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof text, f), 14);
    fclose(f);
    assert_string_equal(text, "what was there");
    r = CLI("generate", GREEDY, "-q", "-p", "A fox", "-n", "2", "--save-cache", "/dev/full");
    assert_code(&r, 1);
    assert_says(r.err, "/dev/full: exists and is not a regular file");
    cli_free(&r);
}

static void saves_interrupted_run(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        remove(file);
        cli_result r = cli_run(
            &(cli_setup){.args = CLI_ARGS("generate", GREEDY, "-q", "-p", "Once upon a time", "-n",
                                          "-1", "--ignore-eos", "--save-cache", file),
                         .interrupt_after_output = 20,
                         .signal = signals[i]});
        assert_code(&r, 128 + signals[i]);
        assert_int_equal(n_files(), 1);
        cli_result next = CLI("generate", GREEDY, "-v", "-p", "", "-n", "2", "--load-cache", file);
        assert_code(&next, 0);
        assert_says(next.err, "prompt        0 tokens");
        cli_free(&r);
        cli_free(&next);
    }
}

/* The terminal that closes also received the text. */
static void saves_conversation_when_terminal_closes(void **state) {
    (void)state;
    remove(file);
    signal(SIGPIPE, SIG_IGN);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (dup2(ends[1], STDOUT_FILENO) < 0) _exit(126);
        close(ends[0]);
        close(ends[1]);
        execl(AG_PROGRAM, AG_PROGRAM, "generate", "--weights", "bf16", "-q", "-p", "Once", "-n",
              "-1", "--ignore-eos", "--save-cache", file, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    char text[16];
    int status;
    assert_true(read(ends[0], text, sizeof text) > 0);
    kill(pid, SIGHUP);
    close(ends[0]); /* The program ignores SIGPIPE, so write() fails as on a closed terminal. */
    while (waitpid(pid, &status, 0) < 0) {}
    assert_true(WIFEXITED(status));
    assert_int_equal(n_files(), 1);
}

static size_t bytes_of(const char *path) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long n = ftell(f);
    fclose(f);
    return (size_t)n;
}

static void replay_reduces_cache(void **state) {
    (void)state;
    static const char text[] = "Once upon a time there was a king who had three sons. The eldest "
                               "went into the forest and found a golden bird that could speak.";
    cli_result r = CLI("generate", GREEDY, "-p", text, "-n", "0", "--save-cache", file);
    assert_code(&r, 0);
    assert_does_not_say(r.err, "replay");
    cli_free(&r);
    const size_t whole = bytes_of(file);
    r = CLI("generate", GREEDY, "-p", text, "-n", "0", "--save-cache", file, "--replay", "0.5",
            "--replay-keep", "30%");
    assert_code(&r, 0);
    assert_says(r.err, "remain (mean over heads)");
    cli_free(&r);
    assert_true(bytes_of(file) < whole);
    json_decref(JSON("--load-cache", file, "-p", " He said", "-n", "3"));
    /* Saves a loaded conversation too, though nothing is added to it. */
    cli_result again = CLI("generate", GREEDY, "-p", text, "-n", "0", "--save-cache", file);
    assert_code(&again, 0);
    cli_free(&again);
    again = CLI("generate", GREEDY, "--load-cache", file, "-p", "", "-n", "0", "--save-cache", file,
                "--replay", "0.5", "--replay-keep", "30%");
    assert_code(&again, 0);
    cli_free(&again);
    assert_true(bytes_of(file) < whole);
    r = CLI("generate", "-p", text, "--replay", "1", "--eviction-policy", "h2o");
    assert_refused(&r, 2, "--replay and --eviction-policy h2o exclude each other");
    cli_free(&r);
    r = CLI("generate", "-p", text, "--replay-keep", "20");
    assert_refused(&r, 2, "--replay-keep needs --replay");
    cli_free(&r);
    r = CLI("generate", "-p", text, "--replay", "1", "--replay-keep", "200%");
    assert_refused(&r, 2, "--replay-keep");
    cli_free(&r);
    remove(file);
}

/* Partial chunks exist in every layer, and layers differ in their heads. */
static void compactor_reads_partial_chunks_of_mixed_layers(void **state) {
    (void)state;
    static char ids[4096];
    size_t n = 0;
    for (int i = 0; i < 400; i++)
        n += (size_t)snprintf(ids + n, sizeof ids - n, "%s%d", i ? "," : "", 5 + i * 7 % 90);
    cli_result r = CLI("generate", "-m", AG_GOLDEN_MODELS "/gemma4", "--prompt-ids", ids, "-n", "2",
                       "-c", "512", "--eviction-policy", "compactor", "--kv-budget", "300",
                       "--prefill-chunk", "100");
    assert_code(&r, 0);
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_reduces_cache),
        cmocka_unit_test(compactor_reads_partial_chunks_of_mixed_layers),
        cmocka_unit_test(resumed_text_equals_uninterrupted_text),
        cmocka_unit_test(appends_prompt_to_loaded_conversation),
        cmocka_unit_test(adds_no_second_bos_to_loaded_text),
        cmocka_unit_test(reuses_cached_prompt),
        cmocka_unit_test(reuses_evicted_prompt_only_if_equal),
        cmocka_unit_test(rejects_incompatible_files_by_name),
        cmocka_unit_test(reports_missing_file_before_inspecting_model),
        cmocka_unit_test(rereads_prompt_when_settings_differ),
        cmocka_unit_test(keeps_old_file_when_disk_is_full),
        cmocka_unit_test(saves_interrupted_run),
        cmocka_unit_test(saves_conversation_when_terminal_closes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
