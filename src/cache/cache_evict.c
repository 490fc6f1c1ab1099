/* SPDX-License-Identifier: Apache-2.0 */
/* An eviction: how many slots each head keeps, which ones by the policy, and the report. */
#include "cache/cache_manager_impl.h"
#include "cache/eviction/allocate.h"
#include "core/fail.h"
#include "platform/clock.h"

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Slots that a head may have between two passes, for the next one's to find space. */
static uint32_t most_slots(const ag_cache_manager *m) {
    return ag_kv_cache_params(m->cache)->max_slots - 1 - m->slack;
}

/* What the prefix and the newest tokens take: less cannot be asked for. */
uint32_t ag_manager_fewest(const ag_cache_manager *m) {
    uint32_t n = ag_kv_cache_protected(m->cache) + m->recent;
    return n ? n : 1;
}

ag_head_limits ag_manager_limits(const ag_cache_manager *m) {
    return (ag_head_limits){.cache = m->cache,
                            .lengths = m->lengths,
                            .trained = m->trained,
                            .fewest = ag_manager_fewest(m),
                            .most = most_slots(m)};
}

static uint32_t window_of(const ag_cache_manager *m, uint32_t layer) {
    const ag_head_limits limits = ag_manager_limits(m);
    return ag_heads_window(&limits, layer);
}

void ag_manager_set_lengths(ag_cache_manager *m, ag_head_lengths lengths) {
    m->lengths = lengths;
    m->tmp.own_importance = m->spill || ag_manager_heads_share(m) || lengths != AG_HEADS_EVEN;
}

/* ---- a head ---- */

static void count(ag_eviction_stats *t, const ag_eviction *e) {
    t->n_evictions++;
    t->n_tokens += e->n_before - e->n_kept;
    t->bytes_returned += e->bytes_returned;
    t->seconds += e->seconds;
    if (e->seconds > t->longest_s) t->longest_s = e->seconds;
    t->last = *e;
}

/* What is known about a head's slots before the policy is asked; `position`: of the next token. */
static ag_status view_head(ag_cache_manager *m, uint32_t layer, uint32_t head, uint32_t position,
                           ag_eviction_view *v, ag_error *err) {
    uint32_t n = ag_kv_cache_n_slots(m->cache, layer, head);
    AG_TRY(ag_kv_cache_read_positions(m->cache, layer, head, m->tmp.positions, err));
    *v = (ag_eviction_view){
        .n_slots = n,
        .positions = m->tmp.positions,
        .work = m->tmp.work,
        .values = m->tmp.values,
        .turns = m->turns.first,
        .n_turns = m->turns.n,
    };
    const uint32_t window = window_of(m, layer);
    while (window && v->n_expired < n && v->positions[v->n_expired] + (uint64_t)window <= position)
        v->n_expired++;
    /* Sinks leave a window, too. */
    while (!v->n_expired && v->n_protected < n &&
           v->positions[v->n_protected] < ag_kv_cache_protected(m->cache)) {
        v->n_protected++;
    }
    /* Also those that would expire before the next compaction. */
    uint64_t limit = (uint64_t)position + m->slack;
    if (window) limit = 0;
    for (uint32_t s = v->n_protected + v->n_expired;
         s < n && v->positions[s] + (uint64_t)m->trained <= limit; s++) {
        v->n_expired++;
    }
    bool normalised = m->params.policy->importance == AG_IMPORTANCE_WINDOW;
    while (v->n_scored < n &&
           (!normalised || v->positions[v->n_scored] < ag_score_sums_position(m->sums))) {
        v->n_scored++;
    }
    return AG_OK;
}

static uint32_t n_recent_of(const ag_cache_manager *m, const ag_eviction_view *v, uint32_t n_keep) {
    const uint32_t most = n_keep - v->n_protected;
    return m->recent < most ? m->recent : most;
}

/* Of n_keep slots that may stay. */
static uint32_t n_staying(const ag_cache_manager *m, ag_eviction_view *v, uint32_t n_keep) {
    const ag_eviction_policy *policy = m->params.policy;
    if (!policy->count) return n_keep;
    v->n_recent = n_recent_of(m, v, n_keep);
    return policy->count(policy->user, &m->params, v, n_keep);
}

/* Importance is found unless heads have been compared by it. */
static ag_status ask_policy(ag_cache_manager *m, uint32_t layer, uint32_t head, ag_eviction_view *v,
                            uint32_t n_keep, ag_error *err) {
    v->n_recent = n_recent_of(m, v, n_keep);
    if (!v->importance)
        AG_TRY(ag_importance_of(&m->tmp, m->sums, m->params.policy, m->cache, layer, head, v, err));
    m->params.policy->select(m->params.policy->user, &m->params, v, n_keep, m->tmp.keep);
    return AG_OK;
}

static bool spills(const ag_cache_manager *m, uint32_t layer) {
    return m->spill && !ag_kv_cache_layer(m->cache, layer)->window;
}

/* Those of a head that the policy lets leave, not those that have expired, go to the file. */
static void spill(ag_cache_manager *m, uint32_t layer, uint32_t head, const ag_eviction_view *v,
                  uint32_t n_keep) {
    const uint32_t alive = v->n_protected + v->n_expired;
    uint32_t *leaving = m->tmp.work, n = 0;
    for (uint32_t s = 0, k = 0; s < v->n_slots; s++) {
        if (k < n_keep && m->tmp.keep[k] == s) k++;
        else if (s >= alive) leaving[n++] = s;
    }
    ag_spill_take(m->spill, m->sums, layer, head, leaving, n);
}

static ag_status evict_from_head(ag_cache_manager *m, uint32_t layer, uint32_t head,
                                 uint32_t budget, uint32_t position, const float *importance,
                                 ag_error *err) {
    ag_eviction_view v;
    if (window_of(m, layer) && ag_kv_cache_n_slots(m->cache, layer, head) <= budget) return AG_OK;
    AG_TRY(view_head(m, layer, head, position, &v, err));
    uint32_t alive = v.n_slots - v.n_expired, n_keep = budget < alive ? budget : alive;
    if (n_keep == v.n_slots) return AG_OK;
    v.importance = importance;
    /* Where only what has expired leaves, the policy is not asked. */
    if (n_keep < alive) {
        n_keep = n_staying(m, &v, n_keep);
        AG_TRY(ask_policy(m, layer, head, &v, n_keep, err));
    } else {
        for (uint32_t i = 0; i < alive; i++) {
            m->tmp.keep[i] = i < v.n_protected ? i : i + v.n_expired;
        }
    }
    if (spills(m, layer)) spill(m, layer, head, &v, n_keep);
    ag_status st = ag_score_sums_fetch(m->sums, layer, err);
    if (st == AG_OK) st = ag_kv_compact_head(m->cache, layer, head, m->tmp.keep, n_keep, err);
    if (st == AG_OK) ag_score_sums_compact(m->sums, layer, head, m->tmp.keep, n_keep);
    if (st != AG_OK && spills(m, layer)) ag_spill_take_back(m->spill, layer, head);
    return st;
}

/* ---- an eviction ---- */

/* What goes back to the system when it is dropped: not what forks hold as well. */
static size_t bytes_alone(const ag_kv_cache *c) {
    return ag_kv_cache_memory_usage_bytes(c) - ag_kv_cache_shared_bytes(c);
}

/* Heads share what their layer keeps. */
static bool shares(const ag_cache_manager *m, uint32_t layer, uint32_t budget) {
    return ag_manager_heads_share(m) && budget < UINT32_MAX && !window_of(m, layer);
}

/* Into m->tmp.n_keep what each head of a layer may keep for itself; returns what they keep together
 * of all slots. fewer: what each gives up where all share. */
static size_t share_evenly(ag_cache_manager *m, uint32_t layer, uint32_t budget, uint32_t fewer) {
    const ag_head_limits limits = ag_manager_limits(m);
    const uint32_t n_heads = ag_kv_cache_layer(m->cache, layer)->n_kv_heads;
    const bool all_share = m->lengths == AG_HEADS_UNEVEN && budget < UINT32_MAX;
    size_t asked = 0, own = 0, most = 0;
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t n = ag_kv_cache_n_slots(m->cache, layer, h);
        m->tmp.n_keep[h] = all_share ? ag_heads_left(&limits, n, fewer) : budget;
        asked += m->tmp.n_keep[h];
        own += smaller(n, m->tmp.n_keep[h]);
        most += smaller(n, limits.most);
    }
    return shares(m, layer, budget) ? smaller(asked, most) : own;
}

/* Into m->tmp.n_keep what each head's slots earn it of n_stay. Their importance is known. */
static ag_status share_by_scores(ag_cache_manager *m, uint32_t layer, size_t n_stay,
                                 uint32_t position, ag_error *err) {
    const uint32_t n_heads = ag_kv_cache_layer(m->cache, layer)->n_kv_heads;
    for (uint32_t h = 0; h < n_heads; h++) {
        ag_eviction_view *v = &m->tmp.views[h];
        AG_TRY(view_head(m, layer, h, position, v, err));
        v->n_recent = n_recent_of(m, v, v->n_slots - v->n_expired);
        AG_TRY(ag_importance_of(&m->tmp, m->sums, m->params.policy, m->cache, layer, h, v, err));
    }
    const ag_allocation all = {.total = n_stay,
                               .most = most_slots(m),
                               .scores = m->tmp.ranked,
                               .order = m->tmp.order,
                               .keep = m->tmp.best};
    ag_evict_allocate(m->tmp.views, n_heads, &all, m->tmp.n_keep);
    if (m->lengths == AG_HEADS_EVEN) ag_manager_set_lengths(m, AG_HEADS_IN_LAYER);
    return AG_OK;
}

/* The same by the shares that the caller gave. */
static void share_as_told(ag_cache_manager *m, uint32_t layer, size_t n_stay) {
    const uint32_t n_heads = ag_kv_cache_layer(m->cache, layer)->n_kv_heads;
    const uint32_t safe = (uint32_t)((double)(n_stay / n_heads) * AG_HEAD_SAFE_SHARE);
    const ag_head_limits limits = ag_manager_limits(m);
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t n = ag_kv_cache_n_slots(m->cache, layer, h);
        const uint32_t most = (uint32_t)smaller(n, limits.most);
        const uint32_t least = safe > limits.fewest ? safe : limits.fewest;
        m->tmp.bounds[h] = (ag_head_bounds){(uint32_t)smaller(least, most), most};
    }
    const float *shares = m->params.head_shares + ag_kv_cache_first_head(m->cache, layer);
    ag_evict_allocate_shares(m->tmp.bounds, shares, n_heads, n_stay, m->tmp.n_keep);
    if (m->lengths == AG_HEADS_EVEN) ag_manager_set_lengths(m, AG_HEADS_IN_LAYER);
}

/* Into m->tmp.n_keep what each head of the eviction's next layer keeps, before one has moved. */
static ag_status share_out(ag_cache_manager *m, ag_error *err) {
    ag_pending_eviction *p = &m->eviction;
    const uint32_t layer = p->layer;
    const size_t n_stay = share_evenly(m, layer, p->budget, p->fewer);
    const size_t n_slots = ag_heads_slots(m->cache, layer);
    AG_TRY(ag_importance_of_layer(&m->tmp, m->sums, &m->params, m->cache, &m->rope[layer], layer,
                                  n_stay, err));
    const uint32_t n_heads = ag_kv_cache_layer(m->cache, layer)->n_kv_heads;
    const bool share = shares(m, layer, p->budget);
    const bool told = m->params.head_budget == AG_HEAD_BUDGET_SHARES;
    p->is_compared = share && n_slots > n_stay && !told;
    if (p->is_compared) AG_TRY(share_by_scores(m, layer, n_stay, p->position, err));
    else if (share && n_slots > n_stay) share_as_told(m, layer, n_stay);
    else if (share)
        for (uint32_t h = 0; h < n_heads; h++) m->tmp.n_keep[h] = UINT32_MAX;
    p->is_shared_out = true;
    p->head = 0;
    return AG_OK;
}

static ag_status evict_from_layer(ag_cache_manager *m, ag_error *err) {
    ag_pending_eviction *p = &m->eviction;
    if (!p->is_shared_out) AG_TRY(share_out(m, err));
    for (; p->head < ag_kv_cache_layer(m->cache, p->layer)->n_kv_heads; p->head++)
        AG_TRY(evict_from_head(m, p->layer, p->head, m->tmp.n_keep[p->head], p->position,
                               p->is_compared ? m->tmp.views[p->head].importance : NULL, err));
    p->is_shared_out = false;
    return AG_OK;
}

static size_t all_slots(const ag_cache_manager *m) {
    size_t n = 0;
    for (uint32_t l = 0; l < ag_kv_cache_params(m->cache)->n_layers; l++)
        n += ag_heads_slots(m->cache, l);
    return n;
}

/* As evictions are reported. */
static uint32_t tokens_of(const ag_cache_manager *m, uint32_t budget) {
    const ag_head_limits limits = ag_manager_limits(m);
    return ag_manager_heads_share(m) ? ag_heads_mean(&limits, budget)
                                     : ag_kv_cache_length(m->cache);
}

void ag_manager_plan_eviction(ag_cache_manager *m, uint32_t budget, uint32_t position,
                              ag_eviction_reason reason) {
    const ag_head_limits limits = ag_manager_limits(m);
    const bool all_share = m->lengths == AG_HEADS_UNEVEN && budget < UINT32_MAX;
    m->eviction = (ag_pending_eviction){
        .is_pending = true,
        .budget = budget,
        .position = position,
        .fewer = all_share ? ag_heads_fewer(&limits, budget) : 0,
        .n_slots = all_slots(m),
        .bytes = bytes_alone(m->cache),
        .report = {.reason = reason,
                   .level = reason == AG_EVICTION_MEMORY ? m->pressure.level : AG_PRESSURE_NORMAL,
                   .policy = m->params.policy->name,
                   .position = position,
                   .n_before = tokens_of(m, budget)},
    };
}

/* Nothing is reported if nothing has left. */
static void report(ag_cache_manager *m, const ag_pending_eviction *p) {
    ag_eviction e = p->report;
    e.n_kept = tokens_of(m, p->budget);
    const size_t left = bytes_alone(m->cache); /* more, if a fork's blocks had to be copied */
    e.bytes_returned = left < p->bytes ? p->bytes - left : 0;
    m->oldest = UINT32_MAX;
    const bool adaptive = ag_manager_heads_share(m); /* then the mean may stay, rounded up */
    if (adaptive ? all_slots(m) == p->n_slots : e.n_kept == e.n_before) return;
    count(&m->total, &e);
    count(&m->last, &e);
    if (m->params.on_eviction) m->params.on_eviction(m->params.on_eviction_user, &e);
}

ag_status ag_manager_continue_eviction(ag_cache_manager *m, ag_error *err) {
    ag_pending_eviction *p = &m->eviction;
    if (!p->is_pending) return AG_OK;
    const double begin = ag_now_s();
    const ag_head_limits limits = ag_manager_limits(m);
    ag_status st = AG_OK;
    while (st == AG_OK && p->layer < ag_kv_cache_params(m->cache)->n_layers) {
        const uint32_t layer = p->layer;
        if (ag_heads_are_budgeted(&limits, layer, p->budget)) st = evict_from_layer(m, err);
        if (st != AG_OK) break;
        p->layer++; /* sums that cannot be stored now are flushed before more is done */
        st = ag_score_sums_store(m->sums, layer, false, err);
    }
    ag_kv_give_back(m->cache);
    p->report.seconds += ag_now_s() - begin;
    if (st != AG_OK) return st;
    p->is_pending = false;
    report(m, p);
    return AG_OK;
}

ag_status ag_manager_evict(ag_cache_manager *m, uint32_t budget, uint32_t position,
                           ag_eviction_reason reason, ag_error *err) {
    AG_TRY(ag_cache_manager_settle(m, err));
    ag_manager_plan_eviction(m, budget, position, reason);
    return ag_manager_continue_eviction(m, err);
}
