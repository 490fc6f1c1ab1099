/* SPDX-License-Identifier: Apache-2.0 */
/* The controls of the forwarding libOpenCL, which every backend of this process then uses. */
#ifndef AG_TESTS_OPENCL_FORWARDED_H
#define AG_TESTS_OPENCL_FORWARDED_H

#include "support/opencl_forwarder.h"
#include "unit/opencl_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For main(), before a backend is made: NULL after saying why. */
static inline forwarder_controls *forward_opencl(const char *path) {
    setenv("AG_OPENCL_LIBRARY", path, 1);
    void *library = dlopen(path, RTLD_NOW);
    void *get = library ? dlsym(library, "forwarder_controls_get") : NULL;
    if (!get) {
        printf("%s\n", dlerror());
        return NULL;
    }
    forwarder_controls_fn *controls;
    memcpy(&controls, &get, sizeof controls);
    return controls();
}

/* For main(): the controls and a device that they have power over, which is the caller's; NULL: it
 * is only tried. 0, or what main() returns. */
static inline int open_forwarded(const char *path, forwarder_controls **controls,
                                 ag_backend **device) {
    *controls = forward_opencl(path);
    if (!*controls) return EXIT_FAILURE;
    ag_backend *be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    if (device) *device = be;
    else ag_backend_destroy(be);
    return 0;
}

#endif
