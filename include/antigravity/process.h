/* SPDX-License-Identifier: Apache-2.0 */
/* What this process occupies of the machine's memory. */
#ifndef ANTIGRAVITY_PROCESS_H
#define ANTIGRAVITY_PROCESS_H

#include <antigravity/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of memory that are resident now. */
typedef struct ag_memory_usage {
    size_t anonymous; /* memory of its own: heap, weights, cache */
    size_t file;      /* pages of mapped files; the system may drop them at any time */
    size_t peak;      /* of all kinds together, since the process began */
    /* The largest `anonymous` that a call of this function has seen: the system keeps no such
     * figure, so the library calls it where memory is at its height (while weights are loaded). */
    size_t anonymous_peak;
} ag_memory_usage;

/* AG_UNSUPPORTED where the system does not tell (no /proc); *out is zeroed then. Allocates nothing.
 * Thread-safe. Source: proc(5), /proc/self/status. */
AG_API ag_status ag_process_memory(ag_memory_usage *out);

#ifdef __cplusplus
}
#endif
#endif
