/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/file.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool ag_file_is_named(const char *path) {
    ag_file_info info;
    return ag_file_stat_link(path, &info);
}

/* A broken link is AG_IO, not AG_NOT_FOUND: the file is lost, not optional. */
static ag_status open_error(const char *path, int error, ag_error *err) {
    if (error != ENOENT) return AG_FAIL(err, IO, "%s: %s", path, strerror(error));
    if (!ag_file_is_named(path)) return AG_FAIL(err, NOT_FOUND, "%s: %s", path, strerror(error));
    char to[256];
    ag_file_read_link(path, to, sizeof to);
    return AG_FAIL(err, IO, "%s: is a link to %s, which does not exist", path, to);
}

/* Returns whether the file is the pointer that a clone without git-lfs has instead of a large file.
 */
static bool is_lfs_pointer(int fd, uint64_t size) {
    static const char begin[] = "version https://git-lfs.";
    char first[sizeof begin - 1];
    size_t n;
    return size < 1024 && ag_fd_read_at(fd, 0, first, sizeof first, &n) && n == sizeof first &&
           memcmp(first, begin, sizeof first) == 0;
}

ag_status ag_file_open(const char *path, int *fd, uint64_t *size_bytes, ag_error *err) {
    *fd = -1;
    const int f = ag_fd_open(path);
    if (f < 0) return open_error(path, errno, err);
    ag_file_info info;
    ag_status st = AG_OK;
    if (!ag_fd_stat(f, &info)) st = AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    else if (info.kind == AG_FILE_DIRECTORY)
        st = AG_FAIL(err, IO, "%s: is a directory, not a file", path);
    else if (info.kind != AG_FILE_REGULAR) st = AG_FAIL(err, IO, "%s: is not a regular file", path);
    else if (is_lfs_pointer(f, info.bytes)) {
        st = AG_FAIL(err, FORMAT,
                     "%s: is a git-lfs pointer, not the file itself: run 'git lfs pull' in its "
                     "directory",
                     path);
    }
    if (st != AG_OK) {
        ag_fd_close(f);
        return st;
    }
    *fd = f;
    *size_bytes = info.bytes;
    return AG_OK;
}

ag_status ag_file_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t n,
                          ag_error *err) {
    size_t got;
    if (!ag_fd_read_at(fd, offset, dst, n, &got)) {
        return AG_FAIL(err, IO, "%s, byte %" PRIu64 ": %s", path, offset + got, strerror(errno));
    }
    if (got == n) return AG_OK;
    return AG_FAIL(err, IO, "%s: ends at byte %" PRIu64 ", %zu more are needed", path, offset + got,
                   n - got);
}

ag_status ag_file_read_all(const char *path, size_t max_bytes, char **out, size_t *n,
                           ag_error *err) {
    *out = NULL;
    *n = 0;
    int fd = -1;
    uint64_t size = 0;
    char *text = NULL;
    AG_TRY(ag_file_open(path, &fd, &size, err));
    ag_status st = AG_OK;
    if (size > max_bytes) {
        st = AG_FAIL(err, LIMIT, "%s: %" PRIu64 " bytes, the limit is %zu", path, size, max_bytes);
        goto done;
    }
    text = ag_malloc((size_t)size + 1);
    if (!text) {
        st = AG_FAIL(err, NOMEM, "%s: %" PRIu64 " bytes", path, size);
        goto done;
    }
    st = ag_file_read_at(fd, path, 0, text, (size_t)size, err);
    if (st != AG_OK) goto done;
    text[size] = '\0';
    *out = text;
    *n = (size_t)size;
    text = NULL;
done:
    ag_free(text);
    ag_fd_close(fd);
    return st;
}

char *ag_path_join(const char *dir, const char *name) {
    size_t n = strlen(dir) + strlen(name) + 2;
    char *path = ag_malloc(n);
    const char *slash = *dir && dir[strlen(dir) - 1] == '/' ? "" : "/";
    if (path) snprintf(path, n, "%s%s%s", dir, slash, name);
    return path;
}
