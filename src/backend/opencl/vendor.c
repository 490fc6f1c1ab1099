/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/vendor.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

/* Equal to the values of DOT in the kernels. */
enum { DOT_KHR = 1, DOT_ARM_SUM = 2, DOT_ARM = 3, DOT_EMULATED = 4 };
enum { HALF_OWN = 1, HALF_EMULATED = 2, SUBGROUPS_OWN = 1 };

/* ---- choosing ---- */

static ag_status lacks(const ag_cl_device *d, const char *variable, const char *what,
                       ag_error *err) {
    return AG_FAIL(err, UNSUPPORTED, "%s: %s does not list %s", variable, d->name, what);
}

/* Returns the version times 10: 30 for "OpenCL 3.0 ...". */
static unsigned version_of(const ag_cl_device *d) {
    unsigned major = 0, minor = 0;
    return sscanf(d->version, "OpenCL %u.%u", &major, &minor) == 2 ? 10 * major + minor : 12;
}

/* Returns the device's extension for products of bytes; 0: none. */
static unsigned dot_of(const ag_cl_device *d) {
    if (d->extensions & AG_CL_DOT && version_of(d) >= 20) return DOT_KHR;
    if (d->extensions & AG_CL_ARM_DOT_SUM) return DOT_ARM_SUM;
    return d->extensions & AG_CL_ARM_DOT ? DOT_ARM : 0;
}

/* Returns the option for a language version with sub-groups: 2.0 or 3.0, which may lack 2.0. */
static const char *language_of(const ag_cl_device *d) {
    const unsigned version = version_of(d);
    return version >= 30 ? "3.0" : version >= 20 ? "2.0" : "1.2";
}

static void write_options(const ag_cl_device *d, bool emulated, ag_cl_vendor *v) {
    v->options[0] = v->description[0] = '\0';
    if (!v->subgroups && !v->dot && !v->half) return;
    snprintf(v->options, sizeof v->options, " -cl-std=CL%s -DSUBGROUPS=%u -DDOT=%u -DHALF=%u",
             language_of(d), v->subgroups, v->dot, v->half);
    snprintf(v->description, sizeof v->description, "%s%s%s%s", v->subgroups ? ", sub-groups" : "",
             v->dot ? ", dot products" : "", v->half ? ", halves" : "",
             emulated ? " (emulated)" : "");
}

ag_status ag_cl_vendor_choose(const ag_cl_device *d, const ag_cl_switches *sw, ag_cl_vendor *out,
                              ag_error *err) {
    *out = (ag_cl_vendor){0};
    const bool subgroups = sw->subgroups == AG_CL_ON, dot = sw->dot == AG_CL_ON;
    const bool half = sw->half == AG_CL_ON;
    const unsigned lanes = sw->emulated;
    if (subgroups) out->subgroups = lanes ? lanes : SUBGROUPS_OWN;
    if (dot) out->dot = lanes ? DOT_EMULATED : dot_of(d);
    if (half) out->half = lanes ? HALF_EMULATED : HALF_OWN;
    if (!lanes && subgroups && (!(d->extensions & AG_CL_SUBGROUPS) || version_of(d) < 20)) {
        return lacks(d, "AG_OPENCL_SUBGROUPS", "cl_khr_subgroups with OpenCL 2.0", err);
    }
    if (!lanes && subgroups && d->is_cpu && strstr(d->vendor, "Intel")) {
        return AG_FAIL(err, UNSUPPORTED,
                       "AG_OPENCL_SUBGROUPS: the compiler of %s (%s) has crashed on sub-groups",
                       d->name, d->driver);
    }
    if (dot && !out->dot) {
        return lacks(
            d, "AG_OPENCL_DOT",
            "cl_khr_integer_dot_product with OpenCL 2.0, nor cl_arm_integer_dot_product_int8", err);
    }
    if (!lanes && half && !(d->extensions & AG_CL_FP16)) {
        return lacks(d, "AG_OPENCL_HALF", "cl_khr_fp16", err);
    }
    write_options(d, lanes != 0, out);
    return AG_OK;
}
