/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/loading.h"

#include "backend/cpu/kernels.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <stdlib.h>

static ag_status make_loading(ag_cl_backend *cl) {
    ag_cl_loading *l = ag_calloc(1, sizeof *l);
    if (!l) return AG_FAIL(&cl->base.err, NOMEM, "weight loader");
    ag_cpu_kernels kernels;
    const char *cap = getenv("AG_CPU_ISA");
    if (!ag_cpu_kernels_init(&kernels, cap && *cap ? cap : NULL)) ag_cpu_kernels_common(&kernels);
    l->rounding = kernels.rounding;
    ag_status st = ag_pool_create(cl->n_threads, &l->pool, &cl->base.err);
    if (st == AG_OK) cl->loading = l;
    else ag_free(l);
    return st;
}

static ag_status need_scratch(ag_cl_backend *cl, size_t bytes) {
    enum { CACHE_LINE = 64 };
    ag_cl_loading *l = cl->loading;
    if (bytes <= l->scratch_bytes) return AG_OK;
    const size_t n = ag_pool_threads(l->pool);
    if (bytes > (SIZE_MAX - CACHE_LINE) / n) {
        return AG_FAIL(&cl->base.err, NOMEM, "rows of %zu bytes for %zu threads", bytes, n);
    }
    bytes = (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    unsigned char *grown = ag_aligned_alloc(bytes * n);
    if (!grown) {
        return AG_FAIL(&cl->base.err, NOMEM, "rows of %zu bytes for %zu threads", bytes, n);
    }
    ag_aligned_free(l->scratch);
    l->scratch = grown;
    l->scratch_bytes = bytes;
    return AG_OK;
}

void *ag_cl_loading_scratch(const ag_cl_loading *l, uint32_t thread) {
    return l->scratch + thread * l->scratch_bytes;
}

/* ---- pinned memory ---- */

static void release_pinned(ag_cl_backend *cl) {
    ag_cl_loading *l = cl->loading;
    const ag_cl_api *api = &cl->api;
    for (int i = 0; i < 2; i++) {
        if (l->left[i]) (void)api->clReleaseEvent(l->left[i]);
        l->left[i] = NULL;
    }
    if (l->host) {
        (void)api->clEnqueueUnmapMemObject(cl->queue, l->pinned, l->host, 0, NULL, NULL);
        (void)api->clFinish(cl->queue);
    }
    if (l->pinned) ag_cl_release_mem(cl, l->pinned);
    l->host = NULL;
    l->pinned = NULL;
    l->half_bytes = 0;
}

static ag_status need_pinned(ag_cl_backend *cl, size_t half_bytes) {
    ag_cl_loading *l = cl->loading;
    ag_error *err = &cl->base.err;
    if (half_bytes <= l->half_bytes) return AG_OK;
    if (half_bytes > SIZE_MAX / 2) {
        return AG_FAIL(err, NOMEM, "two pinned buffers of %zu bytes", half_bytes);
    }
    if (l->pinned) AG_TRY(ag_cl_finish(cl, err));
    release_pinned(cl);
    cl_int code;
    l->pinned = cl->api.clCreateBuffer(cl->context, CL_MEM_READ_ONLY | CL_MEM_ALLOC_HOST_PTR,
                                       2 * half_bytes, NULL, &code);
    if (code != CL_SUCCESS) {
        l->pinned = NULL;
        return ag_cl_fail(cl, err, code, "%zu bytes of pinned memory", 2 * half_bytes);
    }
    l->host = cl->api.clEnqueueMapBuffer(cl->queue, l->pinned, CL_TRUE, CL_MAP_WRITE, 0,
                                         2 * half_bytes, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS) {
        l->host = NULL;
        return ag_cl_fail(cl, err, code, "mapping pinned memory");
    }
    l->half_bytes = half_bytes;
    return AG_OK;
}

ag_status ag_cl_loading_need(ag_cl_backend *cl, size_t half_bytes, size_t scratch_bytes) {
    if (!cl->loading) AG_TRY(make_loading(cl));
    AG_TRY(need_scratch(cl, scratch_bytes));
    return need_pinned(cl, half_bytes);
}

void ag_cl_loading_close(ag_cl_backend *cl) {
    if (!cl->loading) return;
    release_pinned(cl);
    ag_pool_destroy(cl->loading->pool);
    ag_aligned_free(cl->loading->scratch);
    ag_free(cl->loading);
    cl->loading = NULL;
}

/* ---- halves ---- */

ag_status ag_cl_loading_turn(ag_cl_backend *cl, unsigned char **out) {
    ag_cl_loading *l = cl->loading;
    l->half = !l->half;
    *out = l->host + l->half * l->half_bytes;
    cl_event *left = &l->left[l->half];
    if (!*left) return AG_OK;
    cl_int code = cl->api.clWaitForEvents(1, left);
    (void)cl->api.clReleaseEvent(*left);
    *left = NULL;
    if (code == CL_SUCCESS) return AG_OK;
    return ag_cl_fail(cl, &cl->base.err, code, "waiting for rows of a weight");
}

ag_status ag_cl_loading_send(ag_cl_backend *cl, cl_mem dst, size_t dst_offset,
                             const unsigned char *from, size_t n) {
    ag_cl_loading *l = cl->loading;
    cl_event arrived;
    cl_int code = cl->api.clEnqueueWriteBuffer(cl->queue, dst, CL_FALSE, dst_offset, n, from, 0,
                                               NULL, &arrived);
    if (code == CL_SUCCESS) {
        if (l->left[l->half]) (void)cl->api.clReleaseEvent(l->left[l->half]);
        l->left[l->half] = arrived;
        code = cl->api.clFlush(cl->queue); /* starts the copy while more rows are converted */
    }
    if (code == CL_SUCCESS) return AG_OK;
    return ag_cl_fail(cl, &cl->base.err, code, "writing %zu bytes of a weight", n);
}
