/* SPDX-License-Identifier: Apache-2.0 */
/* Progress bar on standard error, on one line. Shown only on a terminal. */
#ifndef ANTIGRAVITY_PROGRESS_H
#define ANTIGRAVITY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Turns the bar off. */
void progress_silence(void);
/* `label` is borrowed until progress_end(). */
void progress_begin(const char *label);
/* Draws the bar; an ag_progress_fn. Returns false (cancel) after a signal. `user` is ignored. */
bool progress_update(void *user, uint64_t done, uint64_t total);
/* Shows "text ..." in place of the bar until the next draw. */
void progress_note(const char *text);
/* Removes the bar, if any. */
void progress_end(void);

#endif
