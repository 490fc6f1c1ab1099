/* SPDX-License-Identifier: Apache-2.0 */
#include "part_directory.h"

#include "../command.h"
#include "../model/store.h"
#include "../support/user_files.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char note_name[] = ".pull.json", new_note_name[] = ".pull.json.new";

enum { PART_NAME = NAME_MAX + sizeof STORE_PART, VERSION_TEXT = 240 };

static void partial_name(const pull_file *f, char name[PART_NAME]) {
    snprintf(name, PART_NAME, "%.250s%s", f->name, STORE_PART);
}

/* ---- the folder ---- */

/* Returns whether the path still is this directory: it may have been renamed or removed while
 * waiting for the lock. */
static bool is_still_there(const part_directory *p) {
    struct stat ours, now;
    return fstat(p->fd, &ours) == 0 && stat(p->path, &now) == 0 && ours.st_ino == now.st_ino &&
           ours.st_dev == now.st_dev;
}

static bool lock_directory(const part_directory *p, bool *waits, bool quiet) {
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    while (flock(p->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        if (interrupted()) return false;
        if (!*waits && !quiet) complain("waiting: another process is fetching this model");
        *waits = true;
        nanosleep(&pause, NULL);
    }
    return true;
}

static void read_note(part_directory *p) {
    json_error_t unused;
    int fd = openat(p->fd, note_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    p->versions = fd < 0 ? NULL : json_loadfd(fd, 0, &unused);
    if (fd >= 0) close(fd);
    /* An unreadable note counts as none: then no bytes are resumed. */
    if (json_is_object(p->versions)) return;
    json_decref(p->versions);
    p->versions = json_object();
}

int part_open(part_directory *p, const char *store, const char *name, bool quiet) {
    bool waits = false;
    *p = (part_directory){.fd = -1, .max_bytes = UINT64_MAX};
    snprintf(p->path, sizeof p->path, "%s/%s%s", store, name, STORE_PART);
    bool made = make_directories(store, 0777);
    while (made) {
        made = mkdir(p->path, 0777) == 0 || errno == EEXIST;
        if (made) p->fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (p->fd < 0 && made && errno == ENOENT) continue; /* removed between mkdir() and open() */
        made = p->fd >= 0 && lock_directory(p, &waits, quiet);
        if (!made || is_still_there(p)) break;
        close(p->fd);
        p->fd = -1;
    }
    if (!made) {
        if (interrupted()) return EXIT_INTERRUPTED;
        return complain_failure("%s: %s", p->path, strerror(errno));
    }
    read_note(p);
    return p->versions ? EXIT_DONE : complain_no_memory();
}

static bool is_note(const char *name) {
    return !strcmp(name, note_name) || !strcmp(name, new_note_name);
}

/* Counts the directory's files with content, except the note. `remove`: removes all files that are
 * not planned; planned_files NULL: all files, with the note. */
static size_t sweep(const part_directory *p, const pull_plan *planned_files, bool remove) {
    size_t n = 0;
    int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
    for (struct dirent *i; d && (i = readdir(d));) {
        struct stat s;
        bool planned = planned_files && is_note(i->d_name);
        if (!strcmp(i->d_name, ".") || !strcmp(i->d_name, "..")) continue;
        for (size_t k = 0; planned_files && k < planned_files->n; k++)
            planned = planned || !strcmp(planned_files->files[k].name, i->d_name);
        if (planned) continue;
        const bool empty = fstatat(p->fd, i->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 ||
                           (S_ISREG(s.st_mode) && !s.st_size);
        n += !empty && !is_note(i->d_name);
        if (remove) (void)unlinkat(p->fd, i->d_name, 0);
    }
    if (d) closedir(d);
    return n;
}

void part_close(part_directory *p, bool useless) {
    if (p->fd >= 0) {
        /* Versions are loaded after locking. */
        if (p->versions && is_still_there(p) && (useless || !sweep(p, NULL, false))) {
            (void)sweep(p, NULL, true);
            (void)rmdir(p->path);
        }
        close(p->fd);
    }
    json_decref(p->versions);
    *p = (part_directory){.fd = -1};
}

/* ---- files ---- */

/* Writes the version recorded for a file; "" if it cannot be identified. */
static void version_text(const pull_file *f, char text[VERSION_TEXT]) {
    const char *version = f->sha256[0] ? f->sha256 : f->version;
    text[0] = '\0';
    if (version[0]) snprintf(text, VERSION_TEXT, "%s %" PRId64, version, f->size);
}

static bool is_same_version(const part_directory *p, const pull_file *f) {
    char text[VERSION_TEXT];
    const char *noted = json_string_value(json_object_get(p->versions, f->name));
    version_text(f, text);
    return noted && text[0] && !strcmp(noted, text);
}

bool part_can_resume(const pull_file *f) {
    char text[VERSION_TEXT];
    version_text(f, text);
    return text[0] != '\0';
}

bool part_has_file(const part_directory *p, const pull_file *f) {
    struct stat s;
    return is_same_version(p, f) && fstatat(p->fd, f->name, &s, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(s.st_mode) && (f->size < 0 || s.st_size == f->size);
}

static int report_write_error(const part_directory *p, char *message) {
    snprintf(message, HTTP_MESSAGE, "%s: writing failed: %s", p->path, strerror(errno));
    return EXIT_FAILED;
}

static bool write_note(const part_directory *p) {
    int fd = openat(p->fd, new_note_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && json_dumpfd(p->versions, fd, JSON_INDENT(1)) == 0;
    if (fd >= 0 && !ok && !errno) errno = EIO;
    if (fd >= 0) ok = close(fd) == 0 && ok;
    return ok && renameat(p->fd, new_note_name, p->fd, note_name) == 0;
}

static bool record_version(part_directory *p, const pull_file *f, const char *text) {
    errno = 0;
    bool ok = json_object_set_new(p->versions, f->name, json_string(text)) == 0 && write_note(p);
    if (!ok && !errno) errno = ENOMEM;
    return ok;
}

bool part_forget_version(part_directory *p, const pull_file *f, char *message) {
    return record_version(p, f, "") || report_write_error(p, message) == EXIT_DONE;
}

int part_open_file(part_directory *p, const pull_file *f, char *message) {
    char name[PART_NAME], text[VERSION_TEXT];
    partial_name(f, name);
    version_text(f, text);
    bool ok = true;
    if (!is_same_version(p, f)) {
        /* Remove bytes of another version before recording this one, so that they are never
         * resumed. */
        (void)unlinkat(p->fd, name, 0);
        (void)unlinkat(p->fd, f->name, 0);
        ok = record_version(p, f, text);
    }
    int fd = ok ? openat(p->fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666) : -1;
    if (fd < 0) report_write_error(p, message);
    return fd;
}

int part_finish_file(part_directory *p, const pull_file *f, char *message) {
    char name[PART_NAME];
    partial_name(f, name);
    return renameat(p->fd, name, p->fd, f->name) == 0 ? EXIT_DONE : report_write_error(p, message);
}

int part_commit(part_directory *p, const pull_plan *plan, const char *path, char *message) {
    struct stat s;
    if (lstat(path, &s) == 0) {
        snprintf(message, HTTP_MESSAGE, "%s: another process created it while it was fetched",
                 path);
        return EXIT_FAILED;
    }
    (void)sweep(p, plan, true);
    (void)fsync(p->fd);
    const bool moved = plan->is_directory
                           ? rename(p->path, path) == 0
                           : renameat(p->fd, plan->files[0].name, AT_FDCWD, path) == 0;
    if (!moved) return report_write_error(p, message);
    (void)unlinkat(p->fd, new_note_name, 0);
    (void)unlinkat(p->fd, note_name, 0);
    /* Makes the new name durable; some file systems cannot sync directories. */
    int store = openat(p->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store >= 0) (void)fsync(store);
    if (store >= 0) close(store);
    return EXIT_DONE;
}

uint64_t part_bytes(const part_directory *p, const pull_plan *plan) {
    uint64_t bytes = 0;
    struct stat s;
    char name[PART_NAME];
    for (size_t i = 0; p->fd >= 0 && i < plan->n; i++) {
        partial_name(&plan->files[i], name);
        if (!is_same_version(p, &plan->files[i])) continue;
        if (fstatat(p->fd, name, &s, AT_SYMLINK_NOFOLLOW) == 0) bytes += (uint64_t)s.st_size;
        else if (fstatat(p->fd, plan->files[i].name, &s, AT_SYMLINK_NOFOLLOW) == 0)
            bytes += (uint64_t)s.st_size;
    }
    return bytes;
}

void part_limit_store(part_directory *p, const char *store, uint64_t limit) {
    model_store s;
    const char *own = strrchr(p->path, '/') + 1;
    uint64_t others = 0;
    if (!limit) return;
    if (store_open_at(&s, store) != EXIT_DONE) others = limit; /* reported */
    for (size_t i = 0; i < s.n; i++)
        if (strcmp(s.entries[i].file, own) != 0) others += store_bytes(&s, &s.entries[i]);
    store_close(&s);
    p->max_bytes = others < limit ? limit - others : 0;
}

/* Returns the bytes of the directory's files. */
static uint64_t own_bytes(const part_directory *p) {
    uint64_t bytes = 0;
    struct stat s;
    int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
    for (struct dirent *i; d && (i = readdir(d));)
        if (fstatat(p->fd, i->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode))
            bytes += (uint64_t)s.st_size;
    if (d) closedir(d);
    return bytes;
}

/* Returns whether the store's limit allows `needed` bytes more. */
static bool is_within_limit(const part_directory *p, uint64_t needed, char *message) {
    char wanted[32], allowed[32];
    if (p->max_bytes == UINT64_MAX) return true;
    const uint64_t own = own_bytes(p);
    if (own <= p->max_bytes && needed <= p->max_bytes - own) return true;
    snprintf(message, HTTP_MESSAGE,
             "%s: the store would exceed its limit (--store-limit): the model needs %s, and %s are "
             "left; remove a model",
             p->path, format_bytes((double)(own + needed), wanted, sizeof wanted),
             format_bytes((double)p->max_bytes, allowed, sizeof allowed));
    return false;
}

bool part_has_space(const part_directory *p, uint64_t needed, char *message) {
    if (!is_within_limit(p, needed, message)) return false;
    struct statvfs fs;
    char wanted[32], free_space[32];
    if (statvfs(p->path, &fs) != 0 || !fs.f_blocks) return true;
    const uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (needed <= available) return true;
    snprintf(message, HTTP_MESSAGE,
             "%s: not enough disk space: %" PRIu64 " bytes (%s) needed, %" PRIu64
             " bytes (%s) available",
             p->path, needed, format_bytes((double)needed, wanted, sizeof wanted), available,
             format_bytes((double)available, free_space, sizeof free_space));
    return false;
}
