/* SPDX-License-Identifier: Apache-2.0 */
#include "core/directories.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

bool ag_make_directories(const char *path) {
    char part[PATH_MAX];
    const size_t n = strlen(path);
    if (n >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) return false;
        part[i] = path[i];
    }
    return true;
}
