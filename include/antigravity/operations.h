/* SPDX-License-Identifier: Apache-2.0 */
/* The operations a model is made of, on tensors of any backend.
 *
 * Common to all: the destination comes first. Shapes and dtypes are checked before anything is
 * written (AG_SHAPE, AG_DTYPE; the destination is untouched then). Activations are F32 with
 * contiguous rows and are seen as [rows, columns], whatever their outer dims. Operations may be
 * asynchronous: read results after ag_sync() or through ag_read(). Messages of failed operations:
 * ag_backend_error(). */
#ifndef ANTIGRAVITY_OPERATIONS_H
#define ANTIGRAVITY_OPERATIONS_H

#include <antigravity/backend.h>
#include <antigravity/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- matrices ---- */

/* y[m,n] = a[m,k] * b[k,n], all F32. y may be neither a nor b. */
AG_API ag_status ag_matmul(ag_backend *be, ag_tensor *y, const ag_tensor *a, const ag_tensor *b);

/* y[m,n] = x[m,k] * w[n,k]^T: the product with a weight as models store it. x, y F32; w any weight
 * type, prepared or not. Each value of y depends on its own rows of x and w alone, in an order that
 * does not change with m, n or the number of threads. One exception: where a processor has matrix
 * units, prepared quantised weights and 16 rows or more of x are multiplied as numbers with 8 bits
 * of mantissa; with fewer rows each 32 values of x are rounded to 8 bits together. Attention over a
 * cache that is not F32 differs likewise. */
AG_API ag_status ag_matmul_transposed(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                      const ag_tensor *w);

/* y[m,n] = x * w[row0 .. row0+n)^T: some rows of a weight. w must not be prepared. */
AG_API ag_status ag_matmul_slice(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                 const ag_tensor *w, size_t row0);

#define AG_MATMUL_GROUP_MAX 4
/* y[i] = x * w[i]^T for i < n: products that share their input, in one dispatch. */
AG_API ag_status ag_matmul_group(ag_backend *be, ag_tensor *const y[], const ag_tensor *x,
                                 const ag_tensor *const w[], size_t n);

/* A weight [n,k] in the file's bytes (on the host) becomes what this backend multiplies with
 * fastest: dtype `want`, or the file's own if k does not fit want's block. A quantised source may
 * become floats, but is not rounded again to another quantised type (AG_DTYPE). *w borrows *owner,
 * which is the caller's. AG_FORMAT for NaN, Inf or a magnitude that `want` cannot hold. `consumed`
 * (may be NULL) is told of source rows that will not be read again, every few MB; called from
 * several threads at once, the caller's among them. Return false to give up: AG_CANCELLED. */
typedef bool (*ag_consumed_fn)(void *user, size_t row0, size_t n_rows);
AG_API ag_status ag_prepare_weight(ag_backend *be, ag_tensor *w, ag_buffer **owner,
                                   const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                   void *user);

/* ---- rows ---- */

/* y = x / sqrt(mean(x^2) + eps) * w, row by row.
 *   y, x  [n, dim] F32; y may be x      w  [dim] F32      eps  added to the mean of squares
 * Source: RMSNorm, arXiv:1910.07467. */
AG_API ag_status ag_rms_norm(ag_backend *be, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                             float eps);
/* x += add, then y = rms_norm(x). x, y, add [n, dim] F32, three different tensors. */
AG_API ag_status ag_add_rms_norm(ag_backend *be, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                                 const ag_tensor *w, float eps);
/* Row-wise softmax in place; rows of -inf alone become 0. */
AG_API ag_status ag_softmax(ag_backend *be, ag_tensor *x);
AG_API ag_status ag_add_assign(ag_backend *be, ag_tensor *x, const ag_tensor *y); /* x += y */
/* x[r,:] += bias[:] for every row. */
AG_API ag_status ag_add_bias(ag_backend *be, ag_tensor *x, const ag_tensor *bias);
AG_API ag_status ag_scale(ag_backend *be, ag_tensor *x, float v); /* x *= v */
/* a = a * sigmoid(a) * b */
AG_API ag_status ag_silu_mul(ag_backend *be, ag_tensor *a, const ag_tensor *b);

/* a = gelu(a) * b, where gelu(a) = a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))).
 * Source: the tanh form of arXiv:1606.08415. */
AG_API ag_status ag_gelu_mul(ag_backend *be, ag_tensor *a, const ag_tensor *b);
AG_API ag_status ag_mul(ag_backend *be, ag_tensor *a, const ag_tensor *b); /* a *= b */
AG_API ag_status ag_sigmoid_mul(ag_backend *be, ag_tensor *a,
                                const ag_tensor *b); /* a = sigmoid(a) * b */
/* x = cap * tanh(x / cap) in place, cap > 0. Source: logit soft-capping, arXiv:2408.00118. */
AG_API ag_status ag_softcap(ag_backend *be, ag_tensor *x, float cap);

/* Rotates pairs (i, i + m) of every head by positions[row] * inv_freq[i], in place; what follows
 * the first 2 m values of a head stays.
 *   x          [n, heads, d] F32
 *   positions  [n] logical positions, host memory, borrowed for the call
 *   inv_freq   [m] F32, on the host, m <= d / 2
 * Source: RoPE, arXiv:2104.09864, half-split as in Hugging Face checkpoints. */
AG_API ag_status ag_rope(ag_backend *be, ag_tensor *x, const uint32_t *positions,
                         const ag_tensor *inv_freq);

/* ---- rows of one sequence, one after another ---- */

#define AG_CONV_TAPS_MAX 8
/* Every channel by itself: y[t] = sum over j of w[j] * x[t - (n_taps - 1) + j], then silu if asked
 * for. Rows before the first are those of `state`, which afterwards holds the newest.
 *   y, x   [n, channels] F32, two tensors      w  [n_taps, channels] F32, 2 to AG_CONV_TAPS_MAX
 *   state  [n_taps - 1, channels] F32
 * However the rows are cut into calls, the bits are the same. */
AG_API ag_status ag_causal_conv(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                const ag_tensor *w, ag_tensor *state, bool silu);

typedef struct ag_delta_params {
    uint32_t n_k_heads, n_v_heads, k_dim, v_dim; /* n_v_heads is a multiple of n_k_heads */
    bool tiled; /* value head h goes with key head h % n_k_heads, not with that of its group */
    float eps;  /* added to the sum of squares that queries and keys are divided by */
} ag_delta_params;
/* The gated delta rule: a matrix S for every value head, for row after row
 *   S *= exp(decay * softplus(a + dt_bias)),  S += k (sigmoid(b) * (v - S^T k))^T,  out = S^T q
 * with q and k divided by sqrt(sum of squares + eps), and q by sqrt(k_dim) as well.
 *   out      [n, n_v_heads * v_dim] F32
 *   qkv      [n, 2 * n_k_heads * k_dim + n_v_heads * v_dim] F32: all queries, keys, values
 *   a, b     [n, n_v_heads] F32          decay, dt_bias  [n_v_heads] F32
 *   state    [n_v_heads, k_dim, v_dim] F32
 * However the rows are cut into calls, the bits are the same. Source: arXiv:2412.06464. */
AG_API ag_status ag_delta_rule(ag_backend *be, ag_tensor *out, const ag_tensor *qkv,
                               const ag_tensor *a, const ag_tensor *b, const ag_tensor *decay,
                               const ag_tensor *dt_bias, ag_tensor *state,
                               const ag_delta_params *params);

/* ---- moving data ---- */

/* dst[i,:] = table[ids[i],:] as F32. table: unprepared, any dtype. ids: host. AG_INVALID names the
 * first id outside the table. */
AG_API ag_status ag_gather(ag_backend *be, ag_tensor *dst, const ag_tensor *table,
                           const int32_t *ids, size_t n);
/* Same shape, other dtype: between F32, F16, BF16 and from and to the quantised types. */
AG_API ag_status ag_cast(ag_backend *be, ag_tensor *dst, const ag_tensor *src);
/* Copies `count` elements; offsets in elements; all three multiples of the dtype's block. The
 * tensors have one dtype and may live on different backends: b is the one that has a device. */
AG_API ag_status ag_copy_slice(ag_backend *be, ag_tensor *dst, size_t dst_offset,
                               const ag_tensor *src, size_t src_offset, size_t count);
/* A copy of t in this backend's memory; *out borrows *owner, the caller's. */
AG_API ag_status ag_copy_from(ag_backend *be, ag_tensor *out, ag_buffer **owner,
                              const ag_tensor *t);
/* Waits for what t depends on and copies its first n_bytes to dst. */
AG_API ag_status ag_read(ag_backend *be, void *dst, const ag_tensor *t, size_t n_bytes);
/* Returns when everything enqueued is done. */
AG_API ag_status ag_sync(ag_backend *be);

#ifdef __cplusplus
}
#endif
#endif
