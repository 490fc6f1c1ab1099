/* SPDX-License-Identifier: Apache-2.0 */
/* Where the turns of a conversation begin: logical positions, ascending. */
#ifndef AG_CACHE_TURNS_H
#define AG_CACHE_TURNS_H

#include <antigravity/status.h>
#include <stddef.h>
#include <stdint.h>

/* Starts zeroed. */
typedef struct ag_turns {
    uint32_t *first; /* owned; [n] */
    size_t n, cap;
} ag_turns;

void ag_turns_release(ag_turns *t);
/* The next turn begins at the position; once, however often it is said. AG_INVALID below where the
 * last one begins. */
ag_status ag_turns_add(ag_turns *t, uint32_t position, ag_error *err);
/* The sequence has been truncated: what begins there or later has not begun. */
void ag_turns_truncate(ag_turns *t, uint32_t position);
ag_status ag_turns_copy(ag_turns *to, const ag_turns *from, ag_error *err);

#endif
