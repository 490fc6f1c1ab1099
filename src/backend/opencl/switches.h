/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables AG_OPENCL_*, read once when a backend is created.
 * docs/reference/opencl-environment.md describes them. */
#ifndef AG_OPENCL_SWITCHES_H
#define AG_OPENCL_SWITCHES_H

#include <antigravity/status.h>
#include <stdbool.h>

/* A variable that is unset or empty, 0, or 1. */
typedef enum ag_cl_switch { AG_CL_AUTO, AG_CL_OFF, AG_CL_ON } ag_cl_switch;

typedef struct ag_cl_switches {
    ag_cl_switch token, lanes, int_dot, mma;
    ag_cl_switch subgroups, dot, half, addresses;
    unsigned units;     /* compute units to choose sizes for; 0: the device's */
    unsigned emulated;  /* lanes of an emulated sub-group; 0: none */
    char *kernels;      /* owned; directory of files that replace embedded kernels; NULL: none */
    char *cache;        /* owned; directory of cached binaries; NULL: no cache */
    bool default_cache; /* AG_OPENCL_CACHE is not set */
} ag_cl_switches;

/* Reads the variables. AG_INVALID names an invalid one. Free *out also after an error. */
ag_status ag_cl_switches_read(ag_cl_switches *out, ag_error *err);
void ag_cl_switches_release(ag_cl_switches *s);
/* Disables the default cache directory, for PoCL: it has a cache of its own, and compiles every
 * kernel of a file again to return a binary. A directory set by AG_OPENCL_CACHE is still used. */
void ag_cl_switches_drop_default_cache(ag_cl_switches *s);

/* Returns the value of AG_OPENCL_LIBRARY; NULL: not set. */
const char *ag_cl_library_asked(void);

static inline bool ag_cl_is_on(ag_cl_switch s, bool otherwise) {
    return s == AG_CL_AUTO ? otherwise : s == AG_CL_ON;
}

#endif
