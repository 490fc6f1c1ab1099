/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/cl_api.h"
#include "backend/opencl/switches.h"

#include "core/fail.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

static const char *const library_names[] = {"libOpenCL.so.1", "libOpenCL.so"};

static ag_status open_library(ag_cl_api *api, ag_error *err) {
    const char *asked = ag_cl_library_asked();
    const int mode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    if (asked) {
        api->library = dlopen(asked, mode);
        if (api->library) return AG_OK;
        return AG_FAIL(err, NOT_FOUND, "AG_OPENCL_LIBRARY: %s", dlerror());
    }
    api->library = dlopen(library_names[0], mode);
    if (!api->library) api->library = dlopen(library_names[1], mode);
    if (api->library) return AG_OK;
    return AG_FAIL(err, NOT_FOUND, "OpenCL: neither %s nor %s is on this system", library_names[0],
                   library_names[1]);
}

ag_status ag_cl_api_load(ag_cl_api *api, ag_error *err) {
    *api = (ag_cl_api){0};
    AG_TRY(open_library(api, err));
    const char *missing = NULL;
    /* Copies the address byte by byte: C does not convert void pointers to function pointers. */
#define AG_CL_FIND(name)                          \
    {                                             \
        void *p = dlsym(api->library, #name);     \
        memcpy(&api->name, &p, sizeof api->name); \
        if (!p && !missing) missing = #name;      \
    }
    AG_CL_FUNCTIONS(AG_CL_FIND)
#undef AG_CL_FIND
    if (!missing) return AG_OK;
    ag_cl_api_close(api);
    return AG_FAIL(err, DEVICE, "OpenCL: the library has no %s; version 1.2 is needed", missing);
}

void ag_cl_api_close(ag_cl_api *api) {
    if (api->library) dlclose(api->library);
    *api = (ag_cl_api){0};
}

/* ---- error codes ---- */

#define CODE(name) \
    { name, #name }

static const struct {
    cl_int code;
    const char *name;
} codes[] = {
    CODE(CL_SUCCESS),
    CODE(CL_DEVICE_NOT_FOUND),
    CODE(CL_DEVICE_NOT_AVAILABLE),
    CODE(CL_COMPILER_NOT_AVAILABLE),
    CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    CODE(CL_OUT_OF_RESOURCES),
    CODE(CL_OUT_OF_HOST_MEMORY),
    CODE(CL_MEM_COPY_OVERLAP),
    CODE(CL_BUILD_PROGRAM_FAILURE),
    CODE(CL_MAP_FAILURE),
    CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    CODE(CL_INVALID_VALUE),
    CODE(CL_INVALID_PLATFORM),
    CODE(CL_INVALID_DEVICE),
    CODE(CL_INVALID_CONTEXT),
    CODE(CL_INVALID_QUEUE_PROPERTIES),
    CODE(CL_INVALID_COMMAND_QUEUE),
    CODE(CL_INVALID_HOST_PTR),
    CODE(CL_INVALID_MEM_OBJECT),
    CODE(CL_INVALID_BINARY),
    CODE(CL_INVALID_BUILD_OPTIONS),
    CODE(CL_INVALID_PROGRAM),
    CODE(CL_INVALID_PROGRAM_EXECUTABLE),
    CODE(CL_INVALID_KERNEL_NAME),
    CODE(CL_INVALID_KERNEL_DEFINITION),
    CODE(CL_INVALID_KERNEL),
    CODE(CL_INVALID_ARG_INDEX),
    CODE(CL_INVALID_ARG_VALUE),
    CODE(CL_INVALID_ARG_SIZE),
    CODE(CL_INVALID_KERNEL_ARGS),
    CODE(CL_INVALID_WORK_DIMENSION),
    CODE(CL_INVALID_WORK_GROUP_SIZE),
    CODE(CL_INVALID_WORK_ITEM_SIZE),
    CODE(CL_INVALID_GLOBAL_OFFSET),
    CODE(CL_INVALID_EVENT_WAIT_LIST),
    CODE(CL_INVALID_EVENT),
    CODE(CL_INVALID_OPERATION),
    CODE(CL_INVALID_BUFFER_SIZE),
    CODE(CL_INVALID_GLOBAL_WORK_SIZE),
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

const char *ag_cl_error_name(cl_int code) {
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i].code == code) return codes[i].name;
    }
    return "an unknown code";
}

ag_status ag_cl_status(cl_int code) {
    const bool is_memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
                           code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;
    return is_memory ? AG_NOMEM : AG_DEVICE;
}
