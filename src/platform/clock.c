/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/clock.h"

#include <time.h>

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ag_now_s(void) { return seconds_of(CLOCK_MONOTONIC); }

int64_t ag_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double ag_wall_clock_s(void) { return seconds_of(CLOCK_REALTIME); }

double ag_thread_cpu_s(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }
