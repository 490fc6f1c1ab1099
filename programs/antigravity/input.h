/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files and standard input as bytes. */
#ifndef ANTIGRAVITY_INPUT_H
#define ANTIGRAVITY_INPUT_H

#include <stddef.h>

/* path NULL or "-": standard input. *out is the caller's to free(), never NULL on success, and
 * ends in a NUL that is not counted. Says what is wrong and returns an exit code. */
int input_read(const char *path, char **out, size_t *len);

#endif
