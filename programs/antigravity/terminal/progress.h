/* SPDX-License-Identifier: Apache-2.0 */
/* Progress bar on standard error, on one line. Shown only on a terminal. */
#ifndef ANTIGRAVITY_PROGRESS_H
#define ANTIGRAVITY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Turns the bar off. */
void progress_silence(void);
/* Writes lines of JSON to standard output instead of the bar: {"step": LABEL, "done", "total"},
 * with "sha256" if a digest is set. */
void progress_as_json(void);
/* Sets the digest of what is fetched; "": none. Borrowed. */
void progress_digest(const char *sha256);
/* `label` is borrowed until progress_end(). */
void progress_begin(const char *label);
/* Draws the bar; an ag_progress_fn. Returns false (cancel) after a signal. `user` is ignored. */
bool progress_update(void *user, uint64_t done, uint64_t total);
/* Shows "text ..." in place of the bar until the next draw. */
void progress_note(const char *text);
/* Removes the bar, if any. */
void progress_end(void);

#endif
