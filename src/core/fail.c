/* SPDX-License-Identifier: Apache-2.0 */
#include "core/fail.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[] = {
#define AG_STATUS_NAME(name, text) #name,
    AG_STATUS_MAP(AG_STATUS_NAME)
#undef AG_STATUS_NAME
};

static const char *const status_texts[] = {
#define AG_STATUS_TEXT(name, text) text,
    AG_STATUS_MAP(AG_STATUS_TEXT)
#undef AG_STATUS_TEXT
};

enum { N_STATUS = sizeof status_names / sizeof status_names[0] };

const char *ag_status_name(ag_status status) {
    return (unsigned)status < N_STATUS ? status_names[status] : "?";
}

const char *ag_status_text(ag_status status) {
    return (unsigned)status < N_STATUS ? status_texts[status] : "unknown status";
}

const char *ag_version(void) { return AG_VERSION_STRING; }

/* Makes a message one line: control characters of names and texts become '?'. */
static void make_one_line(char *msg) {
    for (; *msg; msg++) {
        unsigned char c = (unsigned char)*msg;
        if (c < 0x20 || c == 0x7f) *msg = '?';
    }
}

/* ---- messages that are too long ---- */

/* Two paths of maximum length, and text about them. */
enum { TEXT_BYTES = 9000, MIN_SECTION = 40 };
static const char between[] = ": ", gap[] = "...";

/* Finds the longest section between colons, such as a file name. Returns its length. */
static size_t longest_section(const char *text, size_t *begin) {
    size_t longest = 0;
    for (const char *section = text;; section += strlen(between)) {
        const char *end = strstr(section, between);
        const size_t n = end ? (size_t)(end - section) : strlen(section);
        if (n > longest) {
            longest = n;
            *begin = (size_t)(section - text);
        }
        if (!end) return longest;
        section = end;
    }
}

static bool inside_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* Removes at least `excess` of a section's n bytes from its middle. Keeps UTF-8 characters intact
 * and, of a path, full names where possible. */
static void cut_middle(char *section, size_t n, size_t excess) {
    const size_t n_remaining = n > excess + MIN_SECTION ? n - excess : MIN_SECTION;
    size_t begin = (n_remaining - strlen(gap)) / 3, end = n - (n_remaining - strlen(gap) - begin);
    while (begin && inside_character(section[begin])) begin--;
    while (end < n && inside_character(section[end])) end++;
    const char *slash = memchr(section + end, '/', n - end);
    if (slash && (size_t)(slash - section) < n - (n - end) / 2) end = (size_t)(slash - section);
    for (size_t i = begin; slash && i > begin / 2; i--) {
        if (section[i - 1] != '/') continue;
        begin = i;
        break;
    }
    memcpy(section + begin, gap, strlen(gap));
    memmove(section + begin + strlen(gap), section + end, strlen(section + end) + 1);
}

/* Copies a message into *err. Shortens long names in their middle, so that the reason at the end
 * stays. */
static void put_message(ag_error *err, char *text) {
    size_t n = strlen(text), begin = 0;
    while (n >= sizeof err->msg) {
        const size_t section = longest_section(text, &begin);
        if (section <= MIN_SECTION) break;
        cut_middle(text + begin, section, n - (sizeof err->msg - 1));
        n = strlen(text);
    }
    snprintf(err->msg, sizeof err->msg, "%s", text);
    make_one_line(err->msg);
}

ag_status ag_fail(ag_error *err, ag_status status, const char *file, int line, const char *fmt,
                  ...) {
    if (!err) return status;
    char text[TEXT_BYTES];
    size_t n = 0;
    err->status = status;
    err->file = file;
    err->line = line;
    if (status == AG_NOMEM) n = (size_t)snprintf(text, sizeof text, "out of memory: ");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof text - n, fmt, ap);
    va_end(ap);
    put_message(err, text);
    return status;
}

ag_status ag_error_prefix(ag_error *err, ag_status status, const char *fmt, ...) {
    if (!err) return status;
    char text[TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const size_t available = sizeof text - sizeof between - sizeof err->msg;
    size_t at = n < 0 ? 0 : (size_t)n < available ? (size_t)n : available;
    snprintf(text + at, sizeof text - at, "%s%s", between, err->msg);
    put_message(err, text);
    return status;
}
