/* SPDX-License-Identifier: Apache-2.0 */
/* Compositions: operations that a backend leaves out, built from its required ones or computed on
 * the host. Arguments must have been checked. The host paths may allocate. A backend that decodes
 * with them is correct but slow. */
#ifndef AG_CORE_BACKEND_COMPOSE_H
#define AG_CORE_BACKEND_COMPOSE_H

#include "core/backend_ops.h"

/* An F32 tensor as the host sees it: mapped in place, or a copy. */
typedef struct ag_host_view {
    float *data;
    float *copy; /* owned; NULL: mapped in place */
} ag_host_view;

/* Opens a view. The backend must have been synchronised. Every opened view must be closed. `write`:
 * uploads the changes. */
ag_status ag_host_view_open(ag_backend *be, ag_host_view *view, const ag_tensor *t);
ag_status ag_host_view_close(ag_backend *be, ag_host_view *view, const ag_tensor *t, bool write);

/* Copies n bytes. Ranges of one buffer may overlap. */
ag_status ag_compose_copy_bytes(ag_backend *be, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                                size_t src_offset, size_t n);
ag_status ag_compose_prepare_weight(ag_backend *be, ag_tensor *w, ag_buffer **owner,
                                    const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                    void *user);
ag_status ag_compose_add_bias(ag_backend *be, ag_tensor *x, const ag_tensor *bias);
ag_status ag_compose_gelu_mul(ag_backend *be, ag_tensor *a, const ag_tensor *x);
ag_status ag_compose_softcap(ag_backend *be, ag_tensor *x, float cap);
ag_status ag_compose_mul(ag_backend *be, ag_tensor *a, const ag_tensor *x);
ag_status ag_compose_sigmoid_mul(ag_backend *be, ag_tensor *a, const ag_tensor *x);
ag_status ag_compose_swiglu_clamped(ag_backend *be, ag_tensor *a, const ag_tensor *x, float limit);
/* Defined in backend_recurrence.c. */
ag_status ag_compose_causal_conv(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                 const ag_tensor *w, ag_tensor *state, bool silu);
ag_status ag_compose_delta_rule(ag_backend *be, const ag_delta_call *call);
ag_status ag_compose_gather(ag_backend *be, ag_tensor *dst, const ag_tensor *table,
                            const int32_t *ids, size_t n);
ag_status ag_compose_kv_write(ag_backend *be, const ag_attention_seq *seqs, size_t n_seqs,
                              const ag_tensor *k, const ag_tensor *v);
ag_status ag_compose_kv_compact(ag_backend *be, const ag_kv_view *kv, uint32_t head,
                                const uint32_t *keep, uint32_t n_keep);
/* The reference of attention: two passes over the cache, sums in double. Defined in
 * backend_attention.c. */
ag_status ag_compose_attention(ag_backend *be, ag_tensor *out, const ag_tensor *q,
                               const ag_attention_seq *seqs, size_t n_seqs,
                               const ag_attention_params *params);

#endif
