/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of rows of numbers. */
#ifndef ANTIGRAVITY_STATISTICS_H
#define ANTIGRAVITY_STATISTICS_H

#include <stddef.h>

/* log(sum(exp(logits))), in double: logits[id] minus it is the token's log-probability. */
double log_sum_exp(const float *logits, size_t n);
/* The id of the largest logit; the first one of equals. */
size_t likeliest(const float *logits, size_t n);

typedef struct mean_error {
    double mean, deviation, error; /* standard ones, the last of the mean; 0 for a single value */
} mean_error;
mean_error mean_of(const double *x, size_t n);

/* 0 where the time is not positive. */
double per_second(size_t n, double seconds);

void sort_ascending(double *x, size_t n);
/* Between the two nearest ranks; x is sorted. */
double percentile(const double *x, size_t n, double share);

#endif
