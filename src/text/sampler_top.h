/* SPDX-License-Identifier: Apache-2.0 */
/* Samples from the best logits of a row that is slow to read in full, such as a row in device
 * memory. The result equals that of ag_sampler_sample() on the entire row. */
#ifndef AG_TEXT_SAMPLER_TOP_H
#define AG_TEXT_SAMPLER_TOP_H

#include "text/random.h"

#include <antigravity/sampler.h>
#include <stdbool.h>

/* Sets *mask to the filter's mask: NULL or borrowed. Writes to ids[0..n_ids) the distinct tokens
 * whose logits bias and penalties change, and sets *k to the number of best logits in the mask that
 * must be known in addition; 0: the mask allows a single token, so no logits are needed. Returns
 * false if the entire row is needed, or more than max_ids ids or max_k logits, or if the filter
 * fails, which sampling from the row reports. */
bool ag_sampler_top_k(const ag_sampler *s, const uint32_t **mask, int32_t *ids, size_t max_ids,
                      size_t *n_ids, size_t max_k, size_t *k);

typedef struct ag_top_logits {
    const uint32_t *mask; /* set by ag_sampler_top_k() */
    const int32_t
        *best_ids;     /* [n_best] the k best, best first; fewer if the others are -INFINITY */
    const float *best; /* [n_best] their logits */
    size_t n_best;
    const int32_t *ids; /* [n_ids] ids written by ag_sampler_top_k() */
    const float *at;    /* [n_ids] their logits */
    size_t n_ids;
    size_t bad; /* first token in the mask whose logit is NaN or +Inf; SIZE_MAX: none */
} ag_top_logits;

/* *id: -1 if the filter does not permit the sampled token, so that its next mask excludes it. */
ag_status ag_sampler_sample_top(ag_sampler *s, const ag_top_logits *top, int32_t *id,
                                ag_error *err);

/* Return and set the state of the random sequence, to undo choices that were not accepted. */
ag_random ag_sampler_random(const ag_sampler *s);
void ag_sampler_set_random(ag_sampler *s, ag_random random);

#endif
