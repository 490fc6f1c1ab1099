/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/file.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One pread moves at most 2 GiB on Linux; smaller steps make no difference to the speed. */
enum { READ_STEP = 1 << 30 };

bool ag_file_is_named(const char *path) {
    struct stat s;
    return lstat(path, &s) == 0;
}

/* A link that leads nowhere is a file that got lost, not one that was left out. */
static ag_status open_error(const char *path, int why, ag_error *err) {
    if (why != ENOENT) return AG_FAIL(err, IO, "%s: %s", path, strerror(why));
    if (!ag_file_is_named(path)) return AG_FAIL(err, NOT_FOUND, "%s: %s", path, strerror(why));
    char to[256];
    ssize_t n = readlink(path, to, sizeof to);
    return AG_FAIL(err, IO, "%s: is a link to %.*s, which is not there", path, n > 0 ? (int)n : 0,
                   to);
}

/* What a clone without git-lfs leaves in the place of a large file. */
static bool is_lfs_pointer(int fd, uint64_t size) {
    static const char begin[] = "version https://git-lfs.";
    char first[sizeof begin - 1];
    return size < 1024 && pread(fd, first, sizeof first, 0) == (ssize_t)sizeof first &&
           memcmp(first, begin, sizeof first) == 0;
}

ag_status ag_file_open(const char *path, int *fd, uint64_t *size_bytes, ag_error *err) {
    *fd = -1;
    /* O_NONBLOCK: opening a pipe must not wait for its writer. Regular files ignore it. */
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f < 0) return open_error(path, errno, err);
    struct stat s;
    ag_status st = AG_OK;
    if (fstat(f, &s) != 0) st = AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(s.st_mode)) st = AG_FAIL(err, IO, "%s: is a directory, not a file", path);
    else if (!S_ISREG(s.st_mode)) st = AG_FAIL(err, IO, "%s: is not a regular file", path);
    else if (is_lfs_pointer(f, (uint64_t)s.st_size)) {
        st = AG_FAIL(err, FORMAT,
                     "%s: is a git-lfs pointer, not the file itself: run 'git lfs pull' in its "
                     "directory",
                     path);
    }
    if (st != AG_OK) {
        close(f);
        return st;
    }
    *fd = f;
    *size_bytes = (uint64_t)s.st_size;
    return AG_OK;
}

ag_status ag_file_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t n,
                          ag_error *err) {
    char *to = dst;
    while (n > 0) {
        size_t step = n < READ_STEP ? n : READ_STEP;
        ssize_t got = pread(fd, to, step, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return AG_FAIL(err, IO, "%s, byte %" PRIu64 ": %s", path, offset, strerror(errno));
        if (got == 0) {
            return AG_FAIL(err, IO, "%s: ends at byte %" PRIu64 ", %zu more are needed", path,
                           offset, n);
        }
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return AG_OK;
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
    close(fd);
    return st;
}

char *ag_path_join(const char *dir, const char *name) {
    size_t n = strlen(dir) + strlen(name) + 2;
    char *path = ag_malloc(n);
    const char *slash = *dir && dir[strlen(dir) - 1] == '/' ? "" : "/";
    if (path) snprintf(path, n, "%s%s%s", dir, slash, name);
    return path;
}
