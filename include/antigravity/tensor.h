/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes, reference-counted buffers, memories that allocate them, and tensors that view them. */
#ifndef ANTIGRAVITY_TENSOR_H
#define ANTIGRAVITY_TENSOR_H

#include <antigravity/dtype.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AG_MAX_DIMS 4

/* Dimensions, outermost first: [rows, columns]. Unused dims are 0. */
typedef struct ag_shape {
    size_t dim[AG_MAX_DIMS];
    int n_dims;
} ag_shape;

AG_API ag_shape ag_shape_1d(size_t a);
AG_API ag_shape ag_shape_2d(size_t a, size_t b);
AG_API ag_shape ag_shape_3d(size_t a, size_t b, size_t c);
AG_API ag_shape ag_shape_4d(size_t a, size_t b, size_t c, size_t d);

/* Returns the product of the dims; 0 for a shape without dims, SIZE_MAX if it overflows. */
AG_API size_t ag_shape_numel(const ag_shape *s);
AG_API size_t ag_shape_rows(const ag_shape *s); /* product of all dims but the last */
AG_API size_t ag_shape_cols(const ag_shape *s); /* the last dim; 0 without dims */
AG_API bool ag_shape_equal(const ag_shape *a, const ag_shape *b);
/* Writes the shape as "[4096,2048]" to buf, always terminated. Returns buf. */
AG_API const char *ag_shape_format(const ag_shape *s, char *buf, size_t cap);

/* ---- buffers: the only reference-counted objects ---- */

typedef struct ag_buffer ag_buffer;

/* Adds a reference and returns buf. Thread-safe. */
AG_API ag_buffer *ag_buffer_retain(ag_buffer *buf);
/* Removes a reference and sets *buf to NULL. *buf may be NULL. Thread-safe. */
AG_API void ag_buffer_release(ag_buffer **buf);
AG_API size_t ag_buffer_size(const ag_buffer *buf);

/* Returns a host pointer to the buffer's first byte, NULL for device memory that cannot be mapped.
 * The pointer of a host buffer never changes. A device buffer must be unmapped before the device
 * uses it again. */
AG_API void *ag_buffer_map(ag_buffer *buf);
AG_API void ag_buffer_unmap(ag_buffer *buf);
AG_API bool ag_buffer_is_mapped(const ag_buffer *buf);
/* Waits until enqueued writes to the buffer are done. */
AG_API ag_status ag_buffer_sync(ag_buffer *buf, ag_error *err);

/* Copy between host and buffer. They return when the host memory may be reused. Fail with
 * AG_INVALID if offset + n exceeds the buffer. */
AG_API ag_status ag_buffer_upload(ag_buffer *dst, size_t offset, const void *src, size_t n,
                                  ag_error *err);
AG_API ag_status ag_buffer_download(void *dst, ag_buffer *src, size_t offset, size_t n,
                                    ag_error *err);

/* Returns complete pages inside the range to the system; their content is then undefined. Returns
 * the number of bytes, which may be 0. */
AG_API size_t ag_buffer_discard(ag_buffer *buf, size_t offset, size_t n);

/* ---- memories, which allocate buffers ---- */

typedef struct ag_memory ag_memory;

typedef enum ag_usage {
    AG_USAGE_SCRATCH, /* activations and small buffers: heap, aligned to 64 bytes */
    AG_USAGE_WEIGHTS, /* written once, then read: own pages, huge ones if possible */
    AG_USAGE_KV,      /* own pages, committed on first use; huge pages once they are full */
} ag_usage;

/* Allocates a zeroed buffer of `bytes` (> 0), which the caller releases. *out is NULL on failure.
 * Thread-safe. */
AG_API ag_status ag_memory_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                                 ag_error *err);
/* Returns the bytes of all buffers of this memory. Only a cache's blocks in use count, and shared
 * blocks count once. Thread-safe. */
AG_API size_t ag_memory_bytes_in_use(const ag_memory *mem);

/* ---- tensors ---- */

/* A view of a buffer. Copying it copies no data and adds no reference. The buffer is borrowed and
 * must outlive its tensors. Rows are contiguous, outermost dim first. */
typedef struct ag_tensor {
    ag_dtype dtype;
    ag_shape shape;
    size_t offset; /* bytes from the start of the buffer */
    ag_buffer *buffer;
    uint32_t layout; /* 0: rows of the dtype; else private to the backend that prepared it */
} ag_tensor;

/* Returns the bytes of the tensor in layout 0; 0 if the last dim is not a multiple of the dtype's
 * block or the size overflows. */
AG_API size_t ag_tensor_bytes(const ag_tensor *t);
/* Fills *out. Fails with AG_SHAPE if the tensor exceeds the buffer from `offset` on. */
AG_API ag_status ag_tensor_make(ag_tensor *out, ag_dtype dtype, ag_shape shape, ag_buffer *buffer,
                                size_t offset, ag_error *err);
/* Allocates a buffer and fills *out with a tensor over all of it. *out borrows *owner, which the
 * caller releases. */
AG_API ag_status ag_tensor_alloc(ag_tensor *out, ag_buffer **owner, ag_memory *mem, ag_usage usage,
                                 ag_dtype dtype, ag_shape shape, ag_error *err);
/* Fills *out with rows [row0, row0 + n) of t, seen as [rows, cols]. The result has 2 dims. */
AG_API ag_status ag_tensor_rows(ag_tensor *out, const ag_tensor *t, size_t row0, size_t n,
                                ag_error *err);
/* Fills *out with the data of t in another shape with the same number of elements. The last dim
 * must be a multiple of the dtype's block. */
AG_API ag_status ag_tensor_reshape(ag_tensor *out, const ag_tensor *t, ag_shape shape,
                                   ag_error *err);

/* Returns a host pointer to the first element, NULL if the buffer has no host pointer. */
AG_API void *ag_tensor_data(const ag_tensor *t);
/* Return typed pointers; NULL also if the dtype differs. */
AG_API float *ag_tensor_f32(const ag_tensor *t);
AG_API uint16_t *ag_tensor_f16(const ag_tensor *t); /* the bits of F16 or BF16 */
AG_API int32_t *ag_tensor_i32(const ag_tensor *t);
AG_API uint8_t *ag_tensor_u8(const ag_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
