/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of one sequence with a state. Sizes of a convolution: m rows of n channels, k taps; of the
 * delta rule: m rows, values of n, keys of k. */
#include "oracle/oracle.h"

#include <math.h>
#include <stdlib.h>

static guarded make(oracle_run *run, size_t rows, size_t cols) {
    return guarded_make(run, AG_F32, ag_shape_2d(rows, cols), 0, run->data);
}

static void check(oracle_run *run, guarded *g, size_t n, size_t n_written) {
    for (size_t i = 0; i < n; i++) {
        guarded_check(run, &g[i], i < n_written);
        guarded_free(&g[i]);
    }
}

/* Every third one with silu. */
void oracle_causal_conv(const oracle_case *c, oracle_run *run) {
    const size_t m = c->m, n = c->n, taps = c->k;
    const bool silu = m % 3 == 0;
    guarded g[] = {make(run, m, n), make(run, taps - 1, n), make(run, m, n), make(run, taps, n)};
    const float *state = g[1].values, *x = g[2].values, *w = g[3].values;
    while (oracle_again(run, &g[1])) {
        run->status = ag_causal_conv(run->be, &g[0].t, &g[2].t, &g[3].t, &g[1].t, silu);
    }
    double *want = oracle_take(run, &g[0]);
    for (size_t i = 0; want && i < m * n; i++) {
        double sum = 0;
        for (size_t j = 0; j < taps; j++) {
            const size_t at = i / n + j, col = i % n;
            sum += w[j * n + col] *
                   (double)(at < taps - 1 ? state[at * n + col] : x[(at - taps + 1) * n + col]);
        }
        want[i] = silu ? sum / (1 + exp(-sum)) : sum;
    }
    want = oracle_take(run, &g[1]);
    for (size_t i = 0; want && i < (taps - 1) * n; i++) {
        const size_t at = i / n + m;
        want[i] = at < taps - 1 ? state[at * n + i % n] : x[(at - taps + 1) * n + i % n];
    }
    check(run, g, 4, 2);
}

enum { K_HEADS = 2, V_HEADS = 6 };

static void divide(double *to, const float *x, size_t n, double by) {
    double squares = 1e-6f;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    for (size_t i = 0; i < n; i++) to[i] = x[i] / sqrt(squares) / by;
}

/* A row of a head: out [n] and the matrix s [k, n]; q and k are of unit length. */
static void want_row(double *out, double *s, const double *q, const double *k, const float *v,
                     double decay, double beta, size_t n_keys, size_t n) {
    for (size_t j = 0; j < n; j++) {
        double known = 0;
        for (size_t i = 0; i < n_keys; i++) known += k[i] * (s[i * n + j] *= decay);
        out[j] = 0;
        for (size_t i = 0; i < n_keys; i++) {
            s[i * n + j] += k[i] * beta * (v[j] - known);
            out[j] += q[i] * s[i * n + j];
        }
    }
}

/* out, state, qkv, a, b, decay, dt_bias */
static void want_delta(const oracle_case *c, const guarded *g, double *out, double *state,
                       double *unit) {
    const size_t keys = K_HEADS * c->k, values = V_HEADS * c->n;
    for (size_t i = 0; i < V_HEADS * c->k * c->n; i++) state[i] = g[1].values[i];
    for (size_t r = 0; r < c->m; r++) {
        for (size_t h = 0; h < V_HEADS; h++) {
            const size_t gate = r * V_HEADS + h;
            const size_t k_head = c->m % 2 ? h % K_HEADS : h / (V_HEADS / K_HEADS);
            const float *row = g[2].values + r * (2 * keys + values);
            const double dt = log1p(exp((double)g[3].values[gate] + g[6].values[h]));
            divide(unit, row + k_head * c->k, c->k, sqrt((double)c->k));
            divide(unit + c->k, row + keys + k_head * c->k, c->k, 1);
            want_row(out + r * values + h * c->n, state + h * c->k * c->n, unit, unit + c->k,
                     row + 2 * keys + h * c->n, exp(-fabs((double)g[5].values[h]) * dt),
                     1 / (1 + exp(-(double)g[4].values[gate])), c->k, c->n);
        }
    }
}

/* Heads in tiles where the number of rows is odd. */
void oracle_delta_rule(const oracle_case *c, oracle_run *run) {
    const size_t values = V_HEADS * c->n;
    const ag_delta_params p = {.n_k_heads = K_HEADS,
                               .n_v_heads = V_HEADS,
                               .k_dim = (uint32_t)c->k,
                               .v_dim = (uint32_t)c->n,
                               .tiled = c->m % 2,
                               .eps = 1e-6f};
    guarded g[] = {make(run, c->m, values),
                   make(run, V_HEADS * c->k, c->n),
                   make(run, c->m, 2 * K_HEADS * c->k + values),
                   make(run, c->m, V_HEADS),
                   make(run, c->m, V_HEADS),
                   guarded_make(run, AG_F32, ag_shape_1d(V_HEADS), 0, run->data),
                   guarded_make(run, AG_F32, ag_shape_1d(V_HEADS), 0, run->data)};
    float *decay = g[5].values;
    for (size_t h = 0; h < V_HEADS; h++) decay[h] = -fabsf(decay[h]); /* a state that fades */
    run->status =
        ag_buffer_upload(g[5].buffer, g[5].t.offset, decay, V_HEADS * sizeof *decay, NULL);
    ag_buffer_download(g[5].image, g[5].buffer, 0, g[5].bytes, NULL);
    while (oracle_again(run, &g[1])) {
        run->status = ag_delta_rule(run->be, &g[0].t, &g[2].t, &g[3].t, &g[4].t, &g[5].t, &g[6].t,
                                    &g[1].t, &p);
    }
    const size_t at = run->n, n_out = c->m * values;
    double *unit = calloc(2 * c->k, sizeof *unit);
    if (!unit) run->out_of_memory = true;
    const double *out = oracle_take(run, &g[0]), *state = oracle_take(run, &g[1]);
    if (out && state && unit) want_delta(c, g, run->want + at, run->want + at + n_out, unit);
    free(unit);
    check(run, g, 7, 2);
}
