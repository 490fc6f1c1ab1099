/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/spill_file.h"

#include "core/alloc.h"
#include "core/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct ag_spill_file {
    uint32_t users;
    int fd;        /* -1: there is none */
    bool tried;    /* to make one */
    char *path;    /* owned */
    bool has_name; /* it is removed at the end */
    dev_t device;  /* of the file */
    ino_t inode;
    size_t record_bytes;
    uint32_t most;    /* records */
    uint32_t n;       /* that the file reaches to */
    uint32_t *unused; /* owned; [n_unused] of these */
    uint32_t n_unused, cap;
    char trouble[256]; /* empty: none */
    bool is_said;
};

uint64_t ag_spill_sum(const void *bytes, size_t n) {
    ag_checksum sum;
    ag_checksum_begin(&sum);
    ag_checksum_add(&sum, bytes, n);
    return ag_checksum_value(&sum);
}

__attribute__((format(printf, 2, 3))) static bool fail(ag_spill_file *f, const char *fmt, ...) {
    va_list args;
    if (f->trouble[0]) return false;
    va_start(args, fmt);
    vsnprintf(f->trouble, sizeof f->trouble, fmt, args);
    va_end(args);
    return false;
}

/* ---- the file ---- */

static int open_in_directory(const char *dir) {
    int fd = -1;
#ifdef O_TMPFILE
    fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd >= 0) return fd;
#endif
    static const char name[] = "/antigravity-spill-XXXXXX";
    const size_t n = strlen(dir);
    char *path = ag_malloc(n + sizeof name);
    if (!path) return -1;
    memcpy(path, dir, n);
    memcpy(path + n, name, sizeof name);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    ag_free(path);
    return fd;
}

static void open_file(ag_spill_file *f) {
    struct stat s;
    f->tried = true;
    const bool is_directory = stat(f->path, &s) == 0 && S_ISDIR(s.st_mode);
    if (is_directory) f->fd = open_in_directory(f->path);
    else f->fd = open(f->path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (f->fd < 0) {
        fail(f, "%s: no spill file can be made: %s", f->path, strerror(errno));
        return;
    }
    f->has_name = !is_directory && fstat(f->fd, &s) == 0;
    if (!f->has_name) return;
    f->device = s.st_dev;
    f->inode = s.st_ino;
}

ag_spill_file *ag_spill_file_create(const char *path, size_t record_bytes, uint64_t max_bytes) {
    ag_spill_file *f = ag_calloc(1, sizeof *f);
    if (!f) return NULL;
    const uint64_t most = max_bytes ? max_bytes / record_bytes : UINT64_MAX;
    f->users = 1;
    f->fd = -1;
    f->record_bytes = record_bytes;
    f->most = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    f->path = ag_strdup(path);
    if (f->path) return f;
    ag_spill_file_release(f);
    return NULL;
}

ag_spill_file *ag_spill_file_share(ag_spill_file *f) {
    f->users++;
    return f;
}

ag_spill_file *ag_spill_file_beside(ag_spill_file *f) {
    struct stat s;
    if (stat(f->path, &s) != 0 || !S_ISDIR(s.st_mode)) return ag_spill_file_share(f);
    ag_spill_file *other = ag_spill_file_create(f->path, f->record_bytes, 0);
    if (other) other->most = f->most;
    return other;
}

/* Somebody may have put another file in its place. */
static void remove_name(const ag_spill_file *f) {
    struct stat s;
    const bool is_ours = lstat(f->path, &s) == 0 && s.st_dev == f->device && s.st_ino == f->inode;
    if (is_ours) unlink(f->path);
}

void ag_spill_file_release(ag_spill_file *f) {
    if (!f || --f->users) return;
    if (f->has_name) remove_name(f);
    if (f->fd >= 0) close(f->fd);
    ag_free(f->path);
    ag_free(f->unused);
    ag_free(f);
}

/* ---- records ---- */

static uint64_t place_of(const ag_spill_file *f, uint32_t record) {
    return (uint64_t)record * f->record_bytes;
}

/* Writing beyond the limit of a process ends it by a signal. */
static bool may_reach(uint64_t end) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
    return end <= limit.rlim_cur;
}

static bool write_all(ag_spill_file *f, const void *bytes, size_t n, uint64_t at) {
    const char *next = bytes;
    if (!f->tried) open_file(f);
    if (f->fd < 0) return false;
    if (!may_reach(at + n))
        return fail(f, "%s: the spill file cannot grow: %s", f->path, strerror(EFBIG));
    while (n) {
        const ssize_t done = pwrite(f->fd, next, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            return fail(f, "%s: the spill file cannot be written: %s", f->path,
                        strerror(done ? errno : ENOSPC));
        }
        next += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}

/* A list that has a place for every record, so that freeing one cannot fail. */
static bool have_list(ag_spill_file *f, uint32_t n) {
    if (n <= f->cap) return true;
    const uint32_t cap = n < UINT32_MAX / 2 ? 2 * n : UINT32_MAX;
    uint32_t *more = ag_realloc(f->unused, cap * sizeof *more);
    if (!more) return fail(f, "%s: no memory for %" PRIu32 " records", f->path, cap);
    f->unused = more;
    f->cap = cap;
    return true;
}

bool ag_spill_file_is_full(const ag_spill_file *f) { return !f->n_unused && f->n == f->most; }

void ag_spill_file_say_full(ag_spill_file *f) {
    fail(f, "%s: the spill file has reached its limit, and what is in it is of other sessions",
         f->path);
}

bool ag_spill_file_put(ag_spill_file *f, const void *bytes, size_t n, uint32_t *record) {
    if (ag_spill_file_is_full(f)) return false;
    const bool grows = !f->n_unused;
    if (grows && !have_list(f, f->n + 1)) return false;
    *record = grows ? f->n : f->unused[f->n_unused - 1];
    if (!write_all(f, bytes, n, place_of(f, *record))) return false;
    if (grows) f->n++;
    else f->n_unused--;
    return true;
}

bool ag_spill_file_get(ag_spill_file *f, uint32_t record, void *bytes, size_t n, uint64_t sum) {
    char *next = bytes;
    uint64_t at = place_of(f, record);
    size_t left = n;
    while (left) {
        const ssize_t done = pread(f->fd, next, left, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0)
            return fail(f, "%s: the spill file cannot be read: %s", f->path, strerror(errno));
        if (!done) return fail(f, "%s: the spill file is cut off", f->path);
        next += done;
        at += (uint64_t)done;
        left -= (size_t)done;
    }
    if (ag_spill_sum(bytes, n) == sum) return true;
    return fail(f, "%s: the spill file is damaged", f->path);
}

void ag_spill_file_free(ag_spill_file *f, uint32_t record) {
    f->unused[f->n_unused++] = record;
    if (f->n_unused < f->n) return;
    /* Nothing is in it any more. What cannot be cut off is used again. */
    f->n = f->n_unused = 0;
    if (ftruncate(f->fd, 0) != 0) return;
}

const char *ag_spill_file_news(ag_spill_file *f) {
    if (f->is_said || !f->trouble[0]) return NULL;
    f->is_said = true;
    return f->trouble;
}

uint64_t ag_spill_file_bytes(const ag_spill_file *f) { return place_of(f, f->n - f->n_unused); }

const char *ag_spill_file_trouble(const ag_spill_file *f) {
    return f->trouble[0] ? f->trouble : NULL;
}
