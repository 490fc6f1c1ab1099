/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a schema. */
#include "constrain/schema/writer.h"
#include "core/alloc.h"
#include "core/fail.h"

enum {
    MOST_OTHERS = 64, /* properties without a name, if there is a maximum */
    MOST_WITNESSES = 3,
};

/* ---- objects ---- */

/* Properties that are not declared and must be there. No two have a name in common. */
typedef struct witnesses {
    ag_some_property list[MOST_WITNESSES];
    size_t n;
} witnesses;

/* An object is written property by property, with a count of those there: 0 to n_counts - 1, the
 * last of them also for more. */
typedef struct object {
    ag_schema_writer *w;
    const ag_object_shape *x;
    const ag_property **list; /* that may be there */
    size_t n;
    size_t n_counts;
    bool counted; /* how many properties there are matters */
    size_t least; /* properties; 0 where those that are required are enough */
    uint32_t close, spaced_close;
    uint32_t names;     /* the guard of those that are taken */
    uint32_t name_rule; /* any name but those; NOWHERE: not yet */
    uint32_t *after;    /* [n_counts] behind property i */
    uint32_t loop;      /* behind another property, without a maximum; NOWHERE: not yet */
    const struct witnesses *witnesses; /* NULL: none */
    uint32_t witness_rules[MOST_WITNESSES];
    uint32_t first_witness; /* with the way from there to the end */
} object;

static bool is_enough(const object *o, size_t count) { return count >= o->least; }

static size_t count_up(const object *o, size_t count) {
    return count + 1 < o->n_counts ? count + 1 : count;
}

static bool is_full(const object *o, size_t count) { return count >= o->x->most; }

/* A name of this class, ":", a value, then next. */
static ag_status write_other(object *o, const ag_name_class *c, uint32_t next, uint32_t *out) {
    ag_schema_writer *w = o->w;
    ag_net *net = w->net;
    uint32_t value;
    AG_TRY(ag_schema_call_goal(w, c->goal, next, &value));
    *out = AG_NET_NOWHERE;
    if (value == AG_NET_NOWHERE) return AG_OK;
    const uint32_t colon = ag_net_bytes(net, ':', ':', ag_write_space(w, value));
    if (!c->names && !o->x->names) {
        if (o->name_rule == AG_NET_NOWHERE) {
            const ag_net_rule rule = {.kind = AG_RULE_NAME, .guard = o->names};
            o->name_rule = ag_net_rule_add(net, rule);
        }
        *out = ag_net_call(net, o->name_rule, colon);
        return AG_OK;
    }
    /* Names that are taken go out of the automaton. */
    ag_shaper *s = &w->s;
    ag_text_dfa taken, both = {0}, left = {0};
    const ag_text_dfa *names = c->names ? c->names : o->x->names;
    ag_status st = ag_object_names(s, o->x, &taken);
    if (st == AG_OK && c->names && o->x->names) {
        st = ag_text_dfa_combine(&both, c->names, o->x->names, AG_TEXT_AND, &s->limits, w->err);
        names = &both;
    }
    if (st == AG_OK) {
        st = ag_text_dfa_combine(&left, names, &taken, AG_TEXT_EXCEPT, &s->limits, w->err);
    }
    if (st == AG_OK) *out = ag_write_quoted(w, &left, colon);
    ag_text_dfa_free(&taken);
    ag_text_dfa_free(&both);
    ag_text_dfa_free(&left);
    return st;
}

/* Any of the other properties, then next. */
static ag_status write_others(object *o, uint32_t next, uint32_t *out) {
    *out = AG_NET_NOWHERE;
    if (next == AG_NET_NOWHERE) return AG_OK;
    for (size_t i = 0; i < o->x->n_others; i++) {
        uint32_t one;
        AG_TRY(write_other(o, &o->x->others[i], next, &one));
        *out = ag_net_either(o->w->net, *out, one);
    }
    return AG_OK;
}

/* A rule: one of the others that obeys the witness; NOWHERE: none can. */
static ag_status write_witness(object *o, const ag_some_property *witness, uint32_t *rule) {
    ag_net *net = o->w->net;
    ag_shaper *s = &o->w->s;
    const uint32_t end = ag_net_end(net);
    uint32_t start = AG_NET_NOWHERE;
    for (size_t i = 0; i < o->x->n_others; i++) {
        ag_name_class c = o->x->others[i];
        uint32_t one;
        AG_TRY(ag_goal_and(s, c.goal, witness->goal, &c.goal));
        if (c.goal == AG_GOAL_NEVER) continue;
        AG_TRY(ag_texts_and(s, c.names, witness->names, &c.names));
        if (c.names && !c.names->n_states) continue;
        AG_TRY(write_other(o, &c, end, &one));
        start = ag_net_either(net, start, one);
    }
    *rule = start;
    if (start != AG_NET_NOWHERE) {
        *rule = ag_net_rule_add(net, (ag_net_rule){.kind = AG_RULE_PLAIN, .start = start});
    }
    return AG_OK;
}

/* From any witness on until each of them was there: `behind` is for those of the set that were.
 * again: one of them may come twice, and then obeys once more. */
static uint32_t next_witness(const object *o, unsigned set, const uint32_t *behind, bool again) {
    uint32_t way = AG_NET_NOWHERE;
    for (size_t i = 0; i < o->witnesses->n; i++) {
        if (set >> i & 1 && !again) continue;
        way = ag_net_either(o->w->net, way,
                            ag_net_call(o->w->net, o->witness_rules[i], behind[set | 1u << i]));
    }
    return way;
}

/* o->first_witness, and the way from there to the end. */
static ag_status write_witnesses(object *o) {
    ag_net *net = o->w->net;
    const unsigned all = (1u << o->witnesses->n) - 1;
    const bool again = o->x->most == SIZE_MAX;
    uint32_t behind[1 << MOST_WITNESSES];
    for (size_t i = 0; i < o->witnesses->n; i++) {
        AG_TRY(write_witness(o, &o->witnesses->list[i], &o->witness_rules[i]));
        if (o->witness_rules[i] == AG_NET_NOWHERE) return AG_OK;
    }
    for (unsigned set = 1; set <= all; set++) {
        behind[set] =
            ag_net_split(net, AG_NET_NOWHERE, set == all ? o->spaced_close : AG_NET_NOWHERE);
    }
    for (unsigned set = 1; set <= all; set++) {
        const uint32_t way = next_witness(o, set, behind, again);
        ag_net_patch(net, behind[set],
                     way == AG_NET_NOWHERE ? way : ag_write_comma(o->w, false, way));
    }
    o->first_witness = next_witness(o, 0, behind, again);
    return AG_OK;
}

/* Other properties behind `count` of them, of which the witnesses come last: of two with one name,
 * the last counts. */
static ag_status write_with_witnesses(object *o, size_t count, uint32_t *out) {
    ag_net *net = o->w->net;
    uint32_t others;
    if (o->first_witness == AG_NET_NOWHERE) AG_TRY(write_witnesses(o));
    if (o->first_witness == AG_NET_NOWHERE) return AG_OK;
    if (o->x->most != SIZE_MAX) {
        if (o->x->most - count >= o->witnesses->n) *out = o->first_witness;
        return AG_OK;
    }
    if (o->loop == AG_NET_NOWHERE) {
        o->loop = ag_net_split(net, AG_NET_NOWHERE, AG_NET_NOWHERE);
        AG_TRY(write_others(o, o->loop, &others));
        ag_net_patch(net, o->loop,
                     ag_write_comma(o->w, false, ag_net_either(net, others, o->first_witness)));
    }
    AG_TRY(write_others(o, o->loop, &others));
    *out = ag_net_either(net, others, o->first_witness);
    return AG_OK;
}

/* Other properties behind `count` of them, the first of which makes one more: two of them may have
 * one name, so no more than one is sure to count. */
static ag_status write_first_other(object *o, size_t count, uint32_t *out) {
    ag_net *net = o->w->net;
    *out = AG_NET_NOWHERE;
    if (is_full(o, count) || !o->x->n_others || !is_enough(o, count + 1)) return AG_OK;
    if (o->witnesses) return write_with_witnesses(o, count, out);
    uint32_t after = o->spaced_close;
    if (o->x->most == SIZE_MAX) {
        if (o->loop == AG_NET_NOWHERE) {
            const uint32_t loop = ag_net_split(net, AG_NET_NOWHERE, o->spaced_close);
            uint32_t more;
            AG_TRY(write_others(o, loop, &more));
            if (more != AG_NET_NOWHERE) more = ag_write_comma(o->w, false, more);
            ag_net_patch(net, loop, more);
            o->loop = loop;
        }
        return write_others(o, o->loop, out);
    }
    const size_t most = o->x->most - count;
    for (size_t left = most < MOST_OTHERS ? most : MOST_OTHERS; left-- > 0;) {
        /* Behind so many others that `left` may still come. */
        AG_TRY(write_others(o, after, out));
        if (left) {
            after =
                ag_net_either(net, *out == AG_NET_NOWHERE ? *out : ag_write_comma(o->w, true, *out),
                              o->spaced_close);
        }
        if (net->status != AG_OK) break;
    }
    return AG_OK;
}

/* The name, ":", the value, then next. */
static ag_status write_property(object *o, const ag_property *p, uint32_t next, uint32_t *out) {
    ag_net *net = o->w->net;
    *out = AG_NET_NOWHERE;
    if (next == AG_NET_NOWHERE) return AG_OK;
    uint32_t at;
    AG_TRY(ag_schema_call_goal(o->w, p->goal, next, &at));
    at = ag_net_bytes(net, ':', ':', ag_write_space(o->w, at));
    at = ag_net_bytes(net, '"', '"', at);
    at = ag_net_json_text(net, p->name, p->len, at);
    *out = ag_net_bytes(net, '"', '"', at);
    return AG_OK;
}

/* o->after[count] for what follows property i becomes that for what follows i - 1; names[count]:
 * property i or a later one, without a comma. */
static ag_status write_properties(object *o, uint32_t *names) {
    ag_net *net = o->w->net;
    for (size_t c = 0; c < o->n_counts; c++) { AG_TRY(write_first_other(o, c, &names[c])); }
    bool may_close = !o->witnesses; /* no property from i on is required */
    for (size_t i = o->n + 1; i-- > 0 && net->status == AG_OK;) {
        /* o->after[c]: c properties are there, i is the next that may come. */
        for (size_t c = 0; c < o->n_counts; c++) {
            const uint32_t more =
                names[c] == AG_NET_NOWHERE ? names[c] : ag_write_comma(o->w, false, names[c]);
            const bool closes = may_close && is_enough(o, c);
            o->after[c] = ag_net_either(net, more, closes ? o->spaced_close : AG_NET_NOWHERE);
        }
        if (i == 0) break;
        const ag_property *p = o->list[i - 1];
        for (size_t c = 0; c < o->n_counts; c++) {
            uint32_t one = AG_NET_NOWHERE;
            if (!is_full(o, c)) AG_TRY(write_property(o, p, o->after[count_up(o, c)], &one));
            names[c] = ag_net_either(net, one, p->required ? AG_NET_NOWHERE : names[c]);
        }
        may_close &= !p->required;
    }
    return AG_OK;
}

static ag_status prepare_object(object *o) {
    ag_schema_writer *w = o->w;
    const ag_object_shape *x = o->x;
    size_t required = 0;
    o->list = ag_shaper_get(&w->s, x->n_properties, sizeof *o->list);
    if (!o->list) return ag_shaper_no_memory(&w->s);
    o->names = ag_net_names(w->net);
    for (size_t i = 0; i < x->n_properties; i++) {
        const ag_property *p = &x->properties[i];
        ag_net_names_add(w->net, o->names, p->name, p->len);
        if (p->goal != AG_GOAL_NEVER) o->list[o->n++] = p;
        required += p->required;
    }
    if (x->least > o->n + (x->n_others > 0)) {
        return ag_schema_unsupported(&w->s, w->schema, "minProperties",
                                     "two properties without names cannot be told apart");
    }
    const bool counts =
        x->least > required || (x->most != SIZE_MAX && (x->most < o->n || x->n_others));
    o->counted = counts;
    o->least = counts ? x->least : 0;
    o->n_counts = 2;
    if (counts) o->n_counts = (x->most != SIZE_MAX ? x->most : x->least) + 1;
    if (o->n_counts > o->n + 1) o->n_counts = o->n + 1;
    if (o->n_counts < 2) o->n_counts = 2;
    if (o->n_counts * (o->n + 1) > w->net->limits.ops) {
        return AG_FAIL(w->err, LIMIT, "schema: an object with counts up to %zu", o->n_counts - 1);
    }
    o->after = ag_shaper_get(&w->s, o->n_counts, sizeof *o->after);
    return o->after ? AG_OK : ag_shaper_no_memory(&w->s);
}

/* In any order: each property is a rule. */
static ag_status write_in_any_order(object *o, uint32_t *out) {
    ag_net *net = o->w->net;
    ag_net_object any = {.other = AG_NET_NOWHERE, .close = o->spaced_close};
    any.members = ag_calloc(o->n, sizeof *any.members);
    if (!any.members) return AG_FAIL(o->w->err, NOMEM, "schema of an object");
    const uint32_t end = ag_net_end(net);
    ag_status st = AG_OK;
    uint32_t start;
    for (size_t i = 0; i < o->n && st == AG_OK; i++) {
        st = write_property(o, o->list[i], end, &start);
        const ag_net_rule rule = {.kind = AG_RULE_PLAIN, .start = start};
        any.members[any.n++] = (ag_net_member){ag_net_rule_add(net, rule), o->list[i]->required};
    }
    if (st == AG_OK && o->x->n_others) {
        st = write_others(o, end, &start);
        any.other = ag_net_rule_add(net, (ag_net_rule){.kind = AG_RULE_PLAIN, .start = start});
    }
    any.comma = ag_write_comma_rule(o->w);
    if (st != AG_OK) {
        ag_free(any.members);
        return st;
    }
    *out = ag_net_object_start(net, ag_net_object_add(net, &any));
    return AG_OK;
}

static ag_status write_plain(ag_schema_writer *w, const ag_object_shape *x, const witnesses *must,
                             uint32_t next, uint32_t *out) {
    ag_net *net = w->net;
    object o = {.w = w,
                .x = x,
                .name_rule = AG_NET_NOWHERE,
                .loop = AG_NET_NOWHERE,
                .witnesses = must,
                .first_witness = AG_NET_NOWHERE};
    o.close = ag_net_bytes(net, '}', '}', next);
    o.spaced_close = ag_write_space(w, o.close);
    AG_TRY(prepare_object(&o));
    uint32_t *names = ag_shaper_get(&w->s, o.n_counts, sizeof *names);
    if (!names) return ag_shaper_no_memory(&w->s);
    if (w->any_order && !o.counted && !must && o.n <= AG_OBJECT_MEMBERS) {
        AG_TRY(write_in_any_order(&o, &names[0]));
    } else {
        AG_TRY(write_properties(&o, names));
    }
    bool may_be_empty = x->least == 0 && !must;
    for (size_t i = 0; i < o.n; i++) may_be_empty &= !o.list[i]->required;
    const uint32_t inside = ag_net_either(net, names[0], may_be_empty ? o.close : AG_NET_NOWHERE);
    *out =
        inside == AG_NET_NOWHERE ? inside : ag_net_bytes(net, '{', '{', ag_write_space(w, inside));
    return AG_OK;
}

/* ---- properties of which one must be there ---- */

typedef struct choice {
    ag_schema_writer *w;
    const ag_object_shape *x;
    ag_property *properties; /* [x->n_properties] with what was chosen */
    uint32_t next;
    size_t n, n_tried; /* alternatives so far, and with parts of them */
    uint32_t out;
} choice;

static ag_status check_choices(choice *c) {
    if (c->n <= AG_MOST_ALTERNATIVES && ++c->n_tried <= 16 * AG_MOST_ALTERNATIVES) return AG_OK;
    return AG_FAIL(c->w->err, LIMIT,
                   "schema: more than %d ways to have the properties of an object",
                   AG_MOST_ALTERNATIVES);
}

static ag_status write_chosen(choice *c, const witnesses *must) {
    c->n++;
    ag_object_shape x = *c->x;
    ag_property *kept = ag_shaper_get(&c->w->s, x.n_properties, sizeof *kept);
    if (!kept) return ag_shaper_no_memory(&c->w->s);
    for (size_t i = 0; i < x.n_properties; i++) kept[i] = c->properties[i];
    x.properties = kept;
    uint32_t one;
    AG_TRY(write_plain(c->w, &x, must->n ? must : NULL, c->next, &one));
    c->out = ag_net_either(c->w->net, c->out, one);
    return AG_OK;
}

static ag_status choose_some(choice *c, size_t i, const witnesses *must);

static bool can_be(const ag_some_property *p) {
    return p->goal != AG_GOAL_NEVER && (!p->names || p->names->n_states);
}

/* *must with another: one that is there stands for it, too, or they have different names. */
static ag_status choose_witness(choice *c, size_t i, const witnesses *must) {
    ag_shaper *s = &c->w->s;
    const ag_some_property *some = &c->x->some[i];
    witnesses fewer = *must, more = *must;
    ag_some_property apart = *some;
    bool fewer_can = must->n > 0, overlap = false;
    for (size_t k = 0; k < must->n; k++) {
        witnesses one = *must;
        AG_TRY(ag_goal_and(s, one.list[k].goal, some->goal, &one.list[k].goal));
        AG_TRY(ag_texts_and(s, one.list[k].names, some->names, &one.list[k].names));
        overlap |= !one.list[k].names || one.list[k].names->n_states;
        if (can_be(&one.list[k])) AG_TRY(choose_some(c, i + 1, &one));
        AG_TRY(ag_texts_except(s, apart.names, must->list[k].names, &apart.names));
        AG_TRY(ag_texts_except(s, fewer.list[k].names, some->names, &fewer.list[k].names));
        fewer_can &= can_be(&fewer.list[k]);
    }
    if (must->n == MOST_WITNESSES) {
        return ag_schema_unsupported(s, c->w->schema, NULL,
                                     "too many properties without a name must be there");
    }
    more.list[more.n++] = apart;
    if (can_be(&apart)) AG_TRY(choose_some(c, i + 1, &more));
    fewer.list[fewer.n++] = *some;
    return overlap && fewer_can && can_be(some) ? choose_some(c, i + 1, &fewer) : AG_OK;
}

/* Which property is the one of x->some[i] and of those behind it: a declared one, or another. */
static ag_status choose_some(choice *c, size_t i, const witnesses *must) {
    if (c->w->net->status != AG_OK) return AG_OK;
    AG_TRY(check_choices(c));
    if (i == c->x->n_some) return write_chosen(c, must);
    const ag_some_property *some = &c->x->some[i];
    for (size_t k = 0; k < c->x->n_properties; k++) {
        const ag_property before = c->properties[k];
        ag_property *p = &c->properties[k];
        if (some->names && !ag_text_dfa_accepts(some->names, p->name, p->len)) continue;
        AG_TRY(ag_goal_and(&c->w->s, p->goal, some->goal, &p->goal));
        p->required = true;
        if (p->goal != AG_GOAL_NEVER) AG_TRY(choose_some(c, i + 1, must));
        *p = before;
    }
    return c->x->n_others ? choose_witness(c, i, must) : AG_OK;
}

ag_status ag_write_object(ag_schema_writer *w, const ag_object_shape *x, uint32_t next,
                          uint32_t *out) {
    if (ag_schema_is_marked(w)) return ag_schema_marked_object(w, x, next, out);
    if (x == &ag_any_object) {
        *out = ag_net_call(w->net, w->json->object, next);
        return AG_OK;
    }
    if (!x->n_some) return write_plain(w, x, NULL, next, out);
    choice c = {.w = w, .x = x, .next = next, .out = AG_NET_NOWHERE};
    const witnesses none = {.n = 0};
    c.properties = ag_shaper_get(&w->s, x->n_properties, sizeof *c.properties);
    if (!c.properties) return ag_shaper_no_memory(&w->s);
    for (size_t i = 0; i < x->n_properties; i++) c.properties[i] = x->properties[i];
    AG_TRY(choose_some(&c, 0, &none));
    *out = c.out;
    return AG_OK;
}
