/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C (SIGINT), SIGTERM and SIGHUP: the first of them asks for an orderly end, in which what was
 * made is saved and reported, and says so on a terminal; the second one ends the program at once.
 */
#ifndef ANTIGRAVITY_PROGRAM_INTERRUPT_H
#define ANTIGRAVITY_PROGRAM_INTERRUPT_H

#include <antigravity/session.h>
#include <stdbool.h>

void interrupt_install(void);
bool interrupted(void);
/* Nothing is said when a signal comes: what follows shows that it was heard. */
void interrupt_silence(void);
/* After Ctrl-C alone: it is as if there had been none, and the next one is the first again. False
 * after another signal, and if there was none. */
bool interrupt_forget(void);

/* From now on a signal also cancels what the session is doing, until it is spared again: before it
 * is destroyed. NULL is fine. */
void interrupt_register(ag_session *s);
void interrupt_unregister(ag_session *s);

/* The first signal also calls this, from its handler: the next one ends the program as it is. NULL:
 * nothing. */
void interrupt_set_restore(void (*restore)(void));

/* What takes long, asks nobody and leaves nothing half done, such as encoding, stands between
 * these: there a signal ends the program at once. False: there was one already. */
bool interrupt_pause(void);
void interrupt_resume(void);

/* For EXIT_INTERRUPTED 128 + the signal's number, as shells number it; others stay. */
int interrupt_exit_code(int code);

#endif
