/* SPDX-License-Identifier: Apache-2.0 */
/* CPU backend: its struct, for ops_*.c, and its operations. */
#ifndef AG_BACKEND_CPU_BACKEND_H
#define AG_BACKEND_CPU_BACKEND_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/pool.h"
#include "core/backend_ops.h"

#include <stdatomic.h>

/* The first row that one thread could not convert; row SIZE_MAX: none. */
typedef struct ag_cpu_bad_row {
    size_t row, col;
    ag_status status;
} ag_cpu_bad_row;

/* A thread's share of a dispatch: units [next, end). The thread claims units from the front; other
 * threads do so too when their own share is done. */
typedef struct ag_cpu_part {
    _Alignas(64) atomic_size_t next;
    size_t end;
} ag_cpu_part;

typedef struct ag_cpu_backend {
    ag_backend base;
    ag_memory *memory; /* owned, unless is_loader */
    bool is_loader;
    ag_pool *pool;
    ag_cpu_kernels kernels;
    char description[128];
    /* Scratch memory. It grows to the largest request so far, in powers of two. */
    struct {
        unsigned char *shared;  /* read by all threads */
        unsigned char *threads; /* thread_bytes for each thread */
        size_t shared_bytes, thread_bytes;
    } scratch;
    /* Sines and cosines of the last ag_rope(). All layers of a pass use the same ones. */
    struct {
        unsigned char *memory; /* cos_sin [n_rows][2 * half], inv_freq [half], positions [n_rows] */
        size_t bytes, n_rows, half;
        float factor;
    } rope;
    ag_cpu_bad_row *bad_rows; /* [threads] */
    ag_cpu_part *parts;       /* [threads] */
} ag_cpu_backend;

static inline ag_cpu_backend *ag_cpu_of(ag_backend *b) { return (ag_cpu_backend *)(void *)b; }

ag_status ag_cpu_backend_create(const ag_backend_params *params, ag_backend **out, ag_error *err);

/* Grow the scratch memory to at least `bytes`. Its content is lost. Fail with AG_NOMEM, in
 * base.err.
 */
ag_status ag_cpu_need_shared(ag_cpu_backend *cpu, size_t bytes);
ag_status ag_cpu_need_threads(ag_cpu_backend *cpu, size_t bytes_each);
ag_status ag_cpu_need_rope(ag_cpu_backend *cpu, size_t bytes);
void *ag_cpu_thread_scratch(const ag_cpu_backend *cpu, uint32_t thread);

/* Returns the rows of a chunk: several chunks for each thread, of at least `min_rows` rows each. */
size_t ag_cpu_grain(const ag_cpu_backend *cpu, size_t n_rows, size_t min_rows);

/* Record rows that threads could not convert, so that the lowest one is reported. */
void ag_cpu_bad_rows_clear(ag_cpu_backend *cpu);
bool ag_cpu_bad_row_seen(const ag_cpu_backend *cpu, uint32_t thread);
ag_cpu_bad_row ag_cpu_bad_row_lowest(const ag_cpu_backend *cpu);

/* ---- slots of the table, by file ---- */

/* ops_matmul.c */
ag_status ag_cpu_matmul_plain(ag_backend *b, ag_tensor *y, const ag_tensor *a, const ag_tensor *x);
ag_status ag_cpu_matmul_transposed(ag_backend *b, ag_tensor *y, const ag_tensor *x,
                                   const ag_tensor *w);
ag_status ag_cpu_matmul_group(ag_backend *b, ag_tensor *const y[], const ag_tensor *x,
                              const ag_tensor *const w[], size_t n);
ag_status ag_cpu_matmul_gated(ag_backend *b, ag_gate_kind kind, ag_tensor *const y[2],
                              const ag_tensor *x, const ag_tensor *const w[2]);
ag_status ag_cpu_matmul_experts(ag_backend *b, const ag_expert_call *call);

/* ops_rows.c */
ag_status ag_cpu_rms_norm(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                          float eps);
ag_status ag_cpu_softmax(ag_backend *b, ag_tensor *x);
ag_status ag_cpu_silu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cpu_gelu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cpu_softcap(ag_backend *b, ag_tensor *x, float cap);
ag_status ag_cpu_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cpu_sigmoid_mul(ag_backend *b, ag_tensor *a, const ag_tensor *x);
ag_status ag_cpu_swiglu_clamped(ag_backend *b, ag_tensor *a, const ag_tensor *x, float limit);
ag_status ag_cpu_add_assign(ag_backend *b, ag_tensor *x, const ag_tensor *y);
ag_status ag_cpu_add_bias(ag_backend *b, ag_tensor *x, const ag_tensor *bias);
ag_status ag_cpu_scale(ag_backend *b, ag_tensor *x, float v);

/* ops_recurrence.c */
ag_status ag_cpu_causal_conv(ag_backend *b, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                             ag_tensor *state, bool silu);
ag_status ag_cpu_delta_rule(ag_backend *b, const ag_delta_call *call);

/* ops_rope.c */
ag_status ag_cpu_rope(ag_backend *b, ag_tensor *x, const uint32_t *positions,
                      const ag_tensor *inv_freq, float factor);

/* ops_convert.c */
ag_status ag_cpu_cast(ag_backend *b, ag_tensor *dst, const ag_tensor *src);
ag_status ag_cpu_gather(ag_backend *b, ag_tensor *dst, const ag_tensor *table, const int32_t *ids,
                        size_t n);
ag_status ag_cpu_prepare_weight(ag_backend *b, ag_tensor *w, ag_buffer **owner,
                                const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                void *user);
ag_status ag_cpu_prepare_weight_at(ag_backend *b, ag_tensor *w, ag_buffer *buffer, size_t offset,
                                   const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                   void *user);
size_t ag_cpu_prepared_bytes(const ag_backend *b, ag_dtype type, size_t rows, size_t cols);

/* ops_kv_write.c, ops_attention.c */
void ag_cpu_unpack(ag_backend *b, ag_dtype type, float *dst, const void *src, size_t n);
ag_status ag_cpu_kv_write(ag_backend *b, const ag_attention_seq *seqs, size_t n_seqs,
                          const ag_tensor *k, const ag_tensor *v);
ag_status ag_cpu_attention(ag_backend *b, ag_tensor *out, const ag_tensor *q,
                           const ag_attention_seq *seqs, size_t n_seqs,
                           const ag_attention_params *params);
ag_status ag_cpu_attention_reserve(ag_backend *b, const ag_attention_limits *limits);

/* ops_window_scores.c */
/* Returns whether seq needs only the attention weights of windows, and each window fits
 * ag_window_scores_fn. Without sinks ag_cpu_attention() then calls ag_cpu_window_scores(). */
bool ag_cpu_scores_windows(const ag_attention_seq *seq);
ag_status ag_cpu_window_scores(ag_cpu_backend *cpu, const ag_tensor *q, const ag_attention_seq *seq,
                               const ag_attention_params *params);

ag_status ag_cpu_key_scores(ag_backend *b, const ag_kv_view *kv, float *scores, size_t stride);

#endif
