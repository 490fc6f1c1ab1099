/* SPDX-License-Identifier: Apache-2.0 */
/* What core/backend.c checks of every operation, once for all backends. Each function writes the
 * message, which names the two numbers that disagree, into the backend's error. */
#ifndef AG_CORE_BACKEND_CHECK_H
#define AG_CORE_BACKEND_CHECK_H

#include "core/backend_ops.h"

/* Room for "[1,2,3,4]" with any numbers. */
enum { AG_SHAPE_TEXT = 96 };

/* F32, layout 0. `name` is the parameter's. */
ag_status ag_check_f32(ag_backend *be, const ag_tensor *t, const char *name);
/* A dtype that holds floats, layout 0. */
ag_status ag_check_floats(ag_backend *be, const ag_tensor *t, const char *name);
ag_status ag_check_same_shape(ag_backend *be, const ag_tensor *a, const char *a_name,
                              const ag_tensor *b, const char *b_name);
/* A vector of n elements, F32. */
ag_status ag_check_vector(ag_backend *be, const ag_tensor *t, const char *name, size_t n);
/* The two share no byte. */
ag_status ag_check_no_overlap(ag_backend *be, const ag_tensor *a, const char *a_name,
                              const ag_tensor *b, const char *b_name);

/* y [m, n] = x [m, k] * rows [row0, row0 + n) of w [*, k]. */
ag_status ag_check_matmul_rows(ag_backend *be, const ag_tensor *y, const ag_tensor *x,
                               const ag_tensor *w, size_t row0);
ag_status ag_check_ids(ag_backend *be, const ag_tensor *table, const int32_t *ids, size_t n);
ag_status ag_check_kv_write(ag_backend *be, const ag_kv_view *kv, const ag_tensor *k,
                            const ag_tensor *v);
ag_status ag_check_keep(ag_backend *be, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                        uint32_t n_keep);
ag_status ag_check_attention(ag_backend *be, const ag_tensor *out, const ag_tensor *q,
                             const ag_attention_seq *seqs, size_t n_seqs);

#endif
