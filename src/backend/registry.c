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
} backends[] = {
    {"cpu", ag_cpu_backend_create},
#ifdef AG_HAVE_OPENCL
    {"opencl", ag_cl_backend_create},
#endif
};

enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

const char *ag_backend_list(size_t i) { return i < N_BACKENDS ? backends[i].name : NULL; }

ag_status ag_backend_create(const ag_backend_params *params, ag_backend **out, ag_error *err) {
    *out = NULL;
    const char *name = params && params->name ? params->name : "cpu";
    for (size_t i = 0; i < N_BACKENDS; i++) {
        if (strcmp(backends[i].name, name) != 0) continue;
        AG_TRY(backends[i].create(params, out, err));
        if (params) {
            (*out)->log = params->log;
            (*out)->log_user = params->log_user;
        }
        return AG_OK;
    }
    char names[128] = "";
    for (size_t i = 0, used = 0; i < N_BACKENDS && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 backends[i].name);
    }
    return AG_FAIL(err, NOT_FOUND, "backend '%s' is none of this build's: %s", name, names);
}
