/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the OpenCL backend, by file, and helpers of their launch code. */
#ifndef AG_OPENCL_OPS_H
#define AG_OPENCL_OPS_H

#include "backend/opencl/opencl.h"

/* ag_tensor.layout of prepared weights (layout.h). */
enum { AG_CL_LAYOUT_PREPARED = 1 };

/* Returns whether kernels can read values of a type (kernels/types.cl). */
static inline bool ag_cl_has_kernels(ag_dtype t) { return ag_dtype_may_be(t, AG_DTYPE_FLOATS); }
/* Fails because this backend has no kernels for `what` of the type. */
ag_status ag_cl_refuse_type(ag_cl_backend *cl, const char *what, ag_dtype type);

/* Returns n rounded up to a multiple of `group`. */
static inline size_t ag_cl_items(size_t n, size_t group) { return (n + group - 1) / group * group; }

/* Returns device memory for data between the kernels of one operation. Its earlier content is lost.
 * It grows to the largest request. Borrowed until the next call. */
ag_status ag_cl_need_scratch(ag_cl_backend *cl, size_t bytes, cl_mem *out);

/* Makes cl->tile_counts hold n zeros. Kernels leave zeros. */
ag_status ag_cl_need_counts(ag_cl_backend *cl, size_t n);

/* Returns host memory for tables of several sequences, like ag_cl_need_scratch(). */
ag_status ag_cl_need_joined(ag_cl_backend *cl, size_t bytes, unsigned char **out);

/* Sets the same two arguments as ag_cl_arg_at(), for memory of the backend that
 * ag_cl_release_part() releases. */
void ag_cl_arg_part(ag_cl_launch *l, cl_mem mem, uint64_t offset);

/* ops_rows.c */
ag_status ag_cl_rms_norm(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                         float eps);
ag_status ag_cl_add_rms_norm(ag_backend *b, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                             const ag_tensor *w, float eps);
ag_status ag_cl_softmax(ag_backend *b, ag_tensor *x);
ag_status ag_cl_add_assign(ag_backend *b, ag_tensor *x, const ag_tensor *y);
ag_status ag_cl_add_bias(ag_backend *b, ag_tensor *x, const ag_tensor *bias);
ag_status ag_cl_scale(ag_backend *b, ag_tensor *x, float v);
ag_status ag_cl_silu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cl_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cl_sigmoid_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cl_causal_conv(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                            ag_tensor *state, bool silu);
ag_status ag_cl_delta_rule(ag_backend *b, const ag_delta_call *call);
ag_status ag_cl_gelu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cl_softcap(ag_backend *b, ag_tensor *x, float cap);
ag_status ag_cl_rope(ag_backend *b, ag_tensor *x, const uint32_t *positions,
                     const ag_tensor *inv_freq, float factor);
ag_status ag_cl_rope_pair(ag_backend *b, ag_tensor *q, ag_tensor *k, const uint32_t *positions,
                          const ag_tensor *inv_freq, float factor);
ag_status ag_cl_hadamard(ag_backend *b, ag_tensor *x);

/* ops_convert.c */
ag_status ag_cl_gather(ag_backend *b, ag_tensor *dst, const ag_tensor *table, const int32_t *ids,
                       size_t n);
ag_status ag_cl_upload_rows(ag_backend *b, ag_tensor *dst, ag_dtype src_type, const void *src,
                            float scale);
ag_status ag_cl_cast(ag_backend *b, ag_tensor *dst, const ag_tensor *src);

/* ops_matmul.c */
enum { AG_CL_WEIGHTS = 3 }; /* maximum number of weights that kernels multiply with the same x */
/* Sets WEIGHT_PARAMS of AG_CL_WEIGHTS prepared weights and their products, of which there are n. */
void ag_cl_arg_weights(ag_cl_launch *l, ag_tensor *const y[], const ag_tensor *const w[], size_t n);
ag_status ag_cl_matmul(ag_backend *b, ag_tensor *y, const ag_tensor *a, const ag_tensor *x);
ag_status ag_cl_matmul_transposed(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                  const ag_tensor *w);
ag_status ag_cl_matmul_group(ag_backend *b, ag_tensor *const y[], const ag_tensor *x,
                             const ag_tensor *const w[], size_t n);

/* ops_pack.c. Packed rows are what matmul_mma.cl reads. */
enum { AG_CL_MATVEC_MOST_MMA = 4 }; /* rows of x up to which products go without tensor cores */
/* Returns the bytes of a packed value: with weights of floats two numbers. */
static inline size_t ag_cl_packed_bytes(ag_dtype type) {
    return ag_dtype_is_quantized(type) ? 2 : 4;
}
/* Packs the rows of x for weights of the type, unless cl->packed has them. again: rows of x were
 * packed in this product. */
ag_status ag_cl_pack(ag_cl_backend *cl, const ag_tensor *x, ag_dtype type, bool again);
/* Returns whether a product on tensor cores may read x next, so that x is packed when it is
 * computed. */
bool ag_cl_packs(const ag_cl_backend *cl, const ag_tensor *x);
/* Begins a launch of a kernel that packs x. more: further options. The caller adds arguments. */
ag_status ag_cl_begin_pack(ag_cl_launch *l, ag_cl_backend *cl, const char *kernel,
                           const ag_tensor *x, const char *more);
/* Launches, with a work-group for each row of x, and records that its rows are packed. */
ag_status ag_cl_finish_pack(ag_cl_launch *l, const ag_tensor *x);

/* ops_matmul_mma.c */
/* Returns whether the tensor cores may multiply x with a prepared weight of the type. */
bool ag_cl_mma_fits(const ag_cl_backend *cl, const ag_tensor *x, ag_dtype type);
/* Runs products with known results once. Clears cl->mma and logs a warning if one is wrong. */
void ag_cl_mma_check(ag_cl_backend *cl);
/* Multiplies x with n such weights. */
ag_status ag_cl_mma(ag_cl_backend *cl, ag_tensor *const y[], const ag_tensor *x,
                    const ag_tensor *const w[], size_t n);

/* prepare.c */
ag_status ag_cl_prepare_weight(ag_backend *b, ag_tensor *w, ag_buffer **owner, const ag_tensor *src,
                               ag_dtype want, ag_consumed_fn consumed, void *user);
void ag_cl_loading_close(ag_cl_backend *cl);
/* Return the offset of the scales of a prepared weight [n,k], and its total bytes; 0 if that
 * overflows. */
size_t ag_cl_prepared_scales(ag_dtype dtype, size_t n, size_t k);
size_t ag_cl_prepared_bytes(const ag_backend *b, ag_dtype dtype, size_t n, size_t k);

/* ops_kv_write.c */
ag_status ag_cl_kv_write(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                         const ag_tensor *k, const ag_tensor *v);

ag_status ag_cl_rope_kv_write(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                              const ag_rotation *r, const ag_tensor *k, const ag_tensor *v);

/* kv_table.c. Blocks of a cache for kernels/kv_table.cl: the first n_blocks of each row of
 * `blocks`. They are in at most AG_KV_BUFFERS buffers. */
typedef struct ag_cl_kv_rows {
    const ag_kv_block *blocks;
    const void *key; /* identifies the table if `blocks` changes; NULL: blocks */
    size_t n_rows, per_row;
    uint32_t n_blocks;
} ag_cl_kv_rows;
/* Sets KV_TABLE_PARAMS. */
void ag_cl_arg_rows(ag_cl_launch *l, const ag_cl_kv_rows *rows);
/* Sets KV_TABLE_PARAMS for a layer, with a row for each KV head. key: as above. */
void ag_cl_arg_view(ag_cl_launch *l, const ag_kv_view *kv, const void *key, uint32_t n_blocks);
void ag_cl_kv_tables_close(ag_cl_backend *cl);

/* ops_kv_compact.c */
ag_status ag_cl_kv_compact(ag_backend *b, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                           uint32_t n_keep);

/* ops_kv_rerotate.c */
ag_status ag_cl_kv_rerotate(ag_backend *b, const ag_kv_rerotate *how);

/* ops_key_scores.c */
ag_status ag_cl_key_scores(ag_backend *b, const ag_kv_view *kv, float *scores, size_t stride);

/* ops_attention.c */
ag_status ag_cl_attention(ag_backend *b, ag_tensor *out, const ag_tensor *q,
                          const ag_attention_seq *seqs, size_t n_seqs,
                          const ag_attention_params *params);
bool ag_cl_keeps_scores(const ag_backend *b, size_t head_dim);

/* ops_attention_rows.c */
/* Returns whether one launch can read or write rows of both sequences in one pass: those of b are
 * next to those of a, and their caches have equal types and sizes. */
bool ag_cl_are_joinable(const ag_attention_seq *a, const ag_attention_seq *b);
/* Returns the number of sequences at the start of seqs that one launch can serve; sums: also those
 * whose attention weights the device sums. */
size_t ag_cl_count_joinable(const ag_attention_seq *seqs, size_t n, bool sums);
/* Writes n sequences of one row each as one of n rows, whose cache has the KV heads of all. Its
 * arrays are valid until the next call: n_slots [n][heads], then visible_until [n], then [n] first
 * positions, to which visible_from points if there are windows. */
ag_status ag_cl_join_sequences(ag_cl_backend *cl, const ag_attention_seq *seqs, size_t n,
                               ag_attention_seq *out);
/* Returns whether kernels for warps can read a cache with heads of dim values. */
bool ag_cl_cache_fits_warps(const ag_kv_view *kv, size_t dim);
/* Returns whether ag_cl_attend_rows() can serve the sequence. */
bool ag_cl_fits_attend_rows(const ag_cl_backend *cl, const ag_tensor *out, const ag_tensor *q,
                            const ag_attention_seq *seq, const ag_attention_params *params);
/* Attends to n joinable sequences of one row each in one launch. */
ag_status ag_cl_attend_rows(ag_cl_backend *cl, const ag_tensor *out, const ag_tensor *q,
                            const ag_attention_seq *seqs, size_t n,
                            const ag_attention_params *params);

/* ops_sum_weights.c */
/* Returns the floats that attention of one row writes for a sequence's device_scores: scores of
 * n_slots slots for each query head, of which a KV head has `group`. 0: it has none. */
size_t ag_cl_score_floats(const ag_attention_seq *s, size_t group, uint32_t n_slots);
/* Adds attention weights to the device_scores of n sequences of one row. scores: those of the
 * sequences, one after the other, with `stride` slots; 0: with the slots of a sequence's blocks.
 * n_new: slots that kv.n_slots lacks. */
ag_status ag_cl_sum_weights(ag_cl_backend *cl, cl_mem scores, uint64_t scores_at,
                            const ag_attention_seq *seqs, size_t n, size_t group, uint32_t n_new,
                            uint32_t stride);

/* ops_top_k.c */
ag_status ag_cl_top_k(ag_backend *b, const ag_tensor *rows, ag_top_k *const tops[]);
/* Decodes a candidate: a word whose upper half is the logit in unsigned order and whose lower half
 * is the complement of its id, so that larger words are better. */
void ag_cl_candidate(uint64_t candidate, int32_t *id, float *value);

/* checks.c */
/* Runs each chosen extension once on the device. Fails with AG_DEVICE if results are wrong. */
ag_status ag_cl_vendor_check(ag_cl_backend *cl, ag_error *err);

/* bandwidth.c */
ag_status ag_cl_read_rate(ag_backend *b, double *bytes_per_s);

#endif
