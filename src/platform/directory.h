/* SPDX-License-Identifier: Apache-2.0 */
/* Directories on disk. Functions that fail set errno. */
#ifndef AG_PLATFORM_DIRECTORY_H
#define AG_PLATFORM_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the directory, for its owner alone (0700). True if the name exists. */
bool ag_directory_make(const char *path);
/* The same with the directories above it. */
bool ag_directory_make_path(const char *path);

/* Writes the names in a directory for which wants() is true, sorted by their bytes, into a list
 * that the caller releases with ag_directory_free(). wants NULL: all. Returns false, with no names,
 * if the directory cannot be read or memory runs out. */
bool ag_directory_list(const char *path, bool (*wants)(const char *name), char ***names, size_t *n);
void ag_directory_free(char **names, size_t n);

#endif
