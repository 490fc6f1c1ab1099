/* SPDX-License-Identifier: Apache-2.0 */
/* Times of launches on the device, summed by kernel and grid. */
#include "backend/opencl/opencl.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

enum { MAX_KINDS = 512, MAX_PENDING = 4096 };

struct ag_cl_times {
    ag_launch_info kinds[MAX_KINDS]; /* the last one has all launches that do not fit */
    size_t n_kinds;
    struct {
        cl_event event; /* owned */
        size_t kind;
    } pending[MAX_PENDING];
    size_t n_pending;
};

ag_status ag_cl_times_open(ag_cl_backend *cl, ag_error *err) {
    cl->times = ag_calloc(1, sizeof *cl->times);
    return cl->times ? AG_OK : AG_FAIL(err, NOMEM, "times of launches");
}

void ag_cl_times_close(ag_cl_backend *cl) {
    for (size_t i = 0; cl->times && i < cl->times->n_pending; i++) {
        (void)cl->api.clReleaseEvent(cl->times->pending[i].event);
    }
    ag_free(cl->times);
    cl->times = NULL;
}

/* Appends " 16x2 of 256x1". */
static void append_grid(char *name, size_t cap, cl_uint dims, const size_t *global,
                        const size_t *local) {
    size_t n = strlen(name);
    for (cl_uint of = 0; of < 2; of++) {
        for (cl_uint i = 0; i < dims && n < cap; i++) {
            const size_t size = of ? local[i] : global[i] / local[i];
            const char *before = i ? "x" : of ? " of " : " ";
            n += (size_t)snprintf(name + n, cap - n, "%s%zu", before, size);
        }
    }
}

static size_t find_kind(ag_cl_times *t, const char *name) {
    size_t i = 0;
    while (i < t->n_kinds && strcmp(t->kinds[i].name, name) != 0) i++;
    if (i < t->n_kinds) return i;
    if (t->n_kinds == MAX_KINDS) return MAX_KINDS - 1;
    if (t->n_kinds == MAX_KINDS - 1) name = "others";
    snprintf(t->kinds[i].name, sizeof t->kinds[i].name, "%s", name);
    return t->n_kinds++;
}

/* Adds the time of one launch and releases its event. */
static cl_int add_time(ag_cl_backend *cl, cl_event event, ag_launch_info *to) {
    cl_ulong begin = 0, end = 0;
    const ag_cl_api *api = &cl->api;
    cl_int code =
        api->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof begin, &begin, NULL);
    if (code == CL_SUCCESS) {
        code =
            api->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    }
    (void)api->clReleaseEvent(event);
    to->n++;
    if (code == CL_SUCCESS && end > begin) to->seconds += (double)(end - begin) * 1e-9;
    return code;
}

/* Waits for the queue and adds the times of all pending launches. */
static ag_status collect(ag_cl_backend *cl) {
    ag_cl_times *t = cl->times;
    const ag_status st = ag_cl_finish(cl, &cl->base.err);
    cl_int code = CL_SUCCESS;
    for (size_t i = 0; i < t->n_pending; i++) {
        const cl_int one = add_time(cl, t->pending[i].event, &t->kinds[t->pending[i].kind]);
        if (one != CL_SUCCESS) code = one;
    }
    t->n_pending = 0;
    if (st != AG_OK || code == CL_SUCCESS) return st;
    return ag_cl_fail(cl, &cl->base.err, code, "the time of a launch");
}

ag_status ag_cl_times_add(ag_cl_backend *cl, const char *name, cl_uint dims, const size_t *global,
                          const size_t *local, cl_event event) {
    ag_cl_times *t = cl->times;
    ag_launch_info kind;
    snprintf(kind.name, sizeof kind.name, "%s", name);
    append_grid(kind.name, sizeof kind.name, dims, global, local);
    t->pending[t->n_pending].event = event;
    t->pending[t->n_pending++].kind = find_kind(t, kind.name);
    return t->n_pending == MAX_PENDING ? collect(cl) : AG_OK;
}

ag_status ag_cl_launches(ag_backend *b, ag_launch_info *out, size_t cap, size_t *n) {
    ag_cl_backend *cl = ag_cl_of(b);
    ag_cl_times *t = cl->times;
    if (!t) {
        return AG_FAIL(&b->err, UNSUPPORTED,
                       "launches are not timed: create the backend with time_launches");
    }
    AG_TRY(collect(cl));
    *n = t->n_kinds;
    if (cap) memcpy(out, t->kinds, (cap < *n ? cap : *n) * sizeof *out);
    memset(t->kinds, 0, sizeof t->kinds);
    t->n_kinds = 0;
    return AG_OK;
}
