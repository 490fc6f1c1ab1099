/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix cache: the prefix store with its limits, and the files that evicted entries are written
 * to. */
#ifndef AG_SERVING_PREFIX_CACHE_H
#define AG_SERVING_PREFIX_CACHE_H

#include "cache/sys_monitor.h"
#include "serving/prefix_files.h"
#include "serving/request_queue.h"

typedef struct ag_prefix_cache {
    ag_prefix_store store;
    ag_prefix_files files;
    const ag_serving_params *params; /* borrowed, as all below but for the monitor */
    ag_backend *backend;
    ag_request_queue *queue;
    const ag_served_models *models;
    ag_engine_lock *lock;
    ag_sys_monitor *monitor; /* owned; NULL: prefix_bytes or the memory limit bounds the store */
} ag_prefix_cache;

/* Caches a session of the request. Takes ownership of session and *ids. Without ids it only
 * destroys the session. */
void ag_prefix_cache_add(ag_prefix_cache *c, const ag_served_request *r, ag_session *session,
                         ag_ids *ids);
/* Drops the resident entry that is cheapest to lose, or queues it for writing. Returns false if
 * there is none. */
bool ag_prefix_cache_evict_one(ag_prefix_cache *c);
/* Drops the model's entries, or queues them for writing. Returns whether none is left. */
bool ag_prefix_cache_evict_model(ag_prefix_cache *c, const ag_served_model *m);
/* Returns the bytes of all entries. */
uint64_t ag_prefix_cache_bytes(const ag_prefix_cache *c);

#endif
