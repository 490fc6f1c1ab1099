/* SPDX-License-Identifier: Apache-2.0 */
/* A body that comes in chunks (RFC 9112, 7.1), in pieces of any size. */
#ifndef ANTIGRAVITY_SERVE_HTTP_BODY_CHUNKS_H
#define ANTIGRAVITY_SERVE_HTTP_BODY_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum chunk_state {
    CHUNK_SIZE,
    CHUNK_EXTENSION, /* behind the size, up to the end of the line */
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER, /* at the beginning of a line behind the last chunk */
    CHUNK_TRAILER_LINE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE,
} chunk_state;

/* Zero-initialise. */
typedef struct body_chunks {
    chunk_state state;
    uint64_t remaining; /* of the chunk */
    unsigned n_digits;
    size_t n_overhead; /* bytes of this line, or of the trailers */
} body_chunks;

/* Takes bytes of what came; *used says how many, up to the end of the body. Those of the body are
 * given to add(), which returns false to stop. False: malformed, or stopped. */
bool body_chunks_read(body_chunks *b, const char *bytes, size_t n, size_t *used,
                      bool (*add)(void *user, const char *bytes, size_t n), void *user);

#endif
