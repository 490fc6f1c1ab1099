/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu quota of a control group, with its files replaceable for tests. */
#ifndef AG_BACKEND_CPU_USABLE_CPUS_H
#define AG_BACKEND_CPU_USABLE_CPUS_H

#include <stdint.h>

/* Cores' worth of cpu time that the process's control groups (v1 or v2) and their parents allow,
 * rounded up; UINT32_MAX: no limit found.
 *   membership  "/proc/self/cgroup"       root  "/sys/fs/cgroup" */
uint32_t ag_cgroup_cpus(const char *membership, const char *root);

#endif
