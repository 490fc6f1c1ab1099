/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity chat in a real terminal: tmux, which can print its screen. Skipped without tmux or
 * libedit. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SKIPPED = 77, PATIENCE_MS = 60000, SCREEN = 1 << 16 };

static char home[64], socket_path[96];

/* Runs tmux with these arguments and stores its output in out[cap]. */
static int tmux(char *out, size_t cap, const char *words) {
    char command[4096];
    snprintf(command, sizeof command, "tmux -f /dev/null -S %s %s 2>&1", socket_path, words);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    const size_t n = fread(out, 1, cap - 1, p);
    out[n] = '\0';
    return pclose(p);
}

static void must(const char *words) {
    char out[1024];
    if (tmux(out, sizeof out, words) != 0) fail_msg("tmux %s: %s", words, out);
}

static void screen(char *out) { tmux(out, SCREEN, "capture-pane -p -J -S -200 -t chat"); }

static size_t count_of(const char *shown, const char *text) {
    size_t n = 0;
    while ((shown = strstr(shown, text))) n++, shown++;
    return n;
}

/* Waits until the screen shows the text this many times. */
static void wait_for_times(const char *text, size_t times) {
    char *shown = malloc(SCREEN);
    const struct timespec pause = {.tv_nsec = 20000000};
    for (int ms = 0; ms < PATIENCE_MS; ms += 20) {
        screen(shown);
        if (count_of(shown, text) >= times) {
            free(shown);
            return;
        }
        nanosleep(&pause, NULL);
    }
    fail_msg("\"%s\" does not appear on:\n%s", text, shown);
}

static void wait_for(const char *text) { wait_for_times(text, 1); }

/* Waits until the last line is an empty prompt: typed text then starts a new line. */
static void wait_for_prompt(void) {
    char *shown = malloc(SCREEN);
    const struct timespec pause = {.tv_nsec = 20000000};
    for (int ms = 0; ms < PATIENCE_MS; ms += 20) {
        screen(shown);
        size_t n = strlen(shown);
        while (n && (shown[n - 1] == '\n' || shown[n - 1] == ' ')) n--;
        if (n && shown[n - 1] == '>' && (n == 1 || shown[n - 2] == '\n')) {
            free(shown);
            return;
        }
        nanosleep(&pause, NULL);
    }
    fail_msg("no prompt ends:\n%s", shown);
}

static void type(const char *text) {
    char words[1024];
    snprintf(words, sizeof words, "send-keys -t chat -l '%s'", text);
    must(words);
}

static void press(const char *keys) {
    char words[128];
    snprintf(words, sizeof words, "send-keys -t chat %s", keys);
    must(words);
}

/* libedit is loaded at run time and may be missing for another machine's programs. */
static void skip_without_editor(void) {
    char *shown = malloc(SCREEN);
    screen(shown);
    const bool missing = strstr(shown, "without libedit");
    free(shown);
    if (!missing) return;
    must("kill-session -t chat");
    skip();
}

/* Starts the program with these options in a new tmux session. */
static void start(const char *options) {
    char words[2048];
    snprintf(words, sizeof words,
             "new-session -d -x 90 -y 30 -s chat \"env LC_ALL=C XDG_STATE_HOME=%s XDG_DATA_HOME=%s "
             "%s chat --weights bf16 --temperature 0 %s; echo left with \\$?; sleep 60\"",
             home, home, AG_PROGRAM, options);
    must(words);
    wait_for_prompt();
    skip_without_editor();
}

static void stop(void) { must("kill-session -t chat"); }

static int make_home(void **state) {
    (void)state;
    char out[256];
    make_directory(home);
    snprintf(socket_path, sizeof socket_path, "%s/tmux", home);
    return tmux(out, sizeof out, "new-session -d -s waiting 'sleep 600'");
}

static int remove_home(void **state) {
    (void)state;
    char out[256], path[128];
    tmux(out, sizeof out, "kill-server");
    unlink(socket_path);
    snprintf(path, sizeof path, "%s/antigravity", home);
    if (access(path, F_OK) == 0) remove_directory(path);
    remove_directory(home);
    return 0;
}

static void edits_and_remembers_lines(void **state) {
    (void)state;
    start("-n 4");
    type("/set no\xe7\x8c\xab x\xf0\x9f\xa6\x8ayz"); /* wide characters, one of them beyond 16 bits
                                                      */
    press("Left Left BSpace Left BSpace End");
    type(" 1");
    press("Enter");
    wait_for("unknown setting 'no\xe7\x8c\xabxyz'");
    wait_for_prompt();
    press("Up");
    wait_for("> /set no\xe7\x8c\xabxyz 1");
    press("C-u");
    type("Once upon a time");
    press("Enter");
    wait_for("there was");
    wait_for_prompt();
    press("C-d");
    wait_for("left with 0");
    stop();
    /* A new process has the history. */
    start("-n 4");
    press("Up Up");
    wait_for("> /set no\xe7\x8c\xabxyz 1");
    must("resize-window -t chat -x 40 -y 20");
    press("C-u");
    type("/set temp");
    wait_for("> /set temp");
    press("C-c");
    wait_for_prompt();
    press("C-d");
    wait_for("left with 0");
    stop();
}

static void ctrl_c_stops_answer_and_twice_leaves(void **state) {
    (void)state;
    start("--logit-bias 4091:-inf --logit-bias 4094:-inf -n -1");
    type("Once upon a time");
    press("Enter");
    wait_for("there was");
    press("C-c");
    wait_for_prompt();
    type("/stats");
    press("Enter");
    wait_for("ended by: cancelled");
    wait_for_prompt();
    type("/stat");
    press("C-c"); /* discards this line; it is not the second Ctrl-C, since a line was sent in
                     between */
    wait_for_prompt();
    type("/set x 1");
    press("Enter");
    wait_for("unknown setting");
    wait_for_prompt();
    press("C-c");
    wait_for_times("Ctrl-C again leaves", 2); /* two in a row would end the program at once */
    wait_for_prompt();
    press("C-c");
    wait_for("left with 0");
    stop();
}

static void ctrl_c_drops_typed_and_partly_pasted_text(void **state) {
    (void)state;
    start("-n 4");
    press("C-c");
    wait_for("Ctrl-C again leaves");
    wait_for_prompt();
    type("typed");
    wait_for("> typed");
    press("C-c"); /* not the second Ctrl-C: text was typed in between */
    wait_for_prompt();
    type("/set x 1");
    press("Enter");
    wait_for("unknown setting");
    wait_for_prompt();
    press("-H 1b 5b 32 30 30 7e 61 62 63"); /* a paste without an end */
    press("C-c");
    wait_for_prompt();
    type("/set y 1");
    press("Enter");
    wait_for("unknown setting 'y'");
    wait_for_prompt();
    press("C-d");
    wait_for("left with 0");
    stop();
}

static void accepts_long_pasted_text(void **state) {
    (void)state;
    char path[128], words[256];
    snprintf(path, sizeof path, "%s/paste", home);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++) fprintf(f, "line %d of a text that is pasted\n", i);
    fclose(f);
    start("-n 4");
    snprintf(words, sizeof words, "load-buffer %s", path);
    must(words);
    type("Of this: ");
    must("paste-buffer -p -t chat");
    wait_for("> Of this: [pasted text 1: 3000 lines, 103890 bytes]");
    type(" tell more");
    press("Enter");
    wait_for("reading");
    press("C-c");
    wait_for_prompt();
    type("/stats");
    press("Enter");
    wait_for("ended by: cancelled");
    wait_for_prompt();
    /* A short paste is inserted like typed text. */
    must("set-buffer -- '/set pasted 1\nx'");
    must("paste-buffer -p -t chat");
    wait_for("[pasted text 1: 2 lines, 15 bytes]");
    press("Enter");
    wait_for("unknown setting 'pasted");
    wait_for_prompt();
    must("set-buffer -- '/set short'");
    must("paste-buffer -p -t chat");
    wait_for("> /set short");
    press("C-u");
    press("C-d");
    wait_for("left with 0");
    stop();
}

static bool shows(const char *text) {
    char *shown = malloc(SCREEN);
    screen(shown);
    const bool found = strstr(shown, text);
    free(shown);
    return found;
}

/* Sends a message and waits for the beginning of its answer. */
static void ask(const char *message, const char *beginning) {
    type(message);
    press("Enter");
    wait_for(beginning);
}

static void keeps_text_pasted_during_answer_in_one_piece(void **state) {
    (void)state;
    start("--logit-bias 4091:-inf --logit-bias 4094:-inf -n 1200");
    ask("Once upon a time", "there was");
    must("set-buffer -- '/set marked 1\nx'");
    must("paste-buffer -p -t chat");
    wait_for("[pasted text 1: 2 lines, 15 bytes]");
    assert_false(shows("unknown setting"));
    press("Enter");
    wait_for("unknown setting 'marked");
    wait_for_prompt();
    press("C-l");
    /* A terminal without bracketed paste sends lines. */
    ask("/retry", "there was");
    must("set-buffer -- '/set plain 1\nmore\nx'");
    must("paste-buffer -t chat");
    wait_for("[pasted text 1: 3 lines, 19 bytes]");
    assert_false(shows("unknown setting 'plain"));
    press("Enter");
    wait_for("unknown setting 'plain");
    wait_for_prompt();
    press("C-l");
    /* One line typed during an answer is sent. */
    ask("/retry", "there was");
    type("/set ahead 1");
    press("Enter");
    wait_for("unknown setting 'ahead");
    wait_for_prompt();
    press("C-d");
    wait_for("left with 0");
    stop();
}

static void ctrl_c_drops_text_typed_during_answer(void **state) {
    (void)state;
    start("--logit-bias 4091:-inf --logit-bias 4094:-inf -n -1");
    ask("Once upon a time", "there was");
    type("/set before 1");
    press("Enter");
    press("C-c");
    wait_for_prompt();
    type("/set behind 1");
    press("Enter");
    wait_for("unknown setting 'behind");
    wait_for_prompt();
    assert_false(shows("unknown setting 'before"));
    press("C-d");
    wait_for("left with 0");
    stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edits_and_remembers_lines),
        cmocka_unit_test(ctrl_c_stops_answer_and_twice_leaves),
        cmocka_unit_test(ctrl_c_drops_typed_and_partly_pasted_text),
        cmocka_unit_test(accepts_long_pasted_text),
        cmocka_unit_test(keeps_text_pasted_during_answer_in_one_piece),
        cmocka_unit_test(ctrl_c_drops_text_typed_during_answer),
    };
    if (system("tmux -V >/dev/null 2>&1") != 0) {
        printf("skipped: there is no tmux here\n");
        return SKIPPED;
    }
    if (!AG_HAS_EDIT) {
        printf("skipped: built without libedit\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
