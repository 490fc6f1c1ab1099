/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on tensors of any backend, of which models are built.
 *
 * The destination is the first tensor. Shapes and dtypes are checked before anything is written
 * (AG_SHAPE, AG_DTYPE; the destination is then unchanged). Activations are F32 with contiguous
 * rows, treated as [rows, columns] whatever their outer dims. Operations may be asynchronous: read
 * results after ag_sync() or with ag_read(). ag_backend_error() returns the message of a failed
 * operation.
 */
#ifndef ANTIGRAVITY_OPERATIONS_H
#define ANTIGRAVITY_OPERATIONS_H

#include <antigravity/backend.h>
#include <antigravity/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- matrices ---- */

/* y[m,n] = a[m,k] * b[k,n], all F32. y must not overlap a or b. */
AG_API ag_status ag_matmul(ag_backend *be, ag_tensor *y, const ag_tensor *a, const ag_tensor *b);

/* y[m,n] = x[m,k] * w[n,k]^T: the product with a weight as models store it. x and y are F32; w has
 * any weight type, prepared or not. Each value of y depends only on its rows of x and w, in an
 * order that does not depend on m, n or the number of threads. Exception: on processors with matrix
 * units, prepared quantised weights are multiplied in BF16 for 16 rows of x or more, and with
 * blocks of 32 values of x rounded to 8 bits for fewer. Attention over a cache that is not F32
 * differs likewise.
 */
AG_API ag_status ag_matmul_transposed(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                      const ag_tensor *w);

/* y[m,n] = x * w[row0 .. row0+n)^T: the product with a range of a weight's rows. w must not be
 * prepared. */
AG_API ag_status ag_matmul_slice(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                 const ag_tensor *w, size_t row0);

#define AG_MATMUL_GROUP_MAX 4
/* y[i] = x * w[i]^T for i < n: products with the same input, in one dispatch. */
AG_API ag_status ag_matmul_group(ag_backend *be, ag_tensor *const y[], const ag_tensor *x,
                                 const ag_tensor *const w[], size_t n);

/* Receives source rows that will not be read again, every few MB. Called from several threads at
 * once, including the caller's. Returns false to cancel (AG_CANCELLED). */
typedef bool (*ag_consumed_fn)(void *user, size_t row0, size_t n_rows);
/* Converts a weight [n,k], in the file's bytes on the host, to the layout that this backend
 * multiplies with fastest, in dtype `want`, or in the file's dtype if k is not a multiple of want's
 * block. *w borrows *owner, which the caller releases. `consumed` may be NULL. Fails with AG_DTYPE
 * if src is quantised and `want` is another quantised type, and with AG_FORMAT for NaN, Inf or a
 * magnitude that `want` cannot represent. */
AG_API ag_status ag_prepare_weight(ag_backend *be, ag_tensor *w, ag_buffer **owner,
                                   const ag_tensor *src, ag_dtype want, ag_consumed_fn consumed,
                                   void *user);

/* ---- rows ---- */

/* y = x / sqrt(mean(x^2) + eps) * w, row by row.
 *   y, x  [n, dim] F32; y may be x      w  [dim] F32      eps  added to the mean of squares
 * Source: RMSNorm, arXiv:1910.07467. */
AG_API ag_status ag_rms_norm(ag_backend *be, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                             float eps);
/* x += add, then y = rms_norm(x). x, y, add [n, dim] F32, without overlap. */
AG_API ag_status ag_add_rms_norm(ag_backend *be, ag_tensor *y, ag_tensor *x, const ag_tensor *add,
                                 const ag_tensor *w, float eps);
/* Row-wise softmax in place. A row with only -inf becomes 0. */
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

/* Rotates pairs (i, i + m) of every head by positions[row] * inv_freq[i], in place. Values after
 * the first 2 m of a head do not change. x          [n, heads, d] F32 positions  [n] logical
 * positions, host memory, borrowed for the call inv_freq   [m] F32, on the host, m <= d / 2 Source:
 * RoPE, arXiv:2104.09864, half-split as in Hugging Face checkpoints. */
AG_API ag_status ag_rope(ag_backend *be, ag_tensor *x, const uint32_t *positions,
                         const ag_tensor *inv_freq);

/* ---- recurrent operations on the rows of one sequence ---- */

#define AG_CONV_TAPS_MAX 8
/* Causal convolution of each channel: y[t] = sum over j of w[j] * x[t - (n_taps - 1) + j], then
 * optionally silu. `state` has the rows before the first; afterwards it has the newest rows.
 *   y, x   [n, channels] F32, two tensors      w  [n_taps, channels] F32, 2 to AG_CONV_TAPS_MAX
 *   state  [n_taps - 1, channels] F32
 * The bits do not depend on how the rows are divided into calls. */
AG_API ag_status ag_causal_conv(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                const ag_tensor *w, ag_tensor *state, bool silu);

typedef struct ag_delta_params {
    uint32_t n_k_heads, n_v_heads, k_dim, v_dim; /* n_v_heads is a multiple of n_k_heads */
    bool tiled; /* value head h uses key head h % n_k_heads; else the key head of its group */
    float eps;  /* added to the sum of squares when queries and keys are normalised */
} ag_delta_params;
/* Gated delta rule: updates a matrix S for every value head, row by row
 *   S *= exp(decay * softplus(a + dt_bias)),  S += k (sigmoid(b) * (v - S^T k))^T,  out = S^T q
 * with q and k divided by sqrt(sum of squares + eps), and q by sqrt(k_dim) as well.
 *   out      [n, n_v_heads * v_dim] F32
 *   qkv      [n, 2 * n_k_heads * k_dim + n_v_heads * v_dim] F32: all queries, keys, values
 *   a, b     [n, n_v_heads] F32          decay, dt_bias  [n_v_heads] F32
 *   state    [n_v_heads, k_dim, v_dim] F32
 * The bits do not depend on how the rows are divided into calls. Source: arXiv:2412.06464. */
AG_API ag_status ag_delta_rule(ag_backend *be, ag_tensor *out, const ag_tensor *qkv,
                               const ag_tensor *a, const ag_tensor *b, const ag_tensor *decay,
                               const ag_tensor *dt_bias, ag_tensor *state,
                               const ag_delta_params *params);

/* ---- moving data ---- */

/* dst[i,:] = table[ids[i],:] as F32. table has any dtype and must not be prepared; ids are in host
 * memory. AG_INVALID names the first id outside the table. */
AG_API ag_status ag_gather(ag_backend *be, ag_tensor *dst, const ag_tensor *table,
                           const int32_t *ids, size_t n);
/* Converts src to the dtype of dst, of the same shape: between F32, F16, BF16 and quantised types.
 */
AG_API ag_status ag_cast(ag_backend *be, ag_tensor *dst, const ag_tensor *src);
/* Copies `count` elements. Offsets are in elements; all three are multiples of the dtype's block.
 * The tensors have the same dtype and may be on different backends; `be` is then the device's. */
AG_API ag_status ag_copy_slice(ag_backend *be, ag_tensor *dst, size_t dst_offset,
                               const ag_tensor *src, size_t src_offset, size_t count);
/* Copies t to this backend's memory. *out borrows *owner, which the caller releases. */
AG_API ag_status ag_copy_from(ag_backend *be, ag_tensor *out, ag_buffer **owner,
                              const ag_tensor *t);
/* Waits for the operations that write t and copies its first n_bytes to dst. */
AG_API ag_status ag_read(ag_backend *be, void *dst, const ag_tensor *t, size_t n_bytes);
/* Waits until all enqueued operations are done. */
AG_API ag_status ag_sync(ag_backend *be);

#ifdef __cplusplus
}
#endif
#endif
