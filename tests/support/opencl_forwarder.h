/* SPDX-License-Identifier: Apache-2.0 */
/* A libOpenCL that passes every call on to the real one, counts, and lets one call fail. It is a
 * shared library: AG_OPENCL_LIBRARY names it, and a test in the same process finds the controls
 * with dlopen and dlsym("forwarder_controls_get"). */
#ifndef AG_TESTS_SUPPORT_OPENCL_FORWARDER_H
#define AG_TESTS_SUPPORT_OPENCL_FORWARDER_H

#include <stddef.h>

typedef struct forwarder_controls {
    size_t n_calls;     /* calls that can fail: all but releases */
    size_t fail_at;     /* number of the call that fails, from 1; 0: none ($AG_FORWARDER_FAIL_AT) */
    const char *failed; /* its name; NULL: none has failed */
    size_t n_live;      /* objects made and not released; events are not counted */
    size_t n_arguments, n_launches, n_buffers, n_finishes;
    size_t n_reads, read_bytes, n_writes, written_bytes;
    /* Limits of a smaller device, which reports and enforces them. 0: the real device's.
     * $AG_FORWARDER_MAX_GROUP, $AG_FORWARDER_LOCAL, $AG_FORWARDER_MAX_ALLOC */
    size_t max_group, local_bytes, max_alloc;
    size_t memory_bytes; /* only reported: $AG_FORWARDER_MEMORY */
    size_t sub_groups;   /* the largest number in a work-group, only reported */
} forwarder_controls;

typedef forwarder_controls *forwarder_controls_fn(void);

#endif
