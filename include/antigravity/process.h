/* SPDX-License-Identifier: Apache-2.0 */
/* Memory use of this process. */
#ifndef ANTIGRAVITY_PROCESS_H
#define ANTIGRAVITY_PROCESS_H

#include <antigravity/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of memory that are resident now. */
typedef struct ag_memory_usage {
    size_t anonymous; /* private memory: heap, weights, caches */
    size_t file;      /* pages of mapped files; the system may drop them at any time */
    size_t peak;      /* maximum of the sum, since the process started */
    /* Maximum of `anonymous` over all calls of ag_process_memory(). The system does not record it,
     * so the library calls the function while weights are loaded, when use is highest. */
    size_t anonymous_peak;
} ag_memory_usage;

/* Reads the memory use. Fails with AG_UNSUPPORTED, and zeroes *out, on systems without /proc.
 * Allocates nothing. Thread-safe. Source: proc(5), /proc/self/status. */
AG_API ag_status ag_process_memory(ag_memory_usage *out);

#ifdef __cplusplus
}
#endif
#endif
