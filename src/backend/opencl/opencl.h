/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenCL backend's own struct and what the launch code of the operations (ops_*.c) is written
 * against: kernels, their arguments, launches, buffers, and small host arrays on their way to the
 * device.
 *
 *   ag_cl_launch l;
 *   AG_TRY(ag_cl_begin(&l, cl, "rows.cl", "scale", NULL));
 *   ag_cl_arg_tensor(&l, x);
 *   ag_cl_arg_u32(&l, (uint32_t)n);
 *   ag_cl_arg_f32(&l, v);
 *   return ag_cl_enqueue(&l, 1, (size_t[]){global}, (size_t[]){64});
 *
 * Everything goes through one in-order queue: what is enqueued first is done first. Nothing waits
 * except downloads and ag_cl_finish. */
#ifndef AG_OPENCL_OPENCL_H
#define AG_OPENCL_OPENCL_H

#include "backend/opencl/device.h"
#include "backend/opencl/program.h"
#include "backend/opencl/sizes.h"
#include "backend/opencl/switches.h"
#include "backend/opencl/vendor.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"

#include <stdbool.h>

typedef struct ag_cl_backend ag_cl_backend;
typedef struct ag_cl_memory ag_cl_memory;
typedef struct ag_cl_loading ag_cl_loading;     /* loading.h */
typedef struct ag_cl_steps ag_cl_steps;         /* steps.h */
typedef struct ag_cl_kv_tables ag_cl_kv_tables; /* kv_table.c */

/* ---- small host arrays on their way to the device (staging.c) ---- */

enum { AG_CL_STAGED_RECENT = 8 };

/* A ring of pinned host memory and a device buffer of the same size. Each half is written again
 * only when the copies that left it are done. */
typedef struct ag_cl_staging {
    cl_mem pinned, device; /* owned */
    cl_mem retired;        /* owned; the device buffer of a ring that became too small */
    unsigned char *host;   /* pinned, as the host sees it */
    size_t bytes, at;      /* of the ring; where the next array goes */
    cl_event left[2];      /* owned; the last copy out of each half, NULL if none is under way */
    struct {
        size_t offset, n;
    } recent[AG_CL_STAGED_RECENT]; /* arrays that are still there: the layers of a pass ask for the
                                    * same positions again and again */
    size_t n_recent;
} ag_cl_staging;

/* ---- the backend ---- */

struct ag_cl_backend {
    ag_backend base;
    ag_backend_ops ops; /* without what the device has no memory for */
    ag_cl_api api;
    ag_cl_device device;
    cl_context context;     /* owned */
    cl_command_queue queue; /* owned; in-order */
    ag_cl_memory *memory;   /* owned */
    ag_cl_staging staging;
    ag_cl_programs programs;
    struct {
        cl_mem mem; /* owned; NULL: none yet */
        size_t bytes;
    } scratch;
    ag_cl_loading *loading;     /* owned; NULL: no weight was prepared yet */
    uint32_t n_threads;         /* of the host, wanted for that; 0: the usable cores */
    ag_cl_steps *steps;         /* owned; NULL: no token was decoded yet */
    ag_cl_kv_tables *kv_tables; /* owned; NULL: no kernel has seen a cache yet */
    atomic_uint released;       /* memory objects so far */
    atomic_uint lost; /* ag_cl_buffer.named_by of buffers that are gone; set by any thread */
    ag_cl_switches switches;
    ag_cl_vendor vendor;
    ag_cl_sizes sizes;
    bool is_gpu;       /* kernels for GPUs; false: those for processors with vector registers */
    bool int_dot;      /* products of few rows round their input to 8 bits */
    bool whole_tokens; /* a token in one launch, where it has run: token.c */
    struct {
        uint32_t launched, uploaded; /* tokens in one launch; programs sent for them */
        uint32_t tables;             /* tables of blocks that were sent */
    } counts;                        /* for tests */
    bool token_refused;              /* this device has shown that it cannot */
    bool mma;           /* products of many rows with blocks in bfloat16, for tensor cores */
    bool zero_copy;     /* buffers are in memory that host and device share, and can be mapped */
    bool gpu_attention; /* false: the composed attention, on the host */
    char description[512];
};

ag_status ag_cl_backend_create(const ag_backend_params *params, ag_backend **out, ag_error *err);
/* As ag_backend_devices(). */
ag_status ag_cl_backend_devices(ag_device_info *out, size_t cap, size_t *n, ag_error *err);

/* The two addresses are the same. */
static inline ag_cl_backend *ag_cl_of(ag_backend *b) { return (ag_cl_backend *)(void *)b; }

/* "doing: CL_OUT_OF_RESOURCES (-5) on NAME OF DEVICE" into *err. `doing` is a format. */
ag_status ag_cl_fail(const ag_cl_backend *cl, ag_error *err, cl_int code, const char *doing, ...)
    __attribute__((format(printf, 4, 5)));

/* Releases a memory object. Its handle may be that of the next one, so no kernel's argument is
 * known to be a memory object afterwards. */
void ag_cl_release_mem(ag_cl_backend *cl, cl_mem mem);

/* Waits until everything enqueued is done; errors of kernels that ran since may show here. */
ag_status ag_cl_finish(ag_cl_backend *cl, ag_error *err);

/* ---- kernels (kernel_table.c), launches (launch.c) and the queue (queue.c) ---- */

/* The kernel `name` of kernels/`file`, built with `options` ("-DROWS=4 -DBLOCK=32"; NULL: none) the
 * first time it is asked for, then from a table. Borrowed, valid as long as the backend. A file
 * that does not compile is AG_DEVICE with file, device and the first lines of the log. */
ag_status ag_cl_kernel(ag_cl_backend *cl, const char *file, const char *name, const char *options,
                       cl_kernel *out, ag_cl_known_arg **args);

/* One launch being prepared. An argument that cannot be set is remembered, and ag_cl_enqueue
 * reports it. */
typedef struct ag_cl_launch {
    ag_cl_backend *cl;
    cl_kernel kernel;
    ag_cl_known_arg *known; /* borrowed; what the kernel has already */
    const char *file, *name;
    cl_uint n_args;
    cl_int code;         /* of the first argument that was refused */
    cl_uint refused_arg; /* its number */
    ag_status staged;    /* of an array that could not be staged; the message is in the backend */
} ag_cl_launch;

void ag_cl_programs_close(ag_cl_backend *cl);

ag_status ag_cl_begin(ag_cl_launch *l, ag_cl_backend *cl, const char *file, const char *name,
                      const char *options);

/* Each of these sets the next arguments of the kernel. */
void ag_cl_arg(ag_cl_launch *l, size_t bytes, const void *value); /* any value */
void ag_cl_arg_local(ag_cl_launch *l, size_t bytes);              /* local memory */
void ag_cl_arg_u32(ag_cl_launch *l, uint32_t v);                  /* uint */
void ag_cl_arg_u64(ag_cl_launch *l, uint64_t v);                  /* ulong */
void ag_cl_arg_f32(ag_cl_launch *l, float v);                     /* float */
void ag_cl_arg_mem(ag_cl_launch *l, cl_mem mem);                  /* global T * */
/* global T *, the start of the buffer. A buffer of another memory is refused. */
void ag_cl_arg_buffer(ag_cl_launch *l, ag_buffer *buf);
/* Two arguments: global uchar * (the start of the buffer) and ulong, the tensor's offset in bytes.
 */
void ag_cl_arg_tensor(ag_cl_launch *l, const ag_tensor *t);
/* Two arguments, the same way: an array on the host of n bytes, copied now. */
void ag_cl_arg_staged(ag_cl_launch *l, const void *data, size_t n);

/* dims sizes each; local NULL: the driver's choice. global must be multiples of local. An error
 * names kernel, sizes, device and code. */
ag_status ag_cl_enqueue(ag_cl_launch *l, cl_uint dims, const size_t *global, const size_t *local);

/* The largest work-group this kernel can have here (registers and local memory considered). */
ag_status ag_cl_max_group(ag_cl_backend *cl, cl_kernel kernel, size_t *out);

/* ---- staging ---- */

ag_status ag_cl_staging_open(ag_cl_backend *cl, ag_error *err);
void ag_cl_staging_close(ag_cl_backend *cl);
/* Copies n bytes, any n, into the device buffer of the ring: *mem from *offset on (a multiple of
 * 64). Valid for launches enqueued before as many bytes again are staged; waits for nothing
 * unless the device is a whole ring behind. Equal arrays staged shortly before are found again. */
ag_status ag_cl_stage(ag_cl_backend *cl, const void *data, size_t n, cl_mem *mem, size_t *offset,
                      ag_error *err);

/* ---- buffers (cl_buffer.c) and their memory (cl_memory.c) ---- */

struct ag_cl_memory {
    ag_memory base;
    ag_cl_backend *cl;    /* borrowed */
    atomic_size_t in_use; /* bytes of live buffers */
};

typedef struct ag_cl_buffer {
    ag_buffer base;
    ag_cl_memory *memory; /* borrowed */
    cl_mem mem;           /* owned */
    uint64_t address;     /* as kernels see it; 0: not asked for yet (token_mailbox.c) */
    void *mapped;         /* NULL: the device's */
    uint32_t named_by;    /* entries of steps.h that are known by it, a bit each */
} ag_cl_buffer;

ag_status ag_cl_memory_create(ag_cl_backend *cl, ag_cl_memory **out, ag_error *err);
void ag_cl_memory_destroy(ag_cl_memory *m);
ag_status ag_cl_buffer_create(ag_cl_memory *m, size_t bytes, ag_buffer **out, ag_error *err);

/* NULL if the buffer is not in this backend's device memory (a host buffer, another device's). */
ag_cl_buffer *ag_cl_buffer_of(const ag_cl_backend *cl, ag_buffer *buf);

/* The slot copy_bytes: device to device on the queue, host to device, device to host. */
ag_status ag_cl_copy_bytes(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                           size_t src_offset, size_t n);

#endif
