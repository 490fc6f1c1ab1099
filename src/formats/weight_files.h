/* SPDX-License-Identifier: Apache-2.0 */
/* Set of mapped files with tensors. Every weight source consists of one, whatever its format. */
#ifndef AG_FORMATS_WEIGHT_FILES_H
#define AG_FORMATS_WEIGHT_FILES_H

#include "formats/tensor_list.h"

typedef struct ag_weight_files ag_weight_files;

typedef struct ag_weight_file {
    char *path; /* owned */
    int fd;
    uint64_t bytes;
    ag_buffer *map;      /* mapping of the entire file */
    ag_tensor_list list; /* owned; the format fills it in, except for `file` */
} ag_weight_file;

/* Makes an empty set, for ag_weight_files_add() and then ag_weight_files_sort(). *out is NULL after
 * a failure. */
ag_status ag_weight_files_create(ag_weight_files **out, ag_error *err);
/* Opens and maps another file. Takes ownership of path, also on failure; path NULL is AG_NOMEM.
 * *out is valid until the next file is added. */
ag_status ag_weight_files_add(ag_weight_files *w, char *path, ag_weight_file **out, ag_error *err);
/* Sorts the tensors of all files. Call it when all lists are filled in; before, the set has no
 * tensors. Fails with AG_FORMAT if two tensors have one name. */
ag_status ag_weight_files_sort(ag_weight_files *w, ag_error *err);
void ag_weight_files_destroy(ag_weight_files *w);

/* Tensors, sorted by name (strcmp), borrowed from w. ag_weight_files_find() returns NULL for an
 * unknown name. */
size_t ag_weight_files_count(const ag_weight_files *w);
const ag_source_tensor *ag_weight_files_at(const ag_weight_files *w, size_t i);
const ag_source_tensor *ag_weight_files_find(const ag_weight_files *w, const char *name);

/* Number of files, their paths and sizes. */
size_t ag_weight_files_n_files(const ag_weight_files *w);
const char *ag_weight_files_path(const ag_weight_files *w, size_t file);
uint64_t ag_weight_files_bytes(const ag_weight_files *w, size_t file);

/* Makes *out the tensor in the read-only mapping of its file, which it borrows. Its data may be
 * unaligned. */
ag_status ag_weight_files_tensor(const ag_weight_files *w, const ag_source_tensor *t,
                                 ag_tensor *out, ag_error *err);

/* Drops the pages of bytes [first, first + n) of the tensor from this process's memory, including
 * pages shared with neighbours. They are read again from the file on the next access. A range
 * beyond the end is shortened. If the entire tensor is dropped, so is up to 2 MiB around it, which
 * the system may have mapped with it. */
void ag_weight_files_drop(const ag_weight_files *w, const ag_source_tensor *t, uint64_t first,
                          uint64_t n);

/* Reads bytes [first, first + n) of the tensor without its mapping. Fails with AG_INVALID if the
 * range is beyond the tensor's end; with AG_IO if the file cannot be read. */
ag_status ag_weight_files_read(const ag_weight_files *w, const ag_source_tensor *t, uint64_t first,
                               void *dst, size_t n, ag_error *err);

#endif
