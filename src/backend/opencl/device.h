/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL devices: lists them, queries their properties and chooses one. */
#ifndef AG_OPENCL_DEVICE_H
#define AG_OPENCL_DEVICE_H

#include "backend/opencl/cl_api.h"

#include <antigravity/backend.h>
#include <stdbool.h>
#include <stdint.h>

/* Extensions that kernels can use, as bits. */
typedef enum ag_cl_extension {
    AG_CL_FP16 = 1,        /* cl_khr_fp16 */
    AG_CL_SUBGROUPS = 2,   /* cl_khr_subgroups */
    AG_CL_DOT = 4,         /* cl_khr_integer_dot_product */
    AG_CL_ARM_DOT_SUM = 8, /* cl_arm_integer_dot_product_accumulate_int8 */
    AG_CL_ARM_DOT = 16,    /* cl_arm_integer_dot_product_int8 */
} ag_cl_extension;

typedef struct ag_cl_device {
    cl_platform_id platform;
    cl_device_id id;
    cl_device_type type;
    char name[128], vendor[64], driver[64], version[96], platform_name[64];
    bool is_cpu, is_gpu, is_nvidia, is_pocl;
    unsigned extensions; /* listed extensions, bits of ag_cl_extension */
    uint32_t compute_units;
    size_t max_group; /* maximum work-items of a work-group */
    size_t max_item_sizes[3];
    uint64_t local_bytes;  /* local memory of a work-group */
    uint64_t global_bytes; /* memory of the device */
    uint64_t max_alloc;    /* largest buffer that the device guarantees */
} ag_cl_device;

/* Returns "gpu", "cpu", "accelerator" or "other". */
const char *ag_cl_device_kind(const ag_cl_device *d);

/* Returns the bits of the known extensions in a list separated by spaces. */
unsigned ag_cl_extensions_in(const char *list);
/* Writes the names ("cl_khr_fp16 cl_khr_subgroups") to out, truncated to cap bytes. */
void ag_cl_extension_names(unsigned extensions, char *out, size_t cap);

enum { AG_CL_DEVICES_MAX = 32 };

/* Lists the devices of all platforms in the order of the drivers, at most AG_CL_DEVICES_MAX. Skips
 * drivers without devices. Fails with AG_NOT_FOUND if there is no device, with the first driver's
 * reason. */
ag_status ag_cl_devices(const ag_cl_api *api, ag_cl_device *out, size_t *n, ag_error *err);

/* Chooses a device. `wanted` is an index in that order or part of a device's name, ignoring case.
 * NULL or "" selects the first GPU, else the first accelerator, else the first device. Fails with
 * AG_NOT_FOUND and lists the devices. */
ag_status ag_cl_device_choose(const ag_cl_api *api, const char *wanted, ag_cl_device *out,
                              ag_error *err);

#endif
