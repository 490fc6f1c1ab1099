/* SPDX-License-Identifier: Apache-2.0 */
/* Objects whose properties come in any order. What may follow depends on which are there: of the
 * many sets only those that a text reaches are ever written. */
#include "constrain/pda/pda.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum { WORDS = (AG_OBJECT_MEMBERS + 31) / 32 };

static bool has_member(const uint32_t *set, uint32_t i) { return set[i / 32] >> (i % 32) & 1; }

uint32_t ag_net_object_add(ag_net *net, const ag_net_object *object) {
    ag_error err;
    void *p = net->objects;
    ag_net_fail(net, ag_array_grow(&p, &net->objects_cap, net->n_objects + 1, sizeof *object, &err),
                &err);
    net->objects = p;
    if (net->status != AG_OK) {
        ag_free(object->members);
        return 0;
    }
    net->objects[net->n_objects] = *object;
    return (uint32_t)net->n_objects++;
}

/* The instruction for a set of members that are there: it is opened when it is reached. next: tells
 * whether it can be. */
static uint32_t set_op(ag_net *net, uint32_t object, const uint32_t *set, uint32_t next) {
    uint32_t list[WORDS + 1] = {object}, id;
    ag_error err;
    memcpy(list + 1, set, WORDS * sizeof *set);
    if (net->status != AG_OK) return 0;
    const size_t before = net->sets.n;
    ag_net_fail(net,
                ag_interner_add(&net->sets, list, WORDS + 1, net->limits.ops, "objects", &id, &err),
                &err);
    if (net->status != AG_OK) return 0;
    if (net->sets.n > before) {
        void *p = net->set_ops;
        ag_net_fail(net,
                    ag_array_grow(&p, &net->set_ops_cap, net->sets.n, sizeof *net->set_ops, &err),
                    &err);
        net->set_ops = p;
        if (net->status != AG_OK) return 0;
        net->set_ops[id] = ag_net_set_op(net, id, next);
    }
    return net->set_ops[id];
}

/* What is live is found out before any set is opened: an object can be written if all that it needs
 * can be. */
uint32_t ag_net_object_start(ag_net *net, uint32_t object) {
    if (net->status != AG_OK) return 0;
    const uint32_t none[WORDS] = {0};
    uint32_t way = net->objects[object].close;
    for (uint32_t i = 0; i < net->objects[object].n; i++) {
        const ag_net_member *m = &net->objects[object].members[i];
        if (m->required) way = ag_net_call(net, m->rule, way);
    }
    return set_op(net, object, none, way);
}

/* Any member that is not there yet, then the set with it. */
static uint32_t next_member(ag_net *net, uint32_t object, const uint32_t *set) {
    uint32_t way = AG_NET_NOWHERE;
    for (uint32_t i = 0; i < net->objects[object].n && net->status == AG_OK; i++) {
        const uint32_t rule = net->objects[object].members[i].rule;
        if (has_member(set, i) || !net->rules[rule].live) continue;
        uint32_t with[WORDS];
        memcpy(with, set, sizeof with);
        with[i / 32] |= 1u << (i % 32);
        const uint32_t after = set_op(net, object, with, AG_NET_NOWHERE);
        way = ag_net_either(net, way, ag_net_call(net, rule, after));
    }
    const uint32_t other = net->objects[object].other;
    if (other == AG_NET_NOWHERE || !net->rules[other].live) return way;
    uint32_t filled[WORDS];
    memcpy(filled, set, sizeof filled);
    filled[WORDS - 1] |= 1u << 31; /* there is a member: the last bit is nobody's */
    return ag_net_either(net, way,
                         ag_net_call(net, other, set_op(net, object, filled, AG_NET_NOWHERE)));
}

void ag_net_open(ag_net *net, uint32_t op) {
    if (net->ops[op].hi) return;
    const uint32_t id = net->ops[op].other;
    size_t n;
    uint32_t list[WORDS + 1];
    memcpy(list, ag_interner_list(&net->sets, id, &n), sizeof list);
    const uint32_t object = list[0], *set = list + 1;
    bool empty = true, whole = true;
    uint32_t count = 0;
    for (size_t i = 0; i < WORDS; i++) empty &= !set[i];
    for (uint32_t i = 0; i < net->objects[object].n; i++) {
        whole &= has_member(set, i) || !net->objects[object].members[i].required;
        count += has_member(set, i);
    }
    const uint32_t most = net->objects[object].most;
    whole &= count >= net->objects[object].least;
    uint32_t way = most && count >= most ? AG_NET_NOWHERE : next_member(net, object, set);
    if (!empty) {
        if (way != AG_NET_NOWHERE) way = ag_net_call(net, net->objects[object].comma, way);
        const uint32_t close = whole ? net->objects[object].close : AG_NET_NOWHERE;
        way = ag_net_either(net, way, close);
    }
    if (net->status != AG_OK) return;
    net->ops[op].next = way;
    net->ops[op].hi = 1; /* it is open */
}

/* ---- without what was opened ---- */

static ag_status copy_list(void **to, size_t *cap, const void *from, size_t n, size_t size,
                           ag_error *err) {
    if (!n) return AG_OK;
    AG_TRY(ag_array_grow(to, cap, n, size, err));
    memcpy(*to, from, n * size);
    return AG_OK;
}

static ag_status copy_objects(ag_net *to, const ag_net *from, ag_error *err) {
    to->objects = ag_calloc(from->n_objects + 1, sizeof *to->objects);
    if (!to->objects) return AG_FAIL(err, NOMEM, "list of %zu objects", from->n_objects);
    to->objects_cap = from->n_objects + 1;
    for (; to->n_objects < from->n_objects; to->n_objects++) {
        ag_net_object *o = &to->objects[to->n_objects];
        *o = from->objects[to->n_objects];
        size_t cap = 0;
        void *members = NULL;
        ag_status st = copy_list(&members, &cap, o->members, o->n, sizeof *o->members, err);
        o->members = members;
        if (st != AG_OK) return st;
    }
    return AG_OK;
}

static ag_status copy_sets(ag_net *to, const ag_net *from, ag_error *err) {
    for (uint32_t i = 0; i < from->finished_sets; i++) {
        size_t n;
        uint32_t id;
        const uint32_t *list = ag_interner_list(&from->sets, i, &n);
        AG_TRY(ag_interner_add(&to->sets, list, n, from->finished_sets, "objects", &id, err));
    }
    return AG_OK;
}

ag_status ag_net_copy_closed(ag_net *to, const ag_net *from, ag_error *err) {
    ag_net_init(to, &from->limits, from->id_bit);
    to->finished = from->finished;
    void *ops = NULL, *rules = NULL, *names = NULL, *set_ops = NULL;
    ag_status st =
        copy_list(&ops, &to->ops_cap, from->ops, from->finished_ops, sizeof *to->ops, err);
    if (st == AG_OK) {
        st = copy_list(&rules, &to->rules_cap, from->rules, from->n_rules, sizeof *to->rules, err);
    }
    if (st == AG_OK) {
        st = copy_list(&names, &to->names_cap, from->names, from->n_names, sizeof *to->names, err);
    }
    if (st == AG_OK) {
        st = copy_list(&set_ops, &to->set_ops_cap, from->set_ops, from->finished_sets,
                       sizeof *to->set_ops, err);
    }
    to->ops = ops;
    to->rules = rules;
    to->names = names;
    to->set_ops = set_ops;
    if (st == AG_OK) st = copy_objects(to, from, err);
    if (st == AG_OK) st = copy_sets(to, from, err);
    if (st != AG_OK) return st;
    to->n_ops = to->finished_ops = from->finished_ops;
    to->finished_sets = from->finished_sets;
    to->n_rules = from->n_rules;
    to->n_names = from->n_names;
    for (size_t i = 0; i < to->finished_sets; i++) to->ops[to->set_ops[i]].hi = 0;
    return AG_OK;
}
