/* SPDX-License-Identifier: Apache-2.0 */
/* Converted weights kept in a file: the same bits, and never those of another model. The backend's
 * name is the argument. */
#include "support/failing_allocator.h"
#include "support/named_backend.h"

#include <antigravity/antigravity.h>
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_IDS = 6, MAX_VOCAB = 512 };

static const char fused[] = AG_SOURCE_DIR "/tests/data/golden/models/phi3";
static const char paired[] = AG_SOURCE_DIR "/tests/data/golden/gguf/granite.gguf";

static const char *backend_name = "cpu";
static char root[] = "/tmp/ag-weights-cache-XXXXXX";
static char dir[64], copy[64];

typedef struct answer {
    float logits[MAX_VOCAB];
    ag_cache_outcome outcome;
    size_t n_warnings;
} answer;

static void count_warnings(void *user, ag_log_level level, const char *line) {
    (void)line;
    if (level == AG_LOG_WARN) ++*(size_t *)user;
}

static void logits_of(ag_model *model, float *out) {
    static const int32_t ids[N_IDS] = {3, 17, 200, 42, 5, 99};
    ag_session *session;
    assert_int_equal(ag_session_create(model, NULL, &session, NULL), AG_OK);
    assert_int_equal(ag_session_prefill(session, ids, N_IDS, NULL, NULL, NULL), AG_OK);
    memcpy(out, ag_session_logits(session), ag_model_get_info(model)->n_vocab * sizeof *out);
    ag_session_destroy(session);
}

static answer load(const char *path, ag_dtype weights, const char *cache) {
    answer a = {.n_warnings = 0};
    const ag_backend_params bp = {
        .name = backend_name, .log = count_warnings, .log_user = &a.n_warnings};
    const ag_model_params params = {.weights = weights, .weights_cache = cache};
    ag_backend *be;
    ag_model *model;
    ag_error err = {0};
    assert_int_equal(ag_backend_create(&bp, &be, &err), AG_OK);
    if (ag_model_load(be, path, &params, &model, &err) != AG_OK) fail_msg("%s", err.msg);
    a.outcome = ag_model_get_info(model)->weights_cache;
    logits_of(model, a.logits);
    ag_model_destroy(model);
    ag_backend_destroy(be);
    return a;
}

/* ---- folders ---- */

static size_t files_in(const char *path, char *name, size_t cap) {
    size_t n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        if (name) snprintf(name, cap, "%s/%s", path, e->d_name);
        n++;
    }
    if (d) closedir(d);
    return n;
}

static void remove_files(const char *path) {
    char name[512];
    while (files_in(path, name, sizeof name)) assert_int_equal(remove(name), 0);
    (void)rmdir(path);
}

static void copy_file(const char *from, const char *to) {
    char command[1024];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

static int make_root(void **state) {
    (void)state;
    if (!mkdtemp(root)) return 1;
    snprintf(dir, sizeof dir, "%s/cache", root);
    snprintf(copy, sizeof copy, "%s/model.gguf", root);
    return 0;
}

static int remove_root(void **state) {
    (void)state;
    remove_files(dir);
    remove_files(root);
    return 0;
}

static int empty(void **state) {
    (void)state;
    remove_files(dir);
    (void)remove(copy);
    return 0;
}

/* ---- tests ---- */

static void expect_same(const answer *a, const answer *b) {
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
}

static void bits_are_the_same_with_and_without(void **state) {
    (void)state;
    static const ag_dtype types[] = {AG_WEIGHTS_MIX, AG_Q4_0, AG_Q8_0};
    const char *const paths[] = {fused, paired};
    for (size_t p = 0; p < 2; p++) {
        for (size_t t = 0; t < 3; t++) {
            const answer none = load(paths[p], types[t], NULL);
            const answer written = load(paths[p], types[t], dir);
            const answer used = load(paths[p], types[t], dir);
            assert_int_equal(none.outcome, AG_CACHE_NONE);
            assert_int_equal(written.outcome, AG_CACHE_WRITTEN);
            assert_int_equal(used.outcome, AG_CACHE_USED);
            expect_same(&none, &written);
            expect_same(&none, &used);
            assert_int_equal(written.n_warnings + used.n_warnings, 0);
        }
    }
    assert_int_equal(files_in(dir, NULL, 0), 6);
}

static void what_keeps_its_type_is_not_kept_twice(void **state) {
    (void)state;
    assert_int_equal(load(paired, AG_BF16, dir).outcome, AG_CACHE_NONE);
    assert_int_equal(files_in(dir, NULL, 0), 0);
}

static void files_are_their_owners_alone(void **state) {
    (void)state;
    char name[512];
    struct stat st;
    (void)load(paired, AG_Q4_0, dir);
    assert_int_equal(files_in(dir, name, sizeof name), 1);
    assert_true(stat(name, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_true(stat(dir, &st) == 0 && (st.st_mode & 0777) == 0700);
    assert_int_equal(chmod(name, 0620), 0); /* somebody else may have written to it */
    assert_int_equal(load(paired, AG_Q4_0, dir).outcome, AG_CACHE_WRITTEN);
}

/* Changes a byte of the model's weights behind the back of its size. */
static void change_model(bool keep_time) {
    struct stat st;
    assert_int_equal(stat(copy, &st), 0);
    const int fd = open(copy, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, st.st_size - 4098), 1);
    byte ^= 0x15; /* of a BF16 the lower half */
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 4098), 1);
    close(fd);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (keep_time) assert_int_equal(utimensat(AT_FDCWD, copy, times, 0), 0);
}

static void a_model_that_changes_is_converted_anew(void **state) {
    (void)state;
    for (int keep_time = 0; keep_time <= 1; keep_time++) {
        copy_file(paired, copy);
        const answer before = load(copy, AG_Q8_0, dir);
        assert_int_equal(load(copy, AG_Q8_0, dir).outcome, AG_CACHE_USED);
        change_model(keep_time);
        const answer none = load(copy, AG_Q8_0, NULL), after = load(copy, AG_Q8_0, dir);
        assert_int_equal(after.outcome, AG_CACHE_WRITTEN);
        expect_same(&none, &after);
        assert_memory_not_equal(before.logits, after.logits, sizeof after.logits);
        assert_int_equal(files_in(dir, NULL, 0), 1); /* in the place of the old one */
    }
}

static void what_is_damaged_is_replaced(void **state) {
    (void)state;
    char name[512];
    const answer none = load(paired, AG_WEIGHTS_MIX, NULL);
    (void)load(paired, AG_WEIGHTS_MIX, dir);
    assert_int_equal(files_in(dir, name, sizeof name), 1);
    struct stat st;
    assert_int_equal(stat(name, &st), 0);
    const off_t sizes[] = {0, 100, st.st_size / 2, st.st_size - 1};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(truncate(name, sizes[i]), 0);
        const answer a = load(paired, AG_WEIGHTS_MIX, dir);
        assert_int_equal(a.outcome, AG_CACHE_WRITTEN);
        expect_same(&none, &a);
    }
    copy_file(paired, name); /* a file of the format, of something else */
    assert_int_equal(load(paired, AG_WEIGHTS_MIX, dir).outcome, AG_CACHE_WRITTEN);
    assert_int_equal(load(paired, AG_WEIGHTS_MIX, dir).outcome, AG_CACHE_USED);
}

static void a_place_that_cannot_be_written_is_a_warning(void **state) {
    (void)state;
    char below_a_file[128];
    const answer none = load(paired, AG_Q4_0, NULL);
    copy_file(paired, copy);
    snprintf(below_a_file, sizeof below_a_file, "%s/cache", copy);
    const answer a = load(paired, AG_Q4_0, below_a_file);
    assert_int_equal(a.outcome, AG_CACHE_FAILED);
    assert_int_equal(a.n_warnings, 1);
    expect_same(&none, &a);
}

static void a_full_disk_leaves_nothing(void **state) {
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {100000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const answer a = load(paired, AG_Q4_0, dir);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(a.outcome, AG_CACHE_FAILED);
    assert_int_equal(a.n_warnings, 1);
    assert_int_equal(files_in(dir, NULL, 0), 0);
    assert_int_equal(load(paired, AG_Q4_0, dir).outcome, AG_CACHE_WRITTEN);
}

typedef struct patience {
    int calls_left;
    uint64_t done;
} patience;

static bool wait_a_while(void *user, uint64_t done, uint64_t total) {
    patience *p = user;
    assert_true(done >= p->done && done <= total);
    p->done = done;
    return p->calls_left-- > 0;
}

static void giving_up_leaves_nothing(void **state) {
    (void)state;
    ag_backend *be = open_backend(backend_name, 1);
    for (int calls = 0;; calls++) {
        patience p = {.calls_left = calls};
        const ag_model_params params = {.weights = AG_Q4_0,
                                        .weights_cache = dir,
                                        .progress = wait_a_while,
                                        .progress_user = &p};
        ag_model *model;
        const ag_status st = ag_model_load(be, paired, &params, &model, NULL);
        ag_model_destroy(model);
        if (st == AG_OK) break;
        assert_int_equal(st, AG_CANCELLED);
        if (files_in(dir, NULL, 0)) break; /* the rest is loading */
    }
    ag_backend_destroy(be);
}

/* Every allocation of a load of a GGUF file in turn. Without the cache a failure is an error;
 * with it, it may be a warning. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int cached = 0; cached <= 2; cached++) {
        bool failed = true;
        for (size_t n = 0; failed; n++) {
            failing_allocator f;
            ag_backend *be = NULL;
            ag_model *model = NULL;
            ag_error err = {0};
            const ag_backend_params bp = {.name = "cpu", .n_threads = 1};
            const ag_model_params params = {.weights = AG_Q8_0,
                                            .weights_cache = cached ? dir : NULL};
            if (cached == 1) remove_files(dir);
            failing_install(&f, n);
            ag_status st = ag_backend_create(&bp, &be, &err);
            if (st == AG_OK) st = ag_model_load(be, paired, &params, &model, &err);
            failed = atomic_load(&f.failed);
            assert_int_equal(st == AG_OK, model != NULL);
            if (!cached && failed && st != AG_NOMEM) fail_msg("allocation %zu: %s", n, err.msg);
            if (st != AG_OK) assert_true(st == AG_NOMEM && err.msg[0]);
            if (!failed) assert_int_equal(st, AG_OK);
            ag_model_destroy(model);
            ag_backend_destroy(be);
            assert_int_equal(atomic_load(&f.in_use), 0);
            ag_set_allocator(NULL);
        }
    }
}

int main(int argc, char **argv) {
    if (argc > 1) backend_name = argv[1];
    ag_backend *be = open_backend(backend_name, 1);
    if (!be) return EXIT_SKIPPED;
    ag_backend_destroy(be);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(bits_are_the_same_with_and_without, empty),
        cmocka_unit_test_setup(what_keeps_its_type_is_not_kept_twice, empty),
        cmocka_unit_test_setup(files_are_their_owners_alone, empty),
        cmocka_unit_test_setup(a_model_that_changes_is_converted_anew, empty),
        cmocka_unit_test_setup(what_is_damaged_is_replaced, empty),
        cmocka_unit_test_setup(a_place_that_cannot_be_written_is_a_warning, empty),
        cmocka_unit_test_setup(a_full_disk_leaves_nothing, empty),
        cmocka_unit_test_setup(giving_up_leaves_nothing, empty),
        cmocka_unit_test_setup(every_allocation_may_fail, empty),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
