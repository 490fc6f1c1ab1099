/* SPDX-License-Identifier: Apache-2.0 */
/* Tests weights prepared by several host threads. For any number of threads, the device's bytes
 * equal those prepared row by row. */
#include "backend/opencl/ops.h"
#include "memory/galloc.h"
#include "quant/superblock.h"
#include "unit/opencl_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Several times the rows in flight, and a remainder. */
enum { ROWS = 5003, COLS = 1056, HALF = 2 };

static ag_memory *host;
static ag_buffer *source_owner;
static ag_tensor source; /* [ROWS, COLS] F32 */

static ag_backend *open_with(uint32_t threads) {
    const ag_backend_params params = {.name = "opencl", .n_threads = threads};
    ag_backend *be;
    assert_int_equal(ag_backend_create(&params, &be, NULL), AG_OK);
    return be;
}

static int setup(void **state) {
    (void)state;
    uint32_t random = 7;
    assert_int_equal(ag_galloc_create(&host, NULL), AG_OK);
    assert_int_equal(ag_tensor_alloc(&source, &source_owner, host, AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_2d(ROWS, COLS), NULL),
                     AG_OK);
    float *values = ag_tensor_f32(&source);
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++) {
        random = random * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)random * 0x1p-32f;
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ag_buffer_release(&source_owner);
    ag_galloc_destroy(host);
    return 0;
}

/* ---- one row as kernels/weights.cl describes it, element by element ---- */

static void levels_of(uint8_t *q, ag_dtype type, const unsigned char *block) {
    const size_t halves = type == AG_Q4_1 || type == AG_Q5_1 ? 2 : 1;
    const unsigned char *bits = block + (type == AG_MXFP4 ? 1 : halves * HALF);
    ag_block_q3_k three;
    ag_block_q5_k five;
    ag_block_q6_k six;
    memcpy(&three, block, type == AG_Q3_K ? sizeof three : 0);
    memcpy(&five, block, type == AG_Q5_K ? sizeof five : 0);
    memcpy(&six, block, type == AG_Q6_K ? sizeof six : 0);
    if (type == AG_Q2_K) ag_get_fields(q, block + 16, 2, 32);
    else if (type == AG_Q3_K) ag_q3_k_levels(q, &three);
    else if (type == AG_Q4_K) ag_get_fields(q, block + 16, 4, 32);
    else if (type == AG_Q5_K) ag_q5_k_levels(q, &five);
    else if (type == AG_Q6_K) ag_q6_k_levels(q, &six);
    else if (type == AG_Q8_0) memcpy(q, bits, AG_QK);
    else {
        const bool has_qh = type == AG_Q5_0 || type == AG_Q5_1;
        for (unsigned i = 0; i < AG_QK; i++) {
            const unsigned pair = bits[(has_qh ? AG_QK / 8 : 0) + i % 16];
            q[i] = (uint8_t)((i < 16 ? pair : pair >> 4) & 15);
            if (has_qh) q[i] |= (uint8_t)((bits[i / 8] >> i % 8 & 1) << 4);
        }
    }
}

/* Writes two bits of element i to eight bytes that hold two bits of each of 32 elements. */
static void put_two_bits(unsigned char *out, size_t i, unsigned bits) {
    out[i / 16 * 4 + i % 4] |= (unsigned char)(bits << i % 16 / 4 * 2);
}

/* Element i of block b of all; high: bits of a level above its nibble, or above its lowest two. */
static void put_level(unsigned char *out, ag_dtype type, size_t high, size_t all, size_t b,
                      size_t i, unsigned level) {
    if (type == AG_Q8_0) {
        out[b * AG_QK + i] = (unsigned char)level;
        return;
    }
    const bool two = type == AG_Q2_K || type == AG_Q3_K;
    const unsigned above = level >> (two ? 2 : 4);
    if (two) put_two_bits(out + b * 8, i, level & 3);
    else out[b * 16 + i % 16] |= (unsigned char)((level & 15) << i / 16 * 4);
    out += all * (two ? 8 : 16) + b * 4 * high;
    if (high == 1) out[i % 4] |= (unsigned char)(above << i / 4);
    if (high == 2) put_two_bits(out, i, above);
}

/* Writes the factors of block b of the file. The tensor has n blocks of 32. */
static void put_factors(unsigned char *out, ag_dtype type, size_t n, size_t b,
                        const unsigned char *block) {
    uint8_t sc[8], m[8];
    if (type == AG_MXFP4) {
        out[b] = block[0];
    } else if (type == AG_Q2_K) {
        memcpy(out + b * 16, block, 16);
        memcpy(out + n * 2 + b * 2 * HALF, block + 80, 2 * HALF);
    } else if (type == AG_Q3_K) {
        ag_q3_k_scales((int8_t *)out + b * 16, block + 96);
        memcpy(out + n * 2 + b * HALF, block + 108, HALF);
    } else if (type == AG_Q6_K) {
        memcpy(out + b * 16, block + 192, 16);
        memcpy(out + n * 2 + b * HALF, block + 208, HALF);
    } else if (ag_dtype_block(type) == AG_QK_K) {
        ag_q4_k_scales(sc, m, block + 2 * HALF);
        for (size_t i = 0; i < 8; i++) {
            out[b * 16 + 2 * i] = sc[i];
            out[b * 16 + 2 * i + 1] = m[i];
        }
        memcpy(out + n * 2 + b * 2 * HALF, block, 2 * HALF);
    } else {
        memcpy(out + b * HALF, block, HALF);
        if (type == AG_Q4_1 || type == AG_Q5_1) memcpy(out + (n + b) * HALF, block + HALF, HALF);
    }
}

static void take_apart(unsigned char *out, ag_dtype type, size_t k, size_t row, size_t scales_at,
                       const unsigned char *packed) {
    const size_t each = ag_dtype_block(type), blocks = k / each, all = ROWS * k / AG_QK;
    const size_t one = type == AG_Q5_0 || type == AG_Q5_1 || type == AG_Q5_K || type == AG_Q3_K;
    for (size_t i = 0; i < blocks; i++) {
        const unsigned char *block = packed + i * ag_dtype_block_bytes(type);
        uint8_t q[AG_QK_K];
        levels_of(q, type, block);
        for (size_t e = 0; e < each; e++) {
            put_level(out, type, type == AG_Q6_K ? 2 : one, all, (row * k + i * each + e) / AG_QK,
                      e % AG_QK, q[e]);
        }
        put_factors(out + scales_at, type, all, row * blocks + i, block);
    }
}

/* Rows of floats are padded with zeros to a multiple of 32. */
static size_t cols_of(ag_dtype want) {
    const size_t block = ag_dtype_block(want);
    return block > 1 ? COLS / block * block : COLS - 6;
}

static unsigned char *expected_bytes(ag_dtype want, size_t n) {
    const size_t k = cols_of(want), at = ag_cl_prepared_scales(want, ROWS, k);
    unsigned char *out = calloc(n, 1), packed[COLS * sizeof(float)];
    float values[COLS];
    assert_non_null(out);
    for (size_t row = 0; row < ROWS; row++) {
        assert_int_equal(ag_convert_row(want, packed, AG_F32, ag_tensor_f32(&source) + row * k,
                                        values, k, AG_ROUND_WEIGHT, NULL),
                         AG_OK);
        if (ag_dtype_is_quantized(want)) take_apart(out, want, k, row, at, packed);
        else memcpy(out + row * COLS * HALF, packed, k * HALF);
    }
    return out;
}

static bool count_rows(void *user, size_t row0, size_t n) {
    unsigned char *seen = user;
    for (size_t i = row0; i < row0 + n; i++) seen[i]++;
    return true;
}

static void bytes_are_independent_of_the_number_of_threads(void **state) {
    (void)state;
    static unsigned char seen[ROWS];
    const ag_dtype types[] = {AG_Q4_0, AG_Q4_1,   AG_Q8_0,  AG_Q5_0, AG_Q5_1, AG_Q4_K, AG_Q5_K,
                              AG_Q6_K, AG_IQ4_NL, AG_MXFP4, AG_F16,  AG_Q2_K, AG_Q3_K};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const size_t k = cols_of(types[t]), n = ag_cl_prepared_bytes(NULL, types[t], ROWS, k);
        const size_t in_file = ROWS * ag_dtype_row_bytes(types[t], k), most = in_file / 100 * 104;
        ag_tensor src;
        if (ag_dtype_is_quantized(types[t])) assert_in_range(n, in_file, most);
        assert_int_equal(ag_tensor_make(&src, AG_F32, ag_shape_2d(ROWS, k), source_owner, 0, NULL),
                         AG_OK);
        unsigned char *want = expected_bytes(types[t], n), *found = malloc(n);
        assert_non_null(found);
        for (uint32_t threads = 1; threads <= 5; threads += 2) {
            ag_backend *be = open_with(threads);
            ag_tensor w;
            ag_buffer *owner;
            memset(seen, 0, sizeof seen);
            assert_int_equal(ag_prepare_weight(be, &w, &owner, &src, types[t], count_rows, seen),
                             AG_OK);
            assert_int_equal(ag_buffer_size(owner), n);
            assert_int_equal(ag_buffer_download(found, owner, 0, n, NULL), AG_OK);
            assert_memory_equal(found, want, n);
            for (size_t i = 0; i < ROWS; i++) assert_int_equal(seen[i], 1);
            ag_buffer_release(&owner);
            ag_backend_destroy(be);
        }
        free(found);
        free(want);
    }
}

static void names_the_first_bad_weight_on_any_thread_count(void **state) {
    (void)state;
    float *values = ag_tensor_f32(&source);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        ag_backend *be = open_with(threads);
        const size_t in_use = ag_memory_bytes_in_use(ag_backend_memory(be));
        ag_tensor w;
        ag_buffer *owner;
        for (size_t row = 4100; row < ROWS; row += 7) values[row * COLS + 9] = NAN;
        assert_int_equal(ag_prepare_weight(be, &w, &owner, &source, AG_Q4_0, NULL, NULL),
                         AG_FORMAT);
        assert_null(owner);
        assert_string_equal(ag_backend_error(be)->msg,
                            "row 4100, column 9: nan cannot be kept as q4_0");
        for (size_t row = 4100; row < ROWS; row += 7) values[row * COLS + 9] = 0.25f;
        assert_int_equal(ag_prepare_weight(be, &w, &owner, &source, AG_Q4_0, NULL, NULL), AG_OK);
        ag_buffer_release(&owner);
        assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(be)), in_use);
        ag_backend_destroy(be);
    }
}

/* No such type gets past core today: a new one does, before it has kernels. */
static void names_rejected_types_without_kernels(void **state) {
    (void)state;
    ag_backend *be = open_with(1);
    ag_tensor w, y = source, x = source, ids = source;
    ag_buffer *owner;
    ids.dtype = AG_I32;
    assert_int_equal(be->ops->prepare_weight(be, &w, &owner, &source, AG_I32, NULL, NULL),
                     AG_UNSUPPORTED);
    assert_string_equal(ag_backend_error(be)->msg,
                        "the OpenCL backend has no kernels for weights as i32");
    assert_int_equal(be->ops->matmul_transposed(be, &y, &x, &ids), AG_UNSUPPORTED);
    const ag_attention_seq seq = {
        .n_rows = 1, .kv = {.k_type = AG_F16, .v_type = AG_U8, .n_kv_heads = 1, .head_dim = 32}};
    assert_int_equal(be->ops->kv_write(be, &seq, 1, &x, &x), AG_UNSUPPORTED);
    assert_string_equal(ag_backend_error(be)->msg,
                        "the OpenCL backend has no kernels for a cache as u8");
    ag_backend_destroy(be);
}

int main(void) {
    ag_backend *be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    ag_backend_destroy(be);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_independent_of_the_number_of_threads),
        cmocka_unit_test(names_the_first_bad_weight_on_any_thread_count),
        cmocka_unit_test(names_rejected_types_without_kernels),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
