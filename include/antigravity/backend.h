/* SPDX-License-Identifier: Apache-2.0 */
/* What computes: the processor, or a device. One thread at a time uses a backend and everything
 * made on it (see antigravity.h); different backends are independent. Its operations on tensors:
 * operations.h. */
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
    uint32_t n_threads; /* 0: the usable cores (affinity and cpu quota considered) */
    ag_log_fn log;      /* may be NULL */
    void *log_user;
    /* "opencl" alone looks at the rest. */
    const char *device;  /* a number of ag_backend_devices(), or a part of a name there; NULL: the
                          * first GPU, or without one the first device */
    bool zero_copy;      /* buffers in memory that host and device share: for chips that have one */
    bool host_attention; /* attention is computed on the host */
    uint64_t reserved[4]; /* 0: what later versions ask for */
} ag_backend_params;

/* params may be NULL: all defaults. AG_NOT_FOUND lists the backends of this build. */
AG_API ag_status ag_backend_create(const ag_backend_params *params, ag_backend **out,
                                   ag_error *err);
/* After every buffer, model and session made with it is gone. NULL is fine. */
AG_API void ag_backend_destroy(ag_backend *b);

AG_API const char *ag_backend_name(const ag_backend *b); /* "cpu" */
/* One line for people: device, instruction sets chosen, threads. Borrowed from b. */
AG_API const char *ag_backend_describe(ag_backend *b);
AG_API uint32_t ag_backend_threads(const ag_backend *b);
AG_API ag_memory *ag_backend_memory(ag_backend *b); /* borrowed, lives as long as b */
AG_API const ag_error *ag_backend_error(const ag_backend *b);
/* The i-th backend this build knows, NULL past the end. */
AG_API const char *ag_backend_list(size_t i);

typedef struct ag_device_info {
    char name[128];
    char kind[16]; /* "gpu", "cpu", "accelerator" or "other" */
    char driver[192];
    uint64_t memory_bytes;
    uint32_t n_units;     /* compute units, as the driver counts them */
    char extensions[160]; /* of the driver, those that kernels can use; separated by blanks */
} ag_device_info;
/* The devices among which ag_backend_params.device chooses: the first `cap` into out, how many
 * there are into *n. AG_UNSUPPORTED for a backend that has none to choose from ("cpu"),
 * AG_NOT_FOUND where no driver gives a device, and why. */
AG_API ag_status ag_backend_devices(const char *name, ag_device_info *out, size_t cap, size_t *n,
                                    ag_error *err);

/* Bytes a second at which the device reads memory of its own, measured now, in some milliseconds: a
 * bound for decoding. 0 where the backend's memory is the host's. */
AG_API ag_status ag_backend_read_rate(ag_backend *be, double *bytes_per_s);

#ifdef __cplusplus
}
#endif
#endif
