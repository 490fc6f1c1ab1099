/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that hold different numbers of slots: how full they are against a budget, and how many each
 * gives up. */
#ifndef AG_CACHE_HEAD_LENGTHS_H
#define AG_CACHE_HEAD_LENGTHS_H

#include "cache/kv_cache.h"

typedef enum ag_head_lengths {
    AG_HEADS_EVEN,            /* all of a layer hold as many */
    AG_HEADS_RAGGED_IN_LAYER, /* they share what their layer may hold, which is as much as any
                                 other's */
    AG_HEADS_RAGGED,          /* all heads of all layers share: a compression has left them so */
} ag_head_lengths;

typedef struct ag_head_limits {
    const ag_kv_cache *cache; /* borrowed */
    ag_head_lengths lengths;
    uint32_t trained;              /* positions; windows beyond them do not bound a layer */
    uint32_t min_slots, max_slots; /* slots of a head: what always stays, and what it may have
                              between two passes for the next one's to find space */
} ag_head_limits;

/* A layer's window; 0: none that ends before the trained length does. */
uint32_t ag_heads_window(const ag_head_limits *l, uint32_t layer);
/* The budget says how much of a layer stays: not so where its window is smaller. */
bool ag_heads_are_budgeted(const ag_head_limits *l, uint32_t layer, uint32_t budget);

/* Slots of the fullest head of those layers. Of a layer's heads that share, or of all that do, the
 * mean, unless the fullest is nearer to the slots that a head may have: it is then as far from the
 * budget. */
uint32_t ag_heads_fullest(const ag_head_limits *l, uint32_t budget);
/* The mean of the fullest layer, rounded up, whatever its heads share. */
uint32_t ag_heads_mean(const ag_head_limits *l, uint32_t budget);

/* Of n slots of a head that gives up `fewer`, those that stay. */
uint32_t ag_heads_n_remaining(const ag_head_limits *l, uint32_t n, uint32_t n_to_remove);
/* How many slots each head gives up for the budget to be what they hold in the mean: the fewest. */
uint32_t ag_heads_n_to_remove(const ag_head_limits *l, uint32_t budget);

/* Slots in all heads of a layer. */
size_t ag_heads_slots(const ag_kv_cache *c, uint32_t layer);
/* Layers without a window hold as many slots as each other, in the mean of their heads. */
bool ag_heads_layers_are_equal(const ag_head_limits *l);

#endif
