/* SPDX-License-Identifier: Apache-2.0 */
/* Cores that the system allows: the CPU quota of a control group, and big and little cores. Tests
 * pass other files. */
#ifndef AG_BACKEND_CPU_USABLE_CPUS_H
#define AG_BACKEND_CPU_USABLE_CPUS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the CPU quota of the process's control groups (v1 or v2) and their parents, in cores
 * rounded up; UINT32_MAX: no limit found.
 *   membership  "/proc/self/cgroup"       root  "/sys/fs/cgroup" */
uint32_t ag_cgroup_cpus(const char *membership, const char *root);

/* Removes little cores from a set: those with less than half the capacity of its largest core, as
 * the system reports it. If the capacity of a core is unknown, all remain. Returns how many remain.
 *   root  "/sys/devices/system/cpu", which has cpuN/cpu_capacity */
uint32_t ag_keep_big_cpus(const char *root, cpu_set_t *set);
/* Returns the default number of threads, at least 1, and their cores. *fewer: the set excludes
 * cores that the process may use. */
uint32_t ag_default_cpus(cpu_set_t *set, bool *fewer);

#endif
