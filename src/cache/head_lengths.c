/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/head_lengths.h"

static uint32_t n_layers_of(const ag_head_limits *l) {
    return ag_kv_cache_params(l->cache)->n_layers;
}

static uint32_t heads_in(const ag_head_limits *l, uint32_t layer) {
    return ag_kv_cache_layer(l->cache, layer)->n_kv_heads;
}

uint32_t ag_heads_window(const ag_head_limits *l, uint32_t layer) {
    const uint32_t window = ag_kv_cache_layer(l->cache, layer)->window;
    return window <= l->trained ? window : 0;
}

bool ag_heads_are_budgeted(const ag_head_limits *l, uint32_t layer, uint32_t budget) {
    const uint32_t window = ag_heads_window(l, layer);
    return !window || window > budget;
}

size_t ag_heads_slots(const ag_kv_cache *c, uint32_t layer) {
    size_t n = 0;
    for (uint32_t h = 0; h < ag_kv_cache_layer(c, layer)->n_kv_heads; h++)
        n += ag_kv_cache_n_slots(c, layer, h);
    return n;
}

static uint32_t mean_up(uint64_t sum, uint32_t n) { return n ? (uint32_t)((sum + n - 1) / n) : 0; }

uint32_t ag_heads_mean(const ag_head_limits *l, uint32_t budget) {
    uint32_t longest = 0;
    for (uint32_t layer = 0; layer < n_layers_of(l); layer++) {
        if (!ag_heads_are_budgeted(l, layer, budget)) continue;
        const uint32_t mean = mean_up(ag_heads_slots(l->cache, layer), heads_in(l, layer));
        if (mean > longest) longest = mean;
    }
    return longest;
}

uint32_t ag_heads_fullest(const ag_head_limits *l, uint32_t budget) {
    uint32_t longest = 0, n_heads = 0;
    uint64_t sum = 0;
    for (uint32_t layer = 0; layer < n_layers_of(l); layer++) {
        if (!ag_heads_are_budgeted(l, layer, budget)) continue;
        const uint32_t n = ag_kv_layer_length(l->cache, layer);
        if (n > longest) longest = n;
        sum += ag_heads_slots(l->cache, layer);
        n_heads += heads_in(l, layer);
    }
    if (l->lengths == AG_HEADS_EVEN) return longest;
    const uint32_t mean =
        l->lengths == AG_HEADS_RAGGED ? mean_up(sum, n_heads) : ag_heads_mean(l, budget);
    const uint32_t reached = budget + longest;
    const uint32_t over_limit = reached > l->max_slots ? reached - l->max_slots : 0;
    return mean > over_limit ? mean : over_limit;
}

uint32_t ag_heads_n_remaining(const ag_head_limits *l, uint32_t n, uint32_t n_to_remove) {
    uint32_t remaining = n > n_to_remove ? n - n_to_remove : 0;
    if (remaining < l->min_slots) remaining = l->min_slots;
    if (remaining > l->max_slots) remaining = l->max_slots;
    return n < remaining ? n : remaining;
}

/* Returns how many slots all heads hold beyond the budget after each has given up n_to_remove. */
static int64_t excess_after(const ag_head_limits *l, uint32_t budget, uint32_t n_to_remove) {
    int64_t excess = 0;
    for (uint32_t layer = 0; layer < n_layers_of(l); layer++) {
        if (!ag_heads_are_budgeted(l, layer, budget)) continue;
        for (uint32_t h = 0; h < heads_in(l, layer); h++) {
            const uint32_t n = ag_kv_cache_n_slots(l->cache, layer, h);
            excess += ag_heads_n_remaining(l, n, n_to_remove) - (int64_t)budget;
        }
    }
    return excess;
}

uint32_t ag_heads_n_to_remove(const ag_head_limits *l, uint32_t budget) {
    uint32_t begin = 0, end = ag_kv_cache_params(l->cache)->max_slots;
    while (begin < end) {
        const uint32_t middle = begin + (end - begin) / 2;
        if (excess_after(l, budget, middle) > 0) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

bool ag_heads_layers_are_equal(const ag_head_limits *l) {
    uint64_t slots = 0, heads = 0;
    for (uint32_t layer = 0; layer < n_layers_of(l); layer++) {
        if (ag_heads_window(l, layer)) continue;
        const uint64_t own = ag_heads_slots(l->cache, layer), n = heads_in(l, layer);
        if (heads && own * heads != slots * n) return false;
        slots = own;
        heads = n;
    }
    return true;
}
