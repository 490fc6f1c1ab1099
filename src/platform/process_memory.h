/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the process and of the machine. Also implements antigravity/process.h. */
#ifndef AG_PLATFORM_PROCESS_MEMORY_H
#define AG_PLATFORM_PROCESS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Returns the bytes of resident shared memory and of swapped memory, which the `anonymous` of
 * ag_process_memory() does not count. 0 if the system does not report them. */
size_t ag_process_shared_bytes(void);

/* Returns the bytes of main memory and swap of the machine; 0 if they are unknown. */
uint64_t ag_machine_memory_bytes(void);

/* Gives free blocks of the heap back to the system, where the C library can. */
void ag_trim_heap(void);

#endif
