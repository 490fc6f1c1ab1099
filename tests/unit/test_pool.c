/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/pool.h"

#include "platform/cpus.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 1000 };

typedef struct visits {
    atomic_uint seen[MOST];
    size_t n, grain;
    uint32_t n_threads;
    atomic_uint faults; /* asserting is the main thread's business */
} visits;

static void visit(void *ctx, size_t begin, size_t end, uint32_t thread) {
    visits *v = ctx;
    bool whole = begin % v->grain == 0 && (end - begin == v->grain || end == v->n);
    if (begin >= end || end > v->n || !whole || thread >= v->n_threads) {
        atomic_fetch_add(&v->faults, 1);
        return;
    }
    for (size_t i = begin; i < end; i++) atomic_fetch_add(&v->seen[i], 1);
}

static void visits_every_index_once(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 7, 8, 9, 63, 64, 65, 999, MOST};
    static const size_t grains[] = {1, 2, 3, 7, 64, 999, 5000};
    for (uint32_t threads = 1; threads <= 9; threads++) {
        ag_pool *pool;
        assert_int_equal(ag_pool_create(threads, &pool, NULL), AG_OK);
        assert_int_equal(ag_pool_threads(pool), threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (size_t j = 0; j < sizeof grains / sizeof grains[0]; j++) {
                visits v = {.n = sizes[i], .grain = grains[j], .n_threads = threads};
                /* A range that is one chunk is [0, n). */
                ag_pool_run(pool, v.n, v.grain, visit, &v);
                assert_int_equal(v.faults, 0);
                for (size_t k = 0; k < MOST; k++) assert_int_equal(v.seen[k], k < v.n);
            }
        }
        ag_pool_destroy(pool);
    }
}

static void never(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)begin, (void)end, (void)thread;
    *(int *)ctx = 1;
}

static void calls_nothing_for_no_work(void **state) {
    (void)state;
    ag_pool *pool;
    assert_int_equal(ag_pool_create(3, &pool, NULL), AG_OK);
    int called = 0;
    ag_pool_run(pool, 0, 4, never, &called);
    assert_int_equal(called, 0);
    ag_pool_destroy(pool);
    ag_pool_destroy(NULL);
}

/* Not atomic on purpose: writes of a worker must be visible to the caller, and writes of the caller
 * to the workers of the next dispatch. */
typedef struct sums {
    uint64_t in[16], out[16];
} sums;

static void add_index(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)thread;
    sums *s = ctx;
    for (size_t i = begin; i < end; i++) s->out[i] += s->in[i] + i;
}

static void dispatches_see_writes_of_earlier_ones(void **state) {
    (void)state;
    for (uint32_t threads = 2; threads <= 8; threads *= 2) {
        ag_pool *pool;
        assert_int_equal(ag_pool_create(threads, &pool, NULL), AG_OK);
        sums s = {0};
        for (uint64_t round = 0; round < 10000; round++) {
            for (size_t i = 0; i < 16; i++) s.in[i] = round;
            ag_pool_run(pool, 16, 1, add_index, &s);
            for (size_t i = 0; i < 16; i++) {
                assert_int_equal(s.out[i], round * (round + 1) / 2 + (round + 1) * i);
            }
        }
        ag_pool_destroy(pool);
    }
}

static void nap(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)begin, (void)end;
    usleep(500);
    atomic_fetch_or((atomic_uint *)ctx, 1u << thread);
}

static void wakes_sleeping_workers(void **state) {
    (void)state;
    ag_pool *pool;
    assert_int_equal(ag_pool_create(5, &pool, NULL), AG_OK);
    atomic_uint threads = 0;
    for (int i = 0; i < 100 && threads != 31; i++) {
        usleep(1000);
        ag_pool_run(pool, 20, 1, nap, &threads);
    }
    assert_int_equal(threads, 31);
    ag_pool_destroy(pool);
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void idle_pool_uses_no_cpu_time(void **state) {
    (void)state;
    ag_pool *pool;
    assert_int_equal(ag_pool_create(0, &pool, NULL), AG_OK);
    sums s = {0};
    ag_pool_run(pool, 16, 1, add_index, &s);
    usleep(20000); /* the brief spin after a job is over */
    double before = cpu_seconds();
    usleep(300000);
    assert_true(cpu_seconds() - before < 0.02);
    ag_pool_run(pool, 16, 1, add_index, &s);
    assert_int_equal(s.out[15], 30);
    ag_pool_destroy(pool);
}

static void creates_and_destroys_two_hundred_pools(void **state) {
    (void)state;
    ag_pool *outer;
    assert_int_equal(ag_pool_create(2, &outer, NULL), AG_OK);
    for (int i = 0; i < 200; i++) {
        ag_pool *inner;
        assert_int_equal(ag_pool_create(4, &inner, NULL), AG_OK);
        sums s = {0}, t = {0};
        if (i % 2) ag_pool_run(inner, 16, 3, add_index, &s);
        ag_pool_run(outer, 16, 1, add_index, &t);
        assert_int_equal(s.out[15], i % 2 ? 15 : 0);
        assert_int_equal(t.out[15], 15);
        ag_pool_destroy(inner);
    }
    ag_pool_destroy(outer);
}

static void fault_in_a_worker(void *ctx, size_t begin, size_t end, uint32_t thread) {
    (void)ctx, (void)begin, (void)end;
    if (thread) raise(SIGSEGV);
    else usleep(10000);
}

static void on_fault(int number) {
    (void)number;
    _exit(42);
}

static void fault_in_a_worker_calls_the_programs_handler(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        ag_pool *p;
        signal(SIGSEGV, on_fault);
        if (ag_pool_create(4, &p, NULL) != AG_OK) _exit(1);
        for (int i = 0; i < 1000; i++) ag_pool_run(p, 100, 1, fault_in_a_worker, NULL);
        _exit(2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
}

static void rejects_too_many_threads_without_leaks(void **state) {
    (void)state;
    ag_pool *pool = (void *)1;
    ag_error err;
    assert_int_equal(ag_pool_create(1000000, &pool, &err), AG_INVALID);
    assert_null(pool);
    assert_non_null(strstr(err.msg, "1000000"));
}

/* ---- the quota of control groups ---- */

static char root[64];

static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *s = full + strlen(root) + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        mkdir(full, 0700);
        *s = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static uint32_t cpus_with(const char *membership) {
    char path[96];
    put("membership", membership);
    snprintf(path, sizeof path, "%s/membership", root);
    return ag_cgroup_cpus(path, root);
}

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/ag_cgroup_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void rounds_up_and_inherits_a_cgroup_v2_quota(void **state) {
    (void)state;
    put("cpu.max", "max 100000\n");
    put("a/cpu.max", "250000 100000\n");
    put("a/b/cpu.max", "max 100000\n");
    put("a/c/cpu.max", "50000 100000\n");
    assert_int_equal(cpus_with("0::/\n"), UINT32_MAX);
    assert_int_equal(cpus_with("0::/a\n"), 3);
    assert_int_equal(cpus_with("0::/a/b\n"), 3);
    assert_int_equal(cpus_with("0::/a/c\n"), 1);
    assert_int_equal(cpus_with("0::/a/not/mounted/here\n"), 3);
    assert_int_equal(cpus_with("0::/ab\n"), UINT32_MAX);
}

static void finds_a_cgroup_v1_quota_by_its_controller(void **state) {
    (void)state;
    put("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("cpu,cpuacct/box/cpu.cfs_quota_us", "400000\n");
    put("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_with("4:cpuset:/box\n3:cpu,cpuacct:/box\n0::/\n"), 4);
    assert_int_equal(cpus_with("4:cpuset:/box\n"), UINT32_MAX);
    assert_int_equal(cpus_with("3:cpu,cpuacct:/\n"), UINT32_MAX);
}

static void ignores_invalid_cgroup_files(void **state) {
    (void)state;
    put("cpu.max", "0 0\n");
    assert_int_equal(cpus_with("0::/\n"), UINT32_MAX);
    put("cpu.max", "many 100000\n");
    assert_int_equal(cpus_with("0::/\n"), UINT32_MAX);
    assert_int_equal(cpus_with("no colons at all\n\n::\n"), UINT32_MAX);
    assert_int_equal(ag_cgroup_cpus("/nowhere/at/all", root), UINT32_MAX);
    assert_true(ag_usable_cpus() >= 1);
}

/* ---- big and little cores ---- */

static uint32_t big_of(unsigned n_cpus, ag_cpu_set *set) {
    *set = (ag_cpu_set){0};
    for (unsigned i = 0; i < n_cpus; i++) ag_cpu_set_add(set, i);
    return ag_keep_big_cpus(root, set);
}

static void little_cores_are_left_out(void **state) {
    (void)state;
    static const char *const capacities[] = {"160\n", "160\n", "700\n", "1024\n"};
    ag_cpu_set set;
    for (int i = 0; i < 4; i++) {
        char path[32];
        snprintf(path, sizeof path, "cpu%d/cpu_capacity", i);
        put(path, capacities[i]);
    }
    assert_int_equal(big_of(4, &set), 2);
    assert_false(ag_cpu_set_has(&set, 0));
    assert_false(ag_cpu_set_has(&set, 1));
    assert_true(ag_cpu_set_has(&set, 2));
    assert_true(ag_cpu_set_has(&set, 3));
    assert_int_equal(big_of(2, &set), 2); /* equal cores all stay */
    assert_int_equal(big_of(5, &set), 5); /* the capacity of the fifth is unknown */
    put("cpu3/cpu_capacity", "much\n");
    assert_int_equal(big_of(4, &set), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(visits_every_index_once),
        cmocka_unit_test(calls_nothing_for_no_work),
        cmocka_unit_test(dispatches_see_writes_of_earlier_ones),
        cmocka_unit_test(wakes_sleeping_workers),
        cmocka_unit_test(idle_pool_uses_no_cpu_time),
        cmocka_unit_test(creates_and_destroys_two_hundred_pools),
        cmocka_unit_test(fault_in_a_worker_calls_the_programs_handler),
        cmocka_unit_test(rejects_too_many_threads_without_leaks),
        cmocka_unit_test_setup_teardown(rounds_up_and_inherits_a_cgroup_v2_quota, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(finds_a_cgroup_v1_quota_by_its_controller, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(ignores_invalid_cgroup_files, make_root, remove_root),
        cmocka_unit_test_setup_teardown(little_cores_are_left_out, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
