/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache_manager_impl.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"

#include <string.h>

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

enum { POLL_MS = 100 }; /* reading the system's files takes some 0.1 ms */

static uint32_t fullest(const ag_cache_manager *m) {
    const ag_head_limits limits = ag_manager_limits(m);
    return ag_heads_fullest(&limits, m->live);
}

ag_status ag_cache_manager_create(ag_kv_cache *cache, const ag_eviction_params *p,
                                  const ag_rope_table *rope, uint32_t trained,
                                  ag_cache_manager **out, ag_error *err) {
    *out = NULL;
    if (!ag_eviction_is_managed(p)) return AG_OK;
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    uint32_t budget;
    AG_TRY(ag_eviction_budget(p, kv, &budget, err));
    ag_cache_manager *m = ag_calloc(1, sizeof *m);
    if (!m) return AG_FAIL(err, NOMEM, "cache manager");
    const uint32_t spare = kv->max_slots - budget - 1;
    m->params = *p;
    m->cache = cache;
    m->trained = trained;
    m->budget = m->live = budget;
    m->slack = p->slack < spare ? p->slack : spare;
    m->recent = ag_eviction_recent(p);
    m->oldest = UINT32_MAX;
    ag_status st = ag_eviction_scratch_create(&m->tmp, p, cache, err);
    m->rope = ag_calloc(kv->n_layers, sizeof *m->rope);
    if (m->rope) memcpy(m->rope, rope, kv->n_layers * sizeof *rope);
    else if (st == AG_OK) st = AG_FAIL(err, NOMEM, "rotations of %u layers", kv->n_layers);
    if (st == AG_OK) st = ag_score_sums_create(p->policy, cache, &m->sums, err);
    if (st == AG_OK) st = ag_chunk_scores_create(p, cache, &m->chunks, err);
    if (st == AG_OK) st = ag_spill_create(p->spill, cache, &m->spill, err);
    if (st == AG_OK) st = ag_recall_create(cache, m->spill, &m->recall, err);
    m->params.spill = ag_spill_params_of(m->spill);
    if (st == AG_OK && p->memory.threshold_bytes && !p->memory.read) {
        st = ag_sys_monitor_create(p->memory.system_root, &m->monitor, err);
    }
    if (st == AG_OK) *out = m;
    else ag_cache_manager_destroy(m);
    return st;
}

void ag_cache_manager_destroy(ag_cache_manager *m) {
    if (!m) return;
    ag_eviction_scratch_release(&m->tmp);
    ag_score_sums_destroy(m->sums);
    ag_chunk_scores_destroy(m->chunks);
    ag_recall_destroy(m->recall);
    ag_spill_destroy(m->spill);
    ag_turns_release(&m->turns);
    ag_free(m->rope);
    ag_sys_monitor_destroy(m->monitor);
    ag_free(m);
}

static void forget_pending(ag_cache_manager *m) {
    m->scores.is_pending = m->eviction.is_pending = false;
}

void ag_cache_manager_reset(ag_cache_manager *m) {
    if (!m) return;
    m->oldest = UINT32_MAX;
    ag_cache_manager_set_uneven(m, false);
    ag_score_sums_set_position(m->sums, 0);
    ag_chunk_scores_truncate(m->chunks, 0);
    ag_spill_clear(m->spill);
    m->relief_due = false;
    forget_pending(m);
    ag_turns_truncate(&m->turns, 0);
    m->total = m->last = (ag_eviction_stats){0};
}

void ag_cache_manager_abandon(ag_cache_manager *m) {
    if (m) ag_score_sums_abandon(m->sums);
}

/* Sums lie beside the slots they belong to, and those of new slots begin at 0. */
void ag_cache_manager_truncate(ag_cache_manager *m, uint32_t position) {
    if (!m) return;
    m->oldest = UINT32_MAX;
    if (!position) ag_cache_manager_set_uneven(m, false);
    if (!position) forget_pending(m);
    ag_turns_truncate(&m->turns, position);
    ag_score_sums_truncate(m->sums, position);
    ag_chunk_scores_truncate(m->chunks, position);
    ag_spill_truncate(m->spill, position);
}

ag_status ag_cache_manager_copy(ag_cache_manager *to, ag_cache_manager *from, ag_error *err) {
    if (!to || !from) return AG_OK;
    if (to->params.policy == from->params.policy) {
        AG_TRY(ag_score_sums_copy(to->sums, from->sums, err));
        AG_TRY(ag_chunk_scores_copy(to->chunks, from->chunks, err));
    }
    AG_TRY(ag_turns_copy(&to->turns, &from->turns, err));
    if (ag_manager_heads_share(to) && ag_manager_heads_share(from))
        ag_manager_set_lengths(to, from->lengths);
    AG_TRY(ag_spill_copy(to->spill, from->spill, err));
    to->oldest = from->oldest;
    /* What memory allows of a budget is no more for another budget. */
    if (from->live < from->budget && from->live < to->live) to->live = from->live;
    to->pressure = from->pressure;
    to->hint = from->hint;
    to->polled = from->polled;
    to->polled_ms = from->polled_ms;
    to->refuse = from->refuse;
    to->relief_due = from->relief_due;
    return AG_OK;
}

size_t ag_cache_manager_plan_bytes(const ag_eviction_params *p, const ag_kv_params *kv,
                                   size_t query_values) {
    if (!ag_eviction_is_managed(p)) return 0;
    return sizeof(ag_cache_manager) + kv->n_layers * sizeof(ag_rope_table) +
           ag_spill_plan_bytes(p->spill, kv) + ag_recall_plan_bytes(p->spill, kv) +
           ag_score_sums_bytes(p->policy, kv) + ag_chunk_scores_bytes(p, kv, query_values) +
           ag_eviction_scratch_bytes(p, kv) + ag_kv_unrotated_bytes(kv);
}

ag_spill *ag_cache_manager_spill(const ag_cache_manager *m) { return m ? m->spill : NULL; }
ag_score_sums *ag_cache_manager_sums(ag_cache_manager *m) { return m ? m->sums : NULL; }

void ag_cache_manager_restore(ag_cache_manager *m, ag_score_sums **sums, ag_turns *turns,
                              ag_spill **spill) {
    if (!m) return;
    ag_cache_manager_reset(m);
    ag_score_sums *old = m->sums;
    m->sums = *sums;
    *sums = old;
    ag_score_sums_set_cache(m->sums, m->cache);
    const ag_turns old_turns = m->turns;
    m->turns = *turns;
    *turns = old_turns;
    if (!m->spill) return;
    ag_spill *old_spill = m->spill;
    m->spill = *spill;
    *spill = old_spill;
    ag_recall_set_spill(m->recall, m->spill);
    m->params.spill = ag_spill_params_of(m->spill);
}

void ag_cache_manager_set_uneven(ag_cache_manager *m, bool is_uneven) {
    if (!m) return;
    const ag_head_limits limits = ag_manager_limits(m);
    const bool in_layers = ag_manager_heads_share(m) && ag_heads_are_level(&limits);
    if (!is_uneven) ag_manager_set_lengths(m, AG_HEADS_EVEN);
    else if (m->lengths == AG_HEADS_EVEN)
        ag_manager_set_lengths(m, in_layers ? AG_HEADS_IN_LAYER : AG_HEADS_UNEVEN);
}

bool ag_cache_manager_is_uneven(const ag_cache_manager *m) {
    return m && m->lengths != AG_HEADS_EVEN;
}

void ag_cache_manager_compressed(ag_cache_manager *m, ag_score_sums **sums) {
    if (!m) return;
    ag_score_sums *old = m->sums;
    m->sums = *sums;
    *sums = old;
    ag_score_sums_set_cache(m->sums, m->cache);
    m->oldest = UINT32_MAX;
    ag_manager_set_lengths(m, AG_HEADS_UNEVEN);
}

ag_status ag_cache_manager_begin_turn(ag_cache_manager *m, uint32_t position, ag_error *err) {
    return m ? ag_turns_add(&m->turns, position, err) : AG_OK;
}

const ag_turns *ag_cache_manager_turns(const ag_cache_manager *m) { return m ? &m->turns : NULL; }

void ag_cache_manager_protects_less(ag_cache_manager *m) {
    if (m) m->oldest = UINT32_MAX;
}

uint32_t ag_cache_manager_budget(const ag_cache_manager *m) { return m->budget; }
const ag_eviction_stats *ag_cache_manager_tally(const ag_cache_manager *m) { return &m->total; }
const ag_eviction_stats *ag_cache_manager_last_tally(const ag_cache_manager *m) { return &m->last; }

/* ---- windows ---- */

static ag_status fetch_sums(void *user, uint32_t layer, ag_error *err) {
    ag_cache_manager *m = user;
    return ag_score_sums_fetch(m->sums, layer, err);
}

static void compact_sums(void *user, uint32_t layer, uint32_t head, const uint32_t *keep,
                         uint32_t n_keep) {
    ag_cache_manager *m = user;
    ag_score_sums_compact(m->sums, layer, head, keep, n_keep);
}

static ag_status store_sums(void *user, uint32_t layer, ag_error *err) {
    ag_cache_manager *m = user;
    return ag_score_sums_store(m->sums, layer, false, err);
}

static ag_status expire(ag_cache_manager *m, uint32_t position, ag_error *err) {
    const ag_kv_follower sums = {
        .begin = fetch_sums, .moved = compact_sums, .end = store_sums, .user = m};
    return ag_kv_cache_expire_with(m->cache, position, &sums, err);
}

/* ---- memory ---- */

void ag_cache_manager_hint(ag_cache_manager *m, ag_pressure level) {
    if (!m) return;
    m->hint = level;
    m->polled = false; /* at the next pass */
}

ag_pressure ag_cache_manager_pressure(const ag_cache_manager *m) {
    return m ? m->pressure.level : AG_PRESSURE_NORMAL;
}

static uint64_t clock_ms(const ag_cache_manager *m) {
    const ag_memory_watch *w = &m->params.memory;
    return w->clock_ms ? w->clock_ms(w->user) : (uint64_t)(ag_now_s() * 1000);
}

/* Reads the system's memory from time to time; true if the cache shall shrink to m->live now. */
static bool pressed(ag_cache_manager *m) {
    const ag_memory_watch *w = &m->params.memory;
    uint64_t now = clock_ms(m);
    if (m->polled && now - m->polled_ms < POLL_MS) return false;
    m->polled = true;
    m->polled_ms = now;
    ag_memory_signals s = {.hint = AG_PRESSURE_NORMAL};
    if (w->read) w->read(w->user, now, &s);
    else ag_sys_monitor_read(m->monitor, now, &s);
    if (m->hint > s.hint) s.hint = m->hint;
    bool least = fullest(m) <= ag_manager_fewest(m) + m->slack;
    const size_t bytes = ag_kv_cache_memory_usage_bytes(m->cache);
    ag_pressure_decision d = ag_pressure_decide(w, &s, now, bytes, least ? bytes : 0, &m->pressure);
    m->refuse = d.refuse;
    if (m->pressure.level == AG_PRESSURE_NORMAL) m->live = m->budget;
    if (!d.evict) return false;
    uint32_t n = ag_eviction_tokens_in(ag_kv_cache_params(m->cache), d.target_bytes);
    if (n < ag_manager_fewest(m)) n = ag_manager_fewest(m);
    if (n < m->live) m->live = n;
    return fullest(m) > m->live;
}

/* A policy that asks the newest query waits for it: the pass that begins now has one. */
static ag_status relieve(ag_cache_manager *m, uint32_t position, ag_error *err) {
    if (!m->params.memory.threshold_bytes || !pressed(m)) return AG_OK;
    if (m->params.policy->importance == AG_IMPORTANCE_NEWEST) {
        m->relief_due = true;
        return AG_OK;
    }
    return ag_manager_evict(m, m->live, position, AG_EVICTION_MEMORY, err);
}

/* ---- what is pending ---- */

static ag_status continue_scores(ag_cache_manager *m, ag_error *err) {
    ag_pending_scores *p = &m->scores;
    if (!p->is_pending) return AG_OK;
    AG_TRY(ag_importance_normalise(&m->tmp, m->sums, &m->params, m->cache, p->position, p->n_window,
                                   &p->layer, err));
    p->is_pending = false;
    return AG_OK;
}

ag_status ag_cache_manager_settle(ag_cache_manager *m, ag_error *err) {
    if (!m) return AG_OK;
    AG_TRY(ag_score_sums_flush(m->sums, err));
    AG_TRY(continue_scores(m, err));
    return ag_manager_continue_eviction(m, err);
}

/* ---- around a pass ---- */

ag_status ag_cache_manager_begin(ag_cache_manager *m, ag_phase phase, size_t n, ag_error *err) {
    if (!m) return AG_OK;
    AG_TRY(ag_cache_manager_settle(m, err));
    m->last = (ag_eviction_stats){0};
    m->stage = phase == AG_PHASE_VERIFY ? AG_STAGE_VERIFY : AG_STAGE_DECODE;
    m->n_begun = n;
    if (phase != AG_PHASE_PROMPT) return AG_OK;
    if (m->refuse) {
        return AG_FAIL(
            err, NOMEM,
            "prompt of %zu tokens: the system is short of memory, the cache holds only %u", n,
            ag_kv_cache_length(m->cache));
    }
    const uint32_t max_slots = ag_kv_cache_params(m->cache)->max_slots;
    const ag_kv_prefill how = m->params.prefill;
    const bool fits = n <= ag_kv_cache_free_slots(m->cache);
    if (how == AG_KV_PREFILL_WHOLE && !fits) {
        return AG_FAIL(err, LIMIT,
                       "a prefill of %zu tokens as a whole does not fit: %u of %u are used "
                       "(max_seq_len)",
                       n, ag_kv_cache_length(m->cache), max_slots);
    }
    bool whole = how == AG_KV_PREFILL_WHOLE ||
                 (how == AG_KV_PREFILL_AUTO && m->params.policy->whole_prefill && fits);
    m->stage = whole ? AG_STAGE_PROMPT_WHOLE : AG_STAGE_PROMPT_BOUNDED;
    return AG_OK;
}

/* Rows of a prompt's next pass where only the budget limits them. */
static size_t bounded_chunk(const ag_cache_manager *m, size_t n_left, size_t chunk) {
    if (m->stage != AG_STAGE_PROMPT_BOUNDED) return smaller(n_left, chunk);
    const ag_eviction_policy *policy = m->params.policy;
    const size_t n_slots = fullest(m), budget = m->live;
    size_t most = smaller(chunk, ag_kv_cache_params(m->cache)->max_slots - m->budget);
    size_t block = policy->prefill_block ? smaller(most, policy->prefill_block) : most;
    const size_t free = budget > n_slots ? budget - n_slots : 0;
    size_t n = smaller(free < block ? block : free, chunk); /* below the budget at any pace */
    if (n_slots > budget) n = budget + block > n_slots ? budget + block - n_slots : 1;
    if (m->lengths != AG_HEADS_EVEN) n = smaller(n, ag_kv_cache_free_slots(m->cache));
    /* The end of the prompt, which says what is asked, looks for what has been spilled. */
    const bool asks = !ag_spill_is_empty(m->spill) && n_left > AG_RECALL_ROWS;
    if (asks && n_left - smaller(n, n_left) < AG_RECALL_ROWS) return n_left - AG_RECALL_ROWS;
    if (n >= n_left) return n_left;
    /* Queries whose weights decide come in one piece. */
    size_t window = policy->importance == AG_IMPORTANCE_WINDOW ? m->params.snapkv_window : 0;
    if (n_left - n < window && n_left > window) n = n_left - window;
    return n;
}

size_t ag_cache_manager_chunk(ag_cache_manager *m, uint32_t position, size_t n_left, size_t chunk) {
    if (!m) return smaller(n_left, chunk);
    (void)ag_cache_manager_settle(m, NULL); /* if it fails, so does the step that follows */
    const size_t n = bounded_chunk(m, n_left, chunk);
    return n < n_left ? ag_chunk_scores_cut(m->chunks, position, n) : n;
}

/* Slots that distance makes useless to the last token of the pass leave before it. */
static ag_status drop_expired(ag_cache_manager *m, uint32_t last, ag_error *err) {
    if (last < m->trained) return AG_OK;
    if (m->oldest == UINT32_MAX) {
        m->oldest = ag_kv_cache_oldest(m->cache, ag_kv_cache_protected(m->cache), m->trained);
        if (m->oldest == UINT32_MAX) return AG_OK;
    }
    if (last - m->oldest < m->trained) return AG_OK;
    return ag_manager_evict(m, UINT32_MAX, last, AG_EVICTION_TRAINED, err);
}

/* Which rows' weights are wanted, of a pass of n rows that n_left more follow. */
static size_t first_scored_row(const ag_cache_manager *m, size_t n, size_t n_left) {
    if (m->stage == AG_STAGE_VERIFY) return n;
    size_t window = m->params.snapkv_window;
    switch (m->params.policy->importance) {
    case AG_IMPORTANCE_NEWEST:
        return m->due ? n - 1 : n;
    case AG_IMPORTANCE_TOTAL:
        return m->stage == AG_STAGE_DECODE ? 0 : n - smaller(n, window);
    case AG_IMPORTANCE_WINDOW:
        if (m->stage == AG_STAGE_DECODE ||
            (m->stage == AG_STAGE_PROMPT_BOUNDED && !m->due && n_left))
            return n;
        if (m->stage == AG_STAGE_PROMPT_BOUNDED) return n - smaller(n, window);
        if (n_left >= window) return n;
        return n - smaller(n, window - n_left);
    case AG_IMPORTANCE_NONE:
    case AG_IMPORTANCE_KEYS:
    case AG_IMPORTANCE_CHUNK:
        break;
    }
    return n;
}

/* The pass begins a new sum rather than adding to one. */
static bool starts_sum(const ag_cache_manager *m, size_t n, size_t n_left) {
    if (m->params.policy->importance == AG_IMPORTANCE_TOTAL) return false;
    if (m->stage != AG_STAGE_PROMPT_WHOLE) return true;
    size_t window = m->params.snapkv_window;
    return m->params.policy->importance == AG_IMPORTANCE_NEWEST || n + n_left >= window ||
           n + n_left == m->n_begun;
}

/* What earlier passes left due leaves before tokens that may be taken back. A policy that asks the
 * newest query waits for one as long as they fit. */
static ag_status catch_up(ag_cache_manager *m, uint32_t position, size_t n, ag_error *err) {
    const bool newest = m->params.policy->importance == AG_IMPORTANCE_NEWEST;
    const bool fits = n <= ag_kv_cache_free_slots(m->cache);
    if (fits && (newest || fullest(m) <= m->live + m->slack)) return AG_OK;
    return ag_manager_evict(m, m->live, position, AG_EVICTION_BUDGET, err);
}

/* A chunk ends at the latest where slots leave. */
static void want_chunks(ag_cache_manager *m, uint32_t position, size_t n, size_t n_left,
                        ag_attention_scores *scores) {
    ag_score_sums_begin(m->sums, n, false);
    if (m->stage == AG_STAGE_DECODE || m->stage == AG_STAGE_VERIFY) return;
    const bool adds = ag_chunk_scores_begin(m->chunks, position, n, n_left, m->due || !n_left);
    if (adds) *scores = ag_score_sums_want(m->sums, 0);
    scores->sums = m->sums;
    scores->chunks = m->chunks;
}

/* Only the end of a prompt, and tokens that are decoded, bring back what was spilled. */
static void want_recall(ag_cache_manager *m, uint32_t last, size_t n, size_t n_left, bool sums_anew,
                        ag_attention_scores *scores) {
    const uint64_t distance = (uint64_t)last + m->slack;
    if (distance >= m->trained) ag_spill_expire(m->spill, (uint32_t)(distance - m->trained + 1));
    if (ag_spill_is_empty(m->spill) || m->stage == AG_STAGE_VERIFY || n_left) return;
    /* Of heads that hold different numbers of slots nobody knows how many each may have. */
    const bool even = m->lengths == AG_HEADS_EVEN && !ag_manager_heads_share(m);
    const ag_recall_pass pass = {
        .sums = m->sums,
        .sums_anew = sums_anew,
        .n_rows = (uint32_t)n,
        .recent = m->recent,
        .n_slots = even ? m->live : 0,
        .many = m->stage != AG_STAGE_DECODE,
    };
    ag_recall_begin(m->recall, &pass);
    m->oldest = UINT32_MAX;
    scores->recall = m->recall;
}

ag_status ag_cache_manager_before(ag_cache_manager *m, uint32_t position, size_t n, size_t n_left,
                                  ag_attention_scores *scores, ag_error *err) {
    *scores = (ag_attention_scores){0};
    if (!m) return AG_OK;
    uint32_t last = position + (uint32_t)n - 1;
    m->n_pass = n;
    AG_TRY(ag_cache_manager_settle(m, err));
    AG_TRY(expire(m, position, err));
    AG_TRY(relieve(m, position, err));
    AG_TRY(drop_expired(m, last, err));
    AG_TRY(ag_kv_cache_rerotate(m->cache, m->rope, last, m->trained, err));
    if (m->stage == AG_STAGE_VERIFY) AG_TRY(catch_up(m, position, n, err));
    size_t limit = m->stage == AG_STAGE_DECODE ? m->live + m->slack : m->live;
    m->due = fullest(m) + n > limit && !(m->stage == AG_STAGE_PROMPT_WHOLE && n_left);
    if (m->relief_due) m->due = true;
    if (m->chunks) want_chunks(m, position, n, n_left, scores);
    size_t row0 = first_scored_row(m, n, n_left);
    const bool anew = row0 < n && starts_sum(m, n, n_left);
    if (m->sums && !m->chunks) {
        ag_score_sums_begin(m->sums, n, anew);
        if (row0 < n) *scores = ag_score_sums_want(m->sums, row0);
    }
    want_recall(m, last, n, n_left, anew, scores);
    return AG_OK;
}

size_t ag_cache_manager_verifiable(const ag_cache_manager *m, uint32_t position, size_t n) {
    if (!m) return n;
    const uint64_t limit = (uint64_t)m->live + m->slack, n_slots = fullest(m);
    if (m->params.policy->importance == AG_IMPORTANCE_TOTAL || m->relief_due) return 1;
    if (!ag_spill_is_empty(m->spill)) return 1; /* each asks for itself what is to come back */
    if (n_slots + n > limit) n = n_slots < limit ? (size_t)(limit - n_slots) : 1;
    return (uint64_t)position + n <= m->trained ? n : 1;
}

void ag_cache_manager_after(ag_cache_manager *m, uint32_t position, size_t n_left) {
    if (!m || m->stage == AG_STAGE_VERIFY) return;
    if (!ag_spill_is_empty(m->spill)) m->oldest = UINT32_MAX;
    ag_chunk_scores_end(m->chunks);
    bool end =
        m->stage != AG_STAGE_DECODE && (!n_left || (m->stage == AG_STAGE_PROMPT_BOUNDED && m->due));
    if (m->params.policy->importance == AG_IMPORTANCE_WINDOW && end) {
        const size_t n = m->stage == AG_STAGE_PROMPT_WHOLE ? m->n_begun : m->n_pass;
        m->scores = (ag_pending_scores){.is_pending = true,
                                        .position = position,
                                        .n_window = (uint32_t)smaller(n, m->params.snapkv_window)};
    }
    if (m->due) {
        ag_manager_plan_eviction(m, m->live, position,
                                 m->relief_due ? AG_EVICTION_MEMORY : AG_EVICTION_BUDGET);
        m->relief_due = false;
    }
    if (ag_cache_manager_settle(m, NULL) == AG_OK) (void)expire(m, position, NULL);
}
