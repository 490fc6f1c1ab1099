/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are packed for tensor cores when they are computed: products of them have the bits of
 * products of a copy, and no command between makes them stale. */
#include "backend/opencl/ops.h"
#include "core/backend_ops.h"
#include "memory/galloc.h"
#include "unit/float_tensor.h"
#include "unit/opencl_device.h"

#include <antigravity/alloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { M = 9, N = 40, MOST_K = 8256 }; /* a row of MOST_K has two pieces for a work-item */

static ag_backend *device;
static ag_memory *host;
static float values[4][M * MOST_K], w_values[N * MOST_K];

/* Tensors of a case: rows that are computed from others, a weight, and products. */
typedef struct set {
    size_t k;
    ag_tensor y, x, add, scale, w, product, copy;
    ag_buffer *owners[7];
} set;

static void release(set *s) {
    for (size_t i = 0; i < sizeof s->owners / sizeof *s->owners; i++) {
        ag_buffer_release(&s->owners[i]);
    }
}

static void read_floats(float *out, const ag_tensor *t) {
    const size_t bytes = ag_shape_numel(&t->shape) * sizeof *out;
    assert_int_equal(ag_read(device, out, t, bytes), AG_OK);
}

static void multiply(set *s, const ag_tensor *x, float *out) {
    assert_int_equal(ag_matmul_transposed(device, &s->product, x, &s->w), AG_OK);
    read_floats(out, &s->product);
}

static void make(set *s, size_t k, ag_dtype type) {
    ag_memory *memory = ag_backend_memory(device);
    static float zeros[M * N];
    ag_buffer *source_owner;
    const ag_tensor source = float_tensor(host, &source_owner, w_values, N, k);
    s->k = k;
    s->y = float_tensor(memory, &s->owners[0], values[3], M, k);
    s->x = float_tensor(memory, &s->owners[1], values[0], M, k);
    s->add = float_tensor(memory, &s->owners[2], values[1], M, k);
    s->scale = float_tensor(memory, &s->owners[3], values[2], 1, k);
    s->scale.shape = ag_shape_1d(k);
    s->product = float_tensor(memory, &s->owners[4], NULL, M, N);
    s->copy = float_tensor(memory, &s->owners[5], NULL, M, k);
    assert_int_equal(ag_prepare_weight(device, &s->w, &s->owners[6], &source, type, NULL, NULL),
                     AG_OK);
    ag_buffer_release(&source_owner);
    multiply(s, &s->copy, zeros); /* now tensor cores are checked, and the order of w is known */
}

/* Returns the number of launches of the kernel since the last call of this function. */
static size_t count_launches(const char *kernel) {
    ag_launch_info kinds[16];
    size_t n, found = 0;
    assert_int_equal(ag_backend_launches(device, kinds, 16, &n), AG_OK);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(kinds[i].name, kernel, strlen(kernel)) == 0) found += kinds[i].n;
    }
    return found;
}

/* Checks that the product of s->y has the bits of that of a copy. */
static void check_product(set *s, size_t packs) {
    static float have[M * N], want[M * N], y[M * MOST_K];
    (void)count_launches("");
    multiply(s, &s->y, have);
    assert_int_equal(count_launches("pack_rows"), packs);
    read_floats(y, &s->y);
    assert_int_equal(ag_buffer_upload(s->owners[5], 0, y, M * s->k * sizeof *y, NULL), AG_OK);
    multiply(s, &s->copy, want);
    assert_int_equal(count_launches("pack_rows"), 1);
    assert_memory_equal(have, want, sizeof have);
    assert_true(fabsf(have[0]) > 0);
}

static void norm(set *s) {
    assert_int_equal(ag_buffer_upload(s->owners[1], 0, values[0], M * s->k * sizeof(float), NULL),
                     AG_OK);
    assert_int_equal(ag_add_rms_norm(device, &s->y, &s->x, &s->add, &s->scale, 1e-5f), AG_OK);
}

static void check_norm(set *s) {
    static float have[M * MOST_K], sums[M * MOST_K];
    read_floats(have, &s->y);
    read_floats(sums, &s->x);
    for (size_t r = 0; r < M; r++) {
        const float *x = values[0] + r * s->k, *add = values[1] + r * s->k;
        double squares = 0;
        for (size_t i = 0; i < s->k; i++) {
            assert_true(sums[r * s->k + i] == x[i] + add[i]);
            squares += ((double)x[i] + add[i]) * ((double)x[i] + add[i]);
        }
        const double factor = 1 / sqrt(squares / (double)s->k + 1e-5);
        for (size_t i = 0; i < s->k; i++) {
            const double want = ((double)x[i] + add[i]) * factor * values[2][i];
            assert_true(fabs(have[r * s->k + i] - want) <= 1e-5 * (fabs(want) + 1e-2));
        }
    }
}

/* Runs first, since the memory of packed rows only grows. */
static void packed_rows_have_two_bytes_for_blocks_and_four_for_floats(void **state) {
    (void)state;
    enum { ROUNDING = 256, FACTORS = M * sizeof(float), PAST_LAST = 128 * 128 };
    set s;
    make(&s, MOST_K, AG_Q4_0);
    assert_in_range(ag_cl_of(device)->packed.bytes, 2 * M * MOST_K,
                    2 * M * MOST_K + ROUNDING + FACTORS + PAST_LAST);
    release(&s);
    make(&s, MOST_K, AG_BF16);
    assert_in_range(ag_cl_of(device)->packed.bytes, 4 * M * MOST_K,
                    4 * M * MOST_K + ROUNDING + FACTORS + PAST_LAST);
    release(&s);
}

static void products_of_norms_and_gates_have_the_bits_of_a_copy(void **state) {
    (void)state;
    static const size_t sizes[] = {320, MOST_K};
    static const ag_dtype types[] = {AG_Q4_0, AG_BF16};
    set s;
    for (size_t i = 0; i < 4; i++) {
        make(&s, sizes[i / 2], types[i % 2]);
        check_product(&s, 1);
        norm(&s);
        check_product(&s, 0);
        check_norm(&s);
        assert_int_equal(ag_silu_mul(device, &s.y, &s.x), AG_OK);
        check_product(&s, 0);
        assert_int_equal(ag_gelu_mul(device, &s.y, &s.add), AG_OK);
        check_product(&s, 0);
        release(&s);
    }
}

static void a_change_of_the_rows_is_seen(void **state) {
    (void)state;
    set s;
    make(&s, 320, AG_Q4_0);
    check_product(&s, 1);
    norm(&s);
    assert_int_equal(ag_scale(device, &s.y, 3), AG_OK);
    check_product(&s, 1);
    norm(&s);
    assert_int_equal(ag_buffer_upload(s.owners[0], 0, values[3], 100, NULL), AG_OK);
    check_product(&s, 1);
    norm(&s);
    assert_int_equal(ag_copy_slice(device, &s.y, 0, &s.add, 0, 100), AG_OK);
    check_product(&s, 1);
    norm(&s);
    check_product(&s, 0);
    check_product(&s, 1); /* the copy's rows are packed now */
    release(&s);
}

static void another_order_is_packed_again(void **state) {
    (void)state;
    set s, other;
    make(&s, 320, AG_Q4_0);
    make(&other, 320, AG_F16);
    check_product(&s, 1);
    norm(&other); /* for weights as those of s */
    check_product(&other, 1);
    norm(&other);
    check_product(&other, 0);
    release(&s);
    release(&other);
}

/* Allocator that makes the next block of a size from a block that was released. */
typedef struct reuse {
    void *block; /* before its release: the block to reuse; NULL after its reuse */
    size_t bytes;
    bool is_free;
} reuse;

static void *reuse_alloc(void *user, size_t bytes) {
    reuse *r = user;
    if (!r->is_free || bytes != r->bytes) return malloc(bytes);
    r->is_free = false;
    return r->block;
}

static void *reuse_resize(void *user, void *p, size_t bytes) {
    (void)user;
    return realloc(p, bytes);
}

static void reuse_release(void *user, void *p) {
    reuse *r = user;
    if (p == r->block) r->is_free = true;
    else free(p);
}

static void a_new_buffer_with_the_address_of_a_packed_one_is_packed(void **state) {
    (void)state;
    static float products[M * N];
    static const float zeros[M * N];
    set s;
    make(&s, 320, AG_Q4_0);
    norm(&s);
    reuse r = {.block = s.owners[0], .bytes = sizeof(ag_cl_buffer)};
    ag_set_allocator(&(ag_allocator){reuse_alloc, reuse_resize, reuse_release, &r});
    ag_buffer_release(&s.owners[0]);
    s.y = float_tensor(ag_backend_memory(device), &s.owners[0], NULL, M, s.k);
    ag_set_allocator(NULL);
    assert_ptr_equal(s.owners[0], r.block);
    multiply(&s, &s.y, products);
    assert_memory_equal(products, zeros, sizeof zeros);
    release(&s);
}

int main(void) {
    const ag_backend_params params = {.time_launches = true};
    ag_error err;
    uint32_t random = 3;
    setenv("AG_OPENCL_LANES", "1", 1);
    setenv("AG_OPENCL_MMA", "1", 1);
    for (size_t i = 0; i < 4 * M * MOST_K; i++) {
        values[i % 4][i / 4] =
            (float)(int32_t)(random = random * 1664525u + 1013904223u) * 0x1p-31f;
    }
    for (size_t i = 0; i < N * MOST_K; i++) {
        w_values[i] = (float)(int32_t)(random = random * 1664525u + 1013904223u) * 0x1p-31f;
    }
    if (ag_cl_backend_create(&params, &device, &err) != AG_OK) {
        printf("skipped: %s\n", err.msg);
        return EXIT_SKIPPED;
    }
    if (ag_galloc_create(&host, NULL) != AG_OK) return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_rows_have_two_bytes_for_blocks_and_four_for_floats),
        cmocka_unit_test(products_of_norms_and_gates_have_the_bits_of_a_copy),
        cmocka_unit_test(a_change_of_the_rows_is_seen),
        cmocka_unit_test(another_order_is_packed_again),
        cmocka_unit_test(a_new_buffer_with_the_address_of_a_packed_one_is_packed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_galloc_destroy(host);
    ag_backend_destroy(device);
    return failed;
}
