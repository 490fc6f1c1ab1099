/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL at run time: loads the functions of libOpenCL and names its error codes. */
#ifndef AG_OPENCL_CL_API_H
#define AG_OPENCL_CL_API_H

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS

#include <CL/cl.h>
#include <antigravity/status.h>
#include <stddef.h>

/* Functions of OpenCL 1.2 that the backend uses. */
#define AG_CL_FUNCTIONS(X)       \
    X(clGetPlatformIDs)          \
    X(clGetPlatformInfo)         \
    X(clGetDeviceIDs)            \
    X(clGetDeviceInfo)           \
    X(clCreateContext)           \
    X(clReleaseContext)          \
    X(clCreateCommandQueue)      \
    X(clReleaseCommandQueue)     \
    X(clCreateProgramWithSource) \
    X(clCreateProgramWithBinary) \
    X(clBuildProgram)            \
    X(clGetProgramInfo)          \
    X(clGetProgramBuildInfo)     \
    X(clReleaseProgram)          \
    X(clCreateKernel)            \
    X(clGetKernelWorkGroupInfo)  \
    X(clSetKernelArg)            \
    X(clReleaseKernel)           \
    X(clCreateBuffer)            \
    X(clReleaseMemObject)        \
    X(clEnqueueNDRangeKernel)    \
    X(clEnqueueReadBuffer)       \
    X(clEnqueueWriteBuffer)      \
    X(clEnqueueCopyBuffer)       \
    X(clEnqueueFillBuffer)       \
    X(clEnqueueMapBuffer)        \
    X(clEnqueueUnmapMemObject)   \
    X(clWaitForEvents)           \
    X(clReleaseEvent)            \
    X(clGetEventProfilingInfo)   \
    X(clFlush)                   \
    X(clFinish)

typedef struct ag_cl_api {
    void *library;
#define AG_CL_POINTER(name) __typeof__(name) *name;
    AG_CL_FUNCTIONS(AG_CL_POINTER)
#undef AG_CL_POINTER
} ag_cl_api;

/* Loads $AG_OPENCL_LIBRARY if it is set, else libOpenCL.so.1 or libOpenCL.so. Fails with
 * AG_NOT_FOUND if there is none, and with AG_DEVICE if it lacks a function. The library is never
 * unloaded, because drivers do not support that. */
ag_status ag_cl_api_load(ag_cl_api *api, ag_error *err);
void ag_cl_api_close(ag_cl_api *api);

/* Returns the name of a code, "an unknown code" for codes of extensions. Never NULL. */
const char *ag_cl_error_name(cl_int code);
/* Returns AG_NOMEM for codes of memory that is exhausted or too much, else AG_DEVICE. */
ag_status ag_cl_status(cl_int code);

#endif
