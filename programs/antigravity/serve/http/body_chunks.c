/* SPDX-License-Identifier: Apache-2.0 */
#include "body_chunks.h"

#include "request_head.h"

enum { MAX_OVERHEAD = 4096, MAX_SIZE_DIGITS = 12 };

static bool read_size(body_chunks *b, char c) {
    const int digit = hex_digit(c);
    if (digit >= 0) {
        b->remaining = b->remaining * 16 + (unsigned)digit;
        return ++b->n_digits <= MAX_SIZE_DIGITS;
    }
    if (!b->n_digits) return false;
    if (c == '\r') b->state = CHUNK_SIZE_LF;
    else if (c == ';' || c == ' ' || c == '\t') b->state = CHUNK_EXTENSION;
    else return false;
    return true;
}

static void begin_size(body_chunks *b) {
    b->state = CHUNK_SIZE;
    b->remaining = 0;
    b->n_digits = 0;
    b->n_overhead = 0;
}

/* Skips one byte of a line whose content is ignored. Its CR leads to the state `at_cr`. */
static bool skip_line_byte(body_chunks *b, char c, chunk_state at_cr) {
    if (c == '\n' || c == '\0') return false;
    if (c == '\r') b->state = at_cr;
    return ++b->n_overhead <= MAX_OVERHEAD;
}

static bool read_byte(body_chunks *b, char c) {
    switch (b->state) {
    case CHUNK_SIZE:
        return read_size(b, c);
    case CHUNK_EXTENSION:
        return skip_line_byte(b, c, CHUNK_SIZE_LF);
    case CHUNK_SIZE_LF:
        b->state = b->remaining ? CHUNK_DATA : CHUNK_TRAILER;
        b->n_overhead = 0;
        return c == '\n';
    case CHUNK_DATA_CR:
        b->state = CHUNK_DATA_LF;
        return c == '\r';
    case CHUNK_DATA_LF:
        begin_size(b);
        return c == '\n';
    case CHUNK_TRAILER:
        b->state = c == '\r' ? CHUNK_END_LF : CHUNK_TRAILER_LINE;
        return c == '\r' || skip_line_byte(b, c, CHUNK_TRAILER_LF);
    case CHUNK_TRAILER_LINE:
        return skip_line_byte(b, c, CHUNK_TRAILER_LF);
    case CHUNK_TRAILER_LF:
        b->state = CHUNK_TRAILER;
        return c == '\n';
    case CHUNK_END_LF:
        b->state = CHUNK_DONE;
        return c == '\n';
    case CHUNK_DATA:
    case CHUNK_DONE:
        break;
    }
    return false;
}

bool body_chunks_read(body_chunks *b, const char *bytes, size_t n, size_t *used,
                      bool (*add)(void *user, const char *bytes, size_t n), void *user) {
    size_t at = 0;
    bool ok = true;
    while (ok && at < n && b->state != CHUNK_DONE) {
        if (b->state != CHUNK_DATA) {
            ok = read_byte(b, bytes[at++]);
            continue;
        }
        const size_t k = b->remaining < n - at ? (size_t)b->remaining : n - at;
        ok = add(user, bytes + at, k);
        at += k;
        b->remaining -= k;
        if (!b->remaining) b->state = CHUNK_DATA_CR;
    }
    *used = at;
    return ok;
}
