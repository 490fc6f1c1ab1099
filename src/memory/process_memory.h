/* SPDX-License-Identifier: Apache-2.0 */
/* Beside antigravity/process.h. */
#ifndef AG_MEMORY_PROCESS_MEMORY_H
#define AG_MEMORY_PROCESS_MEMORY_H

#include <stddef.h>

/* Bytes of shared memory that are resident, and of memory that is swapped out: what a process takes
 * beside what ag_process_memory() calls anonymous. 0 where the system does not tell. */
size_t ag_process_shared_bytes(void);

#endif
