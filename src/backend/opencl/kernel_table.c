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
    char *log = NULL;
    if (api->clGetProgramBuildInfo(program, cl->device.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) ==
        CL_SUCCESS) {
        log = ag_calloc(n + 1, 1);
    }
    if (log) {
        (void)api->clGetProgramBuildInfo(program, cl->device.id, CL_PROGRAM_BUILD_LOG, n, log,
                                         NULL);
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
                             size_t *index) {
    ag_cl_programs *ps = &cl->programs;
    AG_TRY(AG_GROW(ps->programs, &ps->cap_programs, ps->n_programs + 1, &cl->base.err));
    ag_cl_program p = {.key = key, .file = ag_strdup(file), .options = ag_strdup(options)};
    ag_status st = p.file && p.options ? build(cl, file, options, &p.program)
                                       : AG_FAIL(&cl->base.err, NOMEM, "kernel file %s", file);
    if (st != AG_OK) {
        ag_free(p.file);
        ag_free(p.options);
        return st;
    }
    *index = ps->n_programs;
    ps->programs[ps->n_programs++] = p;
    return AG_OK;
}

static ag_status get_program(ag_cl_backend *cl, uint64_t key, const char *file, const char *options,
                             size_t *index) {
    const ag_cl_programs *ps = &cl->programs;
    for (size_t i = 0; i < ps->n_programs; i++) {
        const ag_cl_program *p = &ps->programs[i];
        if (p->key != key || strcmp(p->file, file) != 0 || strcmp(p->options, options) != 0) {
            continue;
        }
        *index = i;
        return AG_OK;
    }
    return add_program(cl, key, file, options, index);
}

/* Returns the kernel's entry, or the empty entry to use for it. The table is never full. */
static ag_cl_kernel_entry *find_entry(const ag_cl_programs *ps, uint64_t key, const char *file,
                                      const char *name, const char *options) {
    for (size_t i = (size_t)key;; i++) {
        ag_cl_kernel_entry *e = &ps->kernels[i & (ps->cap_kernels - 1)];
        if (!e->key) return e;
        if (e->key != key || strcmp(e->name, name) != 0) continue;
        const ag_cl_program *p = &ps->programs[e->program];
        if (strcmp(p->file, file) == 0 && strcmp(p->options, options) == 0) return e;
    }
}

static ag_status grow_kernels(ag_cl_backend *cl) {
    ag_cl_programs *ps = &cl->programs;
    if (2 * ps->n_kernels < ps->cap_kernels) return AG_OK;
    size_t cap = ps->cap_kernels ? 2 * ps->cap_kernels : 128;
    ag_cl_kernel_entry *grown = ag_calloc(cap, sizeof *grown);
    if (!grown) return AG_FAIL(&cl->base.err, NOMEM, "table of %zu kernels", cap);
    for (size_t i = 0; i < ps->cap_kernels; i++) {
        if (!ps->kernels[i].key) continue;
        size_t at = (size_t)ps->kernels[i].key;
        while (grown[at & (cap - 1)].key) at++;
        grown[at & (cap - 1)] = ps->kernels[i];
    }
    ag_free(ps->kernels);
    ps->kernels = grown;
    ps->cap_kernels = cap;
    return AG_OK;
}

static ag_status add_kernel(ag_cl_backend *cl, ag_cl_kernel_entry *place, uint64_t key,
                            uint64_t program_key, const char *file, const char *name,
                            const char *options) {
    ag_cl_kernel_entry e = {.key = key};
    AG_TRY(get_program(cl, program_key, file, options, &e.program));
    cl_int code;
    e.kernel = cl->api.clCreateKernel(cl->programs.programs[e.program].program, name, &code);
    if (code != CL_SUCCESS) {
        return ag_cl_fail(cl, &cl->base.err, code, "kernel %s of %s", name, file);
    }
    e.name = ag_strdup(name);
    e.args = ag_calloc(AG_CL_KNOWN_ARGS, sizeof *e.args);
    if (!e.name || !e.args) {
        (void)cl->api.clReleaseKernel(e.kernel);
        ag_free(e.name);
        ag_free(e.args);
        return AG_FAIL(&cl->base.err, NOMEM, "kernel %s of %s", name, file);
    }
    *place = e;
    cl->programs.n_kernels++;
    return AG_OK;
}

ag_status ag_cl_kernel(ag_cl_backend *cl, const char *file, const char *name, const char *options,
                       cl_kernel *out, ag_cl_known_arg **args) {
    if (!options) options = "";
    uint64_t program_key = ag_cl_hash_text(ag_cl_hash_text(AG_CL_HASH_START, file), options);
    uint64_t key = ag_cl_hash_text(program_key, name) | 1;
    AG_TRY(grow_kernels(cl));
    ag_cl_kernel_entry *e = find_entry(&cl->programs, key, file, name, options);
    if (!e->key) AG_TRY(add_kernel(cl, e, key, program_key, file, name, options));
    *out = e->kernel;
    *args = e->args;
    return AG_OK;
}

void ag_cl_programs_close(ag_cl_backend *cl) {
    ag_cl_programs *ps = &cl->programs;
    for (size_t i = 0; i < ps->cap_kernels; i++) {
        if (!ps->kernels[i].key) continue;
        (void)cl->api.clReleaseKernel(ps->kernels[i].kernel);
        ag_free(ps->kernels[i].name);
        ag_free(ps->kernels[i].args);
    }
    for (size_t i = 0; i < ps->n_programs; i++) {
        (void)cl->api.clReleaseProgram(ps->programs[i].program);
        ag_free(ps->programs[i].file);
        ag_free(ps->programs[i].options);
    }
    ag_free(ps->kernels);
    ag_free(ps->programs);
    *ps = (ag_cl_programs){0};
}
