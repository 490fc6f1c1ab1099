/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C (SIGINT), SIGTERM and SIGHUP: the first of them asks for an orderly end, in which what was
 * made is saved and reported; the second one ends the program at once. */
#ifndef ANTIGRAVITY_INTERRUPT_H
#define ANTIGRAVITY_INTERRUPT_H

#include <stdbool.h>

void interrupt_install(void);
bool interrupted(void);

/* What takes long, asks nobody and leaves nothing half done, such as encoding, stands between
 * these: there a signal ends the program at once. False: there was one already. */
bool interrupt_pause(void);
void interrupt_resume(void);

/* For EXIT_INTERRUPTED 128 + the signal's number, as shells number it; others stay. */
int interrupt_exit_code(int code);

#endif
