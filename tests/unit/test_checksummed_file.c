/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are there as a whole or not at all, also when who writes them is killed. */
#include "formats/checksummed_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The linker sends open() here: some file systems have no files without a name. */
static bool without_unnamed;
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, int) : 0;
    va_end(args);
    if (without_unnamed && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open(path, flags, mode);
}

static char dir[64], path[96];

static int set_up(void **state) {
    (void)state;
    strcpy(dir, "/tmp/ag-checksummed-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/state", dir);
    without_unnamed = false;
    return 0;
}

/* Returns the number of files; removes them if remove_them. */
static size_t n_files(bool remove_them) {
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        n++;
        if (remove_them) unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    return n;
}

static int tear_down(void **state) {
    (void)state;
    n_files(true);
    return rmdir(dir);
}

static void save(const char *text) {
    ag_error err;
    ag_checksummed_writer w = {0};
    if (ag_checksummed_writer_open(&w, path, &err) != AG_OK ||
        ag_checksummed_put(&w, text, strlen(text), &err) != AG_OK ||
        ag_checksummed_writer_commit(&w, &err) != AG_OK)
        fail_msg("%s", err.msg);
    ag_checksummed_writer_close(&w);
}

static void assert_saved(const char *text) {
    char read[64] = "";
    ag_checksummed_reader r = {.fd = -1};
    assert_int_equal(ag_checksummed_reader_open(&r, path, NULL), AG_OK);
    assert_int_equal(ag_checksummed_get(&r, read, strlen(text), NULL), AG_OK);
    assert_int_equal(ag_checksummed_reader_check(&r, NULL), AG_OK);
    ag_checksummed_reader_close(&r);
    assert_string_equal(read, text);
}

/* A process that is killed when it has written a megabyte. */
static void die_while_saving(int signal_number) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static char bytes[1 << 20];
        ag_checksummed_writer w = {0};
        if (ag_checksummed_writer_open(&w, path, NULL) != AG_OK ||
            ag_checksummed_put(&w, bytes, sizeof bytes, NULL) != AG_OK)
            _exit(1);
        raise(signal_number);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signal_number);
}

static void creates_and_replaces_files_atomically(void **state) {
    (void)state;
    for (int named = 0; named < 2; named++) {
        without_unnamed = named;
        save("first");
        assert_saved("first");
        save("second");
        assert_saved("second");
        assert_int_equal(n_files(false), 1);
        n_files(true);
    }
}

static void killed_writer_leaves_no_file(void **state) {
    (void)state;
    int unnamed = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (unnamed < 0) skip(); /* this file system has no such files */
    close(unnamed);
    die_while_saving(SIGKILL);
    assert_int_equal(n_files(false), 0);
    save("old");
    die_while_saving(SIGTERM);
    assert_saved("old");
    assert_int_equal(n_files(false), 1);
}

static void next_save_removes_stale_temporary_files(void **state) {
    (void)state;
    without_unnamed = true;
    die_while_saving(SIGKILL);
    assert_int_equal(n_files(false), 1);
    save("new");
    assert_saved("new");
    assert_int_equal(n_files(false), 1);
}

static void keeps_temporary_files_of_live_processes(void **state) {
    (void)state;
    char others[128], similar[128];
    snprintf(others, sizeof others, "%s.saving-abcdef", path);
    snprintf(similar, sizeof similar, "%s.saved", path);
    int fd = open(others, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    int no_temporary = open(similar, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && no_temporary >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    save("new");
    assert_int_equal(access(others, F_OK), 0);
    close(fd);
    save("newer");
    assert_int_equal(access(others, F_OK), -1);
    assert_int_equal(access(similar, F_OK), 0);
    close(no_temporary);
}

int main(void) {
#define HERE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        HERE(creates_and_replaces_files_atomically),
        HERE(killed_writer_leaves_no_file),
        HERE(next_save_removes_stale_temporary_files),
        HERE(keeps_temporary_files_of_live_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
