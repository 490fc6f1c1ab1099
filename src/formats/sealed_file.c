/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/sealed_file.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/file.h"
#include "platform/file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { BUFFER = 64 << 10, PAUSED_BUFFER = 1 << 20 };

static void pause_for(const ag_io_pauses *p) {
    if (p) p->pause(p->user);
}
static void resume_from(const ag_io_pauses *p) {
    if (p) p->resume(p->user);
}
static size_t buffer_bytes(const ag_io_pauses *p) { return p ? PAUSED_BUFFER : BUFFER; }

/* ---- writing ---- */

/* errno says why `what` failed; 0: there is no more to say. */
static ag_status atomic_error(const ag_sealed_writer *w, const char *what, ag_error *err) {
    if (!errno) return AG_FAIL(err, IO, "%s: %s", w->file.path, what);
    return AG_FAIL(err, IO, "%s: %s: %s", w->file.path, what, strerror(errno));
}

ag_status ag_sealed_writer_open(ag_sealed_writer *w, const char *path, ag_error *err) {
    *w = (ag_sealed_writer){.is_public = w->is_public, .pauses = w->pauses};
    w->file.fd = -1;
    const size_t n = buffer_bytes(w->pauses);
    w->buffer = ag_malloc(n);
    if (!w->buffer) return AG_FAIL(err, NOMEM, "%s: buffer of %zu bytes", path, n);
    pause_for(w->pauses);
    const char *failed = ag_atomic_file_open(&w->file, path, w->is_public);
    const ag_status st = failed ? atomic_error(w, failed, err) : AG_OK;
    resume_from(w->pauses);
    AG_TRY(st);
    ag_checksum_begin(&w->sum);
    return AG_OK;
}

static ag_status write_bytes(ag_sealed_writer *w, const unsigned char *p, size_t n, ag_error *err) {
    return ag_fd_write(w->file.fd, p, n) ? AG_OK : atomic_error(w, "writing failed", err);
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

ag_status ag_sealed_writer_commit(ag_sealed_writer *w, ag_error *err) {
    uint64_t sum = ag_checksum_value(&w->sum);
    unsigned char seal[AG_SEAL_BYTES];
    ag_put_number(seal, sum, AG_SEAL_BYTES);
    AG_TRY(put_raw(w, seal, sizeof seal, err));
    return ag_sealed_writer_commit_unsealed(w, err);
}

ag_status ag_sealed_writer_preview(ag_sealed_writer *w, char *path, size_t cap, ag_error *err) {
    AG_TRY(flush(w, err));
    ag_atomic_file_preview(&w->file, path, cap);
    return AG_OK;
}

ag_status ag_sealed_writer_commit_unsealed(ag_sealed_writer *w, ag_error *err) {
    AG_TRY(flush(w, err));
    pause_for(w->pauses);
    const char *failed = ag_atomic_file_commit(&w->file);
    const ag_status st = failed ? atomic_error(w, failed, err) : AG_OK;
    resume_from(w->pauses);
    return st;
}

void ag_sealed_writer_close(ag_sealed_writer *w) {
    if (w->buffer) ag_atomic_file_close(&w->file);
    ag_free(w->buffer);
    *w = (ag_sealed_writer){.file.fd = -1};
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
    if (r->fd >= 0 && r->path) ag_fd_close(r->fd);
    ag_free(r->buffer);
    *r = (ag_sealed_reader){.fd = -1};
}
