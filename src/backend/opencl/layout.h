/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of prepared weights, which kernels/weights.cl describes, and rows on their way there.
 */
#ifndef AG_OPENCL_LAYOUT_H
#define AG_OPENCL_LAYOUT_H

#include <antigravity/dtype.h>

/* Planes of levels, and from AG_CL_FACTORS on of their factors; not every type has all. */
enum { AG_CL_FACTORS = 2, AG_CL_PLANES = 4 };

/* Types that have a layout of planes, or are floats; of others weights stay rows. */
bool ag_cl_has_layout(ag_dtype type);
/* Bytes that a row of k values has in a plane. */
size_t ag_cl_plane_bytes(ag_dtype type, unsigned plane, size_t k);
/* A row of k values as it lies in a file, to its places in the planes. */
void ag_cl_take_apart(ag_dtype type, unsigned char *const planes[AG_CL_PLANES],
                      const unsigned char *row, size_t k);

#endif
