/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks of the system. */
#ifndef AG_PLATFORM_CLOCK_H
#define AG_PLATFORM_CLOCK_H

#include <stdint.h>

/* Return the time since an arbitrary start. It never goes back. */
double ag_now_s(void);
int64_t ag_now_ns(void);

/* Returns the seconds since 1970, as files' times count them. The user may set this clock. */
double ag_wall_clock_s(void);

/* Returns the processor time of the calling thread, in seconds. */
double ag_thread_cpu_s(void);

#endif
