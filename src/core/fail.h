/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: macros that create and return them. */
#ifndef AG_CORE_FAIL_H
#define AG_CORE_FAIL_H

#include <antigravity/status.h>

/* Fills *err, which may be NULL, and returns status. Puts "out of memory: " before the message of
 * AG_NOMEM. Such a message is a noun, with a size if it is known. */
ag_status ag_fail(ag_error *err, ag_status status, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* return AG_FAIL(err, FORMAT, "%s: %zu bytes, not %zu", path, have, want); */
#define AG_FAIL(err, name, ...) ag_fail((err), AG_##name, __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the function with the status of a failed call. Use it only while the function owns
 * nothing. */
#define AG_TRY(call)                                        \
    do {                                                    \
        ag_status ag_try_status_ = (call);                  \
        if (ag_try_status_ != AG_OK) return ag_try_status_; \
    } while (0)

/* Puts "prefix: " before the message of *err, which may be NULL, and returns status. */
ag_status ag_error_prefix(ag_error *err, ag_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
