/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the system says about its memory: /proc/meminfo, the control group of this process
 * (version 1 or 2) and PSI. What cannot be read is left out. */
#ifndef AG_CACHE_SYS_MONITOR_H
#define AG_CACHE_SYS_MONITOR_H

#include <antigravity/eviction.h>

typedef struct ag_sys_monitor ag_sys_monitor;

/* root: where proc and sys are, NULL: "/"; a test puts files of its own there. Copied. */
ag_status ag_sys_monitor_create(const char *root, ag_sys_monitor **out, ag_error *err);
void ag_sys_monitor_destroy(ag_sys_monitor *m);

/* Allocates nothing. Shares of stalled time are of the last 2 s or more, so the first come with the
 * second reading; the hint is left NORMAL. */
void ag_sys_monitor_read(ag_sys_monitor *m, uint64_t now_ms, ag_memory_signals *out);

#endif
