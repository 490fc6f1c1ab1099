/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of mixtures of experts. */
#include "oracle/oracle.h"

#include "core/experts.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 8, USED = 3 };

static void finish(oracle_run *run, guarded *tensors, size_t n, const guarded *destination) {
    for (size_t i = 0; i < n; i++) {
        guarded_check(run, &tensors[i], &tensors[i] == destination);
        guarded_free(&tensors[i]);
    }
}

/* ---- routing ---- */

static double score_of(const ag_route_params *p, const float *logits, size_t e) {
    double sum = 0;
    if (p->scoring == AG_SCORING_SIGMOID) return 1 / (1 + exp(-(double)logits[e]));
    if (p->scoring == AG_SCORING_CHOSEN) return logits[e];
    for (size_t i = 0; i < p->n_experts; i++) sum += exp((double)logits[i]);
    return exp((double)logits[e]) / sum;
}

/* Returns how many experts come before expert e. */
static size_t rank_of(const ag_route_params *p, const float *logits, const float *bias, size_t e) {
    const double mine = score_of(p, logits, e) + (double)bias[e];
    size_t rank = 0;
    for (size_t i = 0; i < p->n_experts; i++) {
        const double other = score_of(p, logits, i) + (double)bias[i];
        rank += other > mine || (other == mine && i < e);
    }
    return rank;
}

static void want_row(double *want, const ag_route_params *p, const float *logits, const float *bias,
                     const float *scale) {
    double sum = p->scoring == AG_SCORING_CHOSEN ? 0 : (double)p->sum_eps;
    size_t n = 0;
    for (size_t e = 0; e < p->n_experts; e++) {
        if (rank_of(p, logits, bias, e) >= p->n_used) continue;
        const double score = score_of(p, logits, e);
        const double weight = p->scoring == AG_SCORING_CHOSEN ? exp(score) : score;
        want[n] = (double)e;
        want[p->n_used + n++] = weight;
        sum += weight;
    }
    const bool divides = p->normalise || p->scoring == AG_SCORING_CHOSEN;
    for (size_t k = 0; k < p->n_used; k++) {
        double *weight = &want[p->n_used + k];
        *weight *= p->factor * scale[(size_t)want[k]] / (divides ? sum : 1);
    }
}

/* The picked rows of an expert are in order of rows. */
static void want_places(double *want, size_t rows, const ag_route_params *p) {
    const size_t cols = ag_route_cols(p->n_used), used = p->n_used;
    size_t n = 0;
    for (size_t e = 0; e < p->n_experts; e++)
        for (size_t i = 0; i < rows * used; i++) {
            double *row = want + i / used * cols;
            if (row[i % used] == (double)e) row[2 * used + i % used] = (double)n++;
        }
}

/* m rows, k of n experts; the kind of scores depends on m. */
void oracle_route(const oracle_case *c, oracle_run *run) {
    const ag_route_params p = {.n_experts = (uint32_t)c->n,
                               .n_used = (uint32_t)c->k,
                               .scoring = (ag_scoring)(c->m % 3),
                               .normalise = c->m % 2,
                               .sum_eps = 1e-6f,
                               .factor = 1.5f};
    guarded t[] = {
        guarded_make(run, AG_F32, ag_shape_2d(c->m, ag_route_cols(p.n_used)), 0, DATA_PLAIN),
        guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, run->data),
        guarded_make(run, AG_F32, ag_shape_1d(c->n), 0, DATA_PLAIN),
        guarded_make(run, AG_F32, ag_shape_1d(c->n), 0, DATA_PLAIN)};
    while (oracle_again(run, NULL))
        run->status = ag_route(run->be, &t[0].t, &t[1].t, &t[2].t, &t[3].t, &p);
    double *want = oracle_take(run, &t[0]);
    for (size_t r = 0; want && r < c->m; r++)
        want_row(want + r * ag_route_cols(p.n_used), &p, t[1].values + r * c->n, t[2].values,
                 t[3].values);
    if (want) want_places(want, c->m, &p);
    finish(run, t, 4, &t[0]);
}

/* ---- routes of other operations ---- */

/* Makes routes of `rows` rows in which nearly all rows choose expert 2 and none chooses expert 1.
 * Returns their values, which the caller frees. */
static guarded make_routes(oracle_run *run, size_t rows, float **values) {
    const ag_route_params p = {
        .n_experts = EXPERTS, .n_used = USED, .scoring = AG_SCORING_CHOSEN, .factor = 1};
    guarded routes =
        guarded_make(run, AG_F32, ag_shape_2d(rows, ag_route_cols(USED)), 0, DATA_PLAIN);
    guarded logits = guarded_make(run, AG_F32, ag_shape_2d(rows, EXPERTS), 0, DATA_PLAIN);
    guarded bias = guarded_make(run, AG_F32, ag_shape_1d(EXPERTS), 0, DATA_PLAIN);
    const float skew[EXPERTS] = {0, -4, 1, 0.2f, -0.5f, 0.1f, -0.2f, 0};
    const size_t bytes = rows * ag_route_cols(USED) * sizeof(float);
    *values = malloc(bytes);
    if (!*values) run->out_of_memory = true;
    if (!run->out_of_memory)
        run->status = ag_buffer_upload(bias.buffer, bias.t.offset, skew, sizeof skew, NULL);
    if (!run->out_of_memory && run->status == AG_OK)
        run->status = ag_route(run->be, &routes.t, &logits.t, &bias.t, NULL, &p);
    if (!run->out_of_memory && run->status == AG_OK)
        run->status = ag_read(run->be, *values, &routes.t, bytes);
    finish(run, &logits, 1, NULL);
    guarded_free(&bias);
    return routes;
}

/* Frees routes, which other operations must not have changed. */
static void free_routes(oracle_run *run, guarded *routes, float *values) {
    const size_t bytes = ag_tensor_bytes(&routes->t);
    float *now = malloc(bytes);
    if (now && values && run->status == AG_OK && ag_read(run->be, now, &routes->t, bytes) == AG_OK)
        run->guard_faults += memcmp(now, values, bytes) != 0;
    free(now);
    free(values);
    guarded_free(routes);
}

/* ---- products ---- */

/* Writes x w[expert]^T for each picked row. */
static void want_products(double *y, const float *routes, bool picked, const float *x,
                          const float *w, const oracle_case *c) {
    for (size_t i = 0; i < c->m * USED; i++) {
        const float *row = routes + i / USED * ag_route_cols(USED);
        const size_t expert = (size_t)row[i % USED], place = (size_t)row[2 * USED + i % USED];
        const float *from = x + (picked ? place : i / USED) * c->k;
        for (size_t j = 0; j < c->n; j++) {
            double sum = 0;
            for (size_t l = 0; l < c->k; l++)
                sum += (double)from[l] * w[(expert * c->n + j) * c->k + l];
            y[place * c->n + j] = sum;
        }
    }
}

/* Experts of [n, k] for m rows, with the input of each row, or of each picked row. */
static void multiply(const oracle_case *c, oracle_run *run, bool picked) {
    float *values;
    guarded routes = make_routes(run, c->m, &values);
    guarded t[] = {
        guarded_make(run, AG_F32, ag_shape_2d(c->m * USED, c->n), 0, DATA_PLAIN),
        guarded_make(run, AG_F32, ag_shape_2d(c->m * (picked ? USED : 1), c->k), 0, run->data),
        guarded_make_on_host(run, c->type, ag_shape_2d(EXPERTS * c->n, c->k), 0, DATA_PLAIN)};
    ag_tensor w[EXPERTS], rows, *y = &t[0].t;
    ag_buffer *owners[EXPERTS] = {NULL};
    const ag_tensor *table = w;
    run->rounds_input = ag_dtype_is_quantized(c->type);
    for (size_t e = 0; e < EXPERTS && !run->out_of_memory && run->status == AG_OK; e++) {
        run->status = ag_tensor_rows(&rows, &t[2].t, e * c->n, c->n, NULL);
        if (run->status == AG_OK)
            run->status = ag_prepare_weight(run->be, &w[e], &owners[e], &rows, c->type, NULL, NULL);
    }
    const ag_expert_call call = {&y, &t[1].t, &table, 1, &routes.t, EXPERTS, USED, picked};
    while (run->status == AG_OK && oracle_again(run, NULL))
        run->status = ag_matmul_experts(run->be, &call);
    double *want = oracle_take(run, &t[0]);
    if (want && values) want_products(want, values, picked, t[1].values, t[2].values, c);
    for (size_t e = 0; e < EXPERTS; e++) ag_buffer_release(&owners[e]);
    finish(run, t, 3, &t[0]);
    free_routes(run, &routes, values);
}

void oracle_matmul_experts(const oracle_case *c, oracle_run *run) { multiply(c, run, false); }

void oracle_matmul_experts_picked(const oracle_case *c, oracle_run *run) { multiply(c, run, true); }

/* ---- sums ---- */

void oracle_combine_experts(const oracle_case *c, oracle_run *run) {
    float *values;
    guarded routes = make_routes(run, c->m, &values);
    guarded t[] = {guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, DATA_PLAIN),
                   guarded_make(run, AG_F32, ag_shape_2d(c->m * USED, c->n), 0, run->data)};
    while (oracle_again(run, NULL))
        run->status = ag_combine_experts(run->be, &t[0].t, &t[1].t, &routes.t);
    double *want = oracle_take(run, &t[0]);
    for (size_t i = 0; want && values && i < c->m * c->n; i++) {
        const float *row = values + i / c->n * ag_route_cols(USED);
        want[i] = 0;
        for (size_t k = 0; k < USED; k++)
            want[i] +=
                (double)row[USED + k] * t[1].values[(size_t)row[2 * USED + k] * c->n + i % c->n];
    }
    finish(run, t, 2, &t[0]);
    free_routes(run, &routes, values);
}

void oracle_add_expert_bias(const oracle_case *c, oracle_run *run) {
    float *values;
    guarded routes = make_routes(run, c->m, &values);
    guarded t[] = {guarded_make(run, AG_F32, ag_shape_2d(c->m * USED, c->n), 0, run->data),
                   guarded_make(run, AG_F32, ag_shape_2d(EXPERTS, c->n), 0, DATA_PLAIN)};
    while (oracle_again(run, &t[0]))
        run->status = ag_add_expert_bias(run->be, &t[0].t, &t[1].t, &routes.t);
    double *want = oracle_take(run, &t[0]);
    for (size_t i = 0; want && values && i < c->m * USED; i++) {
        const float *row = values + i / USED * ag_route_cols(USED);
        const size_t at = (size_t)row[2 * USED + i % USED] * c->n;
        const size_t bias = (size_t)row[i % USED] * c->n;
        for (size_t j = 0; j < c->n; j++)
            want[at + j] = (double)t[0].values[at + j] + t[1].values[bias + j];
    }
    finish(run, t, 2, &t[0]);
    free_routes(run, &routes, values);
}

void oracle_gate_rows(const oracle_case *c, oracle_run *run) {
    guarded t[] = {guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, run->data),
                   guarded_make(run, AG_F32, ag_shape_2d(c->m, 1), 0, DATA_PLAIN)};
    while (oracle_again(run, &t[0])) run->status = ag_gate_rows(run->be, &t[0].t, &t[1].t);
    double *want = oracle_take(run, &t[0]);
    for (size_t i = 0; want && i < c->m * c->n; i++)
        want[i] = t[0].values[i] / (1 + exp(-(double)t[1].values[i / c->n]));
    finish(run, t, 2, &t[0]);
}

void oracle_swiglu_clamped(const oracle_case *c, oracle_run *run) {
    const float limit = 0.7f;
    guarded t[] = {guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, run->data),
                   guarded_make(run, AG_F32, ag_shape_2d(c->m, c->n), 0, run->data)};
    while (oracle_again(run, &t[0]))
        run->status = ag_swiglu_clamped(run->be, &t[0].t, &t[1].t, limit);
    double *want = oracle_take(run, &t[0]);
    for (size_t i = 0; want && i < c->m * c->n; i++) {
        const double g = fmin((double)t[0].values[i], (double)limit);
        const double u = fmax(fmin((double)t[1].values[i], (double)limit), -(double)limit);
        want[i] = g / (1 + exp(-1.702 * g)) * (1 + u);
    }
    finish(run, t, 2, &t[0]);
}
