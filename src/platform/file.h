/* SPDX-License-Identifier: Apache-2.0 */
/* Files by descriptor and by path. Functions that fail set errno. */
#ifndef AG_PLATFORM_FILE_H
#define AG_PLATFORM_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ag_file_kind {
    AG_FILE_REGULAR,
    AG_FILE_DIRECTORY,
    AG_FILE_LINK,  /* from ag_file_stat_link() only */
    AG_FILE_OTHER, /* a pipe, a device, a socket */
} ag_file_kind;

typedef struct ag_file_info {
    ag_file_kind kind;
    uint64_t bytes;
    uint64_t device, inode; /* together they identify the file, whatever its name */
    double modified_s;      /* seconds since 1970, without a fraction */
    bool is_own;            /* it belongs to the process's effective user */
    bool is_private;        /* its group and others have no permissions */
} ag_file_info;

/* Return false if the file does not exist or cannot be accessed. ag_file_stat() follows links. */
bool ag_file_stat(const char *path, ag_file_info *out);
bool ag_file_stat_link(const char *path, ag_file_info *out);
bool ag_fd_stat(int fd, ag_file_info *out);

bool ag_file_is_directory(const char *path);
/* Returns whether the process may open files in the directory. */
bool ag_file_may_search(const char *dir);
bool ag_file_is_same(const ag_file_info *a, const ag_file_info *b);

/* Writes the target of a link into to[cap], terminated and cut to fit. "" if path is not a link. */
void ag_file_read_link(const char *path, char *to, size_t cap);

/* ---- descriptors ----
 * Return -1 after a failure. All are closed by exec. The caller closes them with ag_fd_close(). */

/* For reading. Does not wait for the writer of a pipe. */
int ag_fd_open(const char *path);
/* A new file of that name, for reading and writing by its owner. EEXIST if the name is taken. */
int ag_fd_create(const char *path);
/* A new file without a name in the directory. The system removes it after the last close. */
int ag_fd_create_unnamed(const char *dir);
/* Returns false if the system reports a late write error. */
bool ag_fd_close(int fd);

/* Reads up to n bytes at offset, fewer only at the end of the file. *got is set in any case. Any
 * thread may call it at any time. */
bool ag_fd_read_at(int fd, uint64_t offset, void *dst, size_t n, size_t *got);
/* Write all n bytes, the first at the descriptor's own position. */
bool ag_fd_write(int fd, const void *src, size_t n);
bool ag_fd_write_at(int fd, uint64_t offset, const void *src, size_t n);
/* Cuts the file to n bytes. */
bool ag_fd_truncate(int fd, uint64_t n);

/* Returns whether the process may write a file up to byte `end`. A write beyond its limit
 * (RLIMIT_FSIZE) would end the process by SIGXFSZ. */
bool ag_file_may_reach(uint64_t end);

/* Reads the start of a small file, such as those of /proc, as text[cap], terminated. Returns false
 * if it cannot be read or is empty. */
bool ag_read_small_file(const char *path, char *text, size_t cap);

#endif
