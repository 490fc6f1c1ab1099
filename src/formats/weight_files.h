/* SPDX-License-Identifier: Apache-2.0 */
/* Files that hold tensors, mapped: what every weight source is made of, whatever the headers of its
 * files look like. */
#ifndef AG_FORMATS_WEIGHT_FILES_H
#define AG_FORMATS_WEIGHT_FILES_H

#include "formats/tensor_list.h"

typedef struct ag_weight_files ag_weight_files;

typedef struct ag_weight_file {
    char *path; /* owned */
    int fd;
    uint64_t bytes;
    ag_buffer *map;      /* all of the file */
    ag_tensor_list list; /* owned; for the format to fill in, all but `file` */
} ag_weight_file;

/* A set without files, for ag_weight_files_add and then ag_weight_files_sort. *out is NULL after a
 * failure. */
ag_status ag_weight_files_create(ag_weight_files **out, ag_error *err);
/* Opens and maps one more file. path is transferred, also on failure; NULL is AG_NOMEM. *out lives
 * until the next file is added. */
ag_status ag_weight_files_add(ag_weight_files *w, char *path, ag_weight_file **out, ag_error *err);
/* Once all lists are there: until now there is no tensor. AG_FORMAT if two have one name. */
ag_status ag_weight_files_sort(ag_weight_files *w, ag_error *err);
void ag_weight_files_destroy(ag_weight_files *w);

/* All tensors, sorted by name (strcmp). Pointers to them are borrowed from w. */
size_t ag_weight_files_count(const ag_weight_files *w);
const ag_source_tensor *ag_weight_files_at(const ag_weight_files *w, size_t i);
const ag_source_tensor *ag_weight_files_find(const ag_weight_files *w, const char *name);

/* The files behind it: how many, their paths and sizes. */
size_t ag_weight_files_n_files(const ag_weight_files *w);
const char *ag_weight_files_path(const ag_weight_files *w, size_t file);
uint64_t ag_weight_files_bytes(const ag_weight_files *w, size_t file);

/* The tensor in a read-only mapping of its file, which *out borrows. Its data need not be aligned
 * to its element size: the format does not promise it. Pages come in when touched. */
ag_status ag_weight_files_tensor(const ag_weight_files *w, const ag_source_tensor *t,
                                 ag_tensor *out, ag_error *err);

/* Takes bytes [first, first + n) of the tensor out of this process's memory once they have been
 * used; they stay readable and come back from the file. Whole pages, borders included. A range past
 * the end is cut. When all of a tensor is dropped, so is what the system mapped around it: reading
 * one byte may bring in a neighbour's pages, up to 2 MiB of them. */
void ag_weight_files_drop(const ag_weight_files *w, const ag_source_tensor *t, uint64_t first,
                          uint64_t n);

/* Copies bytes [first, first + n) of the tensor by pread, without touching the mapping. AG_INVALID
 * if the range passes the tensor's end; AG_IO if the file cannot give them. */
ag_status ag_weight_files_read(const ag_weight_files *w, const ag_source_tensor *t, uint64_t first,
                               void *dst, size_t n, ag_error *err);

#endif
