/* SPDX-License-Identifier: Apache-2.0 */
/* Terminal state: width, and whether standard error shows progress. */
#ifndef ANTIGRAVITY_TERMINAL_H
#define ANTIGRAVITY_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the width in columns of the terminal at fd: 80 if unknown, at least 10. */
size_t terminal_columns(int fd);

/* Returns whether standard error is a terminal and not silenced. */
bool terminal_shows_progress(void);
/* Turns progress off for the rest of the process. */
void terminal_silence(void);

#endif
