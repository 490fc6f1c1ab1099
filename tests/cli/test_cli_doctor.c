/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity doctor, on trees that stand for machines with other GPUs and drivers. */
#include "cli.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static int remove_any(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

/* Makes root/path and its parents. Writes the path to dir[256]. */
static void make_path(const char *path, char *dir) {
    snprintf(dir, 256, "%s/%s", root, path);
    for (char *p = dir + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(dir, 0777);
        *p = '/';
    }
    mkdir(dir, 0777);
}

/* A machine without GPUs and OpenCL, and an empty store. */
static int before_each(void **state) {
    (void)state;
    char store[256];
    make_directory(root);
    make_path("store", store);
    setenv("ANTIGRAVITY_MODELS", store, 1);
    setenv("AG_OPENCL_LIBRARY", "/absent/libOpenCL.so", 1);
    unsetenv("RUSTICL_ENABLE");
    return 0;
}

static int after_each(void **state) {
    (void)state;
    nftw(root, remove_any, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static void add_pci(const char *address, const char *class, const char *vendor) {
    char path[128], dir[256];
    snprintf(path, sizeof path, "sys/bus/pci/devices/%s", address);
    make_path(path, dir);
    write_file(dir, "class", class, strlen(class));
    write_file(dir, "vendor", vendor, strlen(vendor));
}

static void add_driver(const char *name) {
    char dir[256];
    make_path("etc/OpenCL/vendors", dir);
    write_file(dir, name, "lib.so\n", 7);
}

static cli_result doctor(void) {
    cli_result r = CLI("doctor", "--root", root);
    assert_code(&r, 0);
    assert_int_equal(r.n_err, 0);
    return r;
}

static void describes_machine_as_json(void **state) {
    (void)state;
    char dir[256];
    make_path("store/Tiny", dir);
    link_file(dir, TINY, "config.json");
    link_file(dir, TINY, "model.safetensors");
    cli_result r = CLI("doctor", "--json", "--root", root);
    assert_code(&r, 0);
    json_t *value = cli_json(&r);
    assert_true(json_is_string(json_find(value, "version")));
    assert_string_equal(json_string_value(json_find(value, "backends.0.name")), "cpu");
    assert_true(json_integer_value(json_find(value, "memory.bytes")) >
                json_integer_value(json_find(value, "memory.free_bytes")));
    assert_true(json_integer_value(json_find(value, "memory.free_bytes")) > 0);
    assert_string_equal(json_string_value(json_find(value, "models.0.name")), "Tiny");
    assert_int_equal(json_array_size(json_find(value, "models")), 1);
    assert_int_equal(json_array_size(json_find(value, "drivers")), 0);
    json_decref(value);
    cli_free(&r);
}

static void lists_models_and_their_faults(void **state) {
    (void)state;
    char dir[256];
    cli_result r = doctor();
    assert_says(r.out, "store    no models yet: 'antigravity pull ORG/NAME' fetches one");
    cli_free(&r);
    make_path("store/half.part", dir);
    make_path("store", dir);
    write_file(dir, "broken.gguf", "GGUF", 4);
    link_file(dir, AG_SOURCE_DIR "/models", "demo");
    r = doctor();
    assert_says(r.out, "/store, 3 models\nmodel    broken: ");
    assert_says(r.out, "\nmodel    demo: LlamaForCausalLM, ");
    assert_says(r.out, "\nstore    half is incomplete: 'antigravity pull' resumes it");
    assert_says(r.out, "\nstore    demo starts slowly, because its weights are converted");
    assert_does_not_say(r.out, "no models yet");
    cli_free(&r);
}

static void says_where_models_would_be(void **state) {
    (void)state;
    const char *names[] = {"HOME", "XDG_DATA_HOME", "ANTIGRAVITY_MODELS"};
    char *values[3];
    for (size_t i = 0; i < 3; i++) {
        values[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
        unsetenv(names[i]);
    }
    cli_result r = doctor();
    for (size_t i = 0; i < 3; i++) {
        if (values[i]) setenv(names[i], values[i], 1);
        free(values[i]);
    }
    assert_says(r.out, "\nstore    none: set HOME or ANTIGRAVITY_MODELS\n");
    cli_free(&r);
}

static void reports_limited_instruction_sets(void **state) {
    (void)state;
    setenv("AG_CPU_ISA", "common", 1);
    cli_result r = doctor();
    unsetenv("AG_CPU_ISA");
    assert_says(r.out, " threads, common (this machine: ");
    assert_says(r.out, "\ncpu      AG_CPU_ISA=common limits the instruction sets: unset it\n");
    cli_free(&r);
    r = doctor();
    assert_does_not_say(r.out, "AG_CPU_ISA");
    cli_free(&r);
}

static void skip_without_opencl(void) {
    cli_result r = CLI("devices");
    const bool has_opencl = strstr(r.out, "opencl") != NULL;
    cli_free(&r);
    if (!has_opencl) skip();
}

static void names_packages_of_missing_drivers(void **state) {
    (void)state;
    skip_without_opencl();
    add_pci("0000:00:02.0", "0x020000", "0x8086"); /* a network controller */
    cli_result r = doctor();
    assert_does_not_say(r.out, "a GPU of");
    cli_free(&r);
    add_pci("0000:01:00.0", "0x030200\n", "0x10de\n");
    add_pci("0000:02:00.0", "0x030000\n", "0x1002\n");
    r = doctor();
    assert_says(r.out, "opencl   none: AG_OPENCL_LIBRARY: /absent");
    assert_says(r.out, "a GPU of NVIDIA has no OpenCL driver: sudo apt install nvidia-opencl-icd "
                       "ocl-icd-libopencl1\n");
    assert_says(r.out, "a GPU of AMD has no OpenCL driver: sudo apt install mesa-opencl-icd "
                       "ocl-icd-libopencl1; then set RUSTICL_ENABLE=radeonsi\n");
    assert_does_not_say(r.out, "Intel");
    cli_free(&r);
}

static void finds_gpus_of_phones_and_boards(void **state) {
    (void)state;
    skip_without_opencl();
    char dir[256];
    make_path("sys/class/drm/renderD128/device", dir);
    write_file(dir, "uevent", "DRIVER=panthor\nOF_NAME=gpu\n", 27);
    cli_result r = doctor();
    assert_says(r.out, "a GPU of Arm Mali has no OpenCL driver");
    cli_free(&r);
}

static void explains_drivers_without_devices(void **state) {
    (void)state;
    skip_without_opencl();
    add_pci("0000:01:00.0", "0x030000\n", "0x8086\n");
    add_pci("0000:02:00.0", "0x030000\n", "0x10de\n");
    add_driver("rusticl.icd");
    add_driver("nvidia.icd");
    cli_result r = doctor();
    assert_says(r.out, "\ndriver   nvidia.icd\ndriver   rusticl.icd\n");
    assert_says(r.out, "a GPU of Intel is off in Mesa's driver: set RUSTICL_ENABLE=iris\n");
    assert_says(r.out, "the driver nvidia.icd offers no GPU of NVIDIA: AG_OPENCL_LIBRARY: ");
    cli_free(&r);
    setenv("RUSTICL_ENABLE", "iris", 1);
    r = doctor();
    assert_says(r.out, "the driver rusticl.icd offers no GPU of Intel: AG_OPENCL_LIBRARY: ");
    assert_does_not_say(r.out, "group");
    cli_free(&r);
    unsetenv("RUSTICL_ENABLE");
    add_driver("intel.icd");
    r = doctor();
    assert_says(r.out, "the driver intel.icd offers no GPU of Intel: AG_OPENCL_LIBRARY: ");
    cli_free(&r);
}

/* Root may open any node, so the node here leads nowhere. */
static void names_group_of_closed_render_nodes(void **state) {
    (void)state;
    skip_without_opencl();
    char dir[256];
    add_pci("0000:01:00.0", "0x030000\n", "0x1002\n");
    make_path("dev/dri", dir);
    link_file(dir, "/absent", "renderD128");
    cli_result r = doctor();
    assert_says(r.out, "renderD128 may not be opened: sudo usermod -aG render $USER");
    cli_free(&r);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, before_each, after_each)
    const struct CMUnitTest tests[] = {
        TEST(describes_machine_as_json),         TEST(lists_models_and_their_faults),
        TEST(reports_limited_instruction_sets),  TEST(says_where_models_would_be),
        TEST(names_packages_of_missing_drivers), TEST(finds_gpus_of_phones_and_boards),
        TEST(explains_drivers_without_devices),  TEST(names_group_of_closed_render_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
