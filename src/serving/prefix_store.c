/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/prefix_store.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "session/session_impl.h"

#include <antigravity/kv_cache.h>
#include <string.h>

/* ---- compatibility ---- */

bool ag_same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static bool same_spill(const ag_spill_params *a, const ag_spill_params *b) {
    if (a == b || !a || !b) return a == b;
    return ag_same_text(a->path, b->path) && a->max_bytes == b->max_bytes && a->block == b->block &&
           a->exact == b->exact;
}

static bool same_eviction(const ag_eviction_params *a, const ag_eviction_params *b) {
    return a->policy == b->policy && a->policy_params == b->policy_params &&
           a->budget_tokens == b->budget_tokens && a->budget_bytes == b->budget_bytes &&
           a->budget_ratio == b->budget_ratio && a->protected_prefix == b->protected_prefix &&
           a->recent == b->recent && a->slack == b->slack && a->window == b->window &&
           a->prefill == b->prefill && a->snapkv_window == b->snapkv_window &&
           a->snapkv_kernel == b->snapkv_kernel && a->snapkv_pool == b->snapkv_pool &&
           a->head_budget == b->head_budget && a->head_shares == b->head_shares &&
           a->n_head_shares == b->n_head_shares &&
           a->memory.threshold_bytes == b->memory.threshold_bytes &&
           a->memory.target_ratio == b->memory.target_ratio &&
           a->memory.soft_waits == b->memory.soft_waits && a->on_eviction == b->on_eviction &&
           a->on_eviction_user == b->on_eviction_user && same_spill(a->spill, b->spill);
}

/* Eviction parameters matter only if a policy is set. */
bool ag_prefix_same_params(const ag_session_params *a, const ag_session_params *b) {
    const ag_eviction_params *x = &a->eviction, *y = &b->eviction;
    const bool managed =
        x->policy || y->policy || x->memory.threshold_bytes || y->memory.threshold_bytes;
    return a->max_seq_len == b->max_seq_len && a->prefill_chunk == b->prefill_chunk &&
           a->k_type == b->k_type && a->v_type == b->v_type && a->k_rotation == b->k_rotation &&
           (!managed || same_eviction(x, y));
}

bool ag_prefix_accumulates_scores(const ag_session_params *p) {
    const ag_eviction_policy *policy = p->eviction.policy;
    return policy && (policy->importance == AG_IMPORTANCE_WINDOW ||
                      policy->importance == AG_IMPORTANCE_TOTAL);
}

/* ---- removal ---- */

static void unlink_entry(ag_prefix_store *store, ag_prefix_entry *k) {
    ag_prefix_entry **at = &store->entries;
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    store->n_entries--;
}

void ag_prefix_store_set_state(ag_prefix_store *store, ag_prefix_entry *k, ag_prefix_state state) {
    store->n_writing += (state != AG_PREFIX_RESIDENT);
    store->n_writing -= (k->state != AG_PREFIX_RESIDENT);
    k->state = state;
}

void ag_prefix_store_drop(ag_prefix_store *store, ag_prefix_entry *k) {
    ag_prefix_store_set_state(store, k, AG_PREFIX_RESIDENT);
    unlink_entry(store, k);
    ag_session_destroy(k->session);
    ag_ids_free(&k->ids);
    ag_free(k->scope);
    ag_free(k);
}

/* Returns seconds since the last use per token to read again. The entry with the highest score is
 * cheapest to lose. */
static double eviction_score(const ag_prefix_entry *k, double now) {
    return (now - k->used_at + 1e-3) / ((double)k->ids.n + 64);
}

bool ag_prefix_store_has(const ag_prefix_store *store, const ag_served_model *m) {
    const ag_prefix_entry *k = store->entries;
    while (k && k->model != m) k = k->next;
    return k != NULL;
}

void ag_prefix_store_drop_all(ag_prefix_store *store) {
    while (store->entries) ag_prefix_store_drop(store, store->entries);
}

ag_prefix_entry *ag_prefix_store_victim(const ag_prefix_store *store, ag_prefix_state state) {
    const double now = ag_now_s();
    ag_prefix_entry *victim = NULL;
    for (ag_prefix_entry *k = store->entries; k; k = k->next) {
        if (!k->pinned && k->state == state &&
            (!victim || eviction_score(k, now) > eviction_score(victim, now)))
            victim = k;
    }
    return victim;
}

uint64_t ag_prefix_store_writing_bytes(const ag_prefix_store *store) {
    uint64_t bytes = 0;
    for (const ag_prefix_entry *k = store->entries; k && store->n_writing; k = k->next) {
        if (k->state == AG_PREFIX_RESIDENT) continue;
        const ag_kv_cache *cache = ag_session_kv_cache(k->session);
        bytes += ag_kv_cache_memory_usage_bytes(cache) - ag_kv_cache_shared_bytes(cache);
    }
    return bytes;
}

/* ---- use ---- */

/* Returns whether the session itself may be handed over: all its tokens are used, and it can go
 * back to any of them, so no other request loses by it. After an eviction only its end is useful.
 */
static bool may_move(const ag_prefix *from) {
    return from->entry && from->is_full_match && from->entry->state != AG_PREFIX_WRITING &&
           (from->has_evicted || ag_session_oldest_reachable(from->session) == 0);
}

/* A fork shares full blocks and copies the last one. */
uint64_t ag_prefix_shared_bytes(const ag_prefix *from) {
    enum { BLOCK = 128 };
    if (!from->session) return 0;
    const uint64_t bytes = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(from->session));
    const uint64_t n_blocks = ((uint64_t)ag_session_position(from->session) + BLOCK - 1) / BLOCK;
    return may_move(from) || !n_blocks ? bytes : bytes * (from->n / BLOCK) / n_blocks;
}

ag_status ag_prefix_acquire(ag_prefix_store *store, ag_prefix *from, ag_session **out,
                            ag_error *err) {
    *out = NULL;
    if (may_move(from)) {
        *out = from->session;
        from->entry->session = NULL;
        ag_prefix_store_drop(store, from->entry);
        return AG_OK;
    }
    if (from->entry) from->entry->used_at = ag_now_s();
    AG_TRY(ag_session_fork(from->session, out, err));
    ag_status st = ag_session_truncate(*out, (uint32_t)from->n, err);
    if (st == AG_OK) {
        const ag_kv_cache *cache = ag_session_kv_cache(from->session);
        if (from->entry) from->entry->resident.shared_bytes = ag_kv_cache_shared_bytes(cache);
        return AG_OK;
    }
    ag_session_destroy(*out);
    *out = NULL;
    return st;
}

/* ---- adding ---- */

static uint32_t max_head_slots(const ag_kv_cache *c) {
    uint32_t max = 0;
    for (uint32_t l = 0; ag_kv_cache_layer(c, l); l++) {
        for (uint32_t h = 0; h < ag_kv_cache_layer(c, l)->n_kv_heads; h++) {
            const uint32_t n = ag_kv_cache_n_slots(c, l, h);
            if (n > max) max = n;
        }
    }
    return max;
}

ag_resident_session ag_resident_session_of(ag_session *session, uint64_t id,
                                           const ag_served_model *m,
                                           const ag_session_params *params) {
    const ag_kv_cache *cache = ag_session_kv_cache(session);
    const ag_eviction_policy *policy = params->eviction.policy;
    return (ag_resident_session){
        .id = id,
        .model = m->name,
        .n_tokens = ag_session_position(session),
        .n_slots = max_head_slots(cache),
        .kv_bytes = ag_kv_cache_memory_usage_bytes(cache),
        .shared_bytes = ag_kv_cache_shared_bytes(cache),
        .policy = policy ? policy->name : "none",
        .n_evicted = ag_session_evictions(session)->n_tokens,
    };
}

static bool is_comparable(const ag_prefix_entry *a, const ag_prefix_entry *b) {
    return a->model == b->model && ag_same_text(a->scope, b->scope) &&
           ag_prefix_same_params(&a->params, &b->params) && !a->has_evicted && !b->has_evicted;
}

/* Returns whether every prefix of `a` can be had from `b`. */
static bool is_covered_by(const ag_prefix_entry *a, const ag_prefix_entry *b) {
    return is_comparable(a, b) && a->ids.n <= b->ids.n &&
           (a->ids.n == b->ids.n || (a->ids.n >= ag_session_oldest_reachable(b->session) &&
                                     !ag_prefix_accumulates_scores(&a->params))) &&
           a->ids.data[a->ids.n - 1] ==
               b->ids.data[a->ids.n - 1] && /* cheap, and usually different */
           !memcmp(a->ids.data, b->ids.data, a->ids.n * sizeof *a->ids.data);
}

static void drop_covered(ag_prefix_store *store, const ag_prefix_entry *new) {
    for (ag_prefix_entry *k = store->entries, *next; k; k = next) {
        next = k->next;
        if (k != new && !k->pinned && k->state != AG_PREFIX_WRITING &&is_covered_by(k, new))
            ag_prefix_store_drop(store, k);
    }
}

bool ag_prefix_store_add(ag_prefix_store *store, const ag_prefix_entry *like, ag_session *session,
                         ag_ids *ids) {
    ag_prefix_entry *k = ag_calloc(1, sizeof *k);
    char *scope = like->scope ? ag_strdup(like->scope) : NULL;
    /* A pending eviction would remove slots of tokens in `ids`. */
    if (!k || (like->scope && !scope) || !ids->n || ag_session_settle(session, NULL) != AG_OK) {
        ag_session_destroy(session);
        ag_ids_free(ids);
        ag_free(scope);
        ag_free(k);
        return false;
    }
    *k = (ag_prefix_entry){.next = store->entries,
                           .id = like->id,
                           .model = like->model,
                           .scope = scope,
                           .session = session,
                           .params = like->params,
                           .ids = *ids,
                           .has_evicted =
                               like->has_evicted || ag_session_evictions(session)->n_evictions,
                           .used_at = ag_now_s()};
    k->resident = ag_resident_session_of(session, k->id, k->model, &k->params);
    store->entries = k;
    store->n_entries++;
    *ids = (ag_ids){0};
    for (const ag_prefix_entry *o = k->next; o; o = o->next) {
        if (o->state != AG_PREFIX_RESIDENT || !is_covered_by(k, o)) continue;
        ag_prefix_store_drop(store, k);
        return false;
    }
    drop_covered(store, k);
    return true;
}
