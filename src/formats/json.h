/* SPDX-License-Identifier: Apache-2.0 */
/* JSON from files that nobody vouches for: bounded before it is parsed, strict while it is. */
#ifndef AG_FORMATS_JSON_H
#define AG_FORMATS_JSON_H

#include <antigravity/status.h>
#include <jansson.h>

/* text[0..n) must be one JSON object. `where` begins the messages ("model.safetensors: header"),
 * which give the byte offset. AG_FORMAT for anything RFC 8259 does not allow, for repeated keys and
 * for nesting deeper than 64; AG_LIMIT for more than 2^22 values, which would take gigabytes when
 * parsed although the text is small. Strings may hold NUL (json_string_length), keys may not.
 * *out is owned (json_decref), NULL after a failure. */
ag_status ag_json_parse(const char *text, size_t n, const char *where, json_t **out, ag_error *err);

/* The same for any one JSON value. */
ag_status ag_json_parse_value(const char *text, size_t n, const char *where, json_t **out,
                              ag_error *err);

/* The same for a whole file of at most max_bytes. */
ag_status ag_json_load(const char *path, size_t max_bytes, json_t **out, ag_error *err);

#endif
