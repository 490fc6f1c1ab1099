/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded launches: a list of kernel objects of their own with their arguments in place, so that
 * the same launches can be replayed without setting one.
 *
 * While a list is recorded, ag_cl_begin takes its next kernel object instead of the one from the
 * table, and ag_cl_arg sets what differs from what that object has already: recording the same
 * again costs no call but the launches themselves, which are made as always. What is not a launch
 * (a copy, a read) cannot be replayed and breaks the recording; so does an array of the host
 * without a place of its own on the device. The operations go on as if nothing had been recorded.
 */
#ifndef AG_OPENCL_RECORDED_LAUNCH_H
#define AG_OPENCL_RECORDED_LAUNCH_H

#include "backend/opencl/opencl.h"

enum { AG_CL_RECORDED_ARGS = 48 };

typedef struct ag_cl_recorded_arg {
    uint64_t value;
    size_t bytes; /* 0: not set */
} ag_cl_recorded_arg;

struct ag_cl_recorded_launch {
    cl_kernel kernel;        /* owned */
    cl_kernel of;            /* borrowed; the table's object of the same kernel */
    const char *file, *name; /* borrowed, of those who launch */
    cl_uint dims;
    bool any_local;
    size_t global[3], local[3];
    ag_cl_recorded_arg args[AG_CL_RECORDED_ARGS];
};

/* Where an array of the host lies on the device every time, and has been brought to already. False:
 * nowhere. */
typedef bool ag_cl_place_fn(void *user, const void *data, size_t n, cl_mem *mem, size_t *offset);
/* The same of a table of n blocks that `of` names, which is brought there if it is not there yet.
 */
typedef bool ag_cl_place_table_fn(void *user, const ag_kv_block *of, const uint64_t *table,
                                  size_t n, cl_mem *mem, size_t *offset);

/* All zeros: an empty list. */
struct ag_cl_launch_list {
    ag_cl_recorded_launch *launches; /* owned */
    size_t n, cap;
    size_t n_recorded; /* of the recording so far */
    bool broken;       /* the recording so far is not all that was done */
    bool unfit;        /* nor would another one be */
    uint64_t bit;      /* that its buffers are marked with (steps.h) */
    ag_cl_place_fn *place;
    ag_cl_place_table_fn *place_table;
    void *place_user;
};

/* ---- for those who record ---- */

/* Until ag_cl_launch_list_stop, all launches go into the list; places NULL: nothing has one. */
void ag_cl_launch_list_record(ag_cl_backend *cl, ag_cl_launch_list *b, ag_cl_place_fn *place,
                              ag_cl_place_table_fn *place_table, void *user);
/* True if all that was done since is in the list; else the list is empty afterwards. ok: the
 * operations succeeded. */
bool ag_cl_launch_list_stop(ag_cl_backend *cl, ag_cl_launch_list *b, bool ok);
/* The launches again. */
ag_status ag_cl_launch_list_replay(ag_cl_backend *cl, const ag_cl_launch_list *b);
void ag_cl_launch_list_release(ag_cl_backend *cl, ag_cl_launch_list *b);

/* ---- for launch.c, and for what is not a launch ---- */

/* l->recorded and the kernel to take, if a list is recorded. */
void ag_cl_launch_list_begin(ag_cl_launch *l, const char *options);
/* Whether argument i is in place; b NULL: it is not. */
bool ag_cl_launch_list_has(const ag_cl_recorded_launch *b, cl_uint i, size_t bytes,
                           const void *value);
void ag_cl_launch_list_set(ag_cl_recorded_launch *b, cl_uint i, size_t bytes, const void *value);
/* False: the array must be staged. */
bool ag_cl_launch_list_place(const ag_cl_launch *l, const void *data, size_t n, cl_mem *mem,
                             size_t *offset);
/* The same of a table of blocks. */
bool ag_cl_launch_list_place_table(const ag_cl_launch *l, const ag_kv_block *of,
                                   const uint64_t *table, size_t n, cl_mem *mem, size_t *offset);
/* The launch was made. */
void ag_cl_launch_list_add(const ag_cl_launch *l, cl_uint dims, const size_t *global,
                           const size_t *local);
/* Aborts the recording: this command cannot be replayed. unfit: neither can any later recording. */
void ag_cl_launch_list_break(const ag_cl_backend *cl, bool unfit);

#endif
