/* SPDX-License-Identifier: Apache-2.0 */
/* Stored speeds: what is read is what was written. */
#include "programs/antigravity/model/speed_file.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char key[] = "engine 0.2.0\ndevice GPU, driver 1\nmodel 2 layers";
static char dir[64], path[PATH_MAX]; /* path: a file in dir */

/* Sets path to the file in dir that is not at `known`. */
static void find_file(const char *known) {
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && !strstr(known, e->d_name))
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    closedir(d);
}

/* Stores a speed, and sets path. */
static int store(void **state) {
    (void)state;
    strcpy(dir, "/tmp/ag-speed-XXXXXX");
    if (!mkdtemp(dir) || !speed_write(dir, key, 1950.125)) return 1;
    find_file("");
    return 0;
}

static int clean(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static size_t load(char *text, size_t cap) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, cap, f);
    fclose(f);
    return n;
}

static void replace(const char *text, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void reads_what_was_stored(void **state) {
    (void)state;
    double speed = 0;
    assert_true(speed_read(dir, key, &speed));
    assert_true(speed == 1950.125);
    assert_true(speed_write(dir, key, 1.0 / 3)); /* in place of the other */
    assert_true(speed_read(dir, key, &speed));
    assert_true(speed == 1.0 / 3);
}

static void reads_no_other_key(void **state) {
    (void)state;
    char text[4096];
    double speed = -1;
    const char other[] = "engine 0.2.0\ndevice GPU, driver 2\nmodel 2 layers";
    assert_false(speed_read(dir, other, &speed));
    /* nor a file that has the name of the other key */
    const size_t n = load(text, sizeof text);
    assert_true(speed_write(dir, other, 5));
    char own[PATH_MAX];
    memcpy(own, path, sizeof own);
    find_file(own);
    assert_string_not_equal(own, path);
    replace(text, n);
    assert_false(speed_read(dir, other, &speed));
    assert_true(speed == -1);
    unlink(path);
    memcpy(path, own, sizeof own);
}

static void rejects_damaged_files(void **state) {
    (void)state;
    char text[4096];
    double speed = -1;
    const size_t n = load(text, sizeof text - 1);
    for (size_t i = 0; i < n; i++) {
        text[i] ^= 1;
        replace(text, n);
        if (speed_read(dir, key, &speed)) fail_msg("byte %zu of %zu: read %g", i, n, speed);
        text[i] ^= 1;
        replace(text, i);
        if (speed_read(dir, key, &speed)) fail_msg("%zu bytes of %zu: read %g", i, n, speed);
    }
    text[n] = '\n';
    replace(text, n + 1);
    assert_false(speed_read(dir, key, &speed));
    assert_true(speed == -1);
    replace(text, n);
    assert_true(speed_read(dir, key, &speed));
}

static void reports_directories_that_cannot_be_written(void **state) {
    (void)state;
    char below[PATH_MAX + 8];
    double speed;
    snprintf(below, sizeof below, "%s/below", path); /* below a file */
    assert_false(speed_write(below, key, 1));
    assert_false(speed_read(below, key, &speed));
}

static void finds_directory_of_compiled_programs(void **state) {
    (void)state;
    char found[PATH_MAX];
    setenv("XDG_CACHE_HOME", "/x", 1);
    unsetenv("AG_OPENCL_CACHE");
    assert_true(speed_directory(found));
    assert_string_equal(found, "/x/antigravity/opencl");
    setenv("AG_OPENCL_CACHE", "/y", 1);
    assert_true(speed_directory(found));
    assert_string_equal(found, "/y");
    setenv("AG_OPENCL_CACHE", "0", 1);
    assert_false(speed_directory(found));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, store, clean)
    const struct CMUnitTest tests[] = {
        TEST(reads_what_was_stored),
        TEST(reads_no_other_key),
        TEST(rejects_damaged_files),
        TEST(reports_directories_that_cannot_be_written),
        cmocka_unit_test(finds_directory_of_compiled_programs),
    };
    return cmocka_run_group_tests_name("speed file", tests, NULL, NULL);
}
