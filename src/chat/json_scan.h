/* SPDX-License-Identifier: Apache-2.0 */
/* JSON scan: checks a JSON value byte by byte (RFC 8259), for text that arrives in pieces. */
#ifndef AG_CHAT_JSON_SCAN_H
#define AG_CHAT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AG_JSON_SCAN_DEPTH = 64 };

typedef struct ag_json_scan {
    uint8_t state;
    uint8_t hex;         /* digits of \uXXXX that are missing */
    bool is_key;         /* the current string is a key */
    const char *literal; /* missing letters of true, false or null */
    uint32_t depth;      /* open brackets; at most AG_JSON_SCAN_DEPTH */
    bool in_object[AG_JSON_SCAN_DEPTH];
} ag_json_scan;

typedef enum ag_json_scan_result {
    AG_JSON_SCAN_MORE, /* the byte belongs to the value, which is incomplete */
    AG_JSON_SCAN_END,  /* the byte is the last one of the value */
    AG_JSON_SCAN_BAD,  /* the byte does not belong to the value: a syntax error, or the byte after a
                          number */
} ag_json_scan_result;

/* Scans the next byte. A zeroed scan is at the start of a value. A top-level number has no last
 * byte: the byte after it gives AG_JSON_SCAN_BAD, and ag_json_scan_is_complete() is true. */
ag_json_scan_result ag_json_scan_byte(ag_json_scan *s, char c);
/* Returns whether the bytes so far are a complete value. */
bool ag_json_scan_is_complete(const ag_json_scan *s);

/* Returns whether s[0..n) is one JSON value, with or without white space around it. */
bool ag_is_json_value(const char *s, size_t n);

static inline bool ag_is_json_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Returns the length of the white space at the start of s[0..n). */
static inline size_t ag_json_space_len(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && ag_is_json_space(s[i])) i++;
    return i;
}

/* Removes the white space at both ends of (*s)[0..*n). */
static inline void ag_json_trim(const char **s, size_t *n) {
    while (*n && ag_is_json_space((*s)[*n - 1])) --*n;
    while (*n && ag_is_json_space(**s)) ++*s, --*n;
}

#endif
