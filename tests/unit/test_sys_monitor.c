/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a system whose files the test writes. */
#include "cache/sys_monitor.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <antigravity/alloc.h>
#include <cmocka.h>

static char root[256];

static int make_root(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/ag-system-XXXXXX", tmp ? tmp : "/tmp");
    return !mkdtemp(root);
}

static int remove_root(void **state) {
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(!mkdir(path, 0755) || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static ag_sys_monitor *monitor(void) {
    ag_sys_monitor *m;
    ag_error err;
    if (ag_sys_monitor_create(root, &m, &err) != AG_OK) fail_msg("%s", err.msg);
    return m;
}

static void reports_nothing_without_files(void **state) {
    (void)state;
    ag_sys_monitor *m = monitor();
    ag_memory_signals s;
    ag_sys_monitor_read(m, 0, &s);
    assert_false(s.has_available || s.has_group || s.has_stalls);
    ag_sys_monitor_destroy(m);
}

static void reads_available_memory_and_stalls(void **state) {
    (void)state;
    put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    300 kB\nX: 4\n");
    put("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n"
                                 "full avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n");
    ag_sys_monitor *m = monitor();
    ag_memory_signals s;
    size_t before = ag_allocation_count();
    ag_sys_monitor_read(m, 1000, &s);
    assert_true(s.has_available && s.available == 300 * 1024);
    assert_false(s.has_stalls); /* a first reading gives no difference */
    put("/proc/pressure/memory", "some avg10=9.00 avg60=0.00 avg300=0.00 total=1400000\n"
                                 "full avg10=0.00 avg60=0.00 avg300=0.00 total=600000\n");
    ag_sys_monitor_read(m, 2900, &s);
    assert_false(s.has_stalls); /* less than 2 s */
    ag_sys_monitor_read(m, 5000, &s);
    assert_true(s.has_stalls);
    assert_true(s.stalled_some > 0.0999 && s.stalled_some < 0.1001);
    assert_true(s.stalled_full > 0.0249 && s.stalled_full < 0.0251);
    ag_sys_monitor_read(m, 5100, &s); /* keeps the shares of the last window */
    assert_true(s.has_stalls && s.stalled_some > 0.09);
    ag_sys_monitor_read(m, 7100, &s);
    assert_true(s.has_stalls && s.stalled_some < 0.001);
    assert_int_equal(ag_allocation_count() - before, 0);
    ag_sys_monitor_destroy(m);
}

static void reads_limits_of_group_v2_and_its_ancestors(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/user/app\n");
    put("/sys/fs/cgroup/user/app/memory.current", "700000\n");
    put("/sys/fs/cgroup/user/app/memory.high", "max\n");
    put("/sys/fs/cgroup/user/app/memory.max", "900000\n");
    put("/sys/fs/cgroup/user/app/memory.stat", "anon 600000\ninactive_file 50000\nfile 100000\n");
    put("/sys/fs/cgroup/user/app/memory.pressure", "some total=0\nfull total=0\n");
    put("/sys/fs/cgroup/user/memory.current", "2000000\n");
    put("/sys/fs/cgroup/user/memory.high", "max\n");
    put("/sys/fs/cgroup/user/memory.max", "max\n");
    ag_sys_monitor *m = monitor();
    ag_memory_signals s;
    ag_sys_monitor_read(m, 0, &s);
    assert_true(s.has_group && s.group_limit == 900000 && s.group_used == 650000);
    put("/sys/fs/cgroup/user/app/memory.high", "800000\n"); /* limits may change at run time */
    ag_sys_monitor_read(m, 0, &s);
    assert_int_equal(s.group_limit, 800000);
    put("/sys/fs/cgroup/user/memory.max", "2010000\n");
    ag_sys_monitor_read(m, 0, &s);
    assert_true(s.group_limit == 2010000 && s.group_used == 2000000);
    put("/sys/fs/cgroup/user/app/memory.pressure", "some total=400000\nfull total=0\n");
    ag_sys_monitor_read(m, 2000, &s); /* the group's, not the machine's */
    assert_true(s.has_stalls && s.stalled_some > 0.19 && s.stalled_some < 0.21);
    ag_sys_monitor_destroy(m);
}

static void finds_group_v1_with_or_without_a_limit(void **state) {
    (void)state;
    put("/proc/self/cgroup", "12:cpu,cpuacct:/x\n3:memory:/box\n0::/unified\n");
    put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "5000\n");
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
    ag_sys_monitor *m = monitor();
    ag_memory_signals s;
    ag_sys_monitor_read(m, 0, &s);
    assert_false(s.has_group);
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "8000\n");
    put("/sys/fs/cgroup/memory/box/memory.stat", "cache 10\ntotal_inactive_file 1000\n");
    ag_sys_monitor_read(m, 0, &s);
    assert_true(s.has_group && s.group_limit == 8000 && s.group_used == 4000);
    ag_sys_monitor_destroy(m);
    /* In a container the path is the host's, and the mount is the root of the group. */
    put("/proc/self/cgroup", "3:memory:/docker/0123\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "70\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "100\n");
    m = monitor();
    ag_sys_monitor_read(m, 0, &s);
    assert_true(s.has_group && s.group_limit == 100 && s.group_used == 70);
    ag_sys_monitor_destroy(m);
}

static void reads_the_real_system(void **state) {
    (void)state;
    ag_sys_monitor *m;
    ag_memory_signals s;
    assert_int_equal(ag_sys_monitor_create(NULL, &m, NULL), AG_OK);
    ag_sys_monitor_read(m, 0, &s);
    assert_true(s.has_available && s.available > 0);
    ag_sys_monitor_destroy(m);
}

static void ignores_malformed_files(void **state) {
    (void)state;
    put("/proc/meminfo", "MemAvailable: lots\n");
    put("/proc/pressure/memory", "some\nfull total\n");
    put("/proc/self/cgroup", "::\n:\n\nmemory\n1:memory\n");
    ag_sys_monitor *m = monitor();
    ag_memory_signals s;
    ag_sys_monitor_read(m, 0, &s);
    ag_sys_monitor_read(m, 9000, &s);
    assert_false(s.has_available || s.has_stalls);
    ag_sys_monitor_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_nothing_without_files),
        cmocka_unit_test(reads_available_memory_and_stalls),
        cmocka_unit_test(reads_limits_of_group_v2_and_its_ancestors),
        cmocka_unit_test(finds_group_v1_with_or_without_a_limit),
        cmocka_unit_test(reads_the_real_system),
        cmocka_unit_test(ignores_malformed_files),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
