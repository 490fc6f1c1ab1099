/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates: the tokens that a sampler may draw. Each step removes some of them or changes their
 * weights. Steps up to the temperature compare probabilities at temperature 1. */
#ifndef AG_TEXT_CANDIDATES_H
#define AG_TEXT_CANDIDATES_H

#include "text/random.h"

#include <antigravity/sampler.h>
#include <stdbool.h>

typedef struct ag_candidates {
    const float *logits; /* [n_vocab] after bias and penalties; borrowed */
    int32_t *ids;        /* [n] owned by the sampler, as the next two */
    float *weights;      /* [n] after ag_candidates_truncate(), proportional to the probabilities */
    float *scores;       /* [n_vocab] NULL if !ag_is_typical() */
    size_t n;
    bool is_sorted; /* ids are in descending order of their logits */
} ag_candidates;

/* Returns whether typical_p is on. */
static inline bool ag_is_typical(const ag_sampler_params *p) {
    return p->typical_p > 0 && p->typical_p < 1;
}

/* Selects the candidates of a row of n_vocab logits: top_n_sigma, then top_k. */
void ag_candidates_select(ag_candidates *c, const ag_sampler_params *p, size_t n_vocab);
/* Sorts the candidates, the lowest id first of equal logits. */
void ag_candidates_sort(ag_candidates *c);
/* Applies typical_p, top_p, min_p, xtc and the temperature, in this order. xtc takes one random
 * number. Returns the sum of the weights. */
double ag_candidates_truncate(ag_candidates *c, const ag_sampler_params *p, ag_random *random);

/* Returns the candidates of the last choice, unless only one token was allowed or the temperature
 * is 0. Valid until the next choice. */
const ag_candidates *ag_sampler_candidates(const ag_sampler *s);

#endif
