/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic clock in seconds. */
#ifndef MEASURE_CLOCK_H
#define MEASURE_CLOCK_H

#include <time.h>

static inline double clock_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
