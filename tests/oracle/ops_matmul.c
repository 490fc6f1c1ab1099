/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: y[m,n] from x[m,k] and w[n,k]. */
#include "oracle/oracle.h"

#include "quant/quant.h"

#include <stdlib.h>

/* Misaligns weights on purpose: a weight in a mapped file can have any address. */
enum { WEIGHT_SKEW = 3 };

static void want_transposed(double *y, const float *x, const float *w, size_t m, size_t n,
                            size_t k) {
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t l = 0; l < k; l++) sum += (double)x[i * k + l] * w[j * k + l];
            y[i * n + j] = sum;
        }
    }
}

static void finish(oracle_run *run, guarded *tensors, size_t n, const guarded *destination) {
    for (size_t i = 0; i < n; i++) {
        guarded_check(run, &tensors[i], &tensors[i] == destination);
        guarded_free(&tensors[i]);
    }
}

/* a[m,k] * b[k,n] */
void oracle_matmul(const oracle_case *c, oracle_run *run) {
    guarded t[] = {guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, DATA_PLAIN),
                   guarded_make(run, AG_F32, ag_shape_2d(c->m, c->k), 0, run->data),
                   guarded_make(run, AG_F32, ag_shape_2d(c->k, c->n), 0, run->data)};
    while (oracle_again(run, NULL)) run->status = ag_matmul(run->be, &t[0].t, &t[1].t, &t[2].t);
    double *want = oracle_take(run, &t[0]);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        want[i] = 0;
        for (size_t l = 0; l < c->k; l++) {
            want[i] += (double)t[1].values[i / c->n * c->k + l] * t[2].values[l * c->n + i % c->n];
        }
    }
    finish(run, t, 3, &t[0]);
}

void oracle_matmul_transposed(const oracle_case *c, oracle_run *run) {
    guarded t[] = {guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, DATA_PLAIN),
                   guarded_make(run, AG_F32, ag_shape_2d(c->m, c->k), 0, run->data),
                   guarded_make(run, c->type, ag_shape_2d(c->n, c->k), WEIGHT_SKEW, DATA_PLAIN)};
    while (oracle_again(run, NULL))
        run->status = ag_matmul_transposed(run->be, &t[0].t, &t[1].t, &t[2].t);
    double *want = oracle_take(run, &t[0]);
    if (want) want_transposed(want, t[1].values, t[2].values, c->m, c->n, c->k);
    finish(run, t, 3, &t[0]);
}

/* Converts a BF16 weight, as a file stores it, to c->type. The expected values are those of the
 * reference conversion. */
void oracle_matmul_prepared(const oracle_case *c, oracle_run *run) {
    guarded t[] = {
        guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, DATA_PLAIN),
        guarded_make(run, AG_F32, ag_shape_2d(c->m, c->k), 0, run->data),
        guarded_make_on_host(run, AG_BF16, ag_shape_2d(c->n, c->k), WEIGHT_SKEW, DATA_PLAIN)};
    ag_tensor w;
    ag_buffer *owner = NULL;
    run->rounds_input = ag_dtype_is_quantized(c->type);
    if (!run->out_of_memory) {
        run->status = ag_prepare_weight(run->be, &w, &owner, &t[2].t, c->type, NULL, NULL);
    }
    while (owner && oracle_again(run, NULL))
        run->status = ag_matmul_transposed(run->be, &t[0].t, &t[1].t, &w);
    double *want = oracle_take(run, &t[0]);
    for (size_t j = 0; want && j < c->n; j++) {
        unsigned char *row = malloc(ag_dtype_row_bytes(c->type, c->k));
        if (!row) break;
        float *values = t[2].values + j * c->k;
        ag_quantize_row(c->type, row, values, c->k, AG_ROUND_WEIGHT, NULL);
        ag_dequantize_row(c->type, values, row, c->k);
        free(row);
    }
    if (want) want_transposed(want, t[1].values, t[2].values, c->m, c->n, c->k);
    ag_buffer_release(&owner);
    finish(run, t, 3, &t[0]);
}

/* The last n rows of a weight of n + 5. */
void oracle_matmul_slice(const oracle_case *c, oracle_run *run) {
    enum { ROW0 = 5 };
    guarded t[] = {guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, DATA_PLAIN),
                   guarded_make(run, AG_F32, ag_shape_2d(c->m, c->k), 0, run->data),
                   guarded_make(run, c->type, ag_shape_2d(ROW0 + c->n, c->k), 0, DATA_PLAIN)};
    while (oracle_again(run, NULL)) {
        run->status = ag_matmul_slice(run->be, &t[0].t, &t[1].t, &t[2].t, ROW0);
    }
    double *want = oracle_take(run, &t[0]);
    if (want) want_transposed(want, t[1].values, t[2].values + ROW0 * c->k, c->m, c->n, c->k);
    finish(run, t, 3, &t[0]);
}

/* y[i] as of weights whose rounded values are known. */
static void take_group(oracle_run *run, guarded *y, const guarded *x, guarded *w, const size_t *n,
                       size_t m, size_t k) {
    for (int i = 0; i < 3; i++) {
        double *want = oracle_take(run, &y[i]);
        if (want) want_transposed(want, x->values, w[i].values, m, n[i], k);
        finish(run, &y[i], 1, &y[i]);
        finish(run, &w[i], 1, NULL);
    }
}

/* Three products with prepared weights as of q, k and v, from values that their type holds. */
void oracle_matmul_group_prepared(const oracle_case *c, oracle_run *run) {
    const size_t n[3] = {c->n, 1, c->n / 2 + 3};
    guarded x = guarded_make(run, AG_F32, ag_shape_2d(c->m, c->k), 0, run->data), y[3], w[3];
    ag_tensor prepared[3], *yp[3];
    const ag_tensor *wp[3];
    ag_buffer *owners[3] = {NULL, NULL, NULL};
    run->rounds_input = ag_dtype_is_quantized(c->type);
    for (int i = 0; i < 3; i++) {
        y[i] = guarded_make(run, AG_F32, ag_shape_2d(c->m, n[i]), 0, DATA_PLAIN);
        w[i] = guarded_make_on_host(run, c->type, ag_shape_2d(n[i], c->k), 0, DATA_PLAIN);
        yp[i] = &y[i].t;
        wp[i] = &prepared[i];
        if (run->out_of_memory || run->status != AG_OK) continue;
        run->status =
            ag_prepare_weight(run->be, &prepared[i], &owners[i], &w[i].t, c->type, NULL, NULL);
    }
    while (run->status == AG_OK && oracle_again(run, NULL)) {
        run->status = ag_matmul_group(run->be, yp, &x.t, wp, 3);
    }
    take_group(run, y, &x, w, n, c->m, c->k);
    for (int i = 0; i < 3; i++) ag_buffer_release(&owners[i]);
    finish(run, &x, 1, NULL);
}

/* Three products as of q, k and v, the last of another type. */
void oracle_matmul_group(const oracle_case *c, oracle_run *run) {
    const size_t n[3] = {c->n, 1, c->n / 2 + 3};
    const ag_dtype types[3] = {c->type, c->type, AG_F32};
    guarded x = guarded_make(run, AG_F32, ag_shape_2d(c->m, c->k), 0, run->data), y[3], w[3];
    ag_tensor *yp[3];
    const ag_tensor *wp[3];
    for (int i = 0; i < 3; i++) {
        y[i] = guarded_make(run, AG_F32, ag_shape_2d(c->m, n[i]), 0, DATA_PLAIN);
        w[i] = guarded_make(run, types[i], ag_shape_2d(n[i], c->k), 0, DATA_PLAIN);
        yp[i] = &y[i].t;
        wp[i] = &w[i].t;
    }
    while (oracle_again(run, NULL)) run->status = ag_matmul_group(run->be, yp, &x.t, wp, 3);
    take_group(run, y, &x, w, n, c->m, c->k);
    finish(run, &x, 1, NULL);
}
