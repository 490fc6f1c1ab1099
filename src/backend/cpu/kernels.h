/* SPDX-License-Identifier: Apache-2.0 */
/* Table of CPU kernels: single-threaded functions over rows. It is filled once per backend, in
 * ascending order of instruction sets. ops_*.c own threads, packed activations and scratch memory.
 * A kernel is named ag_<slot>__<isa> and has the type ag_<slot>_fn. common/ has scalar C that
 * defines each operation and sums in double. */
#ifndef AG_BACKEND_CPU_KERNELS_H
#define AG_BACKEND_CPU_KERNELS_H

#include "backend/cpu/interleaved.h"
#include "core/kv_view.h"
#include "core/recurrence.h"
#include "core/rows_times.h"
#include "quant/quant.h"

#include <antigravity/dtype.h>

/* A weight for a kernel. */
typedef struct ag_cpu_weight {
    const void *data; /* first byte of row 0 */
    size_t row_bytes; /* stride of rows; unused by interleaved layouts */
    size_t k;
    ag_dtype dtype;
    const void *prefetch_end; /* end of the bytes that this thread reads next; NULL: no prefetch */
} ag_cpu_weight;

/* Layout of prepared rows: groups of `rows` rows, group_bytes(k) each. The last group may be partly
 * filled. */
typedef struct ag_cpu_layout {
    uint32_t id; /* ag_tensor.layout */
    size_t rows;
    size_t (*group_bytes)(size_t k);
    /* Writes one group from n_rows rows of the type, row_bytes apart, at an even address. */
    void (*fill)(void *group, const void *rows, size_t row_bytes, size_t n_rows, size_t k);
} ag_cpu_layout;

/* Returns the bytes for k columns: of one row of packed activations, a multiple of 64, or of a
 * thread's scratch. */
typedef size_t ag_row_bytes_fn(size_t k);
/* Packs x as row `row` of a panel of m rows. The panel has space for a multiple of AG_ROW_UNIT. */
typedef void ag_pack_fn(void *panel, const float *x, size_t row, size_t m, size_t k);
/* y[i * y_stride + j] = sum of x[i][:] * w[row0 + j][:] for i < m, j < n_rows. A value must not
 * depend on m, on its row in the panel or on n_rows. row0 is a multiple of AG_ROW_UNIT; so is
 * n_rows, except at the end of the weight. */
typedef void ag_matmul_fn(float *y, size_t y_stride, const void *packed, size_t m,
                          const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);

/* The product with one type of weight. Activations are packed first, once for all weights of a call
 * with the same `pack`. Then threads multiply ranges of the weights' rows. */
typedef struct ag_cpu_matmul {
    ag_row_bytes_fn *packed_bytes;
    ag_row_bytes_fn *scratch_bytes; /* NULL: none */
    ag_pack_fn *pack;
    ag_matmul_fn *rows;
    const ag_cpu_layout *layout;   /* layout of the weight; NULL: rows of the type */
    size_t panel_bytes;            /* activations packed at a time; 0: the dispatcher's default */
    size_t (*call_rows)(size_t m); /* preferred weight rows of a call; NULL: default */
    /* The product for many_rows rows of x or more: the same layout, its own packing and rounding.
     * NULL: none. many_rows is more than AG_CPU_BATCH_INVARIANT_ROWS. */
    const struct ag_cpu_matmul *many;
    size_t many_rows;
} ag_cpu_matmul;

enum { AG_ROW_UNIT = 16 }; /* rows that are never split between threads */

/* Maximum rows of a batch-invariant call: each row has the same bits as in a call of its own. */
enum { AG_CPU_BATCH_INVARIANT_ROWS = 15 };

/* Return the bytes of a packed row of floats, and pack it: a copy that starts at a cache line and
 * is padded with zeros. */
static inline size_t ag_floats_row_bytes(size_t k) { return (k * sizeof(float) + 63) / 64 * 64; }
ag_row_bytes_fn ag_packed_bytes_floats;
ag_pack_fn ag_pack_floats;

/* Members of an ag_cpu_matmul for rows of floats, and for a layout of interleaved.h. */
#define AG_MATMUL_FLOATS(fn) \
    .packed_bytes = ag_packed_bytes_floats, .pack = ag_pack_floats, .rows = fn
#define AG_MATMUL_X16(type, pack_fn, fn)                              \
    .packed_bytes = ag_packed_bytes_x16, .pack = pack_fn, .rows = fn, \
    .layout = &ag_layout_##type##_x16

/* One KV head for attention: base addresses of its blocks (core/kv_view.h), where the keys start,
 * and the offsets of values and positions in a block. */
typedef struct ag_cpu_kv_head {
    ag_dtype k_type, v_type;
    uint32_t head_dim, n_slots;
    uint32_t fetch_end; /* end of the slots that this thread reads next */
    const unsigned char *const *blocks;
    size_t v_offset, p_offset;
} ag_cpu_kv_head;

/* Queries that share one KV head: query i is head i % group of row i / group. */
typedef struct ag_cpu_queries {
    const float *q;    /* first head of the group in the first row; its heads are adjacent */
    size_t row_stride; /* in floats */
    const uint32_t *visible_until; /* [n_rows] and the next: as in ag_attention_seq */
    const uint32_t *visible_from;
    uint32_t n_rows, group;
    bool score_max; /* as in ag_attention_seq */
    ag_attention_params params;
} ag_cpu_queries;

/* Softmax and weighted sum over a range of slots, for each query. For a query that attends to none
 * of them, max is -INFINITY and the other members are 0. */
typedef struct ag_cpu_partial {
    float *max;    /* [queries] largest score */
    float *sum;    /* [queries] sum of exp(score - max) */
    float *values; /* [queries][ag_cpu_value_stride] sums of exp(score - max) * value */
    float *kept;   /* scores of the span's slots for ag_attention_scores_fn; may be NULL */
} ag_cpu_partial;

/* Slots that one call of the attention kernel covers, starting at a multiple of it. */
enum { AG_ATTENTION_SPAN = 512 };

/* Extra queries after the last one that weights of a window have space for. */
enum { AG_WINDOW_SPARE_QUERIES = 3 };

enum { AG_KEY_SCORE_ROWS = 16 };

static inline size_t ag_cpu_value_stride(size_t head_dim) { return (head_dim + 15) / 16 * 16; }

/* ---- the slots ---- */

/* y[0..n) = a[0..k) * b[k,n]: one row of a plain product; rows of b are b_stride apart. */
typedef void ag_vecmat_fn(float *y, const float *a, const float *b, size_t b_stride, size_t k,
                          size_t n);
typedef void ag_rms_norm_fn(float *y, const float *x, const float *w, size_t n, float eps);
typedef void ag_softmax_fn(float *x, size_t n);
/* Rotates n values of a head, n even. cos_sin: [n/2] pairs (cos, sin). */
typedef void ag_rope_fn(float *x, const float *cos_sin, size_t n);
typedef void ag_silu_mul_fn(float *a, const float *b, size_t n);
typedef void ag_gelu_mul_fn(float *a, const float *b, size_t n);
/* a = a * b, and sigmoid(a) * b */
typedef void ag_mul_fn(float *a, const float *b, size_t n);
typedef void ag_sigmoid_mul_fn(float *a, const float *b, size_t n);
/* a = g * sigmoid(1.702 g) * (1 + u) with g = min(a, limit), u = b clamped to [-limit, limit] */
typedef void ag_swiglu_clamped_fn(float *a, const float *b, float limit, size_t n);
typedef void ag_softcap_fn(float *x, float cap, size_t n);
typedef void ag_add_fn(float *x, const float *y, size_t n);
typedef void ag_scale_fn(float *x, float v, size_t n);
/* Attends to the visible slots in [slot0, slot0 + AG_ATTENTION_SPAN). The result of a query does
 * not depend on other queries. Exception: with AMX and a cache that is not F32, calls with many
 * queries round differently. */
typedef void ag_attention_fn(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                             const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);
/* Merges two partial results into `into`, for n queries. An empty one has no effect. */
typedef void ag_attention_merge_fn(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                                   size_t head_dim);
/* Adds the weights exp(score - max) / sum, averaged over the group, to scores[slot], row by row,
 * for the visible slots of the span. With score_max, scores[slot] becomes the maximum of itself and
 * the weights. kept has the scores that attention of the same queries stored (score_max only);
 * NULL: the scores are computed again, with equal bits. */
typedef void ag_attention_scores_fn(float *scores, const ag_cpu_queries *queries,
                                    const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                                    const float *sum, float *kept, void *scratch);
/* Returns the floats of a span's scores for n_queries queries. */
typedef size_t ag_kept_floats_fn(uint32_t n_queries);
/* Adds the same weights as ag_attention_scores_fn, but computes max and sum itself. All rows attend
 * to the same slots, within AG_ATTENTION_SPAN slots from slot0, a multiple of AG_KV_BLOCK. weights:
 * AG_ATTENTION_SPAN floats for each query and for AG_WINDOW_SPARE_QUERIES more. */
typedef void ag_window_scores_fn(float *scores, const ag_cpu_queries *queries,
                                 const ag_cpu_kv_head *kv, uint32_t slot0, float *weights,
                                 void *scratch);
typedef size_t ag_attention_scratch_bytes_fn(uint32_t head_dim, uint32_t n_queries);
/* scores[slot] = -cos(key, mean of the normalised keys) for a head's slots; 0 for a key of zeros.
 * scratch: AG_KEY_SCORE_ROWS + 1 rows of ag_cpu_value_stride floats. */
typedef void ag_key_scores_fn(float *scores, const ag_cpu_kv_head *kv, void *scratch);
/* Convert n values of a cache row to floats and back, with the bits of ag_dequantize_row() and of
 * ag_quantize_row() with AG_ROUND_KV. The latter returns false for a block of zeros and for values
 * out of range: the caller must then use ag_quantize_row(); dst is undefined. */
typedef void ag_kv_load_fn(ag_dtype type, float *dst, const void *src, size_t n);
typedef bool ag_kv_store_fn(ag_dtype type, void *dst, const float *src, size_t n);

typedef struct ag_cpu_kernels {
    const ag_cpu_matmul *matmul[AG_DTYPE_COUNT];   /* by weight type; NULL: not a weight type */
    const ag_cpu_matmul *prepared[AG_DTYPE_COUNT]; /* for prepared weights; NULL: no layout */
    ag_vecmat_fn *vecmat;
    ag_weight_rounding rounding;
    ag_rms_norm_fn *rms_norm;
    ag_softmax_fn *softmax;
    ag_rope_fn *rope;
    ag_silu_mul_fn *silu_mul;
    ag_gelu_mul_fn *gelu_mul;
    ag_mul_fn *mul;
    ag_sigmoid_mul_fn *sigmoid_mul;
    ag_swiglu_clamped_fn *swiglu_clamped;
    ag_softcap_fn *softcap;
    ag_conv_row_fn *conv_row;
    ag_delta_token_fn *delta_token;
    ag_add_fn *add;
    ag_scale_fn *scale;
    ag_attention_fn *attention;
    ag_attention_merge_fn *attention_merge;
    ag_attention_scores_fn *attention_scores;
    ag_kept_floats_fn *kept_floats; /* NULL: attention stores no scores */
    ag_window_scores_fn *window_scores;
    ag_attention_scratch_bytes_fn *attention_scratch_bytes;
    uint32_t attention_queries; /* preferred queries of a call; 0: the dispatcher's default */
    /* Maximum queries of a call that is rounded as one of a single query; 0: no maximum. */
    uint32_t attention_few;
    ag_key_scores_fn *key_scores;
    ag_rows_times_fn *rows_times;
    ag_kv_load_fn *kv_load;
    ag_kv_store_fn *kv_store;
} ag_cpu_kernels;

/* Slots of attention, from simd/window_scores.h. Variants of a set fill them too: X(slot). */
#define AG_ATTENTION_SLOTS(X) \
    X(attention)              \
    X(attention_merge)        \
    X(attention_scores)       \
    X(kept_floats)            \
    X(window_scores)          \
    X(attention_scratch_bytes)

/* Slots that every set with vectors fills: X(slot). */
#define AG_VECTOR_SLOTS(X) \
    X(rms_norm)            \
    X(softmax)             \
    X(rope)                \
    X(silu_mul)            \
    X(gelu_mul)            \
    X(sigmoid_mul)         \
    X(swiglu_clamped)      \
    X(softcap)             \
    X(conv_row)            \
    X(delta_token)         \
    X(key_scores)          \
    X(rows_times)          \
    X(kv_load)             \
    X(kv_store)            \
    AG_ATTENTION_SLOTS(X)

/* Fills the table with the best kernels that this machine and `isa_cap` ("common", ...; NULL: no
 * cap) allow. Returns the name of the highest set, or NULL for an unknown cap. */
const char *ag_cpu_kernels_init(ag_cpu_kernels *table, const char *isa_cap);

/* Put the kernels of one instruction set into the table. */
void ag_cpu_kernels_common(ag_cpu_kernels *table);
void ag_cpu_kernels_avx2(ag_cpu_kernels *table);
void ag_cpu_kernels_avxvnni(ag_cpu_kernels *table);
void ag_cpu_kernels_avx512(ag_cpu_kernels *table);
void ag_cpu_kernels_amx(ag_cpu_kernels *table);
void ag_cpu_kernels_neon(ag_cpu_kernels *table);
void ag_cpu_kernels_neon_dotprod(ag_cpu_kernels *table);
void ag_cpu_kernels_neon_i8mm(ag_cpu_kernels *table);

#endif
