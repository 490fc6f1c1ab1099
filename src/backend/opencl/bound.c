/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/bound.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* ---- the list ---- */

/* Only the first n launches stay. */
static void cut(ag_cl_backend *cl, ag_cl_bound *b, size_t n) {
    while (b->n > n) (void)cl->api.clReleaseKernel(b->launches[--b->n].kernel);
}

void ag_cl_bound_release(ag_cl_backend *cl, ag_cl_bound *b) {
    cut(cl, b, 0);
    ag_free(b->launches);
    *b = (ag_cl_bound){.bit = b->bit};
}

static bool grow(ag_cl_bound *b) {
    if (b->n < b->cap) return true;
    const size_t cap = b->cap ? 2 * b->cap : 64;
    ag_cl_bound_launch *grown = ag_realloc(b->launches, cap * sizeof *grown);
    if (!grown) return false;
    b->launches = grown;
    b->cap = cap;
    return true;
}

void ag_cl_bound_record(ag_cl_backend *cl, ag_cl_bound *b, ag_cl_place_fn *place, void *user) {
    b->n_kept = 0;
    b->broken = b->unfit = false;
    b->place = place;
    b->place_user = user;
    cl->recording = b;
}

bool ag_cl_bound_stop(ag_cl_backend *cl, ag_cl_bound *b, bool ok) {
    const bool whole = ok && !b->broken;
    cl->recording = NULL;
    cut(cl, b, whole ? b->n_kept : 0);
    return whole;
}

ag_status ag_cl_bound_launch_all(ag_cl_backend *cl, const ag_cl_bound *b) {
    for (size_t i = 0; i < b->n; i++) {
        const ag_cl_bound_launch *l = &b->launches[i];
        AG_TRY(ag_cl_launch_kernel(cl, l->kernel, l->file, l->name, l->dims, l->global,
                                   l->any_local ? l->local : NULL));
    }
    return AG_OK;
}

/* ---- recording ---- */

/* Another kernel object at the end of the list; false if that cannot be. */
static bool append(ag_cl_bound *b, const ag_cl_launch *l, const char *options) {
    if (!grow(b)) return false;
    ag_cl_bound_launch *last = &b->launches[b->n];
    *last = (ag_cl_bound_launch){.of = l->kernel, .file = l->file, .name = l->name};
    if (ag_cl_kernel_copy(l->cl, l->file, l->name, options, &last->kernel) != AG_OK) return false;
    b->n++;
    return true;
}

void ag_cl_bound_begin(ag_cl_launch *l, const char *options) {
    ag_cl_bound *b = l->cl->recording;
    if (!b || b->broken) return;
    if (b->n_kept < b->n && b->launches[b->n_kept].of != l->kernel) cut(l->cl, b, b->n_kept);
    if (b->n_kept == b->n && !append(b, l, options)) {
        b->broken = true;
        return;
    }
    l->bound = &b->launches[b->n_kept];
    l->kernel = l->bound->kernel;
}

/* A value of up to eight bytes; local memory has a size and no value. */
static uint64_t value_of(size_t bytes, const void *value) {
    uint64_t v = 0;
    if (value) memcpy(&v, value, bytes);
    return v;
}

static bool is_kept(cl_uint i, size_t bytes, const void *value) {
    return i < AG_CL_BOUND_ARGS && (!value || bytes <= sizeof(uint64_t));
}

bool ag_cl_bound_has(const ag_cl_bound_launch *b, cl_uint i, size_t bytes, const void *value) {
    if (!b || !is_kept(i, bytes, value)) return false;
    return b->args[i].bytes == bytes && b->args[i].value == value_of(bytes, value);
}

void ag_cl_bound_set(ag_cl_bound_launch *b, cl_uint i, size_t bytes, const void *value) {
    if (!b || !is_kept(i, bytes, value)) return;
    b->args[i] = (ag_cl_bound_arg){.value = value_of(bytes, value), .bytes = bytes};
}

bool ag_cl_bound_place(const ag_cl_launch *l, const void *data, size_t n, cl_mem *mem,
                       size_t *offset) {
    ag_cl_bound *b = l->cl->recording;
    if (!l->bound) return false;
    if (b->place && b->place(b->place_user, data, n, mem, offset)) return true;
    ag_cl_bound_break(l->cl, true);
    return false;
}

void ag_cl_bound_keep(const ag_cl_launch *l, cl_uint dims, const size_t *global,
                      const size_t *local) {
    if (!l->bound) return;
    l->bound->dims = dims;
    l->bound->any_local = local != NULL;
    memcpy(l->bound->global, global, dims * sizeof *global);
    if (local) memcpy(l->bound->local, local, dims * sizeof *local);
    l->cl->recording->n_kept++;
}

void ag_cl_bound_break(const ag_cl_backend *cl, bool unfit) {
    if (!cl->recording) return;
    cl->recording->broken = true;
    cl->recording->unfit = cl->recording->unfit || unfit;
}
