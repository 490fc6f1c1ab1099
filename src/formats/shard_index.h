/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json: which shard holds which tensor. */
#ifndef AG_FORMATS_SHARD_INDEX_H
#define AG_FORMATS_SHARD_INDEX_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdint.h>

typedef struct ag_shard_entry {
    const char *tensor;
    uint32_t shard;
} ag_shard_entry;

/* All names are borrowed from root. Zero-initialise; release with ag_shard_index_free. */
typedef struct ag_shard_index {
    json_t *root;
    const char **shards; /* distinct file names, in the order they first appear */
    size_t n_shards;
    ag_shard_entry *entries;
    size_t n_entries;
} ag_shard_index;

/* AG_FORMAT unless the file has a weight_map of strings whose values are plain file names: a name
 * with '/' or ".." could leave the model's directory and is refused. */
ag_status ag_shard_index_load(const char *path, ag_shard_index *out, ag_error *err);
void ag_shard_index_free(ag_shard_index *x);

#endif
