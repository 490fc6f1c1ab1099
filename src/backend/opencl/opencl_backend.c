/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"
#include "backend/opencl/steps.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <stdio.h>

static void cl_destroy(ag_backend *b) {
    ag_cl_backend *cl = ag_cl_of(b);
    if (cl->queue) (void)cl->api.clFinish(cl->queue);
    ag_cl_times_close(cl);
    ag_cl_steps_close(cl);
    ag_cl_kv_tables_close(cl);
    ag_cl_programs_close(cl);
    ag_cl_staging_close(cl);
    ag_cl_loading_close(cl);
    ag_cl_memory_destroy(cl->memory);
    if (cl->scratch.mem) ag_cl_release_mem(cl, cl->scratch.mem);
    if (cl->packed.mem) ag_cl_release_mem(cl, cl->packed.mem);
    if (cl->tile_counts.mem) ag_cl_release_mem(cl, cl->tile_counts.mem);
    if (cl->address_result) ag_cl_release_mem(cl, cl->address_result);
    if (cl->queue) (void)cl->api.clReleaseCommandQueue(cl->queue);
    if (cl->context) (void)cl->api.clReleaseContext(cl->context);
    ag_cl_api_close(&cl->api);
    ag_cl_switches_release(&cl->switches);
    ag_free(cl->joined.memory);
    ag_free(cl);
}

static ag_memory *cl_memory(ag_backend *b) { return &ag_cl_of(b)->memory->base; }

static const char *cl_describe(ag_backend *b) { return ag_cl_of(b)->description; }

static ag_status cl_sync(ag_backend *b) {
    ag_cl_backend *cl = ag_cl_of(b);
    ag_cl_steps_sweep(cl);
    return ag_cl_finish(cl, &b->err);
}

static const ag_backend_ops opencl_ops = {
    .name = "opencl",
    .destroy = cl_destroy,
    .memory = cl_memory,
    .describe = cl_describe,
    .matmul = ag_cl_matmul,
    .matmul_transposed = ag_cl_matmul_transposed,
    .rms_norm = ag_cl_rms_norm,
    .softmax = ag_cl_softmax,
    .rope = ag_cl_rope,
    .rope_pair = ag_cl_rope_pair,
    .silu_mul = ag_cl_silu_mul,
    .add_assign = ag_cl_add_assign,
    .scale = ag_cl_scale,
    .cast = ag_cl_cast,
    .sync = cl_sync,
    .copy_bytes = ag_cl_copy_bytes,
    .matmul_group = ag_cl_matmul_group,
    .prepare_weight = ag_cl_prepare_weight,
    .prepared_bytes = ag_cl_prepared_bytes,
    .add_rms_norm = ag_cl_add_rms_norm,
    .add_bias = ag_cl_add_bias,
    .gelu_mul = ag_cl_gelu_mul,
    .softcap = ag_cl_softcap,
    .mul = ag_cl_mul,
    .sigmoid_mul = ag_cl_sigmoid_mul,
    .causal_conv = ag_cl_causal_conv,
    .delta_rule = ag_cl_delta_rule,
    .gather = ag_cl_gather,
    .upload_rows = ag_cl_upload_rows,
    .kv_write = ag_cl_kv_write,
    .rope_kv_write = ag_cl_rope_kv_write,
    .attention = ag_cl_attention,
    .hadamard = ag_cl_hadamard,
    .top_k = ag_cl_top_k,
    .kv_compact = ag_cl_kv_compact,
    .read_rate = ag_cl_read_rate,
    .launches = ag_cl_launches,
    .run_program = ag_cl_run_program,
    .kv_rerotate = ag_cl_kv_rerotate,
    .keeps_scores = ag_cl_keeps_scores,
    .key_scores = ag_cl_key_scores,
};

/* ---- life ---- */

static void write_description(ag_cl_backend *cl) {
    const ag_cl_device *d = &cl->device;
    snprintf(cl->description, sizeof cl->description,
             "opencl: %s (%s), %u compute units, %llu MiB, %s%s%s%s", d->name, ag_cl_device_kind(d),
             (unsigned)d->compute_units, (unsigned long long)(d->global_bytes >> 20), d->driver,
             cl->zero_copy ? ", memory shared with the host" : "", cl->mma ? ", tensor cores" : "",
             cl->vendor.description);
}

/* Returns the compute capability times 10; 0 for other vendors' devices. */
static unsigned nvidia_capability(const ag_cl_backend *cl) {
    enum { MAJOR_NV = 0x4000, MINOR_NV = 0x4001 }; /* cl_nv_device_attribute_query */
    cl_uint major = 0, minor = 0;
    const ag_cl_api *api = &cl->api;
    if (!cl->device.is_nvidia) return 0;
    (void)api->clGetDeviceInfo(cl->device.id, MAJOR_NV, sizeof major, &major, NULL);
    (void)api->clGetDeviceInfo(cl->device.id, MINOR_NV, sizeof minor, &minor, NULL);
    return 10 * major + minor;
}

/* Chooses kernels by speed; all kinds are correct on every device. */
static void choose_kernels(ag_cl_backend *cl) {
    enum { HALF_OF_HOPPER = 112 << 10 };
    const unsigned capability = nvidia_capability(cl);
    const ag_cl_switches *sw = &cl->switches;
    cl->whole_tokens = capability >= 80 && cl->device.is_gpu; /* tensor cores with halves */
    cl->is_gpu = ag_cl_is_on(sw->lanes, !cl->device.is_cpu);
    cl->int_dot = ag_cl_is_on(sw->int_dot, capability >= 61 || cl->vendor.dot);
    cl->mma = ag_cl_is_on(sw->mma, capability >= 80);
    /* Half of a multiprocessor's where it has run, else what NVIDIA's driver reports, 48 KiB. */
    cl->mma_local = capability == 90 ? HALF_OF_HOPPER : (size_t)cl->device.local_bytes;
    cl->by_address = ag_cl_is_on(sw->addresses, capability >= 80) && !cl->zero_copy;
    cl->packed.order = AG_Q4_0;
    if (cl->vendor.subgroups) { /* one or several share a row of the weight */
        cl->sizes.matvec_lanes = 64;
        cl->sizes.matvec_teams = 1;
        cl->sizes.matvec_rows = 4;
    }
    if (sw->units) cl->device.compute_units = sw->units;
}

static ag_status init(ag_cl_backend *cl, const char *device, ag_error *err) {
    AG_TRY(ag_cl_switches_read(&cl->switches, err));
    AG_TRY(ag_cl_api_load(&cl->api, err));
    AG_TRY(ag_cl_device_choose(&cl->api, device, &cl->device, err));
    cl_int code;
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)cl->device.platform, 0};
    cl->context = cl->api.clCreateContext(properties, 1, &cl->device.id, NULL, NULL, &code);
    if (code != CL_SUCCESS) return ag_cl_fail(cl, err, code, "making a context");
    cl->queue = cl->api.clCreateCommandQueue(cl->context, cl->device.id,
                                             cl->times ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
    if (code != CL_SUCCESS) return ag_cl_fail(cl, err, code, "making a queue");
    AG_TRY(ag_cl_memory_create(cl, &cl->memory, err));
    AG_TRY(ag_cl_staging_open(cl, err));
    if (cl->device.is_pocl) ag_cl_switches_drop_default_cache(&cl->switches);
    AG_TRY(ag_cl_sizes_for(&cl->device, &cl->sizes, err));
    AG_TRY(ag_cl_vendor_choose(&cl->device, &cl->switches, &cl->vendor, err));
    choose_kernels(cl);
    write_description(cl);
    return ag_cl_vendor_check(cl, err);
}

ag_status ag_cl_backend_create(const ag_backend_params *params, ag_backend **out, ag_error *err) {
    *out = NULL;
    ag_cl_backend *cl = ag_calloc(1, sizeof *cl);
    if (!cl) return AG_FAIL(err, NOMEM, "OpenCL backend");
    cl->base.ops = &opencl_ops;
    cl->gpu_attention = !params || !params->host_attention;
    cl->zero_copy = params && params->zero_copy;
    cl->n_threads = params ? params->n_threads : 0;
    ag_status st = params && params->time_launches ? ag_cl_times_open(cl, err) : AG_OK;
    if (st == AG_OK) st = init(cl, params ? params->device : NULL, err);
    if (st != AG_OK) {
        cl_destroy(&cl->base);
        return st;
    }
    *out = &cl->base;
    return AG_OK;
}

ag_status ag_cl_backend_devices(ag_device_info *out, size_t cap, size_t *n, ag_error *err) {
    ag_cl_api api;
    ag_cl_device devices[AG_CL_DEVICES_MAX];
    AG_TRY(ag_cl_api_load(&api, err));
    ag_status st = ag_cl_devices(&api, devices, n, err);
    ag_cl_api_close(&api);
    for (size_t i = 0; i < *n && i < cap && st == AG_OK; i++) {
        const ag_cl_device *d = &devices[i];
        out[i] = (ag_device_info){.memory_bytes = d->global_bytes, .n_units = d->compute_units};
        snprintf(out[i].name, sizeof out[i].name, "%s", d->name);
        snprintf(out[i].kind, sizeof out[i].kind, "%s", ag_cl_device_kind(d));
        snprintf(out[i].driver, sizeof out[i].driver, "%s %s", d->platform_name, d->driver);
        ag_cl_extension_names(d->extensions, out[i].extensions, sizeof out[i].extensions);
    }
    return st;
}
