/* SPDX-License-Identifier: Apache-2.0 */
/* Dot product in double. Element i is added to partial sum i % 8, and the eight sums are added in a
 * fixed order. Independent sums let the compiler use vectors. A product of two floats is exact. */
#ifndef AG_BACKEND_CPU_COMMON_DOT_H
#define AG_BACKEND_CPU_COMMON_DOT_H

#include <stddef.h>

enum { DOT_LANES = 8 };

static inline double dot(const double *a, const double *b, size_t n) {
    double s[DOT_LANES] = {0};
    size_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES) {
        for (size_t l = 0; l < DOT_LANES; l++) s[l] += a[i + l] * b[i + l];
    }
    for (size_t l = 0; i + l < n; l++) s[l] += a[i + l] * b[i + l];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

#endif
