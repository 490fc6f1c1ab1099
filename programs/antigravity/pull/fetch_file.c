/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch_file.h"

#include "../command.h"
#include "../support/user_files.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SPACE_STEP = 1 << 20,     /* bytes between two checks of the free space */
    MAX_COMPRESSED = 1 << 26, /* limit of a compressed text of unknown size, decoded */
};

/* A partial file and its state. */
typedef struct file_sink {
    fetch *k;
    const pull_file *f;
    int fd;
    uint64_t offset;    /* bytes on disk */
    int64_t size;       /* from the plan, else from the last response that has it; -1: unknown */
    uint64_t stop;      /* the response must not exceed this offset */
    uint64_t unchecked; /* bytes written since the last check of the free space */
    char
        validator[sizeof(((pull_file *)0)->validator)]; /* version of the bytes on disk; "": none */
    sha256 sum; /* hash of the first `offset` bytes, if one is known */
} file_sink;

bool fetch_hash(int fd, sha256 *sum, uint64_t n, int *error) {
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

/* ---- what an answer promises ---- */

static bool restart_file(file_sink *s, char *message) {
    s->offset = 0;
    sha256_begin(&s->sum);
    if (ftruncate(s->fd, 0) == 0 && lseek(s->fd, 0, SEEK_SET) == 0) return true;
    snprintf(message, HTTP_MESSAGE, "%s: %s", s->f->name, strerror(errno));
    return false;
}

/* Discards the fetched bytes, which belong to another response. */
static http_go begin_again(file_sink *s, const char *reason, char *message) {
    if (!restart_file(s, message)) return HTTP_REFUSE;
    snprintf(message, HTTP_MESSAGE, "%s: %s; it is fetched again from the start", s->f->name,
             reason);
    return HTTP_AGAIN;
}

static http_go reject_answer(const file_sink *s, const char *reason, const char *value,
                             char *message) {
    snprintf(message, HTTP_MESSAGE, "%s: %s%s%s", s->f->name, reason, value[0] ? ": " : "", value);
    return HTTP_REFUSE;
}

static bool is_encoded(const http_answer *a) {
    return a->encoding[0] && strcasecmp(a->encoding, "identity") != 0;
}

/* Reads "bytes 5-9/10"; "*" for the 10 sets *size to -1. Returns false if the text has another
 * form. */
static bool read_range(const char *text, int64_t *first, int64_t *last, int64_t *size) {
    char numbers[3][24];
    int used = 0;
    *size = -1;
    if (sscanf(text, "bytes %23[0-9]-%23[0-9]/%23[0-9*]%n", numbers[0], numbers[1], numbers[2],
               &used) != 3 ||
        text[used])
        return false;
    *first = pull_read_size(numbers[0]);
    *last = pull_read_size(numbers[1]);
    if (strcmp(numbers[2], "*") != 0 && (*size = pull_read_size(numbers[2])) < 0) return false;
    return *first >= 0 && *first <= *last && (*size < 0 || *last < *size);
}

/* Checks a range response: its version must match and it must start at the offset. */
static http_go begin_range(file_sink *s, const http_answer *a, int64_t *size, char *message) {
    int64_t first, last;
    const char *validator = pull_validator(a);
    if (is_encoded(a)) return begin_again(s, "the server sends the remainder compressed", message);
    if (!read_range(a->range, &first, &last, size) || (uint64_t)first != s->offset)
        return reject_answer(s, "the server sent another range than requested", a->range, message);
    if (s->validator[0] && validator[0] && strcmp(s->validator, validator) != 0)
        return begin_again(s, "the server now has another version", message);
    if (s->f->size < 0 && s->size >= 0 && *size >= 0 && *size != s->size)
        return begin_again(s, "its size has changed on the server", message);
    if (!s->validator[0] && !s->f->sha256[0])
        snprintf(s->validator, sizeof s->validator, "%s", validator);
    s->stop = (uint64_t)last + 1;
    return HTTP_GO;
}

/* Restarts the file with a complete response. */
static http_go begin_full(file_sink *s, const http_answer *a, int64_t *size, char *message) {
    const char *length = is_encoded(a) ? "" : a->length;
    if (!length[0]) length = a->linked_size;
    *size = length[0] ? pull_read_size(length) : -1;
    if (length[0] && *size < 0)
        return reject_answer(s, "its length is not a size", length, message);
    if (s->offset && !restart_file(s, message)) return HTTP_REFUSE;
    s->size = s->f->size >= 0 ? s->f->size : *size;
    s->stop = s->size >= 0 ? (uint64_t)s->size : is_encoded(a) ? MAX_COMPRESSED : UINT64_MAX;
    if (s->f->sha256[0]) return HTTP_GO; /* the hash identifies the version */
    snprintf(s->validator, sizeof s->validator, "%s", pull_validator(a));
    const bool changed = s->f->validator[0] && strcmp(s->validator, s->f->validator) != 0;
    if (changed && !part_forget_version(&s->k->part, s->f, message)) return HTTP_REFUSE;
    return HTTP_GO;
}

/* Returns whether a body of unknown length is accepted. Either a hash proves that it is complete,
 * or it is a small compressed text whose end is marked. */
static bool may_lack_length(const file_sink *s, const http_answer *a) {
    const bool weights =
        path_ends_in(s->f->name, ".gguf") || path_ends_in(s->f->name, ".safetensors");
    return s->f->sha256[0] || (is_encoded(a) && a->framed && !weights);
}

static http_go begin_file(void *user, const http_answer *a, char *message) {
    file_sink *s = user;
    int64_t size = -1;
    if (a->status == 416) return begin_again(s, "the server has no bytes after the part", message);
    http_go go =
        a->status == 206 ? begin_range(s, a, &size, message) : begin_full(s, a, &size, message);
    if (go != HTTP_GO) return go;
    if (size >= 0 && s->f->size >= 0 && size != s->f->size) {
        snprintf(message, HTTP_MESSAGE, "%s: the server has %" PRId64 " bytes, not %" PRId64,
                 s->f->name, size, s->f->size);
        return HTTP_REFUSE;
    }
    if (s->size < 0) s->size = size;
    if (s->size >= 0 && s->stop > (uint64_t)s->size) s->stop = (uint64_t)s->size;
    if (s->size < 0 && !may_lack_length(s, a))
        return reject_answer(
            s, "its length is unknown, so a truncated file would look complete; give --sha256", "",
            message);
    progress_begin(s->k->plan->name);
    if (!s->k->total) progress_note("fetching");
    return HTTP_GO;
}

/* ---- its bytes ---- */

static void drop_file(file_sink *s) {
    if (ftruncate(s->fd, 0) == 0) s->offset = 0;
}

/* Checks the first bytes: without such a model servers often send an HTML page or a Git LFS
 * pointer. */
static bool check_magic(file_sink *s, char *message) {
    char first[5] = "";
    if (!path_ends_in(s->f->name, ".gguf")) return true;
    if (pread(s->fd, first, 4, 0) == 4 && !strcmp(first, "GGUF")) return true;
    snprintf(message, HTTP_MESSAGE, "%.*s: not a GGUF file: it begins with '%s'",
             http_shown_length(s->f->url), s->f->url, make_printable(first));
    drop_file(s);
    return false;
}

/* Returns the minimum number of bytes still to be written. */
static uint64_t bytes_needed(const file_sink *s) {
    const uint64_t written = s->k->done + s->offset;
    const uint64_t all = s->k->min_total > written ? s->k->min_total - written : 0;
    const uint64_t remaining = s->size >= 0 ? (uint64_t)s->size - s->offset : SPACE_STEP;
    return all > remaining ? all : remaining;
}

/* Checks the free space repeatedly, since other programs use the same disk. */
static bool check_space(file_sink *s, size_t n, char *message) {
    s->unchecked += n;
    if (s->unchecked < SPACE_STEP) return true;
    s->unchecked = 0;
    return part_has_space(&s->k->part, bytes_needed(s), message);
}

static bool report_write_error(const file_sink *s, int error, char *message) {
    if (error != ENOSPC || part_has_space(&s->k->part, bytes_needed(s), message))
        snprintf(message, HTTP_MESSAGE, "%s: writing failed: %s", s->k->part.path, strerror(error));
    return false;
}

static bool put_file(void *user, const void *bytes, size_t n, char *message) {
    file_sink *s = user;
    const unsigned char *p = bytes;
    const uint64_t before = s->offset;
    if (n > s->stop - s->offset) {
        snprintf(message, HTTP_MESSAGE, "%s: the server sends more than %" PRIu64 " bytes",
                 s->f->name, s->stop);
        if (!s->f->sha256[0]) drop_file(s);
        return false;
    }
    if (!check_space(s, n, message)) return false;
    while (n) {
        const ssize_t done = write(s->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return report_write_error(s, done < 0 ? errno : ENOSPC, message);
        if (s->f->sha256[0]) sha256_add(&s->sum, p, (size_t)done);
        s->offset += (uint64_t)done;
        p += done;
        n -= (size_t)done;
    }
    s->k->received += s->offset - before;
    if (before < 4 && s->offset >= 4 && !check_magic(s, message)) return false;
    return progress_update(NULL, s->k->done + s->offset, s->k->total);
}

/* ---- one file ---- */

/* Finds how much of the partial file can be resumed. */
static int resume_file(file_sink *s, char *message) {
    int error = 0;
    struct stat info;
    sha256_begin(&s->sum);
    if (fstat(s->fd, &info) == 0) s->offset = (uint64_t)info.st_size;
    const bool too_long = s->size >= 0 && s->offset > (uint64_t)s->size;
    if (too_long && !restart_file(s, message)) return EXIT_FAILED;
    if (s->offset && s->f->sha256[0]) {
        progress_begin("checking");
        const bool hashed = fetch_hash(s->fd, &s->sum, s->offset, &error);
        progress_end();
        if (!hashed && !error) return EXIT_INTERRUPTED;
        if (!hashed) snprintf(message, HTTP_MESSAGE, "%s: %s", s->f->name, strerror(error));
        if (!hashed) return EXIT_FAILED;
    }
    if (lseek(s->fd, (off_t)s->offset, SEEK_SET) >= 0) return EXIT_DONE;
    snprintf(message, HTTP_MESSAGE, "%s: %s", s->f->name, strerror(errno));
    return EXIT_FAILED;
}

static bool is_hash_right(const file_sink *s, char hex[SHA256_HEX]) {
    sha256 sum = s->sum;
    sha256_hex(&sum, hex);
    return !strcmp(hex, s->f->sha256);
}

static bool is_complete(const file_sink *s) {
    char hex[SHA256_HEX];
    if (s->size >= 0) return s->offset == (uint64_t)s->size;
    return s->offset && s->f->sha256[0] && is_hash_right(s, hex);
}

static int receive_file(file_sink *s, char *message) {
    const http_request r = {
        .url = s->f->url,
        .offset = &s->offset,
        .resumes = part_can_resume(s->f),
        .if_range = s->validator,
        .size = &s->size,
        .user = s,
        .begin = begin_file,
        .put = put_file,
    };
    http_answer a;
    if (is_complete(s)) return EXIT_DONE;
    http_result result = http_get(s->k->client, &r, &a, message);
    progress_end();
    if (result == HTTP_DONE) return EXIT_DONE;
    return result == HTTP_INTERRUPTED ? EXIT_INTERRUPTED : EXIT_FAILED;
}

static int check_file(file_sink *s, char *message) {
    char hex[SHA256_HEX];
    if (!check_magic(s, message)) return EXIT_FAILED;
    if (s->f->sha256[0] && !is_hash_right(s, hex)) {
        drop_file(s);
        snprintf(message, HTTP_MESSAGE,
                 "%.*s: its SHA-256 is %s, not %s: the fetched bytes are discarded",
                 http_shown_length(s->f->url), s->f->url, hex, s->f->sha256);
        return EXIT_FAILED;
    }
    if (fsync(s->fd) == 0) return EXIT_DONE;
    snprintf(message, HTTP_MESSAGE, "%s: writing failed: %s", s->k->part.path, strerror(errno));
    return EXIT_FAILED;
}

int fetch_file(fetch *k, const pull_file *f, char *message) {
    file_sink s = {.k = k, .f = f, .size = f->size};
    snprintf(s.validator, sizeof s.validator, "%s", f->validator);
    if (part_has_file(&k->part, f)) {
        k->done += f->size > 0 ? (uint64_t)f->size : 0;
        return EXIT_DONE;
    }
    s.fd = part_open_file(&k->part, f, message);
    int code = s.fd < 0 ? EXIT_FAILED : resume_file(&s, message);
    if (code == EXIT_DONE) code = receive_file(&s, message);
    if (code == EXIT_DONE) code = check_file(&s, message);
    if (s.fd >= 0 && code != EXIT_DONE && !part_can_resume(f)) drop_file(&s);
    if (s.fd >= 0) close(s.fd);
    k->done += s.offset;
    return code == EXIT_DONE ? part_finish_file(&k->part, f, message) : code;
}
