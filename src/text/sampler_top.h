/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling from a few logits, when the row lies where reading all of it costs more than finding
 * what can be chosen. The choice is the same as ag_sampler_sample()'s from the whole row. */
#ifndef AG_TEXT_SAMPLER_TOP_H
#define AG_TEXT_SAMPLER_TOP_H

#include <antigravity/sampler.h>
#include <stdbool.h>

/* ids[0..n_ids) := the tokens whose logits bias and penalties change, each once; *k := how many of
 * the best of the row must be known beside them. false: the whole row is needed, or more than
 * most_ids or most_k. */
bool ag_sampler_top_k(const ag_sampler *s, int32_t *ids, size_t max_ids, size_t *n_ids,
                      size_t max_k, size_t *k);

typedef struct ag_top_logits {
    const int32_t *best_ids; /* [n_best] the k best, best first, or all that are not -INFINITY */
    const float *best;       /* [n_best] */
    size_t n_best;
    const int32_t *ids; /* [n_ids] as ag_sampler_top_k() named them */
    const float *at;    /* [n_ids] their logits */
    size_t n_ids;
    size_t bad; /* first token whose logit is NaN or +Inf; SIZE_MAX: none */
} ag_top_logits;

ag_status ag_sampler_sample_top(ag_sampler *s, const ag_top_logits *top, int32_t *id,
                                ag_error *err);

#endif
