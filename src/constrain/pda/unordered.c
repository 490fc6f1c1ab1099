/* SPDX-License-Identifier: Apache-2.0 */
/* Members in any order: objects, and arrays with unique items. The possible continuations depend
 * on the set of members so far. Only sets that a text reaches are written. */
#include "constrain/pda/pda.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum { WORDS = (AG_OBJECT_MEMBERS + 31) / 32 };

static bool has_member(const uint32_t *set, uint32_t i) { return set[i / 32] >> (i % 32) & 1; }

uint32_t ag_pda_object_add(ag_pda *pda, const ag_pda_object *object) {
    ag_error err;
    ag_pda_fail(pda, AG_GROW(pda->objects, &pda->objects_cap, pda->n_objects + 1, &err), &err);
    if (pda->status != AG_OK) {
        ag_free(object->members);
        return 0;
    }
    pda->objects[pda->n_objects] = *object;
    return (uint32_t)pda->n_objects++;
}

/* Returns the SET instruction of a set of members. It is opened when a text reaches it. next: tells
 * whether the end can be reached. */
static uint32_t set_inst(ag_pda *pda, uint32_t object, const uint32_t *set, uint32_t next) {
    uint32_t list[WORDS + 1] = {object}, id;
    ag_error err;
    memcpy(list + 1, set, WORDS * sizeof *set);
    if (pda->status != AG_OK) return 0;
    const size_t before = pda->sets.n;
    ag_pda_fail(
        pda, ag_interner_add(&pda->sets, list, WORDS + 1, pda->limits.insts, "objects", &id, &err),
        &err);
    if (pda->status != AG_OK) return 0;
    if (pda->sets.n > before) {
        ag_pda_fail(pda, AG_GROW(pda->set_insts, &pda->set_insts_cap, pda->sets.n, &err), &err);
        if (pda->status != AG_OK) return 0;
        pda->set_insts[id] = ag_pda_set(pda, id, next);
    }
    return pda->set_insts[id];
}

/* `live` is computed before any set is opened. So the first set's next is a path through all
 * required members: the object can be written if they can. */
uint32_t ag_pda_object_start(ag_pda *pda, uint32_t object) {
    if (pda->status != AG_OK) return 0;
    const uint32_t none[WORDS] = {0};
    uint32_t at = pda->objects[object].close;
    for (uint32_t i = 0; i < pda->objects[object].n; i++) {
        const ag_pda_member *m = &pda->objects[object].members[i];
        if (m->required) at = ag_pda_call(pda, m->rule, at);
    }
    return set_inst(pda, object, none, at);
}

/* Writes any member that is not in the set, then the set with it. */
static uint32_t next_member(ag_pda *pda, uint32_t object, const uint32_t *set) {
    uint32_t at = AG_PDA_FAIL;
    for (uint32_t i = 0; i < pda->objects[object].n && pda->status == AG_OK; i++) {
        const uint32_t rule = pda->objects[object].members[i].rule;
        if (has_member(set, i) || !pda->rules[rule].live) continue;
        uint32_t with[WORDS];
        memcpy(with, set, sizeof with);
        with[i / 32] |= 1u << (i % 32);
        const uint32_t after = set_inst(pda, object, with, AG_PDA_FAIL);
        at = ag_pda_either(pda, at, ag_pda_call(pda, rule, after));
    }
    const uint32_t other = pda->objects[object].other;
    if (other == AG_PDA_FAIL || !pda->rules[other].live) return at;
    uint32_t with_other[WORDS];
    memcpy(with_other, set, sizeof with_other);
    with_other[WORDS - 1] |=
        1u << 31; /* a member was written: no declared member uses the last bit */
    return ag_pda_either(pda, at,
                         ag_pda_call(pda, other, set_inst(pda, object, with_other, AG_PDA_FAIL)));
}

void ag_pda_open_set(ag_pda *pda, uint32_t inst) {
    if (pda->insts[inst].hi) return;
    const uint32_t id = pda->insts[inst].other;
    size_t n;
    uint32_t list[WORDS + 1];
    memcpy(list, ag_interner_list(&pda->sets, id, &n), sizeof list);
    const uint32_t object = list[0], *set = list + 1;
    bool empty = true, complete = true;
    uint32_t count = 0;
    for (size_t i = 0; i < WORDS; i++) empty &= !set[i];
    for (uint32_t i = 0; i < pda->objects[object].n; i++) {
        complete &= has_member(set, i) || !pda->objects[object].members[i].required;
        count += has_member(set, i);
    }
    const uint32_t max = pda->objects[object].max;
    complete &= count >= pda->objects[object].min;
    uint32_t at = max && count >= max ? AG_PDA_FAIL : next_member(pda, object, set);
    if (!empty) {
        if (at != AG_PDA_FAIL) at = ag_pda_call(pda, pda->objects[object].comma, at);
        const uint32_t close = complete ? pda->objects[object].close : AG_PDA_FAIL;
        at = ag_pda_either(pda, at, close);
    }
    if (pda->status != AG_OK) return;
    pda->insts[inst].next = at;
    pda->insts[inst].hi = 1; /* it is open */
}

/* ---- copying ---- */

static ag_status copy_objects(ag_pda *to, const ag_pda *from, ag_error *err) {
    to->objects = ag_calloc(from->n_objects + 1, sizeof *to->objects);
    if (!to->objects) return AG_FAIL(err, NOMEM, "list of %zu objects", from->n_objects);
    to->objects_cap = from->n_objects + 1;
    for (; to->n_objects < from->n_objects; to->n_objects++) {
        ag_pda_object *o = &to->objects[to->n_objects];
        *o = from->objects[to->n_objects];
        size_t cap = 0;
        const ag_pda_member *members = o->members;
        o->members = NULL;
        AG_TRY(AG_ASSIGN(o->members, &cap, members, o->n, err));
    }
    return AG_OK;
}

static ag_status copy_sets(ag_pda *to, const ag_pda *from, ag_error *err) {
    for (uint32_t i = 0; i < from->finished_sets; i++) {
        size_t n;
        uint32_t id;
        const uint32_t *list = ag_interner_list(&from->sets, i, &n);
        AG_TRY(ag_interner_add(&to->sets, list, n, from->finished_sets, "objects", &id, err));
    }
    return AG_OK;
}

ag_status ag_pda_copy_closed(ag_pda *to, const ag_pda *from, ag_error *err) {
    ag_pda_init(to, &from->limits, from->id_bit);
    to->finished = from->finished;
    AG_TRY(AG_ASSIGN(to->insts, &to->insts_cap, from->insts, from->finished_insts, err));
    AG_TRY(AG_ASSIGN(to->rules, &to->rules_cap, from->rules, from->n_rules, err));
    AG_TRY(AG_ASSIGN(to->names, &to->names_cap, from->names, from->n_names, err));
    AG_TRY(AG_ASSIGN(to->set_insts, &to->set_insts_cap, from->set_insts, from->finished_sets, err));
    AG_TRY(copy_objects(to, from, err));
    AG_TRY(copy_sets(to, from, err));
    to->n_insts = to->finished_insts = from->finished_insts;
    to->finished_sets = from->finished_sets;
    to->n_rules = from->n_rules;
    to->n_names = from->n_names;
    for (size_t i = 0; i < to->finished_sets; i++) to->insts[to->set_insts[i]].hi = 0;
    return AG_OK;
}
