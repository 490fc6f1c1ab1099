/* SPDX-License-Identifier: Apache-2.0 */
/* What the system says of cores: the cpu quota of a control group, and which are big. Files are
 * replaceable for tests. */
#ifndef AG_BACKEND_CPU_USABLE_CPUS_H
#define AG_BACKEND_CPU_USABLE_CPUS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Cores' worth of cpu time that the process's control groups (v1 or v2) and their parents allow,
 * rounded up; UINT32_MAX: no limit found.
 *   membership  "/proc/self/cgroup"       root  "/sys/fs/cgroup" */
uint32_t ag_cgroup_cpus(const char *membership, const char *root);

/* Takes the little cores out of a set: those of less than half the capacity of its largest, as the
 * system has measured it. Where it says nothing of a core all stay. Returns how many stay.
 *   root  "/sys/devices/system/cpu", which has cpuN/cpu_capacity */
uint32_t ag_keep_big_cpus(const char *root, cpu_set_t *set);
/* Cores for threads whose number nobody chose, at least 1; *fewer: the set is less than what the
 * process may use. */
uint32_t ag_default_cpus(cpu_set_t *set, bool *fewer);

#endif
