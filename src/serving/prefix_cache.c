/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/prefix_cache.h"

#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "platform/clock.h"

#include <antigravity/kv_cache.h>

/* Returns the bytes of all sessions of a request. Shared blocks count once. */
static uint64_t running_bytes(const ag_served_request *r) {
    const uint64_t row = r->p.model->info.n_vocab * sizeof(float);
    uint64_t bytes = 0;
    if (r->session) bytes += ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(r->session)) + row;
    for (size_t i = 0, n = 0; r->answers && i < r->p.n_answers; i++) {
        ag_session *session = r->answers[i].session;
        if (!session) continue;
        const ag_kv_cache *cache = ag_session_kv_cache(session);
        bytes += ag_kv_cache_memory_usage_bytes(cache) + row;
        if (n++) bytes -= ag_kv_cache_shared_bytes(cache);
    }
    return bytes;
}

uint64_t ag_prefix_cache_bytes(const ag_prefix_cache *c) {
    uint64_t bytes = ag_memory_bytes_in_use(ag_backend_memory(c->backend)), others = 0;
    if (!c->store.entries) return 0;
    for (const ag_served_model *m = c->models->first; m; m = m->next) others += m->base_bytes;
    for (const ag_served_request *r = c->queue->running; r; r = r->next) others += running_bytes(r);
    bytes = bytes > others ? bytes - others : 0;
    for (const ag_prefix_entry *k = c->store.entries; k; k = k->next)
        bytes += k->ids.cap * sizeof *k->ids.data + sizeof *k;
    return bytes;
}

/* Drops a resident entry, or queues it for writing. */
static void evict(ag_prefix_cache *c, ag_prefix_entry *victim) {
    if (!ag_prefix_files_should_write(&c->files, victim)) {
        ag_prefix_store_drop(&c->store, victim);
        return;
    }
    ag_prefix_store_set_state(&c->store, victim, AG_PREFIX_QUEUED);
    ag_engine_lock_notify(c->lock);
}

bool ag_prefix_cache_evict_one(ag_prefix_cache *c) {
    ag_prefix_entry *victim = ag_prefix_store_victim(&c->store, AG_PREFIX_RESIDENT);
    if (victim) evict(c, victim);
    return victim != NULL;
}

bool ag_prefix_cache_evict_model(ag_prefix_cache *c, const ag_served_model *m) {
    for (ag_prefix_entry *k = c->store.entries, *next; k; k = next) {
        next = k->next;
        if (k->model == m && k->state == AG_PREFIX_RESIDENT && !k->pinned) evict(c, k);
    }
    return !ag_prefix_store_has(&c->store, m);
}

/* Returns the limit of the store: prefix_bytes or, without any limit, a quarter of the memory that
 * would be available without cached sessions. */
static uint64_t max_prefix_bytes(const ag_prefix_cache *c) {
    const ag_memory *mem = ag_backend_memory(c->backend);
    ag_memory_signals now;
    uint64_t free = UINT64_MAX;
    if (!c->monitor) return c->params->prefix_bytes;
    ag_sys_monitor_read(c->monitor, (uint64_t)(1e3 * ag_now_s()), &now);
    if (now.has_available) free = now.available;
    if (now.has_group) {
        const uint64_t group_free =
            now.group_limit > now.group_used ? now.group_limit - now.group_used : 0;
        if (group_free < free) free = group_free;
    }
    if (mem->ops->available) {
        ag_memory_available device;
        mem->ops->available(mem, &device);
        if (device.free && device.free < free) free = device.free;
    }
    if (free == UINT64_MAX) return UINT64_C(1) << 30;
    return free / 4 + ag_prefix_cache_bytes(c) / 4;
}

/* Limits the bytes of queued entries, which stay in memory until they are written. If the disk is
 * too slow, entries are dropped without a file. */
static void limit_queued(ag_prefix_cache *c, uint64_t max) {
    const uint64_t min = 16 << 20, bound = max / 4 > min ? max / 4 : min;
    while (c->store.n_writing > 1 && ag_prefix_store_writing_bytes(&c->store) > bound) {
        ag_prefix_entry *victim = ag_prefix_store_victim(&c->store, AG_PREFIX_QUEUED);
        if (!victim) return;
        ag_prefix_store_drop(&c->store, victim);
    }
}

static void enforce_limits(ag_prefix_cache *c) {
    const uint64_t max = max_prefix_bytes(c);
    limit_queued(c, max);
    while (c->store.entries &&
           ag_prefix_cache_bytes(c) > max + ag_prefix_store_writing_bytes(&c->store) &&
           ag_prefix_cache_evict_one(c)) {}
    while (c->store.n_entries - c->store.n_writing > 4096 && ag_prefix_cache_evict_one(c)) {}
}

/* Returns the request's id for its first entry, and a new id for every other: further answers, a
 * copy at the prompt's end, a prefix that the request continues. */
static uint64_t entry_id(ag_prefix_cache *c, const ag_served_request *r) {
    const ag_prefix_entry *k = c->store.entries;
    while (k && k->id != r->id) k = k->next;
    return k || r->session ? ag_request_queue_new_id(c->queue) : r->id;
}

void ag_prefix_cache_add(ag_prefix_cache *c, const ag_served_request *r, ag_session *session,
                         ag_ids *ids) {
    if (!ids->n) {
        ag_session_destroy(session);
        ag_ids_free(ids);
        return;
    }
    const ag_prefix_entry like = {.id = entry_id(c, r),
                                  .model = r->p.model,
                                  .scope = (char *)(uintptr_t)r->p.scope,
                                  .params = r->p.session,
                                  .has_evicted = r->has_evicted};
    if (ag_prefix_store_add(&c->store, &like, session, ids)) enforce_limits(c);
}
