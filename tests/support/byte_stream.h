/* SPDX-License-Identifier: Apache-2.0 */
/* Stream in memory that the test has allocated: caches are saved to it and read back. */
#ifndef AG_TESTS_SUPPORT_BYTE_STREAM_H
#define AG_TESTS_SUPPORT_BYTE_STREAM_H

#include <antigravity/status.h>
#include <string.h>

typedef struct byte_stream {
    unsigned char *bytes;
    size_t n, at; /* written, read */
} byte_stream;

static inline ag_status stream_put(void *user, const void *bytes, size_t n, ag_error *err) {
    (void)err;
    byte_stream *s = user;
    if (n) memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    return AG_OK;
}

static inline ag_status stream_get(void *user, void *bytes, size_t n, ag_error *err) {
    (void)err;
    byte_stream *s = user;
    if (n) memcpy(bytes, s->bytes + s->at, n);
    s->at += n;
    return AG_OK;
}

#endif
