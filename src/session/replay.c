/* SPDX-License-Identifier: Apache-2.0 */
#include "session/replay.h"

#include "cache/eviction/importance.h"
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 2048,
    CARRIED = 8, /* last tokens of a chunk that introduce the next one */
};

typedef struct replay {
    ag_session *s;
    const ag_compress_params *p;
    const int32_t *ids;
    uint32_t chunk;
    float *importance; /* owned; [position]; NULL: every token is replayed */
    int32_t *text;     /* owned; tokens to feed for a chunk */
    uint32_t n_text;
    uint32_t *retained, *work; /* owned; [slots or tokens of a chunk] scratch */
    ag_kv_cache *cache;        /* owned; fork with attention sinks, a chunk and its replay */
    ag_score_sums *sums;       /* owned; largest weights of its slots */
    uint32_t *until; /* owned; [n_heads] slots before the replay's own, which are scored */
    ag_slot_scores *out;
    size_t n_fed;
    uint64_t done, total;
} replay;

static bool has_window(const ag_kv_cache *c, uint32_t layer) {
    return ag_kv_cache_layer(c, layer)->window != 0;
}

/* ---- scores ---- */

ag_status ag_slot_scores_create(const ag_session *s, ag_slot_scores *out, ag_error *err) {
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    const size_t n_heads = ag_kv_totals_of(kv).heads;
    *out = (ag_slot_scores){.n_heads = n_heads};
    out->first = ag_calloc(n_heads + 1, sizeof *out->first);
    out->layer = ag_calloc(n_heads + 1, sizeof *out->layer);
    size_t head = 0;
    for (uint32_t l = 0; out->first && out->layer && l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < kv->layers[l].n_kv_heads; h++, head++) {
            const bool scored = !has_window(s->cache, l);
            const size_t n = scored ? ag_kv_cache_n_slots(s->cache, l, h) : 0;
            out->layer[head] = l;
            out->first[head + 1] = out->first[head] + n;
            out->n_scored_heads += scored;
        }
    }
    const size_t n = out->first ? out->first[n_heads] : 0;
    out->of = ag_calloc(n + 1, sizeof *out->of);
    ag_status st = AG_OK;
    if (!out->first || !out->layer || !out->of) {
        st = AG_FAIL(err, NOMEM, "scores of %zu slots", n);
    } else if (!out->n_scored_heads) {
        st = AG_FAIL(err, UNSUPPORTED, "replay: every layer of the model has a window");
    } else if (n > UINT32_MAX) {
        st = AG_FAIL(err, LIMIT,
                     "replay: the cache is too large: %zu slots, at most %u are possible", n,
                     UINT32_MAX);
    }
    if (st != AG_OK) ag_slot_scores_release(out);
    return st;
}

void ag_slot_scores_release(ag_slot_scores *scores) {
    ag_free(scores->first);
    ag_free(scores->layer);
    ag_free(scores->of);
    *scores = (ag_slot_scores){0};
}

/* ---- sizes ---- */

/* Returns the tokens that are fed before a chunk's own. */
static uint32_t n_context_tokens(const ag_compress_params *p) {
    const size_t next = p->n_instruction_next + CARRIED;
    return (uint32_t)((p->n_instruction > next ? p->n_instruction : next) + p->n_suffix);
}

/* Returns how many of a chunk's n tokens are replayed. */
static uint32_t n_repeated(const ag_compress_params *p, uint32_t n) {
    const double share = (double)p->replay * n;
    return p->replay >= 1 ? n : share < 1 ? 1 : (uint32_t)share;
}

/* Returns the tokens of a chunk. It is smaller than p->chunk if the cache's slots or the trained
 * positions do not hold a chunk and its replay; 0: not even a short chunk fits. */
static uint32_t chunk_tokens(const ag_session *s, const ag_compress_params *p) {
    const uint32_t slots = ag_kv_cache_params(s->cache)->max_slots;
    const uint32_t trained = s->model->info.max_positions;
    const uint32_t limit = slots < trained ? slots : trained;
    const uint64_t context = (uint64_t)p->sinks + n_context_tokens(p);
    uint32_t n = p->chunk ? p->chunk : CHUNK;
    while (n && context + n + n_repeated(p, n) > limit) {
        const uint64_t over = context + n + n_repeated(p, n) - limit;
        const uint64_t step = over / 2 ? over / 2 : 1;
        n = step < n ? n - (uint32_t)step : 0;
    }
    return n < AG_REPLAY_MIN_CHUNK && n < s->position ? 0 : n;
}

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* ---- choice of tokens ---- */

/* Adds the layer's key scores to the tokens of its slots. counts[i]: slots that hold token i. */
static ag_status add_layer(replay *r, ag_eviction_scratch *tmp, uint32_t layer, uint32_t *counts,
                           ag_error *err) {
    ag_kv_cache *c = r->s->cache;
    const size_t stride = ag_kv_cache_max_slots(c, layer);
    const ag_eviction_params keydiff = {.policy = &ag_eviction_keydiff};
    AG_TRY(ag_importance_of_layer(tmp, NULL, &keydiff, c, NULL, layer, 0, err));
    for (uint32_t h = 0; h < ag_kv_cache_layer(c, layer)->n_kv_heads; h++) {
        AG_TRY(ag_kv_cache_read_positions(c, layer, h, tmp->positions, err));
        for (uint32_t i = 0; i < ag_kv_cache_n_slots(c, layer, h); i++) {
            const float score = tmp->importance[h * stride + i];
            r->importance[tmp->positions[i]] += isnan(score) ? -1 : score;
            counts[tmp->positions[i]]++;
        }
    }
    return AG_OK;
}

/* Sets importance: the mean KeyDiff score of a token's keys over all heads that hold it; -INFINITY
 * if none does. */
static ag_status rank_tokens(replay *r, ag_error *err) {
    const uint32_t n = r->s->position;
    const ag_eviction_params keydiff = {.policy = &ag_eviction_keydiff};
    ag_eviction_scratch tmp = {0};
    uint32_t *counts = ag_calloc(n, sizeof *counts);
    r->importance = ag_calloc(n, sizeof *r->importance);
    ag_status st = counts && r->importance
                       ? ag_eviction_scratch_create(&tmp, &keydiff, r->s->cache, err)
                       : AG_FAIL(err, NOMEM, "importance of %u tokens", n);
    for (uint32_t l = 0; st == AG_OK && ag_kv_cache_layer(r->s->cache, l); l++) {
        if (!has_window(r->s->cache, l)) st = add_layer(r, &tmp, l, counts, err);
    }
    for (uint32_t i = 0; st == AG_OK && i < n; i++) {
        r->importance[i] = counts[i] ? r->importance[i] / (float)counts[i] : -INFINITY;
    }
    ag_eviction_scratch_release(&tmp);
    ag_free(counts);
    return st;
}

/* Writes the text to feed: the introduction, then the chunk's tokens to repeat. */
static void write_text(replay *r, uint32_t begin, uint32_t end) {
    const ag_compress_params *p = r->p;
    const int32_t *parts[] = {begin ? p->instruction_next : p->instruction,
                              r->ids + begin - (begin ? CARRIED : 0), p->suffix};
    const size_t sizes[] = {begin ? p->n_instruction_next : p->n_instruction, begin ? CARRIED : 0,
                            p->n_suffix};
    r->n_text = 0;
    for (int i = 0; i < 3; i++) {
        if (sizes[i]) memcpy(r->text + r->n_text, parts[i], sizes[i] * sizeof *r->text);
        r->n_text += (uint32_t)sizes[i];
    }
    const uint32_t n = end - begin, n_chosen = n_repeated(p, n);
    const ag_eviction_view view = {.n_slots = n, .work = r->work};
    if (r->importance) { ag_evict_select(&view, r->importance + begin, 0, n_chosen, r->retained); }
    for (uint32_t i = 0; i < n_chosen; i++) {
        const uint32_t at = begin + (r->importance ? r->retained[i] : i);
        if (r->importance && r->importance[at] == -INFINITY) continue; /* evicted from all heads */
        r->text[r->n_text++] = r->ids[at];
    }
}

/* ---- cache of a chunk ---- */

/* Returns the first slot of a head at `position` or later. */
static uint32_t slot_from(const ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t position) {
    uint32_t first = 0, end = ag_kv_cache_n_slots(c, layer, head);
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (ag_kv_cache_position(c, layer, head, middle) < position) first = middle + 1;
        else end = middle;
    }
    return first;
}

/* Slots of a head that a replay may attend to: [0, n_sinks) and [begin, end). */
typedef struct head_slots {
    uint32_t n_sinks, begin, end;
} head_slots;

static head_slots chunk_slots(const replay *r, uint32_t layer, uint32_t head, uint32_t begin,
                              uint32_t end) {
    const ag_kv_cache *c = r->s->cache;
    head_slots in = {.begin = slot_from(c, layer, head, begin),
                     .end = slot_from(c, layer, head, end)};
    in.n_sinks = smaller(slot_from(c, layer, head, r->p->sinks), in.begin);
    return in;
}

static ag_status restrict_head(replay *r, uint32_t layer, uint32_t head, const head_slots *in,
                               ag_error *err) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_sinks; i++) r->retained[n++] = i;
    for (uint32_t i = in->begin; i < in->end; i++) r->retained[n++] = i;
    return ag_kv_cache_compact(r->cache, layer, head, r->retained, n, err);
}

/* Forks the cache and retains what the replay of [begin, end) may attend to. Layers with a window
 * retain all slots before `start`. */
static ag_status fork_cache(replay *r, uint32_t begin, uint32_t end, uint32_t start,
                            ag_error *err) {
    AG_TRY(ag_kv_cache_fork(r->s->cache, &r->cache, err));
    uint32_t *until = r->until;
    for (uint32_t l = 0; ag_kv_cache_layer(r->cache, l); l++) {
        for (uint32_t h = 0; h < ag_kv_cache_layer(r->cache, l)->n_kv_heads; h++, until++) {
            head_slots in = chunk_slots(r, l, h, begin, end);
            if (has_window(r->cache, l)) {
                in = (head_slots){.end = slot_from(r->cache, l, h, start)};
            }
            AG_TRY(restrict_head(r, l, h, &in, err));
            *until = has_window(r->cache, l) ? 0 : ag_kv_cache_n_slots(r->cache, l, h);
        }
    }
    return ag_score_sums_create_for(r->cache, &r->sums, err);
}

static void drop_cache(replay *r) {
    ag_score_sums_destroy(r->sums);
    ag_kv_cache_destroy(r->cache);
    r->sums = NULL;
    r->cache = NULL;
}

/* Copies the largest weights to the scores of the chunk's slots. */
static ag_status store_scores(const replay *r, uint32_t begin, uint32_t end, ag_error *err) {
    size_t head = 0;
    for (uint32_t l = 0; ag_kv_cache_layer(r->cache, l); l++) {
        const uint32_t n_heads = ag_kv_cache_layer(r->cache, l)->n_kv_heads;
        if (!has_window(r->cache, l)) AG_TRY(ag_score_sums_fetch(r->sums, l, err));
        for (uint32_t h = 0; h < n_heads; h++, head++) {
            if (has_window(r->cache, l)) continue;
            const head_slots in = chunk_slots(r, l, h, begin, end);
            memcpy(r->out->of + r->out->first[head] + in.begin,
                   ag_score_sums_of(r->sums, l, h) + in.n_sinks,
                   (in.end - in.begin) * sizeof(float));
        }
    }
    return AG_OK;
}

/* ---- chunk ---- */

/* Returns whether any slot of the chunk is scored. */
static bool has_slots(const replay *r, uint32_t begin, uint32_t end) {
    const ag_kv_cache *c = r->s->cache;
    for (uint32_t l = 0; ag_kv_cache_layer(c, l); l++) {
        for (uint32_t h = 0; h < ag_kv_cache_layer(c, l)->n_kv_heads && !has_window(c, l); h++) {
            const head_slots in = chunk_slots(r, l, h, begin, end);
            if (in.end > in.begin) return true;
        }
    }
    return false;
}

/* Returns the position of the fed text: after all that was read. If that exceeds the trained
 * positions, it moves back, but not before the chunk's end. */
static uint32_t start_of(const replay *r, uint32_t end) {
    const uint32_t trained = r->s->model->info.max_positions, position = r->s->position;
    const uint32_t limit = trained > position ? trained : position;
    const uint32_t start = limit > r->n_text ? smaller(position, limit - r->n_text) : 0;
    return start > end ? start : end;
}

/* Runs the text through the model in steps, and collects the attention weights of the scored slots.
 */
static ag_status feed(replay *r, uint32_t start, ag_error *err) {
    ag_session *s = r->s;
    for (uint32_t at = 0, n; at < r->n_text; at += n) {
        n = smaller(r->n_text - at, s->params.prefill_chunk);
        AG_TRY(ag_kv_cache_expire(r->cache, start + at, err));
        ag_score_sums_begin(r->sums, n, at == 0);
        ag_sequence seq = {
            .cache = r->cache,
            .ids = r->text + at,
            .n = n,
            .position = start + at,
            .scores = ag_score_sums_request(r->sums, 0),
            .cancel = &s->cancelled,
            .is_long = s->is_long,
            .n_without_output = n,
        };
        seq.scores.max = true;
        seq.scores.until = r->until;
        AG_TRY(ag_model_forward(s->model, &seq, 1, err));
        r->n_fed += n;
        r->done += n;
        if (r->p->progress && !r->p->progress(r->p->progress_user, r->done, r->total)) {
            return AG_FAIL(err, CANCELLED, "cancelled after %zu replayed tokens", r->n_fed);
        }
    }
    return AG_OK;
}

static ag_status replay_chunk(replay *r, uint32_t begin, uint32_t end, ag_error *err) {
    write_text(r, begin, end);
    const uint32_t start = start_of(r, end);
    ag_status st = fork_cache(r, begin, end, start, err);
    if (st == AG_OK) st = feed(r, start, err);
    if (st == AG_OK) st = store_scores(r, begin, end, err);
    drop_cache(r);
    return st;
}

/* ---- replay ---- */

static ag_status allocate(replay *r, ag_error *err) {
    const size_t n_text = (size_t)n_context_tokens(r->p) + r->chunk;
    const size_t slots = ag_kv_totals_of(ag_kv_cache_params(r->s->cache)).max_slots;
    const size_t n = slots > r->chunk ? slots : r->chunk;
    r->text = ag_calloc(n_text, sizeof *r->text);
    r->retained = ag_calloc(n, sizeof *r->retained);
    r->work = ag_calloc(r->chunk, sizeof *r->work);
    r->until = ag_calloc(r->out->n_heads, sizeof *r->until);
    if (r->text && r->retained && r->work && r->until) return AG_OK;
    return AG_FAIL(err, NOMEM, "replay of %zu tokens", n_text);
}

static uint64_t count_tokens(const replay *r) {
    const uint32_t full_chunks = r->s->position / r->chunk, remainder = r->s->position % r->chunk;
    const uint64_t each = n_context_tokens(r->p) + (uint64_t)n_repeated(r->p, r->chunk);
    return full_chunks * each +
           (remainder ? n_context_tokens(r->p) + (uint64_t)n_repeated(r->p, remainder) : 0);
}

ag_status ag_session_replay(ag_session *s, const int32_t *ids, const ag_compress_params *p,
                            ag_slot_scores *out, size_t *n_replayed, ag_error *err) {
    replay r = {.s = s, .p = p, .ids = ids, .chunk = chunk_tokens(s, p), .out = out};
    if (!r.chunk) {
        return AG_FAIL(
            err, LIMIT,
            "replay: the cache is too small: a chunk of %u tokens and its replay exceed %u "
            "slots (max_seq_len) or %u positions",
            AG_REPLAY_MIN_CHUNK, s->params.max_seq_len, s->model->info.max_positions);
    }
    r.total = count_tokens(&r);
    ag_status st = allocate(&r, err);
    if (st == AG_OK && p->replay < 1) st = rank_tokens(&r, err);
    for (uint32_t begin = 0, end; st == AG_OK && begin < s->position; begin = end) {
        end = s->position - begin < r.chunk ? s->position : begin + r.chunk;
        if (has_slots(&r, begin, end)) st = replay_chunk(&r, begin, end, err);
    }
    *n_replayed = r.n_fed;
    ag_free(r.importance);
    ag_free(r.text);
    ag_free(r.retained);
    ag_free(r.work);
    ag_free(r.until);
    return st;
}
