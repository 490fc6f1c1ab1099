/* SPDX-License-Identifier: Apache-2.0 */
#include "core/stages.h"

#include "core/alloc.h"
#include "core/fail.h"

static const ag_op *op_at(const ag_program *p, uint32_t i) {
    static const ag_op none = {.code = AG_OP_CODES};
    return i < p->n_ops ? &p->ops[i] : &none;
}

static bool is_product(const ag_op *op, size_t n) {
    return op->code == AG_OP_PRODUCTS && op->out[n - 1] != AG_NONE &&
           (n == AG_OP_VALUES || op->out[n] == AG_NONE);
}

/* Returns whether operation i is a NORM of the stream, followed by n products of it. */
static bool is_normed(const ag_program *p, uint32_t i, size_t n) {
    const ag_op *norm = op_at(p, i), *products = op_at(p, i + 1);
    return norm->code == AG_OP_NORM && norm->in[0] == p->stream && norm->out[0] != p->stream &&
           is_product(products, n) && products->in[0] == norm->out[0];
}

/* ---- patterns: each returns the number of operations that match from i on, or 0 ---- */

/* before: the stage that ends at i; NULL: none. */
typedef uint32_t match_fn(const ag_program *p, uint32_t i, const ag_stage *before);

static bool follows(const ag_stage *before, ag_stage_pattern pattern) {
    return before && before->pattern == pattern;
}

static bool reads_stream(const ag_stage *before) {
    return !before || before->pattern == AG_STAGE_ADDED;
}

static uint32_t normed(const ag_program *p, uint32_t i, const ag_stage *before) {
    return reads_stream(before) && is_normed(p, i, 3) ? 2 : 0;
}

static uint32_t gated(const ag_program *p, uint32_t i, const ag_stage *before) {
    const ag_op *up = op_at(p, i + 1), *gate = op_at(p, i + 2);
    if (!reads_stream(before) || !is_normed(p, i, 2) || gate->code != AG_OP_GATE) return 0;
    if (gate->kind != AG_GATE_SILU && gate->kind != AG_GATE_GELU_TANH) return 0;
    const bool in_place = gate->out[0] == gate->in[0];
    return in_place && gate->in[0] == up->out[0] && gate->in[1] == up->out[1] ? 3 : 0;
}

static uint32_t logits(const ag_program *p, uint32_t i, const ag_stage *before) {
    const bool is_last = i + 1 == p->head && i + 2 == p->n_ops;
    return is_last && reads_stream(before) && is_normed(p, i, 1) ? 2 : 0;
}

static uint32_t added(const ag_program *p, uint32_t i, const ag_stage *before) {
    const ag_op *product = op_at(p, i);
    if (!follows(before, AG_STAGE_ATTENTION) && !follows(before, AG_STAGE_GATED)) return 0;
    const ag_op *last = op_at(p, i - 1);
    if (!is_product(product, 1) || product->in[0] != last->out[0]) return 0;
    const ag_op *bias = op_at(p, i + 1);
    const uint32_t n = bias->code == AG_OP_BIAS ? 2 : 1;
    if (n == 2 && (bias->in[0] != product->out[0] || bias->out[0] != bias->in[0])) return 0;
    const ag_op *add = op_at(p, i + n);
    const bool adds = add->code == AG_OP_ADD && add->out[0] == p->stream;
    return adds && add->in[0] == p->stream && add->in[1] == product->out[0] ? n + 1 : 0;
}

static uint32_t attention(const ag_program *p, uint32_t i, const ag_stage *before) {
    if (!follows(before, AG_STAGE_NORMED)) return 0;
    const uint16_t *qkv = op_at(p, i - 1)->out;
    uint32_t n = 0;
    while (op_at(p, i + n)->code == AG_OP_BIAS) n++;
    while (op_at(p, i + n)->code == AG_OP_NORM) n++;
    for (uint32_t k = i; k < i + n; k++) {
        const ag_op *op = op_at(p, k);
        const uint16_t x = op->out[0];
        if (op->in[0] != x || (x != qkv[0] && x != qkv[1] && x != qkv[2])) return 0;
        if (op->code == AG_OP_NORM && x == qkv[2]) return 0;
    }
    const ag_op *attend = op_at(p, i + n);
    if (attend->code != AG_OP_ATTEND) return 0;
    for (int k = 0; k < 3; k++) {
        if (attend->in[k] != qkv[k]) return 0;
    }
    const ag_attend_op *a = &p->attend[attend->params];
    return a->shares_kv || a->sinks || a->softcap != 0 ? 0 : n + 1;
}

static match_fn *const patterns[] = {[AG_STAGE_NORMED] = normed,
                                     [AG_STAGE_ATTENTION] = attention,
                                     [AG_STAGE_ADDED] = added,
                                     [AG_STAGE_GATED] = gated,
                                     [AG_STAGE_LOGITS] = logits};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

/* Returns the stage that starts at operation i; n is 0 if there is none. */
static ag_stage match(const ag_program *p, uint32_t i, const ag_stage *before) {
    ag_stage s = {.first = i};
    for (int k = 0; k < PATTERNS && !s.n; k++) {
        s.pattern = (ag_stage_pattern)k;
        s.n = patterns[k](p, i, before);
    }
    return s;
}

ag_status ag_find_stages(ag_program *p, ag_error *err) {
    p->stages = ag_calloc(p->n_ops, sizeof *p->stages);
    if (!p->stages) return AG_FAIL(err, NOMEM, "stages of %u layers", p->n_layers);
    for (p->n_stages = p->n_in_stages = 0; p->n_in_stages < p->n_ops; p->n_stages++) {
        const ag_stage *before = p->n_stages ? &p->stages[p->n_stages - 1] : NULL;
        const ag_stage s = match(p, p->n_in_stages, before);
        if (!s.n) break;
        p->stages[p->n_stages] = s;
        p->n_in_stages += s.n;
    }
    return AG_OK;
}

bool ag_has_stages(const ag_program *p) { return p->n_in_stages == p->n_ops; }
