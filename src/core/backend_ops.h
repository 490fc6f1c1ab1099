/* SPDX-License-Identifier: Apache-2.0 */
/* Backend interface: the table of functions that a backend fills in, and internal operations. Only
 * core/backend.c calls the table. It has checked shapes and dtypes, so a function may trust its
 * arguments. antigravity/operations.h defines the operations. */
#ifndef AG_CORE_BACKEND_OPS_H
#define AG_CORE_BACKEND_OPS_H

#include "core/experts.h"
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

/* Rotation of queries, and of the keys at the same positions. */
typedef struct ag_rotation {
    ag_tensor *q; /* [rows, heads, head_dim] */
    const ag_tensor *inv_freq;
    float factor; /* multiplies the rotated values */
} ag_rotation;

/* Does items [begin, end) of some work on thread number `thread`. */
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
    /* factor multiplies cosines and sines. */
    ag_status (*rope)(ag_backend *b, ag_tensor *x, const uint32_t *positions,
                      const ag_tensor *inv_freq, float factor);
    ag_status (*silu_mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*add_assign)(ag_backend *b, ag_tensor *x, const ag_tensor *y);
    ag_status (*scale)(ag_backend *b, ag_tensor *x, float v);
    ag_status (*cast)(ag_backend *b, ag_tensor *dst, const ag_tensor *src);

    /* optional; NULL: the name. Returns one line */
    const char *(*describe)(ag_backend *b);
    /* optional; NULL: 1 */
    uint32_t (*n_threads)(const ag_backend *b);
    /* optional; NULL: 1. Returns the maximum number of rows of a batch-invariant pass: every row
     * has the same bits as when computed alone */
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
    /* optional; NULL: matmul_group, then silu_mul or gelu_mul */
    ag_status (*matmul_gated)(ag_backend *b, ag_gate_kind kind, ag_tensor *const y[2],
                              const ag_tensor *x, const ag_tensor *const w[2]);
    /* optional; NULL: one matmul_transposed for each expert with rows */
    ag_status (*matmul_experts)(ag_backend *b, const ag_expert_call *call);
    /* optional; NULL: the host converts and uploads row by row, with layout 0 */
    ag_status (*prepare_weight)(ag_backend *b, ag_tensor *w, ag_buffer **owner,
                                const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                void *user);
    /* optional; NULL: weights are prepared on the thread that runs b. Creates a backend that
     * prepares weights for b on another thread, in b's memory. It is destroyed before b */
    ag_status (*open_loader)(ag_backend *b, ag_backend **out, ag_error *err);
    /* optional; NULL: weights have buffers of their own. Prepares a weight into `buffer` from byte
     * `offset` on, a multiple of 64. prepared_bytes has its size */
    ag_status (*prepare_weight_at)(ag_backend *b, ag_tensor *w, ag_buffer *buffer, size_t offset,
                                   const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                   void *user);
    /* optional; NULL: plain rows of the type. Returns the bytes of the buffer that prepare_weight
     * makes for a weight of `type` */
    size_t (*prepared_bytes)(const ag_backend *b, ag_dtype type, size_t rows, size_t cols);
    /* optional; NULL: add_assign, then rms_norm */
    ag_status (*add_rms_norm)(ag_backend *b, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                              const ag_tensor *w, float eps);
    /* optional; NULL: rope of q, then of k */
    ag_status (*rope_pair)(ag_backend *b, ag_tensor *q, ag_tensor *k, const uint32_t *positions,
                           const ag_tensor *inv_freq, float factor);
    /* optional; NULL: on the host, through map */
    ag_status (*add_bias)(ag_backend *b, ag_tensor *x, const ag_tensor *bias);
    ag_status (*gelu_mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*softcap)(ag_backend *b, ag_tensor *x, float cap);
    ag_status (*mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*sigmoid_mul)(ag_backend *b, ag_tensor *a, const ag_tensor *x);
    ag_status (*swiglu_clamped)(ag_backend *b, ag_tensor *a, const ag_tensor *x, float limit);
    ag_status (*causal_conv)(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                             ag_tensor *state, bool silu);
    ag_status (*delta_rule)(ag_backend *b, const ag_delta_call *call);
    ag_status (*gather)(ag_backend *b, ag_tensor *dst, const ag_tensor *table, const int32_t *ids,
                        size_t n);
    /* optional; NULL: never called. Writes rows of src_type in host memory, times `scale`, to dst.
     * The bits are those of ag_dequantize_row() and a product. dst F32, rows contiguous; src_type
     * any type of floats. src may change when it returns */
    ag_status (*upload_rows)(ag_backend *b, ag_tensor *dst, ag_dtype src_type, const void *src,
                             float scale);
    ag_status (*kv_write)(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                          const ag_tensor *k, const ag_tensor *v);
    /* optional; NULL: the caller rotates first. Rotates q in place, and k as it is written; the
     * rows of k are undefined afterwards */
    ag_status (*rope_kv_write)(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                               const ag_rotation *r, const ag_tensor *k, const ag_tensor *v);
    ag_status (*attention)(ag_backend *b, ag_tensor *out, const ag_tensor *q,
                           const ag_attention_seq *seqs, size_t n_seqs,
                           const ag_attention_params *params);
    /* optional; NULL: attention allocates nothing */
    ag_status (*attention_reserve)(ag_backend *b, const ag_attention_limits *limits);
    /* optional; NULL: the calling thread does all work */
    void (*for_each)(ag_backend *b, size_t n, ag_work_fn work, void *ctx);
    /* optional; NULL: ag_reference_rounding. Returns the rounding of prepare_weight; valid as long
     * as b */
    const ag_weight_rounding *(*rounding)(const ag_backend *b);
    /* optional; NULL: ag_dequantize_row */
    void (*unpack)(ag_backend *b, ag_dtype type, float *dst, const void *src, size_t n);
    /* optional; NULL: copies runs of slots by copy_bytes */
    ag_status (*kv_compact)(ag_backend *b, const ag_kv_view *kv, uint32_t head,
                            const uint32_t *keep, uint32_t n_keep);
    /* optional; NULL: on the host, through map. Changes x in place; see core/hadamard.h */
    ag_status (*hadamard)(ag_backend *b, ag_tensor *x);
    /* optional; NULL: the caller downloads the rows. Waits for the rows */
    ag_status (*top_k)(ag_backend *b, const ag_tensor *rows, ag_top_k *const tops[]);
    /* optional; NULL: not measured */
    ag_status (*read_rate)(ag_backend *b, double *bytes_per_s);
    /* optional; NULL: AG_UNSUPPORTED. See ag_backend_launches() */
    ag_status (*launches)(ag_backend *b, ag_launch_info *out, size_t cap, size_t *n);
    /* optional; NULL: never runs. Runs a program of stages for one token. *taken: the token's keys
     * and values are in each cache's next slot, which the caller must count, and the logits are
     * written. Results equal those of the operations except for rounding. !*taken: only the bytes
     * of those slots may have changed, and the caller runs the operations. */
    ag_status (*run_program)(ag_backend *b, const ag_step *step, bool *taken);
    /* optional; NULL: the host rotates, and holds the copies of keys */
    ag_status (*kv_rerotate)(ag_backend *b, const ag_kv_rerotate *how);
    /* optional; NULL: false. Returns whether attention over heads of this size sums attention
     * weights in the backend's memory */
    bool (*keeps_scores)(const ag_backend *b, size_t head_dim);
    /* optional; NULL: the host reads and scores keys. Waits for the scores */
    ag_status (*key_scores)(ag_backend *b, const ag_kv_view *kv, float *scores, size_t stride);
    /* optional; NULL: ag_rows_times_reference */
    ag_rows_times_fn *(*rows_times)(const ag_backend *b);
} ag_backend_ops;

/* Called before a product of n rows of x, from `row` on, with the stored weight w. */
typedef void (*ag_observe_fn)(void *user, const ag_tensor *x, size_t row, size_t n,
                              const ag_tensor *w);

struct ag_backend {
    const ag_backend_ops *ops;
    ag_error err;  /* error of the last failed operation */
    ag_log_fn log; /* may be NULL */
    void *log_user;
    ag_observe_fn observe; /* may be NULL */
    void *observe_user;
    struct ag_block_pool *block_pools; /* owned; core/block_pool.h */
};

/* Sends one line to the log callback of ag_backend_params. */
void ag_backend_log(const ag_backend *be, ag_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns whether another thread can prepare weights for b. */
bool ag_backend_has_loader(const ag_backend *b);
/* Creates the backend for that thread, which must destroy it: see open_loader. */
ag_status ag_backend_open_loader(ag_backend *b, ag_backend **out, ag_error *err);

/* Copies the backend's error into *err if st is a failure. Returns st. err may be NULL. */
static inline ag_status ag_take_error(const ag_backend *be, ag_status st, ag_error *err) {
    if (st != AG_OK && err) *err = be->err;
    return st;
}

/* Returns the bytes of the buffer that ag_prepare_weight() makes for a weight of `type`. be NULL:
 * plain rows of the type. 0 if no weight can have these sizes. */
size_t ag_prepared_bytes(const ag_backend *be, ag_dtype type, size_t rows, size_t cols);

/* Returns whether ag_prepare_weight_at() is supported. */
bool ag_has_prepare_weight_at(const ag_backend *be);
/* The same as ag_prepare_weight() in a given buffer, from byte `offset` on. */
ag_status ag_prepare_weight_at(ag_backend *be, ag_tensor *w, ag_buffer *buffer, size_t offset,
                               const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                               void *user);

/* y[0] = f(x w[0]) (x w[1]) with f by kind, AG_GATE_SILU or AG_GATE_GELU_TANH. The bits are those
 * of ag_matmul_group() with ag_silu_mul() or ag_gelu_mul() after it. y[1], of the size of y[0], is
 * overwritten. */
ag_status ag_matmul_gated(ag_backend *be, ag_gate_kind kind, ag_tensor *const y[2],
                          const ag_tensor *x, const ag_tensor *const w[2]);

/* ---- operations on the cache: internal, since only the cache makes views ---- */

/* Appends tokens to a layer of each sequence's cache: slot n_slots[h] + i of every KV head h
 * receives row row0 + i, rounded to the cache's types by the reference rules of quant/, and the
 * position visible_until[i]. The blocks must exist. The caller raises n_slots afterwards. Reads
 * only kv, row0, n_rows and visible_until of a sequence. k, v [rows, n_kv_heads, head_dim] F32. */
ag_status ag_kv_write_all(ag_backend *be, const ag_attention_seq *seqs, size_t n_seqs,
                          const ag_tensor *k, const ag_tensor *v);

/* Returns whether ag_rope_kv_write() is supported: it then needs fewer steps than ag_rope_pair()
 * and ag_kv_write_all(). */
bool ag_has_rope_kv_write(const ag_backend *be);
/* Rotates q as ag_rope_pair() does, and appends rotated keys as ag_kv_write_all() does. The rows of
 * k afterwards are undefined. */
ag_status ag_rope_kv_write(ag_backend *be, const ag_attention_seq *seqs, size_t n_seqs,
                           const ag_rotation *r, const ag_tensor *k, const ag_tensor *v);

/* The same as ag_kv_write_all() for all rows of k and v and one cache. */
static inline ag_status ag_kv_write(ag_backend *be, const ag_kv_view *kv, const ag_tensor *k,
                                    const ag_tensor *v, const uint32_t *positions) {
    const ag_attention_seq seq = {.n_rows = k->shape.dim[0], .visible_until = positions, .kv = *kv};
    return ag_kv_write_all(be, &seq, 1, k, v);
}

/* out = softmax(q K^T * scale) V for every query row and head, grouped queries, over the slots that
 * ag_attention_seq makes visible to the row. A row that sees no slot becomes 0.
 *   out, q  [rows, n_heads, head_dim] F32, different tensors; n_heads % n_kv_heads = 0
 * Each row is computed alone, in slot order. The result depends neither on how a prompt is split
 * into calls nor on the number of threads. */
ag_status ag_attention(ag_backend *be, ag_tensor *out, const ag_tensor *q,
                       const ag_attention_seq *seqs, size_t n_seqs,
                       const ag_attention_params *params);

/* Returns whether the backend sums attention weights in its own memory:
 * ag_attention_seq.device_scores. */
bool ag_keeps_scores(const ag_backend *be, size_t head_dim);

/* Allocates what ag_attention() needs for every call within the limits, so that such calls do not
 * allocate. */
ag_status ag_attention_reserve(ag_backend *be, const ag_attention_limits *limits);

/* Returns the maximum number of rows of a batch-invariant pass: every row has the same bits as when
 * computed alone. */
uint32_t ag_batch_invariant_rows(const ag_backend *be);

/* Does n items of work on the host, in any order, on the threads of the backend. */
void ag_for_each(ag_backend *be, size_t n, ag_work_fn work, void *ctx);

/* Returns the backend's product of rows with a skinny matrix, or the reference. */
ag_rows_times_fn *ag_rows_times_of(const ag_backend *be);

/* Returns the rounding of weights on the host. Any thread may use it. */
const ag_weight_rounding *ag_backend_rounding(const ag_backend *be);

/* Converts n values of rows of a cache to floats. dst and src are in host memory. */
void ag_unpack(ag_backend *be, ag_dtype type, float *dst, const void *src, size_t n);

/* Moves slot keep[i] of one KV head to slot i: K, V and position. keep is ascending, in host
 * memory, borrowed for the call. The caller lowers n_slots afterwards. For caches in memory that
 * the host cannot map. */
ag_status ag_kv_compact(ag_backend *be, const ag_kv_view *kv, uint32_t head, const uint32_t *keep,
                        uint32_t n_keep);

/* Runs ag_rope() on q [n,heads,d] and on k [n,kv_heads,d] at the same positions. factor multiplies
 * the rotated values. */
ag_status ag_rope_pair(ag_backend *be, ag_tensor *q, ag_tensor *k, const uint32_t *positions,
                       const ag_tensor *inv_freq, float factor);

/* Returns whether the backend rotates protected keys in its own memory. */
bool ag_has_kv_rerotate(const ag_backend *be);
/* Rotates keys as ag_rope() does with these angles, and writes them into their slots, rounded as
 * ag_kv_write() rounds. Values and positions of the slots do not change. */
ag_status ag_rerotate_keys(ag_backend *be, const ag_kv_rerotate *how);

/* Returns whether the backend scores keys in its own memory. */
bool ag_has_key_scores(const ag_backend *be);
/* Sets scores[h * stride + s] = -cos(key of slot s of KV head h, mean of the head's normalised
 * keys), in host memory. stride: at least the slots of the longest head. Entries after a head's
 * slots may be overwritten. */
ag_status ag_score_keys(ag_backend *be, const ag_kv_view *kv, float *scores, size_t stride);

/* Returns whether ag_find_top_k() is supported: reading a few values then costs less than reading
 * the row. */
bool ag_has_top_k(const ag_backend *be);
/* Finds the best of each row of rows [n, cols]. tops [n]; NULL: the row's result is not needed.
 * Sets `known`. */
ag_status ag_find_top_k(ag_backend *be, const ag_tensor *rows, ag_top_k *const tops[]);

#endif
