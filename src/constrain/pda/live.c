/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the instructions that can reach the end of their rule, and those that do so without a byte.
 * The others are ignored, so every accepted prefix of a text can be completed. */
#include "constrain/interrupts.h"
#include "constrain/pda/pda.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* The instructions and rules that depend on a node. Nodes [0, n_insts) are instructions, later ones
 * rules. */
typedef struct waiters {
    uint32_t *first; /* [nodes + 1] */
    uint32_t *list;
    uint32_t *queue; /* [n_insts + n_rules] */
    size_t n_queue;
} waiters;

typedef struct finish {
    ag_pda *pda;
    const ag_pda *shared;
    waiters w;
} finish;

/* Lists the nodes that an instruction depends on, at most two. Returns their number. */
static size_t depends_on(const ag_pda *pda, uint32_t i, uint32_t out[2]) {
    const ag_pda_inst *inst = &pda->insts[i];
    size_t n = 0;
    if (inst->kind != AG_PDA_END && inst->next != AG_PDA_FAIL) out[n++] = inst->next;
    if (inst->kind == AG_PDA_SPLIT && inst->other != AG_PDA_FAIL) out[n++] = inst->other;
    if (inst->kind == AG_PDA_CALL && (inst->other & AG_PDA_SHARED) == pda->id_bit) {
        out[n++] = (uint32_t)pda->n_insts + (inst->other & ~AG_PDA_SHARED);
    }
    return n;
}

static ag_status list_waiters(finish *f, ag_error *err) {
    ag_pda *pda = f->pda;
    waiters *w = &f->w;
    const size_t nodes = pda->n_insts + pda->n_rules;
    w->first = ag_calloc(nodes + 1, sizeof *w->first);
    w->list = ag_calloc(2 * pda->n_insts + pda->n_rules, sizeof *w->list);
    w->queue = ag_calloc(nodes, sizeof *w->queue);
    if (!w->first || !w->list || !w->queue) {
        return AG_FAIL(err, NOMEM, "grammar of %zu instructions", pda->n_insts);
    }
    uint32_t deps[2];
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < pda->n_insts; i++) {
            const size_t n = depends_on(pda, i, deps);
            AG_TRY(ag_compile_steps(1, err));
            for (size_t k = 0; k < n; k++) {
                if (pass) w->list[w->first[deps[k]]++] = i;
                else w->first[deps[k] + 1]++;
            }
        }
        for (uint32_t r = 0; r < pda->n_rules; r++) {
            if (pda->rules[r].kind != AG_RULE_PLAIN) continue;
            const uint32_t start = pda->rules[r].start;
            if (start == AG_PDA_FAIL) continue;
            if (pass) w->list[w->first[start]++] = (uint32_t)pda->n_insts + r;
            else w->first[start + 1]++;
        }
        for (size_t s = 0; !pass && s < nodes; s++) w->first[s + 1] += w->first[s];
    }
    return AG_OK;
}

static bool *flag_of(finish *f, uint32_t node, bool nullable) {
    ag_pda *pda = f->pda;
    if (node < pda->n_insts) {
        ag_pda_inst *inst = &pda->insts[node];
        return nullable ? &inst->nullable : &inst->live;
    }
    ag_pda_rule *r = &pda->rules[node - pda->n_insts];
    return nullable ? &r->nullable : &r->live;
}

static bool rule_flag(const finish *f, uint32_t rule, bool nullable) {
    const ag_pda *pda = (rule & AG_PDA_SHARED) == f->pda->id_bit ? f->pda : f->shared;
    const ag_pda_rule *r = &pda->rules[rule & ~AG_PDA_SHARED];
    return nullable ? r->nullable : r->live;
}

static bool inst_holds(const finish *f, uint32_t i, bool nullable) {
    const ag_pda *pda = f->pda;
    const ag_pda_inst *inst = &pda->insts[i];
    const bool next = inst->kind != AG_PDA_END && inst->next != AG_PDA_FAIL &&
                      (nullable ? pda->insts[inst->next].nullable : pda->insts[inst->next].live);
    switch ((ag_pda_inst_kind)inst->kind) {
    case AG_PDA_BYTES:
        return next && !nullable;
    case AG_PDA_SPLIT:
        return next || (inst->other != AG_PDA_FAIL && (nullable ? pda->insts[inst->other].nullable
                                                                : pda->insts[inst->other].live));
    case AG_PDA_CALL:
        return next && rule_flag(f, inst->other, nullable);
    case AG_PDA_SET:
        return next;
    case AG_PDA_END:
        break;
    }
    return true;
}

static void set_flag(finish *f, uint32_t node, bool nullable) {
    bool *flag = flag_of(f, node, nullable);
    if (*flag) return;
    *flag = true;
    f->w.queue[f->w.n_queue++] = node;
}

static ag_status find_flags(finish *f, bool nullable, ag_error *err) {
    ag_pda *pda = f->pda;
    waiters *w = &f->w;
    for (uint32_t i = 0; i < pda->n_insts; i++) {
        AG_TRY(ag_compile_steps(1, err));
        if (inst_holds(f, i, nullable)) set_flag(f, i, nullable);
    }
    for (uint32_t r = 0; r < pda->n_rules && !nullable; r++) {
        if (pda->rules[r].kind != AG_RULE_PLAIN) set_flag(f, (uint32_t)pda->n_insts + r, nullable);
    }
    while (w->n_queue) {
        const uint32_t node = w->queue[--w->n_queue];
        AG_TRY(ag_compile_steps(1, err));
        for (size_t e = node ? w->first[node - 1] : 0; e < w->first[node]; e++) {
            const uint32_t waiter = w->list[e];
            if (waiter >= pda->n_insts || inst_holds(f, waiter, nullable))
                set_flag(f, waiter, nullable);
        }
    }
    return AG_OK;
}

ag_status ag_pda_finish(ag_pda *pda, const ag_pda *shared, ag_error *err) {
    if (pda->status != AG_OK) {
        if (err) *err = pda->error;
        return pda->status;
    }
    finish f = {.pda = pda, .shared = shared};
    ag_status st = list_waiters(&f, err);
    if (st == AG_OK) st = find_flags(&f, false, err);
    if (st == AG_OK) st = find_flags(&f, true, err);
    ag_free(f.w.first);
    ag_free(f.w.list);
    ag_free(f.w.queue);
    ag_free(pda->slots);
    pda->slots = NULL;
    pda->n_slots = 0;
    pda->finished = true;
    pda->finished_insts = pda->n_insts;
    pda->finished_sets = pda->sets.n;
    return st;
}
