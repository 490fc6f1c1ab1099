/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of programs and kernels, which are built on first use. */
#include "backend/opencl/opencl.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

/* ---- building ---- */

/* Reduces a build log to "12:5: error: ... ; ...", from its first error on. */
static void first_lines(char *log) {
    char *error = strstr(log, "error");
    if (!error) error = log;
    while (error > log && error[-1] != '\n') error--;
    memmove(log, error, strlen(error) + 1);
    size_t n = strlen(log);
    while (n && (log[n - 1] == '\n' || log[n - 1] == ' ')) log[--n] = '\0';
    for (; *log; log++) {
        if (*log == '\n') *log = ';';
    }
}

static ag_status report_build(ag_cl_backend *cl, cl_program program, cl_int code,
                              const char *file) {
    size_t n = 0;
    const ag_cl_api *api = &cl->api;
    const cl_device_id id = cl->device.id;
    char *log = NULL;
    if (api->clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) == CL_SUCCESS)
        log = ag_calloc(n + 1, 1);
    if (log) {
        (void)api->clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
        first_lines(log);
    }
    ag_status st =
        AG_FAIL(&cl->base.err, DEVICE, "kernel file %s does not compile for %s: %s (%d): %.300s",
                file, cl->device.name, ag_cl_error_name(code), code, log ? log : "no log");
    ag_free(log);
    return st;
}

/* Builds a program from a binary. Returns NULL if the driver rejects it for any reason. */
static cl_program build_binary(ag_cl_backend *cl, const unsigned char *binary, size_t len,
                               const char *options) {
    cl_int code, each = CL_SUCCESS;
    cl_program p = cl->api.clCreateProgramWithBinary(cl->context, 1, &cl->device.id, &len, &binary,
                                                     &each, &code);
    if (code != CL_SUCCESS || !p) return NULL;
    if (each == CL_SUCCESS) {
        code = cl->api.clBuildProgram(p, 1, &cl->device.id, options, NULL, NULL);
        if (code == CL_SUCCESS) return p;
    }
    (void)cl->api.clReleaseProgram(p);
    return NULL;
}

static ag_status build_source(ag_cl_backend *cl, const char *file, const char *text, size_t len,
                              const char *options, cl_program *out) {
    cl_int code;
    cl_program p = cl->api.clCreateProgramWithSource(cl->context, 1, &text, &len, &code);
    if (code != CL_SUCCESS) return ag_cl_fail(cl, &cl->base.err, code, "kernel file %s", file);
    code = cl->api.clBuildProgram(p, 1, &cl->device.id, options, NULL, NULL);
    if (code == CL_SUCCESS) {
        *out = p;
        return AG_OK;
    }
    ag_status st = report_build(cl, p, code, file);
    (void)cl->api.clReleaseProgram(p);
    return st;
}

static void store_binary(ag_cl_backend *cl, cl_program program, ag_cl_cache_key key) {
    size_t len = 0;
    if (cl->api.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof len, &len, NULL) !=
            CL_SUCCESS ||
        len == 0) {
        return;
    }
    unsigned char *binary = ag_malloc(len);
    if (binary && cl->api.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary,
                                           NULL) == CL_SUCCESS) {
        (void)ag_cl_cache_write(cl->switches.cache, key, binary, len);
    }
    ag_free(binary);
}

static ag_status build(ag_cl_backend *cl, const char *file, const char *options, cl_program *out) {
    char all[1024];
    const char *language = strstr(options, "-cl-std=") ? "" : "-cl-std=CL1.2 ";
    const char *processor = cl->device.is_cpu ? "-DPROCESSOR=1 " : "";
    int n = snprintf(all, sizeof all, "%s%s%s", language, processor, options);
    if (n < 0 || (size_t)n >= sizeof all) {
        return AG_FAIL(&cl->base.err, LIMIT, "kernel file %s: options of %zu bytes", file,
                       strlen(options));
    }
    char *text;
    size_t len, n_binary;
    AG_TRY(ag_cl_source_load(cl->switches.kernels, file, &text, &len, &cl->base.err));
    ag_cl_programs *ps = &cl->programs;
    ag_cl_cache_key key = ag_cl_cache_key_of(&cl->device, text, len, all);
    unsigned char *binary =
        cl->switches.cache ? ag_cl_cache_read(cl->switches.cache, key, &n_binary) : NULL;
    *out = binary ? build_binary(cl, binary, n_binary, all) : NULL;
    ag_free(binary);
    ag_status st = AG_OK;
    if (*out) {
        ps->n_from_cache++;
    } else {
        ag_backend_log(&cl->base, AG_LOG_STATUS, "compiling kernels (%s)", file);
        st = build_source(cl, file, text, len, all, out);
        if (st == AG_OK) ps->n_compiled++;
        if (st == AG_OK && cl->switches.cache) store_binary(cl, *out, key);
    }
    ag_free(text);
    return st;
}

/* ---- the tables ---- */

static ag_status add_program(ag_cl_backend *cl, uint64_t key, const char *file, const char *options,
                             const ag_cl_program **out) {
    ag_cl_program *p = ag_calloc(1, sizeof *p);
    char *copy = ag_strdup(options);
    cl_program program = NULL;
    ag_status st = p && copy ? build(cl, file, options, &program)
                             : AG_FAIL(&cl->base.err, NOMEM, "kernel file %s", file);
    if (st != AG_OK) {
        ag_free(copy);
        ag_free(p);
        return st;
    }
    *p = (ag_cl_program){cl->programs.programs, key, file, copy, program};
    *out = cl->programs.programs = p;
    return AG_OK;
}

static bool is_program(const ag_cl_program *p, const char *file, const char *options) {
    return strcmp(p->file, file) == 0 && strcmp(p->options, options) == 0;
}

static ag_status get_program(ag_cl_backend *cl, uint64_t key, const char *file, const char *options,
                             const ag_cl_program **out) {
    const ag_cl_program *p = cl->programs.programs;
    while (p && (p->key != key || !is_program(p, file, options))) p = p->next;
    *out = p;
    return p ? AG_OK : add_program(cl, key, file, options, out);
}

static ag_status add_kernel(ag_cl_backend *cl, ag_cl_kernel_entry **list, uint64_t key,
                            uint64_t program_key, const char *file, const char *name,
                            const char *options) {
    const ag_cl_program *program;
    cl_int code;
    AG_TRY(get_program(cl, program_key, file, options, &program));
    ag_cl_kernel_entry *e = ag_calloc(1, sizeof *e);
    if (!e) return AG_FAIL(&cl->base.err, NOMEM, "kernel %s of %s", name, file);
    *e = (ag_cl_kernel_entry){.next = *list, .key = key, .name = name, .program = program};
    e->kernel = cl->api.clCreateKernel(program->program, name, &code);
    if (code != CL_SUCCESS) {
        ag_free(e);
        return ag_cl_fail(cl, &cl->base.err, code, "kernel %s of %s", name, file);
    }
    *list = e;
    return AG_OK;
}

ag_status ag_cl_kernel(ag_cl_backend *cl, const char *file, const char *name, const char *options,
                       cl_kernel *out, ag_cl_known_arg **args) {
    if (!options) options = "";
    uint64_t program_key = ag_cl_hash_text(ag_cl_hash_text(AG_CL_HASH_START, file), options);
    uint64_t key = ag_cl_hash_text(program_key, name);
    ag_cl_kernel_entry **list = &cl->programs.kernels[key % AG_CL_KERNEL_LISTS], *e = *list;
    while (e &&
           (e->key != key || strcmp(e->name, name) != 0 || !is_program(e->program, file, options)))
        e = e->next;
    if (!e) {
        AG_TRY(add_kernel(cl, list, key, program_key, file, name, options));
        e = *list;
    }
    *out = e->kernel;
    *args = e->args;
    return AG_OK;
}

void ag_cl_programs_close(ag_cl_backend *cl) {
    ag_cl_programs *ps = &cl->programs;
    for (size_t i = 0; i < AG_CL_KERNEL_LISTS; i++) {
        for (ag_cl_kernel_entry *e = ps->kernels[i], *next; e; e = next) {
            next = e->next;
            (void)cl->api.clReleaseKernel(e->kernel);
            ag_free(e);
        }
    }
    for (ag_cl_program *p = ps->programs, *next; p; p = next) {
        next = p->next;
        (void)cl->api.clReleaseProgram(p->program);
        ag_free(p->options);
        ag_free(p);
    }
    *ps = (ag_cl_programs){0};
}
