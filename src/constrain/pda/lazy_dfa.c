/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/lazy_dfa.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/bytes.h"

#include <string.h>

enum {
    TABLE_FROM = 6,       /* edges */
    CHECK_EVERY = 1 << 14 /* steps; about 0.2 ms */
};

ag_status ag_net_states_init(ag_net_states *s, ag_net *net, const ag_state_limits *limits,
                             ag_error *err) {
    *s =
        (ag_net_states){.net = net, .id_bit = net->id_bit, .limits = *limits, .n_room = net->n_ops};
    s->rule_starts = ag_calloc(net->n_rules, sizeof *s->rule_starts);
    s->marks = ag_calloc(net->n_ops, sizeof *s->marks);
    s->stack = ag_calloc(2 * net->n_ops + 2, sizeof *s->stack);
    s->list = ag_calloc(net->n_ops, sizeof *s->list);
    if (s->rule_starts && s->marks && s->stack && s->list) return AG_OK;
    return AG_FAIL(err, NOMEM, "states of %zu instructions", net->n_ops);
}

void ag_net_states_free(ag_net_states *s) {
    ag_interner_free(&s->sets);
    ag_free(s->states);
    ag_free(s->edges);
    ag_free(s->calls);
    ag_free(s->tables);
    ag_free(s->rule_starts);
    ag_free(s->marks);
    ag_free(s->stack);
    ag_free(s->list);
    *s = (ag_net_states){0};
}

size_t ag_net_states_bytes(const ag_net_states *s) {
    const ag_interner *t = &s->sets;
    return (t->pool_cap + t->starts_cap + t->n_slots) * sizeof *t->pool +
           s->states_cap * sizeof *s->states + s->edges_cap * sizeof *s->edges +
           s->calls_cap * sizeof *s->calls + s->tables_cap * sizeof *s->tables;
}

/* ---- counting steps ---- */

void ag_net_states_begin(ag_net_states *s, size_t n_done) {
    s->total = ag_net_states_total(s);
    s->work = s->work_before = s->check_at = n_done;
}

void ag_net_states_discount(ag_net_states *s) { s->work = s->check_at = s->work_before; }

void ag_net_states_reset_count(ag_net_states *s) {
    s->work = s->work_before = s->total = s->check_at = 0;
}

ag_status ag_net_states_too_many(const ag_net_states *s, ag_error *err) {
    return AG_FAIL(err, LIMIT,
                   "the constraint is too expensive: one token needs more than %zu steps",
                   s->limits.work);
}

ag_status ag_net_states_check(ag_net_states *s, ag_error *err) {
    const ag_state_limits *l = &s->limits;
    const size_t total = ag_net_states_total(s);
    if (s->work > l->work) return ag_net_states_too_many(s, err);
    if (total > l->total_work) {
        return AG_FAIL(err, LIMIT,
                       "the constraint is too expensive: all tokens together need more than %zu "
                       "steps",
                       l->total_work);
    }
    /* The shared states are made once for all constraints: that is not interrupted. */
    if (!s->id_bit && ag_interrupted())
        return AG_FAIL(err, CANCELLED, "the work on a constraint was interrupted");
    size_t n = CHECK_EVERY;
    if (n > l->work - s->work) n = l->work - s->work;
    if (n > l->total_work - total) n = l->total_work - total;
    s->check_at = s->work + n;
    return AG_OK;
}

/* ---- states ---- */

bool ag_net_states_worn(const ag_net_states *s) {
    const ag_net *net = s->net;
    return s->status != AG_OK || net->status != AG_OK ||
           net->n_ops - net->finished_ops > net->limits.ops / 2 ||
           s->sets.n > s->limits.states / 2 || ag_net_states_bytes(s) > s->limits.bytes / 2;
}

static void begin_closure(ag_net_states *s) {
    s->round++;
    s->n_list = 0;
}

static bool grow_list(uint32_t **list, size_t n) {
    uint32_t *grown = ag_realloc(*list, n * sizeof **list);
    if (grown) *list = grown;
    return grown != NULL;
}

/* The members that may follow a set become instructions of their own. */
static void open_set(ag_net_states *s, uint32_t op) {
    ag_net *net = s->net;
    ag_net_open(net, op);
    if (net->status != AG_OK) {
        s->status = net->status;
        s->error = net->error;
        return;
    }
    if (net->n_ops <= s->n_room) return;
    const size_t n = 2 * net->n_ops;
    if (!grow_list(&s->marks, n) || !grow_list(&s->stack, 2 * n + 2) || !grow_list(&s->list, n)) {
        s->status = AG_FAIL(&s->error, NOMEM, "states of %zu instructions", n);
        return;
    }
    memset(s->marks + s->n_room, 0, (n - s->n_room) * sizeof *s->marks);
    s->n_room = n;
}

/* Adds to s->list what op leads to without a byte. */
static void close_op(ag_net_states *s, uint32_t op) {
    size_t n = 0;
    s->stack[n++] = op;
    while (n) {
        op = s->stack[--n];
        if (op == AG_NET_NOWHERE || !s->net->ops[op].live || s->marks[op] == s->round) continue;
        s->marks[op] = s->round;
        s->work++;
        const ag_net_op *x = &s->net->ops[op];
        if (x->kind == AG_NET_SPLIT) {
            s->stack[n++] = x->other;
            s->stack[n++] = x->next;
        } else {
            s->list[s->n_list++] = op;
        }
    }
}

/* The state of what is in s->list. */
static ag_status end_closure(ag_net_states *s, uint32_t *state, ag_error *err) {
    if (s->status != AG_OK) {
        if (err) *err = s->error;
        return s->status;
    }
    ag_interner_sort(s->list, s->n_list);
    uint32_t id;
    AG_TRY(ag_net_states_charge(s, s->n_list + 1, err));
    AG_TRY(ag_interner_add(&s->sets, s->list, s->n_list, s->limits.states, "the constraint", &id,
                           err));
    if (id >= s->n_states) {
        if (ag_net_states_bytes(s) > s->limits.bytes) {
            return AG_FAIL(err, LIMIT, "the constraint's states take more than %zu bytes",
                           s->limits.bytes);
        }
        void *p = s->states;
        ag_status st = ag_array_grow(&p, &s->states_cap, id + 1, sizeof *s->states, err);
        s->states = p;
        if (st != AG_OK) return st;
        s->states[id] = (ag_net_state){0};
        s->n_states = id + 1;
    }
    *state = id | s->id_bit;
    return AG_OK;
}

ag_status ag_net_states_start(ag_net_states *s, uint32_t rule, uint32_t *state, ag_error *err) {
    rule &= ~AG_NET_SHARED;
    if (!s->rule_starts[rule]) {
        uint32_t made = 0;
        begin_closure(s);
        close_op(s, s->net->rules[rule].start);
        AG_TRY(end_closure(s, &made, err));
        s->rule_starts[rule] = (made & ~AG_NET_SHARED) + 1;
    }
    *state = (s->rule_starts[rule] - 1) | s->id_bit;
    return AG_OK;
}

/* ---- one state ---- */

static ag_status add_call(ag_net_states *s, uint32_t rule, uint32_t state, ag_error *err) {
    void *p = s->calls;
    ag_status st = ag_array_grow(&p, &s->calls_cap, s->n_calls + 1, sizeof *s->calls, err);
    s->calls = p;
    if (st == AG_OK) s->calls[s->n_calls++] = (ag_state_call){rule, state};
    return st;
}

static const uint32_t *list_of(const ag_net_states *s, uint32_t id, size_t *n) {
    return ag_interner_list(&s->sets, id, n);
}

/* One for each rule, however often the set calls it. */
static ag_status expand_calls(ag_net_states *s, uint32_t id, ag_net_state *out, ag_error *err) {
    out->calls_at = (uint32_t)s->n_calls;
    size_t n;
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n; i++) {
        const ag_net_op *op = &s->net->ops[list[i]];
        out->ends |= op->kind == AG_NET_END;
        if (op->kind != AG_NET_CALL) continue;
        const uint32_t rule = op->other;
        bool known = false;
        for (size_t c = out->calls_at; c < s->n_calls; c++) known |= s->calls[c].rule == rule;
        AG_TRY(ag_net_states_charge(s, 1 + (s->n_calls - out->calls_at) / 8, err));
        if (known) continue;
        begin_closure(s);
        for (size_t k = i; k < n; k++) {
            const ag_net_op *other = &s->net->ops[list[k]];
            if (other->kind == AG_NET_CALL && other->other == rule) close_op(s, other->next);
        }
        uint32_t target;
        AG_TRY(end_closure(s, &target, err));
        AG_TRY(add_call(s, rule, target, err));
        list = list_of(s, id, &n);
        AG_TRY(ag_net_states_charge(s, n + s->n_calls - out->calls_at, err));
    }
    if (s->n_calls - out->calls_at > UINT16_MAX) {
        return AG_FAIL(err, LIMIT, "a place of the constraint calls more than 65535 rules");
    }
    out->n_calls = (uint16_t)(s->n_calls - out->calls_at);
    return AG_OK;
}

static ag_status add_edge(ag_net_states *s, ag_net_state *out, unsigned lo, unsigned hi,
                          uint32_t state, ag_error *err) {
    if (out->n_edges) {
        ag_state_edge *last = &s->edges[s->n_edges - 1];
        if (last->state == state && last->hi + 1u == lo) {
            last->hi = (uint8_t)hi;
            return AG_OK;
        }
    }
    void *p = s->edges;
    ag_status st = ag_array_grow(&p, &s->edges_cap, s->n_edges + 1, sizeof *s->edges, err);
    s->edges = p;
    if (st != AG_OK) return st;
    s->edges[s->n_edges++] = (ag_state_edge){(uint8_t)lo, (uint8_t)hi, state};
    out->n_edges++;
    return AG_OK;
}

static ag_status expand_edges(ag_net_states *s, uint32_t id, ag_net_state *out, ag_error *err) {
    out->edges_at = (uint32_t)s->n_edges;
    bool border[257] = {false};
    size_t n;
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n; i++) {
        const ag_net_op *op = &s->net->ops[list[i]];
        if (op->kind == AG_NET_BYTES) border[op->lo] = border[op->hi + 1] = true;
    }
    for (unsigned lo = 0; lo < 256;) {
        unsigned hi = lo;
        while (hi < 255 && !border[hi + 1]) hi++;
        begin_closure(s);
        list = list_of(s, id, &n);
        AG_TRY(ag_net_states_charge(s, n, err));
        for (size_t i = 0; i < n; i++) {
            const ag_net_op *op = &s->net->ops[list[i]];
            if (op->kind == AG_NET_BYTES && op->lo <= lo && op->hi >= lo) close_op(s, op->next);
        }
        if (s->n_list) {
            uint32_t target;
            AG_TRY(end_closure(s, &target, err));
            AG_TRY(add_edge(s, out, lo, hi, target, err));
        }
        lo = hi + 1;
    }
    return AG_OK;
}

static ag_status make_table(ag_net_states *s, ag_net_state *out, ag_error *err) {
    if (out->n_edges < TABLE_FROM) return AG_OK;
    void *p = s->tables;
    ag_status st = ag_array_grow(&p, &s->tables_cap, s->n_tables + 1, sizeof *s->tables, err);
    s->tables = p;
    if (st != AG_OK) return st;
    uint32_t *row = s->tables[s->n_tables++];
    for (size_t b = 0; b < 256; b++) row[b] = AG_NO_STATE;
    for (size_t i = 0; i < out->n_edges; i++) {
        const ag_state_edge *e = &s->edges[out->edges_at + i];
        for (size_t b = e->lo; b <= e->hi; b++) row[b] = e->state;
    }
    out->table = (uint32_t)s->n_tables;
    return AG_OK;
}

static bool has_sets(const ag_net_states *s, uint32_t id) {
    size_t n;
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n; i++) {
        if (s->net->ops[list[i]].kind == AG_NET_SET) return true;
    }
    return false;
}

/* A state with sets of members in it is as the one in which they are open. They stay closed until
 * somebody needs to know: each opens the way to as many others as there are members. */
static ag_status expand_opened(ag_net_states *s, uint32_t id, ag_error *err) {
    size_t n;
    list_of(s, id, &n);
    for (size_t i = 0; i < n && s->status == AG_OK; i++) {
        const uint32_t op = list_of(s, id, &n)[i];
        if (s->net->ops[op].kind == AG_NET_SET) open_set(s, op);
    }
    begin_closure(s);
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n && s->status == AG_OK; i++) {
        const bool set = s->net->ops[list[i]].kind == AG_NET_SET;
        close_op(s, set ? s->net->ops[list[i]].next : list[i]);
    }
    uint32_t opened;
    AG_TRY(end_closure(s, &opened, err));
    AG_TRY(ag_net_states_expand(s, opened, err));
    const uint32_t mask = s->states[id].mask;
    s->states[id] = s->states[opened & ~AG_NET_SHARED];
    s->states[id].mask = mask;
    return AG_OK;
}

bool ag_net_states_only_ends(const ag_net_states *s, uint32_t state) {
    size_t n;
    const uint32_t *list = list_of(s, state & ~AG_NET_SHARED, &n);
    return n == 1 && s->net->ops[list[0]].kind == AG_NET_END;
}

ag_status ag_net_states_expand(ag_net_states *s, uint32_t state, ag_error *err) {
    const uint32_t id = state & ~AG_NET_SHARED;
    if (s->states[id].expanded) return AG_OK;
    if (has_sets(s, id)) return expand_opened(s, id, err);
    ag_net_state out = {.mask = s->states[id].mask};
    AG_TRY(expand_calls(s, id, &out, err));
    AG_TRY(expand_edges(s, id, &out, err));
    AG_TRY(make_table(s, &out, err));
    out.expanded = true;
    s->states[id] = out;
    return AG_OK;
}
