/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings in a stream of text: what may be shown, and whether one has come. */
#ifndef AG_SESSION_STOP_H
#define AG_SESSION_STOP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ag_stop_list {
    const char *const *strings; /* borrowed, none empty */
    size_t n;
} ag_stop_list;

/* How many of text[0..len) may be shown: up to the first stop string, *found then being true; else
 * all but the longest tail that could be the beginning of one. */
size_t ag_stop_scan(const ag_stop_list *stop, const char *text, size_t len, bool *found);

#endif
