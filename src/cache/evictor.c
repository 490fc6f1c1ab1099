/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/evictor.h"

#include "cache/eviction/allocate.h"
#include "cache/eviction/budget.h"
#include "cache/eviction/policies.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"

#include <string.h>

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

ag_status ag_evictor_init(ag_evictor *e, ag_kv_cache *cache, const ag_eviction_params *p,
                          const ag_rope_table *rope, uint32_t trained, uint32_t slack,
                          ag_error *err) {
    const uint32_t n_layers = ag_kv_cache_params(cache)->n_layers;
    e->params = *p;
    e->cache = cache;
    e->trained = trained;
    e->slack = slack;
    e->recent = ag_eviction_recent(p);
    e->oldest = UINT32_MAX;
    e->rope = ag_calloc(n_layers, sizeof *e->rope);
    if (!e->rope) return AG_FAIL(err, NOMEM, "rotations of %u layers", n_layers);
    memcpy(e->rope, rope, n_layers * sizeof *rope);
    AG_TRY(ag_eviction_scratch_create(&e->scratch, p, cache, err));
    AG_TRY(ag_score_sums_create(p->policy, cache, &e->sums, err));
    AG_TRY(ag_spill_create(p->spill, cache, &e->spill, err));
    e->params.spill = ag_spill_params_of(e->spill);
    return AG_OK;
}

void ag_evictor_release(ag_evictor *e) {
    ag_eviction_scratch_release(&e->scratch);
    ag_score_sums_destroy(e->sums);
    ag_spill_destroy(e->spill);
    ag_turns_release(&e->turns);
    ag_free(e->rope);
}

/* Returns the maximum slots of a head between two passes, which leaves space for the next pass. */
static uint32_t max_head_slots(const ag_evictor *e) {
    return ag_kv_cache_params(e->cache)->max_slots - 1 - e->slack;
}

uint32_t ag_evictor_min_slots(const ag_evictor *e) {
    uint32_t n = ag_kv_cache_protected(e->cache) + e->recent;
    return n ? n : 1;
}

ag_head_limits ag_evictor_limits(const ag_evictor *e) {
    return (ag_head_limits){.cache = e->cache,
                            .lengths = e->lengths,
                            .trained = e->trained,
                            .min_slots = ag_evictor_min_slots(e),
                            .max_slots = max_head_slots(e)};
}

static uint32_t window_of(const ag_evictor *e, uint32_t layer) {
    const ag_head_limits limits = ag_evictor_limits(e);
    return ag_heads_window(&limits, layer);
}

void ag_evictor_set_lengths(ag_evictor *e, ag_head_lengths lengths) {
    e->lengths = lengths;
    e->scratch.per_head_importance =
        e->spill || ag_evictor_heads_share(e) || lengths != AG_HEADS_EVEN;
}

/* ---- a head ---- */

static void add_to_stats(ag_eviction_stats *t, const ag_eviction *done) {
    t->n_evictions++;
    t->n_tokens += done->n_before - done->n_kept;
    t->bytes_returned += done->bytes_returned;
    t->seconds += done->seconds;
    if (done->seconds > t->longest_s) t->longest_s = done->seconds;
    t->last = *done;
}

/* Describes the slots of a head for the policy. `position`: of the next token. */
static ag_status view_head(ag_evictor *e, uint32_t layer, uint32_t head, uint32_t position,
                           ag_eviction_view *v, ag_error *err) {
    uint32_t n = ag_kv_cache_n_slots(e->cache, layer, head);
    AG_TRY(ag_kv_cache_read_positions(e->cache, layer, head, e->scratch.positions, err));
    *v = (ag_eviction_view){
        .n_slots = n,
        .positions = e->scratch.positions,
        .work = e->scratch.work,
        .values = e->scratch.values,
        .turns = e->turns.first,
        .n_turns = e->turns.n,
    };
    const uint32_t window = window_of(e, layer);
    while (window && v->n_expired < n && v->positions[v->n_expired] + (uint64_t)window <= position)
        v->n_expired++;
    /* In a layer with a window, protected slots expire too. */
    while (!v->n_expired && v->n_protected < n &&
           v->positions[v->n_protected] < ag_kv_cache_protected(e->cache)) {
        v->n_protected++;
    }
    /* Slots that would expire before the next compaction expire now. */
    uint64_t limit = (uint64_t)position + e->slack;
    if (window) limit = 0;
    for (uint32_t s = v->n_protected + v->n_expired;
         s < n && v->positions[s] + (uint64_t)e->trained <= limit; s++) {
        v->n_expired++;
    }
    bool normalised = ag_importance_traits_of(e->params.policy)->of_prompt_window;
    while (v->n_scored < n &&
           (!normalised || v->positions[v->n_scored] < ag_score_sums_position(e->sums))) {
        v->n_scored++;
    }
    return AG_OK;
}

static uint32_t recent_in(const ag_evictor *e, const ag_eviction_view *v, uint32_t n_keep) {
    const uint32_t max = n_keep - v->n_protected;
    return e->recent < max ? e->recent : max;
}

/* Returns how many slots the policy retains, at most n_keep. */
static uint32_t n_retained(const ag_evictor *e, ag_eviction_view *v, uint32_t n_keep) {
    const ag_eviction_policy *policy = e->params.policy;
    if (!policy->count) return n_keep;
    v->n_recent = recent_in(e, v, n_keep);
    return policy->count(policy->user, &e->params, v, n_keep);
}

/* Selection of one head's slots. */
typedef struct head_selection {
    ag_eviction_view view;
    uint32_t n_keep;     /* view.n_slots: nothing is removed */
    bool policy_selects; /* false: the unexpired slots remain */
} head_selection;

/* Describes the head and counts the slots that it retains of e->scratch.n_keep. Before any head of
 * the layer has moved, and after its selection, results are equal. */
static ag_status begin_selection(ag_evictor *e, uint32_t layer, uint32_t head, head_selection *s,
                                 ag_error *err) {
    const ag_pending_eviction *p = &e->pending;
    const uint32_t budget = e->scratch.n_keep[head];
    ag_eviction_view *v = &s->view;
    *s = (head_selection){.view.n_slots = ag_kv_cache_n_slots(e->cache, layer, head)};
    s->n_keep = v->n_slots;
    if (window_of(e, layer) && v->n_slots <= budget) return AG_OK;
    AG_TRY(view_head(e, layer, head, p->position, v, err));
    const uint32_t alive = v->n_slots - v->n_expired;
    s->n_keep = budget < alive ? budget : alive;
    s->policy_selects = s->n_keep < alive;
    if (p->is_compared) v->importance = e->scratch.views[head].importance;
    if (!s->policy_selects) return AG_OK;
    s->n_keep = n_retained(e, v, s->n_keep);
    v->n_recent = recent_in(e, v, s->n_keep);
    return AG_OK;
}

/* Computes the importance of a head, unless sharing among heads has done so. */
static ag_status complete_view(ag_evictor *e, uint32_t layer, uint32_t head, ag_eviction_view *v,
                               ag_error *err) {
    if (v->importance) return AG_OK;
    return ag_importance_of(&e->scratch, e->sums, e->params.policy, e->cache, layer, head, v, err);
}

static void retain_unexpired(const ag_eviction_view *v, uint32_t *keep) {
    for (uint32_t i = 0; i < v->n_slots - v->n_expired; i++)
        keep[i] = i < v->n_protected ? i : i + v->n_expired;
}

/* Returns the list of retained slots of a head of a layer. */
static uint32_t *selected_slots(const ag_evictor *e, uint32_t layer, uint32_t head) {
    return e->scratch.layer_keep + (size_t)head * ag_kv_cache_max_slots(e->cache, layer);
}

/* Runs select_layer() of the policy for the heads from which it must select. */
static ag_status select_from_layer(ag_evictor *e, ag_error *err) {
    const ag_eviction_policy *policy = e->params.policy;
    const ag_eviction_scratch *s = &e->scratch;
    const uint32_t layer = e->pending.layer;
    const size_t max_slots = ag_kv_cache_max_slots(e->cache, layer);
    size_t n = 0;
    for (uint32_t h = 0; h < ag_kv_cache_layer(e->cache, layer)->n_kv_heads; h++) {
        head_selection selection;
        ag_eviction_view *v = &selection.view;
        AG_TRY(begin_selection(e, layer, h, &selection, err));
        if (!selection.policy_selects) continue;
        AG_TRY(complete_view(e, layer, h, v, err));
        uint32_t *positions = s->layer_positions + h * max_slots;
        memcpy(positions, v->positions, v->n_slots * sizeof *positions);
        v->positions = positions;
        s->selections[n++] =
            (ag_eviction_head){*v, h, selection.n_keep, selected_slots(e, layer, h)};
    }
    ag_error unused;
    return n ? policy->select_layer(policy->user, &e->params, layer, s->selections, n,
                                    err ? err : &unused)
             : AG_OK;
}

static bool spills_layer(const ag_evictor *e, uint32_t layer) {
    return e->spill && !ag_kv_cache_layer(e->cache, layer)->window;
}

/* Stores evicted slots of a head in the spill store, except expired ones. */
static void spill_evicted(ag_evictor *e, uint32_t layer, uint32_t head, const head_selection *s,
                          const uint32_t *keep) {
    const uint32_t alive = s->view.n_protected + s->view.n_expired;
    uint32_t *evicted = e->scratch.work, n = 0;
    for (uint32_t slot = 0, k = 0; slot < s->view.n_slots; slot++) {
        if (k < s->n_keep && keep[k] == slot) k++;
        else if (slot >= alive) evicted[n++] = slot;
    }
    ag_spill_store(e->spill, e->sums, layer, head, evicted, n);
}

static ag_status evict_from_head(ag_evictor *e, uint32_t layer, uint32_t head, ag_error *err) {
    const ag_eviction_policy *policy = e->params.policy;
    head_selection s;
    uint32_t *keep = e->scratch.keep;
    AG_TRY(begin_selection(e, layer, head, &s, err));
    if (s.n_keep == s.view.n_slots) return AG_OK;
    if (!s.policy_selects) {
        retain_unexpired(&s.view, keep);
    } else if (policy->select_layer) {
        keep = selected_slots(e, layer, head);
    } else {
        AG_TRY(complete_view(e, layer, head, &s.view, err));
        policy->select(policy->user, &e->params, &s.view, s.n_keep, keep);
    }
    if (spills_layer(e, layer)) spill_evicted(e, layer, head, &s, keep);
    ag_status st = ag_score_sums_fetch(e->sums, layer, err);
    if (st == AG_OK) st = ag_kv_compact_head(e->cache, layer, head, keep, s.n_keep, err);
    if (st == AG_OK) ag_score_sums_compact(e->sums, layer, head, keep, s.n_keep);
    if (st != AG_OK && spills_layer(e, layer)) ag_spill_cancel_store(e->spill, layer, head);
    return st;
}

/* ---- an eviction ---- */

/* Returns the bytes that dropping the cache would free, without blocks that forks share. */
static size_t unshared_bytes(const ag_kv_cache *c) {
    return ag_kv_cache_memory_usage_bytes(c) - ag_kv_cache_shared_bytes(c);
}

/* Returns whether the heads of this layer share its slots. */
static bool heads_share_layer(const ag_evictor *e, uint32_t layer, uint32_t budget) {
    return ag_evictor_heads_share(e) && budget < UINT32_MAX && !window_of(e, layer);
}

/* Sets e->scratch.n_keep to the slots that each head of a layer may keep without sharing.
 * Returns how many slots the layer keeps. n_to_remove: slots that each head gives up if all
 * heads share. */
static size_t share_evenly(ag_evictor *e, uint32_t layer, uint32_t budget, uint32_t n_to_remove) {
    const ag_head_limits limits = ag_evictor_limits(e);
    const uint32_t n_heads = ag_kv_cache_layer(e->cache, layer)->n_kv_heads;
    const bool all_share = e->lengths == AG_HEADS_RAGGED && budget < UINT32_MAX;
    size_t allowed = 0, even = 0, max = 0;
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t n = ag_kv_cache_n_slots(e->cache, layer, h);
        e->scratch.n_keep[h] = all_share ? ag_heads_n_remaining(&limits, n, n_to_remove) : budget;
        allowed += e->scratch.n_keep[h];
        even += smaller(n, e->scratch.n_keep[h]);
        max += smaller(n, limits.max_slots);
    }
    return heads_share_layer(e, layer, budget) ? smaller(allowed, max) : even;
}

/* Sets e->scratch.n_keep by the scores of the heads' slots and leaves importance in the views. */
static ag_status share_by_scores(ag_evictor *e, uint32_t layer, size_t n_layer_keep,
                                 uint32_t position, ag_error *err) {
    const uint32_t n_heads = ag_kv_cache_layer(e->cache, layer)->n_kv_heads;
    for (uint32_t h = 0; h < n_heads; h++) {
        ag_eviction_view *v = &e->scratch.views[h];
        AG_TRY(view_head(e, layer, h, position, v, err));
        v->n_recent = recent_in(e, v, v->n_slots - v->n_expired);
        AG_TRY(
            ag_importance_of(&e->scratch, e->sums, e->params.policy, e->cache, layer, h, v, err));
    }
    const ag_allocation all = {.total = n_layer_keep,
                               .max = max_head_slots(e),
                               .scores = e->scratch.ranked,
                               .order = e->scratch.order,
                               .keep = e->scratch.best};
    ag_evict_allocate(e->scratch.views, n_heads, &all, e->scratch.n_keep);
    if (e->lengths == AG_HEADS_EVEN) ag_evictor_set_lengths(e, AG_HEADS_RAGGED_IN_LAYER);
    return AG_OK;
}

/* Sets e->scratch.n_keep by params.head_shares. */
static void share_by_params(ag_evictor *e, uint32_t layer, size_t n_layer_keep) {
    const uint32_t n_heads = ag_kv_cache_layer(e->cache, layer)->n_kv_heads;
    const uint32_t safe = (uint32_t)((double)(n_layer_keep / n_heads) * AG_HEAD_SAFE_SHARE);
    const ag_head_limits limits = ag_evictor_limits(e);
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t n = ag_kv_cache_n_slots(e->cache, layer, h);
        const uint32_t max = (uint32_t)smaller(n, limits.max_slots);
        const uint32_t min = safe > limits.min_slots ? safe : limits.min_slots;
        e->scratch.bounds[h] = (ag_head_bounds){(uint32_t)smaller(min, max), max};
    }
    const float *heads_share_layer =
        e->params.head_shares + ag_kv_cache_first_head(e->cache, layer);
    ag_evict_allocate_shares(e->scratch.bounds, heads_share_layer, n_heads, n_layer_keep,
                             e->scratch.n_keep);
    if (e->lengths == AG_HEADS_EVEN) ag_evictor_set_lengths(e, AG_HEADS_RAGGED_IN_LAYER);
}

/* Sets e->scratch.n_keep for the eviction's next layer, before any of its heads has moved, and runs
 * select_layer() of the policy. */
static ag_status share_out(ag_evictor *e, ag_error *err) {
    ag_pending_eviction *p = &e->pending;
    const uint32_t layer = p->layer;
    const size_t n_layer_keep = share_evenly(e, layer, p->budget, p->n_to_remove);
    const size_t n_slots = ag_heads_slots(e->cache, layer);
    AG_TRY(ag_importance_of_layer(&e->scratch, e->sums, &e->params, e->cache, &e->rope[layer],
                                  layer, n_layer_keep, err));
    const uint32_t n_heads = ag_kv_cache_layer(e->cache, layer)->n_kv_heads;
    const bool share = heads_share_layer(e, layer, p->budget);
    const bool by_params = e->params.head_budget == AG_HEAD_BUDGET_SHARES;
    p->is_compared = share && n_slots > n_layer_keep && !by_params;
    if (p->is_compared) AG_TRY(share_by_scores(e, layer, n_layer_keep, p->position, err));
    else if (share && n_slots > n_layer_keep) share_by_params(e, layer, n_layer_keep);
    else if (share)
        for (uint32_t h = 0; h < n_heads; h++) e->scratch.n_keep[h] = UINT32_MAX;
    if (e->params.policy->select_layer) AG_TRY(select_from_layer(e, err));
    p->is_shared_out = true;
    p->head = 0;
    return AG_OK;
}

static ag_status evict_from_layer(ag_evictor *e, ag_error *err) {
    ag_pending_eviction *p = &e->pending;
    if (!p->is_shared_out) AG_TRY(share_out(e, err));
    for (; p->head < ag_kv_cache_layer(e->cache, p->layer)->n_kv_heads; p->head++)
        AG_TRY(evict_from_head(e, p->layer, p->head, err));
    p->is_shared_out = false;
    return AG_OK;
}

static size_t all_slots(const ag_evictor *e) {
    size_t n = 0;
    for (uint32_t l = 0; l < ag_kv_cache_params(e->cache)->n_layers; l++)
        n += ag_heads_slots(e->cache, l);
    return n;
}

/* Returns the number of tokens for an eviction report. */
static uint32_t tokens_of(const ag_evictor *e, uint32_t budget) {
    const ag_head_limits limits = ag_evictor_limits(e);
    return ag_evictor_heads_share(e) ? ag_heads_mean(&limits, budget)
                                     : ag_kv_cache_length(e->cache);
}

void ag_evictor_plan(ag_evictor *e, uint32_t budget, uint32_t position, ag_eviction_reason reason,
                     ag_pressure level) {
    const ag_head_limits limits = ag_evictor_limits(e);
    const bool all_share = e->lengths == AG_HEADS_RAGGED && budget < UINT32_MAX;
    e->pending = (ag_pending_eviction){
        .is_pending = true,
        .budget = budget,
        .position = position,
        .n_to_remove = all_share ? ag_heads_n_to_remove(&limits, budget) : 0,
        .n_slots = all_slots(e),
        .bytes = unshared_bytes(e->cache),
        .report = {.reason = reason,
                   .level = reason == AG_EVICTION_MEMORY ? level : AG_PRESSURE_NORMAL,
                   .policy = e->params.policy->name,
                   .position = position,
                   .n_before = tokens_of(e, budget)},
    };
}

/* Reports a finished eviction, unless it evicted nothing. */
static void report_eviction(ag_evictor *e, const ag_pending_eviction *p) {
    ag_eviction done = p->report;
    done.n_kept = tokens_of(e, p->budget);
    const size_t remaining =
        unshared_bytes(e->cache); /* may be more than before if blocks of a fork were copied */
    done.bytes_returned = remaining < p->bytes ? p->bytes - remaining : 0;
    e->oldest = UINT32_MAX;
    const bool adaptive = ag_evictor_heads_share(e); /* the rounded mean may be unchanged */
    if (adaptive ? all_slots(e) == p->n_slots : done.n_kept == done.n_before) return;
    add_to_stats(&e->total, &done);
    add_to_stats(&e->last, &done);
    if (e->params.on_eviction) e->params.on_eviction(e->params.on_eviction_user, &done);
}

ag_status ag_evictor_continue(ag_evictor *e, ag_error *err) {
    ag_pending_eviction *p = &e->pending;
    if (!p->is_pending) return AG_OK;
    const double begin = ag_now_s();
    const ag_head_limits limits = ag_evictor_limits(e);
    ag_status st = AG_OK;
    while (st == AG_OK && p->layer < ag_kv_cache_params(e->cache)->n_layers) {
        const uint32_t layer = p->layer;
        if (ag_heads_are_budgeted(&limits, layer, p->budget)) st = evict_from_layer(e, err);
        if (st != AG_OK) break;
        p->layer++; /* sums that fail to be stored are flushed before the next layer */
        st = ag_score_sums_store(e->sums, layer, false, err);
    }
    ag_kv_trim_pools(e->cache);
    p->report.seconds += ag_now_s() - begin;
    if (st != AG_OK) return st;
    p->is_pending = false;
    report_eviction(e, p);
    return AG_OK;
}
