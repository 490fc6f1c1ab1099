/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions that no request uses, kept for those that begin with the same tokens. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"
#include "session/session_impl.h"

#include <antigravity/kv_cache.h>
#include <string.h>

/* ---- what goes together ---- */

static bool same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static bool same_spill(const ag_spill_params *a, const ag_spill_params *b) {
    if (a == b || !a || !b) return a == b;
    return same_text(a->path, b->path) && a->max_bytes == b->max_bytes && a->block == b->block &&
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

/* What a policy that lets nothing leave is told does not matter. */
static bool same_params(const ag_session_params *a, const ag_session_params *b) {
    const ag_eviction_params *x = &a->eviction, *y = &b->eviction;
    const bool managed =
        x->policy || y->policy || x->memory.threshold_bytes || y->memory.threshold_bytes;
    return a->max_seq_len == b->max_seq_len && a->prefill_chunk == b->prefill_chunk &&
           a->k_type == b->k_type && a->v_type == b->v_type && a->k_rotation == b->k_rotation &&
           (!managed || same_eviction(x, y));
}

static bool is_managed(const ag_session_params *p) {
    return p->eviction.policy || p->eviction.memory.threshold_bytes;
}

/* Sums of attention weights do not forget what tokens that were taken back gave to others. */
static bool accumulates_scores(const ag_session_params *p) {
    const ag_eviction_policy *policy = p->eviction.policy;
    return policy && (policy->importance == AG_IMPORTANCE_WINDOW ||
                      policy->importance == AG_IMPORTANCE_TOTAL);
}

/* ---- finding ---- */

static size_t common_length(const int32_t *a, size_t n, const int32_t *b, size_t m) {
    size_t i = 0;
    while (i < n && i < m && a[i] == b[i]) i++;
    return i;
}

/* Of `n` tokens in common with a session that has consumed `end`, how many can be used. The last
 * token of a prompt is read in any case: what follows it is asked for. */
static size_t usable_length(const ag_session *session, const ag_served_request *r,
                            const ag_session_params *params, size_t n, size_t end,
                            bool has_evicted) {
    if (n >= r->p.n_prompt) n = r->p.n_prompt - 1;
    if (n == end) return n;
    if (has_evicted || ag_session_evictions(session)->n_evictions || accumulates_scores(params))
        return 0;
    return n >= ag_session_oldest_reachable(session) ? n : 0;
}

static bool may_share(const ag_serving *s, const ag_served_request *o, const ag_served_request *r,
                      const ag_session_params *params) {
    const ag_session_params other = ag_request_session_params(s, o);
    return o->p.model == r->p.model && !o->p.no_prefix && same_text(o->p.scope, r->p.scope) &&
           !is_managed(params) && same_params(&other, params);
}

/* Whole chunks of one that reads from the beginning: what follows is cut as it is alone, and gets
 * the same bits. */
static size_t full_chunks(const ag_serving *s, const ag_served_request *o, size_t n) {
    return o->n_cached % s->chunk || n < s->chunk ? n : n - n % s->chunk;
}

/* A fork of few tokens saves nothing where more follow: they go through the model with these, whose
 * chunks are cut as they are alone then. */
static bool is_worth_a_fork(const ag_served_request *r, size_t n) {
    enum { MIN_FORK_TOKENS = 32 };
    return n >= MIN_FORK_TOKENS || n + 1 == r->p.n_prompt;
}

static void match_running(ag_serving *s, const ag_served_request *r,
                          const ag_session_params *params, ag_prefix *best) {
    for (const ag_served_request *o = s->running; o; o = o->next) {
        if (!may_share(s, o, r, params)) continue;
        ag_session *session = o->session;
        for (size_t i = 0; !session && i < o->p.n_answers; i++) session = o->answers[i].session;
        if (!session) continue;
        const size_t end = ag_session_position(session);
        const size_t read = end < o->p.n_prompt ? end : o->p.n_prompt;
        size_t n = common_length(r->p.prompt, r->p.n_prompt, o->p.prompt, read);
        n = usable_length(session, r, params, full_chunks(s, o, n), end, false);
        if (n > best->n && is_worth_a_fork(r, n)) *best = (ag_prefix){.session = session, .n = n};
    }
}

static void match_entries(ag_serving *s, const ag_served_request *r,
                          const ag_session_params *params, ag_prefix *best) {
    for (ag_prefix_entry *k = s->prefixes; k; k = k->next) {
        if (k->model != r->p.model || !same_text(k->scope, r->p.scope) ||
            !same_params(&k->params, params))
            continue;
        size_t n = common_length(r->p.prompt, r->p.n_prompt, k->ids.data, k->ids.n);
        n = usable_length(k->session, r, params, n, k->ids.n, k->has_evicted);
        if (n <= best->n || (n != k->ids.n && !is_worth_a_fork(r, n))) continue;
        *best = (ag_prefix){.entry = k,
                            .session = k->session,
                            .n = n,
                            .is_full_match = n == k->ids.n,
                            .has_evicted =
                                k->has_evicted || ag_session_evictions(k->session)->n_evictions};
    }
}

/* So many tokens more than there are that waiting for who reads them costs less than reading them
 * twice. */
enum { MIN_TOKENS_TO_WAIT_FOR = 256 };

/* Whether another request is about to read what this one begins with, too. Not where a session can
 * only go back a little: it would have to be forked at that very token. */
static bool is_being_read(const ag_serving *s, const ag_served_request *r,
                          const ag_session_params *params, size_t n_found) {
    if (ag_model_needs_prompt_copies(&r->p.model->info)) return false;
    for (const ag_served_request *o = s->running; o; o = o->next) {
        if (!o->session || o->status != AG_OK || !may_share(s, o, r, params)) continue;
        size_t n = common_length(r->p.prompt, r->p.n_prompt - 1, o->p.prompt, o->p.n_prompt);
        n = full_chunks(s, o, n);
        if (n > ag_session_position(o->session) && n >= n_found + MIN_TOKENS_TO_WAIT_FOR)
            return true;
    }
    return false;
}

ag_status ag_prefix_find(ag_serving *s, ag_served_request *r, ag_prefix *out, ag_error *err) {
    const ag_session_params params = ag_request_session_params(s, r);
    *out = (ag_prefix){0};
    if (r->p.no_prefix) return AG_OK;
    match_entries(s, r, &params, out);
    match_running(s, r, &params, out);
    const size_t n_found = out->n;
    if (out->entry) out->entry->pinned = true; /* memory for a file's session is not its */
    const ag_status st = ag_prefix_files_fetch(s, r, n_found, err);
    if (out->entry) out->entry->pinned = false;
    if (st != AG_OK) return st;
    if (r->may_wait_for_prefix && is_being_read(s, r, &params, n_found))
        return AG_FAIL(err, BUSY, "another request is reading the same beginning");
    /* What was found stays, until the request has its memory, and then goes with it. */
    if (out->entry && out->entry->state == AG_PREFIX_QUEUED)
        ag_prefix_set_state(s, out->entry, AG_PREFIX_RESIDENT);
    return AG_OK;
}

/* ---- leaving ---- */

static void unlink_entry(ag_serving *s, ag_prefix_entry *k) {
    ag_prefix_entry **at = &s->prefixes;
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    s->now.n_prefix_entries--;
}

void ag_prefix_set_state(ag_serving *s, ag_prefix_entry *k, ag_prefix_state state) {
    s->n_writing += (state != AG_PREFIX_RESIDENT);
    s->n_writing -= (k->state != AG_PREFIX_RESIDENT);
    k->state = state;
}

void ag_prefix_drop(ag_serving *s, ag_prefix_entry *k) {
    ag_prefix_set_state(s, k, AG_PREFIX_RESIDENT);
    unlink_entry(s, k);
    ag_session_destroy(k->session);
    ag_ids_free(&k->ids);
    ag_free(k->scope);
    ag_free(k);
}

/* How little is lost with it: idle for long, soon read again. */
static double eviction_score(const ag_prefix_entry *k, double now) {
    return (now - k->used_at + 1e-3) / ((double)k->ids.n + 64);
}

bool ag_prefix_evict_one(ag_serving *s) {
    const double now = ag_now_s();
    ag_prefix_entry *victim = NULL;
    for (ag_prefix_entry *k = s->prefixes; k; k = k->next) {
        if (!k->pinned && k->state == AG_PREFIX_RESIDENT &&
            (!victim || eviction_score(k, now) > eviction_score(victim, now)))
            victim = k;
    }
    if (!victim) return false;
    if (!ag_prefix_files_should_write(s, victim)) {
        ag_prefix_drop(s, victim);
        return true;
    }
    ag_prefix_set_state(s, victim, AG_PREFIX_QUEUED);
    ag_engine_lock_notify(s);
    return true;
}

bool ag_prefix_has(const ag_serving *s, const ag_served_model *m) {
    const ag_prefix_entry *k = s->prefixes;
    while (k && k->model != m) k = k->next;
    return k != NULL;
}

void ag_prefix_drop_all(ag_serving *s, const ag_served_model *of) {
    for (ag_prefix_entry *k = s->prefixes, *next; k; k = next) {
        next = k->next;
        if (!of || k->model == of) ag_prefix_drop(s, k);
    }
}

/* ---- taking ---- */

/* All that it has consumed is wanted, and it can go back to any of it later: nobody else misses
 * it. A session that a policy has let tokens leave has one conversation to go on with. */
static bool may_move(const ag_prefix *from) {
    return from->entry && from->is_full_match && from->entry->state != AG_PREFIX_WRITING &&
           (from->has_evicted || ag_session_oldest_reachable(from->session) == 0);
}

/* A fork shares whole blocks, and goes on in copies of those that it has a part of. */
uint64_t ag_prefix_shared_bytes(const ag_prefix *from) {
    enum { BLOCK = 128 };
    if (!from->session) return 0;
    const uint64_t bytes = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(from->session));
    const uint64_t n_blocks = ((uint64_t)ag_session_position(from->session) + BLOCK - 1) / BLOCK;
    return may_move(from) || !n_blocks ? bytes : bytes * (from->n / BLOCK) / n_blocks;
}

ag_status ag_prefix_acquire(ag_serving *s, ag_prefix *from, ag_session **out, ag_error *err) {
    *out = NULL;
    if (may_move(from)) {
        *out = from->session;
        from->entry->session = NULL;
        ag_prefix_drop(s, from->entry);
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

/* ---- parking ---- */

static bool is_comparable(const ag_prefix_entry *a, const ag_prefix_entry *b) {
    return a->model == b->model && same_text(a->scope, b->scope) &&
           same_params(&a->params, &b->params) && !a->has_evicted && !b->has_evicted;
}

/* Whether what `a` holds is had from `b`, too. */
static bool is_covered_by(const ag_prefix_entry *a, const ag_prefix_entry *b) {
    return is_comparable(a, b) && a->ids.n <= b->ids.n &&
           (a->ids.n == b->ids.n || (a->ids.n >= ag_session_oldest_reachable(b->session) &&
                                     !accumulates_scores(&a->params))) &&
           a->ids.data[a->ids.n - 1] == b->ids.data[a->ids.n - 1] && /* mostly not, and cheap */
           !memcmp(a->ids.data, b->ids.data, a->ids.n * sizeof *a->ids.data);
}

static void drop_covered(ag_serving *s, const ag_prefix_entry *new) {
    for (ag_prefix_entry *k = s->prefixes, *next; k; k = next) {
        next = k->next;
        if (k != new && !k->pinned && k->state != AG_PREFIX_WRITING &&is_covered_by(k, new))
            ag_prefix_drop(s, k);
    }
}

/* Where nobody has said how much: a quarter of what there would be without any of it. */
static uint64_t max_prefix_bytes(const ag_serving *s) {
    const ag_memory *mem = ag_backend_memory(s->backend);
    ag_memory_signals now;
    uint64_t free = UINT64_MAX;
    if (!s->monitor) return s->params.prefix_bytes;
    ag_sys_monitor_read(s->monitor, (uint64_t)(1e3 * ag_now_s()), &now);
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
    return free / 4 + ag_prefix_bytes(s) / 4;
}

/* What waits for its file is held meanwhile. Where more comes than the disk takes, what is worth
 * least goes without one. */
static void limit_queued(ag_serving *s, uint64_t max) {
    const uint64_t min = 16 << 20, bound = max / 4 > min ? max / 4 : min;
    const double now = ag_now_s();
    while (s->n_writing > 1 && ag_prefix_writing_bytes(s) > bound) {
        ag_prefix_entry *victim = NULL;
        for (ag_prefix_entry *k = s->prefixes; k; k = k->next) {
            if (!k->pinned && k->state == AG_PREFIX_QUEUED &&
                (!victim || eviction_score(k, now) > eviction_score(victim, now)))
                victim = k;
        }
        if (!victim) return;
        ag_prefix_drop(s, victim);
    }
}

static void enforce_limits(ag_serving *s) {
    if (s->is_fetching) return;
    const uint64_t max = max_prefix_bytes(s);
    limit_queued(s, max);
    while (s->prefixes && ag_prefix_bytes(s) > max + ag_prefix_writing_bytes(s) &&
           ag_prefix_evict_one(s)) {}
    while (s->now.n_prefix_entries - s->n_writing > 4096 && ag_prefix_evict_one(s)) {}
}

/* That of the request; new ones of its further answers, of a copy that it leaves where its prompt
 * ends, and of what it goes on from. */
static uint64_t entry_id(ag_serving *s, const ag_served_request *r) {
    const ag_prefix_entry *k = s->prefixes;
    const bool is_copy = r->session || s->is_fetching;
    while (k && k->id != r->id) k = k->next;
    if (!k && !is_copy) return r->id;
    ag_mutex_lock(&s->lock);
    const uint64_t id = ++s->last_id;
    ag_mutex_unlock(&s->lock);
    return id;
}

void ag_prefix_store_session(ag_serving *s, const ag_served_request *r, ag_session *session,
                             ag_ids *ids) {
    ag_prefix_entry *k = ag_calloc(1, sizeof *k);
    char *scope = r->p.scope ? ag_strdup(r->p.scope) : NULL;
    /* An eviction that is pending would make less of it than its tokens say. */
    if (!k || (r->p.scope && !scope) || !ids->n || ag_session_settle(session, NULL) != AG_OK) {
        ag_session_destroy(session);
        ag_ids_free(ids);
        ag_free(scope);
        ag_free(k);
        return;
    }
    *k = (ag_prefix_entry){.next = s->prefixes,
                           .id = entry_id(s, r),
                           .model = r->p.model,
                           .scope = scope,
                           .session = session,
                           .params = ag_request_session_params(s, r),
                           .ids = *ids,
                           .has_evicted =
                               r->has_evicted || ag_session_evictions(session)->n_evictions,
                           .used_at = ag_now_s()};
    k->resident = ag_resident_session_of(session, k->id, k->model, &k->params);
    s->prefixes = k;
    s->now.n_prefix_entries++;
    *ids = (ag_ids){0};
    for (const ag_prefix_entry *o = s->prefixes->next; o; o = o->next) {
        if (o->state != AG_PREFIX_RESIDENT || !is_covered_by(k, o)) continue;
        ag_prefix_drop(s, k);
        return;
    }
    drop_covered(s, k);
    enforce_limits(s);
}

/* ---- bytes ---- */

/* Of all answers to a request; what they share counts once. */
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

uint64_t ag_prefix_writing_bytes(const ag_serving *s) {
    uint64_t bytes = 0;
    for (const ag_prefix_entry *k = s->prefixes; k && s->n_writing; k = k->next) {
        if (k->state == AG_PREFIX_RESIDENT) continue;
        const ag_kv_cache *cache = ag_session_kv_cache(k->session);
        bytes += ag_kv_cache_memory_usage_bytes(cache) - ag_kv_cache_shared_bytes(cache);
    }
    return bytes;
}

uint64_t ag_prefix_bytes(const ag_serving *s) {
    uint64_t bytes = ag_memory_bytes_in_use(ag_backend_memory(s->backend)), others = 0;
    if (!s->prefixes) return 0;
    for (size_t i = 0; i < s->n_models; i++) others += s->models[i]->base_bytes;
    for (const ag_served_request *r = s->running; r; r = r->next) others += running_bytes(r);
    bytes = bytes > others ? bytes - others : 0;
    for (const ag_prefix_entry *k = s->prefixes; k; k = k->next)
        bytes += k->ids.cap * sizeof *k->ids.data + sizeof *k;
    return bytes;
}
