/* SPDX-License-Identifier: Apache-2.0 */
/* Writes objects. */
#include "constrain/schema/writer.h"
#include "core/alloc.h"
#include "core/fail.h"

enum {
    OTHERS_MAX = 64, /* undeclared properties, if there is a maximum */
    MATCHES_MAX = 3,
};

/* ---- one object ---- */

/* Undeclared properties that must exist. Their names are disjoint. */
typedef struct match_list {
    ag_required_match list[MATCHES_MAX];
    size_t n;
} match_list;

/* An object in declared order. It is written for each number of properties so far, 0 to n_counts -
 * 1; the last one also stands for more. */
typedef struct object {
    ag_schema_writer *w;
    const ag_object_set *x;
    const ag_property **list; /* properties that may exist */
    size_t n;
    size_t n_counts;
    bool counted; /* the number of properties matters */
    size_t min;   /* properties; 0 if the required ones are enough */
    uint32_t close, spaced_close;
    uint32_t names;     /* root of the tree of declared names */
    uint32_t name_rule; /* rule of any other name; AG_PDA_UNSET: not written yet */
    uint32_t *after;    /* [n_counts] what follows property i */
    /* After an undeclared property, without a maximum; AG_PDA_UNSET: not written yet. */
    uint32_t loop;
    const match_list *matches; /* NULL: none */
    uint32_t match_rules[MATCHES_MAX];
    uint32_t first_match; /* leads to the end of the object */
} object;

static bool is_enough(const object *o, size_t count) { return count >= o->min; }

static size_t next_count(const object *o, size_t count) {
    return count + 1 < o->n_counts ? count + 1 : count;
}

static bool is_full(const object *o, size_t count) { return count >= o->x->max; }

/* Writes a name of this class, ":", a value, then next. */
static ag_status write_other(object *o, const ag_name_class *c, uint32_t next, uint32_t *out) {
    ag_schema_writer *w = o->w;
    ag_pda *pda = w->pda;
    uint32_t value;
    AG_TRY(ag_write_call(w, c->schemas, next, &value));
    *out = AG_PDA_FAIL;
    if (value == AG_PDA_FAIL) return AG_OK;
    const uint32_t colon = ag_pda_byte(pda, ':', ag_write_space(w, value));
    if (!c->names && !o->x->names) {
        if (o->name_rule == AG_PDA_UNSET) {
            const ag_pda_rule rule = {.kind = AG_RULE_NAME, .guard = o->names};
            o->name_rule = ag_pda_rule_add(pda, rule);
        }
        *out = ag_pda_call(pda, o->name_rule, colon);
        return AG_OK;
    }
    /* Removes declared names from the automaton. */
    ag_schema_compiler *s = &w->s;
    ag_text_dfa declared, both = {0}, remaining = {0};
    const ag_text_dfa *names = c->names ? c->names : o->x->names;
    ag_status st = ag_object_names(s, o->x, &declared);
    if (st == AG_OK && c->names && o->x->names) {
        st = ag_text_dfa_combine(&both, c->names, o->x->names, AG_TEXT_AND, &s->limits, w->err);
        names = &both;
    }
    if (st == AG_OK) {
        st = ag_text_dfa_combine(&remaining, names, &declared, AG_TEXT_EXCEPT, &s->limits, w->err);
    }
    if (st == AG_OK) *out = ag_write_quoted(w, &remaining, colon);
    ag_text_dfa_free(&declared);
    ag_text_dfa_free(&both);
    ag_text_dfa_free(&remaining);
    return st;
}

/* Writes any undeclared property, then next. */
static ag_status write_others(object *o, uint32_t next, uint32_t *out) {
    *out = AG_PDA_FAIL;
    if (next == AG_PDA_FAIL) return AG_OK;
    for (size_t i = 0; i < o->x->n_others; i++) {
        uint32_t one;
        AG_TRY(write_other(o, &o->x->others[i], next, &one));
        *out = ag_pda_either(o->w->pda, *out, one);
    }
    return AG_OK;
}

/* Writes the rule of an undeclared property that satisfies the match. AG_PDA_FAIL: there is
 * none. */
static ag_status write_match(object *o, const ag_required_match *match, uint32_t *rule) {
    ag_pda *pda = o->w->pda;
    ag_schema_compiler *s = &o->w->s;
    const uint32_t end = ag_pda_end(pda);
    uint32_t start = AG_PDA_FAIL;
    for (size_t i = 0; i < o->x->n_others; i++) {
        ag_name_class c = o->x->others[i];
        uint32_t one;
        AG_TRY(ag_schema_set_and(s, c.schemas, match->schemas, &c.schemas));
        if (c.schemas == AG_SCHEMA_NONE) continue;
        AG_TRY(ag_texts_intersect(s, c.names, match->names, &c.names));
        if (c.names && !c.names->n_states) continue;
        AG_TRY(write_other(o, &c, end, &one));
        start = ag_pda_either(pda, start, one);
    }
    *rule = start;
    if (start != AG_PDA_FAIL) *rule = ag_pda_rule_plain(pda, start);
    return AG_OK;
}

/* Writes the next match: one that is not in `set`, or any if may_repeat. after[] continues with the
 * set that includes it. A repeated property must match again. */
static uint32_t next_match(const object *o, unsigned set, const uint32_t *after, bool may_repeat) {
    uint32_t start = AG_PDA_FAIL;
    for (size_t i = 0; i < o->matches->n; i++) {
        if (set >> i & 1 && !may_repeat) continue;
        start = ag_pda_either(o->w->pda, start,
                              ag_pda_call(o->w->pda, o->match_rules[i], after[set | 1u << i]));
    }
    return start;
}

/* Writes o->first_match and all that follows it. */
static ag_status write_matches(object *o) {
    ag_pda *pda = o->w->pda;
    const unsigned all = (1u << o->matches->n) - 1;
    const bool may_repeat = o->x->max == SIZE_MAX;
    uint32_t after[1 << MATCHES_MAX];
    for (size_t i = 0; i < o->matches->n; i++) {
        AG_TRY(write_match(o, &o->matches->list[i], &o->match_rules[i]));
        if (o->match_rules[i] == AG_PDA_FAIL) return AG_OK;
    }
    for (unsigned set = 1; set <= all; set++) {
        after[set] = ag_pda_split(pda, AG_PDA_UNSET, set == all ? o->spaced_close : AG_PDA_FAIL);
    }
    for (unsigned set = 1; set <= all; set++) {
        const uint32_t start = next_match(o, set, after, may_repeat);
        ag_pda_patch(pda, after[set], ag_write_comma(o->w, false, start));
    }
    o->first_match = next_match(o, 0, after, may_repeat);
    return AG_OK;
}

/* Writes undeclared properties after `count` properties. Required matches come last, because
 * readers keep the last of two properties with one name. */
static ag_status write_with_matches(object *o, size_t count, uint32_t *out) {
    ag_pda *pda = o->w->pda;
    uint32_t others;
    if (o->first_match == AG_PDA_UNSET) AG_TRY(write_matches(o));
    if (o->first_match == AG_PDA_UNSET) return AG_OK;
    if (o->x->max != SIZE_MAX) {
        if (o->x->max - count >= o->matches->n) *out = o->first_match;
        return AG_OK;
    }
    if (o->loop == AG_PDA_UNSET) {
        o->loop = ag_pda_split(pda, AG_PDA_UNSET, AG_PDA_FAIL);
        AG_TRY(write_others(o, o->loop, &others));
        ag_pda_patch(pda, o->loop,
                     ag_write_comma(o->w, false, ag_pda_either(pda, others, o->first_match)));
    }
    AG_TRY(write_others(o, o->loop, &others));
    *out = ag_pda_either(pda, others, o->first_match);
    return AG_OK;
}

/* Writes undeclared properties after `count` properties. Only the first one counts: the others may
 * repeat its name. */
static ag_status write_first_other(object *o, size_t count, uint32_t *out) {
    ag_pda *pda = o->w->pda;
    *out = AG_PDA_FAIL;
    if (is_full(o, count) || !o->x->n_others || !is_enough(o, count + 1)) return AG_OK;
    if (o->matches) return write_with_matches(o, count, out);
    uint32_t after = o->spaced_close;
    if (o->x->max == SIZE_MAX) {
        if (o->loop == AG_PDA_UNSET) {
            const uint32_t loop = ag_pda_split(pda, AG_PDA_UNSET, o->spaced_close);
            uint32_t more;
            AG_TRY(write_others(o, loop, &more));
            ag_pda_patch(pda, loop, ag_write_comma(o->w, false, more));
            o->loop = loop;
        }
        return write_others(o, o->loop, out);
    }
    const size_t max = o->x->max - count;
    for (size_t remaining = max < OTHERS_MAX ? max : OTHERS_MAX; remaining-- > 0;) {
        /* `remaining` more may follow. */
        AG_TRY(write_others(o, after, out));
        if (remaining) {
            after = ag_pda_either(pda, ag_write_comma(o->w, true, *out), o->spaced_close);
        }
        if (pda->status != AG_OK) break;
    }
    return AG_OK;
}

/* Writes the name, ":", the value, then next. */
static ag_status write_property(object *o, const ag_property *p, uint32_t next, uint32_t *out) {
    ag_pda *pda = o->w->pda;
    *out = AG_PDA_FAIL;
    if (next == AG_PDA_FAIL) return AG_OK;
    uint32_t at;
    AG_TRY(ag_write_call(o->w, p->schemas, next, &at));
    at = ag_pda_byte(pda, ':', ag_write_space(o->w, at));
    at = ag_pda_byte(pda, '"', at);
    at = ag_pda_json_text(pda, p->name, p->len, at);
    *out = ag_pda_byte(pda, '"', at);
    return AG_OK;
}

/* Turns o->after[], which follows property i, into what follows property i - 1. names[count]:
 * property i or a later one, without a comma. */
static ag_status write_properties(object *o, uint32_t *names) {
    ag_pda *pda = o->w->pda;
    for (size_t c = 0; c < o->n_counts; c++) AG_TRY(write_first_other(o, c, &names[c]));
    bool may_close = !o->matches; /* no property from i on is required */
    for (size_t i = o->n + 1; i-- > 0 && pda->status == AG_OK;) {
        /* o->after[c]: c properties precede, i is the next that may come. */
        for (size_t c = 0; c < o->n_counts; c++) {
            const uint32_t more = ag_write_comma(o->w, false, names[c]);
            const bool closes = may_close && is_enough(o, c);
            o->after[c] = ag_pda_either(pda, more, closes ? o->spaced_close : AG_PDA_FAIL);
        }
        if (i == 0) break;
        const ag_property *p = o->list[i - 1];
        for (size_t c = 0; c < o->n_counts; c++) {
            uint32_t one = AG_PDA_FAIL;
            if (!is_full(o, c)) AG_TRY(write_property(o, p, o->after[next_count(o, c)], &one));
            names[c] = ag_pda_either(pda, one, p->required ? AG_PDA_FAIL : names[c]);
        }
        may_close &= !p->required;
    }
    return AG_OK;
}

static ag_status prepare_object(object *o) {
    ag_schema_writer *w = o->w;
    const ag_object_set *x = o->x;
    size_t required = 0;
    o->list = ag_schema_alloc(&w->s, x->n_properties, sizeof *o->list);
    if (!o->list) return ag_schema_no_memory(&w->s);
    o->names = ag_pda_names_new(w->pda);
    for (size_t i = 0; i < x->n_properties; i++) {
        const ag_property *p = &x->properties[i];
        ag_pda_names_add(w->pda, o->names, p->name, p->len);
        if (p->schemas != AG_SCHEMA_NONE) o->list[o->n++] = p;
        required += p->required;
    }
    if (x->min > o->n + (x->n_others > 0)) {
        return ag_schema_unsupported(&w->s, w->schema, "minProperties",
                                     "cannot count more than one undeclared property");
    }
    const bool counts = x->min > required || (x->max != SIZE_MAX && (x->max < o->n || x->n_others));
    o->counted = counts;
    o->min = counts ? x->min : 0;
    o->n_counts = 2;
    if (counts) o->n_counts = (x->max != SIZE_MAX ? x->max : x->min) + 1;
    if (o->n_counts > o->n + 1) o->n_counts = o->n + 1;
    if (o->n_counts < 2) o->n_counts = 2;
    if (o->n_counts * (o->n + 1) > w->pda->limits.insts) {
        return AG_FAIL(w->err, LIMIT, "schema: too large: an object counts up to %zu properties",
                       o->n_counts - 1);
    }
    o->after = ag_schema_alloc(&w->s, o->n_counts, sizeof *o->after);
    return o->after ? AG_OK : ag_schema_no_memory(&w->s);
}

/* Writes the properties as rules, in any order. */
static ag_status write_in_any_order(object *o, uint32_t *out) {
    ag_pda *pda = o->w->pda;
    ag_pda_object any = {.other = AG_PDA_FAIL, .close = o->spaced_close};
    any.members = ag_calloc(o->n, sizeof *any.members);
    if (!any.members) return AG_FAIL(o->w->err, NOMEM, "schema of an object");
    const uint32_t end = ag_pda_end(pda);
    ag_status st = AG_OK;
    uint32_t start;
    for (size_t i = 0; i < o->n && st == AG_OK; i++) {
        st = write_property(o, o->list[i], end, &start);
        any.members[any.n++] = (ag_pda_member){ag_pda_rule_plain(pda, start), o->list[i]->required};
    }
    if (st == AG_OK && o->x->n_others) {
        st = write_others(o, end, &start);
        any.other = ag_pda_rule_plain(pda, start);
    }
    any.comma = ag_write_comma_rule(o->w);
    if (st != AG_OK) {
        ag_free(any.members);
        return st;
    }
    *out = ag_pda_object_start(pda, ag_pda_object_add(pda, &any));
    return AG_OK;
}

static ag_status write_members(ag_schema_writer *w, const ag_object_set *x,
                               const match_list *matches, uint32_t next, uint32_t *out) {
    ag_pda *pda = w->pda;
    object o = {.w = w,
                .x = x,
                .name_rule = AG_PDA_UNSET,
                .loop = AG_PDA_UNSET,
                .matches = matches,
                .first_match = AG_PDA_UNSET};
    o.close = ag_pda_byte(pda, '}', next);
    o.spaced_close = ag_write_space(w, o.close);
    AG_TRY(prepare_object(&o));
    uint32_t *names = ag_schema_alloc(&w->s, o.n_counts, sizeof *names);
    if (!names) return ag_schema_no_memory(&w->s);
    if (w->objects.any_order && !o.counted && !matches && o.n <= AG_OBJECT_MEMBERS) {
        AG_TRY(write_in_any_order(&o, &names[0]));
    } else {
        AG_TRY(write_properties(&o, names));
    }
    bool may_be_empty = x->min == 0 && !matches;
    for (size_t i = 0; i < o.n; i++) may_be_empty &= !o.list[i]->required;
    const uint32_t inside = ag_pda_either(pda, names[0], may_be_empty ? o.close : AG_PDA_FAIL);
    *out = ag_write_open(w, '{', inside);
    return AG_OK;
}

/* ---- required matches ---- */

typedef struct choice {
    ag_schema_writer *w;
    const ag_object_set *x;
    ag_property *properties; /* [x->n_properties] with the choices so far */
    uint32_t next;
    size_t n, n_tried; /* alternatives so far, complete ones and all */
    uint32_t out;
} choice;

static ag_status check_choices(choice *c) {
    if (c->n <= AG_OBJECT_CHOICES_MAX && ++c->n_tried <= 16 * AG_OBJECT_CHOICES_MAX) return AG_OK;
    return AG_FAIL(c->w->err, LIMIT,
                   "schema: too many ways to satisfy an object; the maximum is %d",
                   AG_OBJECT_CHOICES_MAX);
}

static ag_status write_chosen(choice *c, const match_list *matches) {
    c->n++;
    ag_object_set x = *c->x;
    ag_property *copy = ag_schema_alloc(&c->w->s, x.n_properties, sizeof *copy);
    if (!copy) return ag_schema_no_memory(&c->w->s);
    for (size_t i = 0; i < x.n_properties; i++) copy[i] = c->properties[i];
    x.properties = copy;
    uint32_t one;
    AG_TRY(write_members(c->w, &x, matches->n ? matches : NULL, c->next, &one));
    c->out = ag_pda_either(c->w->pda, c->out, one);
    return AG_OK;
}

static ag_status choose_match(choice *c, size_t i, const match_list *matches);

static bool is_possible(const ag_required_match *p) {
    return p->schemas != AG_SCHEMA_NONE && (!p->names || p->names->n_states);
}

/* Satisfies x->required_matches[i] by an undeclared property: one that `matches` already has, or
 * another with other names. */
static ag_status choose_undeclared(choice *c, size_t i, const match_list *matches) {
    ag_schema_compiler *s = &c->w->s;
    const ag_required_match *match = &c->x->required_matches[i];
    match_list fewer = *matches, more = *matches;
    ag_required_match distinct = *match;
    bool fewer_can = matches->n > 0, overlap = false;
    for (size_t k = 0; k < matches->n; k++) {
        match_list one = *matches;
        AG_TRY(ag_schema_set_and(s, one.list[k].schemas, match->schemas, &one.list[k].schemas));
        AG_TRY(ag_texts_intersect(s, one.list[k].names, match->names, &one.list[k].names));
        overlap |= !one.list[k].names || one.list[k].names->n_states;
        if (is_possible(&one.list[k])) AG_TRY(choose_match(c, i + 1, &one));
        AG_TRY(ag_texts_subtract(s, distinct.names, matches->list[k].names, &distinct.names));
        AG_TRY(ag_texts_subtract(s, fewer.list[k].names, match->names, &fewer.list[k].names));
        fewer_can &= is_possible(&fewer.list[k]);
    }
    if (matches->n == MATCHES_MAX) {
        return ag_schema_unsupported(s, c->w->schema, NULL,
                                     "too many undeclared properties are required");
    }
    more.list[more.n++] = distinct;
    if (is_possible(&distinct)) AG_TRY(choose_match(c, i + 1, &more));
    fewer.list[fewer.n++] = *match;
    return overlap && fewer_can && is_possible(match) ? choose_match(c, i + 1, &fewer) : AG_OK;
}

/* Chooses the property that satisfies x->required_matches[i], then those of the later ones: a
 * declared property, or an undeclared one. */
static ag_status choose_match(choice *c, size_t i, const match_list *matches) {
    if (c->w->pda->status != AG_OK) return AG_OK;
    AG_TRY(check_choices(c));
    if (i == c->x->n_required_matches) return write_chosen(c, matches);
    const ag_required_match *match = &c->x->required_matches[i];
    for (size_t k = 0; k < c->x->n_properties; k++) {
        const ag_property before = c->properties[k];
        ag_property *p = &c->properties[k];
        if (match->names && !ag_text_dfa_accepts(match->names, p->name, p->len)) continue;
        AG_TRY(ag_schema_set_and(&c->w->s, p->schemas, match->schemas, &p->schemas));
        p->required = true;
        if (p->schemas != AG_SCHEMA_NONE) AG_TRY(choose_match(c, i + 1, matches));
        *p = before;
    }
    return c->x->n_others ? choose_undeclared(c, i, matches) : AG_OK;
}

ag_status ag_write_object(ag_schema_writer *w, const ag_object_set *x, uint32_t next,
                          uint32_t *out) {
    ag_object_set own;
    bool closed = false;
    if (w->objects.closed) AG_TRY(ag_object_is_closed(&w->s, x, &closed));
    if (closed) {
        own = *x;
        own.n_others = 0;
        x = &own;
    }
    if (ag_schema_is_delimited(w)) return ag_write_delimited_object(w, x, next, out);
    if (x == &ag_any_object) {
        *out = ag_pda_call(w->pda, w->json->object, next);
        return AG_OK;
    }
    if (!x->n_required_matches) return write_members(w, x, NULL, next, out);
    choice c = {.w = w, .x = x, .next = next, .out = AG_PDA_FAIL};
    const match_list none = {.n = 0};
    c.properties = ag_schema_alloc(&w->s, x->n_properties, sizeof *c.properties);
    if (!c.properties) return ag_schema_no_memory(&w->s);
    for (size_t i = 0; i < x->n_properties; i++) c.properties[i] = x->properties[i];
    AG_TRY(choose_match(&c, 0, &none));
    *out = c.out;
    return AG_OK;
}
