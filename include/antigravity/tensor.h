/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes, counted buffers, the memory they come from, and tensors: small values that borrow. */
#ifndef ANTIGRAVITY_TENSOR_H
#define ANTIGRAVITY_TENSOR_H

#include <antigravity/dtype.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AG_MAX_DIMS 4

/* Outermost first: [rows, columns]. Unused dims are 0. */
typedef struct ag_shape {
    size_t dim[AG_MAX_DIMS];
    int n_dims;
} ag_shape;

AG_API ag_shape ag_shape_1d(size_t a);
AG_API ag_shape ag_shape_2d(size_t a, size_t b);
AG_API ag_shape ag_shape_3d(size_t a, size_t b, size_t c);
AG_API ag_shape ag_shape_4d(size_t a, size_t b, size_t c, size_t d);

/* Product of the dims; 0 for a shape without dims, SIZE_MAX if the product overflows. */
AG_API size_t ag_shape_numel(const ag_shape *s);
AG_API size_t ag_shape_rows(const ag_shape *s); /* all dims but the last, multiplied */
AG_API size_t ag_shape_cols(const ag_shape *s); /* the last dim; 0 without dims */
AG_API bool ag_shape_equal(const ag_shape *a, const ag_shape *b);
/* "[4096,2048]" into buf (always terminated); returns buf. */
AG_API const char *ag_shape_format(const ag_shape *s, char *buf, size_t cap);

/* ---- buffers: bytes somewhere; the only thing here that is reference-counted ---- */

typedef struct ag_buffer ag_buffer;

/* Returns its argument. Thread-safe. */
AG_API ag_buffer *ag_buffer_retain(ag_buffer *buf);
/* Drops one reference and clears the caller's pointer; NULL is fine. Thread-safe. */
AG_API void ag_buffer_release(ag_buffer **buf);
AG_API size_t ag_buffer_size(const ag_buffer *buf);

/* Host pointer to the buffer's first byte, NULL if it has none (device memory that cannot be
 * mapped). For host buffers always the same pointer; device buffers must be unmapped before the
 * device uses them again. */
AG_API void *ag_buffer_map(ag_buffer *buf);
AG_API void ag_buffer_unmap(ag_buffer *buf);
AG_API bool ag_buffer_is_mapped(const ag_buffer *buf);
/* Waits until writes enqueued to the buffer are done. */
AG_API ag_status ag_buffer_sync(ag_buffer *buf, ag_error *err);

/* Copies between host and buffer; both return when the host side is free for reuse.
 * AG_INVALID if offset + n passes the end. */
AG_API ag_status ag_buffer_upload(ag_buffer *dst, size_t offset, const void *src, size_t n,
                                  ag_error *err);
AG_API ag_status ag_buffer_download(void *dst, ag_buffer *src, size_t offset, size_t n,
                                    ag_error *err);

/* Tells the system that these bytes are no longer needed; whole pages inside the range are given
 * back and read as zero (or anything) afterwards. Returns the bytes given back, which may be 0. */
AG_API size_t ag_buffer_discard(ag_buffer *buf, size_t offset, size_t n);

/* ---- memory: where buffers come from ---- */

typedef struct ag_memory ag_memory;

typedef enum ag_usage {
    AG_USAGE_SCRATCH, /* activations and small things: heap, aligned to 64 bytes */
    AG_USAGE_WEIGHTS, /* written once, read for ever: pages of its own, huge ones when possible */
    AG_USAGE_KV, /* pages of its own, committed when first touched, huge ones once they are full */
} ag_usage;

/* A zeroed buffer of `bytes` (> 0), owned by the caller: ag_buffer_release. *out is NULL after a
 * failure. Thread-safe. */
AG_API ag_status ag_memory_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                                 ag_error *err);
/* Bytes of all live buffers of this memory; a cache's as far as its blocks hold tokens, each block
 * once, however many forks share it. Thread-safe. */
AG_API size_t ag_memory_bytes_in_use(const ag_memory *mem);

/* ---- tensors ---- */

/* A value: copying it copies no data and takes no reference. The buffer is borrowed and must
 * outlive every tensor that names it. Rows are contiguous, outermost dim first. */
typedef struct ag_tensor {
    ag_dtype dtype;
    ag_shape shape;
    size_t offset; /* bytes from the start of the buffer */
    ag_buffer *buffer;
    uint32_t layout; /* 0: rows as the dtype says; else private to the backend that prepared it */
} ag_tensor;

/* Bytes of the tensor in layout 0; 0 if the last dim does not fit the dtype's block, or overflow.
 */
AG_API size_t ag_tensor_bytes(const ag_tensor *t);
/* Fills *out. AG_SHAPE if the tensor does not fit the buffer from `offset` on. */
AG_API ag_status ag_tensor_make(ag_tensor *out, ag_dtype dtype, ag_shape shape, ag_buffer *buffer,
                                size_t offset, ag_error *err);
/* A buffer of the right size and the tensor over it; *out borrows *owner, which is the caller's. */
AG_API ag_status ag_tensor_alloc(ag_tensor *out, ag_buffer **owner, ag_memory *mem, ag_usage usage,
                                 ag_dtype dtype, ag_shape shape, ag_error *err);
/* Rows [row0, row0 + n) of a tensor seen as [rows, cols]; the result has 2 dims. */
AG_API ag_status ag_tensor_rows(ag_tensor *out, const ag_tensor *t, size_t row0, size_t n,
                                ag_error *err);
/* The same bytes under another shape of as many elements and the same last-dim block fit. */
AG_API ag_status ag_tensor_reshape(ag_tensor *out, const ag_tensor *t, ag_shape shape,
                                   ag_error *err);

/* Host pointer to the first element, NULL if the buffer has none. */
AG_API void *ag_tensor_data(const ag_tensor *t);
/* Typed access: NULL also when the dtype differs. */
AG_API float *ag_tensor_f32(const ag_tensor *t);
AG_API uint16_t *ag_tensor_f16(const ag_tensor *t); /* the bits of F16 or BF16 */
AG_API int32_t *ag_tensor_i32(const ag_tensor *t);
AG_API uint8_t *ag_tensor_u8(const ag_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
