/* SPDX-License-Identifier: Apache-2.0 */
/* Top-k request: the best logits of a row and some others by id. A larger value is better and, of
 * equal values, the lower id. -INFINITY is never among the best. */
#ifndef AG_CORE_TOP_K_H
#define AG_CORE_TOP_K_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AG_TOP_K_MAX = 384, AG_TOP_K_IDS = 128 };

typedef struct ag_top_k {
    size_t k;           /* requested number, 1 .. AG_TOP_K_MAX */
    const int32_t *ids; /* [n_ids], up to AG_TOP_K_IDS, inside the row; host memory */
    size_t n_ids;
    /* Values of ids whose bit id % 32 of word id / 32 is clear count as -INFINITY; NULL: none do.
     * Host memory, borrowed during the query. `at` is not masked. */
    const uint32_t *mask;
    bool known;                     /* the members below are set */
    int32_t best_ids[AG_TOP_K_MAX]; /* [n] best first */
    float best[AG_TOP_K_MAX];       /* [n] their values; -0 as 0 */
    size_t n;                       /* number found, at most k */
    float at[AG_TOP_K_IDS];         /* [n_ids] values at the ids */
    size_t bad; /* first id in the mask whose value is NaN or +Inf; SIZE_MAX: none */
} ag_top_k;

#endif
