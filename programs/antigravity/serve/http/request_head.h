/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an HTTP/1 request (RFC 9112), read strictly: whatever two programs could understand
 * in two ways is refused, so that nothing is smuggled past a proxy in front of us. */
#ifndef ANTIGRAVITY_SERVE_HTTP_REQUEST_HEAD_H
#define ANTIGRAVITY_SERVE_HTTP_REQUEST_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEAD_MAX_FIELDS = 100 };

typedef struct head_field {
    const char *name; /* in small letters */
    const char *value;
} head_field;

typedef struct request_head {
    char *text; /* owned; what the others point into */
    const char *method;
    const char *path;  /* decoded; "*" of OPTIONS */
    const char *query; /* "" without one */
    const char *host;  /* with its port; NULL in HTTP/1.0 */
    bool is_http_1_0, keep_alive, chunked, expects_continue;
    bool has_length;
    uint64_t length; /* of the body */
    head_field fields[HEAD_MAX_FIELDS];
    size_t n_fields;
} request_head;

/* text[0..n) is everything up to the empty line, which is included; it is copied. Returns 0, or the
 * status to answer with: then *why says what is wrong, and method and path are NULL or as far as
 * they were read. */
int request_head_read(request_head *h, const char *text, size_t n, const char **reason);
void request_head_free(request_head *h);
/* NULL if there is none; of several the first. */
const char *request_head_field(const request_head *h, const char *name);
/* Whether the list "a, b" of a field has the word, in whatever letters. */
bool head_list_has(const char *list, const char *word);
/* The value of a hexadecimal digit; -1 of other characters. */
int hex_digit(char c);

#endif
