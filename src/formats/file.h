/* SPDX-License-Identifier: Apache-2.0 */
/* Regular files: open and read, with messages that name the file. */
#ifndef AG_FORMATS_FILE_H
#define AG_FORMATS_FILE_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens a regular file for reading. The caller closes *fd with ag_fd_close(); -1 after a failure.
 * Fails with AG_NOT_FOUND if nothing has that name, AG_FORMAT for a git-lfs pointer, and AG_IO for
 * everything else: a directory, a pipe, no permission, a broken link. */
ag_status ag_file_open(const char *path, int *fd, uint64_t *size_bytes, ag_error *err);

/* Returns whether something has that name, even a broken link. */
bool ag_file_is_named(const char *path);

/* Reads bytes [offset, offset + n). Fails with AG_IO, also if the file ends earlier. Thread-safe.
 */
ag_status ag_file_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t n,
                          ag_error *err);

/* Reads an entire file into memory of ag_malloc(), with a NUL after its *n bytes. The caller
 * releases it with ag_free(). Fails with AG_LIMIT if the file is longer than max_bytes. */
ag_status ag_file_read_all(const char *path, size_t max_bytes, char **out, size_t *n,
                           ag_error *err);

/* Returns "dir/name" in memory of ag_malloc(), or NULL without memory. */
char *ag_path_join(const char *dir, const char *name);

#endif
