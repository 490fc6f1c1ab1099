/* SPDX-License-Identifier: Apache-2.0 */
/* Tests device memory: its counts, its limits, and copies between it and the host. */
#include "backend/opencl/opencl.h"
#include "core/backend_ops.h"
#include "memory/galloc.h"
#include "unit/opencl_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ag_backend *be;

enum { N = 1000 };

static ag_buffer *device_buffer(size_t bytes) {
    ag_buffer *buf;
    assert_int_equal(ag_memory_alloc(ag_backend_memory(be), bytes, AG_USAGE_SCRATCH, &buf, NULL),
                     AG_OK);
    return buf;
}

static void bytes_in_use_follow_the_buffers(void **state) {
    (void)state;
    ag_memory *mem = ag_backend_memory(be);
    size_t before = ag_memory_bytes_in_use(mem);
    ag_buffer *a = device_buffer(100), *b = device_buffer(4097);
    assert_int_equal(ag_memory_bytes_in_use(mem), before + 4197);
    ag_buffer_release(&a);
    assert_int_equal(ag_memory_bytes_in_use(mem), before + 4097);
    ag_buffer_release(&b);
    assert_int_equal(ag_memory_bytes_in_use(mem), before);
}

static void rejects_more_memory_than_the_device_has(void **state) {
    (void)state;
    ag_memory *mem = ag_backend_memory(be);
    size_t before = ag_memory_bytes_in_use(mem);
    ag_error err;
    ag_buffer *buf;
    const size_t sizes[] = {(size_t)ag_cl_of(be)->device.global_bytes + 1, SIZE_MAX / 2, SIZE_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ag_memory_alloc(mem, sizes[i], AG_USAGE_WEIGHTS, &buf, &err), AG_NOMEM);
        assert_null(buf);
        assert_non_null(strstr(err.msg, "does not fit"));
    }
    assert_int_equal(ag_memory_bytes_in_use(mem), before);
}

static void new_buffer_is_zero(void **state) {
    (void)state;
    unsigned char bytes[N];
    memset(bytes, 1, sizeof bytes);
    ag_buffer *buf = device_buffer(N);
    assert_int_equal(ag_buffer_download(bytes, buf, 0, N, NULL), AG_OK);
    for (size_t i = 0; i < N; i++) assert_int_equal(bytes[i], 0);
    ag_buffer_release(&buf);
}

static void bytes_come_back_as_they_went(void **state) {
    (void)state;
    const size_t sizes[] = {1, 63, 64, 100000, 1 << 20, 3 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t n = sizes[s];
        unsigned char *out = malloc(n), *in = malloc(n);
        for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(i * 7 + s);
        ag_buffer *buf = device_buffer(n + 5);
        assert_int_equal(ag_buffer_upload(buf, 5, out, n, NULL), AG_OK);
        memset(in, 0, n);
        assert_int_equal(ag_buffer_download(in, buf, 5, n, NULL), AG_OK);
        assert_memory_equal(in, out, n);
        ag_buffer_release(&buf);
        free(out);
        free(in);
    }
}

/* More than the ring holds, so that it goes round several times. */
static void many_small_uploads_keep_apart(void **state) {
    (void)state;
    enum { UPLOADS = 12000, EACH = 1024 };
    ag_buffer *buf = device_buffer((size_t)UPLOADS * EACH);
    unsigned char bytes[EACH];
    for (size_t i = 0; i < UPLOADS; i++) {
        memset(bytes, (int)(i % 251), EACH);
        assert_int_equal(ag_buffer_upload(buf, i * EACH, bytes, EACH, NULL), AG_OK);
    }
    for (size_t i = 0; i < UPLOADS; i++) {
        assert_int_equal(ag_buffer_download(bytes, buf, i * EACH, EACH, NULL), AG_OK);
        assert_int_equal(bytes[0], i % 251);
        assert_int_equal(bytes[EACH - 1], i % 251);
    }
    ag_buffer_release(&buf);
}

/* ---- rows of a type ---- */

enum { BASE = 7, COLS = 512, ROW_BYTES = COLS * sizeof(float) };

/* Uploads n rows, row r equal to row r % BASE of `base`, and compares with the host's values. */
static void compare_rows(ag_dtype type, const unsigned char *base, size_t n, float scale) {
    const size_t bytes = ag_dtype_row_bytes(type, COLS);
    unsigned char *rows = malloc(n * bytes);
    float *got = malloc(n * ROW_BYTES), want[COLS];
    ag_buffer *owner;
    ag_tensor dst;
    for (size_t r = 0; r < n; r++) memcpy(rows + r * bytes, base + r % BASE * bytes, bytes);
    assert_int_equal(ag_tensor_alloc(&dst, &owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_2d(n, COLS), NULL),
                     AG_OK);
    assert_int_equal(be->ops->upload_rows(be, &dst, type, rows, scale), AG_OK);
    memset(rows, 0, n * bytes); /* the backend has copied them */
    assert_int_equal(ag_read(be, got, &dst, n * ROW_BYTES), AG_OK);
    for (size_t r = 0; r < n; r++) {
        ag_dequantize_row(type, want, base + r % BASE * bytes, COLS);
        for (size_t i = 0; i < COLS; i++) want[i] *= scale;
        if (memcmp(want, got + r * COLS, sizeof want) != 0)
            fail_msg("%s: row %zu of %zu differs", ag_dtype_name(type), r, n);
    }
    ag_buffer_release(&owner);
    free(got);
    free(rows);
}

/* 20,000 rows of the largest quantised type are more than the ring. */
static void uploaded_rows_equal_those_of_the_host(void **state) {
    (void)state;
    unsigned char base[BASE * ROW_BYTES];
    float values[COLS];
    uint32_t random = 1;
    for (int t = 0; t < AG_DTYPE_COUNT; t++) {
        const ag_dtype type = (ag_dtype)t;
        if (type == AG_I32 || type == AG_U8) continue;
        for (size_t r = 0; r < BASE; r++) {
            for (size_t i = 0; i < COLS; i++) {
                random = random * 1664525 + 1013904223;
                values[i] = (float)(int32_t)random * 0x1p-33f;
            }
            assert_int_equal(ag_quantize_row(type, base + r * ag_dtype_row_bytes(type, COLS),
                                             values, COLS, AG_ROUND_REFERENCE, NULL),
                             AG_OK);
        }
        compare_rows(type, base, 1, 1);
        compare_rows(type, base, 33, 45.254834F);
        if (type == AG_F32 || type == AG_Q8_0) compare_rows(type, base, 20000, 1);
    }
}

/* ---- copies ---- */

static void fill(int32_t *x) {
    for (int32_t i = 0; i < N; i++) x[i] = i * 3 + 1;
}

static ag_tensor tensor_in(ag_memory *mem, ag_buffer **owner) {
    ag_tensor t;
    assert_int_equal(
        ag_tensor_alloc(&t, owner, mem, AG_USAGE_SCRATCH, AG_I32, ag_shape_1d(N), NULL), AG_OK);
    return t;
}

static void slices_are_copied_between_host_and_device(void **state) {
    (void)state;
    ag_memory *host;
    assert_int_equal(ag_galloc_create(&host, NULL), AG_OK);
    ag_memory *const memories[] = {host, ag_backend_memory(be)};
    int32_t x[N], y[N];
    fill(x);
    for (int from = 0; from < 2; from++) {
        for (int to = 0; to < 2; to++) {
            ag_buffer *a_owner, *b_owner;
            ag_tensor a = tensor_in(memories[from], &a_owner);
            ag_tensor b = tensor_in(memories[to], &b_owner);
            assert_int_equal(ag_buffer_upload(a_owner, 0, x, sizeof x, NULL), AG_OK);
            assert_int_equal(ag_copy_slice(be, &b, 500, &a, 7, 300), AG_OK);
            assert_int_equal(ag_read(be, y, &b, sizeof y), AG_OK);
            assert_memory_equal(y + 500, x + 7, 300 * sizeof *x);
            for (int i = 0; i < 500; i++) assert_int_equal(y[i], 0);
            for (int i = 800; i < N; i++) assert_int_equal(y[i], 0);
            ag_buffer_release(&a_owner);
            ag_buffer_release(&b_owner);
        }
    }
    ag_galloc_destroy(host);
}

static void ranges_of_one_buffer_may_overlap(void **state) {
    (void)state;
    const struct {
        size_t to, from, n;
    } moves[] = {{0, 1, 999}, {1, 0, 999}, {100, 300, 600}, {300, 100, 600}, {5, 5, 10}};
    for (size_t m = 0; m < sizeof moves / sizeof moves[0]; m++) {
        int32_t x[N], y[N];
        fill(x);
        ag_buffer *owner;
        ag_tensor t = tensor_in(ag_backend_memory(be), &owner);
        assert_int_equal(ag_buffer_upload(owner, 0, x, sizeof x, NULL), AG_OK);
        assert_int_equal(ag_copy_slice(be, &t, moves[m].to, &t, moves[m].from, moves[m].n), AG_OK);
        memmove(x + moves[m].to, x + moves[m].from, moves[m].n * sizeof *x);
        assert_int_equal(ag_read(be, y, &t, sizeof y), AG_OK);
        assert_memory_equal(y, x, sizeof x);
        ag_buffer_release(&owner);
    }
}

static void rejects_a_slice_past_the_end(void **state) {
    (void)state;
    ag_buffer *owner;
    ag_tensor t = tensor_in(ag_backend_memory(be), &owner);
    assert_int_equal(ag_copy_slice(be, &t, 0, &t, 900, 101), AG_SHAPE);
    unsigned char byte;
    assert_int_equal(ag_buffer_download(&byte, owner, sizeof(int32_t) * N, 1, NULL), AG_INVALID);
    ag_buffer_release(&owner);
}

/* ---- launches ---- */

static ag_status scale(ag_tensor *x, float v) {
    ag_cl_launch l;
    ag_status st = ag_cl_begin(&l, ag_cl_of(be), "rows.cl", "scale", NULL);
    if (st != AG_OK) return st;
    ag_cl_arg_tensor(&l, x);
    ag_cl_arg_u64(&l, N);
    ag_cl_arg_f32(&l, v);
    return ag_cl_enqueue(&l, 1, (size_t[]){1024}, (size_t[]){64});
}

static void kernel_computes_on_a_tensor(void **state) {
    (void)state;
    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i;
    ag_buffer *owner;
    ag_tensor t = tensor_in(ag_backend_memory(be), &owner);
    assert_int_equal(ag_buffer_upload(owner, 0, x, sizeof x, NULL), AG_OK);
    assert_int_equal(scale(&t, 0.5f), AG_OK);
    assert_int_equal(ag_read(be, y, &t, sizeof y), AG_OK);
    for (int i = 0; i < N; i++) assert_true(y[i] == x[i] * 0.5f);
    ag_buffer_release(&owner);
}

static void rejects_a_host_tensor_as_kernel_argument(void **state) {
    (void)state;
    ag_memory *host;
    ag_buffer *owner;
    assert_int_equal(ag_galloc_create(&host, NULL), AG_OK);
    ag_tensor t = tensor_in(host, &owner);
    assert_int_equal(scale(&t, 1), AG_DEVICE);
    assert_non_null(strstr(ag_backend_error(be)->msg, "argument 0 of kernel scale (rows.cl)"));
    assert_non_null(strstr(ag_backend_error(be)->msg, "CL_INVALID_MEM_OBJECT"));
    ag_buffer_release(&owner);
    ag_galloc_destroy(host);
}

static void staged_arrays_are_found_again(void **state) {
    (void)state;
    ag_cl_backend *cl = ag_cl_of(be);
    uint32_t positions[] = {4, 5, 6}, other[] = {7, 8, 9}, back[3];
    cl_mem mem;
    size_t first, second, third;
    assert_int_equal(ag_cl_stage(cl, positions, sizeof positions, &mem, &first, NULL), AG_OK);
    assert_int_equal(ag_cl_stage(cl, other, sizeof other, &mem, &second, NULL), AG_OK);
    assert_int_equal(ag_cl_stage(cl, positions, sizeof positions, &mem, &third, NULL), AG_OK);
    assert_int_equal(first, third);
    assert_int_not_equal(first, second);
    assert_int_equal(cl->api.clEnqueueReadBuffer(cl->queue, mem, CL_TRUE, second, sizeof back, back,
                                                 0, NULL, NULL),
                     CL_SUCCESS);
    assert_memory_equal(back, other, sizeof other);
}

/* A staged array that is reused must keep its bytes until its launch, whatever is staged next. */
static void a_reused_array_keeps_its_bytes_until_its_launch(void **state) {
    (void)state;
    ag_cl_backend *cl = ag_cl_of(be);
    const size_t half = cl->staging.bytes / 2, most = half - 4096;
    unsigned char *filler = calloc(half, 1), a[1000], back[1000];
    memset(a, 77, sizeof a);
    cl_mem mem;
    size_t offset;
    for (int round = 0; round < 4; round++) {
        assert_int_equal(ag_cl_stage(cl, a, sizeof a, &mem, &offset, NULL), AG_OK);
        filler[0] = (unsigned char)(round + 1);
        assert_int_equal(ag_cl_stage(cl, filler, most, &mem, &offset, NULL), AG_OK);
        /* One launch with both: */
        filler[0] = (unsigned char)(round + 101);
        assert_int_equal(ag_cl_stage(cl, a, sizeof a, &mem, &offset, NULL), AG_OK);
        size_t beside;
        assert_int_equal(ag_cl_stage(cl, filler, most, &mem, &beside, NULL), AG_OK);
        assert_int_equal(cl->api.clEnqueueReadBuffer(cl->queue, mem, CL_TRUE, offset, sizeof a,
                                                     back, 0, NULL, NULL),
                         CL_SUCCESS);
        assert_memory_equal(back, a, sizeof a);
    }
    free(filler);
}

static void ring_grows_for_a_large_array(void **state) {
    (void)state;
    ag_cl_backend *cl = ag_cl_of(be);
    size_t n = cl->staging.bytes;
    unsigned char *bytes = malloc(n), *back = malloc(n);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(i / 1000);
    cl_mem mem;
    size_t offset;
    assert_int_equal(ag_cl_stage(cl, bytes, n, &mem, &offset, NULL), AG_OK);
    assert_int_equal(
        cl->api.clEnqueueReadBuffer(cl->queue, mem, CL_TRUE, offset, n, back, 0, NULL, NULL),
        CL_SUCCESS);
    assert_memory_equal(bytes, back, n);
    free(bytes);
    free(back);
}

static void read_rate_is_measured_without_a_leak(void **state) {
    (void)state;
    double rate = 0;
    size_t before = ag_memory_bytes_in_use(ag_backend_memory(be));
    assert_int_equal(ag_backend_read_rate(be, &rate), AG_OK);
    assert_true(rate > 1e6 && rate < 1e14);
    assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(be)), before);
}

int main(void) {
    be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_in_use_follow_the_buffers),
        cmocka_unit_test(rejects_more_memory_than_the_device_has),
        cmocka_unit_test(new_buffer_is_zero),
        cmocka_unit_test(bytes_come_back_as_they_went),
        cmocka_unit_test(many_small_uploads_keep_apart),
        cmocka_unit_test(uploaded_rows_equal_those_of_the_host),
        cmocka_unit_test(slices_are_copied_between_host_and_device),
        cmocka_unit_test(ranges_of_one_buffer_may_overlap),
        cmocka_unit_test(rejects_a_slice_past_the_end),
        cmocka_unit_test(kernel_computes_on_a_tensor),
        cmocka_unit_test(rejects_a_host_tensor_as_kernel_argument),
        cmocka_unit_test(staged_arrays_are_found_again),
        cmocka_unit_test(a_reused_array_keeps_its_bytes_until_its_launch),
        cmocka_unit_test(read_rate_is_measured_without_a_leak),
        cmocka_unit_test(ring_grows_for_a_large_array),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(be);
    return failed;
}
