/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of backends that compute on the CPU. Supports every usage of tensor.h and counts its
 * bytes. */
#ifndef AG_MEMORY_GALLOC_H
#define AG_MEMORY_GALLOC_H

#include <antigravity/tensor.h>

/* Creates a memory, owned by the caller. Its buffers may outlive it. */
ag_status ag_galloc_create(ag_memory **out, ag_error *err);
void ag_galloc_destroy(ag_memory *mem); /* accepts NULL */

#endif
