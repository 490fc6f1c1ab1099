/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux moves at most 2 GiB in one call. Smaller steps make no difference to the speed. */
enum { STEP = 1 << 30 };

/* ---- properties ---- */

static ag_file_kind kind_of(mode_t mode) {
    return S_ISREG(mode)   ? AG_FILE_REGULAR
           : S_ISDIR(mode) ? AG_FILE_DIRECTORY
           : S_ISLNK(mode) ? AG_FILE_LINK
                           : AG_FILE_OTHER;
}

static bool fill_info(int result, const struct stat *s, ag_file_info *out) {
    if (result != 0) return false;
    *out = (ag_file_info){
        .kind = kind_of(s->st_mode),
        .bytes = (uint64_t)s->st_size,
        .device = (uint64_t)s->st_dev,
        .inode = (uint64_t)s->st_ino,
        .modified_s = (double)s->st_mtime,
        .is_own = s->st_uid == geteuid(),
        .is_private = !(s->st_mode & (S_IRWXG | S_IRWXO)),
    };
    return true;
}

bool ag_file_stat(const char *path, ag_file_info *out) {
    struct stat s;
    return fill_info(stat(path, &s), &s, out);
}

bool ag_file_stat_link(const char *path, ag_file_info *out) {
    struct stat s;
    return fill_info(lstat(path, &s), &s, out);
}

bool ag_fd_stat(int fd, ag_file_info *out) {
    struct stat s;
    return fill_info(fstat(fd, &s), &s, out);
}

bool ag_file_is_directory(const char *path) {
    ag_file_info info;
    return ag_file_stat(path, &info) && info.kind == AG_FILE_DIRECTORY;
}

bool ag_file_may_search(const char *dir) { return access(dir, X_OK) == 0; }

bool ag_file_is_same(const ag_file_info *a, const ag_file_info *b) {
    return a->device == b->device && a->inode == b->inode;
}

void ag_file_read_link(const char *path, char *to, size_t cap) {
    const ssize_t n = readlink(path, to, cap - 1);
    to[n > 0 ? n : 0] = '\0';
}

/* ---- descriptors ---- */

int ag_fd_open(const char *path) { return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

int ag_fd_create(const char *path) {
    return open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

int ag_fd_create_unnamed(const char *dir) {
    char path[PATH_MAX];
#ifdef O_TMPFILE
    const int unnamed = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (unnamed >= 0) return unnamed;
#endif
    if (snprintf(path, sizeof path, "%s/antigravity-XXXXXX", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

bool ag_fd_close(int fd) { return close(fd) == 0; }

bool ag_fd_read_at(int fd, uint64_t offset, void *dst, size_t n, size_t *got) {
    char *to = dst;
    *got = 0;
    while (*got < n) {
        const size_t remaining = n - *got;
        const ssize_t moved =
            pread(fd, to + *got, remaining < STEP ? remaining : STEP, (off_t)(offset + *got));
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return false;
        if (moved == 0) return true;
        *got += (size_t)moved;
    }
    return true;
}

/* Returns whether the caller may continue after a write of `moved` bytes, or -1. */
static bool check_write(ssize_t moved) {
    if (moved > 0 || (moved < 0 && errno == EINTR)) return true;
    if (moved == 0) errno = ENOSPC;
    return false;
}

bool ag_fd_write(int fd, const void *src, size_t n) {
    const char *from = src;
    while (n) {
        const ssize_t moved = write(fd, from, n < STEP ? n : STEP);
        if (!check_write(moved)) return false;
        if (moved < 0) continue;
        from += moved;
        n -= (size_t)moved;
    }
    return true;
}

bool ag_fd_write_at(int fd, uint64_t offset, const void *src, size_t n) {
    const char *from = src;
    while (n) {
        const ssize_t moved = pwrite(fd, from, n < STEP ? n : STEP, (off_t)offset);
        if (!check_write(moved)) return false;
        if (moved < 0) continue;
        from += moved;
        offset += (uint64_t)moved;
        n -= (size_t)moved;
    }
    return true;
}

bool ag_fd_truncate(int fd, uint64_t n) { return ftruncate(fd, (off_t)n) == 0; }

bool ag_file_may_reach(uint64_t end) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
    return end <= limit.rlim_cur;
}

bool ag_read_small_file(const char *path, char *text, size_t cap) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t n = 0;
    ssize_t moved;
    while (n < cap - 1 && (moved = read(fd, text + n, cap - 1 - n)) > 0) n += (size_t)moved;
    close(fd);
    text[n] = '\0';
    return n > 0;
}
