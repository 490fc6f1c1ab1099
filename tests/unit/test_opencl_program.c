/* SPDX-License-Identifier: Apache-2.0 */
/* Tests kernel files, the directory that overrides them, and the cache of binaries. With any
 * content, a kernel is correct or its build fails. */
#include "backend/opencl/program.h"

#include "core/alloc.h"
#include "unit/opencl_device.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 64, PATH_BYTES = 600, BINARY_BYTES = 1 << 22 };

static char cache[64], kernels[64];

static int make_folders(void **state) {
    (void)state;
    strcpy(cache, "/tmp/ag-opencl-cache-XXXXXX");
    strcpy(kernels, "/tmp/ag-opencl-kernels-XXXXXX");
    if (!mkdtemp(cache) || !mkdtemp(kernels)) return -1;
    setenv("AG_OPENCL_CACHE", cache, 1);
    unsetenv("AG_OPENCL_KERNELS");
    return 0;
}

/* The i-th file of a folder, in no particular order. */
static bool file_in(const char *dir, size_t i, char path[PATH_BYTES]) {
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        found = i-- == 0;
        if (found) snprintf(path, PATH_BYTES, "%s/%s", dir, e->d_name);
    }
    if (d) closedir(d);
    return found;
}

static int remove_folders(void **state) {
    (void)state;
    char path[PATH_BYTES];
    while (file_in(cache, 0, path)) unlink(path);
    while (file_in(kernels, 0, path)) unlink(path);
    return rmdir(cache) | rmdir(kernels);
}

static void put_file(const char *dir, const char *name, const void *bytes, size_t n) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_kernel(const char *name, const char *text) {
    put_file(kernels, name, text, strlen(text));
}

static ag_backend *create_device(void) {
    ag_backend *be;
    ag_error err;
    if (ag_cl_backend_create(NULL, &be, &err) != AG_OK) fail_msg("%s", err.msg);
    return be;
}

/* x = {2, 2, ...}, then the kernel `scale` with 3. */
static ag_status scale(ag_backend *be, float *first) {
    float x[N];
    for (int i = 0; i < N; i++) x[i] = 2;
    ag_tensor t;
    ag_buffer *owner;
    assert_int_equal(ag_tensor_alloc(&t, &owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_1d(N), NULL),
                     AG_OK);
    assert_int_equal(ag_buffer_upload(owner, 0, x, sizeof x, NULL), AG_OK);
    ag_cl_launch l;
    ag_status st = ag_cl_begin(&l, ag_cl_of(be), "rows.cl", "scale", NULL);
    if (st == AG_OK) {
        ag_cl_arg_tensor(&l, &t);
        ag_cl_arg_u64(&l, N);
        ag_cl_arg_f32(&l, 3);
        st = ag_cl_enqueue(&l, 1, (size_t[]){N}, (size_t[]){N});
    }
    if (st == AG_OK) st = ag_read(be, x, &t, sizeof x);
    *first = x[0];
    ag_buffer_release(&owner);
    return st;
}

static uint32_t n_said;

static void count_status(void *user, ag_log_level level, const char *msg) {
    (void)user;
    n_said += level == AG_LOG_STATUS && strstr(msg, "compiling kernels (rows.cl)") != NULL;
}

/* Creates a backend and scales a value. Checks the result, the numbers of programs compiled and
 * taken from the cache, and that the log names each compilation. */
static void expect(float value, uint32_t n_compiled, uint32_t n_from_cache) {
    ag_backend *be = create_device();
    float first;
    n_said = 0;
    be->log = count_status;
    if (scale(be, &first) != AG_OK) fail_msg("%s", ag_backend_error(be)->msg);
    assert_true(first == value);
    assert_int_equal(ag_cl_of(be)->programs.n_compiled, n_compiled);
    assert_int_equal(ag_cl_of(be)->programs.n_from_cache, n_from_cache);
    assert_int_equal(n_said, n_compiled);
    ag_backend_destroy(be);
}

static void expect_error(const char *a, const char *b) {
    ag_backend *be = create_device();
    float first;
    assert_int_equal(scale(be, &first), AG_DEVICE);
    const char *msg = ag_backend_error(be)->msg;
    if (!strstr(msg, a) || !strstr(msg, b) || !strstr(msg, ag_cl_of(be)->device.name)) {
        fail_msg("%s", msg);
    }
    ag_backend_destroy(be);
}

/* ---- the cache ---- */

static void compiles_a_program_once(void **state) {
    (void)state;
    char path[PATH_BYTES];
    expect(6, 1, 0);
    assert_true(file_in(cache, 0, path));
    assert_false(file_in(cache, 1, path));
    expect(6, 0, 1);
    /* Within one backend it is not even looked for. */
    ag_backend *be = create_device();
    float first;
    for (int i = 0; i < 3; i++) assert_int_equal(scale(be, &first), AG_OK);
    assert_int_equal(ag_cl_of(be)->programs.n_from_cache, 1);
    ag_backend_destroy(be);
}

static void rebuilds_a_damaged_binary(void **state) {
    (void)state;
    char path[PATH_BYTES];
    expect(6, 1, 0);
    assert_true(file_in(cache, 0, path));
    unsigned char *good = malloc(BINARY_BYTES), *bad = malloc(BINARY_BYTES);
    FILE *f = fopen(path, "rb");
    size_t n = fread(good, 1, BINARY_BYTES, f);
    fclose(f);
    assert_true(n > 100 && n < BINARY_BYTES);
    const char *name = strrchr(path, '/') + 1;
    const size_t places[] = {0, 9, 33, n - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        memcpy(bad, good, n);
        bad[places[i]] ^= 0x10;
        put_file(cache, name, bad, n);
        expect(6, 1, 0);
        expect(6, 0, 1);
    }
    const size_t lengths[] = {0, 40, n - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put_file(cache, name, good, lengths[i]);
        expect(6, 1, 0);
        expect(6, 0, 1);
    }
    free(good);
    free(bad);
}

static void program_is_compiled_again_when_driver_refuses_the_cached_one(void **state) {
    (void)state;
    ag_backend *be = create_device();
    char *text;
    size_t len;
    assert_int_equal(ag_cl_source_load(NULL, "rows.cl", &text, &len, NULL), AG_OK);
    ag_cl_cache_key key = ag_cl_cache_key_of(&ag_cl_of(be)->device, text, len, "-cl-std=CL1.2");
    ag_free(text);
    unsigned char nonsense[2000];
    memset(nonsense, 0x5a, sizeof nonsense);
    assert_true(ag_cl_cache_write(cache, key, nonsense, sizeof nonsense));
    ag_backend_destroy(be);
    expect(6, 1, 0);
    expect(6, 0, 1);
}

static void cache_key_has_source_options_device_and_driver(void **state) {
    (void)state;
    ag_cl_device d = {.name = "a", .driver = "1", .version = "OpenCL 1.2", .vendor = "v"};
    const ag_cl_cache_key key = ag_cl_cache_key_of(&d, "text", 4, "-O");
    ag_cl_cache_key others[5];
    others[0] = ag_cl_cache_key_of(&d, "texT", 4, "-O");
    others[1] = ag_cl_cache_key_of(&d, "text", 4, "-O2");
    ag_cl_device other = d;
    strcpy(other.name, "b");
    others[2] = ag_cl_cache_key_of(&other, "text", 4, "-O");
    other = d;
    strcpy(other.driver, "2");
    others[3] = ag_cl_cache_key_of(&other, "text", 4, "-O");
    other = d;
    strcpy(other.platform_name, "p");
    others[4] = ag_cl_cache_key_of(&other, "text", 4, "-O");
    for (int i = 0; i < 5; i++) {
        assert_true(others[i].a != key.a);
        assert_true(others[i].b != key.b);
    }
    /* A file under this name that holds the binary of another key. */
    size_t len;
    unsigned char *binary;
    char from[PATH_BYTES], to[PATH_BYTES];
    assert_true(ag_cl_cache_write(cache, key, (const unsigned char *)"binary", 6));
    binary = ag_cl_cache_read(cache, key, &len);
    assert_non_null(binary);
    assert_int_equal(len, 6);
    assert_memory_equal(binary, "binary", 6);
    ag_free(binary);
    assert_true(file_in(cache, 0, from));
    snprintf(to, sizeof to, "%s/%016llx%016llx.bin", cache, (unsigned long long)others[3].a,
             (unsigned long long)others[3].b);
    assert_int_equal(rename(from, to), 0);
    assert_null(ag_cl_cache_read(cache, others[3], &len));
    assert_null(ag_cl_cache_read(cache, key, &len));
}

static void builds_when_the_cache_is_not_writable(void **state) {
    (void)state;
    char path[PATH_BYTES];
    put_file(kernels, "file", "", 0);
    snprintf(path, sizeof path, "%s/file/below", kernels);
    setenv("AG_OPENCL_CACHE", path, 1);
    expect(6, 1, 0);
    setenv("AG_OPENCL_CACHE", "0", 1);
    expect(6, 1, 0);
    assert_false(file_in(cache, 0, path));
}

static void environment_selects_the_cache_directory(void **state) {
    (void)state;
    char *home = getenv("HOME") ? ag_strdup(getenv("HOME")) : NULL;
    ag_cl_switches s;
    setenv("AG_OPENCL_CACHE", "/y", 1);
    assert_int_equal(ag_cl_switches_read(&s, NULL), AG_OK);
    ag_cl_switches_drop_default_cache(&s);
    assert_string_equal(s.cache, "/y");
    ag_cl_switches_release(&s);
    unsetenv("AG_OPENCL_CACHE");
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("HOME", "/h", 1);
    assert_int_equal(ag_cl_switches_read(&s, NULL), AG_OK);
    assert_string_equal(s.cache, "/x/antigravity/opencl");
    ag_cl_switches_drop_default_cache(&s);
    assert_null(s.cache);
    ag_cl_switches_release(&s);
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_int_equal(ag_cl_switches_read(&s, NULL), AG_OK);
    assert_string_equal(s.cache, "/h/.cache/antigravity/opencl");
    ag_cl_switches_release(&s);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(ag_cl_switches_read(&s, NULL), AG_OK);
    assert_null(s.cache);
    if (home) setenv("HOME", home, 1);
    ag_free(home);
}

/* ---- the folder that overrides kernels ---- */

#define SCALE_HEAD                                                             \
    "__kernel void scale(__global uchar *x, ulong x_at, ulong n, float v) {\n" \
    "    size_t i = get_global_id(0);\n"

static void directory_file_replaces_a_built_in_one(void **state) {
    (void)state;
    setenv("AG_OPENCL_KERNELS", kernels, 1);
    expect(6, 1, 0); /* it has none: ours */
    put_kernel("rows.cl", SCALE_HEAD "((__global float *)(x + x_at))[i] *= v + 1;\n}\n");
    expect(8, 1, 0);
    expect(8, 0, 1);
    put_kernel("rows.cl", "#include \"more.cl\"\n#include \"more.cl\"\n" SCALE_HEAD
                          "((__global float *)(x + x_at))[i] = more(v);\n}");
    put_kernel("more.cl", "#include \"rows.cl\"\nfloat more(float v) { return v + 100; }\n");
    expect(103, 1, 0);
    put_kernel("more.cl", "float more(float v) { return v + 200; }\n");
    expect(203, 1, 0);
}

static void names_a_broken_kernel_file(void **state) {
    (void)state;
    setenv("AG_OPENCL_KERNELS", kernels, 1);
    put_kernel("rows.cl", SCALE_HEAD "this is no OpenCL;\n}\n");
    expect_error("kernel file rows.cl does not compile", "error");
    put_kernel("rows.cl", "#include \"absent.cl\"\n");
    ag_backend *be = create_device();
    float first;
    assert_int_equal(scale(be, &first), AG_NOT_FOUND);
    assert_non_null(strstr(ag_backend_error(be)->msg, "absent.cl"));
    ag_backend_destroy(be);
    put_kernel("rows.cl", "__kernel void another(__global float *x) { x[0] = 1; }\n");
    expect_error("kernel scale of rows.cl", "CL_INVALID_KERNEL_NAME");
    char path[sizeof kernels + 16];
    snprintf(path, sizeof path, "%s/rows.cl", kernels);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    be = create_device();
    assert_int_equal(scale(be, &first), AG_IO);
    assert_non_null(strstr(ag_backend_error(be)->msg, "rows.cl: is not a regular file"));
    ag_backend_destroy(be);
    /* Nothing of this is remembered. */
    unsetenv("AG_OPENCL_KERNELS");
    expect(6, 1, 0);
}

static void fails_when_the_kernel_directory_is_missing(void **state) {
    (void)state;
    setenv("AG_OPENCL_KERNELS", "/no/such/folder", 1);
    ag_backend *be = create_device();
    float first;
    assert_int_equal(scale(be, &first), AG_NOT_FOUND);
    assert_non_null(strstr(ag_backend_error(be)->msg, "AG_OPENCL_KERNELS: /no/such/folder"));
    ag_backend_destroy(be);
}

#define WITH_FOLDERS(test) cmocka_unit_test_setup_teardown(test, make_folders, remove_folders)

int main(void) {
    ag_backend *be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    ag_backend_destroy(be);
    const struct CMUnitTest tests[] = {
        WITH_FOLDERS(compiles_a_program_once),
        WITH_FOLDERS(rebuilds_a_damaged_binary),
        WITH_FOLDERS(program_is_compiled_again_when_driver_refuses_the_cached_one),
        WITH_FOLDERS(cache_key_has_source_options_device_and_driver),
        WITH_FOLDERS(builds_when_the_cache_is_not_writable),
        WITH_FOLDERS(environment_selects_the_cache_directory),
        WITH_FOLDERS(directory_file_replaces_a_built_in_one),
        WITH_FOLDERS(names_a_broken_kernel_file),
        WITH_FOLDERS(fails_when_the_kernel_directory_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
