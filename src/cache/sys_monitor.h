/* SPDX-License-Identifier: Apache-2.0 */
/* System monitor: reads memory figures of the system from /proc/meminfo, the control group of
 * this process (version 1 or 2) and PSI. Leaves out figures that cannot be read. */
#ifndef AG_CACHE_SYS_MONITOR_H
#define AG_CACHE_SYS_MONITOR_H

#include <antigravity/eviction.h>

typedef struct ag_sys_monitor ag_sys_monitor;

/* Creates a monitor. root: directory that contains proc and sys, copied; NULL: "/". Tests pass a
 * directory of their own. */
ag_status ag_sys_monitor_create(const char *root, ag_sys_monitor **out, ag_error *err);
void ag_sys_monitor_destroy(ag_sys_monitor *m);

/* Reads the signals without allocating. Stall shares cover at least the last 2 s and are known
 * from the second reading on. Sets the hint to NORMAL. */
void ag_sys_monitor_read(ag_sys_monitor *m, uint64_t now_ms, ag_memory_signals *out);

#endif
