/* SPDX-License-Identifier: Apache-2.0 */
#include "statistics.h"

#include <math.h>
#include <stdlib.h>

size_t likeliest(const float *logits, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

double log_sum_exp(const float *logits, size_t n) {
    double maximum = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if ((double)logits[i] > maximum) maximum = (double)logits[i];
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - maximum);
    return maximum + log(sum);
}

mean_error mean_of(const double *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    const double deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return (mean_error){mean, deviation, deviation / sqrt((double)n)};
}

double per_second(size_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_ascending(double *x, size_t n) { qsort(x, n, sizeof *x, compare_doubles); }

double percentile(const double *x, size_t n, double share) {
    double at = share * (double)(n - 1);
    size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
    return x[low] + (x[high] - x[low]) * (at - (double)low);
}
