/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files and standard input as bytes. */
#ifndef ANTIGRAVITY_INPUT_H
#define ANTIGRAVITY_INPUT_H

#include <stddef.h>

/* path NULL or "-": standard input. *out is the caller's to free(), never NULL on success, and
 * ends in a NUL that is not counted. Says what is wrong and returns an exit code. */
int input_read(const char *path, char **out, size_t *len);

/* The same of what is text to its end: a NUL byte is refused. */
int input_read_text(const char *path, char **out, size_t *len);
/* EXIT_DONE, or says in which line of `name` there is a NUL byte. */
int input_refuse_nul(const char *name, const char *text, size_t len);

#endif
