/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings: finds how much of a text may be shown. */
#ifndef AG_SESSION_STOP_H
#define AG_SESSION_STOP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ag_stop_list {
    const char *const *strings; /* borrowed, none empty */
    size_t n;
} ag_stop_list;

/* Returns how many bytes of text[0..len) may be shown: up to the first stop string, with *found
 * set; otherwise all but the longest tail that may be the start of one. */
size_t ag_stop_scan(const ag_stop_list *stop, const char *text, size_t len, bool *found);

#endif
