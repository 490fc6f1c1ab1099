/* SPDX-License-Identifier: Apache-2.0 */
/* The one file that names every backend. */
#include "backend/cpu/cpu_backend.h"
#ifdef AG_HAVE_OPENCL
#include "backend/opencl/opencl.h"
#endif
#include "core/backend_ops.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    ag_status (*create)(const ag_backend_params *params, ag_backend **out, ag_error *err);
    /* optional; NULL: nothing to choose from */
    ag_status (*devices)(ag_device_info *out, size_t cap, size_t *n, ag_error *err);
} backends[] = {
    {"cpu", ag_cpu_backend_create, NULL},
#ifdef AG_HAVE_OPENCL
    {"opencl", ag_cl_backend_create, ag_cl_backend_devices},
#endif
};

enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

const char *ag_backend_list(size_t i) { return i < N_BACKENDS ? backends[i].name : NULL; }

static ag_status find_backend(const char *name, size_t *index, ag_error *err) {
    for (*index = 0; *index < N_BACKENDS; ++*index) {
        if (strcmp(backends[*index].name, name) == 0) return AG_OK;
    }
    char names[128] = "";
    for (size_t i = 0, used = 0; i < N_BACKENDS && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 backends[i].name);
    }
    return AG_FAIL(err, NOT_FOUND, "unknown backend '%s' (built in: %s)", name, names);
}

ag_status ag_backend_create(const ag_backend_params *params, ag_backend **out, ag_error *err) {
    *out = NULL;
    size_t i;
    AG_TRY(find_backend(params && params->name ? params->name : "cpu", &i, err));
    AG_TRY(backends[i].create(params, out, err));
    if (params) {
        (*out)->log = params->log;
        (*out)->log_user = params->log_user;
    }
    return AG_OK;
}

ag_status ag_backend_devices(const char *name, ag_device_info *out, size_t cap, size_t *n,
                             ag_error *err) {
    size_t i;
    *n = 0;
    AG_TRY(find_backend(name, &i, err));
    if (backends[i].devices) return backends[i].devices(out, cap, n, err);
    return AG_FAIL(err, UNSUPPORTED, "backend %s has no devices to choose from", name);
}
