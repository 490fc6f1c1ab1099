/* SPDX-License-Identifier: Apache-2.0 */
/* Signals, closed pipes, full disks and terminals. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENDLESS "generate", QUICK, "-p", "Once", "-n", "-1", "--ignore-eos"

static void ctrl_c_prints_statistics_and_exits_130(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS(ENDLESS), .interrupt_after_output = 20});
    assert_code(&r, 130);
    assert_says(r.err, "finish   cancelled");
    assert_says(r.err, "tokens/s");
    assert_int_equal(r.out[r.n_out - 1], '\n');
    cli_free(&r);
}

static void sigterm_and_sighup_end_in_order(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGHUP};
    for (size_t i = 0; i < 2; i++) {
        cli_result r = cli_run(&(cli_setup){
            .args = CLI_ARGS(ENDLESS), .interrupt_after_output = 20, .signal = signals[i]});
        assert_code(&r, 128 + signals[i]);
        assert_says(r.err, "finish   cancelled");
        cli_free(&r);
        r = cli_run(&(cli_setup){.args = CLI_ARGS(ENDLESS, "--json"),
                                 .interrupt_after_errors = 250, /* length of the memory note */
                                 .signal = signals[i]});
        assert_code(&r, 128 + signals[i]);
        if (!r.n_out) assert_says(r.err, "interrupted"); /* loading was interrupted */
        else json_decref(cli_json(&r));
        cli_free(&r);
    }
}

static void first_ctrl_c_prints_notice_on_terminal(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){
        .args = CLI_ARGS(ENDLESS), .interrupt_after_output = 20, .terminal_errors = true});
    assert_code(&r, 130);
    const char *answer = strstr(r.err, "\r\nstopping ...\r\n");
    assert_non_null(answer);
    assert_non_null(strstr(answer, "finish   cancelled"));
    cli_free(&r);
    r = cli_run(&(cli_setup){
        .args = CLI_ARGS(ENDLESS, "-q"), .interrupt_after_output = 20, .terminal_errors = true});
    assert_code(&r, 130);
    assert_string_equal(r.err, "");
    cli_free(&r);
}

/* The object is printed after the first signal, to a pipe that is never read. */
static void second_signal_ends_process(void **state) {
    (void)state;
    static const int signals[][2] = {
        {SIGINT, SIGINT}, {SIGTERM, SIGTERM}, {SIGINT, SIGTERM}, {SIGHUP, SIGINT}};
    char dir[64], path[96], filling[4096] = "";
    make_directory(dir);
    snprintf(path, sizeof path, "%s/full", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR | O_NONBLOCK);
    assert_true(fd >= 0);
    while (write(fd, filling, sizeof filling) > 0) {}
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        cli_result r = cli_run(&(cli_setup){
            .args = CLI_ARGS(ENDLESS, "--json", "-v", "--eviction-policy", "streaming"),
            .output_path = path,
            .terminal_errors = true,
            .interrupt_when = "loaded in",
            .signal = signals[i][0],
            .second_signal = signals[i][1]});
        if (r.signal != signals[i][1]) fail_msg("signal %d; it said:\n%s", r.signal, r.err);
        cli_free(&r);
    }
    close(fd);
    remove_directory(dir);
}

static void ctrl_c_prints_json_of_partial_text(void **state) {
    (void)state;
    /* With --json standard output is empty until the end: the note on the model triggers the
     * signal. */
    cli_result r =
        cli_run(&(cli_setup){.args = CLI_ARGS(ENDLESS, "--json"), .interrupt_after_errors = 20});
    assert_code(&r, 130);
    if (r.n_out) { /* The signal may arrive while the model is loaded. */
        json_t *root = cli_json(&r);
        assert_string_equal(json_string_value(json_object_get(root, "finish_reason")), "cancelled");
        json_decref(root);
    } else {
        assert_says(r.err, "interrupted");
    }
    cli_free(&r);
}

/* The prompt is an option: while standard input is read, the default handler ends the program. */
static void ctrl_c_ends_reading_long_prompt(void **state) {
    (void)state;
    enum { N = 7600 };
    static char text[N + 1];
    for (size_t i = 0; i < N; i += 4) memcpy(text + i, "fox ", 4);
    cli_result r = cli_run(
        &(cli_setup){.args = CLI_ARGS("generate", QUICK, "--prefill-chunk", "16", "-p", text),
                     .interrupt_after_errors = 20});
    assert_code(&r, 130);
    cli_free(&r);
}

static void ctrl_c_ends_measurement(void **state) {
    (void)state;
    cli_result r =
        cli_run(&(cli_setup){.args = CLI_ARGS("bench", QUICK, "--shape", "tiny", "-n", "64", "-p",
                                              "0", "-o", "csv", "-r", "100", "-v"),
                             .interrupt_after_errors = 10});
    assert_code(&r, 130);
    assert_says(r.err, "interrupted");
    cli_free(&r);
}

static void ctrl_c_ends_encoding(void **state) {
    (void)state;
    static char text[8 << 20];
    memset(text, 'a', sizeof text);
    for (size_t i = 5; i < sizeof text; i += 6) text[i] = ' ';
    /* The note on the model is printed after the text is read and before it is encoded. */
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS("tokenize"),
                                        .input = text,
                                        .n_input = sizeof text,
                                        .interrupt_after_errors = 10});
    assert_true(r.signal == SIGINT || r.code == 130);
    assert_int_equal(r.n_out, 0);
    cli_free(&r);
}

static void closed_pipe_ends_program_silently(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS(ENDLESS, "-q"), .close_output_after = 10});
    assert_true(r.signal == SIGPIPE || r.code == 128 + SIGPIPE);
    assert_string_equal(r.err, "");
    cli_free(&r);
}

static void reports_full_disk(void **state) {
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
        CLI_ARGS("bench", "-m", TINY, "-p", "2", "-n", "2", "-r", "1", "-q"),
        CLI_ARGS("eval", "ppl", "-m", TINY, "--prompt-ids", "1,2,3", "-q"),
        CLI_ARGS("eval", "kl", "-m", TINY, "--prompt-ids", "1,2,3", "-q"),
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        cli_result r = cli_run(&(cli_setup){.args = commands[i], .output_path = "/dev/full"});
        assert_refused(&r, 1, "standard output: No space left on device");
        cli_free(&r);
    }
}

/* The default action of SIGXFSZ would end the program without a message. */
static void reports_file_size_limit(void **state) {
    (void)state;
    char dir[64], path[96];
    struct rlimit before;
    make_directory(dir);
    write_file(dir, "out", "", 0);
    snprintf(path, sizeof path, "%s/out", dir);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit little = {.rlim_cur = 64, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    cli_result r = cli_run(&(cli_setup){
        .args = CLI_ARGS("generate", QUICK, "-p", "Once", "-n", "300", "-q"), .output_path = path});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_refused(&r, 1, "standard output: File too large");
    cli_free(&r);
    remove_directory(dir);
}

/* Text of a model must not control a terminal; a pipe receives it unchanged. */
static void removes_control_characters_from_text(void **state) {
    (void)state;
    const char *const *args = CLI_ARGS("generate", GREEDY, "-q", "-p", "Once", "--choice",
                                       "a\x1b[2Jb\tc\xc2\x9b"
                                       "d\re");
    cli_result r = cli_run(&(cli_setup){.args = args, .terminal_output = true});
    assert_code(&r, 0);
    assert_says(r.out, "a[2Jb");
    assert_says(r.out, "cde");
    assert_does_not_say(r.out, "\x1b");
    assert_does_not_say(r.out, "\xc2");
    cli_free(&r);
    r = cli_run(&(cli_setup){.args = args});
    assert_string_equal(r.out, "a\x1b[2Jb\tc\xc2\x9b"
                               "d\re\n");
    cli_free(&r);
}

/* A reused descriptor would receive the messages for standard error. */
static void closed_streams_are_not_reused(void **state) {
    (void)state;
    cli_result r = cli_run(
        &(cli_setup){.args = CLI_ARGS("generate", "-q", "-f", "/proc/self/fd/2", "--no-bos"),
                     .no_errors = true});
    assert_code(&r, 2); /* The prompt is empty (2); 1 would mean a missing file. */
    cli_free(&r);
}

static void draws_progress_only_on_terminal(void **state) {
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

/* A line that is redrawn must not wrap. */
static void progress_fits_narrow_terminal(void **state) {
    (void)state;
    static const unsigned short widths[] = {12, 30, 50, 65};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        cli_result r =
            cli_run(&(cli_setup){.args = CLI_ARGS("generate", QUICK, "-p", "A fox", "-n", "2"),
                                 .terminal_errors = true,
                                 .columns = widths[i]});
        assert_code(&r, 0);
        assert_says(r.err, "100 %");
        for (const char *at = strchr(r.err, '\r'); at; at = strchr(at + 1, '\r')) {
            size_t n = strcspn(at + 1, "\r\n");
            bool drawn = at[1 + n] == '\r' && at[2 + n] != '\n';
            if (drawn && n >= widths[i]) fail_msg("%zu of %d columns", n, widths[i]);
        }
        cli_free(&r);
    }
}

/* Its row length is not a multiple of 32. The program reports it once the file is mapped and before
 * it is read, and waits there while no process reads standard error. */
#define ODD AG_GOLDEN_MODELS "/mqa-odd-sizes-f16"

static void copy_file(const char *dir, const char *name) {
    static char data[1 << 20];
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    write_file(dir, strrchr(name, '/') + 1, data, n);
}

/* The pipe has space for one message, the memory note. */
static pid_t start_with_full_errors(const char *dir, int *errors) {
    static char filling[4096];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK | O_DIRECT),
                     0); /* one packet per message */
    while (write(ends[1], filling, sizeof filling) > 0) {}
    assert_int_equal(read(ends[0], filling, sizeof filling), sizeof filling);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_DIRECT), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (dup2(ends[1], STDERR_FILENO) < 0) _exit(126);
        close(ends[0]);
        close(ends[1]);
        execl(AG_PROGRAM, AG_PROGRAM, "generate", "-m", dir, "--prompt-ids", "1", "-n", "1",
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *errors = ends[0];
    return pid;
}

/* Inspection maps the file for a moment too: the mapping must exist for some time. */
static void wait_until_mapped(pid_t pid, const char *name) {
    char path[64];
    static char maps[1 << 18];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    for (int seen = 0, looks = 0; seen < 5 && looks < 3000; looks++) {
        FILE *f = fopen(path, "r");
        maps[f ? fread(maps, 1, sizeof maps - 1, f) : 0] = '\0';
        if (f) fclose(f);
        seen = strstr(maps, name) ? seen + 1 : 0;
        poll(NULL, 0, 10);
    }
}

static void reports_file_truncated_while_loading(void **state) {
    (void)state;
    char dir[64], path[96], text[1 << 17], chunk[4096];
    make_directory(dir);
    copy_file(dir, ODD "/config.json");
    copy_file(dir, ODD "/model.safetensors");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    int errors, status;
    pid_t pid = start_with_full_errors(dir, &errors);
    wait_until_mapped(pid, path);
    /* The first vector is in the remaining bytes; it is not read through the mapping. */
    assert_int_equal(truncate(path, 65536), 0);
    size_t n = 0;
    for (ssize_t got; (got = read(errors, chunk, sizeof chunk)) > 0;) {
        for (ssize_t i = 0; i < got && n + 1 < sizeof text; i++) {
            if (chunk[i]) text[n++] = chunk[i];
        }
    }
    text[n] = '\0';
    close(errors);
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    remove_directory(dir);
    if (!WIFEXITED(status)) fail_msg("signal %d; it said:\n%s", WTERMSIG(status), text);
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_says(text, dir);
    assert_says(text, "a file became shorter or unreadable while it was loaded\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ctrl_c_prints_statistics_and_exits_130),
        cmocka_unit_test(sigterm_and_sighup_end_in_order),
        cmocka_unit_test(first_ctrl_c_prints_notice_on_terminal),
        cmocka_unit_test(second_signal_ends_process),
        cmocka_unit_test(ctrl_c_prints_json_of_partial_text),
        cmocka_unit_test(ctrl_c_ends_reading_long_prompt),
        cmocka_unit_test(ctrl_c_ends_measurement),
        cmocka_unit_test(ctrl_c_ends_encoding),
        cmocka_unit_test(closed_pipe_ends_program_silently),
        cmocka_unit_test(reports_full_disk),
        cmocka_unit_test(reports_file_size_limit),
        cmocka_unit_test(removes_control_characters_from_text),
        cmocka_unit_test(closed_streams_are_not_reused),
        cmocka_unit_test(draws_progress_only_on_terminal),
        cmocka_unit_test(progress_fits_narrow_terminal),
        cmocka_unit_test(reports_file_truncated_while_loading),
    };
    return cmocka_run_group_tests_name("cli streams", tests, NULL, NULL);
}
