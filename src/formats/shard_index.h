/* SPDX-License-Identifier: Apache-2.0 */
/* Index of a sharded model: model.safetensors.index.json maps tensors to shards. */
#ifndef AG_FORMATS_SHARD_INDEX_H
#define AG_FORMATS_SHARD_INDEX_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdint.h>

typedef struct ag_shard_entry {
    const char *tensor;
    uint32_t shard;
} ag_shard_entry;

/* All names are borrowed from root. Zero-initialise; release with ag_shard_index_free(). */
typedef struct ag_shard_index {
    json_t *root;
    const char **shards; /* distinct file names, in the order of their first use */
    size_t n_shards;
    ag_shard_entry *entries;
    size_t n_entries;
} ag_shard_index;

/* Reads an index. Fails with AG_FORMAT unless the file has a weight_map whose values are plain file
 * names: '/' and ".." could leave the model's directory. */
ag_status ag_shard_index_load(const char *path, ag_shard_index *out, ag_error *err);
void ag_shard_index_free(ag_shard_index *x);

#endif
