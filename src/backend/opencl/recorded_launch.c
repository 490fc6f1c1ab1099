/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/recorded_launch.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* ---- the list ---- */

/* Only the first n launches stay. */
static void drop_from(ag_cl_backend *cl, ag_cl_launch_list *b, size_t n) {
    while (b->n > n) (void)cl->api.clReleaseKernel(b->launches[--b->n].kernel);
}

void ag_cl_launch_list_release(ag_cl_backend *cl, ag_cl_launch_list *b) {
    drop_from(cl, b, 0);
    ag_free(b->launches);
    *b = (ag_cl_launch_list){.bit = b->bit};
}

static bool grow_list(ag_cl_launch_list *b) {
    if (b->n < b->cap) return true;
    const size_t cap = b->cap ? 2 * b->cap : 64;
    ag_cl_recorded_launch *grown = ag_realloc(b->launches, cap * sizeof *grown);
    if (!grown) return false;
    b->launches = grown;
    b->cap = cap;
    return true;
}

void ag_cl_launch_list_record(ag_cl_backend *cl, ag_cl_launch_list *b, ag_cl_place_fn *place,
                              ag_cl_place_table_fn *place_table, void *user) {
    b->n_recorded = 0;
    b->broken = b->unfit = false;
    b->place = place;
    b->place_table = place_table;
    b->place_user = user;
    cl->record_into = b;
}

bool ag_cl_launch_list_stop(ag_cl_backend *cl, ag_cl_launch_list *b, bool ok) {
    const bool complete = ok && !b->broken;
    cl->record_into = NULL;
    drop_from(cl, b, complete ? b->n_recorded : 0);
    return complete;
}

ag_status ag_cl_launch_list_replay(ag_cl_backend *cl, const ag_cl_launch_list *b) {
    for (size_t i = 0; i < b->n; i++) {
        const ag_cl_recorded_launch *l = &b->launches[i];
        AG_TRY(ag_cl_launch_kernel(cl, l->kernel, l->file, l->name, l->dims, l->global,
                                   l->any_local ? l->local : NULL));
    }
    return AG_OK;
}

/* ---- recording ---- */

/* Another kernel object at the end of the list; false if that cannot be. */
static bool append_launch(ag_cl_launch_list *b, const ag_cl_launch *l, const char *options) {
    if (!grow_list(b)) return false;
    ag_cl_recorded_launch *last = &b->launches[b->n];
    *last = (ag_cl_recorded_launch){.of = l->kernel, .file = l->file, .name = l->name};
    if (ag_cl_kernel_copy(l->cl, l->file, l->name, options, &last->kernel) != AG_OK) return false;
    b->n++;
    return true;
}

void ag_cl_launch_list_begin(ag_cl_launch *l, const char *options) {
    ag_cl_launch_list *b = l->cl->record_into;
    if (!b || b->broken) return;
    if (b->n_recorded < b->n && b->launches[b->n_recorded].of != l->kernel)
        drop_from(l->cl, b, b->n_recorded);
    if (b->n_recorded == b->n && !append_launch(b, l, options)) {
        b->broken = true;
        return;
    }
    l->recorded = &b->launches[b->n_recorded];
    l->kernel = l->recorded->kernel;
}

/* A value of up to eight bytes; local memory has a size and no value. */
static uint64_t value_of(size_t bytes, const void *value) {
    uint64_t v = 0;
    if (value) memcpy(&v, value, bytes);
    return v;
}

static bool is_recordable(cl_uint i, size_t bytes, const void *value) {
    return i < AG_CL_RECORDED_ARGS && (!value || bytes <= sizeof(uint64_t));
}

bool ag_cl_launch_list_has(const ag_cl_recorded_launch *b, cl_uint i, size_t bytes,
                           const void *value) {
    if (!b || !is_recordable(i, bytes, value)) return false;
    return b->args[i].bytes == bytes && b->args[i].value == value_of(bytes, value);
}

void ag_cl_launch_list_set(ag_cl_recorded_launch *b, cl_uint i, size_t bytes, const void *value) {
    if (!b || !is_recordable(i, bytes, value)) return;
    b->args[i] = (ag_cl_recorded_arg){.value = value_of(bytes, value), .bytes = bytes};
}

bool ag_cl_launch_list_place(const ag_cl_launch *l, const void *data, size_t n, cl_mem *mem,
                             size_t *offset) {
    ag_cl_launch_list *b = l->cl->record_into;
    if (!l->recorded) return false;
    if (b->place && b->place(b->place_user, data, n, mem, offset)) return true;
    ag_cl_launch_list_break(l->cl, true);
    return false;
}

bool ag_cl_launch_list_place_table(const ag_cl_launch *l, const ag_kv_block *of,
                                   const uint64_t *table, size_t n, cl_mem *mem, size_t *offset) {
    ag_cl_launch_list *b = l->cl->record_into;
    if (!l->recorded) return false;
    if (b->place_table && b->place_table(b->place_user, of, table, n, mem, offset)) return true;
    ag_cl_launch_list_break(l->cl, true);
    return false;
}

void ag_cl_launch_list_add(const ag_cl_launch *l, cl_uint dims, const size_t *global,
                           const size_t *local) {
    if (!l->recorded) return;
    l->recorded->dims = dims;
    l->recorded->any_local = local != NULL;
    memcpy(l->recorded->global, global, dims * sizeof *global);
    if (local) memcpy(l->recorded->local, local, dims * sizeof *local);
    l->cl->record_into->n_recorded++;
}

void ag_cl_launch_list_break(const ag_cl_backend *cl, bool unfit) {
    if (!cl->record_into) return;
    cl->record_into->broken = true;
    cl->record_into->unfit = cl->record_into->unfit || unfit;
}
