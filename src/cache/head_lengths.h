/* SPDX-License-Identifier: Apache-2.0 */
/* Head lengths: measures how full the heads of a cache are against a budget. Computes how many
 * slots each head must give up. */
#ifndef AG_CACHE_HEAD_LENGTHS_H
#define AG_CACHE_HEAD_LENGTHS_H

#include "cache/kv_cache.h"

typedef enum ag_head_lengths {
    AG_HEADS_EVEN,            /* all heads of a layer hold equally many slots */
    AG_HEADS_RAGGED_IN_LAYER, /* heads share the slots of their layer; all layers have equal shares
                               */
    AG_HEADS_RAGGED,          /* all heads of all layers share, as a compression left them */
} ag_head_lengths;

typedef struct ag_head_limits {
    const ag_kv_cache *cache; /* borrowed */
    ag_head_lengths lengths;
    uint32_t trained;              /* positions; a window beyond them does not bound a layer */
    uint32_t min_slots, max_slots; /* slots of a head: the part that always stays, and the limit
                                      between two passes */
} ag_head_limits;

/* Returns the window of a layer; 0 if it has none, or one beyond the trained length. */
uint32_t ag_heads_window(const ag_head_limits *l, uint32_t layer);
/* Returns whether the budget limits the layer: its window is absent or larger. */
bool ag_heads_are_budgeted(const ag_head_limits *l, uint32_t layer, uint32_t budget);

/* Returns the length to compare with the budget, over the layers that it limits. Even heads: the
 * longest head. Ragged heads: the mean of the fullest layer, or of all heads. At least budget +
 * longest - max_slots, so that no head exceeds max_slots. */
uint32_t ag_heads_fullest(const ag_head_limits *l, uint32_t budget);
/* Returns the mean length of the heads of the fullest layer, rounded up. */
uint32_t ag_heads_mean(const ag_head_limits *l, uint32_t budget);

/* Returns how many of a head's n slots remain after it gives up n_to_remove, within the limits. */
uint32_t ag_heads_n_remaining(const ag_head_limits *l, uint32_t n, uint32_t n_to_remove);
/* Returns the smallest number of slots to remove from each head so that the mean is within the
 * budget. */
uint32_t ag_heads_n_to_remove(const ag_head_limits *l, uint32_t budget);

/* Returns the number of slots in all heads of a layer. */
size_t ag_heads_slots(const ag_kv_cache *c, uint32_t layer);
/* Returns whether all layers without a window hold equally many slots, as a mean over their
 * heads. */
bool ag_heads_layers_are_equal(const ag_head_limits *l);

#endif
