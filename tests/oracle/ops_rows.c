/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: m rows of n values. */
#include "oracle/oracle.h"

#include "core/hadamard.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-5f

static guarded rows_of(const oracle_case *c, oracle_run *run) {
    return guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, run->data);
}

static void finish(oracle_run *run, guarded *destination, guarded *inputs, size_t n_inputs) {
    guarded_check(run, destination, true);
    guarded_free(destination);
    for (size_t i = 0; i < n_inputs; i++) {
        guarded_check(run, &inputs[i], false);
        guarded_free(&inputs[i]);
    }
}

static void want_rms_norm(double *y, const double *x, const float *w, size_t m, size_t n) {
    for (size_t i = 0; i < m; i++) {
        double squares = 0;
        for (size_t j = 0; j < n; j++) squares += x[i * n + j] * x[i * n + j];
        double factor = 1 / sqrt(squares / (double)n + (double)EPS);
        for (size_t j = 0; j < n; j++) y[i * n + j] = x[i * n + j] * factor * w[j];
    }
}

void oracle_rms_norm(const oracle_case *c, oracle_run *run) {
    guarded y = rows_of(c, run);
    guarded in[] = {rows_of(c, run), guarded_make(run, AG_F32, ag_shape_1d(c->n), 0, DATA_PLAIN)};
    while (oracle_again(run, NULL))
        run->status = ag_rms_norm(run->be, &y.t, &in[0].t, &in[1].t, EPS);
    double *want = oracle_take(run, &y);
    for (size_t i = 0; want && i < c->m * c->n; i++) want[i] = in[0].values[i];
    if (want) want_rms_norm(want, want, in[1].values, c->m, c->n);
    finish(run, &y, in, 2);
}

/* Both destinations: the sum, rounded to float, and its norm. */
void oracle_add_rms_norm(const oracle_case *c, oracle_run *run) {
    guarded y = rows_of(c, run), x = rows_of(c, run);
    guarded in[] = {rows_of(c, run), guarded_make(run, AG_F32, ag_shape_1d(c->n), 0, DATA_PLAIN)};
    while (oracle_again(run, &x)) {
        run->status = ag_add_rms_norm(run->be, &y.t, &x.t, &in[0].t, &in[1].t, EPS);
    }
    const size_t at = run->n, n = c->m * c->n;
    const double *sums = oracle_take(run, &x), *normed = oracle_take(run, &y);
    if (sums && normed) {
        double *sum = run->want + at;
        for (size_t i = 0; i < n; i++) sum[i] = x.values[i] + in[0].values[i];
        want_rms_norm(sum + n, sum, in[1].values, c->m, c->n);
    }
    finish(run, &x, NULL, 0);
    finish(run, &y, in, 2);
}

/* Every third row is -inf alone. */
void oracle_softmax(const oracle_case *c, oracle_run *run) {
    guarded x = rows_of(c, run);
    for (size_t i = 0; x.buffer && i < c->m * c->n; i++) {
        if (i / c->n % 3 == 1) x.values[i] = -INFINITY;
    }
    if (x.buffer) {
        run->status = ag_buffer_upload(x.buffer, x.t.offset, x.values, ag_tensor_bytes(&x.t), NULL);
    }
    while (oracle_again(run, &x)) run->status = ag_softmax(run->be, &x.t);
    double *want = oracle_take(run, &x);
    for (size_t i = 0; want && i < c->m; i++, want += c->n) {
        const float *row = x.values + i * c->n;
        double max = -INFINITY, sum = 0;
        for (size_t j = 0; j < c->n; j++) max = row[j] > max ? row[j] : max;
        for (size_t j = 0; j < c->n; j++) sum += want[j] = exp(row[j] - max);
        for (size_t j = 0; j < c->n; j++) {
            /* A NaN stays to be seen, even in a row of -inf. */
            if (max == -INFINITY) want[j] = isnan(row[j]) ? row[j] : 0;
            else want[j] /= sum;
        }
    }
    finish(run, &x, NULL, 0);
}

void oracle_add_assign(const oracle_case *c, oracle_run *run) {
    guarded x = rows_of(c, run), y = rows_of(c, run);
    while (oracle_again(run, &x)) run->status = ag_add_assign(run->be, &x.t, &y.t);
    double *want = oracle_take(run, &x);
    for (size_t i = 0; want && i < c->m * c->n; i++) want[i] = (double)x.values[i] + y.values[i];
    finish(run, &x, &y, 1);
}

void oracle_add_bias(const oracle_case *c, oracle_run *run) {
    guarded x = rows_of(c, run);
    guarded bias = guarded_make(run, AG_F32, ag_shape_1d(c->n), 0, run->data);
    while (oracle_again(run, &x)) run->status = ag_add_bias(run->be, &x.t, &bias.t);
    double *want = oracle_take(run, &x);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        want[i] = (double)x.values[i] + bias.values[i % c->n];
    }
    finish(run, &x, &bias, 1);
}

void oracle_scale(const oracle_case *c, oracle_run *run) {
    guarded x = rows_of(c, run);
    while (oracle_again(run, &x)) run->status = ag_scale(run->be, &x.t, 0.3f);
    double *want = oracle_take(run, &x);
    for (size_t i = 0; want && i < c->m * c->n; i++) want[i] = (double)x.values[i] * 0.3f;
    finish(run, &x, NULL, 0);
}

void oracle_silu_mul(const oracle_case *c, oracle_run *run) {
    guarded a = rows_of(c, run), b = rows_of(c, run);
    while (oracle_again(run, &a)) run->status = ag_silu_mul(run->be, &a.t, &b.t);
    double *want = oracle_take(run, &a);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        want[i] = a.values[i] / (1 + exp(-(double)a.values[i])) * b.values[i];
    }
    finish(run, &a, &b, 1);
}

void oracle_gelu_mul(const oracle_case *c, oracle_run *run) {
    guarded a = rows_of(c, run), b = rows_of(c, run);
    while (oracle_again(run, &a)) run->status = ag_gelu_mul(run->be, &a.t, &b.t);
    double *want = oracle_take(run, &a);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        const double x = a.values[i], u = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
        want[i] = x / (1 + exp(-2 * u)) * b.values[i];
    }
    finish(run, &a, &b, 1);
}

void oracle_mul(const oracle_case *c, oracle_run *run) {
    guarded a = rows_of(c, run), b = rows_of(c, run);
    while (oracle_again(run, &a)) run->status = ag_mul(run->be, &a.t, &b.t);
    double *want = oracle_take(run, &a);
    for (size_t i = 0; want && i < c->m * c->n; i++) want[i] = (double)a.values[i] * b.values[i];
    finish(run, &a, &b, 1);
}

void oracle_sigmoid_mul(const oracle_case *c, oracle_run *run) {
    guarded a = rows_of(c, run), b = rows_of(c, run);
    while (oracle_again(run, &a)) run->status = ag_sigmoid_mul(run->be, &a.t, &b.t);
    double *want = oracle_take(run, &a);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        want[i] = b.values[i] / (1 + exp(-(double)a.values[i]));
    }
    finish(run, &a, &b, 1);
}

void oracle_softcap(const oracle_case *c, oracle_run *run) {
    guarded x = rows_of(c, run);
    while (oracle_again(run, &x)) run->status = ag_softcap(run->be, &x.t, 0.7f);
    double *want = oracle_take(run, &x);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        want[i] = (double)0.7f * tanh((double)x.values[i] / (double)0.7f);
    }
    finish(run, &x, NULL, 0);
}

static bool is_better(const float *row, size_t a, size_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
}

/* Numbers of the best, their values, the values at both ends, their count, the first bad one. */
static void put_found(guarded *found, const ag_top_k *top, const oracle_case *c) {
    float *f = found->values;
    for (size_t i = 0; i < c->m; i++) {
        f[i] = i < top->n ? (float)top->best_ids[i] : -1;
        f[c->m + i] = i < top->n ? top->best[i] : -1;
    }
    f[2 * c->m] = top->at[0];
    f[2 * c->m + 1] = top->at[1];
    f[2 * c->m + 2] = (float)top->n;
    f[2 * c->m + 3] = top->bad == SIZE_MAX ? -1 : (float)top->bad;
    ag_buffer_upload(found->buffer, found->t.offset, f, ag_tensor_bytes(&found->t), NULL);
}

static bool is_left_out(const uint32_t *mask, size_t id) {
    return mask && !(mask[id / 32] >> id % 32 & 1);
}

static void want_found(double *want, const float *row, const uint32_t *mask, const oracle_case *c) {
    size_t n = 0, bad = SIZE_MAX, last = SIZE_MAX;
    for (size_t i = 0; i < c->m; i++) {
        size_t best = SIZE_MAX;
        for (size_t j = 0; j < c->n; j++) {
            if (is_left_out(mask, j) || !isfinite(row[j])) continue;
            if (last != SIZE_MAX && !is_better(row, last, j)) continue;
            if (best == SIZE_MAX || is_better(row, j, best)) best = j;
        }
        if (best != SIZE_MAX) last = best;
        const bool ended = best == SIZE_MAX || n < i;
        want[i] = ended ? -1 : (double)best;
        want[c->m + i] = ended ? -1 : (double)row[best];
        n += !ended;
    }
    for (size_t j = c->n; j-- > 0;) {
        if (!is_left_out(mask, j) && (isnan(row[j]) || row[j] == INFINITY)) bad = j;
    }
    want[2 * c->m] = row[0];
    want[2 * c->m + 1] = row[c->n - 1];
    want[2 * c->m + 2] = (double)n;
    want[2 * c->m + 3] = bad == SIZE_MAX ? -1 : (double)bad;
}

/* Selects the best m of the last of three rows of n values, and reads its first and last values. If
 * m is odd, a mask leaves out a quarter of that row. Needs one value of the first row and none of
 * the second. Compares nothing if the backend has no top-k operation. */
void oracle_top_k(const oracle_case *c, oracle_run *run) {
    enum { ROWS = 3 };
    ag_top_k *both = calloc(2, sizeof *both), *top = both;
    uint32_t *mask = calloc(c->n / 32 + 1, sizeof *mask);
    const int32_t ends[] = {0, (int32_t)c->n - 1};
    guarded row = guarded_make(run, AG_F32, ag_shape_2d(ROWS, c->n), 0, run->data);
    guarded found = guarded_make(run, AG_F32, ag_shape_1d(2 * c->m + 4), 0, DATA_PLAIN);
    run->out_of_memory |= !both || !mask;
    if (!run->out_of_memory && ag_has_top_k(run->be)) {
        /* Many equal values, and some -infinity, which must not be selected. */
        for (size_t i = 0; i < ROWS * c->n; i++) {
            row.values[i] = roundf(row.values[i] * 8) / 8;
            if (oracle_below(run, 4) == 0) row.values[i] = -INFINITY;
        }
        ag_buffer_upload(row.buffer, row.t.offset, row.values, ag_tensor_bytes(&row.t), NULL);
        top->k = c->m;
        top->ids = ends;
        top->n_ids = 2;
        for (size_t i = 0; i < c->n; i++)
            mask[i / 32] |= (uint32_t)(oracle_below(run, 4) > 0) << i % 32;
        if (c->m % 2) top->mask = mask;
        both[1] = (ag_top_k){.k = 1};
        ag_top_k *const tops[ROWS] = {&both[1], NULL, top};
        while (oracle_again(run, NULL)) run->status = ag_find_top_k(run->be, &row.t, tops);
        put_found(&found, top, c);
        double *want = oracle_take(run, &found);
        if (want) want_found(want, row.values + (ROWS - 1) * c->n, top->mask, c);
        memcpy(row.image + row.t.offset, row.values, ag_tensor_bytes(&row.t));
    }
    guarded_check(run, &row, false);
    guarded_free(&row);
    guarded_free(&found);
    free(both);
    free(mask);
}

/* Every value of a piece is a sum of all of them, with signs. */
void oracle_hadamard(const oracle_case *c, oracle_run *run) {
    const size_t piece = ag_hadamard_piece(c->n);
    guarded x = rows_of(c, run);
    while (oracle_again(run, &x)) run->status = ag_kv_hadamard(run->be, &x.t, NULL);
    double *want = oracle_take(run, &x);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        const size_t begin = i / piece * piece;
        want[i] = 0;
        for (size_t j = 0; j < piece; j++) {
            const bool odd = __builtin_parityll((i - begin) & j);
            want[i] += odd ? -(double)x.values[begin + j] : (double)x.values[begin + j];
        }
        want[i] /= sqrt((double)piece);
    }
    finish(run, &x, NULL, 0);
}

/* Heads of d values, `heads` of them to a row. */
static void want_rope(double *want, const float *x, const float *freq, const uint32_t *positions,
                      size_t rows, size_t heads, size_t d, size_t half, double factor) {
    for (size_t i = 0; i < rows * heads * d; i++) {
        const size_t row = i / (heads * d), j = i % d;
        want[i] = x[i];
        if (j >= 2 * half) continue;
        const float angle = (float)positions[row] * freq[j % half];
        const double other = j < half ? -(double)x[i + half] : x[i - half];
        want[i] = factor * (x[i] * cos((double)angle) + other * sin((double)angle));
    }
}

/* m rows of k heads of n values, at positions up to 2^17. */
static void run_rope(const oracle_case *c, oracle_run *run, size_t half) {
    const size_t heads = c->k, d = c->n;
    uint32_t positions[512];
    guarded x = guarded_make(run, AG_F32, ag_shape_3d(c->m, heads, d), 0, run->data);
    guarded freq = guarded_make_on_host(run, AG_F32, ag_shape_1d(half), 0, DATA_PLAIN);
    for (size_t i = 0; i < c->m; i++) positions[i] = oracle_below(run, 1u << 17);
    while (oracle_again(run, &x)) run->status = ag_rope(run->be, &x.t, positions, &freq.t);
    double *want = oracle_take(run, &x);
    if (want) want_rope(want, x.values, freq.values, positions, c->m, heads, d, half, 1);
    finish(run, &x, &freq, 1);
}

/* Rotates m rows of k heads and, after them in the same buffer, m rows of k / 2 + 1 heads. */
static void run_rope_pair(const oracle_case *c, oracle_run *run, size_t half) {
    const size_t heads = c->k, more = c->k / 2 + 1, d = c->n, before = c->m * heads * d;
    uint32_t positions[512];
    guarded x = guarded_make(run, AG_F32, ag_shape_2d(c->m * (heads + more), d), 0, run->data);
    guarded freq = guarded_make_on_host(run, AG_F32, ag_shape_1d(half), 0, DATA_PLAIN);
    ag_tensor q = x.t, k = x.t;
    q.shape = ag_shape_3d(c->m, heads, d);
    k.shape = ag_shape_3d(c->m, more, d);
    k.offset += before * sizeof(float);
    for (size_t i = 0; i < c->m; i++) positions[i] = oracle_below(run, 1u << 17);
    const float factor = half == d / 2 ? 1 : 1.1875f;
    while (oracle_again(run, &x)) {
        run->status = ag_rope_pair(run->be, &q, &k, positions, &freq.t, factor);
    }
    double *want = oracle_take(run, &x);
    if (want) {
        want_rope(want, x.values, freq.values, positions, c->m, heads, d, half, (double)factor);
        want_rope(want + before, x.values + before, freq.values, positions, c->m, more, d, half,
                  (double)factor);
    }
    finish(run, &x, &freq, 1);
}

static size_t part_of(const oracle_case *c) { return c->n > 4 ? c->n / 4 : 1; }

void oracle_rope(const oracle_case *c, oracle_run *run) { run_rope(c, run, c->n / 2); }
void oracle_rope_part(const oracle_case *c, oracle_run *run) { run_rope(c, run, part_of(c)); }
void oracle_rope_pair(const oracle_case *c, oracle_run *run) { run_rope_pair(c, run, c->n / 2); }
void oracle_rope_pair_part(const oracle_case *c, oracle_run *run) {
    run_rope_pair(c, run, part_of(c));
}

/* n columns; m rows looked up in a table of k. */
void oracle_gather(const oracle_case *c, oracle_run *run) {
    int32_t ids[512];
    guarded dst = rows_of(c, run);
    guarded table = guarded_make(run, c->type, ag_shape_2d(c->k, c->n), 0, run->data);
    for (size_t i = 0; i < c->m; i++) ids[i] = (int32_t)oracle_below(run, (uint32_t)c->k);
    while (oracle_again(run, NULL)) run->status = ag_gather(run->be, &dst.t, &table.t, ids, c->m);
    double *want = oracle_take(run, &dst);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        want[i] = table.values[(size_t)ids[i / c->n] * c->n + i % c->n];
    }
    finish(run, &dst, &table, 1);
}

void oracle_cast_from(const oracle_case *c, oracle_run *run) {
    guarded dst = rows_of(c, run);
    guarded src = guarded_make(run, c->type, ag_shape_2d(c->m, c->n), 0, run->data);
    while (oracle_again(run, NULL)) run->status = ag_cast(run->be, &dst.t, &src.t);
    double *want = oracle_take(run, &dst);
    for (size_t i = 0; want && i < c->m * c->n; i++) want[i] = src.values[i];
    finish(run, &dst, &src, 1);
}

void oracle_cast_to(const oracle_case *c, oracle_run *run) {
    guarded dst = guarded_make(run, c->type, ag_shape_2d(c->m, c->n), 0, DATA_PLAIN);
    guarded src = rows_of(c, run);
    while (oracle_again(run, NULL)) run->status = ag_cast(run->be, &dst.t, &src.t);
    double *want = oracle_take(run, &dst);
    for (size_t i = 0; want && i < c->m; i++) {
        unsigned char packed[4096];
        float values[512];
        ag_quantize_row(c->type, packed, src.values + i * c->n, c->n, AG_ROUND_REFERENCE, NULL);
        ag_dequantize_row(c->type, values, packed, c->n);
        for (size_t j = 0; j < c->n; j++) want[i * c->n + j] = values[j];
    }
    finish(run, &dst, &src, 1);
}
