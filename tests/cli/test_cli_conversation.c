/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations of antigravity chat that are longer than the context, are resumed later, or are
 * stopped. */
#include "chat_home.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

/* ---- long and resumed conversations ---- */

#define SMALL QUICK, "-c", "160", "-n", "24", "-s", "5", "-q"
static const char *const story[] = {"Once there was a cat", "The cat had a boat", "A dog came",
                                    "They went home",       "It was night",       "The moon said",
                                    "In the morning",       "A bear came"};
enum { N_STORY = sizeof story / sizeof story[0] };

static char *lines_of_story(size_t first, size_t end, const char *last) {
    char *text = calloc(1, 1024);
    for (size_t i = first; i < end; i++) strcat(strcat(text, story[i]), "\n");
    return strcat(text, last);
}

static void evicts_entire_turns_and_keeps_first(void **state) {
    (void)state;
    char *input = lines_of_story(0, N_STORY, "/kv\n");
    cli_result r = CHAT(input, SMALL);
    assert_code(&r, 0);
    assert_says(r.err, "policy turns: an eviction leaves 120");
    unsigned turn, tokens, n_cached, n_evicted = 0, n_present = 0;
    const char *row = strstr(r.err, "    turn ");
    assert_non_null(row);
    assert_non_null(row = strstr(row, "\n       -")); /* the row of the text's first token */
    row++;
    while ((row = strchr(row, '\n')) &&
           sscanf(row + 1, " %u %u %u", &turn, &tokens, &n_cached) == 3) {
        row++;
        assert_true(n_cached == 0 || n_cached == tokens);
        if (turn == 1 || turn == N_STORY) assert_int_equal(n_cached, tokens);
        if (n_cached) n_present++;
        else n_evicted++;
    }
    assert_true(n_evicted > 2 && n_present > 2 && n_evicted + n_present == N_STORY);
    cli_free(&r);
    free(input);
}

static void resumed_conversation_is_bit_identical(void **state) {
    (void)state;
    char *all = lines_of_story(0, N_STORY, "/retry\n"), *one = lines_of_story(0, 6, ""),
         *two = lines_of_story(6, N_STORY, "/retry\n/stats\n");
    cli_result whole = CHAT(all, SMALL), first = CHAT(one, SMALL, "--resume", "the story");
    /* The seed comes from the conversation. */
    cli_result second = CHAT(two, QUICK, "-c", "160", "-n", "24", "-q", "--resume", "the story");
    assert_code(&first, 0);
    assert_code(&second, 0);
    assert_int_equal(whole.n_out, first.n_out + second.n_out);
    assert_int_equal(strncmp(whole.out, first.out, first.n_out), 0);
    assert_string_equal(whole.out + first.n_out, second.out);
    unsigned n_read, n_reused;
    read_stats(second.err, &n_read, &n_reused);
    assert_int_equal(n_read, 1);
    char path[160];
    struct stat s;
    snprintf(path, sizeof path, "%s/antigravity/chats", home);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 077, 0);
    strcat(path, "/the story.json");
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 077, 0);
    cli_free(&whole);
    cli_free(&first);
    cli_free(&second);
    /* The cache has another type: the messages are read again. */
    second = CHAT("/stats\nThe end\n", SMALL, "--resume", "the story", "--kv-type", "f32");
    assert_code(&second, 0);
    assert_says(second.err, "the conversation is read again");
    assert_says(second.err, "in all: 8 turn");
    cli_free(&second);
    free(all);
    free(one);
    free(two);
}

static void saves_and_resumes_conversations(void **state) {
    (void)state;
    cli_result r =
        CHAT("Once upon a time\n/save tale\nThen\n/load tale\n/load\nThen\n", GREEDY, "-n", "9");
    assert_code(&r, 0);
    assert_says(r.err, "saved as tale");
    assert_says(r.err, "(tale: 1 turn");
    assert_says(r.err, "B  tale\n");
    const char *rest = r.out + line_end(r.out, 1) + 1;
    const size_t half = strlen(rest) / 2;
    assert_int_equal(strncmp(rest, rest + half, half), 0);
    assert_true(half && rest[half - 1] == '\n');
    cli_free(&r);
    char path[192], dir[128];
    snprintf(dir, sizeof dir, "%s/antigravity/chats", home);
    write_file(dir, "broken.json", "{\"antigravity_chat\": 1,", 22);
    write_file(dir, "other.json", "{}", 2);
    r = CHAT("", "-q", "--resume", "broken");
    assert_code(&r, 1);
    assert_says(r.err, "broken.json: line 1");
    cli_free(&r);
    r = CHAT("", "-q", "--resume", "other");
    assert_code(&r, 1);
    assert_says(r.err, "not a conversation");
    cli_free(&r);
    snprintf(path, sizeof path, "%s/tale.agcache", dir);
    unlink(path);
    r = CHAT("Then\n", GREEDY, "-n", "9", "--resume", "tale");
    assert_code(&r, 0);
    assert_says(r.err, "the conversation is read again");
    cli_free(&r);
}

/* ---- invalid files ---- */

static const char chats_head[] = "{\"antigravity_chat\": 1, \"system\": null, \"seed\": 3, "
                                 "\"attempt\": 0, \"protected\": 2000000000, \"messages\": [";
static const char question[] = "{\"message\": {\"role\": \"user\", \"content\": \"Once\"}, "
                               "\"first\": -7}";

static void save_by_hand(const char *name, const char *answer) {
    char dir[128], file[64], text[1024];
    snprintf(dir, sizeof dir, "%s/antigravity/chats", home);
    snprintf(file, sizeof file, "%s.json", name);
    const int n = snprintf(text, sizeof text, "%s%s, %s]}", chats_head, question, answer);
    write_file(dir, file, text, (size_t)n);
}

static void ignores_ids_of_another_vocabulary(void **state) {
    (void)state;
    cli_result r = CHAT("Once\n/save folder\n", GREEDY, "-n", "2", "-q");
    assert_code(&r, 0);
    cli_free(&r);
    save_by_hand("foreign", "{\"message\": {\"role\": \"assistant\", \"content\": \" there was\"}, "
                            "\"ids\": [151643, -1]}");
    r = CHAT("a fox\n/stats\n", GREEDY, "-n", "5", "-c", "160", "--resume", "foreign");
    assert_code(&r, 0);
    assert_true(r.n_out > 0);
    assert_says(r.err, "in all: 2 turn");
    cli_free(&r);
}

static void failed_load_keeps_conversation(void **state) {
    (void)state;
    save_by_hand("damaged", "{\"message\": {\"content\": 5}}");
    static const char input[] = "Once upon a time\n/save kept\n/load damaged\n";
    cli_result r = CHAT(input, GREEDY, "-n", "5", "-q");
    assert_code(&r, 1);
    assert_says(r.err, "damaged.json: message 2 is damaged");
    cli_free(&r);
    r = CHAT("/stats\n", GREEDY, "-q", "--resume", "kept");
    assert_code(&r, 0);
    assert_says(r.err, "in all: 1 turn");
    cli_free(&r);
}

static void saves_named_conversation_before_load(void **state) {
    (void)state;
    cli_result r = CHAT("Once\n/save one\n/clear\nTwo\n/save two\nThree\n/load one\n", GREEDY, "-n",
                        "3", "-q");
    assert_code(&r, 0);
    cli_free(&r);
    r = CHAT("/stats\n", GREEDY, "-q", "--resume", "two");
    assert_says(r.err, "in all: 2 turn");
    cli_free(&r);
}

static void command_line_system_prompt_takes_precedence(void **state) {
    (void)state;
    char dir[64];
    make_chat_model(dir);
    cli_result r = CHAT("A fox\n", GREEDY, "-n", "5", "-q", "-m", dir, "--system", "Be kind",
                        "--resume", "fox");
    assert_code(&r, 0);
    cli_free(&r);
    r = CHAT("/system\nThen\n", GREEDY, "-n", "5", "-m", dir, "--system", "Be brief", "--resume",
             "fox");
    assert_code(&r, 0);
    assert_says(r.err, "  Be brief\n");
    assert_says(r.err, "read again with the new system prompt");
    cli_free(&r);
    r = CHAT("/system\n", GREEDY, "-q", "-m", dir, "--resume", "fox");
    assert_says(r.err, "  Be brief\n");
    cli_free(&r);
    remove_directory(dir);
}

static void rejects_system_prompt_that_fills_cache(void **state) {
    (void)state;
    char dir[64], system[2048] = "";
    make_chat_model(dir);
    for (int i = 0; i < 100; i++) strcat(system, "be kind and good ");
    cli_result r = CHAT("A fox\n", SMALL, "-m", dir, "--system", system);
    assert_refused(&r, 2, "before the first message");
    cli_free(&r);
    /* A rejected /system leaves the old prompt in force. */
    char input[2100];
    snprintf(input, sizeof input, "A fox\n/system %s\n", system);
    r = CHAT(input, SMALL, "-m", dir, "--system", "Be kind", "--resume", "kind");
    assert_code(&r, 1);
    assert_says(r.err, "the system prompt is too long");
    cli_free(&r);
    r = CHAT("/system\nA fox\n", SMALL, "-m", dir, "--resume", "kind");
    assert_code(&r, 0);
    assert_says(r.err, "  Be kind\n");
    cli_free(&r);
    remove_directory(dir);
}

/* ---- names ---- */

static void save_keeps_another_conversation(void **state) {
    (void)state;
    cli_result r = CHAT("Once\n/save mine\n", GREEDY, "-n", "3", "-q");
    assert_code(&r, 0);
    cli_free(&r);
    r = CHAT("Once\nTwo\n/save mine\n", GREEDY, "-n", "3", "-q");
    assert_code(&r, 1);
    assert_says(r.err, "/save! mine replaces it");
    cli_free(&r);
    r = CHAT("/stats\n", GREEDY, "-q", "--resume", "mine");
    assert_says(r.err, "in all: 1 turn");
    cli_free(&r);
    r = CHAT("Once\nTwo\n/save! mine\n/sav\n", GREEDY, "-n", "3", "-q");
    assert_code(&r, 0);
    cli_free(&r);
    r = CHAT("/stats\n", GREEDY, "-q", "--resume", "mine");
    assert_says(r.err, "in all: 2 turn");
    cli_free(&r);
}

static void lists_sizes_and_dates(void **state) {
    (void)state;
    char path[160], date[32];
    struct stat messages, cache;
    struct tm when;
    cli_result r = CHAT("Once\n/save listed\n/load\n", GREEDY, "-n", "3", "-q");
    assert_code(&r, 0);
    snprintf(path, sizeof path, "%s/antigravity/chats/listed.json", home);
    assert_int_equal(stat(path, &messages), 0);
    snprintf(path, sizeof path, "%s/antigravity/chats/listed.agcache", home);
    assert_int_equal(stat(path, &cache), 0);
    const char *line = strstr(r.err, "  listed\n");
    assert_non_null(line);
    while (line > r.err && line[-1] != '\n') line--;
    assert_non_null(localtime_r(&messages.st_mtime, &when));
    strftime(date, sizeof date, "  %Y-%m-%d %H:%M ", &when);
    assert_int_equal(strncmp(line, date, strlen(date)), 0);
    const double bytes = atof(line + strlen(date)) * 1024;
    const double off = bytes - (double)(messages.st_size + cache.st_size);
    assert_true(off > -16 && off < 16);
    assert_non_null(strstr(line, " KiB  listed"));
    cli_free(&r);
}

static void locks_open_conversation(void **state) {
    (void)state;
    char path[160];
    struct stat s;
    snprintf(path, sizeof path, "%s/antigravity/chats", home);
    mkdir(path, 0700);
    strcat(path, "/shared.lock");
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    cli_result r = CHAT("Once\n", GREEDY, "-n", "3", "-q", "--resume", "shared");
    assert_refused(&r, 1, "'shared' is open in another process");
    cli_free(&r);
    close(fd);
    r = CHAT("Once\n/load shared\n", GREEDY, "-n", "3", "-q", "--resume", "shared");
    assert_code(&r, 1); /* it is not saved yet */
    cli_free(&r);
    assert_int_not_equal(stat(path, &s), 0);
    r = CHAT("/load shared\n/stats\n", GREEDY, "-n", "3", "-q", "--resume", "shared");
    assert_code(&r, 0);
    assert_says(r.err, "in all: 1 turn");
    cli_free(&r);
}

static void reports_unwritable_directory_at_start(void **state) {
    (void)state;
    setenv("XDG_DATA_HOME", "/dev/null", 1);
    cli_result r = CHAT("Once\n", GREEDY, "-n", "3", "-q", "--resume", "x");
    setenv("XDG_DATA_HOME", home, 1);
    assert_refused(&r, 1, "/dev/null/antigravity");
    cli_free(&r);
}

/* ---- Ctrl-C ---- */

static void ctrl_c_stops_answer_and_keeps_conversation(void **state) {
    (void)state;
    setenv("AG_EDIT_LIBRARY", "", 1); /* plain lines, without an editor */
    static const char input[] = "Once upon a time\n/stats\nThen\n/quit\n";
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS("chat", GREEDY, "-n", "400", ENDLESS),
                                        .input = input,
                                        .n_input = sizeof input - 1,
                                        .terminal_input = true,
                                        .terminal_errors = true,
                                        .interrupt_after_output = 40});
    assert_code(&r, 0);
    assert_says(r.err, "stopped");
    assert_says(r.err, "ended by: cancelled");
    cli_free(&r);
    unsetenv("AG_EDIT_LIBRARY");
}

static void ctrl_c_stops_reading_prompt(void **state) {
    (void)state;
    setenv("AG_EDIT_LIBRARY", "", 1);
    char *text = calloc(12001, 8);
    for (int i = 0; i < 12000; i++) memcpy(text + 8 * i, "the fox ", 8);
    char dir[64], path[128];
    make_directory(dir);
    write_file(dir, "long.txt", text, strlen(text));
    snprintf(path, sizeof path, "%s/long.txt", dir);
    static const char input[] = "Once\n/stats\n/quit\n";
    cli_result r = cli_run(&(cli_setup){
        .args = CLI_ARGS("chat", GREEDY, "-n", "5", "-c", "1000", "--prefill-chunk", "16", text),
        .input = input,
        .n_input = sizeof input - 1,
        .terminal_input = true,
        .terminal_errors = true,
        .interrupt_when = "reading"});
    assert_code(&r, 0);
    assert_says(r.err, "stopped");
    assert_says(r.err, "in all: 1 turn");
    cli_free(&r);
    free(text);
    remove_directory(dir);
    unsetenv("AG_EDIT_LIBRARY");
}

static void signal_ends_pipe(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        static const char input[] = "Once upon a time\nThen\n";
        cli_result r = cli_run(&(cli_setup){
            .args = CLI_ARGS("chat", GREEDY, "-q", "-n", "400", ENDLESS, "--resume", "cut"),
            .input = input,
            .n_input = sizeof input - 1,
            .interrupt_after_output = 40,
            .signal = signals[i]});
        assert_code(&r, 128 + signals[i]);
        cli_free(&r);
    }
    /* The text so far is kept. */
    cli_result r = CHAT("/stats\n", GREEDY, "-q", "--resume", "cut");
    assert_says(r.err, "in all: 2 turn");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicts_entire_turns_and_keeps_first),
        cmocka_unit_test(resumed_conversation_is_bit_identical),
        cmocka_unit_test(saves_and_resumes_conversations),
        cmocka_unit_test(ignores_ids_of_another_vocabulary),
        cmocka_unit_test(failed_load_keeps_conversation),
        cmocka_unit_test(saves_named_conversation_before_load),
        cmocka_unit_test(command_line_system_prompt_takes_precedence),
        cmocka_unit_test(rejects_system_prompt_that_fills_cache),
        cmocka_unit_test(save_keeps_another_conversation),
        cmocka_unit_test(lists_sizes_and_dates),
        cmocka_unit_test(locks_open_conversation),
        cmocka_unit_test(reports_unwritable_directory_at_start),
        cmocka_unit_test(ctrl_c_stops_answer_and_keeps_conversation),
        cmocka_unit_test(ctrl_c_stops_reading_prompt),
        cmocka_unit_test(signal_ends_pipe),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
