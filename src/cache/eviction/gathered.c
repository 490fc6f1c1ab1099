/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, gathered slot by slot: on the host, or where the backend adds it up. Then a layer's
 * sums come to the host when somebody asks for them, and go back if slots have left. */
#include "cache/eviction/importance.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"

#include <string.h>

static const uint32_t no_layer = UINT32_MAX;

static bool wants_attention(const ag_eviction_policy *policy) {
    return policy->importance != AG_IMPORTANCE_NONE && policy->importance != AG_IMPORTANCE_KEYS;
}

static ag_status make_room_there(ag_gathered *g, const ag_kv_cache *cache, ag_error *err) {
    const ag_kv_extent e = ag_kv_extent_of(ag_kv_cache_params(cache));
    const size_t layer = e.most_head_slots;
    g->sums = ag_calloc(layer, sizeof *g->sums);
    g->rows = ag_calloc(layer, sizeof *g->rows);
    g->scored = ag_calloc(e.heads, sizeof *g->scored);
    if (!g->sums || !g->rows || !g->scored) {
        return AG_FAIL(err, NOMEM, "attention of %zu slots on the host", layer);
    }
    return ag_memory_alloc(ag_backend_memory(ag_kv_cache_backend(cache)),
                           e.head_slots * sizeof *g->sums, AG_USAGE_SCRATCH, &g->held, err);
}

ag_status ag_gathered_create(ag_gathered *g, const ag_eviction_policy *policy,
                             const ag_kv_cache *cache, ag_error *err) {
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    if (!wants_attention(policy)) return AG_OK;
    g->layer = no_layer;
    bool there = true;
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        there = there && ag_keeps_scores(ag_kv_cache_backend(cache), kv->layers[l].head_dim);
    }
    if (there) return make_room_there(g, cache, err);
    const size_t n = ag_kv_extent_of(kv).head_slots;
    g->sums = ag_calloc(n, sizeof *g->sums);
    if (g->sums) return AG_OK;
    return AG_FAIL(err, NOMEM, "attention of %zu slots", n);
}

size_t ag_gathered_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv) {
    if (!wants_attention(policy)) return 0;
    return ag_kv_extent_of(kv).head_slots * sizeof(float);
}

void ag_gathered_release(ag_gathered *g) {
    ag_free(g->sums);
    ag_free(g->rows);
    ag_free(g->scored);
    ag_buffer_release(&g->held);
}

float *ag_gathered_of(const ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                      uint32_t head) {
    const size_t first = g->held ? 0 : ag_kv_cache_first_head_slot(cache, layer);
    return g->sums + first + (size_t)head * ag_kv_cache_max_slots(cache, layer);
}

static uint32_t heads_of(const ag_kv_cache *cache, uint32_t layer) {
    return ag_kv_cache_layer(cache, layer)->n_kv_heads;
}

/* ---- sums that the backend holds ---- */

/* A pass that was counted has added to every slot there is; slots that have left have no sums. */
static void settle_counts(ag_gathered *g, const ag_kv_cache *cache) {
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    uint32_t *scored = g->scored;
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < heads_of(cache, l); h++, scored++) {
            uint32_t n = ag_kv_cache_n_slots(cache, l, h);
            if (g->counting || *scored > n) *scored = n;
        }
    }
    g->counting = false;
}

static uint32_t longest_head(const ag_kv_cache *cache, uint32_t layer) {
    uint32_t longest = 0;
    for (uint32_t h = 0; h < heads_of(cache, layer); h++) {
        uint32_t n = ag_kv_cache_n_slots(cache, layer, h);
        if (n > longest) longest = n;
    }
    return longest;
}

/* Where a layer's sums begin, in bytes. */
static size_t place_of(const ag_kv_cache *cache, uint32_t layer) {
    return ag_kv_cache_first_head_slot(cache, layer) * sizeof(float);
}

ag_status ag_gathered_fetch(ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                            ag_error *err) {
    if (!g->held || g->layer == layer) return AG_OK;
    const uint32_t n = longest_head(cache, layer), heads = heads_of(cache, layer);
    settle_counts(g, cache);
    const uint32_t *scored = g->scored + ag_kv_cache_first_head(cache, layer);
    g->layer = no_layer;
    if (n) {
        AG_TRY(ag_buffer_download(g->rows, g->held, place_of(cache, layer),
                                  (size_t)n * heads * sizeof *g->rows, err));
    }
    for (uint32_t h = 0; h < heads; h++) {
        float *sums = ag_gathered_of(g, cache, layer, h);
        for (size_t s = 0; s < n; s++) sums[s] = s < scored[h] ? g->rows[s * heads + h] : 0;
    }
    g->layer = layer;
    return AG_OK;
}

ag_status ag_gathered_store(ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                            ag_error *err) {
    if (!g->held) return AG_OK;
    const bool changed = g->changed && g->layer == layer;
    g->layer = no_layer;
    g->changed = false;
    if (!changed) return AG_OK;
    const uint32_t n = longest_head(cache, layer), heads = heads_of(cache, layer);
    for (uint32_t h = 0; h < heads; h++) {
        const float *sums = ag_gathered_of(g, cache, layer, h);
        for (size_t s = 0; s < n; s++) g->rows[s * heads + h] = sums[s];
        g->scored[ag_kv_cache_first_head(cache, layer) + h] = ag_kv_cache_n_slots(cache, layer, h);
    }
    if (!n) return AG_OK;
    return ag_buffer_upload(g->held, place_of(cache, layer), g->rows,
                            (size_t)n * heads * sizeof *g->rows, err);
}

void ag_gathered_replace(ag_gathered *g, uint32_t layer) {
    g->layer = layer;
    g->changed = true;
}

static ag_status copy_held(ag_gathered *to, ag_gathered *from, const ag_kv_cache *cache,
                           ag_error *err) {
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    ag_backend *be = ag_kv_cache_backend(cache);
    settle_counts(from, cache);
    memcpy(to->scored, from->scored, ag_kv_extent_of(kv).heads * sizeof *to->scored);
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        const size_t n = (size_t)longest_head(cache, l) * heads_of(cache, l);
        ag_tensor dst, src;
        if (!n) continue;
        AG_TRY(ag_tensor_make(&dst, AG_F32, ag_shape_1d(n), to->held, place_of(cache, l), err));
        AG_TRY(ag_tensor_make(&src, AG_F32, ag_shape_1d(n), from->held, place_of(cache, l), err));
        AG_TRY(ag_take_error(be, ag_copy_slice(be, &dst, 0, &src, 0, n), err));
    }
    return AG_OK;
}

/* ---- around a pass ---- */

ag_status ag_gathered_copy(ag_gathered *to, ag_gathered *from, const ag_kv_cache *cache,
                           ag_error *err) {
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    to->position = from->position;
    if (from->held) return copy_held(to, from, cache, err);
    for (uint32_t l = 0; from->sums && l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < heads_of(cache, l); h++) {
            size_t n = ag_kv_cache_n_slots(cache, l, h);
            memcpy(ag_gathered_of(to, cache, l, h), ag_gathered_of(from, cache, l, h),
                   n * sizeof *to->sums);
        }
    }
    return AG_OK;
}

void ag_gathered_truncate(ag_gathered *g, const ag_kv_cache *cache, uint32_t position) {
    if (g->position > position) g->position = position;
    if (g->held) settle_counts(g, cache);
}

void ag_gathered_begin(ag_gathered *g, const ag_kv_cache *cache, size_t n, bool from_zero) {
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    if (g->held) {
        settle_counts(g, cache);
        g->layer = no_layer; /* what was fetched is about to change */
        g->changed = false;
        const size_t heads = ag_kv_extent_of(kv).heads;
        if (from_zero) memset(g->scored, 0, heads * sizeof *g->scored);
        return;
    }
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < heads_of(cache, l); h++) {
            size_t held = ag_kv_cache_n_slots(cache, l, h), first = from_zero ? 0 : held;
            memset(ag_gathered_of(g, cache, l, h) + first, 0, (held + n - first) * sizeof *g->sums);
        }
    }
}

ag_attention_scores ag_gathered_scores(ag_gathered *g, size_t row0) {
    g->counting = g->held != NULL;
    return (ag_attention_scores){
        .sums = g->sums,
        .row0 = row0,
        .held = g->held,
        .scored = g->scored,
    };
}

ag_status ag_gathered_compact(ag_gathered *g, const ag_kv_cache *cache, uint32_t layer,
                              uint32_t head, const uint32_t *keep, uint32_t n_keep, ag_error *err) {
    if (!g->sums) return AG_OK;
    AG_TRY(ag_gathered_fetch(g, cache, layer, err));
    float *sums = ag_gathered_of(g, cache, layer, head);
    for (uint32_t i = 0; i < n_keep; i++) sums[i] = sums[keep[i]];
    g->changed = true;
    return AG_OK;
}

ag_status ag_gathered_settle(ag_gathered *g, const ag_eviction_params *p, const ag_kv_cache *cache,
                             uint32_t position, uint32_t n_window, float *values, ag_error *err) {
    const ag_kv_params *kv = ag_kv_cache_params(cache);
    g->position = position;
    if (!p->policy->settle) return AG_OK;
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        AG_TRY(ag_gathered_fetch(g, cache, l, err));
        for (uint32_t h = 0; h < heads_of(cache, l); h++) {
            uint32_t n = ag_kv_cache_n_slots(cache, l, h);
            p->policy->settle(p, ag_gathered_of(g, cache, l, h), n, n_window < n ? n_window : n,
                              values);
        }
        g->changed = true;
        AG_TRY(ag_gathered_store(g, cache, l, err));
    }
    return AG_OK;
}
