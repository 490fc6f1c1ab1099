/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/checksummed_file.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/file.h"
#include "platform/file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { BUFFER = 64 << 10, PAUSED_BUFFER = 1 << 20 };

static void pause_io(const ag_io_hooks *p) {
    if (p) p->pause(p->user);
}
static void resume_io(const ag_io_hooks *p) {
    if (p) p->resume(p->user);
}
static size_t buffer_bytes(const ag_io_hooks *p) { return p ? PAUSED_BUFFER : BUFFER; }

/* ---- writing ---- */

/* Reports that `what` failed. errno is the reason; 0: none. */
static ag_status atomic_error(const ag_checksummed_writer *w, const char *what, ag_error *err) {
    if (!errno) return AG_FAIL(err, IO, "%s: %s", w->file.path, what);
    return AG_FAIL(err, IO, "%s: %s: %s", w->file.path, what, strerror(errno));
}

ag_status ag_checksummed_writer_open(ag_checksummed_writer *w, const char *path, ag_error *err) {
    *w = (ag_checksummed_writer){.is_public = w->is_public, .hooks = w->hooks};
    w->file.fd = -1;
    const size_t n = buffer_bytes(w->hooks);
    w->buffer = ag_malloc(n);
    if (!w->buffer) return AG_FAIL(err, NOMEM, "%s: buffer of %zu bytes", path, n);
    pause_io(w->hooks);
    const char *failed = ag_atomic_file_open(&w->file, path, w->is_public);
    const ag_status st = failed ? atomic_error(w, failed, err) : AG_OK;
    resume_io(w->hooks);
    AG_TRY(st);
    ag_checksum_begin(&w->sum);
    return AG_OK;
}

static ag_status write_bytes(ag_checksummed_writer *w, const unsigned char *p, size_t n,
                             ag_error *err) {
    return ag_fd_write(w->file.fd, p, n) ? AG_OK : atomic_error(w, "writing failed", err);
}

static ag_status flush(ag_checksummed_writer *w, ag_error *err) {
    size_t n = w->n_buffered;
    w->n_buffered = 0;
    pause_io(w->hooks);
    const ag_status st = write_bytes(w, w->buffer, n, err);
    resume_io(w->hooks);
    return st;
}

static ag_status put_raw(ag_checksummed_writer *w, const void *bytes, size_t n, ag_error *err) {
    const size_t cap = buffer_bytes(w->hooks);
    const unsigned char *p = bytes;
    if (n > cap - w->n_buffered) AG_TRY(flush(w, err));
    if (n > cap && !w->hooks) return write_bytes(w, p, n, err);
    while (n) { /* in pieces if hooks require a copy */
        const size_t piece = n < cap - w->n_buffered ? n : cap - w->n_buffered;
        memcpy(w->buffer + w->n_buffered, p, piece);
        w->n_buffered += piece;
        p += piece;
        n -= piece;
        if (n) AG_TRY(flush(w, err));
    }
    return AG_OK;
}

ag_status ag_checksummed_put(void *writer, const void *bytes, size_t n, ag_error *err) {
    ag_checksummed_writer *w = writer;
    const unsigned char *p = bytes;
    while (n) {
        const size_t piece = w->hooks && n > PAUSED_BUFFER ? PAUSED_BUFFER : n;
        ag_checksum_add(&w->sum, p, piece);
        AG_TRY(put_raw(w, p, piece, err));
        p += piece;
        n -= piece;
    }
    return AG_OK;
}

ag_status ag_checksummed_writer_commit(ag_checksummed_writer *w, ag_error *err) {
    uint64_t sum = ag_checksum_value(&w->sum);
    unsigned char bytes[AG_CHECKSUM_BYTES];
    ag_put_number(bytes, sum, AG_CHECKSUM_BYTES);
    AG_TRY(put_raw(w, bytes, sizeof bytes, err));
    return ag_checksummed_writer_commit_plain(w, err);
}

ag_status ag_checksummed_writer_preview(ag_checksummed_writer *w, char *path, size_t cap,
                                        ag_error *err) {
    AG_TRY(flush(w, err));
    ag_atomic_file_preview(&w->file, path, cap);
    return AG_OK;
}

ag_status ag_checksummed_writer_commit_plain(ag_checksummed_writer *w, ag_error *err) {
    AG_TRY(flush(w, err));
    pause_io(w->hooks);
    const char *failed = ag_atomic_file_commit(&w->file);
    const ag_status st = failed ? atomic_error(w, failed, err) : AG_OK;
    resume_io(w->hooks);
    return st;
}

void ag_checksummed_writer_close(ag_checksummed_writer *w) {
    if (w->buffer) ag_atomic_file_close(&w->file);
    ag_free(w->buffer);
    *w = (ag_checksummed_writer){.file.fd = -1};
}

/* ---- reading ---- */

ag_status ag_checksummed_reader_open(ag_checksummed_reader *r, const char *path, ag_error *err) {
    *r = (ag_checksummed_reader){.fd = -1, .hooks = r->hooks, .path = path};
    const size_t n = buffer_bytes(r->hooks);
    pause_io(r->hooks);
    const ag_status st = ag_file_open(path, &r->fd, &r->size, err);
    resume_io(r->hooks);
    AG_TRY(st);
    if (r->size < AG_CHECKSUM_BYTES)
        return AG_FAIL(err, FORMAT, "%s: only %" PRIu64 " bytes, too few for a checksum", path,
                       r->size);
    r->buffer = ag_malloc(n);
    if (!r->buffer) return AG_FAIL(err, NOMEM, "%s: buffer of %zu bytes", path, n);
    ag_checksum_begin(&r->sum);
    return AG_OK;
}

static ag_status fill_buffer(ag_checksummed_reader *r, ag_error *err) {
    const uint64_t remaining = r->size - r->at;
    const size_t cap = buffer_bytes(r->hooks);
    r->n_read = 0;
    r->n_buffered = remaining < cap ? (size_t)remaining : cap;
    pause_io(r->hooks);
    const ag_status st = ag_file_read_at(r->fd, r->path, r->at, r->buffer, r->n_buffered, err);
    resume_io(r->hooks);
    return st;
}

/* Reads the next n bytes of the file, including the checksum. */
static ag_status get_raw(ag_checksummed_reader *r, unsigned char *p, size_t n, ag_error *err) {
    while (n) {
        size_t ready = r->n_buffered - r->n_read;
        if (!ready && n >= BUFFER && !r->hooks) { /* large pieces bypass the buffer */
            AG_TRY(ag_file_read_at(r->fd, r->path, r->at, p, n, err));
            r->at += n;
            return AG_OK;
        }
        if (!ready) {
            AG_TRY(fill_buffer(r, err));
            continue;
        }
        const size_t n_copied = n < ready ? n : ready;
        memcpy(p, r->buffer + r->n_read, n_copied);
        r->n_read += n_copied;
        r->at += n_copied;
        p += n_copied;
        n -= n_copied;
    }
    return AG_OK;
}

ag_status ag_checksummed_get(void *reader, void *bytes, size_t n, ag_error *err) {
    ag_checksummed_reader *r = reader;
    if (!n) return AG_OK;
    uint64_t remaining = r->size - AG_CHECKSUM_BYTES - r->at;
    if (n > remaining) {
        return AG_FAIL(err, FORMAT, "%s: ends after %" PRIu64 " bytes, %zu more are needed",
                       r->path, r->size, (size_t)(n - remaining));
    }
    AG_TRY(get_raw(r, bytes, n, err));
    ag_checksum_add(&r->sum, bytes, n);
    return AG_OK;
}

ag_status ag_checksummed_reader_check(ag_checksummed_reader *r, ag_error *err) {
    uint64_t remaining = r->size - AG_CHECKSUM_BYTES - r->at;
    if (remaining)
        return AG_FAIL(err, FORMAT, "%s: has %" PRIu64 " bytes too many", r->path, remaining);
    unsigned char bytes[AG_CHECKSUM_BYTES];
    AG_TRY(get_raw(r, bytes, sizeof bytes, err));
    const uint64_t expected = ag_get_number(bytes, AG_CHECKSUM_BYTES),
                   actual = ag_checksum_value(&r->sum);
    if (actual == expected) return AG_OK;
    return AG_FAIL(err, FORMAT,
                   "%s: damaged: the checksum of its bytes is %016" PRIx64 ", not %016" PRIx64,
                   r->path, actual, expected);
}

void ag_checksummed_reader_close(ag_checksummed_reader *r) {
    if (r->fd >= 0 && r->path) ag_fd_close(r->fd);
    ag_free(r->buffer);
    *r = (ag_checksummed_reader){.fd = -1};
}
