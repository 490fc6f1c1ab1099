/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache_manager_impl.h"
#include "cache/eviction/policies.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static uint32_t fullest(const ag_cache_manager *m) {
    const ag_head_limits limits = ag_evictor_limits(&m->evictor);
    return ag_heads_fullest(&limits, m->live);
}

static const ag_importance_traits *traits_of(const ag_cache_manager *m) {
    return ag_importance_traits_of(m->evictor.params.policy);
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
    const uint32_t free_slots = kv->max_slots - budget - 1;
    const uint32_t slack = p->slack < free_slots ? p->slack : free_slots;
    m->budget = m->live = budget;
    ag_status st = ag_evictor_init(&m->evictor, cache, p, rope, trained, slack, err);
    if (st == AG_OK) st = ag_chunk_scores_create(p, cache, &m->chunks, err);
    if (st == AG_OK) st = ag_reloader_create(cache, m->evictor.spill, &m->reloader, err);
    if (st == AG_OK) st = ag_pressure_watch_init(&m->watch, &p->memory, err);
    if (st == AG_OK) *out = m;
    else ag_cache_manager_destroy(m);
    return st;
}

void ag_cache_manager_destroy(ag_cache_manager *m) {
    if (!m) return;
    ag_chunk_scores_destroy(m->chunks);
    ag_reloader_destroy(m->reloader);
    ag_pressure_watch_release(&m->watch);
    ag_evictor_release(&m->evictor);
    ag_free(m);
}

static void discard_pending(ag_cache_manager *m) {
    m->scores.is_pending = m->evictor.pending.is_pending = false;
}

void ag_cache_manager_reset(ag_cache_manager *m) {
    if (!m) return;
    ag_evictor *e = &m->evictor;
    e->oldest = UINT32_MAX;
    ag_cache_manager_set_ragged(m, false);
    ag_score_sums_set_position(e->sums, 0);
    ag_chunk_scores_truncate(m->chunks, 0);
    ag_spill_clear(e->spill);
    m->pressure_eviction_pending = false;
    discard_pending(m);
    ag_turns_truncate(&e->turns, 0);
    e->total = e->last = (ag_eviction_stats){0};
}

void ag_cache_manager_abandon(ag_cache_manager *m) {
    if (m) ag_score_sums_abandon(m->evictor.sums);
}

/* Sums are stored per slot, and new slots begin at 0. */
void ag_cache_manager_truncate(ag_cache_manager *m, uint32_t position) {
    if (!m) return;
    ag_evictor *e = &m->evictor;
    e->oldest = UINT32_MAX;
    if (!position) ag_cache_manager_set_ragged(m, false);
    if (!position) discard_pending(m);
    ag_turns_truncate(&e->turns, position);
    ag_score_sums_truncate(e->sums, position);
    ag_chunk_scores_truncate(m->chunks, position);
    ag_spill_truncate(e->spill, position);
}

ag_status ag_cache_manager_copy(ag_cache_manager *to, ag_cache_manager *from, ag_error *err) {
    if (!to || !from) return AG_OK;
    if (to->evictor.params.policy == from->evictor.params.policy) {
        AG_TRY(ag_score_sums_copy(to->evictor.sums, from->evictor.sums, err));
        AG_TRY(ag_chunk_scores_copy(to->chunks, from->chunks, err));
    }
    AG_TRY(ag_turns_copy(&to->evictor.turns, &from->evictor.turns, err));
    if (ag_evictor_heads_share(&to->evictor) && ag_evictor_heads_share(&from->evictor))
        ag_evictor_set_lengths(&to->evictor, from->evictor.lengths);
    AG_TRY(ag_spill_copy(to->evictor.spill, from->evictor.spill, err));
    to->evictor.oldest = from->evictor.oldest;
    /* Memory that limits a budget must not raise another budget. */
    if (from->live < from->budget && from->live < to->live) to->live = from->live;
    ag_pressure_watch_copy(&to->watch, &from->watch);
    to->pressure_eviction_pending = from->pressure_eviction_pending;
    return AG_OK;
}

size_t ag_cache_manager_plan_bytes(const ag_eviction_params *p, const ag_kv_params *kv,
                                   size_t query_values) {
    if (!ag_eviction_is_managed(p)) return 0;
    return sizeof(ag_cache_manager) + kv->n_layers * sizeof(ag_rope_table) +
           ag_spill_plan_bytes(p->spill, kv) + ag_reloader_plan_bytes(p->spill, kv) +
           ag_score_sums_bytes(p->policy, kv) + ag_chunk_scores_bytes(p, kv, query_values) +
           ag_eviction_scratch_bytes(p, kv) + ag_kv_unrotated_bytes(kv);
}

ag_spill *ag_cache_manager_spill(const ag_cache_manager *m) { return m ? m->evictor.spill : NULL; }
ag_score_sums *ag_cache_manager_sums(ag_cache_manager *m) { return m ? m->evictor.sums : NULL; }

static void swap_sums(ag_evictor *e, ag_score_sums **sums) {
    ag_score_sums *old = e->sums;
    e->sums = *sums;
    *sums = old;
    ag_score_sums_set_cache(e->sums, e->cache);
}

void ag_cache_manager_restore(ag_cache_manager *m, ag_score_sums **sums, ag_turns *turns,
                              ag_spill **spill) {
    if (!m) return;
    ag_evictor *e = &m->evictor;
    ag_cache_manager_reset(m);
    swap_sums(e, sums);
    const ag_turns old_turns = e->turns;
    e->turns = *turns;
    *turns = old_turns;
    if (!e->spill) return;
    ag_spill *old_spill = e->spill;
    e->spill = *spill;
    *spill = old_spill;
    ag_reloader_set_spill(m->reloader, e->spill);
    e->params.spill = ag_spill_params_of(e->spill);
}

void ag_cache_manager_set_ragged(ag_cache_manager *m, bool is_ragged) {
    if (!m) return;
    ag_evictor *e = &m->evictor;
    const ag_head_limits limits = ag_evictor_limits(e);
    const bool in_layers = ag_evictor_heads_share(e) && ag_heads_layers_are_equal(&limits);
    if (!is_ragged) ag_evictor_set_lengths(e, AG_HEADS_EVEN);
    else if (e->lengths == AG_HEADS_EVEN)
        ag_evictor_set_lengths(e, in_layers ? AG_HEADS_RAGGED_IN_LAYER : AG_HEADS_RAGGED);
}

bool ag_cache_manager_is_ragged(const ag_cache_manager *m) {
    return m && m->evictor.lengths != AG_HEADS_EVEN;
}

void ag_cache_manager_compressed(ag_cache_manager *m, ag_score_sums **sums) {
    if (!m) return;
    ag_evictor *e = &m->evictor;
    swap_sums(e, sums);
    e->oldest = UINT32_MAX;
    ag_evictor_set_lengths(e, AG_HEADS_RAGGED);
}

ag_status ag_cache_manager_begin_turn(ag_cache_manager *m, uint32_t position, ag_error *err) {
    return m ? ag_turns_add(&m->evictor.turns, position, err) : AG_OK;
}

const ag_turns *ag_cache_manager_turns(const ag_cache_manager *m) {
    return m ? &m->evictor.turns : NULL;
}

void ag_cache_manager_prefix_shrank(ag_cache_manager *m) {
    if (m) m->evictor.oldest = UINT32_MAX;
}

uint32_t ag_cache_manager_budget(const ag_cache_manager *m) { return m->budget; }
const ag_eviction_stats *ag_cache_manager_stats(const ag_cache_manager *m) {
    return &m->evictor.total;
}
const ag_eviction_stats *ag_cache_manager_last_stats(const ag_cache_manager *m) {
    return &m->evictor.last;
}

/* ---- memory ---- */

void ag_cache_manager_hint(ag_cache_manager *m, ag_pressure level) {
    if (m) ag_pressure_watch_hint(&m->watch, level);
}

ag_pressure ag_cache_manager_pressure(const ag_cache_manager *m) {
    return m ? m->watch.state.level : AG_PRESSURE_NORMAL;
}

ag_status ag_cache_manager_evict(ag_cache_manager *m, uint32_t budget, uint32_t position,
                                 ag_eviction_reason reason, ag_error *err) {
    AG_TRY(ag_cache_manager_settle(m, err));
    ag_evictor_plan(&m->evictor, budget, position, reason, m->watch.state.level);
    return ag_evictor_continue(&m->evictor, err);
}

/* Reads the system's memory at intervals. Returns whether the cache must shrink to m->live now. */
static bool must_shrink(ag_cache_manager *m) {
    ag_evictor *e = &m->evictor;
    const uint32_t min_slots = ag_evictor_min_slots(e);
    if (!ag_pressure_watch_is_due(&m->watch)) return false;
    const bool is_minimal = fullest(m) <= min_slots + e->slack;
    const size_t bytes = ag_kv_cache_memory_usage_bytes(e->cache);
    const ag_pressure_decision d =
        ag_pressure_watch_decide(&m->watch, bytes, is_minimal ? bytes : 0);
    if (m->watch.state.level == AG_PRESSURE_NORMAL) m->live = m->budget;
    if (!d.evict) return false;
    uint32_t n = ag_eviction_tokens_in(ag_kv_cache_params(e->cache), d.target_bytes);
    if (n < min_slots) n = min_slots;
    if (n < m->live) m->live = n;
    return fullest(m) > m->live;
}

/* Evicts under memory pressure. A policy of the newest query waits for the query of the next
 * pass. */
static ag_status relieve_pressure(ag_cache_manager *m, uint32_t position, ag_error *err) {
    if (!m->watch.params.threshold_bytes || !must_shrink(m)) return AG_OK;
    if (traits_of(m)->of_newest_query) {
        m->pressure_eviction_pending = true;
        return AG_OK;
    }
    return ag_cache_manager_evict(m, m->live, position, AG_EVICTION_MEMORY, err);
}

/* ---- pending work ---- */

static ag_status continue_scores(ag_cache_manager *m, ag_error *err) {
    ag_evictor *e = &m->evictor;
    ag_pending_scores *p = &m->scores;
    if (!p->is_pending) return AG_OK;
    AG_TRY(ag_importance_normalise(&e->scratch, e->sums, &e->params, e->cache, p->position,
                                   p->n_window, &p->layer, err));
    p->is_pending = false;
    return AG_OK;
}

ag_status ag_cache_manager_settle(ag_cache_manager *m, ag_error *err) {
    if (!m) return AG_OK;
    AG_TRY(ag_score_sums_flush(m->evictor.sums, err));
    AG_TRY(continue_scores(m, err));
    return ag_evictor_continue(&m->evictor, err);
}

/* ---- around a pass ---- */

ag_status ag_cache_manager_begin(ag_cache_manager *m, ag_phase phase, size_t n, ag_error *err) {
    if (!m) return AG_OK;
    ag_evictor *e = &m->evictor;
    AG_TRY(ag_cache_manager_settle(m, err));
    e->last = (ag_eviction_stats){0};
    m->phase = phase == AG_PHASE_VERIFY ? AG_MANAGER_VERIFY : AG_MANAGER_DECODE;
    m->n_begun = n;
    if (phase != AG_PHASE_PROMPT) return AG_OK;
    if (m->watch.refuse) {
        return AG_FAIL(
            err, NOMEM,
            "prompt of %zu tokens: the system is short of memory, the cache holds only %u", n,
            ag_kv_cache_length(e->cache));
    }
    const uint32_t max_slots = ag_kv_cache_params(e->cache)->max_slots;
    const ag_kv_prefill prefill = e->params.prefill;
    const bool fits = n <= ag_kv_cache_free_slots(e->cache);
    if (prefill == AG_KV_PREFILL_WHOLE && !fits) {
        return AG_FAIL(err, LIMIT,
                       "a prefill of %zu tokens in one piece does not fit: the cache holds %u of "
                       "%u (max_seq_len)",
                       n, ag_kv_cache_length(e->cache), max_slots);
    }
    bool whole = prefill == AG_KV_PREFILL_WHOLE ||
                 (prefill == AG_KV_PREFILL_AUTO && e->params.policy->whole_prefill && fits);
    m->phase = whole ? AG_MANAGER_PROMPT_WHOLE : AG_MANAGER_PROMPT_BOUNDED;
    return AG_OK;
}

/* Returns the rows of a prompt's next pass that the budget allows. */
static size_t bounded_chunk(const ag_cache_manager *m, size_t n_remaining, size_t chunk) {
    const ag_evictor *e = &m->evictor;
    if (m->phase != AG_MANAGER_PROMPT_BOUNDED) return smaller(n_remaining, chunk);
    const ag_eviction_policy *policy = e->params.policy;
    const size_t n_slots = fullest(m), budget = m->live;
    size_t max_rows = smaller(chunk, ag_kv_cache_params(e->cache)->max_slots - m->budget);
    size_t block = policy->prefill_block ? smaller(max_rows, policy->prefill_block) : max_rows;
    const size_t free = budget > n_slots ? budget - n_slots : 0;
    size_t n = smaller(free < block ? block : free,
                       chunk); /* below the budget the caller's chunk applies */
    if (n_slots > budget) n = budget + block > n_slots ? budget + block - n_slots : 1;
    if (e->lengths != AG_HEADS_EVEN) n = smaller(n, ag_kv_cache_free_slots(e->cache));
    /* The end of a prompt, which usually asks the question, selects the blocks to reload. */
    const bool reloads = !ag_spill_is_empty(e->spill) && n_remaining > AG_RELOAD_ROWS;
    if (reloads && n_remaining - smaller(n, n_remaining) < AG_RELOAD_ROWS)
        return n_remaining - AG_RELOAD_ROWS;
    if (n >= n_remaining) return n_remaining;
    /* All queries that decide about slots go into one pass. */
    size_t window = traits_of(m)->of_prompt_window ? e->params.snapkv_window : 0;
    if (n_remaining - n < window && n_remaining > window) n = n_remaining - window;
    return n;
}

size_t ag_cache_manager_chunk(ag_cache_manager *m, uint32_t position, size_t n_remaining,
                              size_t chunk) {
    if (!m) return smaller(n_remaining, chunk);
    (void)ag_cache_manager_settle(m, NULL); /* an error is reported by the step that follows */
    const size_t n = bounded_chunk(m, n_remaining, chunk);
    return n < n_remaining ? ag_chunk_scores_cut(m->chunks, position, n) : n;
}

/* Evicts slots that are farther from the pass's last token than the model was trained for. */
static ag_status drop_expired(ag_cache_manager *m, uint32_t last, ag_error *err) {
    ag_evictor *e = &m->evictor;
    if (last < e->trained) return AG_OK;
    if (e->oldest == UINT32_MAX) {
        e->oldest = ag_kv_cache_oldest(e->cache, ag_kv_cache_protected(e->cache), e->trained);
        if (e->oldest == UINT32_MAX) return AG_OK;
    }
    if (last - e->oldest < e->trained) return AG_OK;
    return ag_cache_manager_evict(m, UINT32_MAX, last, AG_EVICTION_TRAINED, err);
}

/* Returns the first row whose weights are collected, in a pass of n rows that n_remaining rows
 * follow. */
static size_t first_scored_row(const ag_cache_manager *m, size_t n, size_t n_remaining) {
    const ag_importance_traits *traits = traits_of(m);
    const size_t window = m->evictor.params.snapkv_window;
    if (m->phase == AG_MANAGER_VERIFY) return n;
    if (traits->of_newest_query) return m->eviction_pending ? n - 1 : n;
    if (traits->accumulates) return m->phase == AG_MANAGER_DECODE ? 0 : n - smaller(n, window);
    if (!traits->of_prompt_window || m->phase == AG_MANAGER_DECODE) return n;
    if (m->phase == AG_MANAGER_PROMPT_BOUNDED)
        return m->eviction_pending || !n_remaining ? n - smaller(n, window) : n;
    return n_remaining >= window ? n : n - smaller(n, window - n_remaining);
}

/* Returns whether the pass restarts the sums rather than adding to them. */
static bool starts_sum(const ag_cache_manager *m, size_t n, size_t n_remaining) {
    if (traits_of(m)->accumulates) return false;
    if (m->phase != AG_MANAGER_PROMPT_WHOLE) return true;
    size_t window = m->evictor.params.snapkv_window;
    return traits_of(m)->of_newest_query || n + n_remaining >= window ||
           n + n_remaining == m->n_begun;
}

/* Runs pending evictions before tokens that may be taken back. A policy of the newest query
 * waits for one as long as the tokens fit. */
static ag_status evict_before_verify(ag_cache_manager *m, uint32_t position, size_t n,
                                     ag_error *err) {
    const bool newest = traits_of(m)->of_newest_query;
    const bool fits = n <= ag_kv_cache_free_slots(m->evictor.cache);
    if (fits && (newest || fullest(m) <= m->live + m->evictor.slack)) return AG_OK;
    return ag_cache_manager_evict(m, m->live, position, AG_EVICTION_BUDGET, err);
}

/* Requests chunk scores. A chunk ends at the latest where slots are evicted. */
static void request_chunks(ag_cache_manager *m, uint32_t position, size_t n, size_t n_remaining,
                           ag_attention_scores *scores) {
    ag_evictor *e = &m->evictor;
    ag_score_sums_begin(e->sums, n, false);
    if (m->phase == AG_MANAGER_DECODE || m->phase == AG_MANAGER_VERIFY) return;
    const bool adds = ag_chunk_scores_begin(m->chunks, position, n, n_remaining,
                                            m->eviction_pending || !n_remaining);
    if (adds) *scores = ag_score_sums_request(e->sums, 0);
    scores->sums = e->sums;
    scores->chunks = m->chunks;
}

/* Requests the reload of spilled blocks, at the end of a prompt and for decoded tokens only. */
static void request_reload(ag_cache_manager *m, uint32_t last, size_t n, size_t n_remaining,
                           bool resets_sums, ag_attention_scores *scores) {
    ag_evictor *e = &m->evictor;
    const uint64_t distance = (uint64_t)last + e->slack;
    if (distance >= e->trained) ag_spill_expire(e->spill, (uint32_t)(distance - e->trained + 1));
    if (ag_spill_is_empty(e->spill) || m->phase == AG_MANAGER_VERIFY || n_remaining) return;
    /* The capacity of a single head is known only if all heads hold equally many slots. */
    const bool even = e->lengths == AG_HEADS_EVEN && !ag_evictor_heads_share(e);
    const ag_reload_pass pass = {
        .sums = e->sums,
        .resets_sums = resets_sums,
        .n_rows = (uint32_t)n,
        .recent = e->recent,
        .n_slots = even ? m->live : 0,
        .many = m->phase != AG_MANAGER_DECODE,
    };
    ag_reloader_begin(m->reloader, &pass);
    e->oldest = UINT32_MAX;
    scores->reloader = m->reloader;
}

ag_status ag_cache_manager_before(ag_cache_manager *m, uint32_t position, size_t n,
                                  size_t n_remaining, ag_attention_scores *scores, ag_error *err) {
    *scores = (ag_attention_scores){0};
    if (!m) return AG_OK;
    ag_evictor *e = &m->evictor;
    uint32_t last = position + (uint32_t)n - 1;
    m->n_pass = n;
    AG_TRY(ag_cache_manager_settle(m, err));
    AG_TRY(ag_kv_cache_expire_with(e->cache, position, e->sums, err));
    AG_TRY(relieve_pressure(m, position, err));
    AG_TRY(drop_expired(m, last, err));
    AG_TRY(ag_kv_cache_rerotate(e->cache, e->rope, last, e->trained, err));
    if (m->phase == AG_MANAGER_VERIFY) AG_TRY(evict_before_verify(m, position, n, err));
    size_t limit = m->phase == AG_MANAGER_DECODE ? m->live + e->slack : m->live;
    m->eviction_pending =
        fullest(m) + n > limit && !(m->phase == AG_MANAGER_PROMPT_WHOLE && n_remaining);
    if (m->pressure_eviction_pending) m->eviction_pending = true;
    if (m->chunks) request_chunks(m, position, n, n_remaining, scores);
    size_t row0 = first_scored_row(m, n, n_remaining);
    const bool resets = row0 < n && starts_sum(m, n, n_remaining);
    if (e->sums && !m->chunks) {
        ag_score_sums_begin(e->sums, n, resets);
        if (row0 < n) *scores = ag_score_sums_request(e->sums, row0);
    }
    request_reload(m, last, n, n_remaining, resets, scores);
    return AG_OK;
}

size_t ag_cache_manager_verifiable(const ag_cache_manager *m, uint32_t position, size_t n) {
    if (!m) return n;
    const ag_evictor *e = &m->evictor;
    const uint64_t limit = (uint64_t)m->live + e->slack, n_slots = fullest(m);
    if (traits_of(m)->accumulates || m->pressure_eviction_pending) return 1;
    if (!ag_spill_is_empty(e->spill)) return 1; /* each token selects its own blocks to reload */
    if (n_slots + n > limit) n = n_slots < limit ? (size_t)(limit - n_slots) : 1;
    return (uint64_t)position + n <= e->trained ? n : 1;
}

void ag_cache_manager_after(ag_cache_manager *m, uint32_t position, size_t n_remaining) {
    if (!m || m->phase == AG_MANAGER_VERIFY) return;
    ag_evictor *e = &m->evictor;
    if (!ag_spill_is_empty(e->spill)) e->oldest = UINT32_MAX;
    ag_chunk_scores_end(m->chunks);
    bool end = m->phase != AG_MANAGER_DECODE &&
               (!n_remaining || (m->phase == AG_MANAGER_PROMPT_BOUNDED && m->eviction_pending));
    if (traits_of(m)->of_prompt_window && end) {
        const size_t n = m->phase == AG_MANAGER_PROMPT_WHOLE ? m->n_begun : m->n_pass;
        m->scores = (ag_pending_scores){.is_pending = true,
                                        .position = position,
                                        .n_window = (uint32_t)smaller(n, e->params.snapkv_window)};
    }
    if (m->eviction_pending) {
        ag_evictor_plan(e, m->live, position,
                        m->pressure_eviction_pending ? AG_EVICTION_MEMORY : AG_EVICTION_BUDGET,
                        m->watch.state.level);
        m->pressure_eviction_pending = false;
    }
    if (ag_cache_manager_settle(m, NULL) == AG_OK)
        (void)ag_kv_cache_expire_with(e->cache, position, e->sums, NULL);
}
