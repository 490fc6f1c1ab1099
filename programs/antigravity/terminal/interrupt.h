/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT (Ctrl-C), SIGTERM and SIGHUP. The first signal asks for an orderly end, which saves and
 * reports results; a terminal shows a notice. The second signal ends the process at once. */
#ifndef ANTIGRAVITY_PROGRAM_INTERRUPT_H
#define ANTIGRAVITY_PROGRAM_INTERRUPT_H

#include <antigravity/session.h>
#include <stdbool.h>

void interrupt_install(void);
bool interrupted(void);
/* Suppresses the notice. */
void interrupt_silence(void);
/* Clears a SIGINT, so that the next signal is the first again. Returns false after another signal
 * or none. */
bool interrupt_forget(void);

/* From now on a signal cancels the session's work. Unregister the session before it is destroyed.
 * NULL is ignored. */
void interrupt_register(ag_session *s);
void interrupt_unregister(ag_session *s);

/* Sets a function that the handler of the first signal calls; NULL: none. It must be
 * async-signal-safe. */
void interrupt_set_restore(void (*restore)(void));

/* Between these a signal ends the process at once. For long operations without a cancellation check
 * that leave nothing incomplete, such as encoding. Returns false if a signal came before. */
bool interrupt_pause(void);
void interrupt_resume(void);

/* Maps EXIT_INTERRUPTED to 128 + the signal's number; returns other codes unchanged. */
int interrupt_exit_code(int code);

#endif
