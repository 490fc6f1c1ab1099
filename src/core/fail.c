/* SPDX-License-Identifier: Apache-2.0 */
#include "core/fail.h"

#include <stdarg.h>
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

const char *ag_version(void) { return AG_VERSION; }

/* A message is one line: control characters of file names and texts become '?'. */
static void make_one_line(char *msg) {
    for (; *msg; msg++) {
        unsigned char c = (unsigned char)*msg;
        if (c < 0x20 || c == 0x7f) *msg = '?';
    }
}

ag_status ag_fail(ag_error *err, ag_status status, const char *file, int line, const char *fmt,
                  ...) {
    if (!err) return status;
    err->status = status;
    err->file = file;
    err->line = line;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    make_one_line(err->msg);
    return status;
}

ag_status ag_error_prefix(ag_error *err, ag_status status, const char *fmt, ...) {
    if (!err) return status;
    char was[sizeof err->msg];
    memcpy(was, err->msg, sizeof was);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if ((size_t)n < sizeof err->msg) {
        snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", was);
    }
    make_one_line(err->msg);
    return status;
}
