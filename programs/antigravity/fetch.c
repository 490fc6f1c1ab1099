/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"

#include "clock.h"
#include "command.h"
#include "fetch_part.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct fetch {
    http *client;
    const pull_plan *plan;
    const char *path; /* where the model will be */
    part_folder part;
    uint64_t done, total; /* bytes of all files; total 0: not known */
    uint64_t received;
    bool quiet;
} fetch;

/* A file as it grows. */
typedef struct file_sink {
    fetch *k;
    const pull_file *f;
    int fd;
    uint64_t offset;
    sha256 sum; /* of the first `offset` bytes, where a hash is known */
} file_sink;

static uint64_t no_less_than_0(int64_t size) { return size > 0 ? (uint64_t)size : 0; }

/* ---- one file ---- */

/* Adds the file's bytes to the hash. False: interrupted, or *error. */
static bool hash_file(int fd, sha256 *sum, uint64_t n, int *error) {
    enum { BUFFER = 1 << 18 };
    unsigned char *buffer = malloc(BUFFER);
    uint64_t at = 0;
    *error = buffer ? 0 : ENOMEM;
    while (!*error && at < n && progress_update(NULL, at, n)) {
        const size_t want = n - at < BUFFER ? (size_t)(n - at) : BUFFER;
        const ssize_t got = pread(fd, buffer, want, (off_t)at);
        if (got <= 0) *error = got < 0 ? errno : EIO;
        else sha256_add(sum, buffer, (size_t)got);
        if (got > 0) at += (uint64_t)got;
    }
    free(buffer);
    return !*error && at == n;
}

static bool restart_file(file_sink *s, char *why) {
    s->offset = 0;
    sha256_begin(&s->sum);
    if (ftruncate(s->fd, 0) == 0 && lseek(s->fd, 0, SEEK_SET) == 0) return true;
    snprintf(why, HTTP_WHY, "%s: %s", s->f->name, strerror(errno));
    return false;
}

/* "bytes 5-9/10" and "bytes 5-9" followed by "/" and an asterisk: first and size, -1 where unknown.
 */
static void read_range(const char *text, int64_t *first, int64_t *size) {
    int64_t last;
    *first = *size = -1;
    if (sscanf(text, "bytes %" SCNd64 "-%" SCNd64 "/%" SCNd64, first, &last, size) < 2) *first = -1;
}

static http_go begin_file(void *user, const http_answer *a, char *why) {
    file_sink *s = user;
    int64_t first = 0, size = -1;
    char *end;
    if (a->status == 206) {
        read_range(a->range, &first, &size);
    } else {
        if (s->offset && !restart_file(s, why)) return HTTP_REFUSE;
        if (a->length[0]) size = strtoll(a->length, &end, 10);
    }
    if (first < 0 || (uint64_t)first != s->offset) {
        snprintf(why, HTTP_WHY, "%s: the server sends another part than the one asked for ('%s')",
                 s->f->name, a->range);
        return HTTP_REFUSE;
    }
    if (size >= 0 && s->f->size >= 0 && size != s->f->size) {
        snprintf(why, HTTP_WHY, "%s: the server has %" PRId64 " bytes, not %" PRId64, s->f->name,
                 size, s->f->size);
        return HTTP_REFUSE;
    }
    progress_begin(s->k->plan->name);
    if (!s->k->total) progress_note("fetching");
    return HTTP_GO;
}

static void drop_file(file_sink *s) {
    if (ftruncate(s->fd, 0) == 0) s->offset = 0;
}

/* What a server sends in place of a model is most often a page or a pointer to the file. */
static bool check_magic(file_sink *s, char *why) {
    char first[5] = "";
    const size_t n = strlen(s->f->name);
    if (n < 5 || strcmp(s->f->name + n - 5, ".gguf") != 0) return true;
    if (pread(s->fd, first, 4, 0) == 4 && !strcmp(first, "GGUF")) return true;
    snprintf(why, HTTP_WHY, "%.*s: is no GGUF file: it begins with '%s'",
             http_shown_length(s->f->url), s->f->url, make_printable(first));
    drop_file(s);
    return false;
}

static bool put_file(void *user, const void *bytes, size_t n, char *why) {
    file_sink *s = user;
    const unsigned char *p = bytes;
    const uint64_t before = s->offset;
    if (s->f->size >= 0 && n > (uint64_t)s->f->size - s->offset) {
        snprintf(why, HTTP_WHY, "%s: the server sends more than %" PRId64 " bytes", s->f->name,
                 s->f->size);
        return false;
    }
    while (n) {
        const ssize_t done = write(s->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            snprintf(why, HTTP_WHY, "%s: writing failed: %s", s->k->part.path,
                     strerror(done < 0 ? errno : ENOSPC));
            return false;
        }
        if (s->f->sha256[0]) sha256_add(&s->sum, p, (size_t)done);
        s->offset += (uint64_t)done;
        p += done;
        n -= (size_t)done;
    }
    s->k->received += s->offset - before;
    if (before < 4 && s->offset >= 4 && !check_magic(s, why)) return false;
    return progress_update(NULL, s->k->done + s->offset, s->k->total);
}

/* What is there of the file already. */
static int resume_file(file_sink *s, char *why) {
    int error = 0;
    struct stat info;
    sha256_begin(&s->sum);
    if (fstat(s->fd, &info) == 0) s->offset = (uint64_t)info.st_size;
    const bool too_long = s->f->size >= 0 && s->offset > (uint64_t)s->f->size;
    if (too_long && !restart_file(s, why)) return EXIT_FAILED;
    if (s->offset && s->f->sha256[0]) {
        progress_begin("checking");
        const bool hashed = hash_file(s->fd, &s->sum, s->offset, &error);
        progress_end();
        if (!hashed && !error) return EXIT_INTERRUPTED;
        if (!hashed) snprintf(why, HTTP_WHY, "%s: %s", s->f->name, strerror(error));
        if (!hashed) return EXIT_FAILED;
    }
    if (lseek(s->fd, (off_t)s->offset, SEEK_SET) >= 0) return EXIT_DONE;
    snprintf(why, HTTP_WHY, "%s: %s", s->f->name, strerror(errno));
    return EXIT_FAILED;
}

static bool is_complete(const file_sink *s) {
    return s->f->size >= 0 && s->offset == (uint64_t)s->f->size;
}

static int receive_file(file_sink *s, char *why) {
    const http_request r = {
        .url = s->f->url,
        .offset = &s->offset,
        .if_range = s->f->validator[0] ? s->f->validator : NULL,
        .user = s,
        .begin = begin_file,
        .put = put_file,
    };
    http_answer a;
    http_result result = HTTP_DONE;
    uint64_t before = UINT64_MAX;
    /* Where neither length nor chunks tell the end of a body, a broken connection is one. */
    while (result == HTTP_DONE && !is_complete(s) && s->offset != before) {
        before = s->offset;
        result = http_get(s->k->client, &r, &a, why);
        if (s->f->size < 0) break;
    }
    if (result == HTTP_RANGE) /* what is there is no beginning of the file */
        result = restart_file(s, why) ? http_get(s->k->client, &r, &a, why) : HTTP_FAILED;
    progress_end();
    if (result == HTTP_DONE) return EXIT_DONE;
    return result == HTTP_INTERRUPTED ? EXIT_INTERRUPTED : EXIT_FAILED;
}

static int check_file(file_sink *s, char *why) {
    char hex[SHA256_HEX];
    if (s->f->size >= 0 && !is_complete(s)) {
        snprintf(why, HTTP_WHY, "%s: the server ended it after %" PRIu64 " of %" PRId64 " bytes",
                 s->f->name, s->offset, s->f->size);
        return EXIT_FAILED;
    }
    if (!check_magic(s, why)) return EXIT_FAILED;
    sha256_hex(&s->sum, hex);
    if (s->f->sha256[0] && strcmp(hex, s->f->sha256) != 0) {
        drop_file(s);
        snprintf(why, HTTP_WHY, "%.*s: its SHA-256 is %s, not %s: what was fetched is thrown away",
                 http_shown_length(s->f->url), s->f->url, hex, s->f->sha256);
        return EXIT_FAILED;
    }
    if (fsync(s->fd) == 0) return EXIT_DONE;
    snprintf(why, HTTP_WHY, "%s: writing failed: %s", s->k->part.path, strerror(errno));
    return EXIT_FAILED;
}

static int fetch_file(fetch *k, const pull_file *f, char *why) {
    file_sink s = {.k = k, .f = f};
    if (part_has_file(&k->part, f)) {
        k->done += no_less_than_0(f->size);
        return EXIT_DONE;
    }
    s.fd = part_open_file(&k->part, f, why);
    int code = s.fd < 0 ? EXIT_FAILED : resume_file(&s, why);
    if (code == EXIT_DONE) code = receive_file(&s, why);
    if (code == EXIT_DONE) code = check_file(&s, why);
    if (s.fd >= 0) close(s.fd);
    k->done += s.offset;
    return code == EXIT_DONE ? part_finish_file(&k->part, f, why) : code;
}

/* ---- a model that is there ---- */

/* Whether the file at the path is the one of the plan, as far as can be told. An exit code. */
static int compare_file(const char *path, const pull_file *f, bool *same) {
    char hex[SHA256_HEX];
    struct stat info;
    int error = 0;
    sha256 sum;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *same = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
            (f->size < 0 || info.st_size == f->size);
    if (*same && f->sha256[0]) {
        sha256_begin(&sum);
        progress_begin("checking");
        *same = hash_file(fd, &sum, (uint64_t)info.st_size, &error);
        progress_end();
        sha256_hex(&sum, hex);
        *same = *same && !strcmp(hex, f->sha256);
    }
    if (fd >= 0) close(fd);
    return interrupted() ? EXIT_INTERRUPTED : EXIT_DONE;
}

/* *there: the model is there and the plan's. An exit code; another model of that name is an error.
 */
static int find_present(const fetch *k, const char *store, bool *there) {
    struct stat info;
    char path[PATH_MAX + NAME_MAX + 2];
    /* A directory and a file of one name would be two models that -m cannot tell apart. */
    snprintf(path, sizeof path, "%s/%s%s", store, k->plan->name,
             k->plan->is_directory ? ".gguf" : "");
    const bool same_name = lstat(path, &info) == 0;
    *there = same_name || lstat(k->path, &info) == 0;
    bool same = *there && !same_name;
    int code = EXIT_DONE;
    for (size_t i = 0; same && code == EXIT_DONE && i < k->plan->n; i++) {
        const pull_file *f = &k->plan->files[i];
        if (k->plan->is_directory) snprintf(path, sizeof path, "%s/%s", k->path, f->name);
        else snprintf(path, sizeof path, "%s", k->path);
        code = compare_file(path, f, &same);
    }
    if (code != EXIT_DONE || same == *there) return code;
    complain("%s is there and is another model: choose a name with --name, or remove it with "
             "'antigravity rm %s'",
             k->path, k->plan->name);
    return EXIT_FAILED;
}

/* ---- all files ---- */

static int check_space(const fetch *k) {
    struct statvfs fs;
    char wanted[32], free_space[32];
    const uint64_t there = part_bytes(&k->part, k->plan);
    const uint64_t missing = k->total > there ? k->total - there : 0;
    if (statvfs(k->part.path, &fs) != 0) return EXIT_DONE; /* Writing will tell. */
    const uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (missing <= available) return EXIT_DONE;
    complain("%s: %s are to be fetched, %s are free", k->path,
             format_bytes((double)missing, wanted, sizeof wanted),
             format_bytes((double)available, free_space, sizeof free_space));
    return EXIT_FAILED;
}

static int fetch_files(fetch *k, char *why) {
    k->total = 0;
    bool known = true;
    for (size_t i = 0; i < k->plan->n; i++) {
        known = known && k->plan->files[i].size >= 0;
        k->total += no_less_than_0(k->plan->files[i].size);
    }
    if (!known) k->total = 0;
    int code = check_space(k);
    for (size_t i = 0; i < k->plan->n && code == EXIT_DONE; i++)
        code = fetch_file(k, &k->plan->files[i], why);
    return code;
}

/* Why it ended, and what is left to go on with. */
static int say_failure(const fetch *k, int code, const char *why) {
    char kept[32], rest[128] = "";
    const uint64_t bytes = part_bytes(&k->part, k->plan);
    if (bytes)
        snprintf(rest, sizeof rest, "; %s are kept, and the same command goes on from there",
                 format_bytes((double)bytes, kept, sizeof kept));
    if (code == EXIT_INTERRUPTED) complain("interrupted%s", rest);
    else if (why[0]) complain("%s%s", why, rest);
    return code;
}

int fetch_model(http *client, const pull_plan *plan, const char *store, bool quiet, char *path) {
    char why[HTTP_WHY] = "", size[32];
    const double begin = clock_s();
    bool there = false;
    fetch k = {.client = client, .plan = plan, .path = path, .quiet = quiet};
    int n =
        snprintf(path, PATH_MAX, "%s/%s%s", store, plan->name, plan->is_directory ? "" : ".gguf");
    if (n < 0 || n >= PATH_MAX - 64) {
        complain("%s: %s", store, strerror(ENAMETOOLONG));
        return EXIT_FAILED;
    }
    int code = part_open(&k.part, store, plan->name, quiet);
    if (code == EXIT_DONE) code = find_present(&k, store, &there);
    if (code == EXIT_DONE && there && !quiet) complain("%s is there already", plan->name);
    if (code == EXIT_DONE && !there) {
        code = fetch_files(&k, why);
        if (code == EXIT_DONE) code = part_commit(&k.part, plan, path, why);
        if (code != EXIT_DONE) say_failure(&k, code, why);
        else if (!quiet)
            complain("%s: %s in %.1f s; use it with -m %s", path,
                     format_bytes((double)k.received, size, sizeof size), clock_s() - begin,
                     plan->name);
    }
    part_close(&k.part, there);
    return code;
}
