/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL backend: its struct, and the interface for launch code (ops_*.c): kernels, their
 * arguments, launches, buffers, and staging of small host arrays.
 *
 *   ag_cl_launch l;
 *   AG_TRY(ag_cl_begin(&l, cl, "rows.cl", "scale", NULL));
 *   ag_cl_arg_tensor(&l, x);
 *   ag_cl_arg_u32(&l, (uint32_t)n);
 *   ag_cl_arg_f32(&l, v);
 *   return ag_cl_enqueue(&l, 1, (size_t[]){global}, (size_t[]){64});
 *
 * All commands use one in-order queue. Only downloads and ag_cl_finish() wait. */
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
typedef struct ag_cl_loading ag_cl_loading;     /* prepare.c */
typedef struct ag_cl_steps ag_cl_steps;         /* steps.h */
typedef struct ag_cl_kv_tables ag_cl_kv_tables; /* kv_table.c */
typedef struct ag_cl_times ag_cl_times;         /* launch_times.c */

/* ---- staging of small host arrays (staging.c) ---- */

enum { AG_CL_STAGED_RECENT = 8 };

/* A ring of pinned host memory and a device buffer of the same size. Each half is reused only when
 * the copies from it are done. */
typedef struct ag_cl_staging {
    cl_mem pinned, device; /* owned */
    cl_mem retired;        /* owned; device buffer of an earlier, smaller ring */
    unsigned char *host;   /* host address of `pinned` */
    size_t bytes, at;      /* size of the ring; offset of the next array */
    cl_event left[2];      /* owned; last copy from each half; NULL: none pending */
    struct {
        size_t offset, n;
    } recent[AG_CL_STAGED_RECENT]; /* staged arrays that can be reused: all layers of a pass use the
                                    * same positions */
    size_t n_recent;
} ag_cl_staging;

/* ---- the backend ---- */

/* Memory of the backend that kernels use parts of, and its address. */
typedef struct ag_cl_part {
    cl_mem mem; /* borrowed */
    uint64_t address;
} ag_cl_part;
enum { AG_CL_PARTS = 8 };

struct ag_cl_backend {
    ag_backend base;
    ag_cl_api api;
    ag_cl_device device;
    cl_context context;     /* owned */
    cl_command_queue queue; /* owned; in-order */
    ag_cl_memory *memory;   /* owned */
    ag_cl_staging staging;
    ag_cl_programs programs;
    struct {
        cl_mem mem; /* owned; NULL before first use */
        size_t bytes;
    } scratch;
    struct {
        cl_mem mem; /* owned; NULL before first use */
        size_t n;   /* zeros: finished work-groups that share a tile of a product or a KV head */
    } tile_counts;
    struct {
        cl_mem mem; /* owned; NULL before first use */
        size_t bytes, factors_at;
        ag_dtype order;    /* type of the last product's weights; AG_Q4_0: all with blocks */
        bool is_used;      /* the last product of many rows read them */
        ag_tensor of;      /* the tensor whose rows mem has */
        uint64_t valid_at; /* n_writes when they were packed */
    } packed;              /* rows for products on tensor cores (ops_pack.c) */
    uint64_t n_writes;     /* commands that may have written a tensor */
    struct {
        unsigned char *memory; /* owned; tables of several sequences (cl_memory.c) */
        size_t bytes;
    } joined;
    ag_cl_part parts[AG_CL_PARTS]; /* parts used last; next_part: replaced next */
    size_t next_part;
    cl_mem address_result;      /* owned; an address that a kernel writes; NULL: not needed yet */
    ag_cl_loading *loading;     /* owned; NULL until a weight is prepared */
    uint32_t n_threads;         /* host threads for loading; 0: the usable cores */
    ag_cl_steps *steps;         /* owned; NULL until a token is decoded */
    ag_cl_kv_tables *kv_tables; /* owned; NULL until a kernel uses a cache */
    ag_cl_times *times;         /* owned; NULL: launches are not timed */
    atomic_uint released;       /* number of released memory objects */
    atomic_uint lost;           /* ag_cl_buffer.named_by of freed buffers; set by any thread */
    ag_cl_switches switches;
    ag_cl_vendor vendor;
    ag_cl_sizes sizes;
    bool is_gpu;       /* kernels for GPUs; false: those for processors with vector registers */
    bool int_dot;      /* products of few rows round activations to 8 bits */
    bool whole_tokens; /* one launch for each token, for shapes that have run: token.c */
    struct {
        uint32_t launched, uploaded; /* tokens in one launch; uploads of stages */
        uint32_t tables;             /* uploads of block tables */
    } counts;                        /* for tests */
    bool token_refused;              /* a launch failed on this device: use single operations */
    bool mma;                        /* products and attention of many rows on tensor cores */
    bool mma_checked;                /* ag_cl_mma_check() has run */
    size_t mma_local;                /* local memory for a work-group of them, bytes */
    bool by_address;                 /* kernels get addresses: cl_memory.c */
    bool zero_copy;                  /* buffers are in memory that host and device share */
    bool gpu_attention;              /* false: attention is composed on the host */
    char description[512];
};

ag_status ag_cl_backend_create(const ag_backend_params *params, ag_backend **out, ag_error *err);
/* Implements ag_backend_devices(). */
ag_status ag_cl_backend_devices(ag_device_info *out, size_t cap, size_t *n, ag_error *err);

/* Returns the backend; `base` is its first member. */
static inline ag_cl_backend *ag_cl_of(ag_backend *b) { return (ag_cl_backend *)(void *)b; }

/* Fails with "doing: CL_OUT_OF_RESOURCES (-5) on NAME OF DEVICE". `doing` is a format. */
ag_status ag_cl_fail(const ag_cl_backend *cl, ag_error *err, cl_int code, const char *doing, ...)
    __attribute__((format(printf, 4, 5)));

/* Releases a memory object. A later object may get the same handle, so all memory arguments of
 * kernels become unknown. With addresses waits for the queue; the next command reports an error of
 * an earlier kernel. Any thread may call it. */
void ag_cl_release_mem(ag_cl_backend *cl, cl_mem mem);

/* Creates device memory. what: "of scratch", for the message. *out is NULL after a failure. */
ag_status ag_cl_new_mem(ag_cl_backend *cl, cl_mem_flags flags, size_t bytes, const char *what,
                        cl_mem *out, ag_error *err);
/* Enqueues writing n zeros. offset and n are multiples of 16. */
ag_status ag_cl_clear(ag_cl_backend *cl, cl_mem mem, size_t offset, size_t n, ag_error *err);
/* Waits for the queue and reads n bytes. */
ag_status ag_cl_read(ag_cl_backend *cl, cl_mem mem, size_t offset, size_t n, void *out,
                     ag_error *err);

/* Waits for the queue. Errors of earlier kernels may be reported here. */
ag_status ag_cl_finish(ag_cl_backend *cl, ag_error *err);

/* ---- addresses (cl_memory.c) ---- */

/* Writes the device address of a buffer. Waits for the queue if it is not known yet. */
ag_status ag_cl_buffer_address(ag_cl_backend *cl, ag_buffer *buf, uint64_t *out);
/* The same for memory of the backend, which ag_cl_release_part() releases. */
ag_status ag_cl_part_address(ag_cl_backend *cl, cl_mem mem, uint64_t *out);
void ag_cl_release_part(ag_cl_backend *cl, cl_mem mem);

/* ---- kernels (kernel_table.c), launches (launch.c) and the queue (queue.c) ---- */

/* Returns the kernel `name` of kernels/`file`, both literals, built with `options` ("-DROWS=4
 * -DBLOCK=32"; NULL: none) on first use. Borrowed from the backend. Fails with AG_DEVICE for a file
 * that does not compile, with file, device and the first lines of the log. */
ag_status ag_cl_kernel(ag_cl_backend *cl, const char *file, const char *name, const char *options,
                       cl_kernel *out, ag_cl_known_arg **args);

/* A launch in preparation. ag_cl_enqueue() reports the first argument that could not be set. */
typedef struct ag_cl_launch {
    ag_cl_backend *cl;
    cl_kernel kernel;
    ag_cl_known_arg *known; /* borrowed; arguments that the kernel already has */
    const char *file, *name;
    cl_uint n_args;
    cl_int code;         /* error of the first argument that failed */
    cl_uint refused_arg; /* index of that argument */
    ag_status staged;    /* status of staging; the message is in the backend */
} ag_cl_launch;

void ag_cl_programs_close(ag_cl_backend *cl);

ag_status ag_cl_begin(ag_cl_launch *l, ag_cl_backend *cl, const char *file, const char *name,
                      const char *options);

/* Set the next arguments of the kernel. */
void ag_cl_arg_local(ag_cl_launch *l, size_t bytes); /* local memory */
void ag_cl_arg_u32(ag_cl_launch *l, uint32_t v);     /* uint */
void ag_cl_arg_u64(ag_cl_launch *l, uint64_t v);     /* ulong */
void ag_cl_arg_f32(ag_cl_launch *l, float v);        /* float */
void ag_cl_arg_mem(ag_cl_launch *l, cl_mem mem);     /* global T * */
/* Sets a global T * to the start of the buffer. NULL: a null pointer, which costs a launch less
 * than another buffer. Rejects buffers of other memories. */
void ag_cl_arg_buffer(ag_cl_launch *l, ag_buffer *buf);
/* Sets two arguments whose sum is the place in the buffer: global uchar *, its start, and ulong,
 * the offset in bytes; or null and an address. buf NULL: null and the offset. */
void ag_cl_arg_at(ag_cl_launch *l, ag_buffer *buf, uint64_t offset);
/* The same for a tensor. t NULL: null and 0. */
void ag_cl_arg_tensor(ag_cl_launch *l, const ag_tensor *t);
/* Set several arguments of these kinds: tensors, uint from size_t. */
#define AG_CL_ARG_TENSORS(l, ...)                                   \
    ag_cl_arg_tensors((l), (const ag_tensor *const[]){__VA_ARGS__}, \
                      sizeof((const ag_tensor *[]){__VA_ARGS__}) / sizeof(ag_tensor *))
#define AG_CL_ARG_U32S(l, ...)                         \
    ag_cl_arg_u32s((l), (const size_t[]){__VA_ARGS__}, \
                   sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))
void ag_cl_arg_tensors(ag_cl_launch *l, const ag_tensor *const t[], size_t n);
void ag_cl_arg_u32s(ag_cl_launch *l, const size_t v[], size_t n);
/* Stages n bytes of host memory now and sets the same two arguments to the copy. */
void ag_cl_arg_staged(ag_cl_launch *l, const void *data, size_t n);

/* Enqueues the launch. global and local have `dims` sizes; global are multiples of local.
 * Errors name kernel, sizes, device and code. */
ag_status ag_cl_enqueue(ag_cl_launch *l, cl_uint dims, const size_t *global, const size_t *local);

/* ---- times of launches (launch_times.c) ---- */

ag_status ag_cl_times_open(ag_cl_backend *cl, ag_error *err);
void ag_cl_times_close(ag_cl_backend *cl);
/* Records a launch, and owns its event from now on, also after a failure. */
ag_status ag_cl_times_add(ag_cl_backend *cl, const char *name, cl_uint dims, const size_t *global,
                          const size_t *local, cl_event event);
/* Implements ag_backend_launches(). */
ag_status ag_cl_launches(ag_backend *b, ag_launch_info *out, size_t cap, size_t *n);

/* Writes the largest work-group that the device allows for this kernel. */
ag_status ag_cl_max_group(ag_cl_backend *cl, cl_kernel kernel, size_t *out);

/* ---- staging ---- */

ag_status ag_cl_staging_open(ag_cl_backend *cl, ag_error *err);
void ag_cl_staging_close(ag_cl_backend *cl);
/* Stages n bytes: copies them to the ring's device buffer *mem at *offset, a multiple of 64. Valid
 * for launches that are enqueued before half of the ring is staged again. Waits only if the device
 * is a whole ring behind. Reuses an equal array that was staged shortly before. */
ag_status ag_cl_stage(ag_cl_backend *cl, const void *data, size_t n, cl_mem *mem, size_t *offset,
                      ag_error *err);
/* Writes the address of n bytes of the ring to *host. The caller writes them, and parts of them are
 * copied by ag_cl_stage_send() before the ring is used again. */
ag_status ag_cl_stage_reserve(ag_cl_backend *cl, size_t n, unsigned char **host, ag_error *err);
ag_status ag_cl_stage_send(ag_cl_backend *cl, cl_mem dst, size_t dst_offset,
                           const unsigned char *host, size_t n, ag_error *err);
/* Enqueues a copy of n bytes to dst through the ring. The caller may reuse data when this returns.
 */
ag_status ag_cl_stage_into(ag_cl_backend *cl, cl_mem dst, size_t dst_offset, const void *data,
                           size_t n, ag_error *err);

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
    uint64_t address;     /* device address; 0: not known yet (cl_memory.c) */
    void *mapped;         /* host address while mapped, else NULL */
    uint32_t named_by;    /* bits of the entries of steps.h that this buffer identifies */
} ag_cl_buffer;

ag_status ag_cl_memory_create(ag_cl_backend *cl, ag_cl_memory **out, ag_error *err);
void ag_cl_memory_destroy(ag_cl_memory *m);
ag_status ag_cl_buffer_create(ag_cl_memory *m, size_t bytes, ag_buffer **out, ag_error *err);

/* Returns the buffer, NULL if it is not in this backend's device memory. */
ag_cl_buffer *ag_cl_buffer_of(const ag_cl_backend *cl, ag_buffer *buf);

/* Implements copy_bytes: device to device on the queue, host to device, device to host. */
ag_status ag_cl_copy_bytes(ag_backend *b, ag_buffer *dst, size_t dst_offset, ag_buffer *src,
                           size_t src_offset, size_t n);

#endif
