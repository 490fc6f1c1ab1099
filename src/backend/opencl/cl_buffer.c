/* SPDX-License-Identifier: Apache-2.0 */
/* Device buffers, and copies between them and the host. */
#include "backend/opencl/opencl.h"
#include "core/alloc.h"
#include "core/backend_compose.h"
#include "core/fail.h"

#include <string.h>

/* Larger uploads wait for the driver instead of being copied twice. */
enum { STAGED_UPLOAD_MAX = 1 << 19, PADDING = 64 };

static ag_cl_buffer *self(ag_buffer *buf) { return (ag_cl_buffer *)(void *)buf; }

static void buffer_unmap(ag_buffer *buf) {
    ag_cl_buffer *b = self(buf);
    if (!b->mapped) return;
    ag_cl_backend *cl = b->memory->cl;
    (void)cl->api.clEnqueueUnmapMemObject(cl->queue, b->mem, b->mapped, 0, NULL, NULL);
    b->mapped = NULL;
}

static void buffer_destroy(ag_buffer *buf) {
    ag_cl_buffer *b = self(buf);
    buffer_unmap(buf);
    if (b->named_by) atomic_fetch_or(&b->memory->cl->lost, b->named_by);
    ag_cl_release_mem(b->memory->cl, b->mem);
    atomic_fetch_sub_explicit(&b->memory->in_use, buf->size, memory_order_relaxed);
    ag_free(b);
}

/* Maps the buffer. Waits for the queue, since kernels may still write the buffer. */
static void *buffer_map(ag_buffer *buf) {
    ag_cl_buffer *b = self(buf);
    if (b->mapped) return b->mapped;
    ag_cl_backend *cl = b->memory->cl;
    cl_int code;
    cl->n_writes++;
    void *p = cl->api.clEnqueueMapBuffer(cl->queue, b->mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                         buf->size, 0, NULL, NULL, &code);
    b->mapped = code == CL_SUCCESS ? p : NULL;
    return b->mapped;
}

static bool buffer_is_mapped(const ag_buffer *buf) {
    return ((const ag_cl_buffer *)(const void *)buf)->mapped != NULL;
}

static ag_status buffer_sync(ag_buffer *buf, ag_error *err) {
    return ag_cl_finish(self(buf)->memory->cl, err);
}

static ag_status buffer_upload(ag_buffer *dst, size_t offset, const void *src, size_t n,
                               ag_error *err) {
    ag_cl_buffer *b = self(dst);
    ag_cl_backend *cl = b->memory->cl;
    cl->n_writes++;
    if (b->mapped) {
        memmove((unsigned char *)b->mapped + offset, src, n);
        return AG_OK;
    }
    if (n <= STAGED_UPLOAD_MAX) return ag_cl_stage_into(cl, b->mem, offset, src, n, err);
    cl_int code =
        cl->api.clEnqueueWriteBuffer(cl->queue, b->mem, CL_TRUE, offset, n, src, 0, NULL, NULL);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "writing %zu bytes", n);
}

static ag_status buffer_download(void *dst, ag_buffer *src, size_t offset, size_t n,
                                 ag_error *err) {
    ag_cl_buffer *b = self(src);
    ag_cl_backend *cl = b->memory->cl;
    if (b->mapped) {
        memmove(dst, (unsigned char *)b->mapped + offset, n);
        return AG_OK;
    }
    return ag_cl_read(cl, b->mem, offset, n, dst, err);
}

static const ag_buffer_ops device_ops = {
    .destroy = buffer_destroy,
    .sync = buffer_sync,
    .upload = buffer_upload,
    .download = buffer_download,
};

/* Operations of buffers with --zero-copy. */
static const ag_buffer_ops shared_ops = {
    .destroy = buffer_destroy,
    .map = buffer_map,
    .unmap = buffer_unmap,
    .is_mapped = buffer_is_mapped,
    .sync = buffer_sync,
    .upload = buffer_upload,
    .download = buffer_download,
};

ag_cl_buffer *ag_cl_buffer_of(const ag_cl_backend *cl, ag_buffer *buf) {
    if (buf->ops != &device_ops && buf->ops != &shared_ops) return NULL;
    ag_cl_buffer *b = self(buf);
    return b->memory->cl == cl ? b : NULL;
}

/* ---- making one ---- */

ag_status ag_cl_buffer_create(ag_cl_memory *m, size_t bytes, ag_buffer **out, ag_error *err) {
    ag_cl_backend *cl = m->cl;
    if (bytes > SIZE_MAX - PADDING) return AG_FAIL(err, NOMEM, "device buffer of %zu bytes", bytes);
    size_t padded = (bytes + PADDING - 1) / PADDING * PADDING;
    ag_cl_buffer *b = ag_calloc(1, sizeof *b);
    if (!b) return AG_FAIL(err, NOMEM, "device buffer");
    cl_mem_flags flags = CL_MEM_READ_WRITE | (cl->zero_copy ? CL_MEM_ALLOC_HOST_PTR : 0);
    cl_int code;
    b->memory = m;
    b->mem = cl->api.clCreateBuffer(cl->context, flags, padded, NULL, &code);
    ag_status st =
        code == CL_SUCCESS
            ? ag_cl_clear(cl, b->mem, 0, padded, err)
            : ag_cl_fail(cl, err, code, "a buffer of %zu bytes, the largest may have %llu", bytes,
                         (unsigned long long)cl->device.max_alloc);
    if (st != AG_OK) {
        if (code == CL_SUCCESS) ag_cl_release_mem(cl, b->mem);
        ag_free(b);
        return st;
    }
    cl->n_writes++; /* the buffer may have the address of an earlier one */
    ag_buffer_init(&b->base, cl->zero_copy ? &shared_ops : &device_ops, bytes);
    *out = &b->base;
    return AG_OK;
}

/* ---- copies ---- */

static ag_status enqueue_copy(ag_cl_backend *cl, cl_mem dst, size_t to, cl_mem src, size_t from,
                              size_t n) {
    cl->n_writes++;
    cl_int code = cl->api.clEnqueueCopyBuffer(cl->queue, src, dst, from, to, n, 0, NULL, NULL);
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, &cl->base.err, code, "copying %zu bytes", n);
}

/* Copies overlapping ranges, which OpenCL does not allow, through a temporary buffer. */
static ag_status copy_overlapping(ag_cl_backend *cl, cl_mem mem, size_t to, size_t from, size_t n) {
    cl_mem between;
    AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_WRITE, n, "to move a range", &between, &cl->base.err));
    ag_status st = enqueue_copy(cl, between, 0, mem, from, n);
    if (st == AG_OK) st = enqueue_copy(cl, mem, to, between, 0, n);
    ag_cl_release_mem(cl, between);
    return st;
}

static ag_status copy_on_device(ag_cl_backend *cl, ag_cl_buffer *dst, size_t to, ag_cl_buffer *src,
                                size_t from, size_t n) {
    buffer_unmap(&dst->base);
    buffer_unmap(&src->base);
    size_t apart = to > from ? to - from : from - to;
    if (dst != src || apart >= n) return enqueue_copy(cl, dst->mem, to, src->mem, from, n);
    return apart ? copy_overlapping(cl, dst->mem, to, from, n) : AG_OK;
}

ag_status ag_cl_copy_bytes(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                           size_t src_offset, size_t n) {
    ag_cl_backend *cl = ag_cl_of(b);
    ag_cl_buffer *to = ag_cl_buffer_of(cl, dst), *from = ag_cl_buffer_of(cl, src);
    if (to && from) return copy_on_device(cl, to, dst_offset, from, src_offset, n);
    return ag_compose_copy_bytes(b, dst, dst_offset, src, src_offset, n);
}
