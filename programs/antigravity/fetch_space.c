/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch_space.h"

#include "http.h"
#include "output.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>

bool fetch_has_space(const char *path, uint64_t needed, char *why) {
    struct statvfs fs;
    char wanted[32], free_space[32];
    if (statvfs(path, &fs) != 0 || !fs.f_blocks) return true;
    const uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (needed <= available) return true;
    snprintf(why, HTTP_WHY,
             "%s: not enough disk space: %" PRIu64 " bytes (%s) needed, %" PRIu64
             " bytes (%s) available",
             path, needed, format_bytes((double)needed, wanted, sizeof wanted), available,
             format_bytes((double)available, free_space, sizeof free_space));
    return false;
}
