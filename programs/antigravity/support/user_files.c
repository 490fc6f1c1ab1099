/* SPDX-License-Identifier: Apache-2.0 */
#include "user_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool user_path(char path[PATH_MAX], const char *variable, const char *below, const char *name) {
    const char *own = getenv(variable), *home = getenv("HOME");
    int n = PATH_MAX;
    /* The XDG specification wants relative paths ignored. */
    if (own && own[0] == '/') n = snprintf(path, PATH_MAX, "%s/antigravity/%s", own, name);
    else if (home && home[0])
        n = snprintf(path, PATH_MAX, "%s/%s/antigravity/%s", home, below, name);
    return n > 0 && n < PATH_MAX;
}

bool make_directories(const char *path, mode_t mode) {
    char copy[PATH_MAX];
    if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *slash = copy + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(copy, mode) != 0 && errno != EEXIST) return false;
        *slash = '/';
    }
    return mkdir(copy, mode) == 0 || errno == EEXIST;
}

bool path_join(char path[PATH_MAX], const char *dir, const char *name) {
    return (size_t)snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

bool path_ends_in(const char *path, const char *ending) {
    const size_t n = strlen(path), k = strlen(ending);
    return n > k && !strcmp(path + n - k, ending);
}

bool new_file_open(new_file *f, const char *path) {
    f->path = path;
    snprintf(f->part, sizeof f->part, "%s.XXXXXX", path);
    f->fd = mkstemp(f->part);
    return f->fd >= 0;
}

bool new_file_write(new_file *f, const char *text, size_t n) {
    while (n) {
        const ssize_t done = write(f->fd, text, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        text += done;
        n -= (size_t)done;
    }
    return true;
}

bool new_file_close(new_file *f, bool ok) {
    int why = errno;
    if (ok && fsync(f->fd) != 0) why = errno, ok = false;
    if (close(f->fd) != 0 && ok) why = errno, ok = false;
    if (ok && rename(f->part, f->path) != 0) why = errno, ok = false;
    if (!ok) unlink(f->part);
    errno = why;
    return ok;
}
