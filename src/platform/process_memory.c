/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/process_memory.h"

#include "platform/file.h"

#include <antigravity/process.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/sysinfo.h>
#endif

static atomic_size_t highest_anonymous;

/* The bytes of a line "\nName:   1234 kB". */
static bool find_bytes(const char *text, const char *line, size_t *bytes) {
    const char *p = strstr(text, line);
    if (!p) return false;
    p += strlen(line);
    char *end;
    unsigned long long kib = strtoull(p, &end, 10);
    if (end == p) return false;
    *bytes = (size_t)kib * 1024;
    return true;
}

static size_t raise_highest(size_t anonymous) {
    size_t highest = atomic_load_explicit(&highest_anonymous, memory_order_relaxed);
    while (highest < anonymous &&
           !atomic_compare_exchange_weak_explicit(&highest_anonymous, &highest, anonymous,
                                                  memory_order_relaxed, memory_order_relaxed)) {}
    return highest > anonymous ? highest : anonymous;
}

size_t ag_process_shared_bytes(void) {
    char text[8192];
    size_t shared = 0, swapped = 0;
    if (!ag_read_small_file("/proc/self/status", text, sizeof text)) return 0;
    find_bytes(text, "\nRssShmem:", &shared);
    find_bytes(text, "\nVmSwap:", &swapped);
    return shared + swapped;
}

ag_status ag_process_memory(ag_memory_usage *out) {
    *out = (ag_memory_usage){0};
    char text[8192];
    ag_memory_usage u;
    if (!ag_read_small_file("/proc/self/status", text, sizeof text) ||
        !find_bytes(text, "\nRssAnon:", &u.anonymous) || !find_bytes(text, "\nRssFile:", &u.file) ||
        !find_bytes(text, "\nVmHWM:", &u.peak)) {
        return AG_UNSUPPORTED;
    }
    u.anonymous_peak = raise_highest(u.anonymous);
    *out = u;
    return AG_OK;
}

uint64_t ag_machine_memory_bytes(void) {
#ifdef __linux__
    struct sysinfo s;
    if (sysinfo(&s) == 0) return ((uint64_t)s.totalram + s.totalswap) * s.mem_unit;
#endif
    return 0;
}

void ag_trim_heap(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
