/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/spill_file.h"

#include "core/alloc.h"
#include "core/checksum.h"
#include "platform/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ag_spill_file {
    uint32_t users;
    int fd;         /* -1: not open */
    bool is_opened; /* an open has been tried */
    char *path;     /* owned */
    bool has_name;  /* removed at the end */
    ag_file_info identity;
    size_t record_bytes;
    uint32_t max_records; /* limit of the file */
    uint32_t n;           /* records in the file, used or not */
    uint32_t *unused;     /* owned; [n_unused] free records */
    uint32_t n_unused, cap;
    char trouble[256]; /* first failure; empty: none */
    bool is_reported;
};

uint64_t ag_spill_checksum(const void *bytes, size_t n) {
    ag_checksum sum;
    ag_checksum_begin(&sum);
    ag_checksum_add(&sum, bytes, n);
    return ag_checksum_value(&sum);
}

__attribute__((format(printf, 2, 3))) static bool record_trouble(ag_spill_file *f, const char *fmt,
                                                                 ...) {
    va_list args;
    if (f->trouble[0]) return false;
    va_start(args, fmt);
    vsnprintf(f->trouble, sizeof f->trouble, fmt, args);
    va_end(args);
    return false;
}

/* ---- the file ---- */

static void open_file(ag_spill_file *f) {
    f->is_opened = true;
    const bool is_directory = ag_file_is_directory(f->path);
    f->fd = is_directory ? ag_fd_create_unnamed(f->path) : ag_fd_create(f->path);
    if (f->fd < 0) {
        record_trouble(f, "%s: cannot create the spill file: %s", f->path, strerror(errno));
        return;
    }
    f->has_name = !is_directory && ag_fd_stat(f->fd, &f->identity);
}

ag_spill_file *ag_spill_file_create(const char *path, size_t record_bytes, uint64_t max_bytes) {
    ag_spill_file *f = ag_calloc(1, sizeof *f);
    if (!f) return NULL;
    const uint64_t max_records = max_bytes ? max_bytes / record_bytes : UINT64_MAX;
    f->users = 1;
    f->fd = -1;
    f->record_bytes = record_bytes;
    f->max_records = max_records < UINT32_MAX ? (uint32_t)max_records : UINT32_MAX;
    f->path = ag_strdup(path);
    if (f->path) return f;
    ag_spill_file_release(f);
    return NULL;
}

ag_spill_file *ag_spill_file_share(ag_spill_file *f) {
    f->users++;
    return f;
}

ag_spill_file *ag_spill_file_sibling(ag_spill_file *f) {
    if (!ag_file_is_directory(f->path)) return ag_spill_file_share(f);
    ag_spill_file *other = ag_spill_file_create(f->path, f->record_bytes, 0);
    if (other) other->max_records = f->max_records;
    return other;
}

/* Another process may have replaced the file. */
static void remove_name(const ag_spill_file *f) {
    ag_file_info now;
    if (ag_file_stat_link(f->path, &now) && ag_file_is_same(&now, &f->identity)) remove(f->path);
}

void ag_spill_file_release(ag_spill_file *f) {
    if (!f || --f->users) return;
    if (f->has_name) remove_name(f);
    if (f->fd >= 0) ag_fd_close(f->fd);
    ag_free(f->path);
    ag_free(f->unused);
    ag_free(f);
}

/* ---- records ---- */

static uint64_t record_offset(const ag_spill_file *f, uint32_t record) {
    return (uint64_t)record * f->record_bytes;
}

static bool write_all(ag_spill_file *f, const void *bytes, size_t n, uint64_t at) {
    if (!f->is_opened) open_file(f);
    if (f->fd < 0) return false;
    if (!ag_file_may_reach(at + n))
        return record_trouble(f, "%s: cannot extend the spill file: %s", f->path, strerror(EFBIG));
    if (ag_fd_write_at(f->fd, at, bytes, n)) return true;
    return record_trouble(f, "%s: cannot write the spill file: %s", f->path, strerror(errno));
}

/* Reserves an entry for every record, so that freeing one cannot fail. */
static bool reserve_unused(ag_spill_file *f, uint32_t n) {
    if (n <= f->cap) return true;
    const uint32_t cap = n < UINT32_MAX / 2 ? 2 * n : UINT32_MAX;
    uint32_t *more = ag_realloc(f->unused, cap * sizeof *more);
    if (!more)
        return record_trouble(f, "%s: out of memory: list of %" PRIu32 " records", f->path, cap);
    f->unused = more;
    f->cap = cap;
    return true;
}

bool ag_spill_file_is_full(const ag_spill_file *f) {
    return !f->n_unused && f->n == f->max_records;
}

void ag_spill_file_report_full(ag_spill_file *f) {
    record_trouble(
        f, "%s: the spill file has reached its limit, and other sessions use its records", f->path);
}

bool ag_spill_file_put(ag_spill_file *f, const void *bytes, size_t n, uint32_t *record) {
    if (ag_spill_file_is_full(f)) return false;
    const bool grows = !f->n_unused;
    if (grows && !reserve_unused(f, f->n + 1)) return false;
    *record = grows ? f->n : f->unused[f->n_unused - 1];
    if (!write_all(f, bytes, n, record_offset(f, *record))) return false;
    if (grows) f->n++;
    else f->n_unused--;
    return true;
}

bool ag_spill_file_get(ag_spill_file *f, uint32_t record, void *bytes, size_t n, uint64_t sum) {
    size_t got;
    if (!ag_fd_read_at(f->fd, record_offset(f, record), bytes, n, &got))
        return record_trouble(f, "%s: cannot read the spill file: %s", f->path, strerror(errno));
    if (got < n) return record_trouble(f, "%s: the spill file is truncated", f->path);
    if (ag_spill_checksum(bytes, n) == sum) return true;
    return record_trouble(f, "%s: the spill file is damaged", f->path);
}

void ag_spill_file_free(ag_spill_file *f, uint32_t record) {
    f->unused[f->n_unused++] = record;
    if (f->n_unused < f->n) return;
    /* The file is empty. Space that cannot be truncated is used again. */
    f->n = f->n_unused = 0;
    (void)ag_fd_truncate(f->fd, 0);
}

const char *ag_spill_file_unreported_trouble(ag_spill_file *f) {
    if (f->is_reported || !f->trouble[0]) return NULL;
    f->is_reported = true;
    return f->trouble;
}

uint64_t ag_spill_file_bytes(const ag_spill_file *f) {
    return record_offset(f, f->n - f->n_unused);
}

const char *ag_spill_file_trouble(const ag_spill_file *f) {
    return f->trouble[0] ? f->trouble : NULL;
}
