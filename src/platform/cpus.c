/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/cpus.h"

#include "platform/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

/* ---- sets ---- */

void ag_cpu_set_add(ag_cpu_set *set, unsigned cpu) {
    set->words[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

void ag_cpu_set_remove(ag_cpu_set *set, unsigned cpu) {
    set->words[cpu / 64] &= ~(UINT64_C(1) << cpu % 64);
}

bool ag_cpu_set_has(const ag_cpu_set *set, unsigned cpu) {
    return set->words[cpu / 64] >> cpu % 64 & 1;
}

static uint32_t count_cpus(const ag_cpu_set *set) {
    uint32_t n = 0;
    for (unsigned i = 0; i < AG_MAX_CPUS; i++) n += ag_cpu_set_has(set, i);
    return n;
}

/* ---- quotas ---- */

static uint32_t round_up_cpus(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return UINT32_MAX;
    long long cpus = quota / period + (quota % period != 0);
    return cpus < UINT32_MAX ? (uint32_t)cpus : UINT32_MAX;
}

/* Version 2: "max 100000" or "150000 100000", quota and period in microseconds. */
static uint32_t quota_v2(const char *dir) {
    char path[PATH_MAX], text[64];
    if (snprintf(path, sizeof path, "%s/cpu.max", dir) >= (int)sizeof path) return UINT32_MAX;
    long long quota, period;
    if (!ag_read_small_file(path, text, sizeof text)) return UINT32_MAX;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2) return UINT32_MAX;
    return round_up_cpus(quota, period);
}

/* Version 1: two files. A quota of -1 means no limit. */
static uint32_t quota_v1(const char *dir) {
    static const char *const names[2] = {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
    long long values[2];
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX], text[64];
        if (snprintf(path, sizeof path, "%s/%s", dir, names[i]) >= (int)sizeof path) {
            return UINT32_MAX;
        }
        if (!ag_read_small_file(path, text, sizeof text) || sscanf(text, "%lld", &values[i]) != 1) {
            return UINT32_MAX;
        }
    }
    return round_up_cpus(values[0], values[1]);
}

/* Returns the smallest quota of root/mount/group and its parents, up to root/mount. Inside a
 * container the group's path may not exist below the mount. Its parents are read all the same. */
static uint32_t walk_up(const char *root, const char *mount, const char *group,
                        uint32_t (*quota)(const char *dir)) {
    char dir[PATH_MAX];
    int n = snprintf(dir, sizeof dir, "%s%s%s", root, mount, group);
    if (n < 0 || n >= (int)sizeof dir) return UINT32_MAX;
    size_t top = strlen(root) + strlen(mount);
    uint32_t min = UINT32_MAX;
    for (;;) {
        uint32_t cpus = quota(dir);
        if (cpus < min) min = cpus;
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= top || !slash || slash < dir + top) return min;
        *slash = '\0';
    }
}

static bool lists_cpu(const char *controllers) {
    for (const char *s = controllers; *s;) {
        size_t n = strcspn(s, ",");
        if (n == 3 && !strncmp(s, "cpu", 3)) return true;
        s += n + (s[n] == ',');
    }
    return false;
}

/* Parses a line of /proc/self/cgroup, "id:controllers:path"; version 2 has no controllers. */
static uint32_t cpus_of_line(char *line, const char *root) {
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return UINT32_MAX;
    *group++ = '\0';
    controllers++;
    if (!*controllers) {
        uint32_t cpus = walk_up(root, "", group, quota_v2);
        uint32_t hybrid = walk_up(root, "/unified", group, quota_v2);
        return cpus < hybrid ? cpus : hybrid;
    }
    if (!lists_cpu(controllers)) return UINT32_MAX;
    char mount[128];
    snprintf(mount, sizeof mount, "/%s", controllers);
    uint32_t cpus = walk_up(root, mount, group, quota_v1);
    return cpus != UINT32_MAX ? cpus : walk_up(root, "/cpu", group, quota_v1);
}

uint32_t ag_cgroup_cpus(const char *membership, const char *root) {
    char text[8192];
    if (!ag_read_small_file(membership, text, sizeof text)) return UINT32_MAX;
    uint32_t min = UINT32_MAX;
    char *remaining = text;
    for (char *line; (line = strsep(&remaining, "\n"));) {
        uint32_t cpus = cpus_of_line(line, root);
        if (cpus < min) min = cpus;
    }
    return min;
}

/* ---- affinity ---- */

static uint32_t affinity_cpus(void) {
#ifdef __linux__
    cpu_set_t sets[8]; /* 8192 cores: the kernel rejects a set smaller than its own */
    if (!sched_getaffinity(0, sizeof sets, sets)) return (uint32_t)CPU_COUNT_S(sizeof sets, sets);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* Returns the cores of the calling thread's affinity; false if it has more than AG_MAX_CPUS. */
static bool read_affinity(ag_cpu_set *set) {
    *set = (ag_cpu_set){0};
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return false;
    for (unsigned i = 0; i < AG_MAX_CPUS; i++) {
        if (CPU_ISSET(i, &allowed)) ag_cpu_set_add(set, i);
    }
    return true;
#else
    return false;
#endif
}

void ag_bind_thread(const ag_cpu_set *set) {
#ifdef __linux__
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (unsigned i = 0; i < AG_MAX_CPUS; i++) {
        if (ag_cpu_set_has(set, i)) CPU_SET(i, &cores);
    }
    (void)sched_setaffinity(0, sizeof cores, &cores);
#else
    (void)set;
#endif
}

uint32_t ag_usable_cpus(void) {
    uint32_t cpus = affinity_cpus();
    uint32_t quota = ag_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota < cpus) cpus = quota;
    return cpus ? cpus : 1;
}

/* ---- big and little ---- */

static long capacity_of(const char *root, unsigned cpu) {
    char path[PATH_MAX], text[32];
    long value;
    if (snprintf(path, sizeof path, "%s/cpu%u/cpu_capacity", root, cpu) >= (int)sizeof path)
        return 0;
    if (!ag_read_small_file(path, text, sizeof text) || sscanf(text, "%ld", &value) != 1) return 0;
    return value > 0 ? value : 0;
}

uint32_t ag_keep_big_cpus(const char *root, ag_cpu_set *set) {
    long largest = 0;
    for (unsigned i = 0; i < AG_MAX_CPUS; i++) {
        if (!ag_cpu_set_has(set, i)) continue;
        const long capacity = capacity_of(root, i);
        if (!capacity) return count_cpus(set);
        if (capacity > largest) largest = capacity;
    }
    for (unsigned i = 0; i < AG_MAX_CPUS; i++) {
        if (ag_cpu_set_has(set, i) && capacity_of(root, i) * 2 < largest) ag_cpu_set_remove(set, i);
    }
    return count_cpus(set);
}

uint32_t ag_default_cpus(ag_cpu_set *set, bool *fewer) {
    const uint32_t usable = ag_usable_cpus();
    *fewer = false;
    if (!read_affinity(set)) return usable;
    const uint32_t allowed = count_cpus(set);
    const uint32_t big = ag_keep_big_cpus("/sys/devices/system/cpu", set);
    *fewer = big < allowed;
    return big && big < usable ? big : usable;
}
