/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/switches.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST_SUBGROUP = 1024 };

/* Returns the value of a variable, NULL if it is unset or empty. */
static const char *value_of(const char *variable) {
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

const char *ag_cl_library_asked(void) { return value_of("AG_OPENCL_LIBRARY"); }

static ag_status read_switch(const char *variable, ag_cl_switch *out, ag_error *err) {
    const char *value = value_of(variable);
    *out = !value ? AG_CL_AUTO : strcmp(value, "1") == 0 ? AG_CL_ON : AG_CL_OFF;
    if (*out != AG_CL_OFF || strcmp(value, "0") == 0) return AG_OK;
    return AG_FAIL(err, INVALID, "%s is 0 or 1, not '%.20s'", variable, value);
}

/* Reads a number from min to max. Returns false if the value is something else. */
static bool read_number(const char *value, unsigned min, unsigned max, unsigned *out) {
    char *end;
    const unsigned long n = strtoul(value, &end, 10);
    *out = (unsigned)n;
    return !*end && n >= min && n <= max;
}

static ag_status read_units(unsigned *out, ag_error *err) {
    enum { UNITS_MAX = 4096 };
    const char *value = value_of("AG_OPENCL_UNITS");
    if (!value || read_number(value, 1, UNITS_MAX, out)) return AG_OK;
    return AG_FAIL(err, INVALID, "AG_OPENCL_UNITS is a number from 1 to %d, not '%.20s'", UNITS_MAX,
                   value);
}

static ag_status read_emulated(unsigned *out, ag_error *err) {
    const char *value = value_of("AG_OPENCL_EMULATE");
    if (!value || strcmp(value, "0") == 0) return AG_OK;
    if (read_number(value, 2, WIDEST_SUBGROUP, out) && !(*out & (*out - 1))) return AG_OK;
    return AG_FAIL(err, INVALID, "AG_OPENCL_EMULATE is a power of two from 2 to %d, not '%.20s'",
                   WIDEST_SUBGROUP, value);
}

/* Writes the cache directory: $AG_OPENCL_CACHE, else $XDG_CACHE_HOME/antigravity/opencl, else
 * ~/.cache/antigravity/opencl. NULL if AG_OPENCL_CACHE is 0 or none of these is set. */
static ag_status read_cache(char **out, ag_error *err) {
    const char *directory = value_of("AG_OPENCL_CACHE"), *under = "";
    const char *xdg = value_of("XDG_CACHE_HOME");
    if (directory && strcmp(directory, "0") == 0) return AG_OK;
    if (!directory && xdg && *xdg == '/') {
        directory = xdg;
        under = "/antigravity/opencl";
    }
    if (!directory) {
        directory = value_of("HOME");
        under = "/.cache/antigravity/opencl";
    }
    if (!directory) return AG_OK;
    const size_t n = strlen(directory) + strlen(under) + 1;
    *out = ag_malloc(n);
    if (!*out) return AG_FAIL(err, NOMEM, "path of the program cache");
    snprintf(*out, n, "%s%s", directory, under);
    return AG_OK;
}

ag_status ag_cl_switches_read(ag_cl_switches *s, ag_error *err) {
    *s = (ag_cl_switches){0};
    const struct {
        const char *variable;
        ag_cl_switch *to;
    } all[] = {
        {"AG_OPENCL_TOKEN", &s->token},         {"AG_OPENCL_LANES", &s->lanes},
        {"AG_OPENCL_INT_DOT", &s->int_dot},     {"AG_OPENCL_MMA", &s->mma},
        {"AG_OPENCL_SUBGROUPS", &s->subgroups}, {"AG_OPENCL_DOT", &s->dot},
        {"AG_OPENCL_HALF", &s->half},           {"AG_OPENCL_ADDRESSES", &s->addresses},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        AG_TRY(read_switch(all[i].variable, all[i].to, err));
    }
    AG_TRY(read_units(&s->units, err));
    AG_TRY(read_emulated(&s->emulated, err));
    const char *kernels = value_of("AG_OPENCL_KERNELS");
    if (kernels && !(s->kernels = ag_strdup(kernels))) {
        return AG_FAIL(err, NOMEM, "path of the kernel directory");
    }
    s->default_cache = !value_of("AG_OPENCL_CACHE");
    return read_cache(&s->cache, err);
}

void ag_cl_switches_drop_default_cache(ag_cl_switches *s) {
    if (!s->default_cache) return;
    ag_free(s->cache);
    s->cache = NULL;
}

void ag_cl_switches_release(ag_cl_switches *s) {
    ag_free(s->kernels);
    ag_free(s->cache);
    *s = (ag_cl_switches){0};
}
