/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of buffer and a kind of memory must be able to do. */
#ifndef AG_CORE_BUFFER_OPS_H
#define AG_CORE_BUFFER_OPS_H

#include <antigravity/tensor.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct ag_buffer_ops {
    void (*destroy)(ag_buffer *buf);
    /* optional; NULL: the buffer is not host-visible, and upload and download are required */
    void *(*map)(ag_buffer *buf);
    /* optional; NULL: always mapped once map is there, nothing to do */
    void (*unmap)(ag_buffer *buf);
    /* optional; NULL: mapped exactly when map is there */
    bool (*is_mapped)(const ag_buffer *buf);
    /* optional; NULL: writes are done when they return */
    ag_status (*sync)(ag_buffer *buf, ag_error *err);
    /* optional; NULL: memcpy through map */
    ag_status (*upload)(ag_buffer *dst, size_t offset, const void *src, size_t n, ag_error *err);
    ag_status (*download)(void *dst, ag_buffer *src, size_t offset, size_t n, ag_error *err);
    /* optional; NULL: nothing can be given back */
    size_t (*discard)(ag_buffer *buf, size_t offset, size_t n);
    /* optional, both; NULL: all bytes are counted from the beginning; see ag_buffer_commit */
    void (*commit)(ag_buffer *buf, size_t n);
    void (*uncommit)(ag_buffer *buf, size_t n);
    /* optional; NULL: nothing to gain; see ag_buffer_promote */
    void (*promote)(ag_buffer *buf, size_t begin, size_t from, size_t end);
} ag_buffer_ops;

struct ag_buffer {
    const ag_buffer_ops *ops;
    atomic_uint refs;
    size_t size;
};

/* Fills in the base of a new buffer: one reference, the caller's. */
void ag_buffer_init(ag_buffer *buf, const ag_buffer_ops *ops, size_t size);

/* n bytes of an AG_USAGE_KV buffer are going to be used, and were not before:
 * ag_memory_bytes_in_use() counts them until so many are no longer used. That gives no page back.
 */
void ag_buffer_commit(ag_buffer *buf, size_t n);
void ag_buffer_uncommit(ag_buffer *buf, size_t n);

/* Bytes [begin, end) have been written, are going to stay and to be read often; so far this was
 * said of those before `from`. The system is asked for larger pages under them: nothing but time
 * may change. */
void ag_buffer_promote(ag_buffer *buf, size_t begin, size_t from, size_t end);

/* What a memory has. 0: not known. */
typedef struct ag_memory_available {
    const char *name; /* of the device */
    uint64_t bytes, free;
    uint64_t largest; /* buffer that is promised */
} ag_memory_available;

typedef struct ag_memory_ops {
    /* bytes > 0; the buffer is zeroed. It keeps what it needs of the memory alive. */
    ag_status (*alloc)(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                       ag_error *err);
    size_t (*bytes_in_use)(const ag_memory *mem);
    /* optional; NULL: the host's memory */
    void (*available)(const ag_memory *mem, ag_memory_available *out);
    /* A buffer takes all its bytes when it is made, as a device's memory does, not when they are
     * first touched: large caches are then asked for in parts. */
    bool commits_at_once;
} ag_memory_ops;

struct ag_memory {
    const ag_memory_ops *ops;
};

#endif
