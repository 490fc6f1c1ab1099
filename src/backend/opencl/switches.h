/* SPDX-License-Identifier: Apache-2.0 */
/* The environment's variables AG_OPENCL_*, read once when a backend is made: docs/opencl.md says
 * what each is for. */
#ifndef AG_OPENCL_SWITCHES_H
#define AG_OPENCL_SWITCHES_H

#include <antigravity/status.h>
#include <stdbool.h>

/* Unset or empty, 0, 1. */
typedef enum ag_cl_switch { AG_CL_AUTO, AG_CL_OFF, AG_CL_ON } ag_cl_switch;

typedef struct ag_cl_switches {
    ag_cl_switch token, lanes, int_dot, mma;
    ag_cl_switch subgroups, dot, half;
    unsigned emulated; /* lanes of a sub-group that stands in for the device's; 0: none */
    char *kernels; /* owned; folder of kernel files that replace the embedded ones; NULL: none */
    char *cache;   /* owned; folder for binaries of programs; NULL: none are kept */
    bool default_cache; /* nobody has named it */
} ag_cl_switches;

/* AG_INVALID names the variable that is nothing it can be. Release what it owns in any case. */
ag_status ag_cl_switches_read(ag_cl_switches *out, ag_error *err);
void ag_cl_switches_release(ag_cl_switches *s);
/* For PoCL, which keeps what it compiles itself, and which compiles every kernel of a file once
 * more to hand out a binary: only a folder that somebody has named is used. */
void ag_cl_switches_drop_default_cache(ag_cl_switches *s);

/* The library that AG_OPENCL_LIBRARY names; NULL: none. */
const char *ag_cl_library_asked(void);

static inline bool ag_cl_is_on(ag_cl_switch s, bool otherwise) {
    return s == AG_CL_AUTO ? otherwise : s == AG_CL_ON;
}

#endif
