/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity quantize: output, rejected input, and no partial files. */
#include "cli.h"
#include "formats/gguf_writer.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64], source[128], target[128];

/* Writes a model file with one matrix of at most 512 columns. */
static void write_model(size_t n_rows, size_t n_cols) {
    ag_gguf_writer w = {0};
    const ag_shape shape = ag_shape_2d(n_rows, n_cols);
    float row[512];
    ag_gguf_put_string(&w, "general.architecture", (ag_source_string){"llama", 5});
    ag_gguf_add_tensor(&w, "blk.0.attn_q.weight", AG_F32, &shape);
    assert_int_equal(ag_gguf_writer_open(&w, source, NULL), AG_OK);
    for (size_t i = 0; i < n_rows; i++) {
        for (size_t k = 0; k < 512; k++) row[k] = (float)((i * 512 + k) * 2654435761u % 1000) - 500;
        assert_int_equal(ag_gguf_write(&w, row, n_cols * sizeof *row, NULL), AG_OK);
    }
    assert_int_equal(ag_gguf_end_tensor(&w, NULL), AG_OK);
    assert_int_equal(ag_gguf_writer_commit(&w, NULL), AG_OK);
    ag_gguf_writer_close(&w);
}

static size_t n_files(void) {
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int begin(void **state) {
    (void)state;
    make_directory(dir);
    snprintf(source, sizeof source, "%s/source.gguf", dir);
    snprintf(target, sizeof target, "%s/target.gguf", dir);
    write_model(64, 512);
    return 0;
}

static int end(void **state) {
    (void)state;
    remove_directory(dir);
    return 0;
}

static void reports_types_and_sizes(void **state) {
    (void)state;
    cli_result r = CLI("quantize", source, target, "--type", "q4_k");
    assert_code(&r, 0);
    assert_says(r.out, "1 tensors");
    assert_says(r.out, "4.50 bits a weight");
    assert_says(r.out, "q4_k   100.0 %");
    cli_free(&r);
    r = CLI("quantize", source, target, "--type", "q8_0", "--force", "--json", "--tensor-type",
            "attn_[qk]=q5_0");
    assert_code(&r, 0);
    json_t *all = cli_json(&r);
    assert_int_equal(json_integer_value(json_object_get(all, "parameters")), 64 * 512);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(all, "types"), "q5_0")),
                     64 * 512 / 32 * 22);
    json_decref(all);
    cli_free(&r);
    write_model(64, 96);
    r = CLI("quantize", source, target, "--type", "q4_k", "--force", "-v");
    assert_code(&r, 0);
    assert_says(r.err, "blk.0.attn_q.weight: rows of 96 do not fit blocks of q4_k: q5_0");
    assert_says(r.out, "1 tensors got another type than they should");
    cli_free(&r);
    struct stat s;
    assert_int_equal(stat(target, &s), 0);
    assert_int_equal(s.st_mode & S_IRUSR, S_IRUSR);
}

static void accepts_words_of_llama_quantize(void **state) {
    (void)state;
    cli_result r = CLI("quantize", source, target, "Q5_K_M", "1");
    assert_code(&r, 0);
    assert_int_equal(r.n_err, 0);
    assert_says(r.out, "q5_k   100.0 %");
    cli_free(&r);
    r = CLI("quantize", source, target, "--force", "IQ4_NL");
    assert_code(&r, 0);
    assert_says(r.out, "iq4_nl 100.0 %");
    cli_free(&r);
}

static void warns_when_the_file_grows(void **state) {
    (void)state;
    char larger[128];
    snprintf(larger, sizeof larger, "%s/larger.gguf", dir);
    cli_result r = CLI("quantize", source, target, "q4_0");
    assert_does_not_say(r.err, "grows");
    cli_free(&r);
    r = CLI("quantize", target, larger, "f16");
    assert_code(&r, 0);
    assert_says(r.err, "larger.gguf: the file grows: 0.1 MiB of tensors from 0.0 MiB");
    cli_free(&r);
    r = CLI("quantize", target, larger, "f16", "--force", "-q");
    assert_int_equal(r.n_err, 0);
    cli_free(&r);
}

/* A mixture has the name that its file states, not that of its most frequent type. */
static void info_and_models_name_the_file_type(void **state) {
    (void)state;
    cli_result r = CLI("quantize", DEMO, target, "q4_k_s", "-q");
    assert_code(&r, 0);
    cli_free(&r);
    r = CLI("info", "-m", target, "-q");
    assert_code(&r, 0);
    assert_says(r.out, " M, q4_k_s in the file of ");
    cli_free(&r);
    setenv("ANTIGRAVITY_MODELS", dir, 1);
    r = CLI("models");
    assert_code(&r, 0);
    assert_says(r.out, " M, q4_k_s");
    cli_free(&r);
    unsetenv("ANTIGRAVITY_MODELS");
}

static void finds_sources_by_name(void **state) {
    (void)state;
    char used[128];
    setenv("ANTIGRAVITY_MODELS", dir, 1);
    cli_result r = CLI("quantize", "source", target, "q4_0", "-q");
    assert_code(&r, 0);
    cli_free(&r);
    unsetenv("ANTIGRAVITY_MODELS");
    snprintf(used, sizeof used, "%s/.used/source.gguf", dir);
    assert_int_equal(unlink(used), 0);
    *strrchr(used, '/') = '\0';
    assert_int_equal(rmdir(used), 0);
}

static void rejects_wrong_usage(void **state) {
    (void)state;
    static const struct {
        const char *args[7], *says;
        int code;
    } cases[] = {
        {{"quantize"}, "SOURCE is missing", 2},
        {{"quantize", source}, "FILE.gguf is missing", 2},
        {{"quantize", source, target}, "TYPE is missing", 2},
        {{"quantize", source, target, "q4_0", "--type", "q4_1"}, "two types given", 2},
        {{"quantize", source, target, "q4_0", "x"}, "THREADS: 'x' is not a whole number", 2},
        {{"quantize", source, target, "q9"}, "unknown file type \"q9\"", 2},
        {{"quantize", source, target, "--type", "q9"}, "unknown file type \"q9\"", 2},
        {{"quantize", source, source, "--type", "q4_0"}, "file exists already", 2},
        {{"quantize", source, "/nowhere/file.gguf", "--type", "q4_0"}, "cannot be written", 1},
        {{"quantize", source, "/proc/file.gguf", "--type", "q4_0"}, "cannot be written", 1},
        {{"quantize", "/nowhere.gguf", target, "--type", "q4_0"}, "/nowhere.gguf", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_result r = cli_run(&(cli_setup){.args = cases[i].args});
        assert_refused(&r, cases[i].code, cases[i].says);
        cli_free(&r);
    }
    assert_int_equal(n_files(), 1);
}

static void full_disk_leaves_no_file(void **state) {
    (void)state;
    struct rlimit before, little;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = (struct rlimit){8192, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    cli_result r = CLI("quantize", source, target, "--type", "q8_0");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_refused(&r, 1, "target.gguf: writing failed: ");
    cli_free(&r);
    assert_int_equal(n_files(), 1);
}

static void interrupted_conversion_leaves_no_file(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    write_model(120000, 512);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        cli_result r = cli_run(
            &(cli_setup){.args = CLI_ARGS("quantize", source, target, "--type", "q4_k", "-t", "1"),
                         .terminal_errors = true,
                         .interrupt_when = "quantising",
                         .signal = signals[i]});
        assert_code(&r, 128 + signals[i]);
        assert_says(r.err, "interrupted");
        cli_free(&r);
        assert_int_equal(n_files(), 1);
    }
    write_model(64, 512);
}

/* ---- killed conversions ---- */

static pid_t start_conversion(void) {
    const char *const argv[] = {AG_PROGRAM, "quantize", "-q", source,    target, "--type",
                                "q4_k",     "-t",       "1",  "--force", NULL};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execv(AG_PROGRAM, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static long microseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

/* Returns the bytes of the target file; NULL if it is missing. */
static unsigned char *read_target(size_t *n) {
    FILE *f = fopen(target, "rb");
    if (!f) return NULL;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    unsigned char *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    rewind(f);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static void assert_nothing_or(const unsigned char *whole, size_t n_whole) {
    size_t n;
    unsigned char *bytes = read_target(&n);
    if (!bytes) return;
    assert_int_equal(n, n_whole);
    assert_memory_equal(bytes, whole, n);
    free(bytes);
}

static void killed_conversion_leaves_no_partial_file(void **state) {
    (void)state;
    size_t n_whole, n_killed = 0;
    write_model(8192, 512);
    long began = microseconds();
    assert_int_equal(wait_for(start_conversion()), 0);
    const long whole_run = microseconds() - began;
    unsigned char *whole = read_target(&n_whole);
    assert_non_null(whole);
    srand(5);
    for (int i = 0; i < 30; i++) {
        if (i % 3) unlink(target);
        else write_file(dir, "target.gguf", whole, n_whole); /* to be replaced */
        const long us = whole_run / 1000 * (rand() % 1050);
        const struct timespec pause = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
        pid_t pid = start_conversion();
        nanosleep(&pause, NULL);
        kill(pid, SIGKILL);
        n_killed += wait_for(pid) == -SIGKILL;
        assert_nothing_or(whole, n_whole);
        if (i % 3 == 0) assert_int_equal(access(target, F_OK), 0);
    }
    assert_true(n_killed >= 10);
    assert_int_equal(wait_for(start_conversion()), 0);
    assert_nothing_or(whole, n_whole);
    assert_int_equal(n_files(), 2); /* the next run removes the file that a killed run left */
    free(whole);
    write_model(64, 512);
}

static void imatrix_improves_columns_that_matter(void **state) {
    (void)state;
    cli_result r = CLI("imatrix", "-q", "-p", "Once upon a time there was a fox.", "-o", target);
    assert_code(&r, 0);
    assert_says(r.out, "target.gguf: ");
    assert_says(r.out, " tokens");
    cli_free(&r);
    char file[160];
    snprintf(file, sizeof file, "%s/demo.gguf", dir);
    r = CLI("imatrix", "-q", "-p", "The old king", "--in-file", target, "-o", target);
    assert_code(&r, 0);
    cli_free(&r);
    r = CLI("quantize", DEMO, file, "--type", "q4_k_m", "--imatrix", target);
    assert_code(&r, 0);
    cli_free(&r);
    r = CLI("quantize", source, file, "--type", "q4_k_m", "--imatrix", source, "--force");
    assert_refused(&r, 1, "general.type is not \"imatrix\"");
    cli_free(&r);
    r = CLI("imatrix", "-q", "-p", "The old king");
    assert_refused(&r, 2, "no output file: give -o FILE");
    cli_free(&r);
    r = CLI("imatrix", "-q", "-p", "The old king", "-o", "/nowhere/file");
    assert_refused(&r, 1, "/nowhere/file: cannot be written");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reports_types_and_sizes, begin, end),
        cmocka_unit_test_setup_teardown(accepts_words_of_llama_quantize, begin, end),
        cmocka_unit_test_setup_teardown(warns_when_the_file_grows, begin, end),
        cmocka_unit_test_setup_teardown(info_and_models_name_the_file_type, begin, end),
        cmocka_unit_test_setup_teardown(finds_sources_by_name, begin, end),
        cmocka_unit_test_setup_teardown(rejects_wrong_usage, begin, end),
        cmocka_unit_test_setup_teardown(full_disk_leaves_no_file, begin, end),
        cmocka_unit_test_setup_teardown(imatrix_improves_columns_that_matter, begin, end),
        cmocka_unit_test_setup_teardown(interrupted_conversion_leaves_no_file, begin, end),
        cmocka_unit_test_setup_teardown(killed_conversion_leaves_no_partial_file, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
