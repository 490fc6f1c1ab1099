/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that core composes for a backend without optional functions, in memory that the host
 * can map and in memory that it cannot. */
#include "support/dtypes.h"
#include "support/failing_allocator.h"
#include "support/plain_backend.h"

#include "core/backend_ops.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TENSORS = 32 };

typedef struct bench {
    ag_backend *be;
    ag_buffer *owners[MAX_TENSORS];
    size_t n_owners;
} bench;

static int start(void **state, bool host_visible) {
    static bench b;
    b = (bench){.be = plain_backend_create(host_visible)};
    *state = &b;
    return b.be ? 0 : -1;
}

static int start_on_the_host(void **state) { return start(state, true); }
static int start_on_a_device(void **state) { return start(state, false); }

static void drop_tensors(bench *b) {
    while (b->n_owners > 0) ag_buffer_release(&b->owners[--b->n_owners]);
}

static int stop(void **state) {
    bench *b = *state;
    drop_tensors(b);
    size_t left = ag_memory_bytes_in_use(ag_backend_memory(b->be));
    ag_backend_destroy(b->be);
    return left == 0 ? 0 : -1;
}

static uint32_t random_state = 1;

static float random_value(void) {
    random_state = random_state * 1664525 + 1013904223;
    return (float)(random_state >> 8) * 0x1p-23f - 1;
}

static ag_tensor empty(bench *b, ag_dtype dtype, ag_shape shape) {
    ag_tensor t;
    assert_true(b->n_owners < MAX_TENSORS);
    assert_int_equal(ag_tensor_alloc(&t, &b->owners[b->n_owners++], ag_backend_memory(b->be),
                                     AG_USAGE_SCRATCH, dtype, shape, NULL),
                     AG_OK);
    return t;
}

/* Random values, rounded to the dtype; values receives what the tensor holds then. */
static ag_tensor filled(bench *b, ag_dtype dtype, ag_shape shape, float *values) {
    static unsigned char packed[1 << 16];
    ag_tensor t = empty(b, dtype, shape);
    size_t n = ag_shape_numel(&shape);
    assert_true(n * 4 <= sizeof packed);
    for (size_t i = 0; i < n; i++) values[i] = random_value();
    assert_int_equal(ag_quantize_row(dtype, packed, values, n, AG_ROUND_REFERENCE, NULL), AG_OK);
    ag_dequantize_row(dtype, values, packed, n);
    assert_int_equal(ag_buffer_upload(t.buffer, t.offset, packed, ag_tensor_bytes(&t), NULL),
                     AG_OK);
    return t;
}

static void expect_values(bench *b, const ag_tensor *t, const float *want, float tolerance) {
    static float got[1 << 14];
    size_t n = ag_shape_numel(&t->shape);
    assert_true(n <= sizeof got / sizeof got[0]);
    assert_int_equal(ag_read(b->be, got, t, n * sizeof *got), AG_OK);
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= tolerance)) {
            fail_msg("value %zu is %.9g, not %.9g", i, (double)got[i], (double)want[i]);
        }
    }
}

/* ---- the plain things ---- */

static void describes_a_backend_without_describe(void **state) {
    bench *b = *state;
    assert_string_equal(ag_backend_name(b->be), "plain");
    assert_string_equal(ag_backend_describe(b->be), "plain");
    assert_int_equal(ag_backend_threads(b->be), 1);
    assert_int_equal(ag_sync(b->be), AG_OK);
    ag_backend_destroy(NULL);
}

static void copies_overlapping_slices(void **state) {
    bench *b = *state;
    enum { N = 5 << 19 }; /* 2.5 MiB: more than two chunks */
    unsigned char *want = malloc(N), *got = malloc(N);
    for (size_t i = 0; i < N; i++) want[i] = (unsigned char)(random_value() * 100);
    static const size_t moves[][3] = {
        {0, 1, N - 1}, {1, 0, N - 1}, {1000, 1 << 20, 1 << 20}, {1 << 20, 1000, 1 << 20},
        {7, 7, N - 7}, {0, N - 1, 1}};
    ag_tensor t = empty(b, AG_U8, ag_shape_1d(N));
    assert_int_equal(ag_buffer_upload(t.buffer, 0, want, N, NULL), AG_OK);
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        size_t to = moves[i][0], from = moves[i][1], n = moves[i][2];
        memmove(want + to, want + from, n);
        assert_int_equal(ag_copy_slice(b->be, &t, to, &t, from, n), AG_OK);
        assert_int_equal(ag_read(b->be, got, &t, N), AG_OK);
        if (memcmp(got, want, N) != 0) fail_msg("move %zu", i);
    }
    free(want);
    free(got);
}

static void offsets_of_block_slices_count_elements(void **state) {
    bench *b = *state;
    float x[256], y[256];
    ag_tensor src = filled(b, AG_Q4_0, ag_shape_2d(4, 64), x);
    ag_tensor dst = filled(b, AG_Q4_0, ag_shape_2d(4, 64), y);
    assert_int_equal(ag_copy_slice(b->be, &dst, 64, &src, 160, 96), AG_OK);
    memcpy(y + 64, x + 160, 96 * sizeof *x);
    ag_tensor wide = empty(b, AG_F32, ag_shape_2d(4, 64));
    assert_int_equal(ag_cast(b->be, &wide, &dst), AG_OK);
    expect_values(b, &wide, y, 0);
    assert_int_equal(ag_copy_slice(b->be, &dst, 16, &src, 0, 32), AG_SHAPE);
    assert_int_equal(ag_copy_slice(b->be, &dst, 0, &src, 0, 33), AG_SHAPE);
    assert_int_equal(ag_copy_slice(b->be, &dst, 192, &src, 0, 96), AG_SHAPE);
    assert_non_null(strstr(ag_backend_error(b->be)->msg, "256"));
    assert_int_equal(ag_copy_slice(b->be, &wide, 0, &src, 0, 32), AG_DTYPE);
    assert_int_equal(ag_copy_slice(b->be, &dst, 0, &src, 256, 0), AG_OK);
}

static void copies_tensors_between_backends(void **state) {
    bench *b = *state;
    float x[96];
    ag_tensor t = filled(b, AG_F32, ag_shape_2d(3, 32), x), here, there;
    ag_backend *other = plain_backend_create(!ag_tensor_data(&t));
    ag_buffer *there_owner, *here_owner;
    assert_int_equal(ag_copy_from(other, &there, &there_owner, &t), AG_OK);
    assert_int_equal(ag_copy_from(b->be, &here, &here_owner, &there), AG_OK);
    assert_ptr_not_equal(here.buffer, t.buffer);
    assert_true(ag_shape_equal(&here.shape, &t.shape));
    expect_values(b, &here, x, 0);
    assert_int_equal(ag_copy_slice(b->be, &here, 0, &there, 32, 64), AG_OK);
    memmove(x, x + 32, 64 * sizeof *x);
    expect_values(b, &here, x, 0);
    ag_buffer_release(&here_owner);
    ag_buffer_release(&there_owner);
    ag_backend_destroy(other);
}

static void cast_to_the_same_type_copies(void **state) {
    bench *b = *state;
    float x[64];
    ag_tensor src = filled(b, AG_Q8_0, ag_shape_2d(1, 64), x);
    ag_tensor dst = empty(b, AG_Q8_0, ag_shape_2d(1, 64)), wide = empty(b, AG_F32, src.shape);
    assert_int_equal(ag_cast(b->be, &dst, &src), AG_OK);
    assert_int_equal(ag_cast(b->be, &wide, &dst), AG_OK);
    expect_values(b, &wide, x, 0);
    ag_tensor ids = empty(b, AG_I32, ag_shape_2d(1, 64));
    assert_int_equal(ag_cast(b->be, &ids, &src), AG_DTYPE);
}

/* ---- products ---- */

static void computes_slices_and_groups_by_products(void **state) {
    enum { K = 256 };
    bench *b = *state;
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    float x[2 * K], w[2][6 * K], want[2][2 * 6];
    ag_tensor xt = filled(b, AG_F32, ag_shape_2d(2, K), x);
    for (size_t t = 0; t < types.n; t++) {
        ag_tensor wt[2], y[2];
        for (int i = 0; i < 2; i++) {
            wt[i] = filled(b, types.v[t], ag_shape_2d(6, K), w[i]);
            y[i] = empty(b, AG_F32, ag_shape_2d(2, 6));
            for (size_t r = 0; r < 2 * 6; r++) {
                double sum = 0;
                for (size_t k = 0; k < K; k++) {
                    sum += (double)x[r / 6 * K + k] * w[i][r % 6 * K + k];
                }
                want[i][r] = (float)sum;
            }
        }
        assert_int_equal(ag_matmul_group(b->be, (ag_tensor *const[]){&y[0], &y[1]}, &xt,
                                         (const ag_tensor *const[]){&wt[0], &wt[1]}, 2),
                         AG_OK);
        for (int i = 0; i < 2; i++) expect_values(b, &y[i], want[i], 1e-5f);
        ag_tensor part = empty(b, AG_F32, ag_shape_2d(2, 3));
        assert_int_equal(ag_matmul_slice(b->be, &part, &xt, &wt[1], 2), AG_OK);
        float some[6];
        for (int i = 0; i < 6; i++) some[i] = want[1][i / 3 * 6 + 2 + i % 3];
        expect_values(b, &part, some, 1e-5f);
        assert_int_equal(ag_matmul_slice(b->be, &part, &xt, &wt[1], 4), AG_SHAPE);
        for (; b->n_owners > 1;) ag_buffer_release(&b->owners[--b->n_owners]);
    }
}

static void add_rms_norm_adds_before_it_norms(void **state) {
    bench *b = *state;
    float x[2 * 8], add[2 * 8], w[8], want[2 * 8];
    ag_tensor xt = filled(b, AG_F32, ag_shape_2d(2, 8), x);
    ag_tensor at = filled(b, AG_F32, ag_shape_2d(2, 8), add);
    ag_tensor wt = filled(b, AG_F32, ag_shape_1d(8), w);
    ag_tensor y = empty(b, AG_F32, ag_shape_2d(2, 8));
    for (int r = 0; r < 2; r++) {
        double sum = 0;
        for (int i = r * 8; i < r * 8 + 8; i++) {
            x[i] += add[i];
            sum += (double)x[i] * x[i];
        }
        for (int i = 0; i < 8; i++) {
            want[r * 8 + i] = (float)(x[r * 8 + i] / sqrt(sum / 8 + 0.01) * w[i]);
        }
    }
    assert_int_equal(ag_add_rms_norm(b->be, &y, &xt, &at, &wt, 0.01f), AG_OK);
    expect_values(b, &y, want, 1e-6f);
    expect_values(b, &xt, x, 0);
    assert_int_equal(ag_add_rms_norm(b->be, &xt, &xt, &at, &wt, 0.01f), AG_INVALID);
    assert_int_equal(ag_add_rms_norm(b->be, &y, &xt, &xt, &wt, 0.01f), AG_INVALID);
}

static void adds_bias_to_every_row(void **state) {
    bench *b = *state;
    float x[3 * 5], bias[5];
    ag_tensor xt = filled(b, AG_F32, ag_shape_2d(3, 5), x);
    ag_tensor bt = filled(b, AG_F32, ag_shape_1d(5), bias);
    for (int i = 0; i < 15; i++) x[i] += bias[i % 5];
    assert_int_equal(ag_add_bias(b->be, &xt, &bt), AG_OK);
    expect_values(b, &xt, x, 0);
}

static void activations_equal_their_formulas(void **state) {
    bench *b = *state;
    float a[3 * 5], x[3 * 5], y[3 * 5];
    ag_tensor at = filled(b, AG_F32, ag_shape_2d(3, 5), a);
    ag_tensor xt = filled(b, AG_F32, ag_shape_2d(3, 5), x);
    ag_tensor yt = filled(b, AG_F32, ag_shape_2d(3, 5), y);
    for (int i = 0; i < 15; i++) {
        const double v = (double)a[i], inner = sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v);
        a[i] = (float)(v / (1 + exp(-2 * inner)) * (double)x[i]);
        y[i] = 0.25f * tanhf(y[i] / 0.25f);
    }
    assert_int_equal(ag_gelu_mul(b->be, &at, &xt), AG_OK);
    expect_values(b, &at, a, 1e-7f);
    assert_int_equal(ag_softcap(b->be, &yt, 0.25f), AG_OK);
    expect_values(b, &yt, y, 1e-7f);
}

static void gates_multiply_elementwise(void **state) {
    bench *b = *state;
    float a[3 * 5], x[3 * 5], want[3 * 5];
    ag_tensor at = filled(b, AG_F32, ag_shape_2d(3, 5), a);
    ag_tensor xt = filled(b, AG_F32, ag_shape_2d(3, 5), x);
    for (int i = 0; i < 15; i++) want[i] = a[i] * x[i];
    assert_int_equal(ag_mul(b->be, &at, &xt), AG_OK);
    expect_values(b, &at, want, 0);
    for (int i = 0; i < 15; i++) want[i] = x[i] / (1 + expf(-want[i]));
    assert_int_equal(ag_sigmoid_mul(b->be, &at, &xt), AG_OK);
    expect_values(b, &at, want, 1e-6f);
}

static void convolution_uses_rows_of_its_state(void **state) {
    bench *b = *state;
    enum { ROWS = 5, CHANNELS = 3, TAPS = 3 };
    float x[ROWS * CHANNELS], w[TAPS * CHANNELS], before[(TAPS - 1) * CHANNELS];
    float all[(TAPS - 1 + ROWS) * CHANNELS], want[ROWS * CHANNELS];
    ag_tensor xt = filled(b, AG_F32, ag_shape_2d(ROWS, CHANNELS), x), part, to;
    ag_tensor wt = filled(b, AG_F32, ag_shape_2d(TAPS, CHANNELS), w);
    ag_tensor st = filled(b, AG_F32, ag_shape_2d(TAPS - 1, CHANNELS), before);
    ag_tensor y = empty(b, AG_F32, ag_shape_2d(ROWS, CHANNELS));
    memcpy(all, before, sizeof before);
    memcpy(all + (TAPS - 1) * CHANNELS, x, sizeof x);
    for (int i = 0; i < ROWS * CHANNELS; i++) {
        want[i] = 0;
        for (int j = 0; j < TAPS; j++) {
            want[i] += w[j * CHANNELS + i % CHANNELS] * all[i + j * CHANNELS];
        }
    }
    for (size_t row = 0, n = 1; row < ROWS; row += n, n = ROWS - row) { /* one, then the others */
        assert_int_equal(ag_tensor_rows(&part, &xt, row, n, NULL), AG_OK);
        assert_int_equal(ag_tensor_rows(&to, &y, row, n, NULL), AG_OK);
        assert_int_equal(ag_causal_conv(b->be, &to, &part, &wt, &st, false), AG_OK);
    }
    expect_values(b, &y, want, 1e-6f);
    expect_values(b, &st, all + ROWS * CHANNELS, 0);
    assert_int_equal(ag_causal_conv(b->be, &xt, &xt, &wt, &st, false), AG_INVALID);
    assert_int_equal(ag_causal_conv(b->be, &y, &xt, &wt, &wt, false), AG_SHAPE);
    assert_int_equal(ag_causal_conv(b->be, &y, &xt, &st, &st, false), AG_SHAPE);
    assert_int_equal(ag_causal_conv(b->be, &y, &xt, &xt, &st, false), AG_SHAPE);
}

/* Into an empty matrix goes half of the value, times the unit key; the query reads it back. */
static void delta_rule_stores_and_returns_values(void **state) {
    bench *b = *state;
    const ag_delta_params p = {
        .n_k_heads = 1, .n_v_heads = 2, .k_dim = 2, .v_dim = 3, .eps = 1e-6f};
    const float zeros[12] = {0}, row[] = {3, 4, 3, 4, 1, 2, 3, 4, 5, 6};
    float want[6], x[12];
    ag_tensor qkv = filled(b, AG_F32, ag_shape_2d(1, 10), x);
    ag_tensor st = filled(b, AG_F32, ag_shape_2d(4, 3), x);
    ag_tensor gate = filled(b, AG_F32, ag_shape_2d(1, 2), x);
    ag_tensor head = filled(b, AG_F32, ag_shape_1d(2), x),
              out = empty(b, AG_F32, ag_shape_2d(1, 6));
    ag_buffer_upload(qkv.buffer, qkv.offset, row, sizeof row, NULL);
    ag_buffer_upload(st.buffer, st.offset, zeros, sizeof zeros, NULL);
    ag_buffer_upload(gate.buffer, gate.offset, zeros, 2 * sizeof *zeros, NULL);
    for (int i = 0; i < 6; i++) want[i] = 0.5f * row[4 + i] / sqrtf(2);
    assert_int_equal(ag_delta_rule(b->be, &out, &qkv, &gate, &gate, &head, &head, &st, &p), AG_OK);
    expect_values(b, &out, want, 1e-5f);
    assert_int_equal(ag_delta_rule(b->be, &out, &qkv, &gate, &gate, &head, &head, &out, &p),
                     AG_SHAPE);
    assert_int_equal(ag_delta_rule(b->be, &out, &qkv, &gate, &gate, &out, &head, &st, &p),
                     AG_SHAPE);
    const ag_delta_params odd = {.n_k_heads = 2, .n_v_heads = 3, .k_dim = 2, .v_dim = 3};
    assert_int_equal(ag_delta_rule(b->be, &out, &qkv, &gate, &gate, &head, &head, &st, &odd),
                     AG_INVALID);
}

static void gathers_rows_of_any_type(void **state) {
    enum { K = 256 };
    bench *b = *state;
    const dtype_set types = dtypes_with(AG_DTYPE_FLOATS);
    for (size_t t = 0; t < types.n; t++) {
        float table[7 * K], want[4 * K];
        static const int32_t ids[] = {6, 0, 3, 6};
        ag_tensor tt = filled(b, types.v[t], ag_shape_2d(7, K), table);
        ag_tensor dst = empty(b, AG_F32, ag_shape_2d(4, K));
        for (int i = 0; i < 4; i++) memcpy(want + i * K, table + ids[i] * K, K * sizeof *want);
        assert_int_equal(ag_gather(b->be, &dst, &tt, ids, 4), AG_OK);
        expect_values(b, &dst, want, 0);
        assert_int_equal(ag_gather(b->be, &dst, &tt, (int32_t[]){0, 7, 0, 0}, 4), AG_INVALID);
        assert_non_null(strstr(ag_backend_error(b->be)->msg, "id 7"));
        assert_int_equal(ag_gather(b->be, &dst, &tt, (int32_t[]){0, 0, 0, -1}, 4), AG_INVALID);
        assert_int_equal(ag_gather(b->be, &dst, &tt, ids, 3), AG_SHAPE);
        expect_values(b, &dst, want, 0);
    }
}

/* ---- weights ---- */

static bool count_rows(void *user, size_t row0, size_t n_rows) {
    size_t *next = user;
    assert_int_equal(row0, *next);
    *next += n_rows;
    return true;
}

/* A weight of the file: always on the host. */
static ag_tensor file_weight(bench *files, ag_dtype dtype, size_t rows, size_t cols, float *x) {
    return filled(files, dtype, ag_shape_2d(rows, cols), x);
}

static void converts_weights_to_the_requested_type(void **state) {
    enum { K = 256 };
    bench *b = *state, files = {.be = plain_backend_create(true)};
    const dtype_set types = dtypes_with(AG_DTYPE_WEIGHT);
    for (size_t from = 0; from < 3; from++) {
        for (size_t to = 0; to < types.n; to++) {
            float x[5 * K], want[5 * K];
            unsigned char packed[K * 4];
            ag_tensor src = file_weight(&files, types.v[from], 5, K, x), w;
            ag_buffer *owner;
            size_t consumed = 0;
            assert_int_equal(
                ag_prepare_weight(b->be, &w, &owner, &src, types.v[to], count_rows, &consumed),
                AG_OK);
            assert_int_equal(consumed, 5);
            assert_int_equal(w.dtype, types.v[to]);
            for (size_t r = 0; r < 5; r++) {
                ag_quantize_row(w.dtype, packed, x + r * K, K, AG_ROUND_WEIGHT, NULL);
                ag_dequantize_row(w.dtype, want + r * K, packed, K);
            }
            ag_tensor wide = empty(b, AG_F32, ag_shape_2d(5, K));
            if (w.dtype == AG_F32) wide = w;
            else assert_int_equal(ag_cast(b->be, &wide, &w), AG_OK);
            expect_values(b, &wide, want, 0);
            ag_buffer_release(&owner);
            drop_tensors(b);
            drop_tensors(&files);
        }
    }
    ag_backend_destroy(files.be);
}

static void rows_that_fit_no_block_keep_their_type(void **state) {
    bench *b = *state, files = {.be = plain_backend_create(true)};
    float x[3 * 33];
    ag_tensor src = file_weight(&files, AG_BF16, 3, 33, x), w;
    ag_buffer *owner;
    assert_int_equal(ag_prepare_weight(b->be, &w, &owner, &src, AG_Q4_0, NULL, NULL), AG_OK);
    assert_int_equal(w.dtype, AG_BF16);
    ag_buffer_release(&owner);
    drop_tensors(&files);
    ag_backend_destroy(files.be);
}

static void reports_row_and_index_of_bad_weights(void **state) {
    bench *b = *state, files = {.be = plain_backend_create(true)};
    float x[4 * 32];
    ag_tensor src = file_weight(&files, AG_F32, 4, 32, x), w;
    static const struct {
        float value;
        ag_dtype want;
        const char *say;
    } cases[] = {
        {NAN, AG_Q4_0, "value 7 of row 2 is NaN"},
        {INFINITY, AG_F32, "value 7 of row 2 is infinite"},
        {1e6f, AG_F16, "value 7 of row 2 is 1e+06, too large for f16"},
        {-1e6f, AG_Q4_0, "value 7 of row 2 is -1e+06, too large for q4_0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_buffer *owner = src.buffer;
        ag_tensor_f32(&src)[2 * 32 + 7] = cases[i].value;
        assert_int_equal(ag_prepare_weight(b->be, &w, &owner, &src, cases[i].want, NULL, NULL),
                         AG_FORMAT);
        assert_null(owner);
        assert_string_equal(ag_backend_error(b->be)->msg, cases[i].say);
    }
    drop_tensors(&files);
    ag_backend_destroy(files.be);
}

/* ---- operations reject wrong shapes, and do not change the destination ---- */

static void reports_both_shapes_on_mismatch(void **state) {
    bench *b = *state;
    float x[2 * 32], w[4 * 32], zeros[8] = {0};
    ag_tensor xt = filled(b, AG_F32, ag_shape_2d(2, 32), x);
    ag_tensor wt = filled(b, AG_F32, ag_shape_2d(4, 32), w);
    ag_tensor y = empty(b, AG_F32, ag_shape_2d(2, 4)), half = empty(b, AG_F16, ag_shape_2d(2, 4));
    ag_tensor narrow = wt, row;
    narrow.shape = ag_shape_2d(4, 31);
    const ag_error *err = ag_backend_error(b->be);
    assert_int_equal(ag_matmul_transposed(b->be, &y, &xt, &narrow), AG_SHAPE);
    assert_non_null(strstr(err->msg, "[2,32]"));
    assert_non_null(strstr(err->msg, "[4,31]"));
    assert_int_equal(ag_matmul_transposed(b->be, &half, &xt, &wt), AG_DTYPE);
    assert_non_null(strstr(err->msg, "f16"));
    assert_int_equal(ag_tensor_rows(&row, &y, 0, 1, NULL), AG_OK);
    assert_int_equal(ag_matmul_transposed(b->be, &row, &xt, &wt), AG_SHAPE);
    assert_int_equal(ag_matmul(b->be, &y, &xt, &wt), AG_SHAPE);
    assert_int_equal(ag_rms_norm(b->be, &y, &xt, &wt, 0), AG_SHAPE);
    assert_int_equal(ag_rms_norm(b->be, &xt, &xt, &wt, 0), AG_SHAPE);
    assert_int_equal(ag_add_bias(b->be, &y, &xt), AG_SHAPE);
    assert_int_equal(ag_silu_mul(b->be, &y, &xt), AG_SHAPE);
    assert_int_equal(ag_gelu_mul(b->be, &y, &xt), AG_SHAPE);
    assert_int_equal(ag_mul(b->be, &y, &xt), AG_SHAPE);
    assert_int_equal(ag_sigmoid_mul(b->be, &y, &xt), AG_SHAPE);
    assert_int_equal(ag_softcap(b->be, &half, 2), AG_DTYPE);
    assert_int_equal(ag_softcap(b->be, &y, 0), AG_INVALID);
    assert_int_equal(ag_softcap(b->be, &y, NAN), AG_INVALID);
    assert_int_equal(ag_add_assign(b->be, &y, &xt), AG_SHAPE);
    assert_int_equal(ag_softmax(b->be, &half), AG_DTYPE);
    assert_int_equal(ag_scale(b->be, &half, 2), AG_DTYPE);
    assert_int_equal(ag_rope(b->be, &xt, NULL, &wt), AG_SHAPE);
    assert_int_equal(ag_matmul_group(b->be, NULL, &xt, NULL, 5), AG_INVALID);
    assert_int_equal(ag_read(b->be, zeros, &y, 33), AG_INVALID);
    wt.layout = 1;
    assert_int_equal(ag_matmul_slice(b->be, &y, &xt, &wt, 0), AG_INVALID);
    assert_int_equal(ag_gather(b->be, &y, &wt, (int32_t[]){0, 0}, 2), AG_INVALID);
    expect_values(b, &y, zeros, 0);
}

/* ---- running out of memory ---- */

static void expect_no_memory_or_success(ag_status st, const failing_allocator *f) {
    assert_int_equal(st, f->failed ? AG_NOMEM : AG_OK);
}

static void failed_allocation_is_reported(void **state) {
    bench *b = *state, files = {.be = plain_backend_create(true)};
    float values[4 * 32], bias[32];
    ag_tensor src = file_weight(&files, AG_BF16, 4, 32, values);
    ag_tensor x = filled(b, AG_F32, ag_shape_2d(4, 32), values);
    ag_tensor bt = filled(b, AG_F32, ag_shape_1d(32), bias);
    ag_tensor conv = filled(b, AG_F32, ag_shape_2d(2, 32), values);
    ag_tensor y = filled(b, AG_F32, ag_shape_2d(4, 32), values);
    ag_tensor gate = filled(b, AG_F32, ag_shape_2d(4, 4), values), head = gate;
    ag_tensor matrix = filled(b, AG_F32, ag_shape_2d(4, 32), values);
    head.shape = ag_shape_1d(4);
    const ag_delta_params delta = {.n_k_heads = 2, .n_v_heads = 4, .k_dim = 4, .v_dim = 4};
    ag_tensor few = y;
    few.shape = ag_shape_2d(4, 16);
    for (int op = 0; op < 9; op++) {
        bool failed = true;
        for (size_t n = 0; failed; n++) {
            failing_allocator f;
            ag_tensor out;
            ag_buffer *owner = NULL;
            ag_status st = AG_OK;
            failing_install(&f, n);
            if (op == 0) {
                st = ag_prepare_weight(b->be, &out, &owner, &src, AG_Q4_0, NULL, NULL);
            } else if (op == 1) {
                st = ag_copy_from(b->be, &out, &owner, &x);
            } else if (op == 2) {
                st = ag_add_bias(b->be, &x, &bt);
            } else if (op == 3) {
                st = ag_gather(b->be, &x, &src, (int32_t[]){3, 2, 1, 0}, 4);
            } else if (op == 4) {
                st = ag_gelu_mul(b->be, &x, &x);
            } else if (op == 5) {
                st = ag_softcap(b->be, &x, 2);
            } else if (op == 6) {
                ag_tensor past;
                assert_int_equal(ag_tensor_rows(&past, &conv, 0, 1, NULL), AG_OK);
                st = ag_causal_conv(b->be, &y, &x, &conv, &past, true);
            } else if (op == 7) {
                ag_tensor s = matrix;
                s.shape = ag_shape_2d(16, 4);
                st = ag_delta_rule(b->be, &few, &x, &gate, &gate, &head, &head, &s, &delta);
            } else {
                st = ag_copy_slice(b->be, &x, 0, &x, 32, 64);
            }
            expect_no_memory_or_success(st, &f);
            if (st != AG_OK) assert_null(owner);
            ag_buffer_release(&owner);
            failed = f.failed;
            ag_set_allocator(NULL);
            assert_int_equal(f.in_use, 0);
        }
    }
    drop_tensors(&files);
    ag_backend_destroy(files.be);
}

#define BOTH(test)                                                  \
    {"on the host: " #test, test, start_on_the_host, stop, NULL}, { \
        "on a device: " #test, test, start_on_a_device, stop, NULL  \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH(describes_a_backend_without_describe),
        BOTH(copies_overlapping_slices),
        BOTH(offsets_of_block_slices_count_elements),
        BOTH(copies_tensors_between_backends),
        BOTH(cast_to_the_same_type_copies),
        BOTH(computes_slices_and_groups_by_products),
        BOTH(add_rms_norm_adds_before_it_norms),
        BOTH(adds_bias_to_every_row),
        BOTH(activations_equal_their_formulas),
        BOTH(gates_multiply_elementwise),
        BOTH(convolution_uses_rows_of_its_state),
        BOTH(delta_rule_stores_and_returns_values),
        BOTH(gathers_rows_of_any_type),
        BOTH(converts_weights_to_the_requested_type),
        BOTH(rows_that_fit_no_block_keep_their_type),
        BOTH(reports_row_and_index_of_bad_weights),
        BOTH(reports_both_shapes_on_mismatch),
        BOTH(failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
