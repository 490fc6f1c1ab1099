/* SPDX-License-Identifier: Apache-2.0 */
/* Stored speeds: a small file for each device and model, in the directory of compiled programs. */
#ifndef ANTIGRAVITY_SPEED_FILE_H
#define ANTIGRAVITY_SPEED_FILE_H

#include <limits.h>
#include <stdbool.h>

/* Writes the directory: $AG_OPENCL_CACHE, else antigravity/opencl in the user's cache directory.
 * Returns false if the variable is 0 or there is no home directory. */
bool speed_directory(char dir[PATH_MAX]);

/* Reads the tokens/s of a key, a text that names everything that speed depends on. Returns false if
 * there is no file, or if it is damaged or of another key. */
bool speed_read(const char *dir, const char *key, double *tokens_per_s);
/* Stores the tokens/s of a key; creates the directory. Returns false with errno set. */
bool speed_write(const char *dir, const char *key, double tokens_per_s);

#endif
