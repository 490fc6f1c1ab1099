/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of prepared weights: planes, which kernels/weights.cl describes; conversion of rows. */
#ifndef AG_OPENCL_LAYOUT_H
#define AG_OPENCL_LAYOUT_H

#include <antigravity/dtype.h>

/* Planes of levels, then, from AG_CL_FACTORS on, of factors. A type may lack some. */
enum { AG_CL_FACTORS = 2, AG_CL_PLANES = 4 };

/* Returns whether a type has a layout of planes or is a float type. Other weights stay rows. */
bool ag_cl_has_layout(ag_dtype type);
/* Returns the bytes of a row of k values in a plane. */
size_t ag_cl_plane_bytes(ag_dtype type, unsigned plane, size_t k);
/* Writes a row of k values in the file's layout to the planes. */
void ag_cl_take_apart(ag_dtype type, unsigned char *const planes[AG_CL_PLANES],
                      const unsigned char *row, size_t k);

#endif
