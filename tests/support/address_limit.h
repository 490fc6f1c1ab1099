/* SPDX-License-Identifier: Apache-2.0 */
/* A limit of the address space, for tests of what fits no longer. */
#ifndef AG_TESTS_SUPPORT_ADDRESS_LIMIT_H
#define AG_TESTS_SUPPORT_ADDRESS_LIMIT_H

#include "support/sanitized.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Limits the address space to its present size and `spare` bytes. *before: the limit to be restored
 * by setrlimit(RLIMIT_AS). Returns false, with the old limit, where it does not hold. */
static inline bool limit_address_space(size_t spare, struct rlimit *before) {
#if SANITIZED
    (void)spare, (void)before;
    return false; /* their shadow takes the address space */
#else
    FILE *f = fopen("/proc/self/statm", "r");
    size_t pages = 0;
    const bool is_known = f && fscanf(f, "%zu", &pages) == 1;
    if (f) fclose(f);
    if (!is_known || getrlimit(RLIMIT_AS, before)) return false;
    struct rlimit limit = *before;
    limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + spare;
    if (setrlimit(RLIMIT_AS, &limit)) return false;
    /* An emulator may not obey. */
    void *large = mmap(NULL, 2 * spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (large == MAP_FAILED) return true;
    munmap(large, 2 * spare);
    setrlimit(RLIMIT_AS, before);
    return false;
#endif
}

#endif
