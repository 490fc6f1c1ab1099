/* SPDX-License-Identifier: Apache-2.0 */
/* The element types that a test goes through, from the table. */
#ifndef AG_TESTS_SUPPORT_DTYPES_H
#define AG_TESTS_SUPPORT_DTYPES_H

#include <antigravity/dtype.h>

typedef struct dtype_set {
    ag_dtype v[AG_DTYPE_COUNT];
    size_t n;
} dtype_set;

/* Returns the types that have all of these roles. */
static inline dtype_set dtypes_with(unsigned roles) {
    dtype_set set = {.n = 0};
    for (unsigned t = 0; t < AG_DTYPE_COUNT; t++) {
        if (ag_dtype_may_be((ag_dtype)t, roles)) set.v[set.n++] = (ag_dtype)t;
    }
    return set;
}

#endif
