/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/sealed_file.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 64 << 10, PAUSED_BUFFER = 1 << 20 };
enum { PRIVATE = S_IRUSR | S_IWUSR, PUBLIC = PRIVATE | S_IRGRP | S_IROTH };
static const char temporary_mark[] = ".saving-";

static void pause_for(const ag_io_pauses *p) {
    if (p) p->pause(p->user);
}
static void resume_from(const ag_io_pauses *p) {
    if (p) p->resume(p->user);
}
static size_t buffer_bytes(const ag_io_pauses *p) { return p ? PAUSED_BUFFER : BUFFER; }

/* ---- writing ---- */

/* w->path: where links lead to, or the path itself if nothing is there. */
static ag_status find_place(ag_sealed_writer *w, const char *path, ag_error *err) {
    struct stat s;
    size_t n = strlen(path);
    if (n >= sizeof w->path) return AG_FAIL(err, IO, "%s: %s", path, strerror(ENAMETOOLONG));
    memcpy(w->path, path, n + 1);
    if (lstat(path, &s) != 0) {
        if (errno == ENOENT) return AG_OK;
        return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    }
    if (S_ISLNK(s.st_mode) && (!realpath(path, w->path) || stat(w->path, &s) != 0)) {
        return AG_FAIL(err, IO, "%s: the link leads nowhere: %s", path, strerror(errno));
    }
    if (!S_ISREG(s.st_mode)) return AG_FAIL(err, IO, "%s: is there and is no regular file", path);
    if (access(w->path, W_OK) != 0) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    return AG_OK;
}

/* The directory that the path lies in, with its slash. */
static void directory_of(const char *path, char *dir, size_t cap) {
    const char *slash = strrchr(path, '/');
    snprintf(dir, cap, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

/* "path.saving-": what temporary names of this file begin with. Files that bear one are locked by
 * who writes them. */
static bool temporary_name(ag_sealed_writer *w, const char *end) {
    int n = snprintf(w->temporary, sizeof w->temporary, "%s%s%s", w->path, temporary_mark, end);
    if (n > 0 && (size_t)n < sizeof w->temporary) return true;
    w->temporary[0] = '\0';
    errno = ENAMETOOLONG;
    return false;
}

static void remove_if_stale(int dir, const char *name) {
    struct stat s;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    bool ours = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid();
    if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dir, name, 0);
    close(fd);
}

/* What was left behind by processes that were killed while they saved this file. */
static void remove_stale(const ag_sealed_writer *w) {
    char dir[PATH_MAX];
    directory_of(w->path, dir, sizeof dir);
    const char *slash = strrchr(w->path, '/'), *name = slash ? slash + 1 : w->path;
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

/* "/proc/self/fd/5": a file without a name gets one through this link. */
static const char *proc_path(int fd, char *buf, size_t cap) {
    snprintf(buf, cap, "/proc/self/fd/%d", fd);
    return buf;
}

/* A file without a name, which vanishes with the process. -1: not here. Android lets no application
 * make links. */
static int open_unnamed(const ag_sealed_writer *w) {
#if defined O_TMPFILE && !defined __ANDROID__
    char dir[PATH_MAX], proc[40];
    directory_of(w->path, dir, sizeof dir);
    int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, w->is_public ? PUBLIC : PRIVATE);
    if (fd < 0 || access(proc_path(fd, proc, sizeof proc), F_OK) == 0) return fd;
    close(fd);
#else
    (void)w;
#endif
    return -1;
}

static ag_status open_place(ag_sealed_writer *w, const char *path, ag_error *err) {
    AG_TRY(find_place(w, path, err));
    remove_stale(w);
    w->fd = open_unnamed(w);
    if (w->fd < 0 && temporary_name(w, "XXXXXX")) w->fd = mkostemp(w->temporary, O_CLOEXEC);
    if (w->fd < 0) {
        w->temporary[0] = '\0';
        return AG_FAIL(err, IO, "%s: cannot be written: %s", path, strerror(errno));
    }
    if (w->is_public && w->temporary[0]) (void)fchmod(w->fd, PUBLIC);
    (void)flock(w->fd, LOCK_EX | LOCK_NB); /* tells others that somebody is writing it */
    return AG_OK;
}

ag_status ag_sealed_writer_open(ag_sealed_writer *w, const char *path, ag_error *err) {
    *w = (ag_sealed_writer){.fd = -1, .is_public = w->is_public, .pauses = w->pauses};
    const size_t n = buffer_bytes(w->pauses);
    w->buffer = ag_malloc(n);
    if (!w->buffer) return AG_FAIL(err, NOMEM, "%s: buffer of %zu bytes", path, n);
    pause_for(w->pauses);
    const ag_status st = open_place(w, path, err);
    resume_from(w->pauses);
    AG_TRY(st);
    ag_checksum_begin(&w->sum);
    return AG_OK;
}

static ag_status write_bytes(ag_sealed_writer *w, const unsigned char *p, size_t n, ag_error *err) {
    while (n) {
        ssize_t done = write(w->fd, p, n < INT_MAX ? n : INT_MAX);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            return AG_FAIL(err, IO, "%s: writing failed: %s", w->path,
                           done < 0 ? strerror(errno) : "nothing was taken");
        }
        p += done;
        n -= (size_t)done;
    }
    return AG_OK;
}

static ag_status flush(ag_sealed_writer *w, ag_error *err) {
    size_t n = w->n_buffered;
    w->n_buffered = 0;
    pause_for(w->pauses);
    const ag_status st = write_bytes(w, w->buffer, n, err);
    resume_from(w->pauses);
    return st;
}

static ag_status put_raw(ag_sealed_writer *w, const void *bytes, size_t n, ag_error *err) {
    const size_t cap = buffer_bytes(w->pauses);
    const unsigned char *p = bytes;
    if (n > cap - w->n_buffered) AG_TRY(flush(w, err));
    if (n > cap && !w->pauses) return write_bytes(w, p, n, err);
    while (n) { /* in pieces only where what is written must be a copy */
        const size_t piece = n < cap - w->n_buffered ? n : cap - w->n_buffered;
        memcpy(w->buffer + w->n_buffered, p, piece);
        w->n_buffered += piece;
        p += piece;
        n -= piece;
        if (n) AG_TRY(flush(w, err));
    }
    return AG_OK;
}

ag_status ag_sealed_put(void *writer, const void *bytes, size_t n, ag_error *err) {
    ag_sealed_writer *w = writer;
    const unsigned char *p = bytes;
    while (n) {
        const size_t piece = w->pauses && n > PAUSED_BUFFER ? PAUSED_BUFFER : n;
        ag_checksum_add(&w->sum, p, piece);
        AG_TRY(put_raw(w, p, piece, err));
        p += piece;
        n -= piece;
    }
    return AG_OK;
}

/* A new name in a directory is on the disk when the directory is. Not every file system can. */
static void sync_directory(const char *path) {
    char dir[PATH_MAX];
    directory_of(path, dir, sizeof dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* A file without a name gets its own or, where that is taken, a temporary one to be renamed. */
static bool give_name(ag_sealed_writer *w) {
    char proc[40], end[32];
    proc_path(w->fd, proc, sizeof proc);
    if (linkat(AT_FDCWD, proc, AT_FDCWD, w->path, AT_SYMLINK_FOLLOW) == 0) return true;
    for (unsigned i = 0; errno == EEXIST && i < 1000; i++) {
        snprintf(end, sizeof end, "%ld-%u", (long)getpid(), i);
        if (!temporary_name(w, end)) return false;
        if (linkat(AT_FDCWD, proc, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) == 0) return true;
    }
    w->temporary[0] = '\0';
    return false;
}

ag_status ag_sealed_writer_commit(ag_sealed_writer *w, ag_error *err) {
    uint64_t sum = ag_checksum_value(&w->sum);
    unsigned char seal[AG_SEAL_BYTES];
    ag_put_number(seal, sum, AG_SEAL_BYTES);
    AG_TRY(put_raw(w, seal, sizeof seal, err));
    return ag_sealed_writer_commit_unsealed(w, err);
}

ag_status ag_sealed_writer_preview(ag_sealed_writer *w, char *path, size_t cap, ag_error *err) {
    AG_TRY(flush(w, err));
    if (w->temporary[0]) snprintf(path, cap, "%s", w->temporary);
    else snprintf(path, cap, "/proc/self/fd/%d", w->fd);
    return AG_OK;
}

static ag_status commit(ag_sealed_writer *w, ag_error *err) {
    bool unnamed = !w->temporary[0];
    if (fsync(w->fd) != 0) {
        return AG_FAIL(err, IO, "%s: writing failed: %s", w->path, strerror(errno));
    }
    if (unnamed && !give_name(w)) {
        return AG_FAIL(err, IO, "%s: cannot be named: %s", w->path, strerror(errno));
    }
    int closed = close(w->fd);
    w->fd = -1;
    if (closed != 0) return AG_FAIL(err, IO, "%s: writing failed: %s", w->path, strerror(errno));
    if (w->temporary[0] && rename(w->temporary, w->path) != 0)
        return AG_FAIL(err, IO, "%s: cannot be replaced: %s", w->path, strerror(errno));
    w->temporary[0] = '\0';
    sync_directory(w->path);
    return AG_OK;
}

ag_status ag_sealed_writer_commit_unsealed(ag_sealed_writer *w, ag_error *err) {
    AG_TRY(flush(w, err));
    pause_for(w->pauses);
    const ag_status st = commit(w, err);
    resume_from(w->pauses);
    return st;
}

void ag_sealed_writer_close(ag_sealed_writer *w) {
    if (w->fd >= 0 && w->buffer) close(w->fd);
    if (w->temporary[0]) unlink(w->temporary);
    ag_free(w->buffer);
    *w = (ag_sealed_writer){.fd = -1};
}

/* ---- reading ---- */

ag_status ag_sealed_reader_open(ag_sealed_reader *r, const char *path, ag_error *err) {
    *r = (ag_sealed_reader){.fd = -1, .pauses = r->pauses, .path = path};
    const size_t n = buffer_bytes(r->pauses);
    pause_for(r->pauses);
    const ag_status st = ag_file_open(path, &r->fd, &r->size, err);
    resume_from(r->pauses);
    AG_TRY(st);
    if (r->size < AG_SEAL_BYTES)
        return AG_FAIL(err, FORMAT, "%s: only %" PRIu64 " bytes", path, r->size);
    r->buffer = ag_malloc(n);
    if (!r->buffer) return AG_FAIL(err, NOMEM, "%s: buffer of %zu bytes", path, n);
    ag_checksum_begin(&r->sum);
    return AG_OK;
}

static ag_status fill_buffer(ag_sealed_reader *r, ag_error *err) {
    const uint64_t left = r->size - r->at;
    const size_t cap = buffer_bytes(r->pauses);
    r->n_taken = 0;
    r->n_buffered = left < cap ? (size_t)left : cap;
    pause_for(r->pauses);
    const ag_status st = ag_file_read_at(r->fd, r->path, r->at, r->buffer, r->n_buffered, err);
    resume_from(r->pauses);
    return st;
}

/* The next n bytes of the file, seal or not. */
static ag_status get_raw(ag_sealed_reader *r, unsigned char *p, size_t n, ag_error *err) {
    while (n) {
        size_t ready = r->n_buffered - r->n_taken;
        if (!ready && n >= BUFFER && !r->pauses) { /* large pieces go straight to their place */
            AG_TRY(ag_file_read_at(r->fd, r->path, r->at, p, n, err));
            r->at += n;
            return AG_OK;
        }
        if (!ready) {
            AG_TRY(fill_buffer(r, err));
            continue;
        }
        size_t take = n < ready ? n : ready;
        memcpy(p, r->buffer + r->n_taken, take);
        r->n_taken += take;
        r->at += take;
        p += take;
        n -= take;
    }
    return AG_OK;
}

ag_status ag_sealed_get(void *reader, void *bytes, size_t n, ag_error *err) {
    ag_sealed_reader *r = reader;
    if (!n) return AG_OK;
    uint64_t left = r->size - AG_SEAL_BYTES - r->at;
    if (n > left) {
        return AG_FAIL(err, FORMAT, "%s: ends after %" PRIu64 " bytes, %zu more are needed",
                       r->path, r->size, (size_t)(n - left));
    }
    AG_TRY(get_raw(r, bytes, n, err));
    ag_checksum_add(&r->sum, bytes, n);
    return AG_OK;
}

ag_status ag_sealed_reader_check(ag_sealed_reader *r, ag_error *err) {
    uint64_t left = r->size - AG_SEAL_BYTES - r->at;
    if (left) return AG_FAIL(err, FORMAT, "%s: %" PRIu64 " bytes too many", r->path, left);
    unsigned char seal[AG_SEAL_BYTES];
    AG_TRY(get_raw(r, seal, sizeof seal, err));
    const uint64_t want = ag_get_number(seal, AG_SEAL_BYTES), have = ag_checksum_value(&r->sum);
    if (have == want) return AG_OK;
    return AG_FAIL(err, FORMAT,
                   "%s: damaged: the checksum of its bytes is %016" PRIx64 ", not %016" PRIx64,
                   r->path, have, want);
}

void ag_sealed_reader_close(ag_sealed_reader *r) {
    if (r->fd >= 0 && r->path) close(r->fd);
    ag_free(r->buffer);
    *r = (ag_sealed_reader){.fd = -1};
}
