/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors files of a model directory as named tensors over mapped files: what
 * hf_directory.c makes a weight source of, whose header tells what holds of them. */
#ifndef AG_FORMATS_WEIGHT_FILES_H
#define AG_FORMATS_WEIGHT_FILES_H

#include "formats/safetensors.h"

typedef struct ag_weight_files ag_weight_files;

/* path: a directory with model.safetensors or, without that, model.safetensors.index.json and its
 * shards; or one such file (a name ending in .json is an index). AG_NOT_FOUND without any;
 * AG_FORMAT, with file and place, if a header is malformed, a tensor occurs in two shards, or the
 * index names a shard that does not exist or a tensor that its shard lacks. A shard's tensors that
 * the index leaves out are listed all the same. *out is NULL after a failure. */
ag_status ag_weight_files_open(const char *path, ag_weight_files **out, ag_error *err);
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
