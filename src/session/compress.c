/* SPDX-License-Identifier: Apache-2.0 */
/* Compression: retains the slots that the model needs to repeat the session's text. */
#include "cache/eviction/select.h"
#include "cache/saved_state.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "session/replay.h"

#include <math.h>

ag_compress_params ag_compress_defaults(void) {
    return (ag_compress_params){.replay = 1, .chunk = 2048, .sinks = 4};
}

static ag_status check_params(const ag_session *s, const int32_t *ids, size_t n_ids,
                              const ag_compress_params *p, ag_error *err) {
    if (!s->position || n_ids != s->position) {
        return AG_FAIL(
            err, INVALID,
            "compression: n_ids is %zu: it must be %u, the tokens that the session has consumed",
            n_ids, s->position);
    }
    if (s->prompt_remaining) {
        return AG_FAIL(err, INVALID,
                       "compression: the prompt is incomplete: %zu tokens have not been fed",
                       s->prompt_remaining);
    }
    if (!(p->replay > 0 && p->replay <= 1)) {
        return AG_FAIL(err, INVALID, "compression: replay is %g: it must be above 0 and at most 1",
                       (double)p->replay);
    }
    if (!(p->keep_ratio >= 0 && p->keep_ratio <= 1) || (p->keep_ratio == 0 && !p->keep_tokens)) {
        return AG_FAIL(err, INVALID,
                       "compression: keep_ratio is %g, keep_tokens %u: one must be positive, and "
                       "the ratio at most 1",
                       (double)p->keep_ratio, p->keep_tokens);
    }
    if (p->chunk && p->chunk < AG_REPLAY_MIN_CHUNK) {
        return AG_FAIL(err, INVALID,
                       "compression: chunk is %u: it must be 0 (default) or at least %d", p->chunk,
                       AG_REPLAY_MIN_CHUNK);
    }
    if (s->state) {
        return AG_FAIL(err, UNSUPPORTED,
                       "compression: layers with a state cannot be truncated after a replay");
    }
    const int32_t *lists[] = {ids, p->instruction, p->instruction_next, p->suffix};
    const size_t sizes[] = {n_ids, p->n_instruction, p->n_instruction_next, p->n_suffix};
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < sizes[k]; i++) {
            if (lists[k][i] >= 0 && (uint32_t)lists[k][i] < s->model->info.n_vocab) continue;
            return AG_FAIL(err, INVALID, "compression: token id %d is outside the vocabulary of %u",
                           lists[k][i], s->model->info.n_vocab);
        }
    }
    return AG_OK;
}

/* ---- selection ---- */

/* Returns how many slots of all heads to retain. */
static size_t target_slots(const ag_compress_params *p, const ag_slot_scores *scores) {
    const size_t all = scores->first[scores->n_heads];
    size_t n = all;
    if (p->keep_ratio != 0) n = all - (size_t)((double)all * (1 - (double)p->keep_ratio));
    if (p->keep_tokens && p->keep_tokens < n / scores->n_scored_heads) {
        n = p->keep_tokens * scores->n_scored_heads;
    }
    return n ? n : 1;
}

/* Ranks attention sinks, protected and newest tokens first. Returns the number of their slots. */
static size_t force_protected(const ag_session *s, const ag_compress_params *p,
                              ag_slot_scores *scores) {
    const uint32_t n_protected = ag_kv_cache_protected(s->cache);
    const uint32_t first = p->sinks > n_protected ? p->sinks : n_protected;
    const uint32_t newest = p->recent < s->position ? s->position - p->recent : 0;
    size_t forced = 0;
    for (size_t head = 0; head < scores->n_heads; head++) {
        const uint32_t l = scores->layer[head];
        const uint32_t h = (uint32_t)(head - ag_kv_cache_first_head(s->cache, l));
        float *of = scores->of + scores->first[head];
        for (uint32_t i = 0; i < scores->first[head + 1] - scores->first[head]; i++) {
            const uint32_t at = ag_kv_cache_position(s->cache, l, h, i);
            if (isnan(of[i])) of[i] = -INFINITY;
            if (at >= first && at < newest) continue;
            of[i] = INFINITY;
            forced++;
        }
    }
    return forced;
}

/* ---- application ---- */

/* Copies of the session's parts. They replace the originals when nothing can fail any more. */
typedef struct compressed {
    ag_kv_cache *cache;  /* owned */
    ag_score_sums *sums; /* owned; NULL: the policy needs none */
} compressed;

static ag_status copy_session(ag_session *s, compressed *c, ag_error *err) {
    ag_score_sums *sums = ag_cache_manager_sums(s->manager);
    AG_TRY(ag_kv_cache_fork(s->cache, &c->cache, err));
    if (!sums) return AG_OK;
    AG_TRY(ag_score_sums_create_for(c->cache, &c->sums, err));
    return ag_score_sums_copy(c->sums, sums, err);
}

/* retained[n]: ascending slot numbers, counted over all heads. Overwrites them. */
static ag_status compact_heads(const compressed *c, const ag_slot_scores *scores,
                               uint32_t *retained, size_t n, ag_error *err) {
    size_t at = 0;
    for (size_t head = 0; head < scores->n_heads; head++) {
        const size_t first = scores->first[head], end = scores->first[head + 1];
        const uint32_t l = scores->layer[head];
        const uint32_t h = (uint32_t)(head - ag_kv_cache_first_head(c->cache, l));
        uint32_t *own = retained + at, n_own = 0;
        for (; at < n && retained[at] < end; at++) own[n_own++] = (uint32_t)(retained[at] - first);
        if (n_own < end - first) {
            AG_TRY(ag_score_sums_fetch(c->sums, l, err));
            AG_TRY(ag_kv_compact_head(c->cache, l, h, own, n_own, err));
            ag_score_sums_compact(c->sums, l, h, own, n_own);
        }
        const bool last = head + 1 == scores->n_heads || scores->layer[head + 1] != l;
        if (last) AG_TRY(ag_score_sums_store(c->sums, l, false, err));
    }
    ag_kv_trim_pools(c->cache);
    return AG_OK;
}

/* Retains the listed slots in copies of cache and sums, then swaps the copies in. */
static ag_status apply(ag_session *s, const ag_slot_scores *scores, uint32_t *retained, size_t n,
                       ag_error *err) {
    compressed c = {0};
    ag_status st = copy_session(s, &c, err);
    if (st == AG_OK) st = compact_heads(&c, scores, retained, n, err);
    if (st == AG_OK) {
        ag_kv_cache_swap(s->cache, c.cache);
        ag_cache_manager_compressed(s->manager, &c.sums);
        s->is_ragged = true;
    }
    ag_score_sums_destroy(c.sums);
    ag_kv_cache_destroy(c.cache);
    return st;
}

/* Retains the n slots with the highest scores. */
static ag_status retain_best(ag_session *s, const ag_slot_scores *scores, size_t n, ag_error *err) {
    const size_t all = scores->first[scores->n_heads];
    uint32_t *retained = ag_calloc(all, sizeof *retained), *work = ag_calloc(all, sizeof *work);
    const ag_eviction_view view = {.n_slots = (uint32_t)all, .work = work};
    ag_status st = retained && work ? AG_OK : AG_FAIL(err, NOMEM, "list of %zu slots", all);
    if (st == AG_OK) {
        ag_evict_select(&view, scores->of, 0, (uint32_t)n, retained);
        st = apply(s, scores, retained, n, err);
    }
    ag_free(retained);
    ag_free(work);
    return st;
}

static ag_status compress(ag_session *s, const int32_t *ids, const ag_compress_params *p,
                          ag_slot_scores *scores, ag_compress_report *report, ag_error *err) {
    const size_t all = scores->first[scores->n_heads],
                 bytes = ag_kv_cache_memory_usage_bytes(s->cache);
    size_t n = target_slots(p, scores);
    report->n_heads = scores->n_scored_heads;
    report->n_before = report->n_kept = all;
    if (n >= all) return AG_OK;
    AG_TRY(ag_session_replay(s, ids, p, scores, &report->n_replayed, err));
    const size_t forced = force_protected(s, p, scores);
    if (n < forced) n = forced;
    if (n < all) AG_TRY(retain_best(s, scores, n, err));
    const size_t left = ag_kv_cache_memory_usage_bytes(s->cache);
    report->n_kept = n;
    report->bytes_returned = left < bytes ? bytes - left : 0;
    return AG_OK;
}

ag_status ag_session_compress(ag_session *s, const int32_t *ids, size_t n_ids,
                              const ag_compress_params *params, ag_compress_report *out,
                              ag_error *err) {
    ag_compress_report unasked, *report = out ? out : &unasked;
    ag_slot_scores scores;
    const double begin = ag_now_s();
    *report = (ag_compress_report){0};
    AG_TRY(check_params(s, ids, n_ids, params, err));
    AG_TRY(ag_session_settle(s, err));
    AG_TRY(ag_session_fetch_logits(s, err));
    AG_TRY(ag_slot_scores_create(s, &scores, err));
    const ag_status st = compress(s, ids, params, &scores, report, err);
    if (st == AG_CANCELLED) atomic_store(&s->cancelled, false);
    ag_slot_scores_release(&scores);
    report->seconds = ag_now_s() - begin;
    return st;
}

/* ---- head maxima ---- */

static float head_maximum(const ag_session *s, const ag_slot_scores *scores, size_t head,
                          uint32_t sinks) {
    const uint32_t l = scores->layer[head];
    const uint32_t h = (uint32_t)(head - ag_kv_cache_first_head(s->cache, l));
    const float *of = scores->of + scores->first[head];
    float max = 0;
    for (uint32_t i = 0; i < scores->first[head + 1] - scores->first[head]; i++) {
        if (ag_kv_cache_position(s->cache, l, h, i) >= sinks && of[i] > max) max = of[i];
    }
    return max;
}

ag_status ag_session_head_maxima(ag_session *s, const int32_t *ids, size_t n_ids,
                                 const ag_compress_params *params, float *maxima, size_t n,
                                 ag_error *err) {
    const size_t n_heads = ag_kv_totals_of(ag_kv_cache_params(s->cache)).heads;
    ag_compress_params p = *params;
    ag_slot_scores scores;
    size_t n_replayed;
    p.keep_ratio = 1;
    if (n != n_heads)
        return AG_FAIL(err, INVALID, "n is %zu: it must be %zu, the number of heads", n, n_heads);
    AG_TRY(check_params(s, ids, n_ids, &p, err));
    AG_TRY(ag_session_settle(s, err));
    AG_TRY(ag_session_fetch_logits(s, err));
    AG_TRY(ag_slot_scores_create(s, &scores, err));
    const ag_status st = ag_session_replay(s, ids, &p, &scores, &n_replayed, err);
    for (size_t h = 0; st == AG_OK && h < n; h++) maxima[h] = head_maximum(s, &scores, h, p.sinks);
    if (st == AG_CANCELLED) atomic_store(&s->cancelled, false);
    ag_slot_scores_release(&scores);
    return st;
}
