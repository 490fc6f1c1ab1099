/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of logits and of samples. */
#ifndef ANTIGRAVITY_STATISTICS_H
#define ANTIGRAVITY_STATISTICS_H

#include <stddef.h>

/* Returns log(sum(exp(logits))) in double. A token's log-probability is its logit minus this. */
double log_sum_exp(const float *logits, size_t n);
/* Returns the index of the largest logit; the first of equal ones. */
size_t likeliest(const float *logits, size_t n);

typedef struct mean_error {
    double mean, deviation,
        error; /* standard deviation; standard error of the mean; 0 for a single value */
} mean_error;
mean_error mean_of(const double *x, size_t n);

/* Returns n / seconds; 0 if the time is not positive. */
double per_second(size_t n, double seconds);

void sort_ascending(double *x, size_t n);
/* Returns a percentile (share 0 to 1) by linear interpolation; x is sorted. */
double percentile(const double *x, size_t n, double share);

#endif
