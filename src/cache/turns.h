/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: the logical positions at which turns of a conversation begin, ascending. */
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
/* Adds a turn that begins at `position`; a repeated position is ignored. Fails with AG_INVALID
 * if `position` is below the last start. */
ag_status ag_turns_add(ag_turns *t, uint32_t position, ag_error *err);
/* Removes turns that begin at `position` or later. */
void ag_turns_truncate(ag_turns *t, uint32_t position);
ag_status ag_turns_copy(ag_turns *to, const ag_turns *from, ag_error *err);

#endif
