/* SPDX-License-Identifier: Apache-2.0 */
#include "core/recurrence.h"

#include <math.h>
#include <string.h>

/* ---- convolution ---- */

void ag_conv_row_reference(float *y, const float *const taps[], size_t n_taps, const float *w,
                           size_t stride, size_t n, bool silu) {
    for (size_t c = 0; c < n; c++) {
        double sum = 0;
        for (size_t j = 0; j < n_taps; j++) sum += (double)w[j * stride + c] * taps[j][c];
        y[c] = (float)(silu ? sum / (1 + exp(-sum)) : sum);
    }
}

/* Returns row t of the state followed by x. */
static const float *row_at(const ag_conv_job *job, size_t t) {
    const size_t before = job->n_taps - 1;
    return t < before ? job->state + t * job->channels : job->x + (t - before) * job->channels;
}

void ag_conv_channels(const ag_conv_job *job, size_t begin, size_t end) {
    const size_t before = job->n_taps - 1, n = end - begin;
    for (size_t t = 0; t < job->n_rows; t++) {
        const float *taps[AG_CONV_TAPS_MAX];
        for (size_t j = 0; j < job->n_taps; j++) taps[j] = row_at(job, t + j) + begin;
        job->row(job->y + t * job->channels + begin, taps, job->n_taps, job->w + begin,
                 job->channels, n, job->silu);
    }
    for (size_t j = 0; job->n_rows && j < before; j++) {
        memcpy(job->state + j * job->channels + begin, row_at(job, job->n_rows + j) + begin,
               n * sizeof(float));
    }
}

/* ---- delta rule ---- */

/* Sets to = x * factor / sqrt(sum of squares + eps). */
static void divide_by_length(float *to, const float *x, size_t n, double eps, double factor) {
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    for (size_t i = 0; i < n; i++) to[i] = (float)(x[i] * (factor / sqrt(squares + eps)));
}

void ag_delta_token_reference(float *out, float *state, const ag_delta_token *t, float *scratch) {
    float *q = scratch, *k = scratch + t->k_dim;
    divide_by_length(q, t->q, t->k_dim, t->eps, 1 / sqrt((double)t->k_dim));
    divide_by_length(k, t->k, t->k_dim, t->eps, 1);
    for (size_t j = 0; j < t->v_dim; j++) {
        double known = 0, sum = 0;
        for (size_t i = 0; i < t->k_dim; i++) known += (double)k[i] * state[i * t->v_dim + j];
        const double delta = (t->v[j] - known * t->decay) * t->beta;
        for (size_t i = 0; i < t->k_dim; i++) {
            float *s = &state[i * t->v_dim + j];
            *s = (float)((double)*s * t->decay + k[i] * delta);
            sum += (double)q[i] * *s;
        }
        out[j] = (float)sum;
    }
}

static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

void ag_delta_head(const ag_delta_job *job, size_t head, float *scratch) {
    const ag_delta_params *p = &job->params;
    const size_t group = p->n_v_heads / p->n_k_heads;
    const size_t k_head = p->tiled ? head % p->n_k_heads : head / group;
    const size_t keys = (size_t)p->n_k_heads * p->k_dim, values = (size_t)p->n_v_heads * p->v_dim;
    float *state = job->state + head * p->k_dim * p->v_dim;
    for (size_t r = 0; r < job->n_rows; r++) {
        const float *row = job->qkv + r * (2 * keys + values);
        const size_t gate = r * p->n_v_heads + head;
        const double dt = softplus((double)job->a[gate] + job->dt_bias[head]);
        const ag_delta_token t = {
            .q = row + k_head * p->k_dim,
            .k = row + keys + k_head * p->k_dim,
            .v = row + 2 * keys + head * p->v_dim,
            .decay = (float)exp(job->decay[head] * dt),
            .beta = (float)(1 / (1 + exp(-(double)job->b[gate]))),
            .eps = p->eps,
            .k_dim = p->k_dim,
            .v_dim = p->v_dim,
        };
        job->token(job->out + r * values + head * p->v_dim, state, &t, scratch);
    }
}
