/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic file: a file that replaces another as a whole, or not at all. Its bytes are written to a
 * temporary file, which takes the final name once they are on disk. */
#ifndef AG_PLATFORM_ATOMIC_FILE_H
#define AG_PLATFORM_ATOMIC_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ag_atomic_file {
    int fd;                   /* the temporary file; -1: not open */
    char path[PATH_MAX];      /* the file to be replaced; a link's target, not the link */
    char temporary[PATH_MAX]; /* "" while the temporary file has no name */
} ag_atomic_file;

/* The functions below return NULL, or a static string that says what failed ("cannot be written").
 * errno then says why, or is 0. */

/* Opens a temporary file in the directory of `path`: without a name, or "path.saving-XXXXXX" where
 * the system needs one. Removes such files that killed processes have left there. is_public: every
 * user may read the file; else its owner alone. After a failure ag_atomic_file_close() is harmless
 * and not needed. */
const char *ag_atomic_file_open(ag_atomic_file *f, const char *path, bool is_public);
/* Waits until the bytes are on disk, and replaces the file. */
const char *ag_atomic_file_commit(ag_atomic_file *f);

/* Writes the path under which the temporary file can be read until it is committed or closed. */
void ag_atomic_file_preview(const ag_atomic_file *f, char *path, size_t cap);
/* Removes what was not committed. */
void ag_atomic_file_close(ag_atomic_file *f);

#endif
