/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of answers, and what is known of their means. */
#ifndef ANTIGRAVITY_RULER_SCORE_H
#define ANTIGRAVITY_RULER_SCORE_H

#include <stddef.h>
#include <stdint.h>

/* The share of the references that the answer names, upper and lower case being the same: RULER's
 * string_match_all. */
double ruler_score(const char *answer, const char *const references[], size_t n);

typedef struct interval {
    double mean, low, high;
} interval;

/* Scores of the same prompts with a full and with a reduced cache. */
typedef struct paired_scores {
    interval difference; /* reduced - full */
    interval ratio;      /* mean reduced / mean full; NAN where no full cache scores */
} paired_scores;

/* With 95 % intervals: the percentiles of 2,000 bootstrap samples of the prompts, drawn from a
 * fixed seed; n > 0. A sample in which no full cache scores counts with the ratio 1. */
paired_scores ruler_compare(const double *full, const double *reduced, size_t n);

#endif
