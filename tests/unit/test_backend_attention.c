/* SPDX-License-Identifier: Apache-2.0 */
/* The composed cache writes and attention, the definition that kernels are compared with: against
 * sums written out here from the values that were put in. */
#include "support/failing_allocator.h"
#include "support/plain_backend.h"

#include "core/backend_ops.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum {
    KV_HEADS = 2,
    GROUP = 3,
    HEADS = KV_HEADS * GROUP,
    DIM = 32,
    BLOCKS = 3,
    SLOTS = BLOCKS * AG_KV_BLOCK,
    MAX_ROWS = 4,
};

typedef struct rig {
    ag_backend *be;
    ag_buffer *blocks[BLOCKS]; /* blocks of both heads */
    ag_buffer *owners[3];
    ag_kv_block entries[KV_HEADS][BLOCKS];
    uint32_t n_slots[KV_HEADS];
    ag_kv_view view;
    ag_tensor q, out;
    /* Expected content of the cache, rounded to its types. */
    float k[KV_HEADS][SLOTS][DIM], v[KV_HEADS][SLOTS][DIM];
    uint32_t positions[KV_HEADS][SLOTS];
    float q_values[MAX_ROWS * HEADS * DIM];
} rig;

static uint32_t random_state = 7;

static float random_value(void) {
    random_state = random_state * 1664525 + 1013904223;
    return (float)(random_state >> 8) * 0x1p-22f - 2;
}

static ag_tensor make(rig *r, ag_buffer **owner, ag_shape shape) {
    ag_tensor t;
    assert_int_equal(
        ag_tensor_alloc(&t, owner, ag_backend_memory(r->be), AG_USAGE_SCRATCH, AG_F32, shape, NULL),
        AG_OK);
    return t;
}

static rig *rig_create(bool host_visible, ag_dtype k_type, ag_dtype v_type) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->be = plain_backend_create(host_visible);
    const ag_kv_sections part = ag_kv_sections_of(k_type, v_type, DIM);
    r->view = (ag_kv_view){.k_type = k_type,
                           .v_type = v_type,
                           .n_kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .v_offset = part.v_offset,
                           .p_offset = part.p_offset,
                           .blocks = r->entries[0],
                           .blocks_per_head = BLOCKS,
                           .n_slots = r->n_slots};
    for (int i = 0; i < BLOCKS; i++) {
        size_t before = 64 * (size_t)i; /* blocks can start anywhere in their buffers */
        assert_int_equal(ag_memory_alloc(ag_backend_memory(r->be), before + KV_HEADS * part.bytes,
                                         AG_USAGE_KV, &r->blocks[i], NULL),
                         AG_OK);
        for (size_t h = 0; h < KV_HEADS; h++) {
            const size_t at = before + (h + (size_t)i) % KV_HEADS * part.bytes;
            r->entries[h][i] = (ag_kv_block){.buffer = r->blocks[i], .offset = at};
        }
    }
    r->q = make(r, &r->owners[0], ag_shape_3d(MAX_ROWS, HEADS, DIM));
    r->out = make(r, &r->owners[1], ag_shape_3d(MAX_ROWS, HEADS, DIM));
    for (size_t i = 0; i < MAX_ROWS * HEADS * DIM; i++) r->q_values[i] = random_value();
    ag_buffer_upload(r->q.buffer, 0, r->q_values, sizeof r->q_values, NULL);
    return r;
}

static void rig_destroy(rig *r) {
    for (int i = 0; i < BLOCKS; i++) ag_buffer_release(&r->blocks[i]);
    for (int i = 0; i < 3; i++) ag_buffer_release(&r->owners[i]);
    assert_int_equal(ag_memory_bytes_in_use(ag_backend_memory(r->be)), 0);
    ag_backend_destroy(r->be);
    free(r);
}

static void expect_rounded(ag_dtype dtype, float *dst, const float *src) {
    unsigned char packed[DIM * 4];
    assert_int_equal(ag_quantize_row(dtype, packed, src, DIM, AG_ROUND_KV, NULL), AG_OK);
    ag_dequantize_row(dtype, dst, packed, DIM);
}

/* Appends n tokens with positions first, first + step, ... to the slots of each head. */
static void append(rig *r, size_t n, uint32_t first, uint32_t step) {
    float *k = calloc(n * KV_HEADS * DIM, sizeof *k), *v = calloc(n * KV_HEADS * DIM, sizeof *v);
    uint32_t *positions = calloc(n, sizeof *positions);
    for (size_t i = 0; i < n * KV_HEADS * DIM; i++) k[i] = random_value(), v[i] = random_value();
    for (size_t i = 0; i < n; i++) {
        positions[i] = first + step * (uint32_t)i;
        for (size_t h = 0; h < KV_HEADS; h++) {
            size_t slot = r->n_slots[h] + i, row = (i * KV_HEADS + h) * DIM;
            expect_rounded(r->view.k_type, r->k[h][slot], k + row);
            expect_rounded(r->view.v_type, r->v[h][slot], v + row);
            r->positions[h][slot] = positions[i];
        }
    }
    ag_buffer *owners[2];
    ag_tensor kt = make(r, &owners[0], ag_shape_3d(n, KV_HEADS, DIM));
    ag_tensor vt = make(r, &owners[1], ag_shape_3d(n, KV_HEADS, DIM));
    ag_buffer_upload(kt.buffer, 0, k, n * KV_HEADS * DIM * sizeof *k, NULL);
    ag_buffer_upload(vt.buffer, 0, v, n * KV_HEADS * DIM * sizeof *v, NULL);
    assert_int_equal(ag_kv_write(r->be, &r->view, &kt, &vt, positions), AG_OK);
    for (int h = 0; h < KV_HEADS; h++) r->n_slots[h] += (uint32_t)n;
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
    free(k), free(v), free(positions);
}

/* The weights of one query row and head; 0 for slots it does not see. */
static void true_weights(const rig *r, size_t row, size_t head, const ag_attention_seq *seq,
                         const ag_attention_params *params, double *weights) {
    size_t h = head / GROUP, query = row - seq->row0;
    uint32_t from = seq->visible_from ? seq->visible_from[query] : 0;
    uint32_t until = seq->visible_until[query];
    double scale = (double)params->scale, cap = (double)params->softcap;
    double sum = 0;
    for (size_t s = 0; s < r->n_slots[h]; s++) {
        double dot = 0;
        for (size_t c = 0; c < DIM; c++) {
            dot += (double)r->q_values[(row * HEADS + head) * DIM + c] * r->k[h][s][c];
        }
        bool visible = r->positions[h][s] >= from && r->positions[h][s] <= until;
        weights[s] = !visible ? 0 : exp(cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale);
        sum += weights[s];
    }
    for (size_t s = 0; s < r->n_slots[h] && sum > 0; s++) weights[s] /= sum;
}

/* Compares the output of query rows [row0, row0 + n) and, if given, the scores. */
static void expect_attention(const rig *r, const ag_attention_seq *seq,
                             const ag_attention_params *params, const float *scores_before) {
    static float out[MAX_ROWS * HEADS * DIM];
    static double weights[SLOTS], scores[KV_HEADS][SLOTS];
    assert_int_equal(ag_read(r->be, out, &r->out, sizeof out), AG_OK);
    memset(scores, 0, sizeof scores);
    for (size_t i = 0; i < seq->n_rows * HEADS; i++) {
        size_t row = seq->row0 + i / HEADS, head = i % HEADS, h = head / GROUP;
        true_weights(r, row, head, seq, params, weights);
        for (size_t c = 0; c < DIM; c++) {
            double want = 0;
            for (size_t s = 0; s < r->n_slots[h]; s++) want += weights[s] * r->v[h][s][c];
            double got = (double)out[(row * HEADS + head) * DIM + c];
            if (!(fabs(got - want) <= 1e-5)) {
                fail_msg("row %zu head %zu: %.9g, not %.9g", row, head, got, want);
            }
        }
        for (size_t s = 0; s < r->n_slots[h] && i / HEADS >= seq->score_row0; s++) {
            scores[h][s] += weights[s] / GROUP;
        }
    }
    for (size_t i = 0; seq->scores && i < KV_HEADS * seq->score_stride; i++) {
        size_t h = i / seq->score_stride, s = i % seq->score_stride;
        double want = (double)scores_before[i] + (s < r->n_slots[h] ? scores[h][s] : 0);
        assert_true(fabs((double)seq->scores[i] - want) <= 1e-5);
    }
}

static const ag_dtype cache_types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};

/* Calls test for all cache types, on the host and on a device. */
static void for_all_rigs(void (*test)(rig *r)) {
    for (int i = 0; i < 4 * 4 * 2; i++) {
        rig *r = rig_create(i % 2, cache_types[i / 2 % 4], cache_types[i / 8]);
        test(r);
        rig_destroy(r);
    }
}

/* Head 1 keeps fewer tokens than head 0, as after an eviction; positions have gaps. */
static void fill_with_gaps(rig *r) {
    append(r, 19, 0, 1);
    r->n_slots[1] = 4;
    append(r, 130, 40, 3);
}

static void check_gaps(rig *r) {
    fill_with_gaps(r);
    enum { STRIDE = 160 };
    static const uint32_t until[] = {2, 100, 427, 5000}, from[] = {0, 18, 43, 424};
    static const ag_attention_params params[] = {{.scale = 0.18f},
                                                 {.scale = 0.3f, .softcap = 0.5f}};
    float scores[KV_HEADS * STRIDE], before[KV_HEADS * STRIDE];
    for (int i = 0; i < KV_HEADS * STRIDE; i++) scores[i] = before[i] = random_value();
    for (int i = 0; i < 8; i++) {
        ag_attention_seq seq = {.kv = r->view,
                                .n_rows = 4,
                                .visible_until = until,
                                .visible_from = i & 1 ? from : NULL,
                                .scores = i & 2 ? scores : NULL,
                                .score_row0 = 1,
                                .score_stride = STRIDE};
        memcpy(scores, before, sizeof scores);
        assert_int_equal(ag_attention(r->be, &r->out, &r->q, &seq, 1, &params[i / 4]), AG_OK);
        expect_attention(r, &seq, &params[i / 4], before);
    }
}

static void queries_see_only_slots_in_their_range(void **state) {
    (void)state;
    for_all_rigs(check_gaps);
}

static void check_blind(rig *r) {
    fill_with_gaps(r);
    for (int h = 0; h < KV_HEADS; h++) r->n_slots[h] = 0;
    append(r, 3, 10, 1);
    ag_attention_seq seq = {
        .kv = r->view, .row0 = 1, .n_rows = 2, .visible_until = (uint32_t[]){9, 10}};
    float ones[MAX_ROWS * HEADS * DIM], out[MAX_ROWS * HEADS * DIM];
    for (size_t i = 0; i < MAX_ROWS * HEADS * DIM; i++) ones[i] = 1;
    ag_buffer_upload(r->out.buffer, 0, ones, sizeof ones, NULL);
    assert_int_equal(
        ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}), AG_OK);
    ag_read(r->be, out, &r->out, sizeof out);
    for (size_t i = 0; i < HEADS * DIM; i++) {
        assert_true(out[i] == 1); /* rows of no sequence stay */
        assert_true(out[HEADS * DIM + i] == 0);
        assert_true(fabsf(out[2 * HEADS * DIM + i] - r->v[i / DIM / GROUP][0][i % DIM]) < 1e-6f);
        assert_true(out[3 * HEADS * DIM + i] == 1);
    }
    for (int h = 0; h < KV_HEADS; h++) r->n_slots[h] = 0;
    assert_int_equal(
        ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}), AG_OK);
}

static void query_without_visible_slots_gives_zeros(void **state) {
    (void)state;
    for_all_rigs(check_blind);
}

/* The first slots of a window's cache may hold anything, and a query may see none of the others. */
static void check_garbage(rig *r) {
    append(r, 150, 10, 1);
    const uint32_t until[] = {142, 143, 159, 200}, from[] = {143, 143, 150, 170};
    for (size_t slot = 0; slot < 133; slot++) {
        for (size_t h = 0; h < KV_HEADS; h++) {
            const ag_kv_block *b = &r->entries[h][slot / AG_KV_BLOCK];
            const size_t row = slot % AG_KV_BLOCK;
            const size_t k = ag_dtype_row_bytes(r->view.k_type, DIM);
            const size_t v = ag_dtype_row_bytes(r->view.v_type, DIM);
            unsigned char ones[DIM * sizeof(float)];
            memset(ones, 0xff, sizeof ones);
            ag_buffer_upload(b->buffer, b->offset + row * k, ones, k, NULL);
            ag_buffer_upload(b->buffer, b->offset + r->view.v_offset + row * v, ones, v, NULL);
        }
    }
    ag_attention_seq seq = {
        .kv = r->view, .n_rows = 4, .visible_until = until, .visible_from = from};
    const ag_attention_params params = {.scale = 0.3f};
    assert_int_equal(ag_attention(r->be, &r->out, &r->q, &seq, 1, &params), AG_OK);
    expect_attention(r, &seq, &params, NULL);
}

static void ignores_slots_outside_the_range(void **state) {
    (void)state;
    for_all_rigs(check_garbage);
}

static void sequences_use_their_own_caches(void **state) {
    (void)state;
    rig *a = rig_create(true, AG_F16, AG_F16), *b = rig_create(true, AG_Q8_0, AG_Q4_0);
    append(a, 140, 0, 1);
    append(b, 5, 0, 2);
    ag_attention_seq seqs[] = {
        {.kv = b->view, .row0 = 3, .n_rows = 1, .visible_until = (uint32_t[]){8}},
        {.kv = a->view, .row0 = 0, .n_rows = 3, .visible_until = (uint32_t[]){137, 138, 139}},
    };
    assert_int_equal(
        ag_attention(a->be, &a->out, &a->q, seqs, 2, &(ag_attention_params){.scale = 0.2f}), AG_OK);
    expect_attention(a, &seqs[1], &(ag_attention_params){.scale = 0.2f}, NULL);
    float whole[MAX_ROWS * HEADS * DIM], rows[HEADS * DIM];
    ag_read(a->be, whole, &a->out, sizeof whole);
    /* The other sequence's row: the same query against its own cache. */
    memcpy(b->q_values, a->q_values, sizeof b->q_values);
    ag_buffer_upload(b->q.buffer, 0, b->q_values, sizeof b->q_values, NULL);
    assert_int_equal(
        ag_attention(b->be, &b->out, &b->q, seqs, 1, &(ag_attention_params){.scale = 0.2f}), AG_OK);
    expect_attention(b, &seqs[0], &(ag_attention_params){.scale = 0.2f}, NULL);
    ag_tensor last;
    assert_int_equal(ag_tensor_rows(&last, &b->out, 3 * HEADS, HEADS, NULL), AG_OK);
    ag_read(b->be, rows, &last, sizeof rows);
    assert_memory_equal(rows, whole + 3 * HEADS * DIM, sizeof rows);
    rig_destroy(a);
    rig_destroy(b);
}

static void rejects_operands_that_do_not_fit(void **state) {
    (void)state;
    rig *r = rig_create(true, AG_F16, AG_Q8_0);
    append(r, 5, 0, 1);
    const ag_error *err = ag_backend_error(r->be);
    ag_attention_seq seq = {
        .kv = r->view, .row0 = 2, .n_rows = 3, .visible_until = (uint32_t[3]){0}};
    assert_int_equal(
        ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}), AG_SHAPE);
    seq.n_rows = 1;
    assert_int_equal(ag_attention(r->be, &r->q, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}),
                     AG_INVALID);
    seq.scores = r->q_values;
    seq.score_stride = 4;
    assert_int_equal(
        ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}), AG_SHAPE);
    assert_non_null(strstr(err->msg, "5"));
    seq.scores = NULL;
    seq.kv.head_dim = 48;
    assert_int_equal(
        ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}), AG_SHAPE);
    seq.kv.head_dim = DIM;
    seq.kv.n_kv_heads = 4;
    assert_int_equal(
        ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}), AG_SHAPE);
    seq.kv.n_kv_heads = KV_HEADS;
    seq.kv.k_type = AG_I32;
    assert_int_equal(
        ag_attention(r->be, &r->out, &r->q, &seq, 1, &(ag_attention_params){.scale = 1}), AG_DTYPE);
    r->n_slots[1] = SLOTS - 2;
    ag_tensor kv;
    kv = make(r, &r->owners[2], ag_shape_3d(3, KV_HEADS, DIM));
    assert_int_equal(ag_kv_write(r->be, &r->view, &kv, &kv, seq.visible_until), AG_SHAPE);
    assert_non_null(strstr(err->msg, "384"));
    r->n_slots[1] = 5;
    ag_tensor_f32(&kv)[2 * KV_HEADS * DIM + DIM + 3] = NAN;
    assert_int_equal(ag_kv_write(r->be, &r->view, &kv, &kv, seq.visible_until), AG_FORMAT);
    assert_non_null(strstr(err->msg, "slot 7 of KV head 1"));
    rig_destroy(r);
}

static void failed_allocation_leaves_the_cache_unchanged(void **state) {
    (void)state;
    for (int host = 0; host < 2; host++) {
        rig *r = rig_create(host, AG_F16, AG_Q4_0);
        append(r, 5, 0, 1);
        ag_tensor kv = make(r, &r->owners[2], ag_shape_3d(1, KV_HEADS, DIM));
        ag_attention_seq seq = {.kv = r->view, .n_rows = 1, .visible_until = (uint32_t[]){4}};
        for (int op = 0; op < 2; op++) {
            bool failed = true;
            for (size_t n = 0; failed; n++) {
                failing_allocator f;
                failing_install(&f, n);
                ag_status st = op ? ag_attention(r->be, &r->out, &r->q, &seq, 1,
                                                 &(ag_attention_params){.scale = 1})
                                  : ag_kv_write(r->be, &r->view, &kv, &kv, seq.visible_until);
                ag_set_allocator(NULL);
                failed = f.failed;
                assert_int_equal(st, failed ? AG_NOMEM : AG_OK);
                assert_int_equal(f.in_use, 0);
            }
        }
        rig_destroy(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_see_only_slots_in_their_range),
        cmocka_unit_test(query_without_visible_slots_gives_zeros),
        cmocka_unit_test(ignores_slots_outside_the_range),
        cmocka_unit_test(sequences_use_their_own_caches),
        cmocka_unit_test(rejects_operands_that_do_not_fit),
        cmocka_unit_test(failed_allocation_leaves_the_cache_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
