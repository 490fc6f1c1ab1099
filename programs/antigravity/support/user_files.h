/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of user files, and files that are replaced atomically. */
#ifndef ANTIGRAVITY_USER_FILES_H
#define ANTIGRAVITY_USER_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes "$variable/antigravity/name", or "~/below/antigravity/name" if the variable is not set
 * (XDG base directories). Returns false without a home directory, or if the path is too long. */
bool user_path(char path[PATH_MAX], const char *variable, const char *below, const char *name);
/* Creates the directory and its parents with `mode` less the umask. Returns false with errno
 * set. */
bool make_directories(const char *path, mode_t mode);
/* Writes "dir/name". Returns false if it is too long. */
bool path_join(char path[PATH_MAX], const char *dir, const char *name);
/* Returns whether the path ends in `ending`, after at least one character. */
bool path_ends_in(const char *path, const char *ending);

typedef struct new_file {
    const char *path; /* borrowed */
    char temp_path[PATH_MAX + 8];
    int fd;
} new_file;

/* Creates a temporary file next to `path`, readable by the owner only. Returns false with errno
 * set. */
bool new_file_open(new_file *f, const char *path);
bool new_file_write(new_file *f, const char *text, size_t n);
/* `ok`: renames the file to `path`; else removes it. On false the file is removed and errno is
 * set. */
bool new_file_close(new_file *f, bool ok);

#endif
