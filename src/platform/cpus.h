/* SPDX-License-Identifier: Apache-2.0 */
/* Processor cores that the process may use: its affinity, the CPU quota of its control group, and
 * which cores are big. */
#ifndef AG_PLATFORM_CPUS_H
#define AG_PLATFORM_CPUS_H

#include <stdbool.h>
#include <stdint.h>

enum { AG_MAX_CPUS = 1024 };

/* A set of cores: core i is bit i % 64 of words[i / 64]. */
typedef struct ag_cpu_set {
    uint64_t words[AG_MAX_CPUS / 64];
} ag_cpu_set;

void ag_cpu_set_add(ag_cpu_set *set, unsigned cpu);
void ag_cpu_set_remove(ag_cpu_set *set, unsigned cpu);
bool ag_cpu_set_has(const ag_cpu_set *set, unsigned cpu);

/* Returns the number of cores that the process may use, at least 1: its affinity, or its control
 * groups' CPU quota if that is less. */
uint32_t ag_usable_cpus(void);
/* Returns the default number of threads, at least 1, and the cores for them. *fewer: the set lacks
 * cores that the process may use, because they are little ones. */
uint32_t ag_default_cpus(ag_cpu_set *set, bool *fewer);
/* Restricts the calling thread to these cores. The system may refuse. */
void ag_bind_thread(const ag_cpu_set *set);

/* ---- for tests, which replace the system's files ---- */

/* Returns the cores' worth of processor time that the process's control groups (v1 or v2) and
 * their parents allow, rounded up; UINT32_MAX: no limit.
 *   membership  "/proc/self/cgroup"       root  "/sys/fs/cgroup" */
uint32_t ag_cgroup_cpus(const char *membership, const char *root);
/* Removes the little cores from a set: those with less than half the capacity of its largest core.
 * Removes none if the system reports no capacity for one of them. Returns how many remain.
 *   root  "/sys/devices/system/cpu", which has cpuN/cpu_capacity */
uint32_t ag_keep_big_cpus(const char *root, ag_cpu_set *set);

#endif
