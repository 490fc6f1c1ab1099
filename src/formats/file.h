/* SPDX-License-Identifier: Apache-2.0 */
/* Regular files: opened, measured and read with errors that name them. */
#ifndef AG_FORMATS_FILE_H
#define AG_FORMATS_FILE_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens a regular file for reading; *fd is the caller's to close, -1 after a failure. AG_NOT_FOUND
 * when nothing has that name, AG_IO for everything else (a directory, a pipe, no permission, a link
 * that leads nowhere), AG_FORMAT for the pointer that git-lfs leaves in a file's place. */
ag_status ag_file_open(const char *path, int *fd, uint64_t *size_bytes, ag_error *err);

/* Something has that name, be it a link that leads nowhere. */
bool ag_file_is_named(const char *path);

/* All of [offset, offset + n) or AG_IO: a file that ends earlier is an error too. Thread-safe. */
ag_status ag_file_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t n,
                          ag_error *err);

/* The whole file in memory of ag_malloc, with a NUL after its *n bytes; release with ag_free.
 * AG_LIMIT if it is longer than max_bytes. */
ag_status ag_file_read_all(const char *path, size_t max_bytes, char **out, size_t *n,
                           ag_error *err);

/* "dir/name" in memory of ag_malloc, NULL without memory. */
char *ag_path_join(const char *dir, const char *name);

#endif
