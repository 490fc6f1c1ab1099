/* SPDX-License-Identifier: Apache-2.0 */
/* Time that only goes forward, in seconds. */
#ifndef AG_CORE_CLOCK_H
#define AG_CORE_CLOCK_H

#include <time.h>

static inline double ag_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
