/* SPDX-License-Identifier: Apache-2.0 */
/* Backends: the processor or a device that computes. One thread at a time may use a backend and
 * every object made on it (see antigravity.h). Different backends are independent. operations.h
 * declares the operations on tensors. */
#ifndef ANTIGRAVITY_BACKEND_H
#define ANTIGRAVITY_BACKEND_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ag_backend ag_backend;
typedef struct ag_memory ag_memory;

typedef struct ag_backend_params {
    const char *name;   /* one of ag_backend_list(); NULL: "cpu" */
    uint32_t n_threads; /* 0: the usable cores, limited by affinity and CPU quota */
    ag_log_fn log;      /* may be NULL */
    void *log_user;
    /* The remaining parameters apply to "opencl" only. */
    const char *device;  /* an index of ag_backend_devices() or part of a name; NULL: the first GPU,
                          * or the first device if there is no GPU */
    bool zero_copy;      /* allocate buffers in shared memory, for chips with unified memory */
    bool host_attention; /* compute attention on the host */
    bool time_launches;  /* measure each launch for ag_backend_launches(); costs host time */
    uint64_t reserved[4]; /* must be 0 */
} ag_backend_params;

/* Creates a backend. params may be NULL, which selects all defaults. Fails with AG_NOT_FOUND for an
 * unknown name; the message lists the backends of this build. */
AG_API ag_status ag_backend_create(const ag_backend_params *params, ag_backend **out,
                                   ag_error *err);
/* Destroys a backend. Every buffer, model and session made on it must be destroyed before. b may be
 * NULL. */
AG_API void ag_backend_destroy(ag_backend *b);

AG_API const char *ag_backend_name(const ag_backend *b); /* "cpu" */
/* Returns one line for people: device, chosen instruction sets, threads. Borrowed from b. */
AG_API const char *ag_backend_describe(ag_backend *b);
AG_API uint32_t ag_backend_threads(const ag_backend *b);
AG_API ag_memory *ag_backend_memory(ag_backend *b); /* borrowed from b */
/* Returns the error of the last operation that failed. Borrowed from b. */
AG_API const ag_error *ag_backend_error(const ag_backend *b);
/* Returns the name of the i-th backend of this build, NULL past the end. */
AG_API const char *ag_backend_list(size_t i);

typedef struct ag_device_info {
    char name[128];
    char kind[16]; /* "gpu", "cpu", "accelerator" or "other" */
    char driver[192];
    uint64_t memory_bytes;
    uint32_t n_units;     /* compute units, as the driver counts them */
    char extensions[160]; /* the driver's extensions that kernels can use, separated by spaces */
} ag_device_info;
/* Writes the first `cap` devices of the backend `name` to out, and their total number to *n.
 * ag_backend_params.device selects one of them. Fails with AG_UNSUPPORTED for a backend without
 * devices ("cpu"), and with AG_NOT_FOUND and the reason if no driver offers a device. */
AG_API ag_status ag_backend_devices(const char *name, ag_device_info *out, size_t cap, size_t *n,
                                    ag_error *err);

/* Measures the read bandwidth of the device's memory in bytes per second; takes a few milliseconds.
 * Bandwidth bounds the speed of decoding. Writes 0 if the backend uses the host's memory. */
AG_API ag_status ag_backend_read_rate(ag_backend *be, double *bytes_per_s);

/* Launches of a kernel with one grid. */
typedef struct ag_launch_info {
    char name[96];  /* kernel, work-groups, work-items of a group: "matmul_tile 16x2 of 256x1" */
    uint64_t n;     /* number of launches */
    double seconds; /* on the device, all launches together */
} ag_launch_info;
/* Waits for the device, then writes the first `cap` kinds of launches since the last call to out,
 * in the order of their first launch, and their total number to *n. Fails with AG_UNSUPPORTED
 * unless the backend was created with time_launches on a device. */
AG_API ag_status ag_backend_launches(ag_backend *be, ag_launch_info *out, size_t cap, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
