/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/sys_monitor.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 1024, MAX_TEXT = 8192, WINDOW_MS = 2000 };

struct ag_sys_monitor {
    char *root; /* owned; without a trailing slash */
    char text[MAX_TEXT];
    bool version2;
    char group[MAX_PATH]; /* path of this process's group below the mount; "" is the root group */
    bool in_group;
    /* Stalled time in us at the last reading, and the shares since the reading before. */
    bool has_totals, has_shares;
    uint64_t totals_ms, some_us, full_us;
    double some, full;
};

/* Reads root/dir/group/name into m->text. Returns false if it is missing or the path is too
 * long. */
static bool read_system_file(ag_sys_monitor *m, const char *dir, const char *group,
                             const char *name) {
    char path[2 * MAX_PATH];
    int len = snprintf(path, sizeof path, "%s%s%s/%s", m->root, dir, group, name);
    if (len < 0 || (size_t)len >= sizeof path) return false;
    return ag_read_small_file(path, m->text, MAX_TEXT);
}

/* Finds a line that begins with `key` and returns the number after it. */
static bool find_number(const char *text, const char *key, uint64_t *out) {
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, n) != 0) continue;
        char *end;
        uint64_t value = strtoull(line + n, &end, 10);
        if (end == line + n) return false;
        *out = value;
        return true;
    }
    return false;
}

/* Reads a file that holds one number, or "max". */
static bool read_group_number(ag_sys_monitor *m, const char *dir, const char *group,
                              const char *name, uint64_t *out) {
    return read_system_file(m, dir, group, name) && find_number(m->text, "", out);
}

/* ---- control groups ---- */

static const char *mount_of(const ag_sys_monitor *m) {
    return m->version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
}

static const char *usage_name(const ag_sys_monitor *m) {
    return m->version2 ? "memory.current" : "memory.usage_in_bytes";
}

/* Finds the group of this process. "0::/a/b" is a line of version 2, "7:cpu,memory:/a/b" one of
 * version 1. Version 1 has priority, since the memory controller is in one hierarchy only. */
static void find_group(ag_sys_monitor *m) {
    if (!read_system_file(m, "/proc", "/self", "cgroup")) return;
    for (char *line = m->text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        bool v2 = !names[1], v1 = strstr(names + 1, "memory") != NULL;
        if ((!v1 && !(v2 && !m->in_group)) || strlen(path) >= MAX_PATH) continue;
        m->in_group = true;
        m->version2 = v2;
        strcpy(m->group, strcmp(path, "/") ? path : "");
        if (v1) return;
    }
}

/* Inside a container the path may be the host's; then the root of the mount is the group. */
static void complete_group(ag_sys_monitor *m) {
    find_group(m);
    uint64_t unused;
    if (!m->in_group || read_group_number(m, mount_of(m), m->group, usage_name(m), &unused)) return;
    m->group[0] = '\0';
    m->in_group = read_group_number(m, mount_of(m), m->group, usage_name(m), &unused);
}

/* Returns whether the group has a limit, and sets *limit to the lower one. */
static bool limit_of(ag_sys_monitor *m, const char *group, uint64_t *limit) {
    const uint64_t unlimited = UINT64_C(1) << 62; /* version 1 writes a number near 2^63 */
    uint64_t high = UINT64_MAX, max = UINT64_MAX;
    if (m->version2) {
        read_group_number(m, mount_of(m), group, "memory.high", &high);
        read_group_number(m, mount_of(m), group, "memory.max", &max);
    } else {
        read_group_number(m, mount_of(m), group, "memory.limit_in_bytes", &max);
    }
    *limit = high < max ? high : max;
    return *limit < unlimited;
}

/* Reads the usage without cached file pages, which the group would drop first. */
static bool usage_of(ag_sys_monitor *m, const char *group, uint64_t *used) {
    uint64_t cached;
    if (!read_group_number(m, mount_of(m), group, usage_name(m), used)) return false;
    if (read_system_file(m, mount_of(m), group, "memory.stat") &&
        find_number(m->text, m->version2 ? "inactive_file " : "total_inactive_file ", &cached)) {
        *used = *used > cached ? *used - cached : 0;
    }
    return true;
}

/* Reads the group, or its ancestor, with the least memory left. */
static void read_groups(ag_sys_monitor *m, ag_memory_signals *out) {
    char group[MAX_PATH];
    strcpy(group, m->group);
    for (;;) {
        uint64_t limit, used;
        if (limit_of(m, group, &limit) && usage_of(m, group, &used)) {
            uint64_t remaining = limit > used ? limit - used : 0;
            uint64_t min_remaining =
                out->group_limit > out->group_used ? out->group_limit - out->group_used : 0;
            if (!out->has_group || remaining < min_remaining) {
                out->has_group = true;
                out->group_limit = limit;
                out->group_used = used;
            }
        }
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

/* ---- stalls ---- */

static bool read_totals(ag_sys_monitor *m, uint64_t *some, uint64_t *full) {
    bool found =
        m->in_group && m->version2 && read_system_file(m, mount_of(m), m->group, "memory.pressure");
    if (!found && !read_system_file(m, "/proc", "/pressure", "memory")) return false;
    const char *at[2] = {strstr(m->text, "some "), strstr(m->text, "full ")};
    uint64_t *to[2] = {some, full};
    for (int i = 0; i < 2; i++) {
        const char *total = at[i] ? strstr(at[i], "total=") : NULL;
        if (!total) return false;
        *to[i] = strtoull(total + strlen("total="), NULL, 10);
    }
    return true;
}

static double share(uint64_t now_us, uint64_t before_us, uint64_t window_ms) {
    return now_us > before_us ? (double)(now_us - before_us) / 1000 / (double)window_ms : 0;
}

static void read_stalls(ag_sys_monitor *m, uint64_t now_ms, ag_memory_signals *out) {
    uint64_t some, full, window = now_ms - m->totals_ms;
    if ((!m->has_totals || window >= WINDOW_MS) && read_totals(m, &some, &full)) {
        if (m->has_totals) {
            m->some = share(some, m->some_us, window);
            m->full = share(full, m->full_us, window);
            m->has_shares = true;
        }
        m->has_totals = true;
        m->totals_ms = now_ms;
        m->some_us = some;
        m->full_us = full;
    }
    out->has_stalls = m->has_shares;
    out->stalled_some = m->some;
    out->stalled_full = m->full;
}

/* ---- monitor ---- */

ag_status ag_sys_monitor_create(const char *root, ag_sys_monitor **out, ag_error *err) {
    *out = NULL;
    size_t n = root ? strlen(root) : 0;
    while (n && root[n - 1] == '/') n--;
    if (n >= MAX_PATH) {
        return AG_FAIL(err, INVALID,
                       "the system root is too long: %zu bytes, at most %d are allowed", n,
                       MAX_PATH - 1);
    }
    ag_sys_monitor *m = ag_calloc(1, sizeof *m);
    if (m) m->root = ag_strndup(n ? root : "", n);
    if (!m || !m->root) {
        ag_sys_monitor_destroy(m);
        return AG_FAIL(err, NOMEM, "memory monitor of %zu bytes", sizeof *m);
    }
    complete_group(m);
    *out = m;
    return AG_OK;
}

void ag_sys_monitor_destroy(ag_sys_monitor *m) {
    if (!m) return;
    ag_free(m->root);
    ag_free(m);
}

void ag_sys_monitor_read(ag_sys_monitor *m, uint64_t now_ms, ag_memory_signals *out) {
    *out = (ag_memory_signals){.hint = AG_PRESSURE_NORMAL};
    uint64_t kib;
    if (read_system_file(m, "/proc", "", "meminfo") &&
        find_number(m->text, "MemAvailable:", &kib)) {
        out->has_available = true;
        out->available = kib * 1024;
    }
    if (m->in_group) read_groups(m, out);
    read_stalls(m, now_ms, out);
}
