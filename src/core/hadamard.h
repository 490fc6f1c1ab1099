/* SPDX-License-Identifier: Apache-2.0 */
/* Hadamard rotation of queries and keys. It spreads a few large components over all of them, so
 * that 4-bit types store keys with smaller errors. q.k does not change. Source: QuaRot,
 * arXiv:2404.00456. */
#ifndef AG_CORE_HADAMARD_H
#define AG_CORE_HADAMARD_H

#include <antigravity/operations.h>

/* Rotates n vectors of dim values in place, in pieces of 64 values or of the largest power of two
 * that divides dim. Applied twice it is the identity, except for rounding. */
void ag_hadamard(float *x, size_t n, size_t dim);
/* Returns the number of values of a piece. */
size_t ag_hadamard_piece(size_t dim);

/* Rotates the rows of a tensor [..., dim] F32, in host or device memory. */
ag_status ag_kv_hadamard(ag_backend *be, ag_tensor *x, ag_error *err);

#endif
