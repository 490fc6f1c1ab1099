/* SPDX-License-Identifier: Apache-2.0 */
/* The two macros through which every error is made and passed on. */
#ifndef AG_CORE_FAIL_H
#define AG_CORE_FAIL_H

#include <antigravity/status.h>

/* Fills *err (NULL is fine) and returns status. Puts "out of memory: " before the message of
 * AG_NOMEM: such a message is a noun, with a size where it is known. */
ag_status ag_fail(ag_error *err, ag_status status, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* return AG_FAIL(err, FORMAT, "%s: %zu bytes, not %zu", path, have, want); */
#define AG_FAIL(err, name, ...) ag_fail((err), AG_##name, __FILE__, __LINE__, __VA_ARGS__)

/* Leaves the function with the status of a failed call: only while nothing is owned yet. */
#define AG_TRY(call)                                        \
    do {                                                    \
        ag_status ag_try_status_ = (call);                  \
        if (ag_try_status_ != AG_OK) return ag_try_status_; \
    } while (0)

/* Puts "prefix: " before the message of an error that is on its way up; returns its status. */
ag_status ag_error_prefix(ag_error *err, ag_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
