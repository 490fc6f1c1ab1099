/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/shard_index.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/json.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_INDEX_BYTES = 100000000, MAX_SHARDS = 10000 };

static bool is_plain_file_name(const json_t *v) {
    const char *name = json_string_value(v);
    return *name && strlen(name) == json_string_length(v) && !strchr(name, '/') &&
           !strstr(name, "..") && strcmp(name, ".") != 0;
}

/* Returns the index of the shard in x, added if it is new; MAX_SHARDS if the list is full. Files
 * list shard after shard, so the search starts with the newest. */
static size_t shard_number(ag_shard_index *x, const char *name) {
    for (size_t i = x->n_shards; i-- > 0;) {
        if (strcmp(x->shards[i], name) == 0) return i;
    }
    if (x->n_shards < MAX_SHARDS) x->shards[x->n_shards] = name;
    return x->n_shards < MAX_SHARDS ? x->n_shards++ : MAX_SHARDS;
}

static ag_status read_map(ag_shard_index *x, json_t *map, const char *path, ag_error *err) {
    const char *tensor;
    json_t *v;
    json_object_foreach(map, tensor, v) {
        if (!json_is_string(v)) {
            return AG_FAIL(err, FORMAT, "%s: weight_map: the shard of \"%.120s\" is not a string",
                           path, tensor);
        }
        if (!is_plain_file_name(v)) {
            return AG_FAIL(err, FORMAT,
                           "%s: weight_map: \"%.120s\" has the file \"%.120s\", which is not a "
                           "plain file name",
                           path, tensor, json_string_value(v));
        }
        size_t shard = shard_number(x, json_string_value(v));
        if (shard == MAX_SHARDS) {
            return AG_FAIL(err, LIMIT, "%s: weight_map: more than %d shards", path, MAX_SHARDS);
        }
        x->entries[x->n_entries++] = (ag_shard_entry){tensor, (uint32_t)shard};
    }
    return AG_OK;
}

ag_status ag_shard_index_load(const char *path, ag_shard_index *out, ag_error *err) {
    ag_shard_index x = {0};
    *out = x;
    ag_status st = ag_json_load(path, MAX_INDEX_BYTES, &x.root, err);
    if (st != AG_OK) goto done;
    json_t *map = json_object_get(x.root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        st = AG_FAIL(err, FORMAT, "%s: has no weight_map of tensor names to files", path);
        goto done;
    }
    x.entries = ag_calloc(json_object_size(map), sizeof x.entries[0]);
    x.shards = ag_calloc(MAX_SHARDS, sizeof x.shards[0]);
    if (!x.entries || !x.shards) {
        st = AG_FAIL(err, NOMEM, "%s: weight_map", path);
        goto done;
    }
    st = read_map(&x, map, path, err);
    if (st != AG_OK) goto done;
    *out = x;
    x = (ag_shard_index){0};
done:
    ag_shard_index_free(&x);
    return st;
}

void ag_shard_index_free(ag_shard_index *x) {
    ag_free(x->entries);
    ag_free(x->shards);
    json_decref(x->root);
    *x = (ag_shard_index){0};
}
