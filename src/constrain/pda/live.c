/* SPDX-License-Identifier: Apache-2.0 */
/* Which instructions lead to the end of their rule, and which do so without a byte: what does not
 * is left out, so a text that has begun can always be ended. */
#include "constrain/interrupts.h"
#include "constrain/pda/pda.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* Who waits for an instruction or a rule: lists of instructions. Nodes [0, n_ops) are
 * instructions, from n_ops on rules. */
typedef struct waiters {
    uint32_t *first; /* [nodes + 1] */
    uint32_t *list;
    uint32_t *queue; /* [n_ops + n_rules] */
    size_t n_queue;
} waiters;

typedef struct finish {
    ag_net *net;
    const ag_net *shared;
    waiters w;
} finish;

/* Up to three nodes that an instruction depends on; returns how many. */
static size_t depends_on(const ag_net *net, uint32_t i, uint32_t out[2]) {
    const ag_net_op *op = &net->ops[i];
    size_t n = 0;
    if (op->kind != AG_NET_END && op->next != AG_NET_NOWHERE) out[n++] = op->next;
    if (op->kind == AG_NET_SPLIT && op->other != AG_NET_NOWHERE) out[n++] = op->other;
    if (op->kind == AG_NET_CALL && (op->other & AG_NET_SHARED) == net->id_bit) {
        out[n++] = (uint32_t)net->n_ops + (op->other & ~AG_NET_SHARED);
    }
    return n;
}

static ag_status list_waiters(finish *f, ag_error *err) {
    ag_net *net = f->net;
    waiters *w = &f->w;
    const size_t nodes = net->n_ops + net->n_rules;
    w->first = ag_calloc(nodes + 1, sizeof *w->first);
    w->list = ag_calloc(2 * net->n_ops + net->n_rules, sizeof *w->list);
    w->queue = ag_calloc(nodes, sizeof *w->queue);
    if (!w->first || !w->list || !w->queue) {
        return AG_FAIL(err, NOMEM, "grammar of %zu instructions", net->n_ops);
    }
    uint32_t on[2];
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < net->n_ops; i++) {
            const size_t n = depends_on(net, i, on);
            AG_TRY(ag_compile_steps(1, err));
            for (size_t k = 0; k < n; k++) {
                if (pass) w->list[w->first[on[k]]++] = i;
                else w->first[on[k] + 1]++;
            }
        }
        for (uint32_t r = 0; r < net->n_rules; r++) {
            if (net->rules[r].kind != AG_RULE_PLAIN) continue;
            const uint32_t start = net->rules[r].start;
            if (start == AG_NET_NOWHERE) continue;
            if (pass) w->list[w->first[start]++] = (uint32_t)net->n_ops + r;
            else w->first[start + 1]++;
        }
        for (size_t s = 0; !pass && s < nodes; s++) w->first[s + 1] += w->first[s];
    }
    return AG_OK;
}

static bool *flag_of(finish *f, uint32_t node, bool nullable) {
    ag_net *net = f->net;
    if (node < net->n_ops) {
        ag_net_op *op = &net->ops[node];
        return nullable ? &op->nullable : &op->live;
    }
    ag_net_rule *r = &net->rules[node - net->n_ops];
    return nullable ? &r->nullable : &r->live;
}

static bool rule_flag(const finish *f, uint32_t rule, bool nullable) {
    const ag_net *net = (rule & AG_NET_SHARED) == f->net->id_bit ? f->net : f->shared;
    const ag_net_rule *r = &net->rules[rule & ~AG_NET_SHARED];
    return nullable ? r->nullable : r->live;
}

static bool op_holds(const finish *f, uint32_t i, bool nullable) {
    const ag_net *net = f->net;
    const ag_net_op *op = &net->ops[i];
    const bool next = op->kind != AG_NET_END && op->next != AG_NET_NOWHERE &&
                      (nullable ? net->ops[op->next].nullable : net->ops[op->next].live);
    switch ((ag_net_kind)op->kind) {
    case AG_NET_BYTES:
        return next && !nullable;
    case AG_NET_SPLIT:
        return next || (op->other != AG_NET_NOWHERE &&
                        (nullable ? net->ops[op->other].nullable : net->ops[op->other].live));
    case AG_NET_CALL:
        return next && rule_flag(f, op->other, nullable);
    case AG_NET_SET:
        return next;
    case AG_NET_END:
        break;
    }
    return true;
}

static void mark_node(finish *f, uint32_t node, bool nullable) {
    bool *flag = flag_of(f, node, nullable);
    if (*flag) return;
    *flag = true;
    f->w.queue[f->w.n_queue++] = node;
}

static ag_status find_flags(finish *f, bool nullable, ag_error *err) {
    ag_net *net = f->net;
    waiters *w = &f->w;
    for (uint32_t i = 0; i < net->n_ops; i++) {
        AG_TRY(ag_compile_steps(1, err));
        if (op_holds(f, i, nullable)) mark_node(f, i, nullable);
    }
    for (uint32_t r = 0; r < net->n_rules && !nullable; r++) {
        if (net->rules[r].kind != AG_RULE_PLAIN) mark_node(f, (uint32_t)net->n_ops + r, nullable);
    }
    while (w->n_queue) {
        const uint32_t node = w->queue[--w->n_queue];
        AG_TRY(ag_compile_steps(1, err));
        for (size_t e = node ? w->first[node - 1] : 0; e < w->first[node]; e++) {
            const uint32_t who = w->list[e];
            if (who >= net->n_ops || op_holds(f, who, nullable)) mark_node(f, who, nullable);
        }
    }
    return AG_OK;
}

ag_status ag_net_finish(ag_net *net, const ag_net *shared, ag_error *err) {
    if (net->status != AG_OK) {
        if (err) *err = net->error;
        return net->status;
    }
    finish f = {.net = net, .shared = shared};
    ag_status st = list_waiters(&f, err);
    if (st == AG_OK) st = find_flags(&f, false, err);
    if (st == AG_OK) st = find_flags(&f, true, err);
    ag_free(f.w.first);
    ag_free(f.w.list);
    ag_free(f.w.queue);
    ag_free(net->slots);
    net->slots = NULL;
    net->n_slots = 0;
    net->finished = true;
    net->finished_ops = net->n_ops;
    net->finished_sets = net->sets.n;
    return st;
}
