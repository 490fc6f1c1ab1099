/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of answers, and confidence intervals of their means. */
#ifndef ANTIGRAVITY_RULER_SCORE_H
#define ANTIGRAVITY_RULER_SCORE_H

#include <stddef.h>

/* Returns the share of the references that the answer contains, ignoring case: RULER's
 * string_match_all. */
double ruler_score(const char *answer, const char *const references[], size_t n);

typedef struct interval {
    double mean, low, high;
} interval;

/* Comparison of the same prompts with a full and a reduced cache. */
typedef struct paired_scores {
    interval difference; /* reduced - full */
    interval ratio;      /* mean reduced / mean full; NAN if all full scores are 0 */
} paired_scores;

/* Compares with 95 % intervals: percentiles of 2,000 bootstrap samples of the prompts with a fixed
 * seed. n > 0. A sample whose full scores are all 0 counts as ratio 1. */
paired_scores ruler_compare(const double *full, const double *reduced, size_t n);

#endif
