/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/process_memory.h"

#include <antigravity/process.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_size_t highest_anonymous;

/* The whole text of a small file, terminated; false if there is none. */
static bool read_text(const char *path, char *text, size_t cap) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t n = 0;
    ssize_t got;
    while (n < cap - 1 && (got = read(fd, text + n, cap - 1 - n)) > 0) n += (size_t)got;
    close(fd);
    text[n] = '\0';
    return n > 0;
}

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
    if (!read_text("/proc/self/status", text, sizeof text)) return 0;
    find_bytes(text, "\nRssShmem:", &shared);
    find_bytes(text, "\nVmSwap:", &swapped);
    return shared + swapped;
}

ag_status ag_process_memory(ag_memory_usage *out) {
    *out = (ag_memory_usage){0};
    char text[8192];
    ag_memory_usage u;
    if (!read_text("/proc/self/status", text, sizeof text) ||
        !find_bytes(text, "\nRssAnon:", &u.anonymous) || !find_bytes(text, "\nRssFile:", &u.file) ||
        !find_bytes(text, "\nVmHWM:", &u.peak)) {
        return AG_UNSUPPORTED;
    }
    u.anonymous_peak = raise_highest(u.anonymous);
    *out = u;
    return AG_OK;
}
