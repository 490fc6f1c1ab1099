/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's attention with every instruction set of this machine: against the definition in
 * core/backend_attention.c, and against itself with other threads and other cuts of a prompt. */
#include "backend/cpu/features.h"
#include "core/backend_compose.h"
#include "core/backend_ops.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_BLOCKS = 16, MAX_HEADS = 4 };

static uint32_t random_state = 1;

static uint32_t next_random(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static uint32_t below(uint32_t n) { return next_random() % n; }
static float random_value(void) { return (float)next_random() * 0x1p-23f - 1; }

static ag_backend *backend_of(const char *isa, uint32_t n_threads) {
    ag_backend *be;
    const ag_backend_params params = {.name = "cpu", .n_threads = n_threads};
    setenv("AG_CPU_ISA", isa, 1);
    assert_int_equal(ag_backend_create(&params, &be, NULL), AG_OK);
    unsetenv("AG_CPU_ISA");
    return be;
}

static bool with_tiles; /* the tested instruction set has tile kernels */

/* Calls test once for each instruction set. */
static void for_all_isas(void (*test)(const char *isa)) {
    for (unsigned i = 0; i < AG_CPU_ISA_COUNT; i++) {
        with_tiles = i == AG_CPU_AMX;
        if (ag_cpu_features() >> i & 1) test(ag_cpu_isa_name((ag_cpu_isa)i));
    }
}

/* ---- a cache, and queries for it ---- */

typedef struct rig {
    ag_backend *be;
    ag_kv_view kv;
    ag_kv_block blocks[MAX_HEADS * MAX_BLOCKS];
    uint32_t n_slots[MAX_HEADS];
    ag_buffer *memory, *owners[2];
    ag_tensor q, out;
    size_t n_rows, row_floats;
    uint32_t *positions; /* [n_rows] last position that the query sees */
    uint32_t *from;      /* [n_rows] first position that it sees; NULL: 0 */
    float softcap;
    bool most; /* the largest weights are wanted, not sums */
} rig;

static unsigned char *part_of(const rig *r, size_t slot, size_t head, size_t offset, size_t size) {
    const ag_kv_block *b = &r->blocks[head * r->kv.blocks_per_head + slot / AG_KV_BLOCK];
    return (unsigned char *)ag_buffer_map(b->buffer) + b->offset + offset +
           slot % AG_KV_BLOCK * size;
}

static void fill_row(void *dst, ag_dtype type, size_t d) {
    float row[256];
    for (size_t i = 0; i < d; i++) row[i] = random_value();
    assert_int_equal(ag_quantize_row(type, dst, row, d, AG_ROUND_KV, NULL), AG_OK);
}

static rig make_rig(ag_backend *be, ag_dtype k, ag_dtype v, size_t n_kv_heads, size_t group,
                    size_t d, size_t n_slots, size_t n_rows) {
    const ag_kv_sections part = ag_kv_sections_of(k, v, (uint32_t)d);
    const size_t n_blocks = n_slots / AG_KV_BLOCK + 1, all = n_kv_heads * n_blocks;
    rig r = {.be = be, .n_rows = n_rows, .row_floats = n_kv_heads * group * d};
    r.kv = (ag_kv_view){.k_type = k,
                        .v_type = v,
                        .n_kv_heads = (uint32_t)n_kv_heads,
                        .head_dim = (uint32_t)d,
                        .v_offset = part.v_offset,
                        .p_offset = part.p_offset,
                        .blocks_per_head = (uint32_t)n_blocks};
    ag_memory *memory = ag_backend_memory(be);
    ag_memory_alloc(memory, all * part.bytes, AG_USAGE_KV, &r.memory, NULL);
    /* Slots without a token hold NaN. */
    memset(ag_buffer_map(r.memory), 0xff, all * part.bytes);
    for (size_t b = 0; b < all; b++) { /* blocks of a head are not adjacent */
        r.blocks[b] = (ag_kv_block){r.memory, (b * n_kv_heads + b / n_blocks) % all * part.bytes};
    }
    for (size_t h = 0; h < n_kv_heads; h++) {
        uint32_t position = below(3);
        for (size_t s = 0; s < n_slots; s++, position += below(4) ? 1 : below(9) + 1) {
            fill_row(part_of(&r, s, h, 0, ag_dtype_row_bytes(k, d)), k, d);
            fill_row(part_of(&r, s, h, r.kv.v_offset, ag_dtype_row_bytes(v, d)), v, d);
            memcpy(part_of(&r, s, h, r.kv.p_offset, 4), &position, 4);
        }
        r.n_slots[h] = (uint32_t)n_slots;
    }
    const ag_shape shape = ag_shape_3d(n_rows, n_kv_heads * group, d);
    ag_tensor_alloc(&r.q, &r.owners[0], memory, AG_USAGE_SCRATCH, AG_F32, shape, NULL);
    ag_tensor_alloc(&r.out, &r.owners[1], memory, AG_USAGE_SCRATCH, AG_F32, shape, NULL);
    float *q = ag_tensor_f32(&r.q);
    for (size_t i = 0; i < n_rows * r.row_floats; i++) q[i] = 3 * random_value();
    r.positions = malloc(n_rows * sizeof *r.positions);
    const uint32_t step = (uint32_t)(2 * n_slots / n_rows) + 1;
    for (size_t i = 0, at = 0; i < n_rows; i++, at += 1 + below(step)) {
        r.positions[i] = (uint32_t)at;
    }
    return r;
}

static void free_rig(rig *r) {
    for (int i = 0; i < 2; i++) ag_buffer_release(&r->owners[i]);
    ag_buffer_release(&r->memory);
    free(r->positions);
    free(r->from);
}

static ag_attention_seq seq_of(const rig *r, float *scores, size_t score_row0, size_t stride) {
    ag_attention_seq seq = {.kv = r->kv,
                            .n_rows = r->n_rows,
                            .visible_until = r->positions,
                            .visible_from = r->from,
                            .scores = scores,
                            .score_max = r->most,
                            .score_row0 = score_row0,
                            .score_stride = stride};
    seq.kv.blocks = r->blocks;
    seq.kv.n_slots = r->n_slots;
    return seq;
}

/* ---- against the definition ---- */

static void expect_close(const float *got, const double *want, size_t n, double tolerance,
                         const char *what, const rig *r) {
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)got[i] - want[i]) <= tolerance) continue;
        fail_msg("%s[%zu]: %.9g, not %.9g; %s/%s, %u heads of %u, %zu rows", what, i,
                 (double)got[i], want[i], ag_dtype_name(r->kv.k_type), ag_dtype_name(r->kv.v_type),
                 r->kv.n_kv_heads, r->kv.head_dim, r->n_rows);
    }
}

static double *widened(const float *x, size_t n) {
    double *y = malloc(n * sizeof *y);
    for (size_t i = 0; i < n; i++) y[i] = (double)x[i];
    return y;
}

/* Matrix units round to 8 bits of mantissa, where there are enough queries to use them. */
static bool rounds_more(const rig *r) {
    return with_tiles && r->kv.k_type != AG_F32 && r->kv.v_type != AG_F32;
}

/* Values are at most 1. */
static double tolerance_of(const rig *r) {
    if (rounds_more(r)) return 1e-2;
    /* Queries, of up to 3, are rounded to 16 bits. */
    return r->kv.k_type == AG_Q8_0 || r->kv.k_type == AG_Q4_0 ? 5e-5 : 3e-6;
}

static void compare_with_definition(rig *r, size_t n_slots, size_t score_row0) {
    const size_t stride = n_slots + 3, n_scores = r->kv.n_kv_heads * stride;
    const size_t n = r->n_rows * r->row_floats;
    const ag_attention_params params = {.scale = 1 / sqrtf((float)r->kv.head_dim),
                                        .softcap = r->softcap};
    float *scores = calloc(2 * n_scores, sizeof *scores), *out = ag_tensor_f32(&r->out);
    ag_attention_seq seq = seq_of(r, scores, score_row0, stride);
    assert_int_equal(ag_compose_attention(r->be, &r->out, &r->q, &seq, 1, &params), AG_OK);
    double *want = widened(out, n), *want_scores = widened(scores, n_scores);
    seq.scores = scores + n_scores;
    assert_int_equal(ag_attention(r->be, &r->out, &r->q, &seq, 1, &params), AG_OK);
    expect_close(out, want, n, tolerance_of(r), "out", r);
    const double rows = r->most ? 1 : (double)r->n_rows; /* rows that are added up in one score */
    expect_close(seq.scores, want_scores, n_scores, tolerance_of(r) * rows, "scores", r);
    float *before = malloc(n * sizeof *before);
    memcpy(before, out, n * sizeof *out);
    seq.scores = NULL;
    assert_int_equal(ag_attention(r->be, &r->out, &r->q, &seq, 1, &params), AG_OK);
    assert_memory_equal(out, before, n * sizeof *out);
    free(before), free(want), free(want_scores), free(scores);
}

/* Queries of tokens that follow much of the cache. */
static void start_late(rig *r, size_t n_slots) {
    uint32_t position;
    memcpy(&position, part_of(r, n_slots * 7 / 8, 0, r->kv.p_offset, 4), sizeof position);
    for (size_t i = 0; i < r->n_rows; i++) r->positions[i] += position;
}

/* Windows of a few slots, of about a block and of several. */
static void narrow(rig *r) {
    const uint32_t widths[] = {8, 280, 1400}, width = 1 + below(widths[below(3)]);
    r->from = malloc(r->n_rows * sizeof *r->from);
    for (size_t i = 0; i < r->n_rows; i++) {
        r->from[i] = r->positions[i] < width ? 0 : r->positions[i] - width + 1;
    }
}

static bool is_visible(const rig *r, uint32_t position) {
    for (size_t i = 0; i < r->n_rows; i++) {
        if (position <= r->positions[i] && (!r->from || position >= r->from[i])) return true;
    }
    return false;
}

/* Fills slots that no query sees with NaN. */
static void spoil(rig *r) {
    const size_t k = ag_dtype_row_bytes(r->kv.k_type, r->kv.head_dim);
    const size_t v = ag_dtype_row_bytes(r->kv.v_type, r->kv.head_dim);
    for (size_t h = 0; h < r->kv.n_kv_heads; h++) {
        for (size_t s = 0; s < r->n_slots[h]; s++) {
            uint32_t position;
            memcpy(&position, part_of(r, s, h, r->kv.p_offset, sizeof position), sizeof position);
            if (is_visible(r, position)) continue;
            memset(part_of(r, s, h, 0, k), 0xff, k);
            memset(part_of(r, s, h, r->kv.v_offset, v), 0xff, v);
        }
    }
}

/* One of every `each` of the shapes. With one thread the scores of a tile are kept until its
 * weights are known. */
static void check_shapes_with(const char *isa, uint32_t n_threads, size_t each) {
    static const size_t dims[] = {2, 16, 24, 32, 64, 80, 96, 128, 256};
    static const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0, AG_BF16};
    ag_backend *be = backend_of(isa, n_threads);
    for (size_t i = 0; i < 216; i += each) {
        const size_t d = dims[i % 9], n_types = d % AG_QK ? 2 : 5;
        const ag_dtype k = types[below((uint32_t)n_types)], v = types[below((uint32_t)n_types)];
        const size_t n_slots = below(i % 7 ? 300 : 1300) + 1, n_rows = below(i % 5 ? 4 : 70) + 1;
        const size_t n_kv_heads = 1 + below(3);
        rig r = make_rig(be, k, v, n_kv_heads, 1 + i % 8, d, n_slots, n_rows);
        for (size_t h = 1; h < n_kv_heads; h++) r.n_slots[h] = below((uint32_t)n_slots + 1);
        if (i / 7 % 2) start_late(&r, n_slots);
        if (i / 2 % 2) narrow(&r);
        if (i / 4 % 3 == 1) r.softcap = 0.5f + (float)below(8);
        spoil(&r);
        compare_with_definition(&r, n_slots, below((uint32_t)n_rows + 1));
        r.most = true;
        if (i % 5 == 0)
            compare_with_definition(&r, n_slots, i % 3 ? 0 : below((uint32_t)n_rows + 1));
        free_rig(&r);
    }
    ag_backend_destroy(be);
}

static void check_shapes(const char *isa) {
    check_shapes_with(isa, 3, 1);
    check_shapes_with(isa, 1, 5);
}

static void attention_equals_its_definition(void **state) {
    (void)state;
    for_all_isas(check_shapes);
}

/* ---- against itself ---- */

static void compare_threads(const char *isa, size_t n_slots, size_t n_rows, bool windows,
                            bool most) {
    const size_t stride = n_slots;
    float *first = NULL, *first_scores = NULL;
    for (uint32_t n_threads = 1; n_threads <= 7; n_threads += 2) {
        ag_backend *be = backend_of(isa, n_threads);
        random_state = 5;
        rig r = make_rig(be, AG_F16, AG_Q8_0, 2, 3, 64, n_slots, n_rows);
        memcpy(&r.positions[n_rows - 1], part_of(&r, n_slots - 1, 0, r.kv.p_offset, 4), 4);
        if (windows) narrow(&r);
        r.most = most;
        const size_t bytes = n_rows * r.row_floats * sizeof(float);
        float *scores = calloc(2 * stride, sizeof *scores);
        const ag_attention_seq seq = seq_of(&r, scores, most ? 0 : n_rows / 7, stride);
        assert_int_equal(
            ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.2f}), AG_OK);
        if (first) {
            assert_memory_equal(ag_tensor_f32(&r.out), first, bytes);
            assert_memory_equal(scores, first_scores, 2 * stride * sizeof *scores);
            free(scores);
        } else {
            first = malloc(bytes);
            memcpy(first, ag_tensor_f32(&r.out), bytes);
            first_scores = scores;
        }
        free_rig(&r);
        ag_backend_destroy(be);
    }
    free(first), free(first_scores);
}

static void check_threads(const char *isa) {
    compare_threads(isa, 1700, 37, false, false);
    compare_threads(isa, 1700, 37, true, false);
    compare_threads(isa, 1700, 1, true, false);
    compare_threads(isa, 1700, 37, false, true);
    compare_threads(isa, 600, 260, true, true);
}

static void threads_change_nothing(void **state) {
    (void)state;
    for_all_isas(check_threads);
}

/* The rows of a prompt, `step` at a time, where the cache holds nothing beyond the last of them. */
static void attend_in_steps(rig *r, size_t step) {
    const uint32_t n_slots = r->n_slots[0];
    for (size_t row = 0; row < r->n_rows; row += step) {
        ag_attention_seq seq = seq_of(r, NULL, 0, 0);
        seq.row0 = row;
        seq.n_rows = r->n_rows - row < step ? r->n_rows - row : step;
        seq.visible_until = r->positions + row;
        seq.visible_from = r->from ? r->from + row : NULL;
        r->n_slots[0] = n_slots - (uint32_t)(r->n_rows - row - seq.n_rows);
        r->n_slots[1] = r->n_slots[0];
        assert_int_equal(
            ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 0.2f}),
            AG_OK);
    }
}

static void check_cuts(const char *isa) {
    static const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    ag_backend *be = backend_of(isa, 2);
    for (size_t i = 0; i < 16; i++) {
        const size_t n_rows = 150, n_slots = 600, group = 1 + i % 5;
        rig r = make_rig(be, types[i / 4], types[i % 4], 2, group, 64, n_slots, n_rows);
        for (uint32_t s = 0; s < n_slots; s++) {
            for (size_t h = 0; h < 2; h++) memcpy(part_of(&r, s, h, r.kv.p_offset, 4), &s, 4);
        }
        for (size_t k = 0; k < n_rows; k++) r.positions[k] = (uint32_t)(n_slots - n_rows + k);
        if (i % 3) narrow(&r);
        const size_t bytes = n_rows * r.row_floats * sizeof(float);
        float *whole = malloc(bytes), *out = ag_tensor_f32(&r.out);
        attend_in_steps(&r, n_rows);
        memcpy(whole, out, bytes);
        double *want = widened(whole, bytes / sizeof *whole);
        static const size_t steps[] = {1, 7, 64, 149};
        for (int k = 0; k < 4; k++) {
            memset(out, 0, bytes);
            attend_in_steps(&r, steps[k]);
            if (rounds_more(&r)) expect_close(out, want, bytes / sizeof *out, 1e-2, "cut out", &r);
            else assert_memory_equal(out, whole, bytes);
        }
        free(want);
        free(whole);
        free_rig(&r);
    }
    ag_backend_destroy(be);
}

static void prompt_can_be_split_anywhere(void **state) {
    (void)state;
    for_all_isas(check_cuts);
}

/* ---- AVX-VNNI ---- */

/* Returns the output of a call, followed by the scores. */
static float *attend_with(const char *isa, ag_dtype type, size_t n_rows, size_t *bytes) {
    enum { D = 96, SLOTS = 700, HEADS = 2 };
    ag_backend *be = backend_of(isa, 2);
    random_state = 11;
    rig r = make_rig(be, type, type, HEADS, 4, D, SLOTS, n_rows);
    r.positions[n_rows - 1] = 100000;
    const size_t n = n_rows * r.row_floats;
    *bytes = (n + HEADS * SLOTS) * sizeof(float);
    float *out = calloc(1, *bytes);
    const ag_attention_seq seq = seq_of(&r, out + n, 0, SLOTS);
    assert_int_equal(ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.1f}),
                     AG_OK);
    memcpy(out, ag_tensor_f32(&r.out), n * sizeof *out);
    free_rig(&r);
    ag_backend_destroy(be);
    return out;
}

static void avxvnni_attends_with_the_bits_of_avx2(void **state) {
    (void)state;
    if (!(ag_cpu_features() >> AG_CPU_AVXVNNI & 1)) skip();
    static const ag_dtype types[] = {AG_Q8_0, AG_Q4_0, AG_F16};
    for (size_t i = 0; i < 6; i++) {
        size_t bytes;
        float *want = attend_with("avx2", types[i / 2], i % 2 ? 40 : 1, &bytes);
        float *got = attend_with("avxvnni", types[i / 2], i % 2 ? 40 : 1, &bytes);
        assert_memory_equal(got, want, bytes);
        free(want);
        free(got);
    }
}

/* ---- NaN ---- */

static bool all_nan(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isnan(x[i])) return false;
    }
    return true;
}

static void check_not_a_number(const char *isa) {
    enum { D = 64, GROUP = 4, ROWS = 9, SLOTS = 140 };
    ag_backend *be = backend_of(isa, 2);
    rig r = make_rig(be, AG_F32, AG_F32, 1, GROUP, D, SLOTS, ROWS);
    for (uint32_t i = 0; i < ROWS; i++) r.positions[i] = 100000 + i;
    uint32_t late = 100003;
    memcpy(part_of(&r, SLOTS - 1, 0, r.kv.p_offset, 4), &late, 4);
    float *q = ag_tensor_f32(&r.q), *out = ag_tensor_f32(&r.out), before[ROWS * GROUP * D];
    ag_attention_seq seq = seq_of(&r, NULL, 0, 0);
    ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.1f});
    memcpy(before, out, sizeof before);
    /* Row 1, head 2 alone. */
    q[(1 * GROUP + 2) * D + 5] = NAN;
    ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.1f});
    assert_true(all_nan(out + (1 * GROUP + 2) * D, D));
    assert_memory_equal(out, before, (1 * GROUP + 2) * D * sizeof *out);
    assert_memory_equal(out + (1 * GROUP + 3) * D, before + (1 * GROUP + 3) * D,
                        (ROWS * GROUP - 1 * GROUP - 3) * D * sizeof *out);
    q[(1 * GROUP + 2) * D + 5] = 0;
    /* The last slot's key, then its value: rows from the third on see it. */
    float *key = (float *)(void *)part_of(&r, SLOTS - 1, 0, 0, D * sizeof(float));
    float *value = (float *)(void *)part_of(&r, SLOTS - 1, 0, r.kv.v_offset, D * sizeof(float));
    key[1] = NAN;
    ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.1f});
    assert_memory_equal(out, before, GROUP * D * sizeof *out);
    assert_true(all_nan(out + 3 * GROUP * D, (ROWS - 3) * GROUP * D));
    key[1] = 0;
    value[7] = INFINITY;
    ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.1f});
    assert_memory_equal(out, before, GROUP * D * sizeof *out);
    for (size_t i = 0; i < ROWS * GROUP; i++) {
        assert_true(i < 3 * GROUP ? isfinite(out[i * D + 7]) : out[i * D + 7] == INFINITY);
    }
    free_rig(&r);
    ag_backend_destroy(be);
}

/* Checks that a NaN query, over quantised keys and values, changes only its own output. */
static void check_query_not_a_number(const char *isa) {
    enum { D = 64, GROUP = 4, SLOTS = 140 };
    ag_backend *be = backend_of(isa, 2);
    for (int i = 0; i < 2; i++) {
        const ag_dtype type = i ? AG_Q8_0 : AG_Q4_0;
        rig r = make_rig(be, type, type, 1, GROUP, D, SLOTS, 1);
        r.positions[0] = 100000;
        float *q = ag_tensor_f32(&r.q), *out = ag_tensor_f32(&r.out), before[GROUP * D];
        const ag_attention_seq seq = seq_of(&r, NULL, 0, 0);
        ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.1f});
        memcpy(before, out, sizeof before);
        q[2 * D + 37] = NAN;
        ag_attention(be, &r.out, &r.q, &seq, 1, &(ag_attention_params){.scale = 0.1f});
        assert_true(all_nan(out + 2 * D, D));
        assert_memory_equal(out, before, 2 * D * sizeof *out);
        assert_memory_equal(out + 3 * D, before + 3 * D, D * sizeof *out);
        free_rig(&r);
    }
    ag_backend_destroy(be);
}

static void nan_query_affects_only_its_own_output(void **state) {
    (void)state;
    for_all_isas(check_query_not_a_number);
}

static void nan_reaches_only_queries_that_see_it(void **state) {
    (void)state;
    for_all_isas(check_not_a_number);
}

/* ---- rotary positions ---- */

static void sines_are_reused_only_for_equal_positions(void **state) {
    (void)state;
    enum { ROWS = 3, D = 8 };
    static const uint32_t positions[][ROWS] = {{0, 1, 2}, {0, 1, 3}, {0, 1, 3}, {70000, 5, 3}};
    ag_backend *be = backend_of("common", 2);
    ag_tensor x, freq;
    ag_buffer *owners[2];
    ag_memory *memory = ag_backend_memory(be);
    ag_tensor_alloc(&x, &owners[0], memory, AG_USAGE_SCRATCH, AG_F32, ag_shape_3d(ROWS, 1, D),
                    NULL);
    ag_tensor_alloc(&freq, &owners[1], memory, AG_USAGE_SCRATCH, AG_F32, ag_shape_1d(D / 2), NULL);
    float *v = ag_tensor_f32(&x), *f = ag_tensor_f32(&freq);
    for (size_t call = 0; call < 8; call++) {
        const uint32_t *p = positions[call / 2];
        for (int i = 0; i < D / 2; i++) f[i] = (call == 7 ? 0.5f : 1.0f) / (float)(1 + i);
        for (int i = 0; i < ROWS * D; i++) v[i] = i % D < D / 2 ? 1 : 0;
        assert_int_equal(ag_rope(be, &x, p, &freq), AG_OK);
        for (int i = 0; i < ROWS * D; i++) {
            const double angle = (double)((float)p[i / D] * f[i % (D / 2)]);
            const double want = i % D < D / 2 ? cos(angle) : sin(angle);
            assert_true(fabs((double)v[i] - want) < 1e-7);
        }
    }
    for (int i = 0; i < 2; i++) ag_buffer_release(&owners[i]);
    ag_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_its_definition),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(prompt_can_be_split_anywhere),
        cmocka_unit_test(avxvnni_attends_with_the_bits_of_avx2),
        cmocka_unit_test(nan_reaches_only_queries_that_see_it),
        cmocka_unit_test(nan_query_affects_only_its_own_output),
        cmocka_unit_test(sines_are_reused_only_for_equal_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
