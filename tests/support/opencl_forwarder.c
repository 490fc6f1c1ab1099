/* SPDX-License-Identifier: Apache-2.0 */
#include "support/opencl_forwarder.h"

#include "backend/opencl/cl_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT forwarder_controls *forwarder_controls_get(void);

static forwarder_controls controls;

static struct {
#define REAL(name) __typeof__(name) *name;
    AG_CL_FUNCTIONS(REAL)
#undef REAL
} real;

forwarder_controls *forwarder_controls_get(void) { return &controls; }

static size_t number(const char *variable) {
    const char *value = getenv(variable);
    return value ? (size_t)strtoull(value, NULL, 10) : 0;
}

__attribute__((constructor)) static void find_the_real_one(void) {
    controls.fail_at = number("AG_FORWARDER_FAIL_AT");
    controls.max_group = number("AG_FORWARDER_MAX_GROUP");
    controls.local_bytes = number("AG_FORWARDER_LOCAL");
    controls.max_alloc = number("AG_FORWARDER_MAX_ALLOC");
    controls.memory_bytes = number("AG_FORWARDER_MEMORY");
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
#define FIND(name)                                \
    {                                             \
        void *p = dlsym(library, #name);          \
        memcpy(&real.name, &p, sizeof real.name); \
    }
    AG_CL_FUNCTIONS(FIND)
#undef FIND
}

/* No loader here: nothing works, with the code that a loader without drivers gives. */
static cl_int fails(const char *name) {
    enum { NO_PLATFORM = -1001 };
    if (!real.clGetPlatformIDs) return NO_PLATFORM;
    if (++controls.n_calls != controls.fail_at) return CL_SUCCESS;
    controls.failed = name;
    return CL_OUT_OF_RESOURCES;
}

/* A function that returns its code. */
#define CODE(name, params, ...)                                    \
    EXPORT CL_API_ENTRY cl_int CL_API_CALL name params {           \
        cl_int code = fails(#name);                                \
        return code == CL_SUCCESS ? real.name(__VA_ARGS__) : code; \
    }

/* A function that returns an object, and its code through the last parameter. */
#define OBJECT(type, name, params, ...)                \
    EXPORT CL_API_ENTRY type CL_API_CALL name params { \
        cl_int code_here = fails(#name);               \
        if (code_here == CL_SUCCESS) {                 \
            type object = real.name(__VA_ARGS__);      \
            controls.n_live += object != NULL;         \
            return object;                             \
        }                                              \
        if (code) *code = code_here;                   \
        return NULL;                                   \
    }

#define RELEASE(name, type)                                    \
    EXPORT CL_API_ENTRY cl_int CL_API_CALL name(type object) { \
        controls.n_live--;                                     \
        return real.name(object);                              \
    }

CODE(clGetPlatformIDs, (cl_uint n, cl_platform_id *out, cl_uint *found), n, out, found)
CODE(clGetPlatformInfo,
     (cl_platform_id id, cl_platform_info what, size_t n, void *out, size_t *size), id, what, n,
     out, size)
CODE(clGetDeviceIDs,
     (cl_platform_id id, cl_device_type type, cl_uint n, cl_device_id *out, cl_uint *found), id,
     type, n, out, found)
OBJECT(cl_context, clCreateContext,
       (const cl_context_properties *p, cl_uint n, const cl_device_id *ids,
        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
        cl_int *code),
       p, n, ids, notify, user, code)
OBJECT(cl_command_queue, clCreateCommandQueue,
       (cl_context c, cl_device_id id, cl_command_queue_properties p, cl_int *code), c, id, p, code)
OBJECT(cl_program, clCreateProgramWithSource,
       (cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *code), c, n,
       texts, lengths, code)
OBJECT(cl_program, clCreateProgramWithBinary,
       (cl_context c, cl_uint n, const cl_device_id *ids, const size_t *lengths,
        const unsigned char **binaries, cl_int *each, cl_int *code),
       c, n, ids, lengths, binaries, each, code)
CODE(clBuildProgram,
     (cl_program p, cl_uint n, const cl_device_id *ids, const char *options,
      void(CL_CALLBACK *notify)(cl_program, void *), void *user),
     p, n, ids, options, notify, user)
CODE(clGetProgramInfo, (cl_program p, cl_program_info what, size_t n, void *out, size_t *size), p,
     what, n, out, size)
CODE(clGetProgramBuildInfo,
     (cl_program p, cl_device_id id, cl_program_build_info what, size_t n, void *out, size_t *size),
     p, id, what, n, out, size)
OBJECT(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *code), p, name, code)
CODE(clGetKernelWorkGroupInfo,
     (cl_kernel k, cl_device_id id, cl_kernel_work_group_info what, size_t n, void *out,
      size_t *size),
     k, id, what, n, out, size)
CODE(clWaitForEvents, (cl_uint n, const cl_event *events), n, events)
CODE(clGetEventProfilingInfo,
     (cl_event event, cl_profiling_info what, size_t n, void *out, size_t *written), event, what, n,
     out, written)
CODE(clFlush, (cl_command_queue q), q)

RELEASE(clReleaseContext, cl_context)
RELEASE(clReleaseCommandQueue, cl_command_queue)
RELEASE(clReleaseProgram, cl_program)
RELEASE(clReleaseKernel, cl_kernel)
RELEASE(clReleaseMemObject, cl_mem)

EXPORT CL_API_ENTRY cl_int CL_API_CALL clReleaseEvent(cl_event event) {
    return real.clReleaseEvent(event);
}

/* ---- a smaller device ---- */

static size_t limit_of(cl_device_info what) {
    if (what == CL_DEVICE_MAX_WORK_GROUP_SIZE) return controls.max_group;
    if (what == CL_DEVICE_LOCAL_MEM_SIZE) return controls.local_bytes;
    if (what == CL_DEVICE_GLOBAL_MEM_SIZE) return controls.memory_bytes;
    if (what == 0x105c) return controls.sub_groups; /* CL_DEVICE_MAX_NUM_SUB_GROUPS */
    return what == CL_DEVICE_MAX_MEM_ALLOC_SIZE ? controls.max_alloc : 0;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clGetDeviceInfo(cl_device_id id, cl_device_info what,
                                                       size_t n, void *out, size_t *size) {
    cl_int code = fails("clGetDeviceInfo");
    if (code == CL_SUCCESS) code = real.clGetDeviceInfo(id, what, n, out, size);
    const size_t limit = limit_of(what);
    if (code != CL_SUCCESS || !limit || !out) return code;
    const cl_ulong wide = limit;
    memcpy(out, n == sizeof limit ? (const void *)&limit : (const void *)&wide, n);
    return code;
}

/* Fails a launch as a device with such limits would. */
static cl_int check_launch(cl_kernel k, cl_uint dims, const size_t *local) {
    size_t items = 1;
    for (cl_uint i = 0; local && i < dims; i++) items *= local[i];
    if (controls.max_group && items > controls.max_group) return CL_INVALID_WORK_GROUP_SIZE;
    cl_ulong bytes = 0;
    if (!controls.local_bytes) return CL_SUCCESS;
    (void)real.clGetKernelWorkGroupInfo(k, NULL, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes,
                                        NULL);
    return bytes > controls.local_bytes ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

/* ---- counters ---- */

EXPORT CL_API_ENTRY cl_int CL_API_CALL clFinish(cl_command_queue q) {
    controls.n_finishes++;
    cl_int code = fails("clFinish");
    return code == CL_SUCCESS ? real.clFinish(q) : code;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clSetKernelArg(cl_kernel k, cl_uint i, size_t n,
                                                      const void *value) {
    controls.n_arguments++;
    cl_int code = fails("clSetKernelArg");
    return code == CL_SUCCESS ? real.clSetKernelArg(k, i, n, value) : code;
}

EXPORT CL_API_ENTRY cl_mem CL_API_CALL clCreateBuffer(cl_context c, cl_mem_flags flags, size_t n,
                                                      void *host, cl_int *code) {
    controls.n_buffers++;
    cl_int code_here = fails("clCreateBuffer");
    if (controls.max_alloc && n > controls.max_alloc) {
        if (code) *code = CL_INVALID_BUFFER_SIZE;
        return NULL;
    }
    if (code_here == CL_SUCCESS) {
        cl_mem mem = real.clCreateBuffer(c, flags, n, host, code);
        controls.n_live += mem != NULL;
        return mem;
    }
    if (code) *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(
    cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset, const size_t *global,
    const size_t *local, cl_uint n, const cl_event *events, cl_event *event) {
    controls.n_launches++;
    cl_int code = fails("clEnqueueNDRangeKernel");
    if (code == CL_SUCCESS) code = check_launch(k, dims, local);
    if (code != CL_SUCCESS) return code;
    return real.clEnqueueNDRangeKernel(q, k, dims, offset, global, local, n, events, event);
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue q, cl_mem mem,
                                                           cl_bool wait, size_t at, size_t n,
                                                           void *out, cl_uint n_events,
                                                           const cl_event *events,
                                                           cl_event *event) {
    controls.n_reads++;
    controls.read_bytes += n;
    cl_int code = fails("clEnqueueReadBuffer");
    if (code != CL_SUCCESS) return code;
    return real.clEnqueueReadBuffer(q, mem, wait, at, n, out, n_events, events, event);
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue q, cl_mem mem,
                                                            cl_bool wait, size_t at, size_t n,
                                                            const void *from, cl_uint n_events,
                                                            const cl_event *events,
                                                            cl_event *event) {
    controls.n_writes++;
    controls.written_bytes += n;
    cl_int code = fails("clEnqueueWriteBuffer");
    if (code != CL_SUCCESS) return code;
    return real.clEnqueueWriteBuffer(q, mem, wait, at, n, from, n_events, events, event);
}

CODE(clEnqueueCopyBuffer,
     (cl_command_queue q, cl_mem src, cl_mem dst, size_t from, size_t to, size_t n,
      cl_uint n_events, const cl_event *events, cl_event *event),
     q, src, dst, from, to, n, n_events, events, event)
CODE(clEnqueueFillBuffer,
     (cl_command_queue q, cl_mem mem, const void *pattern, size_t pattern_bytes, size_t at,
      size_t n, cl_uint n_events, const cl_event *events, cl_event *event),
     q, mem, pattern, pattern_bytes, at, n, n_events, events, event)
EXPORT CL_API_ENTRY void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue q, cl_mem mem,
                                                         cl_bool wait, cl_map_flags flags,
                                                         size_t at, size_t n, cl_uint n_events,
                                                         const cl_event *events, cl_event *event,
                                                         cl_int *code) {
    cl_int code_here = fails("clEnqueueMapBuffer");
    if (code_here == CL_SUCCESS) {
        return real.clEnqueueMapBuffer(q, mem, wait, flags, at, n, n_events, events, event, code);
    }
    if (code) *code = code_here;
    return NULL;
}
CODE(clEnqueueUnmapMemObject,
     (cl_command_queue q, cl_mem mem, void *p, cl_uint n_events, const cl_event *events,
      cl_event *event),
     q, mem, p, n_events, events, event)
