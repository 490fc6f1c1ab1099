/* SPDX-License-Identifier: Apache-2.0 */
/* Where a user's files lie, and files that appear as a whole or not at all. */
#ifndef ANTIGRAVITY_USER_FILES_H
#define ANTIGRAVITY_USER_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* "$variable/antigravity/name", or "~/below/antigravity/name" where the variable is not set, as the
 * XDG specification has it. False: there is no place, or its path is too long. */
bool user_path(char path[PATH_MAX], const char *variable, const char *below, const char *name);
/* Makes the directory, and those that it lies in, with this mode less the umask. False: errno says
 * why not. */
bool make_directories(const char *path, mode_t mode);
/* "dir/name". False: it is too long. */
bool path_join(char path[PATH_MAX], const char *dir, const char *name);
/* Whether the path ends in `ending` with something before it. */
bool path_ends_in(const char *path, const char *ending);

typedef struct new_file {
    const char *path; /* borrowed */
    char temp_path[PATH_MAX + 8];
    int fd;
} new_file;

/* Beside its place, for its owner alone. False: errno says why not. */
bool new_file_open(new_file *f, const char *path);
bool new_file_write(new_file *f, const char *text, size_t n);
/* `ok`: it takes its place, else it is gone. False: it is gone; errno says why. */
bool new_file_close(new_file *f, bool ok);

#endif
