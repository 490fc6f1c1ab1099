/* SPDX-License-Identifier: Apache-2.0 */
/* -b auto: measures each backend once, and states the choice and its reason in one line. */
#include "cli.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN "generate", "-m", TINY, "--prompt-ids", "1,2,3", "-n", "2", "-b", "auto"

static char home[64], speeds[128], before[1024];

static int make_cache(void **state) {
    (void)state;
    const char *cache = getenv("XDG_CACHE_HOME");
    snprintf(before, sizeof before, "%s", cache ? cache : "");
    make_directory(home);
    snprintf(speeds, sizeof speeds, "%s/antigravity/opencl", home);
    setenv("XDG_CACHE_HOME", home, 1);
    return 0;
}

static int remove_cache(void **state) {
    (void)state;
    char parent[128];
    if (access(speeds, F_OK) == 0) remove_directory(speeds);
    snprintf(parent, sizeof parent, "%s/antigravity", home);
    rmdir(parent);
    rmdir(home);
    if (before[0]) setenv("XDG_CACHE_HOME", before, 1);
    else unsetenv("XDG_CACHE_HOME");
    return 0;
}

static void skip_without_device(void) {
    cli_result r = CLI("devices");
    const bool has_device = strstr(r.out, "opencl   0: ") != NULL;
    cli_free(&r);
    if (!has_device) skip();
}

/* Replaces each file of a speed. Returns their number. */
static size_t damage_files(void) {
    size_t n = 0;
    DIR *d = opendir(speeds);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (!strstr(e->d_name, ".speed")) continue;
        write_file(speeds, e->d_name, "antigravity", 11);
        n++;
    }
    closedir(d);
    return n;
}

/* Copies the line of the choice, without the origin of the speeds at its end. */
static void copy_choice(const cli_result *r, char line[1024]) {
    const char *at = strstr(r->err, "backend: "), *end = at ? strstr(at, " (measured") : NULL;
    if (!end) fail_msg("no choice in: %s", r->err);
    snprintf(line, 1024, "%.*s", (int)(end - at), at);
}

static void measures_once_and_again_if_files_are_damaged(void **state) {
    (void)state;
    char first[1024], second[1024];
    skip_without_device();
    cli_result r = CLI(RUN);
    assert_code(&r, 0);
    assert_says(r.err, "tokens/s (measured, stored)\n");
    assert_says(r.err, "cpu");
    assert_says(r.err, "opencl (");
    copy_choice(&r, first);
    cli_free(&r);
    r = CLI(RUN);
    assert_code(&r, 0);
    assert_says(r.err, "(measured before)\n");
    copy_choice(&r, second);
    assert_string_equal(first, second);
    cli_free(&r);
    r = CLI(RUN, "-q");
    assert_code(&r, 0);
    assert_does_not_say(r.err, "backend");
    cli_free(&r);
    assert_true(damage_files() >= 2);
    r = CLI(RUN);
    assert_code(&r, 0);
    assert_says(r.err, "(measured, stored)\n");
    cli_free(&r);
}

static void measures_where_nothing_can_be_stored(void **state) {
    (void)state;
    skip_without_device();
    setenv("AG_OPENCL_CACHE", "0", 1);
    cli_result r = CLI(RUN);
    unsetenv("AG_OPENCL_CACHE");
    assert_code(&r, 0);
    assert_says(r.err, "(measured, not stored: no cache directory)\n");
    cli_free(&r);
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    r = CLI(RUN);
    setenv("XDG_CACHE_HOME", home, 1);
    assert_code(&r, 0);
    assert_says(r.err, "(measured, not stored in /proc/none/antigravity/opencl: ");
    cli_free(&r);
}

static void chooses_cpu_without_driver(void **state) {
    (void)state;
    setenv("AG_OPENCL_LIBRARY", "/nonexistent", 1);
    cli_result r = CLI(RUN);
    unsetenv("AG_OPENCL_LIBRARY");
    assert_code(&r, 0);
    assert_says(r.err, "generate: backend: cpu; opencl: ");
    assert_does_not_say(r.err, "measured");
    cli_free(&r);
}

static void chooses_cpu_where_devices_fail(void **state) {
    (void)state;
    skip_without_device();
    setenv("AG_OPENCL_LANES", "2", 1);
    cli_result r = CLI(RUN);
    unsetenv("AG_OPENCL_LANES");
    assert_code(&r, 0);
    assert_says(r.err, "backend: cpu; opencl (");
    assert_says(r.err, "): AG_OPENCL_LANES is 0 or 1, not '2'\n");
    cli_free(&r);
    r = CLI(RUN, "--device", "none of them");
    assert_code(&r, 0);
    assert_says(r.err, "backend: cpu; opencl: --device none of them: no device has this number");
    cli_free(&r);
    r = CLI("generate", "-b", "auto", QUICK, "--prompt-ids", "1,2", "-n", "2", "--kv-budget", "128",
            "--eviction-policy", "sliding", "--kv-spill", home);
    assert_code(&r, 0);
    assert_says(r.err, "backend: cpu; opencl: --kv-spill needs host memory\n");
    cli_free(&r);
#ifdef AG_FORWARDER
    setenv("AG_OPENCL_LIBRARY", AG_FORWARDER, 1);
    setenv("AG_FORWARDER_MEMORY", "100000", 1);
    r = CLI(RUN);
    unsetenv("AG_FORWARDER_MEMORY");
    unsetenv("AG_OPENCL_LIBRARY");
    assert_code(&r, 0);
    assert_says(r.err, "backend: cpu; opencl (");
    assert_says(r.err, "MiB are needed");
    cli_free(&r);
#endif
}

static void bench_chooses_for_shapes(void **state) {
    (void)state;
    skip_without_device();
    cli_result r = CLI("bench", "-b", "auto", "--shape", "tiny", "--layers", "2", "-p", "0", "-n",
                       "2", "-r", "1");
    assert_code(&r, 0);
    assert_says(r.err, "tokens/s (measured, stored)\n");
    cli_free(&r);
}

static void serve_chooses_for_its_first_model(void **state) {
    (void)state;
    skip_without_server();
    setenv("AG_OPENCL_LIBRARY", "/nonexistent", 1);
    cli_result r = cli_run(
        &(cli_setup){.args = CLI_ARGS("serve", "-b", "auto", "-m", DEMO, QUICK, "--port", "0"),
                     .interrupt_when = "listening",
                     .signal = SIGTERM});
    unsetenv("AG_OPENCL_LIBRARY");
    assert_code(&r, 0);
    assert_says(r.err, "serve: backend: cpu; opencl: ");
    cli_free(&r);
    skip_without_device();
    r = cli_run(
        &(cli_setup){.args = CLI_ARGS("serve", "-b", "auto", "-m", DEMO, QUICK, "--port", "0"),
                     .interrupt_when = "listening",
                     .signal = SIGTERM});
    assert_code(&r, 0);
    assert_says(r.err, "tokens/s (measured, stored)\n");
    cli_free(&r);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_cache, remove_cache)
    const struct CMUnitTest tests[] = {
        TEST(measures_once_and_again_if_files_are_damaged),
        TEST(measures_where_nothing_can_be_stored),
        TEST(chooses_cpu_without_driver),
        TEST(chooses_cpu_where_devices_fail),
        TEST(bench_chooses_for_shapes),
        TEST(serve_chooses_for_its_first_model),
    };
    return cmocka_run_group_tests_name("cli backend", tests, NULL, NULL);
}
