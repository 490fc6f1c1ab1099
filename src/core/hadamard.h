/* SPDX-License-Identifier: Apache-2.0 */
/* The Hadamard rotation of queries and keys: it spreads a few large components over all of them, so
 * that four bits hold a key better, and leaves q.k as it was. Source: QuaRot, arXiv:2404.00456. */
#ifndef AG_CORE_HADAMARD_H
#define AG_CORE_HADAMARD_H

#include <antigravity/operations.h>

/* In place, for n vectors of dim values, in pieces of 64 values or of the largest power of two that
 * divides dim. Normalised: applied twice it is the identity, but for rounding. */
void ag_hadamard(float *x, size_t n, size_t dim);
/* Values of a piece. */
size_t ag_hadamard_piece(size_t dim);

/* The same for the rows of a tensor [..., dim] F32, wherever it lies. */
ag_status ag_kv_hadamard(ag_backend *be, ag_tensor *x, ag_error *err);

#endif
