/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/lazy_dfa.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/bytes.h"

#include <string.h>

enum {
    TABLE_MIN_EDGES = 6,  /* edges of a state that gets a table */
    CHECK_EVERY = 1 << 14 /* steps; about 0.2 ms */
};

ag_status ag_lazy_dfa_init(ag_lazy_dfa *s, ag_pda *pda, const ag_lazy_limits *limits,
                           ag_error *err) {
    *s = (ag_lazy_dfa){
        .pda = pda, .id_bit = pda->id_bit, .limits = *limits, .work_cap = pda->n_insts};
    s->rule_starts = ag_calloc(pda->n_rules, sizeof *s->rule_starts);
    s->stamps = ag_calloc(pda->n_insts, sizeof *s->stamps);
    s->stack = ag_calloc(2 * pda->n_insts + 2, sizeof *s->stack);
    s->list = ag_calloc(pda->n_insts, sizeof *s->list);
    if (s->rule_starts && s->stamps && s->stack && s->list) return AG_OK;
    return AG_FAIL(err, NOMEM, "states of %zu instructions", pda->n_insts);
}

void ag_lazy_dfa_free(ag_lazy_dfa *s) {
    ag_interner_free(&s->sets);
    ag_free(s->states);
    ag_free(s->edges);
    ag_free(s->calls);
    ag_free(s->tables);
    ag_free(s->rule_starts);
    ag_free(s->stamps);
    ag_free(s->stack);
    ag_free(s->list);
    *s = (ag_lazy_dfa){0};
}

size_t ag_lazy_dfa_bytes(const ag_lazy_dfa *s) {
    const ag_interner *t = &s->sets;
    return (t->pool_cap + t->starts_cap + t->n_slots) * sizeof *t->pool +
           s->states_cap * sizeof *s->states + s->edges_cap * sizeof *s->edges +
           s->calls_cap * sizeof *s->calls + s->tables_cap * sizeof *s->tables;
}

/* ---- counting steps ---- */

void ag_lazy_dfa_begin_count(ag_lazy_dfa *s, size_t n_done) {
    s->total = ag_lazy_dfa_total(s);
    s->work = s->work_before = s->check_at = n_done;
}

void ag_lazy_dfa_discount(ag_lazy_dfa *s) { s->work = s->check_at = s->work_before; }

void ag_lazy_dfa_reset_count(ag_lazy_dfa *s) {
    s->work = s->work_before = s->total = s->check_at = 0;
}

ag_status ag_lazy_dfa_fail_limit(const ag_lazy_dfa *s, ag_error *err) {
    return AG_FAIL(err, LIMIT,
                   "the constraint is too expensive: one token needs more than %zu steps",
                   s->limits.work);
}

ag_status ag_lazy_dfa_check(ag_lazy_dfa *s, ag_error *err) {
    const ag_lazy_limits *l = &s->limits;
    const size_t total = ag_lazy_dfa_total(s);
    if (s->work > l->work) return ag_lazy_dfa_fail_limit(s, err);
    if (total > l->total_work) {
        return AG_FAIL(err, LIMIT,
                       "the constraint is too expensive: all tokens together need more than %zu "
                       "steps",
                       l->total_work);
    }
    /* Shared states are made once for all constraints, which is not interrupted. */
    if (!s->id_bit && ag_interrupted())
        return AG_FAIL(err, CANCELLED, "working on a constraint: interrupted");
    size_t n = CHECK_EVERY;
    if (n > l->work - s->work) n = l->work - s->work;
    if (n > l->total_work - total) n = l->total_work - total;
    s->check_at = s->work + n;
    return AG_OK;
}

/* ---- states ---- */

bool ag_lazy_dfa_needs_rebuild(const ag_lazy_dfa *s) {
    const ag_pda *pda = s->pda;
    return s->status != AG_OK || pda->status != AG_OK ||
           pda->n_insts - pda->finished_insts > pda->limits.insts / 2 ||
           s->sets.n > s->limits.states / 2 || ag_lazy_dfa_bytes(s) > s->limits.bytes / 2;
}

static void begin_closure(ag_lazy_dfa *s) {
    s->round++;
    s->n_list = 0;
}

static bool grow_list(uint32_t **list, size_t n) {
    uint32_t *grown = ag_realloc(*list, n * sizeof **list);
    if (grown) *list = grown;
    return grown != NULL;
}

/* Opens a SET instruction: the members that may follow become instructions. */
static void open_set(ag_lazy_dfa *s, uint32_t inst) {
    ag_pda *pda = s->pda;
    ag_pda_open_set(pda, inst);
    if (pda->status != AG_OK) {
        s->status = pda->status;
        s->error = pda->error;
        return;
    }
    if (pda->n_insts <= s->work_cap) return;
    const size_t n = 2 * pda->n_insts;
    if (!grow_list(&s->stamps, n) || !grow_list(&s->stack, 2 * n + 2) || !grow_list(&s->list, n)) {
        s->status = AG_FAIL(&s->error, NOMEM, "states of %zu instructions", n);
        return;
    }
    memset(s->stamps + s->work_cap, 0, (n - s->work_cap) * sizeof *s->stamps);
    s->work_cap = n;
}

/* Adds to s->list the instructions that inst reaches without a byte. */
static void close_inst(ag_lazy_dfa *s, uint32_t inst) {
    size_t n = 0;
    s->stack[n++] = inst;
    while (n) {
        inst = s->stack[--n];
        if (inst == AG_PDA_FAIL || !s->pda->insts[inst].live || s->stamps[inst] == s->round)
            continue;
        s->stamps[inst] = s->round;
        s->work++;
        const ag_pda_inst *x = &s->pda->insts[inst];
        if (x->kind == AG_PDA_SPLIT) {
            s->stack[n++] = x->other;
            s->stack[n++] = x->next;
        } else {
            s->list[s->n_list++] = inst;
        }
    }
}

/* Returns the state of the instructions in s->list. */
static ag_status end_closure(ag_lazy_dfa *s, uint32_t *state, ag_error *err) {
    if (s->status != AG_OK) {
        if (err) *err = s->error;
        return s->status;
    }
    ag_interner_sort(s->list, s->n_list);
    uint32_t id;
    AG_TRY(ag_lazy_dfa_charge(s, s->n_list + 1, err));
    AG_TRY(ag_interner_add(&s->sets, s->list, s->n_list, s->limits.states, "constraint", &id, err));
    if (id >= s->n_states) {
        if (ag_lazy_dfa_bytes(s) > s->limits.bytes) {
            return AG_FAIL(err, LIMIT,
                           "the constraint is too large: its states take more than %zu bytes",
                           s->limits.bytes);
        }
        AG_TRY(AG_GROW(s->states, &s->states_cap, id + 1, err));
        s->states[id] = (ag_lazy_state){0};
        s->n_states = id + 1;
    }
    *state = id | s->id_bit;
    return AG_OK;
}

ag_status ag_lazy_dfa_start(ag_lazy_dfa *s, uint32_t rule, uint32_t *state, ag_error *err) {
    rule &= ~AG_PDA_SHARED;
    if (!s->rule_starts[rule]) {
        uint32_t made = 0;
        begin_closure(s);
        close_inst(s, s->pda->rules[rule].start);
        AG_TRY(end_closure(s, &made, err));
        s->rule_starts[rule] = (made & ~AG_PDA_SHARED) + 1;
    }
    *state = (s->rule_starts[rule] - 1) | s->id_bit;
    return AG_OK;
}

/* ---- one state ---- */

static ag_status add_call(ag_lazy_dfa *s, uint32_t rule, uint32_t state, ag_error *err) {
    AG_TRY(AG_GROW(s->calls, &s->calls_cap, s->n_calls + 1, err));
    s->calls[s->n_calls++] = (ag_lazy_call){rule, state};
    return AG_OK;
}

static const uint32_t *list_of(const ag_lazy_dfa *s, uint32_t id, size_t *n) {
    return ag_interner_list(&s->sets, id, n);
}

/* Makes one call for each rule, even if several instructions call it. */
static ag_status expand_calls(ag_lazy_dfa *s, uint32_t id, ag_lazy_state *out, ag_error *err) {
    out->calls_at = (uint32_t)s->n_calls;
    size_t n;
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n; i++) {
        const ag_pda_inst *inst = &s->pda->insts[list[i]];
        out->ends |= inst->kind == AG_PDA_END;
        if (inst->kind != AG_PDA_CALL) continue;
        const uint32_t rule = inst->other;
        bool known = false;
        for (size_t c = out->calls_at; c < s->n_calls; c++) known |= s->calls[c].rule == rule;
        AG_TRY(ag_lazy_dfa_charge(s, 1 + (s->n_calls - out->calls_at) / 8, err));
        if (known) continue;
        begin_closure(s);
        for (size_t k = i; k < n; k++) {
            const ag_pda_inst *other = &s->pda->insts[list[k]];
            if (other->kind == AG_PDA_CALL && other->other == rule) close_inst(s, other->next);
        }
        uint32_t target;
        AG_TRY(end_closure(s, &target, err));
        AG_TRY(add_call(s, rule, target, err));
        list = list_of(s, id, &n);
        AG_TRY(ag_lazy_dfa_charge(s, n + s->n_calls - out->calls_at, err));
    }
    if (s->n_calls - out->calls_at > UINT16_MAX) {
        return AG_FAIL(err, LIMIT,
                       "the grammar is too large: one state calls more than 65535 rules");
    }
    out->n_calls = (uint16_t)(s->n_calls - out->calls_at);
    return AG_OK;
}

static ag_status add_edge(ag_lazy_dfa *s, ag_lazy_state *out, unsigned lo, unsigned hi,
                          uint32_t state, ag_error *err) {
    if (out->n_edges) {
        ag_lazy_edge *last = &s->edges[s->n_edges - 1];
        if (last->state == state && last->hi + 1u == lo) {
            last->hi = (uint8_t)hi;
            return AG_OK;
        }
    }
    AG_TRY(AG_GROW(s->edges, &s->edges_cap, s->n_edges + 1, err));
    s->edges[s->n_edges++] = (ag_lazy_edge){(uint8_t)lo, (uint8_t)hi, state};
    out->n_edges++;
    return AG_OK;
}

static ag_status expand_edges(ag_lazy_dfa *s, uint32_t id, ag_lazy_state *out, ag_error *err) {
    out->edges_at = (uint32_t)s->n_edges;
    bool border[257] = {false};
    size_t n;
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n; i++) {
        const ag_pda_inst *inst = &s->pda->insts[list[i]];
        if (inst->kind == AG_PDA_BYTES) border[inst->lo] = border[inst->hi + 1] = true;
    }
    for (unsigned lo = 0; lo < 256;) {
        unsigned hi = lo;
        while (hi < 255 && !border[hi + 1]) hi++;
        begin_closure(s);
        list = list_of(s, id, &n);
        AG_TRY(ag_lazy_dfa_charge(s, n, err));
        for (size_t i = 0; i < n; i++) {
            const ag_pda_inst *inst = &s->pda->insts[list[i]];
            if (inst->kind == AG_PDA_BYTES && inst->lo <= lo && inst->hi >= lo)
                close_inst(s, inst->next);
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

static ag_status make_table(ag_lazy_dfa *s, ag_lazy_state *out, ag_error *err) {
    if (out->n_edges < TABLE_MIN_EDGES) return AG_OK;
    AG_TRY(AG_GROW(s->tables, &s->tables_cap, s->n_tables + 1, err));
    uint32_t *row = s->tables[s->n_tables++];
    for (size_t b = 0; b < 256; b++) row[b] = AG_NO_STATE;
    for (size_t i = 0; i < out->n_edges; i++) {
        const ag_lazy_edge *e = &s->edges[out->edges_at + i];
        for (size_t b = e->lo; b <= e->hi; b++) row[b] = e->state;
    }
    out->table = (uint32_t)s->n_tables;
    return AG_OK;
}

static bool has_sets(const ag_lazy_dfa *s, uint32_t id) {
    size_t n;
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n; i++) {
        if (s->pda->insts[list[i]].kind == AG_PDA_SET) return true;
    }
    return false;
}

/* Expands a state with SET instructions: it equals the state in which they are open. Sets are
 * opened only here, since each leads to one more set for each missing member. */
static ag_status expand_opened(ag_lazy_dfa *s, uint32_t id, ag_error *err) {
    size_t n;
    list_of(s, id, &n);
    for (size_t i = 0; i < n && s->status == AG_OK; i++) {
        const uint32_t inst = list_of(s, id, &n)[i];
        if (s->pda->insts[inst].kind == AG_PDA_SET) open_set(s, inst);
    }
    begin_closure(s);
    const uint32_t *list = list_of(s, id, &n);
    for (size_t i = 0; i < n && s->status == AG_OK; i++) {
        const bool set = s->pda->insts[list[i]].kind == AG_PDA_SET;
        close_inst(s, set ? s->pda->insts[list[i]].next : list[i]);
    }
    uint32_t opened;
    AG_TRY(end_closure(s, &opened, err));
    AG_TRY(ag_lazy_dfa_expand(s, opened, err));
    const uint32_t mask = s->states[id].mask;
    s->states[id] = s->states[opened & ~AG_PDA_SHARED];
    s->states[id].mask = mask;
    return AG_OK;
}

bool ag_lazy_dfa_only_ends(const ag_lazy_dfa *s, uint32_t state) {
    size_t n;
    const uint32_t *list = list_of(s, state & ~AG_PDA_SHARED, &n);
    return n == 1 && s->pda->insts[list[0]].kind == AG_PDA_END;
}

ag_status ag_lazy_dfa_expand(ag_lazy_dfa *s, uint32_t state, ag_error *err) {
    const uint32_t id = state & ~AG_PDA_SHARED;
    if (s->states[id].expanded) return AG_OK;
    if (has_sets(s, id)) return expand_opened(s, id, err);
    ag_lazy_state out = {.mask = s->states[id].mask};
    AG_TRY(expand_calls(s, id, &out, err));
    AG_TRY(expand_edges(s, id, &out, err));
    AG_TRY(make_table(s, &out, err));
    out.expanded = true;
    s->states[id] = out;
    return AG_OK;
}
