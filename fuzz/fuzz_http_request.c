/* SPDX-License-Identifier: Apache-2.0 */
/* The input is the bytes of a client: the head of a request up to the empty line, and its body. The
 * result must not depend on the pieces in which the input arrives, and must be valid HTTP. */
#include "fuzz.h"

#include "../programs/antigravity/serve/http/body_chunks.h"
#include "../programs/antigravity/serve/http/request_head.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct collected {
    char *bytes;
    size_t n, cap;
} collected;

static bool collect(void *user, const char *bytes, size_t n) {
    collected *c = user;
    if (n > c->cap - c->n) abort(); /* more bytes than were sent */
    memcpy(c->bytes + c->n, bytes, n);
    c->n += n;
    return true;
}

static char *exact_bytes(const char *data, size_t n) {
    char *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, data, n);
    return copy;
}

/* Reads the chunks `step` bytes at a time. Returns the number of bytes consumed, or SIZE_MAX. */
static size_t read_chunks(const char *data, size_t n, size_t step, collected *out) {
    body_chunks b = {.state = CHUNK_SIZE};
    size_t at = 0;
    while (at < n && b.state != CHUNK_DONE) {
        size_t used = 0;
        const size_t k = n - at < step ? n - at : step;
        char *piece = exact_bytes(data + at, k);
        const bool ok = body_chunks_read(&b, piece, k, &used, collect, out);
        free(piece);
        if (!ok) return SIZE_MAX;
        if (used > k || (used < k && b.state != CHUNK_DONE)) abort();
        at += used;
    }
    return at;
}

static void check_chunks(const char *data, size_t n) {
    collected whole = {exact_bytes(data, n), 0, n}, pieces = {exact_bytes(data, n), 0, n};
    const size_t at = read_chunks(data, n, n ? n : 1, &whole);
    if (read_chunks(data, n, 1, &pieces) != at) abort();
    if (at != SIZE_MAX && (whole.n != pieces.n || memcmp(whole.bytes, pieces.bytes, whole.n) != 0))
        abort();
    free(whole.bytes);
    free(pieces.bytes);
}

static void check_head(const request_head *h) {
    if (!h->method[0] || !h->path[0] || !h->query) abort();
    if (h->path[0] != '/' && strcmp(h->path, "*") != 0) abort();
    if (h->chunked && (h->has_length || h->is_http_1_0)) abort();
    if (!h->host && !h->is_http_1_0) abort();
    for (size_t i = 0; i < h->n_fields; i++) {
        if (strpbrk(h->fields[i].name, " \t:\r\n") || strpbrk(h->fields[i].value, "\r\n")) abort();
        if (request_head_field(h, h->fields[i].name) == NULL) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    size_t n_head = n;
    for (size_t i = 0; i + 4 <= n; i++)
        if (!memcmp(data + i, "\r\n\r\n", 4)) {
            n_head = i + 4;
            break;
        }
    request_head h;
    const char *reason = NULL;
    char *head = exact_bytes((const char *)data, n_head);
    const int status = request_head_read(&h, head, n_head, &reason);
    free(head);
    if (status == 0) check_head(&h);
    else if (status < 400 || status > 599 || !reason) abort();
    const bool chunked = status == 0 && h.chunked;
    request_head_free(&h);
    char *body = exact_bytes((const char *)data + n_head, n - n_head);
    if (chunked) check_chunks(body, n - n_head);
    free(body);
    return 0;
}
