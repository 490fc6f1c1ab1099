/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel sources, the programs built from them, and the cache of their binaries on disk. */
#ifndef AG_OPENCL_PROGRAM_H
#define AG_OPENCL_PROGRAM_H

#include "backend/opencl/cl_api.h"
#include "backend/opencl/device.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- sources ---- */

typedef struct ag_cl_source {
    const char *file; /* "rows.cl" */
    const unsigned char *text;
    size_t len;
} ag_cl_source;

/* The files of kernels/ as they were when this was built; made by cmake/EmbedKernels.cmake. */
extern const ag_cl_source ag_cl_sources[];
extern const size_t ag_cl_n_sources;

/* The text of a kernel file with `#include "other.cl"` lines replaced by that file, each file
 * once. From the folder, file by file, where it has them; else, and with NULL, the embedded text.
 * *text is owned by the caller (ag_free), terminated. */
ag_status ag_cl_source_load(const char *folder, const char *file, char **text, size_t *len,
                            ag_error *err);

/* ---- programs and kernels, built when first asked for ---- */

typedef struct ag_cl_program {
    uint64_t key; /* hash of file and options */
    char *file, *options;
    cl_program program;
} ag_cl_program;

/* An argument that a kernel object has. Setting one costs a driver more than comparing it, and most
 * are those of the same operation in the layer before. */
typedef struct ag_cl_known_arg {
    uint64_t value;
    uint32_t bytes;    /* 0: not known */
    uint32_t released; /* ag_cl_backend.released when it was set */
} ag_cl_known_arg;
enum { AG_CL_KNOWN_ARGS = 48 };

typedef struct ag_cl_kernel_entry {
    uint64_t key; /* hash of file, options and name; 0: empty */
    char *name;
    size_t program; /* index */
    cl_kernel kernel;
    ag_cl_known_arg *args; /* owned; [AG_CL_KNOWN_ARGS] */
} ag_cl_kernel_entry;

typedef struct ag_cl_programs {
    ag_cl_program *programs; /* owned */
    size_t n_programs, cap_programs;
    ag_cl_kernel_entry *kernels; /* owned; open hash table */
    size_t n_kernels, cap_kernels;
    uint32_t n_compiled, n_from_cache;
} ag_cl_programs;

/* ---- the cache on disk (program_cache.c) ---- */

/* What a binary depends on. */
typedef struct ag_cl_cache_key {
    uint64_t a, b;
} ag_cl_cache_key;

ag_cl_cache_key ag_cl_cache_key_of(const ag_cl_device *device, const char *source, size_t len,
                                   const char *options);
/* The binary, owned by the caller; NULL if there is none, or it is another's, cut off or changed.
 */
unsigned char *ag_cl_cache_read(const char *dir, ag_cl_cache_key key, size_t *len);
/* Under a temporary name, then renamed. A cache that cannot be written is no error: false. */
bool ag_cl_cache_write(const char *dir, ag_cl_cache_key key, const unsigned char *binary,
                       size_t len);

#endif
