/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of backends that compute on the CPU: every usage of tensor.h, really counted. */
#ifndef AG_MEMORY_GALLOC_H
#define AG_MEMORY_GALLOC_H

#include <antigravity/tensor.h>

/* Owned by the caller, usually a backend. Its buffers may outlive it. */
ag_status ag_galloc_create(ag_memory **out, ag_error *err);
void ag_galloc_destroy(ag_memory *mem); /* NULL is fine */

#endif
