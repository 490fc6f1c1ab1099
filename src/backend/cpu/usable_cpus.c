/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/usable_cpus.h"

#include "backend/cpu/pool.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

/* Reads the start of a small file as text. Returns false if it cannot be read. */
static bool read_text(const char *path, char *text, size_t cap) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t used = 0;
    ssize_t got = 0;
    while (used + 1 < cap && (got = read(fd, text + used, cap - 1 - used)) > 0) {
        used += (size_t)got;
    }
    close(fd);
    text[used] = '\0';
    return got >= 0;
}

static uint32_t round_up_cpus(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return UINT32_MAX;
    long long cpus = quota / period + (quota % period != 0);
    return cpus < UINT32_MAX ? (uint32_t)cpus : UINT32_MAX;
}

/* Returns the quota of cgroup v2 ("max 100000" or "150000 100000") in cores. */
static uint32_t quota_v2(const char *dir) {
    char path[PATH_MAX], text[64];
    if (snprintf(path, sizeof path, "%s/cpu.max", dir) >= (int)sizeof path) return UINT32_MAX;
    long long quota, period;
    if (!read_text(path, text, sizeof text)) return UINT32_MAX;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2) return UINT32_MAX;
    return round_up_cpus(quota, period);
}

/* Returns the quota of cgroup v1 (two files; -1: no quota) in cores. */
static uint32_t quota_v1(const char *dir) {
    static const char *const names[2] = {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
    long long values[2];
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX], text[64];
        if (snprintf(path, sizeof path, "%s/%s", dir, names[i]) >= (int)sizeof path) {
            return UINT32_MAX;
        }
        if (!read_text(path, text, sizeof text) || sscanf(text, "%lld", &values[i]) != 1) {
            return UINT32_MAX;
        }
    }
    return round_up_cpus(values[0], values[1]);
}

/* Returns the smallest quota of root/mount/group and its ancestors up to root/mount. In a container
 * the group's path may not exist below the mount; its ancestors are read nevertheless. */
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

/* Parses a line of /proc/self/cgroup, "id:controllers:path"; v2 has no controllers. */
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
    if (!read_text(membership, text, sizeof text)) return UINT32_MAX;
    uint32_t min = UINT32_MAX;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        uint32_t cpus = cpus_of_line(line, root);
        if (cpus < min) min = cpus;
    }
    return min;
}

static uint32_t affinity_cpus(void) {
#ifdef __linux__
    cpu_set_t sets[8]; /* 8192 cores: the kernel refuses a set smaller than its own */
    if (!sched_getaffinity(0, sizeof sets, sets)) return (uint32_t)CPU_COUNT_S(sizeof sets, sets);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

uint32_t ag_usable_cpus(void) {
    uint32_t cpus = affinity_cpus();
    uint32_t quota = ag_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota < cpus) cpus = quota;
    return cpus ? cpus : 1;
}

/* ---- big and little ---- */

static long capacity_of(const char *root, int cpu) {
    char path[PATH_MAX], text[32];
    long value;
    if (snprintf(path, sizeof path, "%s/cpu%d/cpu_capacity", root, cpu) >= (int)sizeof path)
        return 0;
    if (!read_text(path, text, sizeof text) || sscanf(text, "%ld", &value) != 1) return 0;
    return value > 0 ? value : 0;
}

uint32_t ag_keep_big_cpus(const char *root, cpu_set_t *set) {
    long largest = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, set)) continue;
        const long capacity = capacity_of(root, i);
        if (!capacity) return (uint32_t)CPU_COUNT(set);
        if (capacity > largest) largest = capacity;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, set) && capacity_of(root, i) * 2 < largest) CPU_CLR(i, set);
    }
    return (uint32_t)CPU_COUNT(set);
}

uint32_t ag_default_cpus(cpu_set_t *set, bool *fewer) {
    const uint32_t usable = ag_usable_cpus();
    *fewer = false;
    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof *set, set)) return usable;
    const uint32_t allowed = (uint32_t)CPU_COUNT(set);
    const uint32_t big = ag_keep_big_cpus("/sys/devices/system/cpu", set);
    *fewer = big < allowed;
    return big && big < usable ? big : usable;
}
