/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C: the first asks for an orderly end, the second kills. */
#ifndef ANTIGRAVITY_INTERRUPT_H
#define ANTIGRAVITY_INTERRUPT_H

#include <stdbool.h>

void interrupt_install(void);
bool interrupted(void);

#endif
