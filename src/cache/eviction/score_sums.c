/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/score_sums.h"

#include "cache/eviction/policies.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"

#include <string.h>

struct ag_score_sums {
    const ag_kv_cache *cache; /* borrowed */
    uint32_t position;        /* slots of lower positions existed when the sums were normalised */
    float *host; /* owned; per layer [n_kv_heads][max_slots]; with `device`: one layer */
    /* If the backend sums in its memory. The sums of a layer are downloaded to be read, and
     * uploaded if slots have moved: */
    ag_buffer *device;  /* owned; per layer [max_slots][n_kv_heads]; NULL: all sums are in `host` */
    float *rows;        /* owned; staging of one layer */
    uint32_t *n_scored; /* owned; per layer [n_kv_heads] leading slots with sums; others have 0 */
    uint32_t fetched;   /* layer that `host` holds; UINT32_MAX: none */
    bool changed;       /* `host` differs from the device */
    bool adding;        /* the last pass added attention */
};

static const uint32_t no_layer = UINT32_MAX;

static uint32_t n_layers(const ag_score_sums *s) { return ag_kv_cache_params(s->cache)->n_layers; }

static uint32_t heads_of(const ag_score_sums *s, uint32_t layer) {
    return ag_kv_cache_layer(s->cache, layer)->n_kv_heads;
}

static size_t n_heads(const ag_score_sums *s) {
    return ag_kv_cache_first_head(s->cache, n_layers(s));
}

static bool backend_adds(const ag_kv_cache *cache) {
    const ag_kv_layer *is;
    for (uint32_t l = 0; (is = ag_kv_cache_layer(cache, l)); l++) {
        if (!ag_keeps_scores(ag_kv_cache_backend(cache), is->head_dim)) return false;
    }
    return true;
}

static ag_status allocate(ag_score_sums *s, ag_error *err) {
    const ag_kv_totals e = ag_kv_totals_of(ag_kv_cache_params(s->cache));
    const bool on_device = backend_adds(s->cache);
    const size_t on_host = on_device ? e.max_head_slots : e.head_slots;
    s->host = ag_calloc(on_host, sizeof *s->host);
    if (on_device) s->rows = ag_calloc(on_host, sizeof *s->rows);
    if (on_device) s->n_scored = ag_calloc(e.heads, sizeof *s->n_scored);
    if (!s->host || (on_device && (!s->rows || !s->n_scored))) {
        return AG_FAIL(err, NOMEM, "attention sums of %zu slots", on_host);
    }
    if (!on_device) return AG_OK;
    return ag_memory_alloc(ag_backend_memory(ag_kv_cache_backend(s->cache)),
                           e.head_slots * sizeof *s->host, AG_USAGE_SCRATCH, &s->device, err);
}

ag_status ag_score_sums_create(const ag_eviction_policy *policy, const ag_kv_cache *cache,
                               ag_score_sums **out, ag_error *err) {
    *out = NULL;
    return ag_importance_traits_of(policy)->keeps_sums ? ag_score_sums_create_for(cache, out, err)
                                                       : AG_OK;
}

ag_status ag_score_sums_create_for(const ag_kv_cache *cache, ag_score_sums **out, ag_error *err) {
    *out = NULL;
    ag_score_sums *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "attention sums");
    s->cache = cache;
    s->fetched = no_layer;
    ag_status st = allocate(s, err);
    if (st == AG_OK) *out = s;
    else ag_score_sums_destroy(s);
    return st;
}

void ag_score_sums_destroy(ag_score_sums *s) {
    if (!s) return;
    ag_free(s->host);
    ag_free(s->rows);
    ag_free(s->n_scored);
    ag_buffer_release(&s->device);
    ag_free(s);
}

size_t ag_score_sums_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv) {
    return ag_importance_traits_of(policy)->keeps_sums
               ? ag_kv_totals_of(kv).head_slots * sizeof(float)
               : 0;
}

void ag_score_sums_set_cache(ag_score_sums *s, const ag_kv_cache *cache) {
    if (s) s->cache = cache;
}

uint32_t ag_score_sums_position(const ag_score_sums *s) { return s ? s->position : 0; }

void ag_score_sums_set_position(ag_score_sums *s, uint32_t position) {
    if (s) s->position = position;
}

/* ---- sums of a layer ---- */

/* Returns the offset in floats of a layer's sums. */
static size_t first_of(const ag_score_sums *s, uint32_t layer) {
    return ag_kv_cache_first_head_slot(s->cache, layer);
}

static size_t first_byte_of(const ag_score_sums *s, uint32_t layer) {
    return first_of(s, layer) * sizeof *s->host;
}

float *ag_score_sums_of(const ag_score_sums *s, uint32_t layer, uint32_t head) {
    float *sums = s->host + (s->device ? 0 : first_of(s, layer));
    return sums + (size_t)head * ag_kv_cache_max_slots(s->cache, layer);
}

void ag_score_sums_set_layer(const ag_attention_scores *scores, uint32_t layer,
                             ag_attention_seq *seq) {
    const ag_score_sums *s = scores->sums;
    if (!s) return;
    seq->score_row0 = scores->row0;
    seq->score_max = scores->max;
    if (scores->until) seq->score_until = scores->until + ag_kv_cache_first_head(s->cache, layer);
    if (s->device) {
        seq->device_scores = s->device;
        seq->device_scores_at = first_byte_of(s, layer);
        seq->scored = s->n_scored + ag_kv_cache_first_head(s->cache, layer);
    } else {
        seq->scores = ag_score_sums_of(s, layer, 0);
        seq->score_stride = ag_kv_cache_max_slots(s->cache, layer);
    }
}

/* ---- device sums ---- */

/* Updates n_scored: a pass that added covers every slot; removed slots have no sums. */
static void count_scored(ag_score_sums *s) {
    uint32_t *n_scored = s->n_scored;
    for (uint32_t l = 0; l < n_layers(s); l++) {
        for (uint32_t h = 0; h < heads_of(s, l); h++, n_scored++) {
            const uint32_t n = ag_kv_cache_n_slots(s->cache, l, h);
            if (s->adding || *n_scored > n) *n_scored = n;
        }
    }
    s->adding = false;
}

ag_status ag_score_sums_fetch(ag_score_sums *s, uint32_t layer, ag_error *err) {
    if (!s || !s->device || s->fetched == layer) return AG_OK;
    const uint32_t n = ag_kv_layer_length(s->cache, layer), heads = heads_of(s, layer);
    count_scored(s);
    const uint32_t *n_scored = s->n_scored + ag_kv_cache_first_head(s->cache, layer);
    s->fetched = no_layer;
    if (n) {
        AG_TRY(ag_buffer_download(s->rows, s->device, first_byte_of(s, layer),
                                  (size_t)n * heads * sizeof *s->rows, err));
    }
    for (uint32_t h = 0; h < heads; h++) {
        float *sums = ag_score_sums_of(s, layer, h);
        for (size_t i = 0; i < n; i++) sums[i] = i < n_scored[h] ? s->rows[i * heads + h] : 0;
    }
    s->fetched = layer;
    return AG_OK;
}

void ag_score_sums_replace(ag_score_sums *s, uint32_t layer) {
    if (s) s->fetched = layer;
}

ag_status ag_score_sums_store(ag_score_sums *s, uint32_t layer, bool written, ag_error *err) {
    if (!s || !s->device) return AG_OK;
    s->changed = (s->changed || written) && s->fetched == layer;
    AG_TRY(ag_score_sums_flush(s, err));
    s->fetched = no_layer;
    return AG_OK;
}

ag_status ag_score_sums_flush(ag_score_sums *s, ag_error *err) {
    if (!s || !s->changed || !s->device) return AG_OK;
    const uint32_t layer = s->fetched;
    const uint32_t n = ag_kv_layer_length(s->cache, layer), heads = heads_of(s, layer);
    for (uint32_t h = 0; h < heads; h++) {
        const float *sums = ag_score_sums_of(s, layer, h);
        for (size_t i = 0; i < n; i++) s->rows[i * heads + h] = sums[i];
        s->n_scored[ag_kv_cache_first_head(s->cache, layer) + h] =
            ag_kv_cache_n_slots(s->cache, layer, h);
    }
    if (n) {
        AG_TRY(ag_buffer_upload(s->device, first_byte_of(s, layer), s->rows,
                                (size_t)n * heads * sizeof *s->rows, err));
    }
    s->changed = false;
    return AG_OK;
}

static ag_status copy_on_device(ag_score_sums *to, ag_score_sums *from, ag_error *err) {
    ag_backend *be = ag_kv_cache_backend(from->cache);
    count_scored(from);
    memcpy(to->n_scored, from->n_scored, n_heads(from) * sizeof *to->n_scored);
    for (uint32_t l = 0; l < n_layers(from); l++) {
        const size_t n = (size_t)ag_kv_layer_length(from->cache, l) * heads_of(from, l);
        const size_t at = first_byte_of(from, l);
        ag_tensor dst, src;
        if (!n) continue;
        AG_TRY(ag_tensor_make(&dst, AG_F32, ag_shape_1d(n), to->device, at, err));
        AG_TRY(ag_tensor_make(&src, AG_F32, ag_shape_1d(n), from->device, at, err));
        AG_TRY(ag_take_error(be, ag_copy_slice(be, &dst, 0, &src, 0, n), err));
    }
    return AG_OK;
}

/* ---- around a pass ---- */

ag_status ag_score_sums_copy(ag_score_sums *to, ag_score_sums *from, ag_error *err) {
    if (!from) return AG_OK;
    to->position = from->position;
    if (from->device) return copy_on_device(to, from, err);
    for (uint32_t l = 0; l < n_layers(from); l++) {
        for (uint32_t h = 0; h < heads_of(from, l); h++) {
            const size_t n = ag_kv_cache_n_slots(from->cache, l, h);
            memcpy(ag_score_sums_of(to, l, h), ag_score_sums_of(from, l, h), n * sizeof *to->host);
        }
    }
    return AG_OK;
}

void ag_score_sums_abandon(ag_score_sums *s) {
    if (s) s->adding = false;
}

void ag_score_sums_truncate(ag_score_sums *s, uint32_t position) {
    if (!s) return;
    if (s->position > position) s->position = position;
    if (s->device) count_scored(s);
}

void ag_score_sums_begin(ag_score_sums *s, size_t n, bool from_zero) {
    if (!s) return;
    if (s->device) {
        count_scored(s);
        s->fetched = no_layer; /* the pass will change what was fetched */
        s->changed = false;
        if (from_zero) memset(s->n_scored, 0, n_heads(s) * sizeof *s->n_scored);
        return;
    }
    for (uint32_t l = 0; l < n_layers(s); l++) {
        const size_t max_slots = ag_kv_cache_max_slots(s->cache, l);
        for (uint32_t h = 0; h < heads_of(s, l); h++) {
            const size_t used = ag_kv_cache_n_slots(s->cache, l, h), first = from_zero ? 0 : used;
            const size_t end = n < max_slots - used ? used + n : max_slots;
            memset(ag_score_sums_of(s, l, h) + first, 0, (end - first) * sizeof *s->host);
        }
    }
}

ag_attention_scores ag_score_sums_request(ag_score_sums *s, size_t row0) {
    if (s) s->adding = s->device != NULL;
    return (ag_attention_scores){.sums = s, .row0 = row0};
}

void ag_score_sums_compact(ag_score_sums *s, uint32_t layer, uint32_t head, const uint32_t *keep,
                           uint32_t n_keep) {
    if (!s) return;
    float *sums = ag_score_sums_of(s, layer, head);
    for (uint32_t i = 0; i < n_keep; i++) sums[i] = sums[keep[i]];
    s->changed = true;
}

void ag_score_sums_insert(ag_score_sums *s, uint32_t layer, uint32_t head, const uint32_t *slots,
                          const float *values, uint32_t n) {
    if (!s) return;
    float *sums = ag_score_sums_of(s, layer, head);
    uint32_t from = ag_kv_cache_n_slots(s->cache, layer, head) - n;
    for (uint32_t to = from + n, i = n; i > 0;) {
        if (--to == slots[i - 1]) sums[to] = values[--i];
        else sums[to] = sums[--from];
    }
}
