/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of the head of an HTTP/1 request (RFC 9112). It rejects all input that two programs could
 * read in different ways: a proxy in front must not see another request than this server. */
#ifndef ANTIGRAVITY_SERVE_HTTP_REQUEST_HEAD_H
#define ANTIGRAVITY_SERVE_HTTP_REQUEST_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEAD_MAX_FIELDS = 100 };

typedef struct head_field {
    const char *name; /* lower case */
    const char *value;
} head_field;

typedef struct request_head {
    char *text; /* owned; the other pointers point into it */
    const char *method;
    const char *path;  /* decoded; "*" for OPTIONS */
    const char *query; /* "" if there is none */
    const char *host;  /* with its port; NULL in HTTP/1.0 */
    bool is_http_1_0, keep_alive, chunked, expects_continue;
    bool has_length;
    uint64_t length; /* bytes of the body */
    head_field fields[HEAD_MAX_FIELDS];
    size_t n_fields;
} request_head;

/* Parses text[0..n), the head up to and including the empty line, and copies it. Returns 0, or
 * the HTTP status of the error and sets *reason. Then method and path are NULL unless they were
 * read. */
int request_head_read(request_head *h, const char *text, size_t n, const char **reason);
void request_head_free(request_head *h);
/* Returns the first header of that name, or NULL. */
const char *request_head_field(const request_head *h, const char *name);
/* Returns the value of a hexadecimal digit, or -1. */
int hex_digit(char c);

#endif
