/* SPDX-License-Identifier: Apache-2.0 */
/* Fixture for tests of `antigravity pull` against misbehaving servers: a store, a file in two
 * versions, and correct answers. */
#ifndef AG_TESTS_PULL_BENCH_H
#define AG_TESTS_PULL_BENCH_H

#include "cli.h"
#include "pull_store.h"
#include "raw_server.h"

#include <sys/types.h>

enum {
    SIZE = 1 << 20, /* bytes of the file */
    GIVE_UP = 100,  /* requests after which the server ends an endless test */
    HASH_SIZE = 65,
};

extern unsigned char data[2][3 * SIZE]; /* two versions of the file, and bytes after its end */
extern char hash[HASH_SIZE];            /* SHA-256 of version 0 */
extern char url[128];                   /* URL of m.gguf on a host that is not the hub */
extern char list[4096];                 /* sent by answer_list() */

#define PULL(...) CLI("pull", "--retry-delay", "0.01", __VA_ARGS__)
/* Runs `pull -q` and asserts its exit code and its one line of error. */
#define FAIL(code, part, ...)                    \
    do {                                         \
        cli_result r_ = PULL("-q", __VA_ARGS__); \
        assert_refused(&r_, code, part);         \
        cli_free(&r_);                           \
    } while (0)
#define SUCCEED(...)                             \
    do {                                         \
        cli_result r_ = PULL("-q", __VA_ARGS__); \
        assert_code(&r_, 0);                     \
        cli_free(&r_);                           \
    } while (0)

#define EACH(test) cmocka_unit_test_setup(test, before_each)

/* Fixtures of a group, and of a test: the store is empty. */
int prepare(void **state);
int clean_up(void **state);
int before_each(void **state);

/* Serves the repository o/r with one file, m.gguf. `fields` are more fields of its entry. */
void serve_file(const char *fields, raw_answer answer);
void serve_megabyte(raw_answer answer); /* the entry has the size of the file */

/* Answers to requests. `extra` are header lines; the body ends after n bytes, or with the file. */
void answer_list(const raw_request *q);
void send_head(const raw_request *q, const char *extra);
void send_version(const raw_request *q, int version, const char *extra, size_t n);
void send_gone(const raw_request *q);
void all_of_it(const raw_request *q);

/* start_pull() runs `pull -q source` in the background. wait_for() returns its exit code, or minus
 * the signal that ended it. */
pid_t start_pull(const char *source, const char *errors_path);
int wait_for(pid_t pid);

#endif
