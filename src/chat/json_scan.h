/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a JSON value that comes in pieces, byte by byte, as RFC 8259 has it. */
#ifndef AG_CHAT_JSON_SCAN_H
#define AG_CHAT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AG_JSON_SCAN_DEPTH = 64 };

typedef struct ag_json_scan {
    uint8_t state;
    uint8_t hex;         /* digits of \u still to come */
    bool is_key;         /* the string at hand is one */
    const char *literal; /* what is left of true, false, null */
    uint32_t depth;      /* brackets that are open */
    bool in_object[AG_JSON_SCAN_DEPTH];
} ag_json_scan;

typedef enum ag_json_scan_result {
    AG_JSON_SCAN_MORE, /* the byte belongs to the value, which goes on */
    AG_JSON_SCAN_END,  /* the byte is the value's last one */
    AG_JSON_SCAN_BAD,  /* the byte cannot stand here; a number ends before it, too */
} ag_json_scan_result;

/* A zeroed scan stands before a value. Numbers at the top have no last byte of their own. */
ag_json_scan_result ag_json_scan_byte(ag_json_scan *s, char c);
/* The last byte was the end of a string, a literal or a bracket, or is in a number that may end. */
bool ag_json_scan_is_complete(const ag_json_scan *s);

/* Returns whether s[0..n) is a JSON value, with or without white space around it. */
bool ag_is_json_value(const char *s, size_t n);

static inline bool ag_is_json_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Returns the number of bytes of white space that s[0..n) begins with. */
static inline size_t ag_json_space_len(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && ag_is_json_space(s[i])) i++;
    return i;
}

/* Shortens (*s)[0..*n) to what is left without white space at both ends. */
static inline void ag_json_trim(const char **s, size_t *n) {
    while (*n && ag_is_json_space((*s)[*n - 1])) --*n;
    while (*n && ag_is_json_space(**s)) ++*s, --*n;
}

#endif
