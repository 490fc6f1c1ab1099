/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file: 8 bytes of length (little-endian), that many bytes of JSON,
 * then the data of all tensors without a hole. Checked as the reference library checks it, so that
 * what either accepts the other does too; repeated keys are refused here in addition. Source:
 * github.com/huggingface/safetensors, README "Format". */
#ifndef AG_FORMATS_SAFETENSORS_H
#define AG_FORMATS_SAFETENSORS_H

#include "formats/weight_source.h"

enum { AG_ST_PREFIX = 8, AG_ST_MAX_HEADER = 100000000 };

/* Bytes of JSON that follow the prefix, from the first AG_ST_PREFIX bytes of a file (fewer if it is
 * shorter). AG_FORMAT if that cannot be: `path` begins the message. */
ag_status ag_st_header_bytes(const void *prefix, uint64_t file_bytes, const char *path,
                             size_t *n_json, ag_error *err);

/* json[0..n_json) is the header of a file of file_bytes bytes. On success every tensor lies inside
 * the file, has as many bytes as its shape and dtype say, none overlap, and they
 * come in the order of their data. AG_FORMAT otherwise. */
ag_status ag_st_parse(const char *json, size_t n_json, uint64_t file_bytes, const char *path,
                      ag_tensor_list *out, ag_error *err);

/* The directory has files that ag_st_open would read. */
bool ag_st_is_in(const char *dir);

/* path: a directory with model.safetensors or, without that, model.safetensors.index.json and its
 * shards; or one such file (a name ending in .json is an index). AG_NOT_FOUND without any;
 * AG_FORMAT, with file and place, if a header is malformed, a tensor occurs in two shards, or the
 * index names a shard that does not exist or a tensor that its shard lacks. A shard's tensors that
 * the index leaves out are listed all the same. *out is NULL after a failure. */
ag_status ag_st_open(const char *path, ag_weight_files **out, ag_error *err);

#endif
