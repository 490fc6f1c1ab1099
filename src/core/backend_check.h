/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the arguments of operations, once for all backends. A check that fails writes a message
 * with the two numbers that disagree into the backend's error. */
#ifndef AG_CORE_BACKEND_CHECK_H
#define AG_CORE_BACKEND_CHECK_H

#include "core/backend_ops.h"

/* Bytes of "[1,2,3,4]" with any numbers. */
enum { AG_SHAPE_TEXT = 96 };

/* Fails unless t is F32 with layout 0. `name` is the parameter's, for the message. */
ag_status ag_check_f32(ag_backend *be, const ag_tensor *t, const char *name);
/* Fails unless t has a type of floats and layout 0. */
ag_status ag_check_floats(ag_backend *be, const ag_tensor *t, const char *name);
ag_status ag_check_same_shape(ag_backend *be, const ag_tensor *a, const char *a_name,
                              const ag_tensor *b, const char *b_name);
/* Fails unless t is F32 and has n elements. */
ag_status ag_check_vector(ag_backend *be, const ag_tensor *t, const char *name, size_t n);
/* Fails if the two tensors share a byte. */
ag_status ag_check_no_overlap(ag_backend *be, const ag_tensor *a, const char *a_name,
                              const ag_tensor *b, const char *b_name);

/* Checks y [m, n] = x [m, k] * rows [row0, row0 + n) of w [*, k], transposed. */
ag_status ag_check_matmul_rows(ag_backend *be, const ag_tensor *y, const ag_tensor *x,
                               const ag_tensor *w, size_t row0);
ag_status ag_check_ids(ag_backend *be, const ag_tensor *table, const int32_t *ids, size_t n);
ag_status ag_check_kv_write(ag_backend *be, const ag_attention_seq *s, const ag_tensor *k,
                            const ag_tensor *v);
ag_status ag_check_keep(ag_backend *be, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                        uint32_t n_keep);
ag_status ag_check_attention(ag_backend *be, const ag_tensor *out, const ag_tensor *q,
                             const ag_attention_seq *seqs, size_t n_seqs);

#endif
