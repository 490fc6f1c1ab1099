/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of a chunked request body (RFC 9112, 7.1). Input may arrive in pieces of any size. */
#ifndef ANTIGRAVITY_SERVE_HTTP_BODY_CHUNKS_H
#define ANTIGRAVITY_SERVE_HTTP_BODY_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum chunk_state {
    CHUNK_SIZE,
    CHUNK_EXTENSION, /* after the size, up to the end of the line */
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER, /* at the start of a line after the last chunk */
    CHUNK_TRAILER_LINE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE,
} chunk_state;

/* Decoder state. Zero-initialise. */
typedef struct body_chunks {
    chunk_state state;
    uint64_t remaining; /* bytes of the current chunk */
    unsigned n_digits;
    size_t n_overhead; /* bytes of the current extension, or of all trailers */
} body_chunks;

/* Decodes bytes[0..n) up to the end of the body and sets *used to the number of bytes consumed.
 * Passes body bytes to add(), which returns false to stop. Fails if the input is malformed or add()
 * stopped. */
bool body_chunks_read(body_chunks *b, const char *bytes, size_t n, size_t *used,
                      bool (*add)(void *user, const char *bytes, size_t n), void *user);

#endif
