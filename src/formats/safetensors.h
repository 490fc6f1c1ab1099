/* SPDX-License-Identifier: Apache-2.0 */
/* Header of a safetensors file: 8 bytes of length (little-endian), a JSON text of that length, then
 * the data of all tensors without gaps. The checks are those of the reference library, plus one:
 * repeated keys are an error. Source: github.com/huggingface/safetensors, README "Format". */
#ifndef AG_FORMATS_SAFETENSORS_H
#define AG_FORMATS_SAFETENSORS_H

#include "formats/weight_source.h"

enum { AG_ST_PREFIX = 8, AG_ST_MAX_HEADER = 100000000 };

/* Sets *n_json to the length of the JSON text, from the first AG_ST_PREFIX bytes of a file (fewer
 * if the file is shorter). Fails with AG_FORMAT if it is impossible. `path` starts the message. */
ag_status ag_st_header_bytes(const void *prefix, uint64_t file_bytes, const char *path,
                             size_t *n_json, ag_error *err);

/* Parses the JSON text of a file of file_bytes bytes. On success every tensor is inside the file
 * and has the bytes of its shape and dtype, none overlap, and the list is in the order of the data.
 * Fails with AG_FORMAT otherwise. */
ag_status ag_st_parse(const char *json, size_t n_json, uint64_t file_bytes, const char *path,
                      ag_tensor_list *out, ag_error *err);

/* Returns whether the directory has files that ag_st_open() would read. */
bool ag_st_is_in(const char *dir);

/* Opens a model. path: a directory with model.safetensors or, without that,
 * model.safetensors.index.json and its shards; or one such file (an index if its name ends in
 * .json). Fails with AG_NOT_FOUND without any of them; with AG_FORMAT, with file and position, if a
 * header is malformed, a tensor occurs in two shards, or the index names a missing shard or a
 * tensor that its shard lacks. Tensors that the index leaves out are listed too. *out is NULL after
 * a failure. */
ag_status ag_st_open(const char *path, ag_weight_files **out, ag_error *err);

#endif
