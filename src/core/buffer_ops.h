/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces of buffers and of memories: tables of functions for each kind. */
#ifndef AG_CORE_BUFFER_OPS_H
#define AG_CORE_BUFFER_OPS_H

#include <antigravity/tensor.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct ag_buffer_ops {
    void (*destroy)(ag_buffer *buf);
    /* optional; NULL: the buffer is not host-visible, and upload and download are required */
    void *(*map)(ag_buffer *buf);
    /* optional; NULL: buffers with map are always mapped */
    void (*unmap)(ag_buffer *buf);
    /* optional; NULL: a buffer is mapped if it has map */
    bool (*is_mapped)(const ag_buffer *buf);
    /* optional; NULL: writes are complete when they return */
    ag_status (*sync)(ag_buffer *buf, ag_error *err);
    /* optional; NULL: memcpy through map */
    ag_status (*upload)(ag_buffer *dst, size_t offset, const void *src, size_t n, ag_error *err);
    ag_status (*download)(void *dst, ag_buffer *src, size_t offset, size_t n, ag_error *err);
    /* optional; NULL: returns 0, no page can be given back */
    size_t (*discard)(ag_buffer *buf, size_t offset, size_t n);
    /* optional, both; NULL: all bytes count from creation; see ag_buffer_commit() */
    void (*commit)(ag_buffer *buf, size_t n);
    void (*uncommit)(ag_buffer *buf, size_t n);
    /* optional; NULL: no effect; see ag_buffer_promote() */
    void (*promote)(ag_buffer *buf, size_t begin, size_t from, size_t end);
} ag_buffer_ops;

struct ag_buffer {
    const ag_buffer_ops *ops;
    atomic_uint refs;
    size_t size;
};

/* Initialises the base of a new buffer with one reference, the caller's. */
void ag_buffer_init(ag_buffer *buf, const ag_buffer_ops *ops, size_t size);

/* Adds n bytes of an AG_USAGE_KV buffer to ag_memory_bytes_in_use(), or subtracts them. Only the
 * count changes: uncommitting gives no page back. */
void ag_buffer_commit(ag_buffer *buf, size_t n);
void ag_buffer_uncommit(ag_buffer *buf, size_t n);

/* Hint: [begin, end) is now immutable and read often; [begin, from) was hinted before. The buffer
 * may use larger pages there. */
void ag_buffer_promote(ag_buffer *buf, size_t begin, size_t from, size_t end);

/* Size of a memory. 0: unknown. */
typedef struct ag_memory_available {
    const char *name; /* name of the device */
    uint64_t bytes, free;
    uint64_t largest; /* size of a buffer that is guaranteed */
} ag_memory_available;

typedef struct ag_memory_ops {
    /* Allocates a zeroed buffer of bytes > 0. It may outlive the memory. */
    ag_status (*alloc)(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                       ag_error *err);
    size_t (*bytes_in_use)(const ag_memory *mem);
    /* optional; NULL: the host's memory */
    void (*available)(const ag_memory *mem, ag_memory_available *out);
    /* A buffer takes all its bytes when it is made, not when they are first touched. Large caches
     * are then allocated in pieces. */
    bool commits_at_once;
} ag_memory_ops;

struct ag_memory {
    const ag_memory_ops *ops;
};

#endif
