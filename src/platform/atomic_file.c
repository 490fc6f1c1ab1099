/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PRIVATE = S_IRUSR | S_IWUSR, PUBLIC = PRIVATE | S_IRGRP | S_IROTH };
static const char temporary_mark[] = ".saving-", cannot_write[] = "cannot be written";

/* Sets f->path to the target of links, or to the path itself if the file does not exist. */
static const char *resolve_path(ag_atomic_file *f, const char *path) {
    struct stat s;
    const size_t n = strlen(path);
    if (n >= sizeof f->path) {
        errno = ENAMETOOLONG;
        return cannot_write;
    }
    memcpy(f->path, path, n + 1);
    if (lstat(path, &s) != 0) return errno == ENOENT ? NULL : cannot_write;
    if (S_ISLNK(s.st_mode) && (!realpath(path, f->path) || stat(f->path, &s) != 0))
        return "the link leads nowhere";
    if (!S_ISREG(s.st_mode)) {
        errno = 0;
        return "exists and is not a regular file";
    }
    return access(f->path, W_OK) == 0 ? NULL : cannot_write;
}

/* Writes the directory of the path, with its slash. */
static void directory_of(const char *path, char *dir, size_t cap) {
    const char *slash = strrchr(path, '/');
    snprintf(dir, cap, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

/* A named temporary file is locked by its writer. */
static bool temporary_name(ag_atomic_file *f, const char *end) {
    int n = snprintf(f->temporary, sizeof f->temporary, "%s%s%s", f->path, temporary_mark, end);
    if (n > 0 && (size_t)n < sizeof f->temporary) return true;
    f->temporary[0] = '\0';
    errno = ENAMETOOLONG;
    return false;
}

static void remove_if_stale(int dir, const char *name) {
    struct stat s;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    bool own = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid();
    if (own && flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dir, name, 0);
    close(fd);
}

/* Removes temporary files of killed processes. */
static void remove_stale(const ag_atomic_file *f) {
    char dir[PATH_MAX];
    directory_of(f->path, dir, sizeof dir);
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    const size_t n = strlen(name);
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        bool temporary = strncmp(e->d_name, name, n) == 0 &&
                         strncmp(e->d_name + n, temporary_mark, strlen(temporary_mark)) == 0;
        if (temporary) remove_if_stale(dirfd(d), e->d_name);
    }
    closedir(d);
}

/* A file without a name gets one through this link. */
static const char *proc_path(int fd, char *buf, size_t cap) {
    snprintf(buf, cap, "/proc/self/fd/%d", fd);
    return buf;
}

/* Returns a file without a name, which vanishes with the process, or -1. Android lets no
 * application make links, so such a file could not get a name there. */
static int open_unnamed(const ag_atomic_file *f, bool is_public) {
#if defined O_TMPFILE && !defined __ANDROID__
    char dir[PATH_MAX], proc[40];
    directory_of(f->path, dir, sizeof dir);
    int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, is_public ? PUBLIC : PRIVATE);
    if (fd < 0 || access(proc_path(fd, proc, sizeof proc), F_OK) == 0) return fd;
    close(fd);
#else
    (void)f, (void)is_public;
#endif
    return -1;
}

const char *ag_atomic_file_open(ag_atomic_file *f, const char *path, bool is_public) {
    f->fd = -1;
    f->temporary[0] = '\0';
    const char *failed = resolve_path(f, path);
    if (failed) return failed;
    remove_stale(f);
    f->fd = open_unnamed(f, is_public);
    if (f->fd < 0 && temporary_name(f, "XXXXXX")) f->fd = mkostemp(f->temporary, O_CLOEXEC);
    if (f->fd < 0) {
        f->temporary[0] = '\0';
        return cannot_write;
    }
    if (is_public && f->temporary[0]) (void)fchmod(f->fd, PUBLIC);
    (void)flock(f->fd, LOCK_EX | LOCK_NB);
    return NULL;
}

/* A new name in a directory is on disk when the directory is. Not every file system can do this. */
static void sync_directory(const char *path) {
    char dir[PATH_MAX];
    directory_of(path, dir, sizeof dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* Gives an unnamed file its final name or, if that is taken, a temporary one to be renamed. */
static bool give_name(ag_atomic_file *f) {
    char proc[40], end[32];
    proc_path(f->fd, proc, sizeof proc);
    if (linkat(AT_FDCWD, proc, AT_FDCWD, f->path, AT_SYMLINK_FOLLOW) == 0) return true;
    for (unsigned i = 0; errno == EEXIST && i < 1000; i++) {
        snprintf(end, sizeof end, "%ld-%u", (long)getpid(), i);
        if (!temporary_name(f, end)) return false;
        if (linkat(AT_FDCWD, proc, AT_FDCWD, f->temporary, AT_SYMLINK_FOLLOW) == 0) return true;
    }
    f->temporary[0] = '\0';
    return false;
}

const char *ag_atomic_file_commit(ag_atomic_file *f) {
    const bool unnamed = !f->temporary[0];
    if (fsync(f->fd) != 0) return "writing failed";
    if (unnamed && !give_name(f)) return "cannot be named";
    const int closed = close(f->fd);
    f->fd = -1;
    if (closed != 0) return "writing failed";
    if (f->temporary[0] && rename(f->temporary, f->path) != 0) return "cannot be replaced";
    f->temporary[0] = '\0';
    sync_directory(f->path);
    return NULL;
}

void ag_atomic_file_preview(const ag_atomic_file *f, char *path, size_t cap) {
    if (f->temporary[0]) snprintf(path, cap, "%s", f->temporary);
    else proc_path(f->fd, path, cap);
}

void ag_atomic_file_close(ag_atomic_file *f) {
    if (f->fd >= 0) close(f->fd);
    if (f->temporary[0]) unlink(f->temporary);
    f->fd = -1;
    f->temporary[0] = '\0';
}
