/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/run.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/experts.h"
#include "core/fail.h"
#include "layers/pass.h"

/* Tensors of an operation. */
typedef struct operands {
    ag_tensor in[AG_OP_VALUES], out[AG_OP_VALUES];
} operands;

static void find_operands(const ag_pass *pass, const ag_op *op, operands *at) {
    for (int i = 0; i < AG_OP_VALUES; i++) {
        if (op->in[i] != AG_NONE) at->in[i] = ag_pass_value(pass, op->in[i]);
        if (op->out[i] != AG_NONE) at->out[i] = ag_pass_value(pass, op->out[i]);
    }
}

static const ag_tensor *weight_of(const ag_pass *pass, const ag_op *op, int i) {
    return pass->weights[op->w[i]].tensor;
}

/* ---- operations ---- */

static ag_status products(const ag_pass *pass, const ag_op *op, operands *at) {
    ag_tensor *y[AG_OP_VALUES];
    const ag_tensor *w[AG_OP_VALUES];
    size_t n = 0;
    for (; n < AG_OP_VALUES && op->out[n] != AG_NONE; n++) {
        y[n] = &at->out[n];
        w[n] = weight_of(pass, op, (int)n);
    }
    if (n == 1) return ag_matmul_transposed(pass->backend, y[0], &at->in[0], w[0]);
    return ag_matmul_group(pass->backend, y, &at->in[0], w, n);
}

/* Normalises groups of the weight's length: full rows, or the heads of each row. */
static ag_status norm(const ag_pass *pass, const ag_op *op, const operands *at) {
    const ag_tensor *w = weight_of(pass, op, 0);
    const size_t dim = w->shape.dim[0];
    const ag_shape rows = ag_shape_2d(ag_shape_numel(&at->in[0].shape) / dim, dim);
    ag_tensor x, y;
    AG_TRY(ag_tensor_reshape(&x, &at->in[0], rows, &pass->backend->err));
    AG_TRY(ag_tensor_reshape(&y, &at->out[0], rows, &pass->backend->err));
    return ag_rms_norm(pass->backend, &y, &x, w, op->number);
}

static ag_status gate(ag_backend *be, const ag_op *op, ag_tensor *x, const ag_tensor *by) {
    switch ((ag_gate_kind)op->kind) {
    case AG_GATE_SILU:
        return ag_silu_mul(be, x, by);
    case AG_GATE_GELU_TANH:
        return ag_gelu_mul(be, x, by);
    case AG_GATE_SIGMOID:
        return ag_sigmoid_mul(be, x, by);
    case AG_GATE_SWIGLU_CLAMPED:
        return ag_swiglu_clamped(be, x, by, op->number);
    case AG_GATE_NONE:
        break;
    }
    return ag_mul(be, x, by);
}

static ag_status attend(const ag_pass *pass, const ag_op *op, operands *at, ag_error *err) {
    const ag_attend_op *a = &pass->program->attend[op->params];
    const ag_workspace *ws = pass->ws;
    const bool rotates = a->rope != AG_NONE, sees_all = a->window_list == AG_NONE;
    const ag_attention_layer layer = {
        .index = a->cache,
        .shares_kv = a->shares_kv,
        .n_heads = a->n_heads,
        .n_kv_heads = a->n_kv_heads,
        .head_dim = a->head_dim,
        .inv_freq = {rotates ? &pass->inv_freq[a->rope][0] : NULL,
                     rotates ? &pass->inv_freq[a->rope][1] : NULL},
        .rope_factor = a->rope_factor,
        .query_beta = a->query_beta,
        .query_period = a->query_period,
        .params = {.scale = a->scale,
                   .softcap = a->softcap,
                   .sinks = a->sinks ? weight_of(pass, op, 0) : NULL},
        .visible_from = sees_all ? NULL : ws->visible_from + a->window_list * ws->shape.n_rows,
    };
    const bool own = !a->shares_kv;
    return ag_self_attention(pass->backend, &layer, pass->seqs, pass->n_seqs, ws, &at->out[0],
                             &at->in[0], own ? &at->in[1] : NULL, own ? &at->in[2] : NULL, err);
}

/* ---- experts ---- */

/* Calls pass->chosen for each row of routes. */
static ag_status report_chosen(const ag_pass *pass, uint32_t layer, const ag_tensor *routes) {
    const size_t cols = ag_shape_cols(&routes->shape), n = cols / 3, rows = pass->n_rows;
    float *values = ag_calloc(rows, cols * sizeof *values);
    uint32_t experts[AG_EXPERTS_MAX];
    if (!values) return AG_FAIL(&pass->backend->err, NOMEM, "copy of %zu routes", rows);
    const ag_status st = ag_read(pass->backend, values, routes, rows * cols * sizeof *values);
    for (size_t r = 0; r < rows && st == AG_OK; r++) {
        const float *row = values + r * cols;
        for (size_t k = 0; k < n; k++) experts[k] = (uint32_t)row[k];
        pass->chosen(pass->chosen_user,
                     &(ag_chosen_experts){layer, r, (uint32_t)n, experts, row + n});
    }
    ag_free(values);
    return st;
}

static ag_status route(const ag_pass *pass, const ag_op *op, operands *at) {
    const ag_route_op *r = &pass->program->route[op->params];
    int n = 0;
    const ag_tensor *bias = r->choice_bias ? weight_of(pass, op, n++) : NULL;
    const ag_tensor *scale = r->expert_scale ? weight_of(pass, op, n) : NULL;
    AG_TRY(ag_route(pass->backend, &at->out[0], &at->in[0], bias, scale, &r->params));
    return pass->chosen ? report_chosen(pass, op->layer, &at->out[0]) : AG_OK;
}

/* Makes *out the picked rows of a value, which has those of a row in its columns. */
static ag_status by_picked(const ag_pass *pass, const ag_tensor *value, const ag_tensor *routes,
                           ag_tensor *out) {
    const size_t n = ag_shape_rows(&routes->shape) * (ag_shape_cols(&routes->shape) / 3);
    const size_t cols = n ? ag_shape_numel(&value->shape) / n : 0;
    return ag_tensor_reshape(out, value, ag_shape_2d(n, cols), &pass->backend->err);
}

static ag_status multiply_experts(const ag_pass *pass, const ag_op *op, const operands *at) {
    const ag_route_params *r = &pass->program->route[op->params].params;
    ag_tensor results[AG_OP_VALUES], x = at->in[0], *y[AG_OP_VALUES];
    const ag_tensor *w[AG_OP_VALUES];
    ag_expert_call call = {.y = y,
                           .x = &x,
                           .w = w,
                           .routes = &at->in[1],
                           .n_experts = r->n_experts,
                           .n_used = r->n_used,
                           .picked = op->flags & AG_OP_PICKED};
    for (; call.n < AG_OP_VALUES && op->out[call.n] != AG_NONE; call.n++) {
        AG_TRY(by_picked(pass, &at->out[call.n], &at->in[1], &results[call.n]));
        y[call.n] = &results[call.n];
        w[call.n] = weight_of(pass, op, (int)call.n);
    }
    if (call.picked) AG_TRY(by_picked(pass, &at->in[0], &at->in[1], &x));
    return ag_matmul_experts(pass->backend, &call);
}

static ag_status add_expert_bias(const ag_pass *pass, const ag_op *op, const operands *at) {
    ag_tensor y;
    AG_TRY(by_picked(pass, &at->out[0], &at->in[1], &y));
    return ag_add_expert_bias(pass->backend, &y, weight_of(pass, op, 0), &at->in[1]);
}

static ag_status combine(const ag_pass *pass, operands *at) {
    ag_tensor y;
    AG_TRY(by_picked(pass, &at->in[0], &at->in[1], &y));
    return ag_combine_experts(pass->backend, &at->out[0], &y, &at->in[1]);
}

static ag_status execute_on(const ag_pass *pass, const ag_op *op, operands *at, ag_error *err) {
    ag_backend *be = pass->backend;
    switch ((ag_op_code)op->code) {
    case AG_OP_PRODUCTS:
        return ag_take_error(be, products(pass, op, at), err);
    case AG_OP_BIAS:
        return ag_take_error(be, ag_add_bias(be, &at->out[0], weight_of(pass, op, 0)), err);
    case AG_OP_NORM:
        return ag_take_error(be, norm(pass, op, at), err);
    case AG_OP_ADD:
        return ag_take_error(be, ag_add_assign(be, &at->out[0], &at->in[1]), err);
    case AG_OP_SCALE:
        return ag_take_error(be, ag_scale(be, &at->out[0], pass->weights[op->w[0]].number), err);
    case AG_OP_SOFTCAP:
        return ag_take_error(be, ag_softcap(be, &at->out[0], op->number), err);
    case AG_OP_GATE:
        return ag_take_error(be, gate(be, op, &at->out[0], &at->in[1]), err);
    case AG_OP_ATTEND:
        return attend(pass, op, at, err);
    case AG_OP_SHORT_CONV:
        return ag_run_short_conv(pass, op, &at->in[0], &at->out[0], err);
    case AG_OP_DELTA_NET:
        return ag_run_delta_net(pass, op, at->in, at->out, err);
    case AG_OP_ROUTE:
        return ag_take_error(be, route(pass, op, at), err);
    case AG_OP_EXPERTS:
        return ag_take_error(be, multiply_experts(pass, op, at), err);
    case AG_OP_EXPERT_BIAS:
        return ag_take_error(be, add_expert_bias(pass, op, at), err);
    case AG_OP_COMBINE:
        return ag_take_error(be, combine(pass, at), err);
    case AG_OP_ROW_GATE:
        return ag_take_error(be, ag_gate_rows(be, &at->out[0], &at->in[1]), err);
    case AG_OP_CODES:
        break;
    }
    return AG_FAIL(err, INVALID, "operation code %u is unknown", op->code);
}

static ag_status execute(const ag_pass *pass, const ag_op *op, ag_error *err) {
    operands at;
    find_operands(pass, op, &at);
    return execute_on(pass, op, &at, err);
}

/* ---- the order ---- */

static bool is_identity(const ag_pass *pass, const ag_op *op) {
    return op->code == AG_OP_SCALE && pass->weights[op->w[0]].number == 1;
}

/* Runs an ADD, fused with a NORM of its sum into another value if one follows. *next: the
 * operation after them. */
static ag_status add_and_norm(const ag_pass *pass, uint32_t i, uint32_t *next, ag_error *err) {
    const ag_program *p = pass->program;
    const ag_op *add = &p->ops[i];
    const uint32_t n = ag_program_norm_of_sum(p, i);
    const ag_op *norm_op = &p->ops[n];
    const bool fits = n == i + 1 || (n == i + 2 && is_identity(pass, &p->ops[i + 1]));
    *next = fits ? n + 1 : i + 1;
    if (!fits) return execute(pass, add, err);
    operands at, to;
    find_operands(pass, add, &at);
    find_operands(pass, norm_op, &to);
    return ag_take_error(pass->backend,
                         ag_add_rms_norm(pass->backend, &to.out[0], &at.out[0], &at.in[1],
                                         weight_of(pass, norm_op, 0), norm_op->number),
                         err);
}

/* Runs two PRODUCTS and the GATE after them. */
static ag_status gated_products(const ag_pass *pass, uint32_t i, ag_error *err) {
    const ag_op *op = &pass->program->ops[i];
    operands at;
    find_operands(pass, op, &at);
    ag_tensor *y[] = {&at.out[0], &at.out[1]};
    const ag_tensor *w[] = {weight_of(pass, op, 0), weight_of(pass, op, 1)};
    const ag_gate_kind kind = (ag_gate_kind)(op + 1)->kind;
    return ag_take_error(pass->backend, ag_matmul_gated(pass->backend, kind, y, &at.in[0], w), err);
}

static bool is_cancelled(const ag_pass *pass) {
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const atomic_bool *cancel = pass->seqs[i].cancel;
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) return true;
    }
    return false;
}

ag_status ag_run_program(ag_pass *pass, ag_error *err) {
    const ag_program *p = pass->program;
    AG_TRY(ag_op_hook_call(pass->hook, 0, 0, err));
    for (uint32_t i = 0, next; i < p->head; i = next) {
        const ag_op *op = &p->ops[i];
        next = i + 1;
        if (op->flags & AG_OP_LAYER_BEGINS && is_cancelled(pass))
            return AG_FAIL(err, CANCELLED, "cancelled before layer %u", op->layer);
        if (i == p->cut) AG_TRY(ag_select_output_rows(pass, err));
        if (!pass->n_rows) return AG_OK;
        if (op->code == AG_OP_ADD) AG_TRY(add_and_norm(pass, i, &next, err));
        else if (ag_program_gates_products(p, i)) {
            AG_TRY(gated_products(pass, i, err));
            next = i + 2;
        } else if (!is_identity(pass, op)) AG_TRY(execute(pass, op, err));
        AG_TRY(ag_op_hook_call(pass->hook, i, next, err));
    }
    return AG_OK;
}

ag_status ag_run_head(const ag_pass *pass, const ag_tensor *hidden, ag_tensor *logits,
                      ag_error *err) {
    const ag_program *p = pass->program;
    AG_TRY(ag_op_hook_call(pass->hook, p->head, p->head, err));
    for (uint32_t i = p->head; i < p->n_ops; i++) {
        const ag_op *op = &p->ops[i];
        operands at = {.in[0] = op->in[0] == p->hidden ? *hidden : *logits, .out[0] = *logits};
        AG_TRY(execute_on(pass, op, &at, err));
        AG_TRY(ag_op_hook_call(pass->hook, i, i + 1, err));
    }
    return AG_OK;
}
