/* SPDX-License-Identifier: Apache-2.0 */
/* A bar on standard error while something long runs, on one line of whatever width; nothing unless
 * that is a terminal. */
#ifndef ANTIGRAVITY_PROGRESS_H
#define ANTIGRAVITY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* No bar from now on. */
void progress_silence(void);
/* `label` is borrowed until progress_end(). */
void progress_begin(const char *label);
/* An ag_progress_fn: draws, and returns false (cancel) after Ctrl-C or its like. user is ignored.
 */
bool progress_update(void *user, uint64_t done, uint64_t total);
/* "what ..." in the place of the bar, until it is drawn again or wiped. */
void progress_note(const char *text);
/* Wipes the bar; harmless without one. */
void progress_end(void);

#endif
