/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the paths for vendor extensions: which are chosen. A path is rejected if the device lacks
 * the extension or computes wrong results. */
#include "backend/opencl/ops.h"
#include "backend/opencl/vendor.h"

#include "core/alloc.h"
#include "unit/opencl_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int ask_for_nothing(void **state) {
    (void)state;
    unsetenv("AG_OPENCL_SUBGROUPS");
    unsetenv("AG_OPENCL_DOT");
    unsetenv("AG_OPENCL_HALF");
    unsetenv("AG_OPENCL_EMULATE");
    unsetenv("AG_OPENCL_KERNELS");
    unsetenv("AG_OPENCL_MMA");
    unsetenv("AG_OPENCL_UNITS");
    return 0;
}

static ag_cl_device device_with(const char *version, const char *extensions) {
    ag_cl_device d = {.name = "a phone", .extensions = ag_cl_extensions_in(extensions)};
    snprintf(d.version, sizeof d.version, "%s", version);
    return d;
}

/* ---- extensions of a device ---- */

static void extensions_are_whole_words(void **state) {
    (void)state;
    assert_int_equal(ag_cl_extensions_in(""), 0);
    assert_int_equal(ag_cl_extensions_in("cl_khr_fp16"), AG_CL_FP16);
    assert_int_equal(ag_cl_extensions_in("  cl_khr_fp64 cl_khr_fp16  cl_khr_subgroups "),
                     AG_CL_FP16 | AG_CL_SUBGROUPS);
    assert_int_equal(ag_cl_extensions_in("cl_khr_subgroups_shuffle xcl_khr_fp16 cl_khr_fp16_x"), 0);
    assert_int_equal(ag_cl_extensions_in("cl_arm_integer_dot_product_int8"), AG_CL_ARM_DOT);
}

static void names_of_extensions_are_cut_at_words(void **state) {
    (void)state;
    char text[64];
    ag_cl_extension_names(0, text, sizeof text);
    assert_string_equal(text, "");
    ag_cl_extension_names(AG_CL_FP16 | AG_CL_SUBGROUPS, text, sizeof text);
    assert_string_equal(text, "cl_khr_fp16 cl_khr_subgroups");
    ag_cl_extension_names(AG_CL_FP16 | AG_CL_SUBGROUPS, text, 28);
    assert_string_equal(text, "cl_khr_fp16");
}

static ag_status choose_vendor(const ag_cl_device *d, ag_cl_vendor *v, ag_error *err) {
    ag_cl_switches s;
    ag_status st = ag_cl_switches_read(&s, err);
    if (st == AG_OK) st = ag_cl_vendor_choose(d, &s, v, err);
    ag_cl_switches_release(&s);
    return st;
}

/* ---- chosen paths ---- */

static void vendor_code_is_off_by_default(void **state) {
    (void)state;
    ag_cl_vendor v;
    const ag_cl_device d =
        device_with("OpenCL 3.0", "cl_khr_fp16 cl_khr_subgroups cl_khr_integer_dot_product");
    assert_int_equal(choose_vendor(&d, &v, NULL), AG_OK);
    assert_string_equal(v.options, "");
    assert_string_equal(v.description, "");
    setenv("AG_OPENCL_DOT", "0", 1);
    assert_int_equal(choose_vendor(&d, &v, NULL), AG_OK);
    assert_string_equal(v.options, "");
}

static void vendor_code_is_on_when_switched_on(void **state) {
    (void)state;
    ag_cl_vendor v;
    setenv("AG_OPENCL_SUBGROUPS", "1", 1);
    setenv("AG_OPENCL_DOT", "1", 1);
    setenv("AG_OPENCL_HALF", "1", 1);
    ag_cl_device d = device_with(
        "OpenCL 3.0 v1",
        "cl_khr_fp16 cl_khr_subgroups cl_khr_integer_dot_product cl_arm_integer_dot_product_int8");
    assert_int_equal(choose_vendor(&d, &v, NULL), AG_OK);
    assert_string_equal(v.options, " -cl-std=CL3.0 -DSUBGROUPS=1 -DDOT=1 -DHALF=1");
    assert_string_equal(v.description, ", sub-groups, dot products, halves");
    d = device_with("OpenCL 2.1 v1", "cl_khr_fp16 cl_khr_subgroups cl_arm_integer_dot_product_int8 "
                                     "cl_arm_integer_dot_product_accumulate_int8");
    assert_int_equal(choose_vendor(&d, &v, NULL), AG_OK);
    assert_string_equal(v.options, " -cl-std=CL2.0 -DSUBGROUPS=1 -DDOT=2 -DHALF=1");
    setenv("AG_OPENCL_SUBGROUPS", "0", 1);
    d = device_with("OpenCL 1.2 v1",
                    "cl_khr_fp16 cl_khr_integer_dot_product cl_arm_integer_dot_product_int8");
    assert_int_equal(choose_vendor(&d, &v, NULL), AG_OK);
    assert_string_equal(v.options, " -cl-std=CL1.2 -DSUBGROUPS=0 -DDOT=3 -DHALF=1");
    assert_string_equal(ag_cl_vendor_sums(&v), "");
}

static void refused(const ag_cl_device *d, ag_status status, const char *a, const char *b) {
    ag_cl_vendor v;
    ag_error err;
    assert_int_equal(choose_vendor(d, &v, &err), status);
    if (!strstr(err.msg, a) || !strstr(err.msg, b)) fail_msg("%s", err.msg);
}

static ag_cl_switch dot_switch(const char *value) {
    ag_cl_switches s;
    if (value) setenv("AG_OPENCL_DOT", value, 1);
    else unsetenv("AG_OPENCL_DOT");
    assert_int_equal(ag_cl_switches_read(&s, NULL), AG_OK);
    const ag_cl_switch dot = s.dot;
    ag_cl_switches_release(&s);
    return dot;
}

static void accepts_1_0_or_unset_as_a_switch(void **state) {
    (void)state;
    ag_error err;
    ag_cl_switches s;
    assert_int_equal(dot_switch(NULL), AG_CL_AUTO);
    assert_int_equal(dot_switch(""), AG_CL_AUTO);
    assert_int_equal(dot_switch("0"), AG_CL_OFF);
    assert_int_equal(dot_switch("1"), AG_CL_ON);
    assert_true(ag_cl_is_on(AG_CL_AUTO, true) && ag_cl_is_on(AG_CL_ON, false));
    assert_false(ag_cl_is_on(AG_CL_AUTO, false) || ag_cl_is_on(AG_CL_OFF, true));
    setenv("AG_OPENCL_DOT", "99", 1);
    assert_int_equal(ag_cl_switches_read(&s, &err), AG_INVALID);
    ag_cl_switches_release(&s);
    assert_string_equal(err.msg, "AG_OPENCL_DOT is 0 or 1, not '99'");
    /* Switches of no vendor are read the same way. */
    static const char *const others[] = {"AG_OPENCL_LANES", "AG_OPENCL_INT_DOT", "AG_OPENCL_MMA",
                                         "AG_OPENCL_TOKEN"};
    unsetenv("AG_OPENCL_DOT");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ag_backend *be = NULL;
        setenv(others[i], "nonsense", 1);
        const ag_backend_params params = {.name = "opencl"};
        assert_int_not_equal(ag_backend_create(&params, &be, &err), AG_OK);
        assert_null(be);
        if (err.status != AG_UNSUPPORTED && err.status != AG_NOT_FOUND) /* a device is here */
            assert_non_null(strstr(err.msg, others[i]));
        unsetenv(others[i]);
    }
}

static void missing_extension_is_an_error(void **state) {
    (void)state;
    ag_cl_device d = device_with("OpenCL 3.0", "");
    setenv("AG_OPENCL_SUBGROUPS", "1", 1);
    refused(&d, AG_UNSUPPORTED, "AG_OPENCL_SUBGROUPS: a phone", "cl_khr_subgroups");
    d = device_with("OpenCL 1.2", "cl_khr_subgroups"); /* it has no language for them */
    refused(&d, AG_UNSUPPORTED, "AG_OPENCL_SUBGROUPS: a phone", "OpenCL 2.0");
    setenv("AG_OPENCL_SUBGROUPS", "", 1);
    setenv("AG_OPENCL_DOT", "1", 1);
    refused(&d, AG_UNSUPPORTED, "AG_OPENCL_DOT: a phone", "dot_product");
    setenv("AG_OPENCL_DOT", "0", 1);
    setenv("AG_OPENCL_HALF", "1", 1);
    refused(&d, AG_UNSUPPORTED, "AG_OPENCL_HALF: a phone", "cl_khr_fp16");
    setenv("AG_OPENCL_HALF", "yes", 1);
    refused(&d, AG_INVALID, "AG_OPENCL_HALF", "'yes'");
    setenv("AG_OPENCL_HALF", "0", 1);
    setenv("AG_OPENCL_EMULATE", "12", 1);
    refused(&d, AG_INVALID, "AG_OPENCL_EMULATE", "'12'");
}

static void rejects_sub_groups_on_intels_processors(void **state) {
    (void)state;
    ag_cl_vendor v;
    ag_cl_device d = device_with("OpenCL 3.1", "cl_khr_subgroups");
    snprintf(d.vendor, sizeof d.vendor, "Intel(R) Corporation");
    setenv("AG_OPENCL_SUBGROUPS", "1", 1);
    assert_int_equal(choose_vendor(&d, &v, NULL), AG_OK); /* a GPU */
    d.is_cpu = true;
    refused(&d, AG_UNSUPPORTED, "AG_OPENCL_SUBGROUPS: the compiler of a phone", "has crashed");
}

static void stand_ins_need_no_extension(void **state) {
    (void)state;
    ag_cl_vendor v;
    const ag_cl_device d = device_with("OpenCL 3.0", "");
    setenv("AG_OPENCL_EMULATE", "32", 1);
    setenv("AG_OPENCL_SUBGROUPS", "1", 1);
    setenv("AG_OPENCL_HALF", "1", 1);
    assert_int_equal(choose_vendor(&d, &v, NULL), AG_OK);
    assert_string_equal(v.options, " -cl-std=CL3.0 -DSUBGROUPS=32 -DDOT=0 -DHALF=2");
    assert_string_equal(v.description, ", sub-groups, halves (emulated)");
}

/* ---- on the device ---- */

/* The kernel file with `from` replaced by `to`, which is not longer, is taken from now on. */
static void put_changed(const char *dir, const char *file, const char *from, const char *to) {
    char path[128], *text;
    size_t len;
    assert_int_equal(ag_cl_source_load(NULL, file, &text, &len, NULL), AG_OK);
    char *at = strstr(text, from);
    assert_non_null(at);
    memset(at, ' ', strlen(from));
    memcpy(at, to, strlen(to));
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    ag_free(text);
    setenv("AG_OPENCL_KERNELS", dir, 1);
}

static void rejects_a_path_that_computes_wrong_results(void **state) {
    (void)state;
    static const struct {
        const char *file, *from, *to, *variable;
    } faults[] = {
        {"dot_bytes.cl", "(int)(b <<", "(b <<", "AG_OPENCL_DOT"},
        {"subgroup.cl", "v += scratch[first + i]", "v += scratch[first]", "AG_OPENCL_SUBGROUPS"},
        {"subgroup.cl", "- 1 - get_local_id(0)", "- 1", "AG_OPENCL_SUBGROUPS"},
    };
    char dir[] = "/tmp/ag-opencl-vendor-XXXXXX", path[128];
    assert_non_null(mkdtemp(dir));
    setenv("AG_OPENCL_EMULATE", "8", 1);
    setenv("AG_OPENCL_SUBGROUPS", "1", 1);
    setenv("AG_OPENCL_DOT", "1", 1);
    ag_backend *be = open_opencl();
    assert_non_null(be);
    assert_non_null(strstr(ag_backend_describe(be), "sub-groups, dot products (emulated)"));
    ag_backend_destroy(be);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        ag_error err;
        unsetenv("AG_OPENCL_KERNELS");
        put_changed(dir, faults[i].file, faults[i].from, faults[i].to);
        assert_int_equal(ag_cl_backend_create(NULL, &be, &err), AG_DEVICE);
        assert_null(be);
        if (!strstr(err.msg, faults[i].variable)) fail_msg("%s", err.msg);
        snprintf(path, sizeof path, "%s/%s", dir, faults[i].file);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* Returns whether the backend uses tensor cores after their check. */
static bool passes_mma_check(void) {
    ag_backend *be = open_opencl();
    assert_non_null(be);
    ag_cl_backend *cl = ag_cl_of(be);
    assert_true(cl->mma && !cl->mma_checked);
    ag_cl_mma_check(cl);
    const bool passes = cl->mma;
    ag_backend_destroy(be);
    return passes;
}

static void tensor_cores_with_wrong_results_are_not_used(void **state) {
    (void)state;
    char dir[] = "/tmp/ag-opencl-vendor-XXXXXX", path[128];
    assert_non_null(mkdtemp(dir));
    setenv("AG_OPENCL_MMA", "1", 1);
    setenv("AG_OPENCL_UNITS", "64", 1); /* several work-groups share a tile */
    assert_true(passes_mma_check());
    put_changed(dir, "matmul_mma.cl", "p % 16 < 8 ? pairs.x : pairs.y", "pairs.x");
    assert_false(passes_mma_check());
    put_changed(dir, "matmul_mma.cl", "s < n_splits; s++", "s < 1; s++");
    assert_false(passes_mma_check());
    snprintf(path, sizeof path, "%s/matmul_mma.cl", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    (void)ask_for_nothing(NULL);
    ag_backend *be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    ag_backend_destroy(be);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(extensions_are_whole_words, ask_for_nothing),
        cmocka_unit_test_setup(names_of_extensions_are_cut_at_words, ask_for_nothing),
        cmocka_unit_test_setup(vendor_code_is_off_by_default, ask_for_nothing),
        cmocka_unit_test_setup(vendor_code_is_on_when_switched_on, ask_for_nothing),
        cmocka_unit_test_setup(accepts_1_0_or_unset_as_a_switch, ask_for_nothing),
        cmocka_unit_test_setup(missing_extension_is_an_error, ask_for_nothing),
        cmocka_unit_test_setup(rejects_sub_groups_on_intels_processors, ask_for_nothing),
        cmocka_unit_test_setup(stand_ins_need_no_extension, ask_for_nothing),
        cmocka_unit_test_setup(rejects_a_path_that_computes_wrong_results, ask_for_nothing),
        cmocka_unit_test_setup(tensor_cores_with_wrong_results_are_not_used, ask_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
