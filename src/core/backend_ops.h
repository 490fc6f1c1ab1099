/* SPDX-License-Identifier: Apache-2.0 */
/* The table a backend fills. core/backend.c is the only caller: it has checked shapes and dtypes,
 * so a slot may trust its arguments. Meaning of each operation: antigravity/operations.h. */
#ifndef AG_CORE_BACKEND_OPS_H
#define AG_CORE_BACKEND_OPS_H

#include "core/kv_rerotate.h"
#include "core/rows_times.h"
#include "core/stages.h"
#include "quant/quant.h"

#include <antigravity/operations.h>

/* The operands of ag_delta_rule. */
typedef struct ag_delta_call {
    ag_tensor *out, *state;
    const ag_tensor *qkv, *a, *b, *decay, *dt_bias;
    ag_delta_params params;
} ag_delta_call;

/* Items [begin, end) of some work. */
typedef void (*ag_work_fn)(void *ctx, size_t begin, size_t end, uint32_t thread);

typedef struct ag_backend_ops {
    const char *name; /* spelling for --backend and logs */
    void (*destroy)(ag_backend *b);
    ag_memory *(*memory)(ag_backend *b);

    ag_status (*matmul)(ag_backend *b, ag_tensor *y, const ag_tensor *a, const ag_tensor *x);
    ag_status (*matmul_transposed)(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                   const ag_tensor *w);
    ag_status (*rms_norm)(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                          float eps);
    ag_status (*softmax)(ag_backend *b, ag_tensor *x);
    /* factor: of cosines and sines */
    ag_status (*rope)(ag_backend *b, ag_tensor *x, const uint32_t *positions,
                      const ag_tensor *inv_freq, float factor);
    ag_status (*silu_mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*add_assign)(ag_backend *b, ag_tensor *x, const ag_tensor *y);
    ag_status (*scale)(ag_backend *b, ag_tensor *x, float v);
    ag_status (*cast)(ag_backend *b, ag_tensor *dst, const ag_tensor *src);

    /* optional; NULL: one line made of the name */
    const char *(*describe)(ag_backend *b);
    /* optional; NULL: 1 */
    uint32_t (*n_threads)(const ag_backend *b);
    /* optional; NULL: 1. A pass of so many rows and fewer gives each the bits that it has alone */
    uint32_t (*batch_invariant_rows)(const ag_backend *b);
    /* optional; NULL: operations are done when they return */
    ag_status (*sync)(ag_backend *b);
    /* optional; NULL: bytes go through the host */
    ag_status (*copy_bytes)(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                            size_t src_offset, size_t n);
    /* optional; NULL: matmul_transposed on a view of the rows */
    ag_status (*matmul_slice)(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                              size_t row0);
    /* optional; NULL: one matmul_transposed after the other */
    ag_status (*matmul_group)(ag_backend *b, ag_tensor *const y[], const ag_tensor *x,
                              const ag_tensor *const w[], size_t n);
    /* optional; NULL: converted row by row on the host, then uploaded, layout 0 */
    ag_status (*prepare_weight)(ag_backend *b, ag_tensor *w, ag_buffer **owner,
                                const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                void *user);
    /* optional; NULL: rows as the type says. Bytes of the buffer that prepare_weight makes of a
     * weight that becomes `type` */
    size_t (*prepared_bytes)(const ag_backend *b, ag_dtype type, size_t rows, size_t cols);
    /* optional; NULL: add_assign, then rms_norm */
    ag_status (*add_rms_norm)(ag_backend *b, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                              const ag_tensor *w, float eps);
    /* optional; NULL: rope of the one, then of the other */
    ag_status (*rope_pair)(ag_backend *b, ag_tensor *q, ag_tensor *k, const uint32_t *positions,
                           const ag_tensor *inv_freq, float factor);
    /* optional; NULL: on the host, through map */
    ag_status (*add_bias)(ag_backend *b, ag_tensor *x, const ag_tensor *bias);
    ag_status (*gelu_mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*softcap)(ag_backend *b, ag_tensor *x, float cap);
    ag_status (*mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*sigmoid_mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*causal_conv)(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                             ag_tensor *state, bool silu);
    ag_status (*delta_rule)(ag_backend *b, const ag_delta_call *call);
    ag_status (*gather)(ag_backend *b, ag_tensor *dst, const ag_tensor *table, const int32_t *ids,
                        size_t n);
    ag_status (*kv_write)(ag_backend *b, const ag_kv_view *kv, const ag_tensor *k,
                          const ag_tensor *v, const uint32_t *positions);
    ag_status (*attention)(ag_backend *b, ag_tensor *out, const ag_tensor *q,
                           const ag_attention_seq *seqs, size_t n_seqs,
                           const ag_attention_params *params);
    /* optional; NULL: attention needs nothing beforehand */
    ag_status (*attention_reserve)(ag_backend *b, const ag_attention_limits *limits);
    /* optional; NULL: all of it on the caller's thread */
    void (*for_each)(ag_backend *b, size_t n, ag_work_fn work, void *ctx);
    /* optional; NULL: that of quant/. What prepare_weight rounds with; valid as long as b */
    const ag_weight_rounding *(*rounding)(const ag_backend *b);
    /* optional; NULL: ag_dequantize_row */
    void (*unpack)(ag_backend *b, ag_dtype type, float *dst, const void *src, size_t n);
    /* optional; NULL: runs of slots through copy_bytes */
    ag_status (*kv_compact)(ag_backend *b, const ag_kv_view *kv, uint32_t head,
                            const uint32_t *keep, uint32_t n_keep);
    /* optional; NULL: on the host, through map. x in place, see core/hadamard.h */
    ag_status (*hadamard)(ag_backend *b, ag_tensor *x);
    /* optional; NULL: the row is read as a whole. Waits for the row */
    ag_status (*top_k)(ag_backend *b, const ag_tensor *row, ag_top_k *top);
    /* optional; NULL: not measured */
    ag_status (*read_rate)(ag_backend *b, double *bytes_per_s);
    /* optional; NULL: never taken. A program of stages alone for one token. *taken: its keys and
     * values are in each cache's next slot, which is the caller's to count, and the logits are
     * there; results are those of the operations but for rounding. Else nothing has changed but the
     * bytes of those slots, and the caller runs the operations. */
    ag_status (*run_program)(ag_backend *b, const ag_step *step, bool *taken);
    /* optional; NULL: on the host, which then keeps the copies */
    ag_status (*kv_rerotate)(ag_backend *b, const ag_kv_rerotate *how);
    /* optional; NULL: never. Whether attention over heads of this size adds weights up in the
     * backend's memory */
    bool (*keeps_scores)(const ag_backend *b, size_t head_dim);
    /* optional; NULL: keys are read and scored on the host. Waits for the scores */
    ag_status (*key_scores)(ag_backend *b, const ag_kv_view *kv, float *scores, size_t stride);
    /* optional; NULL: the reference. As ag_rows_times_of */
    ag_rows_times_fn *(*rows_times)(const ag_backend *b);
} ag_backend_ops;

/* Hears of x [n, columns], which a product with the stored weight w is about to read. */
typedef void (*ag_observe_fn)(void *user, const ag_tensor *x, const ag_tensor *w);

struct ag_backend {
    const ag_backend_ops *ops;
    ag_error err;  /* of the last failed operation */
    ag_log_fn log; /* NULL: nobody listens */
    void *log_user;
    ag_observe_fn observe; /* NULL: nobody does */
    void *observe_user;
    struct ag_block_pool *block_pools; /* owned; core/block_pool.h */
};

/* One line for the callback of ag_backend_params. */
void ag_backend_log(const ag_backend *be, ag_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The backend keeps the message of a failed operation; this hands it to a caller who has an *err.
 */
static inline ag_status ag_take_error(const ag_backend *be, ag_status st, ag_error *err) {
    if (st != AG_OK && err) *err = be->err;
    return st;
}

/* Bytes of the buffer that ag_prepare_weight() makes of a weight that becomes `type`. be NULL: rows
 * as the type says. 0: there is no such weight. */
size_t ag_prepared_bytes(const ag_backend *be, ag_dtype type, size_t rows, size_t cols);

/* ---- operations on the cache: internal, since only the cache can make a view ---- */

/* Appends n tokens to the layer: slot n_slots[h] + i of every KV head h receives row i, rounded to
 * the cache's types by the reference rules of quant/, and positions[i]. The blocks must be there;
 * n_slots is the caller's to raise afterwards.  k, v [n, n_kv_heads, head_dim] F32. */
ag_status ag_kv_write(ag_backend *be, const ag_kv_view *kv, const ag_tensor *k, const ag_tensor *v,
                      const uint32_t *positions);

/* out = softmax(q K^T * scale) V for every query row and head, grouped queries, over the slots that
 * ag_attention_seq makes visible to the row. A row that sees no slot becomes 0.
 *   out, q  [rows, n_heads, head_dim] F32, different tensors; n_heads % n_kv_heads = 0
 * Each row is computed by itself, in slot order: the result depends neither on how a prompt is cut
 * into calls nor on the number of threads. */
ag_status ag_attention(ag_backend *be, ag_tensor *out, const ag_tensor *q,
                       const ag_attention_seq *seqs, size_t n_seqs,
                       const ag_attention_params *params);

/* Whether the weights that a sequence asks for are to be added up in the backend's memory. */
bool ag_keeps_scores(const ag_backend *be, size_t head_dim);

/* Takes what ag_attention needs for every call within the limits, so that none of these allocates.
 */
ag_status ag_attention_reserve(ag_backend *be, const ag_attention_limits *limits);

/* The most rows of a pass each of which is computed to the bit as it would be alone. */
uint32_t ag_batch_invariant_rows(const ag_backend *be);

/* Work of the host that several threads of the backend may share: n items, in any order. */
void ag_for_each(ag_backend *be, size_t n, ag_work_fn work, void *ctx);

/* The backend's product of rows with a narrow matrix, or the reference. */
ag_rows_times_fn *ag_rows_times_of(const ag_backend *be);

/* What rounds weights on the host, on any thread. */
const ag_weight_rounding *ag_backend_rounding(const ag_backend *be);

/* dst[0..n) = the values of rows of a cache, both in host memory. */
void ag_unpack(ag_backend *be, ag_dtype type, float *dst, const void *src, size_t n);

/* Slot keep[i] of one KV head moves to slot i, K, V and position. keep is ascending, host memory
 * and borrowed for the call; n_slots is the caller's to lower afterwards. For caches in memory that
 * the host does not see. */
ag_status ag_kv_compact(ag_backend *be, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                        uint32_t n_keep);

/* ag_rope of q [n,heads,d] and of k [n,kv_heads,d] at the same positions; the values that are
 * rotated are multiplied by factor. */
ag_status ag_rope_pair(ag_backend *be, ag_tensor *q, ag_tensor *k, const uint32_t *positions,
                       const ag_tensor *inv_freq, float factor);

/* Whether protected keys are rotated where the cache lies. */
bool ag_has_kv_rerotate(const ag_backend *be);
/* Rotates the keys of the list as ag_rope does with these angles, and writes them into their slots,
 * rounded to the cache's type as ag_kv_write rounds; nothing else of the slots changes. */
ag_status ag_rerotate_keys(ag_backend *be, const ag_kv_rerotate *how);

/* Whether keys are scored where the cache lies. */
bool ag_has_key_scores(const ag_backend *be);
/* scores[h * stride + s] = -cos(key of slot s of KV head h, mean of the head's normalised keys), on
 * the host; what lies behind a head's slots is overwritten. stride: at least the longest head's
 * slots. */
ag_status ag_score_keys(ag_backend *be, const ag_kv_view *kv, float *scores, size_t stride);

/* Whether reading a few values of a row costs less here than reading it. */
bool ag_has_top_k(const ag_backend *be);
ag_status ag_find_top_k(ag_backend *be, const ag_tensor *row, ag_top_k *top);

#endif
