/* SPDX-License-Identifier: Apache-2.0 */
/* The device writes the same bytes into a cache as the CPU backend. Values out of the type's
 * range become NaN. */
#include "quant/quant.h"
#include "support/dtypes.h"
#include "unit/opencl_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 100, HEADS = 2, DIM = 64, HELD = 90, N_VALUES = N * HEADS * DIM };
enum { PART = AG_KV_BLOCK * DIM * 4, BLOCK_BYTES = 3 * PART, EACH = 2, N_BLOCKS = HEADS * EACH };

static ag_backend *device, *cpu;
static uint32_t held[HEADS] = {HELD, HELD - 7};

/* All magnitudes of halves, signs, zeros, blocks of zeros and single values among them. */
static void fill(float *values, uint32_t seed) {
    uint64_t state = seed;
    for (size_t i = 0; i < N_VALUES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const int exponent = (int)(i / AG_QK % 32) - 20 - (int)(state >> 61);
        const float v = (float)(int32_t)(state >> 32) * 0x1p-31f;
        values[i] = state >> 40 & 15 ? ldexpf(v, exponent) : 0;
        if (i / AG_QK % 11 == 5) values[i] = i % AG_QK == 17 ? v : 0;
    }
}

/* Reads the blocks of a cache after the tokens were written. */
static void write_tokens(ag_backend *be, ag_dtype type, const float *values, unsigned char *out) {
    ag_error err;
    ag_buffer *blocks, *owner;
    ag_tensor t;
    uint32_t positions[N];
    for (uint32_t i = 0; i < N; i++) positions[i] = 3 * i + 5;
    ag_memory *memory = ag_backend_memory(be);
    assert_int_equal(ag_memory_alloc(memory, N_BLOCKS * BLOCK_BYTES, AG_USAGE_KV, &blocks, &err),
                     AG_OK);
    assert_int_equal(ag_tensor_alloc(&t, &owner, memory, AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(N, HEADS, DIM), &err),
                     AG_OK);
    assert_int_equal(ag_buffer_upload(owner, 0, values, N_VALUES * sizeof *values, &err), AG_OK);
    /* The first blocks of the heads are neighbours, the second ones are not, and the other way
     * round. */
    const ag_kv_block places[N_BLOCKS] = {
        {blocks, 0}, {blocks, 3 * BLOCK_BYTES}, {blocks, BLOCK_BYTES}, {blocks, 2 * BLOCK_BYTES}};
    const ag_kv_view kv = {.k_type = type,
                           .v_type = type,
                           .n_kv_heads = HEADS,
                           .head_dim = DIM,
                           .v_offset = PART,
                           .p_offset = 2 * PART,
                           .blocks = places,
                           .blocks_per_head = EACH,
                           .n_slots = held};
    if (ag_kv_write(be, &kv, &t, &t, positions) != AG_OK) fail_msg("%s", ag_backend_error(be)->msg);
    assert_int_equal(ag_sync(be), AG_OK);
    assert_int_equal(ag_buffer_download(out, blocks, 0, N_BLOCKS * BLOCK_BYTES, &err), AG_OK);
    ag_buffer_release(&owner);
    ag_buffer_release(&blocks);
}

static void writes_the_same_bytes_as_the_cpu(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_CACHE);
    float *values = malloc(N_VALUES * sizeof *values);
    unsigned char *want = malloc(N_BLOCKS * BLOCK_BYTES), *have = malloc(N_BLOCKS * BLOCK_BYTES);
    assert_true(values && want && have);
    for (uint32_t i = 0; i < types.n; i++) {
        fill(values, i + 1);
        write_tokens(cpu, types.v[i], values, want);
        write_tokens(device, types.v[i], values, have);
        assert_memory_equal(have, want, N_BLOCKS * BLOCK_BYTES);
    }
    free(have);
    free(want);
    free(values);
}

static void writes_nan_for_values_out_of_range(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_CACHE);
    const float bad[] = {NAN, INFINITY, -INFINITY, 1e9f};
    float *values = calloc(N_VALUES, sizeof *values), row[DIM];
    unsigned char *have = malloc(N_BLOCKS * BLOCK_BYTES);
    assert_true(values && have);
    for (uint32_t i = 0; i < types.n * 4; i++) {
        const ag_dtype type = types.v[i / 4];
        values[40] = bad[i % 4]; /* the first token's first head */
        write_tokens(device, type, values, have);
        ag_dequantize_row(type, row, have + HELD * ag_dtype_row_bytes(type, DIM), DIM);
        if (type == AG_F32 && i % 4 == 3) assert_true(row[40] == bad[3]);
        else assert_true(isnan(row[40]));
        assert_true(row[0] == 0);
    }
    free(have);
    free(values);
}

/* Writes a token into a block of its own for each head, each in a buffer of its own. */
static ag_status write_apart(uint32_t heads) {
    enum { MOST = AG_KV_BUFFERS + 1 };
    const ag_kv_sections parts = ag_kv_sections_of(AG_F32, AG_F32, 8);
    ag_memory *memory = ag_backend_memory(device);
    ag_kv_block blocks[MOST];
    float values[MOST * 8];
    const uint32_t none[MOST] = {0}, position = 7;
    ag_buffer *owner;
    ag_tensor t;
    ag_error err;
    for (uint32_t i = 0; i < heads * 8; i++) values[i] = (float)i;
    for (uint32_t h = 0; h < heads; h++) {
        blocks[h].offset = 64;
        assert_int_equal(
            ag_memory_alloc(memory, 64 + parts.bytes, AG_USAGE_KV, &blocks[h].buffer, &err), AG_OK);
    }
    assert_int_equal(ag_tensor_alloc(&t, &owner, memory, AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(1, heads, 8), &err),
                     AG_OK);
    assert_int_equal(ag_buffer_upload(owner, 0, values, heads * 8 * sizeof *values, &err), AG_OK);
    const ag_kv_view kv = {.k_type = AG_F32,
                           .v_type = AG_F32,
                           .n_kv_heads = heads,
                           .head_dim = 8,
                           .v_offset = parts.v_offset,
                           .p_offset = parts.p_offset,
                           .blocks = blocks,
                           .blocks_per_head = 1,
                           .n_slots = none};
    const ag_status st = ag_kv_write(device, &kv, &t, &t, &position);
    for (uint32_t h = 0; h < heads; h++) {
        float key[8], value[8];
        const size_t v = 64 + parts.v_offset;
        ag_buffer *b = blocks[h].buffer;
        assert_int_equal(ag_buffer_download(key, b, 64, sizeof key, &err), AG_OK);
        assert_int_equal(ag_buffer_download(value, b, v, sizeof value, &err), AG_OK);
        if (st == AG_OK) assert_memory_equal(key, values + h * 8, sizeof key);
        if (st == AG_OK) assert_memory_equal(value, values + h * 8, sizeof value);
        ag_buffer_release(&b);
    }
    ag_buffer_release(&owner);
    return st;
}

static void writes_blocks_in_several_buffers(void **state) {
    (void)state;
    assert_int_equal(write_apart(AG_KV_BUFFERS), AG_OK);
    assert_int_equal(write_apart(AG_KV_BUFFERS + 1), AG_LIMIT);
    assert_non_null(strstr(ag_backend_error(device)->msg, "more than 16 buffers"));
    assert_int_equal(write_apart(3), AG_OK);
}

/* ---- several caches ---- */

enum { CACHES = 4, ROWS = 1 + 0 + 3 + 70, CACHE_BYTES = N_BLOCKS * BLOCK_BYTES };
enum { ROW_BYTES = (1 + ROWS) * HEADS * DIM * 4, HALF = 24 /* pairs of a head; 16 values stay */ };
static const uint32_t new_rows[CACHES] = {1, 0, 3, 70};
static const uint32_t old_slots[CACHES][HEADS] = {{5, 0}, {9, 9}, {126, 127}, {128, 60}};

static ag_tensor rows_in(ag_backend *be, ag_buffer **owner, const float *values) {
    ag_tensor t;
    ag_error err;
    assert_int_equal(ag_tensor_alloc(&t, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(1 + ROWS, HEADS, DIM), &err),
                     AG_OK);
    assert_int_equal(ag_buffer_upload(*owner, 0, values, ROW_BYTES, &err), AG_OK);
    return t;
}

/* Writes rows after a first one that belongs to no sequence, and reads all blocks. q: NULL, or rows
 * that are rotated as the keys are. */
static void write_caches(ag_backend *be, ag_dtype type, const float *values, float *q,
                         unsigned char *out) {
    ag_memory *memory = ag_backend_memory(be);
    ag_attention_seq seqs[CACHES];
    ag_kv_block blocks[CACHES][N_BLOCKS];
    ag_buffer *owner[4], *storage;
    uint32_t positions[1 + ROWS];
    ag_tensor inv_freq;
    ag_error err;
    assert_int_equal(ag_memory_alloc(memory, CACHES * CACHE_BYTES, AG_USAGE_KV, &storage, &err),
                     AG_OK);
    memset(out, 0, CACHES * CACHE_BYTES);
    assert_int_equal(ag_buffer_upload(storage, 0, out, CACHES * CACHE_BYTES, &err), AG_OK);
    ag_tensor k = rows_in(be, &owner[0], values), v = rows_in(be, &owner[1], values);
    ag_tensor queries = rows_in(be, &owner[2], values);
    assert_int_equal(ag_tensor_alloc(&inv_freq, &owner[3], ag_backend_memory(cpu), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_1d(HALF), &err),
                     AG_OK);
    const ag_rotation r = {.q = &queries, .inv_freq = &inv_freq, .factor = 1.5f};
    for (uint32_t i = 0; i < HALF; i++) ag_tensor_f32(&inv_freq)[i] = 1 / (float)(1 + i * i);
    for (uint32_t i = 0; i <= ROWS; i++) positions[i] = 1000 + 7 * i;
    for (size_t i = 0, row = 1; i < CACHES; row += new_rows[i++]) {
        for (size_t b = 0; b < N_BLOCKS; b++) {
            blocks[i][b] = (ag_kv_block){storage, ((N_BLOCKS - 1 - b) * CACHES + i) * BLOCK_BYTES};
        }
        seqs[i] = (ag_attention_seq){.row0 = row,
                                     .n_rows = new_rows[i],
                                     .visible_until = positions + row,
                                     .kv = {.k_type = type,
                                            .v_type = type,
                                            .n_kv_heads = HEADS,
                                            .head_dim = DIM,
                                            .v_offset = PART,
                                            .p_offset = 2 * PART,
                                            .blocks = blocks[i],
                                            .blocks_per_head = EACH,
                                            .n_slots = old_slots[i]}};
    }
    ag_status st = AG_OK;
    if (q && ag_has_rope_kv_write(be)) st = ag_rope_kv_write(be, seqs, CACHES, &r, &k, &v);
    else if (q) st = ag_rope_pair(be, &queries, &k, positions, &inv_freq, r.factor);
    if (st == AG_OK && !(q && ag_has_rope_kv_write(be))) {
        st = ag_kv_write_all(be, seqs, CACHES, &k, &v);
    }
    if (st != AG_OK) fail_msg("%s", ag_backend_error(be)->msg);
    assert_int_equal(ag_sync(be), AG_OK);
    if (q) assert_int_equal(ag_buffer_download(q, owner[2], 0, ROW_BYTES, &err), AG_OK);
    assert_int_equal(ag_buffer_download(out, storage, 0, CACHES * CACHE_BYTES, &err), AG_OK);
    for (size_t i = 0; i < 4; i++) ag_buffer_release(&owner[i]);
    ag_buffer_release(&storage);
}

static void writes_several_caches_in_one_launch(void **state) {
    (void)state;
    const dtype_set types = dtypes_with(AG_DTYPE_CACHE);
    float *values = malloc(N_VALUES * sizeof *values);
    unsigned char *want = malloc(CACHES * CACHE_BYTES), *have = malloc(CACHES * CACHE_BYTES);
    ag_launch_info kinds[8];
    size_t n_kinds;
    assert_true(values && want && have);
    for (uint32_t i = 0; i < types.n; i++) {
        fill(values, i + 1);
        write_caches(cpu, types.v[i], values, NULL, want);
        assert_int_equal(ag_backend_launches(device, kinds, 8, &n_kinds), AG_OK);
        write_caches(device, types.v[i], values, NULL, have);
        assert_memory_equal(have, want, CACHES * CACHE_BYTES);
        assert_int_equal(ag_backend_launches(device, kinds, 8, &n_kinds), AG_OK);
        assert_int_equal(n_kinds, 1);
        assert_int_equal(kinds[0].n, 1);
    }
    free(have);
    free(want);
    free(values);
}

/* Checks values, positions and, within the type's rounding, keys of all blocks. */
static void check_blocks(ag_dtype type, const unsigned char *have, const unsigned char *want) {
    static float x[AG_KV_BLOCK * DIM], y[AG_KV_BLOCK * DIM];
    const double step = type == AG_F32    ? 1e-5
                        : type == AG_F16  ? 2e-3
                        : type == AG_Q8_0 ? 0.04
                                          : 0.6;
    for (size_t b = 0; b < CACHES * N_BLOCKS; b++, have += BLOCK_BYTES, want += BLOCK_BYTES) {
        ag_dequantize_row(type, x, have, AG_KV_BLOCK * DIM);
        ag_dequantize_row(type, y, want, AG_KV_BLOCK * DIM);
        for (size_t i = 0; i < AG_KV_BLOCK * DIM; i++) assert_true(fabs(x[i] - y[i]) <= step);
        assert_memory_equal(have + PART, want + PART, BLOCK_BYTES - PART);
    }
}

static void rotates_queries_and_keys_in_the_same_launch(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    static float values[N_VALUES], q_have[N_VALUES], q_want[N_VALUES];
    static unsigned char want[CACHES * CACHE_BYTES], have[CACHES * CACHE_BYTES];
    ag_launch_info kinds[8];
    size_t n_kinds;
    for (size_t i = 0; i < N_VALUES; i++) values[i] = (float)((i * 37 + i / 7) % 101) / 50 - 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        write_caches(cpu, types[i], values, q_want, want);
        assert_int_equal(ag_backend_launches(device, kinds, 8, &n_kinds), AG_OK);
        write_caches(device, types[i], values, q_have, have);
        check_blocks(types[i], have, want);
        for (size_t c = 0; c < HEADS * DIM; c++) assert_true(q_have[c] == values[c]);
        for (size_t c = HEADS * DIM; c < ROW_BYTES / sizeof(float); c++) {
            assert_true(fabsf(q_have[c] - q_want[c]) <= 1e-5f);
        }
        assert_int_equal(ag_backend_launches(device, kinds, 8, &n_kinds), AG_OK);
        assert_int_equal(n_kinds, 1);
        assert_int_equal(kinds[0].n, 1);
    }
}

static void rejects_rows_beyond_the_tensor(void **state) {
    (void)state;
    float values[2 * 8] = {0};
    const uint32_t none = 0, positions[2] = {0, 1};
    ag_buffer *owner;
    ag_tensor t;
    ag_error err;
    assert_int_equal(ag_tensor_alloc(&t, &owner, ag_backend_memory(cpu), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(2, 1, 8), &err),
                     AG_OK);
    assert_int_equal(ag_buffer_upload(owner, 0, values, sizeof values, &err), AG_OK);
    const ag_attention_seq seq = {
        .row0 = 1,
        .n_rows = 2,
        .visible_until = positions,
        .kv = {
            .k_type = AG_F32, .v_type = AG_F32, .n_kv_heads = 1, .head_dim = 8, .n_slots = &none}};
    assert_int_equal(ag_kv_write_all(cpu, &seq, 1, &t, &t), AG_SHAPE);
    assert_non_null(strstr(ag_backend_error(cpu)->msg, "2 rows from row 1 of k"));
    ag_buffer_release(&owner);
}

int main(void) {
    ag_backend_params params = {.time_launches = true};
    ag_error err;
    if (ag_cl_backend_create(&params, &device, &err) != AG_OK) {
        printf("skipped: %s\n", err.msg);
        return EXIT_SKIPPED;
    }
    if (ag_backend_create(NULL, &cpu, NULL) != AG_OK) return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_blocks_in_several_buffers),
        cmocka_unit_test(writes_the_same_bytes_as_the_cpu),
        cmocka_unit_test(writes_several_caches_in_one_launch),
        cmocka_unit_test(rotates_queries_and_keys_in_the_same_launch),
        cmocka_unit_test(rejects_rows_beyond_the_tensor),
        cmocka_unit_test(writes_nan_for_values_out_of_range),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(cpu);
    ag_backend_destroy(device);
    return failed;
}
