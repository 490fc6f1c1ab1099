/* SPDX-License-Identifier: Apache-2.0 */
/* Staging: pinned memory from which the driver copies small host arrays and converted weights while
 * the host continues. */
#include "backend/opencl/opencl.h"
#include "core/fail.h"

#include <string.h>

/* A half has space for 1,024 rows of 2,048 values in 6 bits, so that the rows of a chunk of a
 * prompt do not wait for the chunk before. */
enum { RING_BYTES = 1 << 22, ALIGN = 64 };

static ag_status open_ring(ag_cl_backend *cl, size_t bytes, ag_error *err) {
    ag_cl_staging *s = &cl->staging;
    cl_int code;
    AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_ONLY | CL_MEM_ALLOC_HOST_PTR, bytes, "of pinned memory",
                         &s->pinned, err));
    AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_ONLY, bytes, "for staging", &s->device, err));
    s->host = cl->api.clEnqueueMapBuffer(cl->queue, s->pinned, CL_TRUE, CL_MAP_WRITE, 0, bytes, 0,
                                         NULL, NULL, &code);
    if (code != CL_SUCCESS) return ag_cl_fail(cl, err, code, "mapping pinned memory");
    s->bytes = bytes;
    return AG_OK;
}

ag_status ag_cl_staging_open(ag_cl_backend *cl, ag_error *err) {
    return open_ring(cl, RING_BYTES, err);
}

void ag_cl_staging_close(ag_cl_backend *cl) {
    ag_cl_staging *s = &cl->staging;
    const ag_cl_api *api = &cl->api;
    for (int i = 0; i < 2; i++) {
        if (s->left[i]) (void)api->clReleaseEvent(s->left[i]);
    }
    if (s->host) {
        (void)api->clEnqueueUnmapMemObject(cl->queue, s->pinned, s->host, 0, NULL, NULL);
        (void)api->clFinish(cl->queue);
    }
    if (s->retired) ag_cl_release_part(cl, s->retired);
    if (s->device) ag_cl_release_mem(cl, s->device);
    if (s->pinned) ag_cl_release_mem(cl, s->pinned);
    *s = (ag_cl_staging){0};
}

/* Replaces the ring by a larger one, for an array of more than half of it. Waits; this is rare. */
static ag_status grow_ring(ag_cl_backend *cl, size_t n, ag_error *err) {
    size_t bytes = cl->staging.bytes ? cl->staging.bytes : RING_BYTES;
    while (bytes / 2 < n) {
        if (bytes > SIZE_MAX / 2) return AG_FAIL(err, NOMEM, "staging buffer of %zu bytes", n);
        bytes *= 2;
    }
    AG_TRY(ag_cl_finish(cl, err));
    /* The launch in preparation may have an argument in the old buffer. */
    cl_mem retired = cl->staging.device;
    cl->staging.device = NULL;
    ag_cl_staging_close(cl);
    ag_status st = open_ring(cl, bytes, err);
    if (st != AG_OK) ag_cl_staging_close(cl);
    cl->staging.retired = retired;
    return st;
}

/* Waits for the copies from a half before it is written again. */
static ag_status enter_half(ag_cl_backend *cl, size_t half, ag_error *err) {
    ag_cl_staging *s = &cl->staging;
    size_t kept = 0;
    for (size_t i = 0; i < s->n_recent; i++) {
        if (s->recent[i].offset / (s->bytes / 2) != half) s->recent[kept++] = s->recent[i];
    }
    s->n_recent = kept;
    if (!s->left[half]) return AG_OK;
    cl_int code = cl->api.clWaitForEvents(1, &s->left[half]);
    (void)cl->api.clReleaseEvent(s->left[half]);
    s->left[half] = NULL;
    return code == CL_SUCCESS ? AG_OK : ag_cl_fail(cl, err, code, "waiting for a staged array");
}

/* The bytes are within one half. */
ag_status ag_cl_stage_reserve(ag_cl_backend *cl, size_t n, unsigned char **host, ag_error *err) {
    ag_cl_staging *s = &cl->staging;
    if (n > SIZE_MAX - ALIGN) return AG_FAIL(err, NOMEM, "staging buffer of %zu bytes", n);
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (n > s->bytes / 2) AG_TRY(grow_ring(cl, n, err));
    size_t half_bytes = s->bytes / 2, at = s->at;
    if (at % half_bytes + n > half_bytes) at = (at / half_bytes + 1) * half_bytes;
    if (at >= s->bytes) at = 0;
    if (at % half_bytes == 0) AG_TRY(enter_half(cl, at / half_bytes, err));
    *host = s->host + at;
    s->at = at + n;
    return AG_OK;
}

ag_status ag_cl_stage_send(ag_cl_backend *cl, cl_mem dst, size_t dst_offset,
                           const unsigned char *host, size_t n, ag_error *err) {
    ag_cl_staging *s = &cl->staging;
    cl_event arrived;
    cl_int code = cl->api.clEnqueueWriteBuffer(cl->queue, dst, CL_FALSE, dst_offset, n, host, 0,
                                               NULL, &arrived);
    if (code != CL_SUCCESS) return ag_cl_fail(cl, err, code, "writing %zu bytes", n);
    cl_event *left = &s->left[(size_t)(host - s->host) / (s->bytes / 2)];
    if (*left) (void)cl->api.clReleaseEvent(*left);
    *left = arrived;
    return AG_OK;
}

ag_status ag_cl_stage_into(ag_cl_backend *cl, cl_mem dst, size_t dst_offset, const void *data,
                           size_t n, ag_error *err) {
    unsigned char *host;
    AG_TRY(ag_cl_stage_reserve(cl, n, &host, err));
    memcpy(host, data, n);
    return ag_cl_stage_send(cl, dst, dst_offset, host, n, err);
}

/* Finds an equal array in the half being filled. The other half is reused next, maybe before the
 * launch that needs the array. */
static bool find_recent(const ag_cl_staging *s, const void *data, size_t n, size_t *offset) {
    for (size_t i = s->n_recent; i-- > 0;) {
        const size_t half_bytes = s->bytes / 2, at = s->recent[i].offset;
        if (at / half_bytes != (s->at - 1) / half_bytes) continue;
        if (s->recent[i].n != n || memcmp(s->host + at, data, n) != 0) continue;
        *offset = at;
        return true;
    }
    return false;
}

static void remember(ag_cl_staging *s, size_t offset, size_t n) {
    if (s->n_recent == AG_CL_STAGED_RECENT) {
        memmove(s->recent, s->recent + 1, --s->n_recent * sizeof *s->recent);
    }
    s->recent[s->n_recent].offset = offset;
    s->recent[s->n_recent++].n = n;
}

ag_status ag_cl_stage(ag_cl_backend *cl, const void *data, size_t n, cl_mem *mem, size_t *offset,
                      ag_error *err) {
    ag_cl_staging *s = &cl->staging;
    if (!find_recent(s, data, n, offset)) {
        unsigned char *host;
        AG_TRY(ag_cl_stage_reserve(cl, n, &host, err));
        memcpy(host, data, n);
        *offset = (size_t)(host - s->host);
        AG_TRY(ag_cl_stage_send(cl, s->device, *offset, host, n, err));
        remember(s, *offset, n);
    }
    *mem = s->device;
    return AG_OK;
}
