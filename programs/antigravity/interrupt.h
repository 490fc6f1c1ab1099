/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C: the first asks for an orderly end, the second kills. */
#ifndef ANTIGRAVITY_INTERRUPT_H
#define ANTIGRAVITY_INTERRUPT_H

#include <stdbool.h>

void interrupt_install(void);
bool interrupted(void);

/* What takes long, asks nobody and leaves nothing half done, such as encoding, stands between
 * these: there Ctrl-C ends the program at once. False: Ctrl-C has been pressed already. */
bool interrupt_pause(void);
void interrupt_resume(void);

#endif
