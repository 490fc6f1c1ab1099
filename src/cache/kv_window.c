/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: removes slots that no query will see from layers with a window, rarely and many at a
 * time. AG_ROLLBACK positions beyond the window stay, so that a sequence can be truncated a
 * little at any time. */
#include "cache/eviction/score_sums.h"
#include "cache/kv_cache_impl.h"
#include "core/fail.h"
#include "core/rollback.h"

static bool is_bounded(const ag_kv_cache *c, uint32_t layer) { return c->at[layer].window_blocks; }

uint32_t ag_kv_max_window_slots(const ag_kv_cache *c) {
    uint32_t max_slots = 0;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        if (is_bounded(c, l) && c->at[l].max_slots > max_slots) max_slots = c->at[l].max_slots;
    }
    return max_slots;
}

/* ---- length of a cache ---- */

uint32_t ag_kv_cache_length(const ag_kv_cache *c) {
    /* Longest head of the layers that can be full, and of those bounded by a window. */
    uint32_t longest[2] = {0, 0};
    bool any = false;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        const bool bounded = is_bounded(c, l);
        const uint32_t n = ag_kv_layer_length(c, l);
        if (n > longest[bounded]) longest[bounded] = n;
        if (!bounded) any = true;
    }
    return longest[!any];
}

double ag_kv_cache_mean_slots(const ag_kv_cache *c) {
    double n_slots = 0, n_heads = 0;
    const ag_kv_layer *layer;
    for (uint32_t l = 0; (layer = ag_kv_cache_layer(c, l)); l++) {
        for (uint32_t h = 0; !layer->window && h < layer->n_kv_heads; h++, n_heads++)
            n_slots += ag_kv_cache_n_slots(c, l, h);
    }
    return n_heads > 0 ? n_slots / n_heads : 0;
}

uint32_t ag_kv_cache_free_slots(const ag_kv_cache *c) {
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        if (!is_bounded(c, l)) return c->params.max_slots - ag_kv_cache_length(c);
    }
    return UINT32_MAX;
}

uint32_t ag_kv_cache_oldest_reachable(const ag_kv_cache *c) {
    uint32_t oldest = 0;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        if (!c->expired[l]) continue;
        const uint32_t first = c->expired[l] + c->params.layers[l].window - 1;
        if (first > oldest) oldest = first;
    }
    return oldest;
}

uint32_t ag_kv_cache_rows_before_expiry(const ag_kv_cache *c) {
    uint32_t rows = UINT32_MAX;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        const uint32_t max_slots = c->at[l].window_blocks * AG_KV_BLOCK,
                       n = ag_kv_layer_length(c, l);
        if (!is_bounded(c, l)) continue;
        if (n >= max_slots) return 1;
        if (max_slots + 1 - n < rows) rows = max_slots + 1 - n;
    }
    return rows;
}

/* ---- expiry ---- */

static ag_status expire_layer(ag_kv_cache *c, uint32_t layer, uint32_t oldest, ag_score_sums *sums,
                              ag_error *err) {
    AG_TRY(ag_score_sums_fetch(sums, layer, err));
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
        uint32_t first, n;
        AG_TRY(ag_kv_slots_below(c, layer, h, oldest, &first, err));
        for (n = 0; first + n < ag_kv_slots_of(c, layer)[h]; n++) c->retained[n] = first + n;
        AG_TRY(ag_kv_compact_head(c, layer, h, c->retained, n, err));
        ag_score_sums_compact(sums, layer, h, c->retained, n);
        if (oldest > c->expired[layer]) c->expired[layer] = oldest;
    }
    return ag_score_sums_store(sums, layer, false, err);
}

ag_status ag_kv_cache_expire_with(ag_kv_cache *c, uint32_t next_position, ag_score_sums *sums,
                                  ag_error *err) {
    bool expired = false;
    ag_status st = AG_OK;
    for (uint32_t l = 0; l < c->params.n_layers && st == AG_OK; l++) {
        if (!is_bounded(c, l) || ag_kv_layer_length(c, l) <= c->at[l].window_blocks * AG_KV_BLOCK) {
            continue;
        }
        const uint32_t n_stay = c->params.layers[l].window - 1 + AG_ROLLBACK;
        if (next_position <= n_stay) continue;
        st = expire_layer(c, l, next_position - n_stay, sums, err);
        expired = true;
    }
    if (expired) ag_kv_trim_pools(c);
    return st;
}

ag_status ag_kv_cache_expire(ag_kv_cache *c, uint32_t next_position, ag_error *err) {
    return ag_kv_cache_expire_with(c, next_position, NULL, err);
}
