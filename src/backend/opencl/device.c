/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/device.h"

#include "core/ascii.h"
#include "core/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLATFORMS_MAX = 16, TEXT_MAX = 1 << 14 };

/* Queries a property. *out stays unchanged (zero) if the driver does not support it. */
static void get(const ag_cl_api *api, cl_device_id id, cl_device_info what, void *out, size_t n) {
    (void)api->clGetDeviceInfo(id, what, n, out, NULL);
}

static void get_text(const ag_cl_api *api, cl_device_id id, cl_device_info what, char *out,
                     size_t cap) {
    char text[TEXT_MAX];
    size_t n = 0;
    if (api->clGetDeviceInfo(id, what, sizeof text, text, &n) != CL_SUCCESS || n > sizeof text) {
        n = 0;
    }
    /* Some drivers pad names with spaces. */
    while (n && (text[n - 1] == '\0' || text[n - 1] == ' ')) n--;
    if (n >= cap) n = cap - 1;
    memcpy(out, text, n);
    out[n] = '\0';
}

/* ---- extensions ---- */

static const struct {
    const char *name;
    ag_cl_extension bit;
} extensions[] = {
    {"cl_khr_fp16", AG_CL_FP16},
    {"cl_khr_subgroups", AG_CL_SUBGROUPS},
    {"cl_khr_integer_dot_product", AG_CL_DOT},
    {"cl_arm_integer_dot_product_accumulate_int8", AG_CL_ARM_DOT_SUM},
    {"cl_arm_integer_dot_product_int8", AG_CL_ARM_DOT},
};
enum { N_EXTENSIONS = sizeof extensions / sizeof extensions[0] };

unsigned ag_cl_extensions_in(const char *list) {
    unsigned found = 0;
    for (size_t n; *list; list += n) {
        list += strspn(list, " ");
        n = strcspn(list, " ");
        for (size_t i = 0; i < N_EXTENSIONS; i++) {
            const char *name = extensions[i].name;
            if (strlen(name) == n && memcmp(list, name, n) == 0) found |= extensions[i].bit;
        }
    }
    return found;
}

void ag_cl_extension_names(unsigned wanted, char *out, size_t cap) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < N_EXTENSIONS; i++) {
        const size_t n = strlen(extensions[i].name), blank = used != 0;
        if (!(wanted & extensions[i].bit) || used + blank + n >= cap) continue;
        if (blank) out[used++] = ' ';
        memcpy(out + used, extensions[i].name, n + 1);
        used += n;
    }
}

static void query_device(const ag_cl_api *api, ag_cl_device *d) {
    char extensions_of[TEXT_MAX];
    get_text(api, d->id, CL_DEVICE_NAME, d->name, sizeof d->name);
    get_text(api, d->id, CL_DEVICE_VENDOR, d->vendor, sizeof d->vendor);
    get_text(api, d->id, CL_DRIVER_VERSION, d->driver, sizeof d->driver);
    get_text(api, d->id, CL_DEVICE_VERSION, d->version, sizeof d->version);
    get(api, d->id, CL_DEVICE_TYPE, &d->type, sizeof d->type);
    d->is_cpu = d->type & CL_DEVICE_TYPE_CPU;
    d->is_gpu = d->type & CL_DEVICE_TYPE_GPU;
    d->is_nvidia = strstr(d->vendor, "NVIDIA") != NULL;
    get(api, d->id, CL_DEVICE_MAX_COMPUTE_UNITS, &d->compute_units, sizeof d->compute_units);
    get(api, d->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, &d->max_group, sizeof d->max_group);
    get(api, d->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, d->max_item_sizes, sizeof d->max_item_sizes);
    get(api, d->id, CL_DEVICE_LOCAL_MEM_SIZE, &d->local_bytes, sizeof d->local_bytes);
    get(api, d->id, CL_DEVICE_GLOBAL_MEM_SIZE, &d->global_bytes, sizeof d->global_bytes);
    get(api, d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, &d->max_alloc, sizeof d->max_alloc);
    get_text(api, d->id, CL_DEVICE_EXTENSIONS, extensions_of, sizeof extensions_of);
    d->extensions = ag_cl_extensions_in(extensions_of);
    enum { MAX_NUM_SUB_GROUPS = 0x105c }; /* OpenCL 3.0 lists sub-groups as a feature only */
    cl_uint n_sub_groups = 0;
    get(api, d->id, MAX_NUM_SUB_GROUPS, &n_sub_groups, sizeof n_sub_groups);
    if (n_sub_groups) d->extensions |= AG_CL_SUBGROUPS;
}

const char *ag_cl_device_kind(const ag_cl_device *d) {
    if (d->is_gpu) return "gpu";
    if (d->is_cpu) return "cpu";
    return d->type & CL_DEVICE_TYPE_ACCELERATOR ? "accelerator" : "other";
}

static bool is_pocl(const char *platform) {
    return strstr(platform, "Portable Computing Language") != NULL;
}

/* Appends the devices of a platform. Fails with AG_NOT_FOUND and the driver's reason. */
static ag_status add_platform(const ag_cl_api *api, cl_platform_id platform, ag_cl_device *out,
                              size_t *n, ag_error *err) {
    cl_device_id ids[AG_CL_DEVICES_MAX];
    cl_uint found = 0;
    char name[sizeof out->platform_name] = "";
    (void)api->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL);
    name[sizeof name - 1] = '\0';
    cl_int code = api->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, AG_CL_DEVICES_MAX, ids, &found);
    if (code != CL_SUCCESS || !found) {
        /* PoCL runs on the processor, which always exists. */
        return AG_FAIL(err, NOT_FOUND, "OpenCL: the driver %s gives no device: %s (%d)%s", name,
                       ag_cl_error_name(code), code,
                       is_pocl(name)
                           ? "; it needs a directory that it can write to: $POCL_CACHE_DIR, else "
                             "~/.cache/pocl"
                           : "");
    }
    for (cl_uint i = 0; i < found && i < AG_CL_DEVICES_MAX && *n < AG_CL_DEVICES_MAX; i++) {
        ag_cl_device *d = &out[(*n)++];
        *d = (ag_cl_device){.platform = platform, .id = ids[i]};
        memcpy(d->platform_name, name, sizeof name);
        d->is_pocl = is_pocl(name);
        query_device(api, d);
    }
    return AG_OK;
}

ag_status ag_cl_devices(const ag_cl_api *api, ag_cl_device *out, size_t *n, ag_error *err) {
    enum { NO_PLATFORM = -1001 }; /* code of the ICD loader of most systems */
    *n = 0;
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint found = 0;
    cl_int code = api->clGetPlatformIDs(PLATFORMS_MAX, platforms, &found);
    if (code == NO_PLATFORM || (code == CL_SUCCESS && !found))
        return AG_FAIL(err, NOT_FOUND, "OpenCL: no driver is installed on this system");
    if (code != CL_SUCCESS) {
        return AG_FAIL(err, DEVICE, "OpenCL: listing the platforms: %s (%d)",
                       ag_cl_error_name(code), code);
    }
    ag_status st = AG_OK;
    for (cl_uint i = 0; i < found && i < PLATFORMS_MAX; i++) {
        ag_status one = add_platform(api, platforms[i], out, n, st == AG_OK ? err : NULL);
        if (st == AG_OK) st = one;
    }
    return *n ? AG_OK : st;
}

/* ---- choosing ---- */

static size_t best(const ag_cl_device *devices, size_t n) {
    static const cl_device_type types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR};
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < n; i++) {
            if (devices[i].type & types[t]) return i;
        }
    }
    return 0;
}

static bool contains(const char *text, const char *part) {
    size_t len = strlen(part);
    for (; *text; text++) {
        if (ag_ascii_equal_n(text, part, len)) return true;
    }
    return false;
}

static size_t find_device(const ag_cl_device *devices, size_t n, const char *wanted) {
    if (strspn(wanted, "0123456789") == strlen(wanted)) {
        unsigned long long i = strtoull(wanted, NULL, 10);
        return i < n ? (size_t)i : n;
    }
    size_t i = 0;
    while (i < n && !contains(devices[i].name, wanted)) i++;
    return i;
}

ag_status ag_cl_device_choose(const ag_cl_api *api, const char *wanted, ag_cl_device *out,
                              ag_error *err) {
    ag_cl_device devices[AG_CL_DEVICES_MAX];
    size_t n;
    AG_TRY(ag_cl_devices(api, devices, &n, err));
    size_t i = wanted && *wanted ? find_device(devices, n, wanted) : best(devices, n);
    if (i < n) {
        *out = devices[i];
        return AG_OK;
    }
    char names[256] = "";
    for (size_t d = 0, used = 0; d < n && used < sizeof names; d++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%zu: %s", d ? ", " : "", d,
                                 devices[d].name);
    }
    return AG_FAIL(err, NOT_FOUND, "OpenCL: no device '%.60s'; the devices are %s", wanted, names);
}
