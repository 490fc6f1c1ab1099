/* SPDX-License-Identifier: Apache-2.0 */
#include "user_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool user_path(char path[PATH_MAX], const char *variable, const char *below, const char *name) {
    const char *directory = getenv(variable), *home = getenv("HOME");
    int n = PATH_MAX;
    /* The XDG specification ignores relative paths. */
    if (directory && directory[0] == '/')
        n = snprintf(path, PATH_MAX, "%s/antigravity/%s", directory, name);
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
    snprintf(f->temp_path, sizeof f->temp_path, "%s.XXXXXX", path);
    f->fd = mkstemp(f->temp_path);
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
    int error = errno;
    if (ok && fsync(f->fd) != 0) error = errno, ok = false;
    if (close(f->fd) != 0 && ok) error = errno, ok = false;
    if (ok && rename(f->temp_path, f->path) != 0) error = errno, ok = false;
    if (!ok) unlink(f->temp_path);
    errno = error;
    return ok;
}
