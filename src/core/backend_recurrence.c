/* SPDX-License-Identifier: Apache-2.0 */
/* Operations with a state, on the rows of a sequence: their checks, and their computation on the
 * host for backends without them. */
#include "core/alloc.h"
#include "core/backend_check.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "core/recurrence.h"

static ag_status check_size(ag_backend *be, const ag_tensor *t, const char *name, size_t rows,
                            size_t cols) {
    AG_TRY(ag_check_f32(be, t, name));
    const size_t n_values = ag_shape_numel(&t->shape);
    if (n_values == rows * cols) return AG_OK;
    return AG_FAIL(&be->err, SHAPE, "%s has %zu values, not %zu rows of %zu", name, n_values, rows,
                   cols);
}

/* ---- convolution ---- */

ag_status ag_causal_conv(ag_backend *be, ag_tensor *y, const ag_tensor *x, const ag_tensor *w,
                         ag_tensor *state, bool silu) {
    AG_TRY(ag_check_f32(be, x, "x"));
    AG_TRY(ag_check_f32(be, w, "w"));
    const size_t rows = ag_shape_rows(&x->shape), channels = ag_shape_cols(&x->shape);
    const size_t n_taps = ag_shape_rows(&w->shape);
    if (n_taps < 2 || n_taps > AG_CONV_TAPS_MAX) {
        return AG_FAIL(&be->err, INVALID, "the convolution has %zu taps; it must have 2 to %d",
                       n_taps, AG_CONV_TAPS_MAX);
    }
    AG_TRY(check_size(be, w, "w", n_taps, channels));
    AG_TRY(check_size(be, y, "y", rows, channels));
    AG_TRY(check_size(be, state, "the state", n_taps - 1, channels));
    AG_TRY(ag_check_no_overlap(be, y, "y", x, "x"));
    AG_TRY(ag_check_no_overlap(be, y, "y", state, "the state"));
    return (be->ops->causal_conv ? be->ops->causal_conv : ag_compose_causal_conv)(be, y, x, w,
                                                                                  state, silu);
}

enum { MAX_OPERANDS = 7 };

/* Opens views of n operands. After a failure none is open. */
static ag_status open_all(ag_backend *be, ag_host_view *views, const ag_tensor *const t[],
                          size_t n) {
    AG_TRY(ag_sync(be));
    for (size_t i = 0; i < n; i++) {
        const ag_status st = ag_host_view_open(be, &views[i], t[i]);
        if (st == AG_OK) continue;
        while (i--) ag_host_view_close(be, &views[i], t[i], false);
        return st;
    }
    return AG_OK;
}

/* Closes the views. write: uploads the first two operands. */
static ag_status close_all(ag_backend *be, ag_host_view *views, const ag_tensor *const t[],
                           size_t n, bool write) {
    ag_status st = AG_OK;
    for (size_t i = n; i--;) {
        const ag_status closed = ag_host_view_close(be, &views[i], t[i], write && i < 2);
        if (st == AG_OK) st = closed;
    }
    return st;
}

ag_status ag_compose_causal_conv(ag_backend *be, ag_tensor *y, const ag_tensor *x,
                                 const ag_tensor *w, ag_tensor *state, bool silu) {
    const ag_tensor *const t[] = {y, state, x, w};
    ag_host_view v[MAX_OPERANDS];
    AG_TRY(open_all(be, v, t, 4));
    const ag_conv_job job = {
        .y = v[0].data,
        .state = v[1].data,
        .x = v[2].data,
        .w = v[3].data,
        .n_rows = ag_shape_rows(&x->shape),
        .n_taps = ag_shape_rows(&w->shape),
        .channels = ag_shape_cols(&x->shape),
        .silu = silu,
        .row = ag_conv_row_reference,
    };
    ag_conv_channels(&job, 0, job.channels);
    return close_all(be, v, t, 4, true);
}

/* ---- delta rule ---- */

static ag_status check_heads(ag_backend *be, const ag_delta_params *p) {
    if (p->n_k_heads && p->k_dim && p->v_dim && p->n_v_heads && p->n_v_heads % p->n_k_heads == 0)
        return AG_OK;
    return AG_FAIL(&be->err, INVALID,
                   "%u value heads of %u with %u key heads of %u: the first must be a multiple of "
                   "the third, and none 0",
                   p->n_v_heads, p->v_dim, p->n_k_heads, p->k_dim);
}

ag_status ag_delta_rule(ag_backend *be, ag_tensor *out, const ag_tensor *qkv, const ag_tensor *a,
                        const ag_tensor *b, const ag_tensor *decay, const ag_tensor *dt_bias,
                        ag_tensor *state, const ag_delta_params *params) {
    const ag_delta_params *p = params;
    AG_TRY(check_heads(be, p));
    const size_t rows = ag_shape_rows(&qkv->shape), values = (size_t)p->n_v_heads * p->v_dim;
    AG_TRY(check_size(be, qkv, "qkv", rows, 2 * (size_t)p->n_k_heads * p->k_dim + values));
    AG_TRY(check_size(be, out, "out", rows, values));
    AG_TRY(check_size(be, a, "a", rows, p->n_v_heads));
    AG_TRY(check_size(be, b, "b", rows, p->n_v_heads));
    AG_TRY(ag_check_vector(be, decay, "decay", p->n_v_heads));
    AG_TRY(ag_check_vector(be, dt_bias, "dt_bias", p->n_v_heads));
    AG_TRY(check_size(be, state, "the state", p->k_dim, values));
    AG_TRY(ag_check_no_overlap(be, out, "out", qkv, "qkv"));
    AG_TRY(ag_check_no_overlap(be, out, "out", state, "the state"));
    const ag_delta_call call = {out, state, qkv, a, b, decay, dt_bias, *params};
    return (be->ops->delta_rule ? be->ops->delta_rule : ag_compose_delta_rule)(be, &call);
}

ag_status ag_compose_delta_rule(ag_backend *be, const ag_delta_call *call) {
    const ag_tensor *const t[] = {call->out, call->state, call->qkv,    call->a,
                                  call->b,   call->decay, call->dt_bias};
    ag_host_view v[MAX_OPERANDS];
    const size_t bytes = 2 * call->params.k_dim * sizeof(float);
    float *scratch = ag_malloc(bytes);
    if (!scratch) return AG_FAIL(&be->err, NOMEM, "host scratch of %zu bytes", bytes);
    ag_status st = open_all(be, v, t, MAX_OPERANDS);
    if (st == AG_OK) {
        const ag_delta_job job = {
            .out = v[0].data,
            .state = v[1].data,
            .qkv = v[2].data,
            .a = v[3].data,
            .b = v[4].data,
            .decay = v[5].data,
            .dt_bias = v[6].data,
            .n_rows = ag_shape_rows(&call->qkv->shape),
            .params = call->params,
            .token = ag_delta_token_reference,
        };
        for (size_t h = 0; h < call->params.n_v_heads; h++) ag_delta_head(&job, h, scratch);
        st = close_all(be, v, t, MAX_OPERANDS, true);
    }
    ag_free(scratch);
    return st;
}
