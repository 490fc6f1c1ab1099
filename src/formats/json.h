/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of untrusted files: limits are checked before parsing, and parsing is strict. */
#ifndef AG_FORMATS_JSON_H
#define AG_FORMATS_JSON_H

#include <antigravity/status.h>
#include <jansson.h>

/* Parses text[0..n), which must be one JSON object. `where` starts the messages
 * ("model.safetensors: header"), which give the byte offset. Fails with AG_FORMAT for anything that
 * RFC 8259 does not allow, repeated keys and nesting deeper than 64; with AG_LIMIT for more than
 * 2^22 values, since small texts could take gigabytes; with AG_CANCELLED if the thread is
 * interrupted. Strings may contain NUL (json_string_length), keys may not. The caller owns *out
 * (json_decref); NULL after a failure. */
ag_status ag_json_parse(const char *text, size_t n, const char *where, json_t **out, ag_error *err);

/* The same for any one JSON value. */
ag_status ag_json_parse_value(const char *text, size_t n, const char *where, json_t **out,
                              ag_error *err);

/* The same for a file of at most max_bytes. */
ag_status ag_json_load(const char *path, size_t max_bytes, json_t **out, ag_error *err);

#endif
