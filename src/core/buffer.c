/* SPDX-License-Identifier: Apache-2.0 */
#include "core/buffer_ops.h"
#include "core/fail.h"

#include <assert.h>
#include <string.h>

void ag_buffer_init(ag_buffer *buf, const ag_buffer_ops *ops, size_t size) {
    assert(ops->destroy && (ops->map || (ops->upload && ops->download)));
    buf->ops = ops;
    atomic_init(&buf->refs, 1);
    buf->size = size;
}

ag_buffer *ag_buffer_retain(ag_buffer *buf) {
    atomic_fetch_add_explicit(&buf->refs, 1, memory_order_relaxed);
    return buf;
}

void ag_buffer_release(ag_buffer **buf) {
    ag_buffer *b = *buf;
    *buf = NULL;
    if (!b) return;
    unsigned before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1) b->ops->destroy(b);
}

size_t ag_buffer_size(const ag_buffer *buf) { return buf->size; }

void *ag_buffer_map(ag_buffer *buf) { return buf->ops->map ? buf->ops->map(buf) : NULL; }

void ag_buffer_unmap(ag_buffer *buf) {
    if (buf->ops->unmap) buf->ops->unmap(buf);
}

bool ag_buffer_is_mapped(const ag_buffer *buf) {
    return buf->ops->is_mapped ? buf->ops->is_mapped(buf) : buf->ops->map != NULL;
}

ag_status ag_buffer_sync(ag_buffer *buf, ag_error *err) {
    return buf->ops->sync ? buf->ops->sync(buf, err) : AG_OK;
}

static ag_status check_range(const ag_buffer *buf, size_t offset, size_t n, ag_error *err) {
    if (offset <= buf->size && n <= buf->size - offset) return AG_OK;
    return AG_FAIL(err, INVALID,
                   "%zu bytes at offset %zu are beyond the end of a buffer of %zu bytes", n, offset,
                   buf->size);
}

/* Maps a buffer for one copy. The caller unmaps it unless *was_mapped. */
static ag_status map_for_copy(ag_buffer *buf, unsigned char **p, bool *was_mapped, ag_error *err) {
    *was_mapped = ag_buffer_is_mapped(buf);
    *p = ag_buffer_map(buf);
    if (!*p) return AG_FAIL(err, DEVICE, "a buffer of %zu bytes cannot be mapped", buf->size);
    return AG_OK;
}

ag_status ag_buffer_upload(ag_buffer *dst, size_t offset, const void *src, size_t n,
                           ag_error *err) {
    AG_TRY(check_range(dst, offset, n, err));
    if (n == 0) return AG_OK;
    if (dst->ops->upload) return dst->ops->upload(dst, offset, src, n, err);
    unsigned char *p;
    bool was_mapped;
    AG_TRY(map_for_copy(dst, &p, &was_mapped, err));
    memmove(p + offset, src, n);
    if (!was_mapped) ag_buffer_unmap(dst);
    return AG_OK;
}

ag_status ag_buffer_download(void *dst, ag_buffer *src, size_t offset, size_t n, ag_error *err) {
    AG_TRY(check_range(src, offset, n, err));
    if (n == 0) return AG_OK;
    if (src->ops->download) return src->ops->download(dst, src, offset, n, err);
    unsigned char *p;
    bool was_mapped;
    AG_TRY(map_for_copy(src, &p, &was_mapped, err));
    memmove(dst, p + offset, n);
    if (!was_mapped) ag_buffer_unmap(src);
    return AG_OK;
}

size_t ag_buffer_discard(ag_buffer *buf, size_t offset, size_t n) {
    if (!buf->ops->discard || offset >= buf->size) return 0;
    size_t remaining = buf->size - offset;
    return buf->ops->discard(buf, offset, n < remaining ? n : remaining);
}

void ag_buffer_commit(ag_buffer *buf, size_t n) {
    if (buf->ops->commit) buf->ops->commit(buf, n);
}

void ag_buffer_uncommit(ag_buffer *buf, size_t n) {
    if (buf->ops->uncommit) buf->ops->uncommit(buf, n);
}

void ag_buffer_promote(ag_buffer *buf, size_t begin, size_t from, size_t end) {
    if (buf->ops->promote) buf->ops->promote(buf, begin, from, end);
}

ag_status ag_memory_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                          ag_error *err) {
    *out = NULL;
    if (bytes == 0) return AG_FAIL(err, INVALID, "cannot allocate a buffer of 0 bytes");
    return mem->ops->alloc(mem, bytes, usage, out, err);
}

size_t ag_memory_bytes_in_use(const ag_memory *mem) { return mem->ops->bytes_in_use(mem); }
