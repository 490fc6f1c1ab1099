/* SPDX-License-Identifier: Apache-2.0 */
/* Routing and sums of experts, on the host: they take less than 1 % of the time of the products.
 * Products without a backend's own function are composed of one product for each expert. */
#include "core/experts.h"

#include "core/alloc.h"
#include "core/backend_check.h"
#include "core/backend_compose.h"
#include "core/fail.h"

#include <math.h>
#include <string.h>

/* ---- routing ---- */

typedef struct route_job {
    const ag_route_params *params;
    float *routes;
    const float *logits, *bias, *scale;
} route_job;

static void softmax(float *x, size_t n) {
    float max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
}

static void score(const ag_route_params *p, float *scores, const float *logits) {
    memcpy(scores, logits, p->n_experts * sizeof *scores);
    if (p->scoring == AG_SCORING_SOFTMAX) softmax(scores, p->n_experts);
    for (uint32_t e = 0; e < p->n_experts && p->scoring == AG_SCORING_SIGMOID; e++)
        scores[e] = 1 / (1 + expf(-scores[e]));
}

/* Marks the n_used experts with the highest scores plus bias. NaN is chosen last. */
static void choose(const route_job *j, const float *scores, bool *chosen) {
    const uint32_t n = j->params->n_experts;
    memset(chosen, 0, n * sizeof *chosen);
    for (uint32_t k = 0; k < j->params->n_used; k++) {
        uint32_t best = n;
        float max = 0;
        for (uint32_t e = 0; e < n; e++) {
            const float x = scores[e] + (j->bias ? j->bias[e] : 0);
            if (chosen[e] || (best < n && !(x > max || isnan(max)))) continue;
            best = e;
            max = x;
        }
        chosen[best] = true;
    }
}

static void route_row(const route_job *j, const float *logits, float *numbers) {
    const ag_route_params *p = j->params;
    float scores[AG_EXPERTS_MAX], sum = p->sum_eps, *weights = numbers + p->n_used;
    bool chosen[AG_EXPERTS_MAX];
    score(p, scores, logits);
    choose(j, scores, chosen);
    for (uint32_t e = 0, k = 0; e < p->n_experts; e++) {
        if (!chosen[e]) continue;
        numbers[k] = (float)e;
        weights[k++] = scores[e];
    }
    if (p->scoring == AG_SCORING_CHOSEN) softmax(weights, p->n_used);
    for (uint32_t k = 0; k < p->n_used; k++) sum += weights[k];
    for (uint32_t k = 0; k < p->n_used; k++) {
        if (p->normalise) weights[k] /= sum;
        weights[k] *= p->factor;
        if (j->scale) weights[k] *= j->scale[(uint32_t)numbers[k]];
    }
}

static void route_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const route_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++)
        route_row(j, j->logits + r * j->params->n_experts,
                  j->routes + r * ag_route_cols(j->params->n_used));
}

/* Numbers the picked rows in order of expert, then of row. */
static void number_picked(float *routes, size_t n_rows, const ag_route_params *p) {
    const size_t cols = ag_route_cols(p->n_used), n_used = p->n_used;
    size_t next[AG_EXPERTS_MAX + 1] = {0};
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < n_used; k++) next[(size_t)routes[r * cols + k] + 1]++;
    for (uint32_t e = 0; e < p->n_experts; e++) next[e + 1] += next[e];
    for (size_t r = 0; r < n_rows; r++) {
        float *row = routes + r * cols;
        for (size_t k = 0; k < n_used; k++) row[2 * n_used + k] = (float)next[(size_t)row[k]]++;
    }
}

static ag_status check_route(ag_backend *be, const ag_tensor *routes, const ag_tensor *logits,
                             const ag_tensor *bias, const ag_tensor *scale,
                             const ag_route_params *p) {
    const size_t rows = ag_shape_rows(&logits->shape);
    AG_TRY(ag_check_f32(be, routes, "routes"));
    AG_TRY(ag_check_f32(be, logits, "logits"));
    if (bias) AG_TRY(ag_check_vector(be, bias, "bias", p->n_experts));
    if (scale) AG_TRY(ag_check_vector(be, scale, "scale", p->n_experts));
    if (!p->n_used || p->n_used > p->n_experts || p->n_experts > AG_EXPERTS_MAX) {
        return AG_FAIL(&be->err, INVALID, "%u of %u experts; at most %d, and at least one of them",
                       p->n_used, p->n_experts, AG_EXPERTS_MAX);
    }
    if (rows * p->n_used > AG_PICKED_MAX) {
        return AG_FAIL(&be->err, LIMIT, "%zu rows of %u experts: at most %d picked rows", rows,
                       p->n_used, AG_PICKED_MAX);
    }
    if (ag_shape_cols(&logits->shape) == p->n_experts && ag_shape_rows(&routes->shape) == rows &&
        ag_shape_cols(&routes->shape) == ag_route_cols(p->n_used)) {
        return AG_OK;
    }
    return AG_FAIL(&be->err, SHAPE,
                   "routes is [%zu,%zu], logits is [%zu,%zu]: they do not fit %u of %u experts",
                   ag_shape_rows(&routes->shape), ag_shape_cols(&routes->shape), rows,
                   ag_shape_cols(&logits->shape), p->n_used, p->n_experts);
}

/* Tensors as the host sees them. */
typedef struct host_views {
    ag_backend *be;
    const ag_tensor *tensors[4]; /* the first is written */
    ag_host_view views[4];
} host_views;

static ag_status open_views(host_views *h) {
    AG_TRY(ag_sync(h->be));
    for (int i = 0; i < 4 && h->tensors[i]; i++)
        AG_TRY(ag_host_view_open(h->be, &h->views[i], h->tensors[i]));
    return AG_OK;
}

static ag_status close_views(host_views *h, ag_status st) {
    for (int i = 4; i-- > 1;) {
        if (h->tensors[i]) ag_host_view_close(h->be, &h->views[i], h->tensors[i], false);
    }
    const ag_status closed = ag_host_view_close(h->be, &h->views[0], h->tensors[0], st == AG_OK);
    return st == AG_OK ? closed : st;
}

ag_status ag_route(ag_backend *be, ag_tensor *routes, const ag_tensor *logits,
                   const ag_tensor *bias, const ag_tensor *scale, const ag_route_params *params) {
    const size_t rows = ag_shape_rows(&logits->shape);
    AG_TRY(check_route(be, routes, logits, bias, scale, params));
    host_views h = {.be = be,
                    .tensors = {routes, logits, bias ? bias : scale, bias ? scale : NULL}};
    const ag_status st = open_views(&h);
    if (st == AG_OK) {
        route_job j = {.params = params,
                       .routes = h.views[0].data,
                       .logits = h.views[1].data,
                       .bias = bias ? h.views[2].data : NULL,
                       .scale = scale ? h.views[bias ? 3 : 2].data : NULL};
        ag_for_each(be, rows, route_rows, &j);
        number_picked(j.routes, rows, params);
    }
    return close_views(&h, st);
}

/* ---- products ---- */

bool ag_list_picked(const float *routes, size_t n_rows, uint32_t n_experts, uint32_t n_used,
                    uint32_t *first, uint32_t *picked) {
    const size_t cols = ag_route_cols(n_used), n = n_rows * n_used;
    memset(first, 0, (n_experts + (size_t)1) * sizeof *first);
    for (size_t r = 0; r < n_rows; r++) {
        const float *numbers = routes + r * cols, *places = numbers + 2 * (size_t)n_used;
        for (uint32_t k = 0; k < n_used; k++) {
            /* false for NaN as well */
            const bool is_valid = numbers[k] >= 0 && numbers[k] < (float)n_experts &&
                                  places[k] >= 0 && places[k] < (float)n;
            if (!is_valid) return false;
            first[(uint32_t)numbers[k] + 1]++;
            picked[(uint32_t)places[k]] = (uint32_t)r;
        }
    }
    for (uint32_t e = 0; e < n_experts; e++) first[e + 1] += first[e];
    return true;
}

/* Copies the rows of x in the order of picked rows. */
static ag_status gather_picked(ag_backend *be, const ag_tensor *x, const uint32_t *picked, size_t n,
                               ag_tensor *out, ag_buffer **owner) {
    const size_t cols = ag_shape_cols(&x->shape);
    AG_TRY(ag_tensor_alloc(out, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                           ag_shape_2d(n, cols), &be->err));
    for (size_t p = 0; p < n; p++)
        AG_TRY(ag_copy_slice(be, out, p * cols, x, picked[p] * cols, cols));
    return AG_OK;
}

static ag_status multiply_each(ag_backend *be, const ag_expert_call *c, const ag_tensor *x,
                               const uint32_t *first) {
    for (size_t i = 0; i < c->n; i++) {
        for (uint32_t e = 0; e < c->n_experts; e++) {
            const size_t n = first[e + 1] - first[e];
            ag_tensor rows, results;
            if (!n) continue;
            AG_TRY(ag_tensor_rows(&rows, x, first[e], n, &be->err));
            AG_TRY(ag_tensor_rows(&results, c->y[i], first[e], n, &be->err));
            AG_TRY(be->ops->matmul_transposed(be, &results, &rows, &c->w[i][e]));
        }
    }
    return AG_OK;
}

static ag_status invalid_routes(ag_backend *be) {
    return AG_FAIL(&be->err, INVALID, "routes hold values that ag_route() does not write");
}

/* Composes the products of one product for each expert. */
static ag_status compose(ag_backend *be, const ag_expert_call *c) {
    const size_t n_rows = ag_shape_rows(&c->routes->shape), n = n_rows * c->n_used;
    uint32_t *first = ag_malloc((n + c->n_experts + 1) * sizeof *first);
    uint32_t *picked = first + c->n_experts + 1;
    ag_tensor gathered = *c->x;
    ag_buffer *owner = NULL;
    ag_host_view routes = {0};
    ag_status st = first ? ag_sync(be) : AG_FAIL(&be->err, NOMEM, "list of %zu picked rows", n);
    if (st == AG_OK) st = ag_host_view_open(be, &routes, c->routes);
    if (st == AG_OK && !ag_list_picked(routes.data, n_rows, c->n_experts, c->n_used, first, picked))
        st = invalid_routes(be);
    ag_host_view_close(be, &routes, c->routes, false);
    if (st == AG_OK && !c->picked) st = gather_picked(be, c->x, picked, n, &gathered, &owner);
    if (st == AG_OK) st = multiply_each(be, c, &gathered, first);
    if (owner && st == AG_OK) st = ag_sync(be); /* the products read the gathered rows */
    ag_buffer_release(&owner);
    ag_free(first);
    return st;
}

static ag_status check_experts(ag_backend *be, const ag_expert_call *c) {
    const size_t n_rows = ag_shape_rows(&c->routes->shape), n = n_rows * c->n_used;
    AG_TRY(ag_check_f32(be, c->routes, "routes"));
    if (!c->n || c->n > AG_MATMUL_GROUP_MAX || c->n_experts > AG_EXPERTS_MAX ||
        ag_shape_cols(&c->routes->shape) != ag_route_cols(c->n_used)) {
        return AG_FAIL(&be->err, INVALID, "%zu products with %u of %u experts, routes of %zu", c->n,
                       c->n_used, c->n_experts, ag_shape_cols(&c->routes->shape));
    }
    const size_t x_rows = ag_shape_rows(&c->x->shape);
    if (x_rows != (c->picked ? n : n_rows)) {
        return AG_FAIL(&be->err, SHAPE, "x has %zu rows for %zu rows of routes and %u experts each",
                       x_rows, n_rows, c->n_used);
    }
    AG_TRY(ag_check_f32(be, c->x, "x"));
    for (size_t i = 0; i < c->n; i++) {
        const ag_tensor *y = c->y[i], *w = &c->w[i][0];
        AG_TRY(ag_check_f32(be, y, "y"));
        AG_TRY(ag_check_no_overlap(be, y, "y", c->x, "x"));
        if (ag_shape_rows(&y->shape) != n ||
            ag_shape_cols(&c->x->shape) != ag_shape_cols(&w->shape)) {
            return AG_FAIL(&be->err, SHAPE,
                           "y has %zu rows for %zu picked ones; x has rows of %zu, experts of %zu",
                           ag_shape_rows(&y->shape), n, ag_shape_cols(&c->x->shape),
                           ag_shape_cols(&w->shape));
        }
        if (ag_shape_cols(&y->shape) == ag_shape_rows(&w->shape)) continue;
        return AG_FAIL(&be->err, SHAPE, "y has rows of %zu, but the experts have %zu rows",
                       ag_shape_cols(&c->y[i]->shape), ag_shape_rows(&c->w[i][0].shape));
    }
    return AG_OK;
}

/* Reports each row to the observer with the matrices of its experts. */
static void observe_experts(ag_backend *be, const ag_expert_call *c) {
    const float *route = ag_tensor_f32(c->routes);
    const size_t n_rows = ag_shape_rows(&c->routes->shape), n_used = c->n_used;
    for (size_t r = 0; route && r < n_rows; r++, route += ag_route_cols(c->n_used)) {
        for (size_t k = 0; k < n_used; k++) {
            const size_t expert = (size_t)route[k], place = (size_t)route[2 * n_used + k];
            if (expert >= c->n_experts || place >= n_rows * n_used) continue;
            for (size_t i = 0; i < c->n; i++)
                be->observe(be->observe_user, c->x, c->picked ? place : r, 1, &c->w[i][expert]);
        }
    }
}

ag_status ag_matmul_experts(ag_backend *be, const ag_expert_call *call) {
    AG_TRY(check_experts(be, call));
    if (!ag_shape_rows(&call->routes->shape)) return AG_OK;
    if (be->observe) observe_experts(be, call);
    return be->ops->matmul_experts ? be->ops->matmul_experts(be, call) : compose(be, call);
}

/* ---- sums ---- */

typedef struct picked_job {
    float *y;
    const float *x, *routes;
    size_t n_used, cols, n_picked, n_experts;
} picked_job;

/* Returns whether all values are numbers below n. */
static bool are_below(const float *numbers, size_t n_numbers, size_t n) {
    for (size_t k = 0; k < n_numbers; k++)
        if (!(numbers[k] >= 0 && numbers[k] < (float)n)) return false;
    return true;
}

static void combine_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const picked_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float *weights = j->routes + r * 3 * j->n_used + j->n_used;
        const float *places = weights + j->n_used;
        float *out = j->y + r * j->cols;
        memset(out, 0, j->cols * sizeof *out);
        for (size_t k = 0; k < j->n_used && are_below(places, j->n_used, j->n_picked); k++) {
            const float *from = j->x + (size_t)places[k] * j->cols, weight = weights[k];
            for (size_t i = 0; i < j->cols; i++) out[i] += weight * from[i];
        }
    }
}

static void add_bias_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const picked_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float *numbers = j->routes + r * 3 * j->n_used, *places = numbers + 2 * j->n_used;
        if (!are_below(numbers, j->n_used, j->n_experts)) continue;
        for (size_t k = 0; k < j->n_used && are_below(places, j->n_used, j->n_picked); k++) {
            float *y = j->y + (size_t)places[k] * j->cols;
            const float *bias = j->x + (size_t)numbers[k] * j->cols;
            for (size_t i = 0; i < j->cols; i++) y[i] += bias[i];
        }
    }
}

static void gate_rows(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const picked_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float factor = 1 / (1 + expf(-j->x[r]));
        for (size_t i = 0; i < j->cols; i++) j->y[r * j->cols + i] *= factor;
    }
}

/* Does work on the rows of `y`, which it changes, of x and of routes, which may be NULL. */
static ag_status on_rows(ag_backend *be, ag_work_fn work, size_t n_rows, const ag_tensor *y,
                         const ag_tensor *x, const ag_tensor *routes) {
    host_views h = {.be = be, .tensors = {y, x, routes}};
    const ag_status st = open_views(&h);
    picked_job j = {.y = h.views[0].data,
                    .x = h.views[1].data,
                    .routes = h.views[2].data,
                    .n_used = routes ? ag_shape_cols(&routes->shape) / 3 : 0,
                    .cols = ag_shape_cols(&y->shape)};
    j.n_picked = n_rows * j.n_used;
    if (j.cols) j.n_experts = ag_shape_numel(&x->shape) / j.cols;
    if (st == AG_OK) ag_for_each(be, n_rows, work, &j);
    return close_views(&h, st);
}

ag_status ag_add_expert_bias(ag_backend *be, ag_tensor *y, const ag_tensor *bias,
                             const ag_tensor *routes) {
    const size_t n_rows = ag_shape_rows(&routes->shape), cols = ag_shape_cols(&y->shape);
    const size_t n_used = ag_shape_cols(&routes->shape) / 3;
    AG_TRY(ag_check_f32(be, y, "y"));
    AG_TRY(ag_check_f32(be, bias, "bias"));
    AG_TRY(ag_check_f32(be, routes, "routes"));
    if (ag_shape_rows(&y->shape) == n_rows * n_used && cols &&
        ag_shape_numel(&bias->shape) % cols == 0)
        return on_rows(be, add_bias_rows, n_rows, y, bias, routes);
    return AG_FAIL(&be->err, SHAPE, "y is [%zu,%zu] and bias has %zu values for routes [%zu,%zu]",
                   ag_shape_rows(&y->shape), cols, ag_shape_numel(&bias->shape), n_rows,
                   ag_shape_cols(&routes->shape));
}

ag_status ag_combine_experts(ag_backend *be, ag_tensor *out, const ag_tensor *y,
                             const ag_tensor *routes) {
    const size_t n_rows = ag_shape_rows(&routes->shape);
    const size_t n_used = ag_shape_cols(&routes->shape) / 3;
    AG_TRY(ag_check_f32(be, out, "out"));
    AG_TRY(ag_check_f32(be, y, "y"));
    AG_TRY(ag_check_f32(be, routes, "routes"));
    AG_TRY(ag_check_no_overlap(be, out, "out", y, "y"));
    if (ag_shape_rows(&out->shape) == n_rows && ag_shape_rows(&y->shape) == n_rows * n_used &&
        ag_shape_cols(&out->shape) == ag_shape_cols(&y->shape))
        return on_rows(be, combine_rows, n_rows, out, y, routes);
    return AG_FAIL(&be->err, SHAPE, "out is [%zu,%zu] and y is [%zu,%zu] for routes [%zu,%zu]",
                   ag_shape_rows(&out->shape), ag_shape_cols(&out->shape), ag_shape_rows(&y->shape),
                   ag_shape_cols(&y->shape), n_rows, ag_shape_cols(&routes->shape));
}

ag_status ag_gate_rows(ag_backend *be, ag_tensor *x, const ag_tensor *gate) {
    const size_t n_rows = ag_shape_rows(&x->shape);
    AG_TRY(ag_check_f32(be, x, "x"));
    AG_TRY(ag_check_f32(be, gate, "gate"));
    if (ag_shape_numel(&gate->shape) == n_rows)
        return on_rows(be, gate_rows, n_rows, x, gate, NULL);
    return AG_FAIL(&be->err, SHAPE, "gate has %zu values for %zu rows",
                   ag_shape_numel(&gate->shape), n_rows);
}

ag_status ag_swiglu_clamped(ag_backend *be, ag_tensor *a, const ag_tensor *b, float limit) {
    AG_TRY(ag_check_f32(be, a, "a"));
    AG_TRY(ag_check_f32(be, b, "b"));
    AG_TRY(ag_check_same_shape(be, a, "a", b, "b"));
    if (!(limit > 0))
        return AG_FAIL(&be->err, INVALID, "limit is %g; it must be above 0", (double)limit);
    return (be->ops->swiglu_clamped ? be->ops->swiglu_clamped : ag_compose_swiglu_clamped)(be, a, b,
                                                                                           limit);
}
