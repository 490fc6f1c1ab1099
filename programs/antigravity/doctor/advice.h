/* SPDX-License-Identifier: Apache-2.0 */
/* Advice of `doctor`: what is missing or slow on this machine, why, and what to do. */
#ifndef ANTIGRAVITY_ADVICE_H
#define ANTIGRAVITY_ADVICE_H

#include "../devices.h"

/* Appends one piece of advice, an object, to *list. `about` is the report's label. */
void advise(json_t **list, const char *about, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the names of the OpenCL drivers that the tree `root` has: files of /etc/OpenCL/vendors.
 */
json_t *opencl_drivers(const char *root);

/* Advises on GPUs that `opencl` does not offer: driver packages, permissions, variables. `opencl`
 * is NULL if the build has no OpenCL backend. `root` has /sys, /dev and /etc of the machine. */
void advise_on_gpus(json_t **list, const char *root, const backend_entry *opencl);

#endif
