/* SPDX-License-Identifier: Apache-2.0 */
/* The table of CPU kernels: single-threaded functions over rows, chosen once per backend from the
 * least instruction set to the most. Threads, packed activations and scratch belong to ops_*.c.
 * Names: ag_<slot>__<isa>, of the type ag_<slot>_fn, where the signature stands; common/ is scalar
 * C that defines each operation, summing in double. */
#ifndef AG_BACKEND_CPU_KERNELS_H
#define AG_BACKEND_CPU_KERNELS_H

#include "backend/cpu/interleaved.h"
#include "core/kv_view.h"
#include "core/recurrence.h"
#include "core/rows_times.h"
#include "quant/quant.h"

#include <antigravity/dtype.h>

/* A weight as a kernel sees it. */
typedef struct ag_cpu_weight {
    const void *data; /* the first byte of all its rows */
    size_t row_bytes; /* from row to row; of no meaning in a layout that interleaves them */
    size_t k;
    ag_dtype dtype;
    const void *prefetch_end; /* what this thread reads next ends here; NULL: not to be fetched */
} ag_cpu_weight;

/* How prepared rows lie in memory: groups of `rows` rows, each of group_bytes(k); the last may be
 * partly filled. */
typedef struct ag_cpu_layout {
    uint32_t id; /* ag_tensor.layout */
    size_t rows;
    size_t (*group_bytes)(size_t k);
    /* Writes one group: n_rows rows as the type says, row_bytes apart, at an even address. */
    void (*fill)(void *group, const void *rows, size_t row_bytes, size_t n_rows, size_t k);
} ag_cpu_layout;

/* Bytes for k columns: of one row of activations, a multiple of 64; of a thread's scratch. */
typedef size_t ag_row_bytes_fn(size_t k);
/* Row number `row` of a panel of m rows, which has space for a multiple of AG_ROW_UNIT. */
typedef void ag_pack_fn(void *panel, const float *x, size_t row, size_t m, size_t k);
/* y[i * y_stride + j] = sum of x[i][:] * w[row0 + j][:] for i < m, j < n_rows. A value must not
 * depend on m, on its place in the panel or on n_rows. row0 is a multiple of AG_ROW_UNIT, and so is
 * n_rows, unless the weight ends there. */
typedef void ag_matmul_fn(float *y, size_t y_stride, const void *packed, size_t m,
                          const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);

/* The product with one type of weight. Activations are packed first, once for all weights of a
 * call that have the same `pack`; threads then take rows of the weights. */
typedef struct ag_cpu_matmul {
    ag_row_bytes_fn *packed_bytes;
    ag_row_bytes_fn *scratch_bytes; /* NULL: none */
    ag_pack_fn *pack;
    ag_matmul_fn *rows;
    const ag_cpu_layout *layout; /* of the weight; NULL: rows as the type says */
    size_t panel_bytes; /* activations to pack at a time; 0: as many as stay in a near cache */
    size_t (*call_rows)(size_t m); /* of the weight, that a call should have; NULL: few */
    /* What calls of many_rows rows and more take instead: the same layout, packing of its own, and
     * other roundings. NULL: nothing. many_rows is more than AG_CPU_ALIKE_ROWS. */
    const struct ag_cpu_matmul *many;
    size_t many_rows;
} ag_cpu_matmul;

enum { AG_ROW_UNIT = 16 }; /* rows that are never split between threads */

/* In a call of so many rows and fewer each gets the bits that it would get alone. */
enum { AG_CPU_ALIKE_ROWS = 15 };

/* Bytes of a packed row for products with rows of floats, and its packing: a copy that begins at a
 * cache line and ends with zeros. */
static inline size_t ag_floats_row_bytes(size_t k) { return (k * sizeof(float) + 63) / 64 * 64; }
ag_row_bytes_fn ag_packed_bytes_floats;
ag_pack_fn ag_pack_floats;

/* Members of an ag_cpu_matmul for rows of floats, and for rows in a layout of interleaved.h. */
#define AG_MATMUL_FLOATS(fn) \
    .packed_bytes = ag_packed_bytes_floats, .pack = ag_pack_floats, .rows = fn
#define AG_MATMUL_X16(type, pack_fn, fn)                              \
    .packed_bytes = ag_packed_bytes_x16, .pack = pack_fn, .rows = fn, \
    .layout = &ag_layout_##type##_x16

/* What attention needs of one KV head: base addresses of its blocks (core/kv_view.h), where keys
 * lie, and where values and positions begin in each. */
typedef struct ag_cpu_kv_head {
    ag_dtype k_type, v_type;
    uint32_t head_dim, n_slots;
    uint32_t fetch_end; /* slots before this one are read next by the same thread */
    const unsigned char *const *blocks;
    size_t v_offset, p_offset;
} ag_cpu_kv_head;

/* Queries that share one KV head: query i is head i % group of row i / group. */
typedef struct ag_cpu_queries {
    const float *q;    /* first head of the group in the first row; heads are adjacent */
    size_t row_stride; /* floats from row to row */
    const uint32_t *visible_until; /* [n_rows] and the next: as in ag_attention_seq */
    const uint32_t *visible_from;
    uint32_t n_rows, group;
    bool score_max; /* as in ag_attention_seq */
    ag_attention_params params;
} ag_cpu_queries;

/* Softmax and weighted sum over some of the slots, for each query. Where it sees none of them, max
 * is -INFINITY and the rest 0. */
typedef struct ag_cpu_partial {
    float *max;    /* [queries] of the scores */
    float *sum;    /* [queries] of exp(score - max) */
    float *values; /* [queries][ag_cpu_value_stride] sums of exp(score - max) * value */
    float *kept;   /* scores of the span's slots, for ag_attention_scores_fn; NULL: not kept */
} ag_cpu_partial;

/* Slots that one call of the attention kernel covers, from a multiple of it on. */
enum { AG_ATTENTION_SPAN = 512 };

/* Queries that weights of a window have room for behind the last one. */
enum { AG_WINDOW_SPARE_QUERIES = 3 };

enum { AG_KEY_SCORE_ROWS = 16 };

static inline size_t ag_cpu_value_stride(size_t head_dim) { return (head_dim + 15) / 16 * 16; }

/* ---- the slots ---- */

/* y[0..n) = a[0..k) * b[k,n]: one row of a plain product, columns b_stride apart. */
typedef void ag_vecmat_fn(float *y, const float *a, const float *b, size_t b_stride, size_t k,
                          size_t n);
typedef void ag_rms_norm_fn(float *y, const float *x, const float *w, size_t n, float eps);
typedef void ag_softmax_fn(float *x, size_t n);
/* The n values of a head that turn, n even. cos_sin: [n/2] pairs (cos, sin) */
typedef void ag_rope_fn(float *x, const float *cos_sin, size_t n);
typedef void ag_silu_mul_fn(float *a, const float *b, size_t n);
typedef void ag_gelu_mul_fn(float *a, const float *b, size_t n);
/* a = a * b, and sigmoid(a) * b */
typedef void ag_mul_fn(float *a, const float *b, size_t n);
typedef void ag_sigmoid_mul_fn(float *a, const float *b, size_t n);
typedef void ag_softcap_fn(float *x, float cap, size_t n);
typedef void ag_add_fn(float *x, const float *y, size_t n);
typedef void ag_scale_fn(float *x, float v, size_t n);
/* Slots [slot0, slot0 + AG_ATTENTION_SPAN), those that the query sees. What a query
 * gets does not depend on the queries beside it; but with AMX, and a cache that is not F32, it is
 * rounded in another way where there are many of them. */
typedef void ag_attention_fn(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                             const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);
/* into = both together, for n queries. A partial that saw nothing changes nothing. */
typedef void ag_attention_merge_fn(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                                   size_t head_dim);
/* For row after row adds the mean over the group of the weights exp(score - max) / sum to
 * scores[slot], for the slots of the span that the row sees; with score_max scores[slot] becomes
 * the largest of them, if it is larger. kept: what the attention of the same queries has left
 * there, with score_max alone; NULL: scores are computed anew, to the same bits. */
typedef void ag_attention_scores_fn(float *scores, const ag_cpu_queries *queries,
                                    const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                                    const float *sum, float *kept, void *scratch);
/* Floats that the scores of a span take, of so many queries. */
typedef size_t ag_kept_floats_fn(uint32_t n_queries);
/* For rows that all see the same, within AG_ATTENTION_SPAN slots from slot0 on, a multiple of
 * AG_KV_BLOCK: what ag_attention_scores_fn adds, which here need not be told max and sum. weights:
 * AG_ATTENTION_SPAN floats for each query and AG_WINDOW_SPARE_QUERIES more. */
typedef void ag_window_scores_fn(float *scores, const ag_cpu_queries *queries,
                                 const ag_cpu_kv_head *kv, uint32_t slot0, float *weights,
                                 void *scratch);
typedef size_t ag_attention_scratch_bytes_fn(uint32_t head_dim, uint32_t n_queries);
/* scores[slot] = -cos(key, mean of the keys divided by their lengths) for a head's slots; 0 for a
 * key of zeros. scratch: floats of AG_KEY_SCORE_ROWS + 1 rows of ag_cpu_value_stride. */
typedef void ag_key_scores_fn(float *scores, const ag_cpu_kv_head *kv, void *scratch);
/* n values of a row of a cache as floats, and floats as such a row: to the bit what
 * ag_dequantize_row and ag_quantize_row with AG_ROUND_KV do. false: ag_quantize_row has to do it,
 * for there is a block of zeros or what cannot be kept; dst may then hold anything. */
typedef void ag_kv_load_fn(ag_dtype type, float *dst, const void *src, size_t n);
typedef bool ag_kv_store_fn(ag_dtype type, void *dst, const float *src, size_t n);

typedef struct ag_cpu_kernels {
    const ag_cpu_matmul *matmul[AG_DTYPE_COUNT];   /* by weight type; NULL: type is no weight */
    const ag_cpu_matmul *prepared[AG_DTYPE_COUNT]; /* of weights in a layout; NULL: there is none */
    ag_vecmat_fn *vecmat;
    ag_weight_rounding rounding;
    ag_rms_norm_fn *rms_norm;
    ag_softmax_fn *softmax;
    ag_rope_fn *rope;
    ag_silu_mul_fn *silu_mul;
    ag_gelu_mul_fn *gelu_mul;
    ag_mul_fn *mul;
    ag_sigmoid_mul_fn *sigmoid_mul;
    ag_softcap_fn *softcap;
    ag_conv_row_fn *conv_row;
    ag_delta_token_fn *delta_token;
    ag_add_fn *add;
    ag_scale_fn *scale;
    ag_attention_fn *attention;
    ag_attention_merge_fn *attention_merge;
    ag_attention_scores_fn *attention_scores;
    ag_kept_floats_fn *kept_floats; /* NULL: attention keeps no scores */
    ag_window_scores_fn *window_scores;
    ag_attention_scratch_bytes_fn *attention_scratch_bytes;
    uint32_t attention_queries; /* that share a call, if there are so many; 0: some */
    /* The most that share a call where rows are few, rounded as one alone; 0: any number is. */
    uint32_t attention_few;
    ag_key_scores_fn *key_scores;
    ag_rows_times_fn *rows_times;
    ag_kv_load_fn *kv_load;
    ag_kv_store_fn *kv_store;
} ag_cpu_kernels;

/* Fills the table with what `isa_cap` (NULL: no cap; "common", ...) and this machine allow; NULL
 * is returned for an unknown cap, else the name of the highest set chosen. */
const char *ag_cpu_kernels_init(ag_cpu_kernels *table, const char *isa_cap);

/* One function for each instruction set: puts its kernels into the table. */
void ag_cpu_kernels_common(ag_cpu_kernels *table);
void ag_cpu_kernels_avx2(ag_cpu_kernels *table);
void ag_cpu_kernels_avx512(ag_cpu_kernels *table);
void ag_cpu_kernels_amx(ag_cpu_kernels *table);
void ag_cpu_kernels_neon(ag_cpu_kernels *table);
void ag_cpu_kernels_neon_dotprod(ag_cpu_kernels *table);
void ag_cpu_kernels_neon_i8mm(ag_cpu_kernels *table);

#endif
