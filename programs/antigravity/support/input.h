/* SPDX-License-Identifier: Apache-2.0 */
/* Reads entire files and standard input. */
#ifndef ANTIGRAVITY_INPUT_H
#define ANTIGRAVITY_INPUT_H

#include <stddef.h>

/* Reads a file; path NULL or "-" is standard input. The caller frees *out, which is not NULL on
 * success and ends in a NUL that *len excludes. Reports a failure and returns an exit code. */
int input_read(const char *path, char **out, size_t *len);

/* Like input_read(), but fails if there is a NUL byte. */
int input_read_text(const char *path, char **out, size_t *len);
/* Returns EXIT_DONE, or reports that the file of an option, a long name, cannot be read. `advice`
 * ends the message; NULL: none. */
int input_check(const char *option, const char *path, const char *advice);
/* Returns EXIT_DONE, or reports the line of `name` that has a NUL byte. */
int input_refuse_nul(const char *name, const char *text, size_t len);

#endif
