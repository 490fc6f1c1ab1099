/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/value_set.h"
#include "core/fail.h"

#include <math.h>
#include <string.h>

/* ---- numbers ---- */

/* The least common multiple of two steps that are whole, or one of which is a multiple of the
 * other; 0: neither. */
static double common_step(double a, double b) {
    if (a == 0 || b == 0) return a + b;
    if (fmod(a, b) == 0) return a;
    if (fmod(b, a) == 0) return b;
    if (a != floor(a) || b != floor(b) || a > 1e9 || b > 1e9) return 0;
    double x = a, y = b;
    while (y != 0) {
        const double rest = fmod(x, y);
        x = y;
        y = rest;
    }
    return a / x * b;
}

static ag_status and_avoided(ag_shaper *s, const ag_number_shape *a, const ag_number_shape *b,
                             ag_number_shape *x) {
    if (!a->n_avoid && !b->n_avoid) return AG_OK;
    double *list = ag_shaper_get(s, a->n_avoid + b->n_avoid, sizeof *list);
    if (!list) return ag_shaper_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a->n_avoid; i++) list[n++] = a->avoid[i];
    for (size_t i = 0; i < b->n_avoid; i++) {
        bool known = false;
        for (size_t k = 0; k < a->n_avoid; k++) known |= list[k] == b->avoid[i];
        if (!known) list[n++] = b->avoid[i];
    }
    x->avoid = list;
    x->n_avoid = n;
    return ag_shaper_charge(s, n);
}

static ag_status and_numbers(ag_shaper *s, const ag_number_shape *a, const ag_number_shape *b,
                             const ag_number_shape **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    ag_number_shape *x = ag_shaper_get(s, 1, sizeof *x);
    if (!x) return ag_shaper_no_memory(s);
    const ag_number_shape *list = a->is_list ? a : b, *other = a->is_list ? b : a;
    if (list->is_list) {
        const json_t **values = ag_shaper_get(s, list->n_values, sizeof *values);
        if (!values) return ag_shaper_no_memory(s);
        for (size_t i = 0; i < list->n_values; i++) {
            if (ag_number_obeys(other, list->values[i])) values[x->n_values++] = list->values[i];
        }
        x->is_list = true;
        x->values = values;
        *out = x->n_values ? x : NULL;
        return AG_OK;
    }
    *x = *a;
    x->whole |= b->whole;
    if (b->has_least &&
        (!a->has_least || b->least > a->least || (b->least == a->least && b->above_least))) {
        x->has_least = true;
        x->least = b->least;
        x->above_least = b->above_least;
    }
    if (b->has_most &&
        (!a->has_most || b->most < a->most || (b->most == a->most && b->below_most))) {
        x->has_most = true;
        x->most = b->most;
        x->below_most = b->below_most;
    }
    AG_TRY(and_avoided(s, a, b, x));
    x->step = common_step(a->step, b->step);
    if (a->step != 0 && b->step != 0 && x->step == 0) {
        return AG_FAIL(s->err, UNSUPPORTED, "schema: multipleOf %g and %g together", a->step,
                       b->step);
    }
    bool avoided = false;
    for (size_t i = 0; i < x->n_avoid; i++) {
        avoided |= fmod(x->step, x->avoid[i]) == 0 && x->step != 0;
        avoided |= x->whole && x->avoid[i] == 1;
    }
    const bool none =
        avoided ||
        (x->has_least && x->has_most &&
         (x->least > x->most || (x->least == x->most && (x->above_least || x->below_most))));
    if (!none) *out = x;
    return AG_OK;
}

/* ---- strings ---- */

ag_status ag_texts_and(ag_shaper *s, const ag_text_dfa *a, const ag_text_dfa *b,
                       const ag_text_dfa **out) {
    *out = a ? a : b;
    if (!a || !b || a == b) return AG_OK;
    ag_text_dfa both;
    AG_TRY(ag_text_dfa_combine(&both, a, b, AG_TEXT_AND, &s->limits, s->err));
    return ag_shaper_keep(s, &both, out);
}

ag_status ag_texts_except(ag_shaper *s, const ag_text_dfa *a, const ag_text_dfa *b,
                          const ag_text_dfa **out) {
    ag_text_dfa all = {0}, left = {0};
    if (!b) return ag_shaper_keep(s, &left, out);
    if (!a) AG_TRY(ag_text_dfa_lengths(&all, 0, SIZE_MAX, &s->limits, s->err));
    ag_status st = ag_text_dfa_combine(&left, a ? a : &all, b, AG_TEXT_EXCEPT, &s->limits, s->err);
    ag_text_dfa_free(&all);
    return st == AG_OK ? ag_shaper_keep(s, &left, out) : st;
}

static ag_status and_strings(ag_shaper *s, const ag_string_shape *a, const ag_string_shape *b,
                             const ag_string_shape **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    ag_string_shape *x = ag_shaper_get(s, 1, sizeof *x);
    if (!x) return ag_shaper_no_memory(s);
    x->least = a->least > b->least ? a->least : b->least;
    x->most = a->most < b->most ? a->most : b->most;
    AG_TRY(ag_texts_and(s, a->texts, b->texts, &x->texts));
    if (x->least <= x->most && (!x->texts || x->texts->n_states)) *out = x;
    return AG_OK;
}

ag_status ag_string_dfa(ag_shaper *s, const ag_string_shape *x, const ag_text_dfa **out) {
    *out = x->texts;
    if (x->texts && !x->least && x->most == SIZE_MAX) return AG_OK;
    ag_text_dfa lengths, both;
    AG_TRY(ag_text_dfa_lengths(&lengths, x->least, x->most, &s->limits, s->err));
    if (!x->texts) return ag_shaper_keep(s, &lengths, out);
    ag_status st = ag_text_dfa_combine(&both, x->texts, &lengths, AG_TEXT_AND, &s->limits, s->err);
    ag_text_dfa_free(&lengths);
    return st == AG_OK ? ag_shaper_keep(s, &both, out) : st;
}

/* ---- arrays ---- */

/* Both lists; counts of the same items are one. */
static ag_status and_contains(ag_shaper *s, const ag_array_shape *a, const ag_array_shape *b,
                              ag_array_shape *x) {
    if (!a->n_contains && !b->n_contains) return AG_OK;
    ag_contains *list = ag_shaper_get(s, a->n_contains + b->n_contains, sizeof *list);
    if (!list) return ag_shaper_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a->n_contains; i++) list[n++] = a->contains[i];
    for (size_t i = 0; i < b->n_contains; i++) {
        const ag_contains *c = &b->contains[i];
        size_t k = 0;
        while (k < n && (list[k].goal != c->goal || list[k].from != c->from)) k++;
        if (k == n) {
            list[n++] = *c;
            continue;
        }
        if (c->least > list[k].least) list[k].least = c->least;
        if (c->most < list[k].most) list[k].most = c->most;
        list[k].opposite = c->opposite;
    }
    if (n > AG_MOST_CONTAINS) {
        return AG_FAIL(s->err, LIMIT, "schema: more than %d kinds of items that are counted",
                       AG_MOST_CONTAINS);
    }
    x->contains = list;
    x->n_contains = n;
    return AG_OK;
}

static bool cannot_contain(const ag_array_shape *x, const ag_contains *c) {
    const size_t places = x->most > c->from ? x->most - c->from : 0;
    return c->least > c->most || c->least > places || (c->least && c->goal == AG_GOAL_NEVER);
}

static ag_status and_arrays(ag_shaper *s, const ag_array_shape *a, const ag_array_shape *b,
                            const ag_array_shape **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    ag_array_shape *x = ag_shaper_get(s, 1, sizeof *x);
    const size_t n = a->n_prefix > b->n_prefix ? a->n_prefix : b->n_prefix;
    ag_goal *prefix = ag_shaper_get(s, n, sizeof *prefix);
    if (!x || !prefix) return ag_shaper_no_memory(s);
    for (size_t i = 0; i < n; i++) {
        AG_TRY(ag_goal_and(s, ag_array_item(a, i), ag_array_item(b, i), &prefix[i]));
    }
    x->prefix = prefix;
    x->n_prefix = n;
    AG_TRY(ag_goal_and(s, a->rest, b->rest, &x->rest));
    x->least = a->least > b->least ? a->least : b->least;
    x->most = a->most < b->most ? a->most : b->most;
    for (size_t i = 0; i < n && i < x->most; i++) {
        if (prefix[i] == AG_GOAL_NEVER) x->most = i;
    }
    if (x->rest == AG_GOAL_NEVER && x->most > n) x->most = n;
    x->unique = a->unique || b->unique;
    x->unique_at = a->unique ? a->unique_at : b->unique_at;
    AG_TRY(and_contains(s, a, b, x));
    bool none = x->least > x->most;
    for (size_t i = 0; i < x->n_contains; i++) none |= cannot_contain(x, &x->contains[i]);
    if (!none) *out = x;
    return AG_OK;
}

/* ---- objects ---- */

static const ag_property *find_property(const ag_object_shape *o, const ag_property *p) {
    for (size_t i = 0; i < o->n_properties; i++) {
        const ag_property *x = &o->properties[i];
        if (x->len == p->len && !memcmp(x->name, p->name, p->len)) return x;
    }
    return NULL;
}

/* What o says of a name that is not among its properties. */
static ag_goal goal_of_other(const ag_object_shape *o, const ag_property *p) {
    if (o->names && !ag_text_dfa_accepts(o->names, p->name, p->len)) return AG_GOAL_NEVER;
    return ag_object_other(o, p->name, p->len);
}

static ag_status and_properties(ag_shaper *s, const ag_object_shape *a, const ag_object_shape *b,
                                ag_object_shape *x) {
    ag_property *list = ag_shaper_get(s, a->n_properties + b->n_properties, sizeof *list);
    if (!list) return ag_shaper_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a->n_properties; i++) {
        ag_property p = a->properties[i];
        const ag_property *q = find_property(b, &p);
        AG_TRY(ag_goal_and(s, p.goal, q ? q->goal : goal_of_other(b, &p), &p.goal));
        p.required |= q && q->required;
        list[n++] = p;
    }
    for (size_t i = 0; i < b->n_properties; i++) {
        ag_property p = b->properties[i];
        if (find_property(a, &p)) continue;
        AG_TRY(ag_goal_and(s, goal_of_other(a, &p), p.goal, &p.goal));
        list[n++] = p;
    }
    x->properties = list;
    x->n_properties = n;
    /* Looking for names is fast, but each is looked for among all. */
    return ag_shaper_charge(s, n + a->n_properties * b->n_properties / 128);
}

ag_status ag_object_names(ag_shaper *s, const ag_object_shape *x, ag_text_dfa *out) {
    *out = (ag_text_dfa){0};
    const char **texts = ag_shaper_get(s, x->n_properties, sizeof *texts);
    size_t *lens = ag_shaper_get(s, x->n_properties, sizeof *lens);
    if (!texts || !lens) return ag_shaper_no_memory(s);
    for (size_t i = 0; i < x->n_properties; i++) {
        texts[i] = x->properties[i].name;
        lens[i] = x->properties[i].len;
    }
    return ag_text_dfa_texts(out, texts, lens, x->n_properties, &s->limits, s->err);
}

static ag_status and_others(ag_shaper *s, const ag_object_shape *a, const ag_object_shape *b,
                            ag_object_shape *x) {
    if (a->n_others * b->n_others > AG_MOST_WAYS) {
        return AG_FAIL(s->err, LIMIT, "schema: more than %d kinds of property names", AG_MOST_WAYS);
    }
    ag_name_class *list = ag_shaper_get(s, a->n_others * b->n_others, sizeof *list);
    if (!list) return ag_shaper_no_memory(s);
    for (size_t i = 0; i < a->n_others; i++) {
        for (size_t k = 0; k < b->n_others; k++) {
            ag_name_class c;
            AG_TRY(ag_goal_and(s, a->others[i].goal, b->others[k].goal, &c.goal));
            if (c.goal == AG_GOAL_NEVER) continue;
            AG_TRY(ag_texts_and(s, a->others[i].names, b->others[k].names, &c.names));
            if (!c.names || c.names->n_states) list[x->n_others++] = c;
        }
    }
    x->others = list;
    return ag_texts_and(s, a->names, b->names, &x->names);
}

/* No property could be the one that must be there. */
static bool cannot_have(const ag_object_shape *x, const ag_some_property *some) {
    if (some->goal == AG_GOAL_NEVER) return true;
    bool any = x->n_others > 0;
    for (size_t i = 0; i < x->n_properties && !any; i++) {
        const ag_property *p = &x->properties[i];
        any = p->goal != AG_GOAL_NEVER &&
              (!some->names || ag_text_dfa_accepts(some->names, p->name, p->len));
    }
    return !any;
}

static ag_status and_some(ag_shaper *s, const ag_object_shape *a, const ag_object_shape *b,
                          ag_object_shape *x) {
    const size_t n = a->n_some + b->n_some;
    ag_some_property *list = ag_shaper_get(s, n, sizeof *list);
    if (!list) return ag_shaper_no_memory(s);
    for (size_t i = 0; i < a->n_some; i++) list[i] = a->some[i];
    for (size_t i = 0; i < b->n_some; i++) list[a->n_some + i] = b->some[i];
    x->some = list;
    x->n_some = n;
    return ag_shaper_charge(s, n);
}

/* Nothing can obey, as far as can be seen without looking into goals. */
bool ag_object_is_empty(const ag_object_shape *x) {
    size_t required = 0, possible = 0;
    for (size_t i = 0; i < x->n_properties; i++) {
        const bool never = x->properties[i].goal == AG_GOAL_NEVER;
        if (x->properties[i].required && never) return true;
        required += x->properties[i].required;
        possible += !never;
    }
    for (size_t i = 0; i < x->n_some; i++) {
        if (cannot_have(x, &x->some[i])) return true;
    }
    return required > x->most || x->least > x->most || (!x->n_others && possible < x->least);
}

static ag_status and_objects(ag_shaper *s, const ag_object_shape *a, const ag_object_shape *b,
                             const ag_object_shape **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    if (a == &ag_any_object || b == &ag_any_object) {
        *out = a == &ag_any_object ? b : a;
        return AG_OK;
    }
    ag_object_shape *x = ag_shaper_get(s, 1, sizeof *x);
    if (!x) return ag_shaper_no_memory(s);
    AG_TRY(and_properties(s, a, b, x));
    AG_TRY(and_others(s, a, b, x));
    if (a->n_some || b->n_some) AG_TRY(and_some(s, a, b, x));
    x->least = a->least > b->least ? a->least : b->least;
    x->most = a->most < b->most ? a->most : b->most;
    if (!ag_object_is_empty(x)) *out = x;
    return AG_OK;
}

/* ---- shapes ---- */

static bool has_any_type(const ag_shape *x) {
    return x->null || x->yes || x->no || x->number || x->string || x->array || x->object;
}

ag_status ag_shape_and(ag_shaper *s, const ag_shape *a, const ag_shape *b, const ag_shape **out) {
    *out = NULL;
    AG_TRY(ag_shaper_charge(s, 1));
    if (a == &ag_any_shape || b == &ag_any_shape) {
        *out = a == &ag_any_shape ? b : a;
        return AG_OK;
    }
    ag_shape *x = ag_shaper_get(s, 1, sizeof *x);
    if (!x) return ag_shaper_no_memory(s);
    x->null = a->null && b->null;
    x->yes = a->yes && b->yes;
    x->no = a->no && b->no;
    AG_TRY(and_numbers(s, a->number, b->number, &x->number));
    AG_TRY(and_strings(s, a->string, b->string, &x->string));
    AG_TRY(and_arrays(s, a->array, b->array, &x->array));
    AG_TRY(and_objects(s, a->object, b->object, &x->object));
    if (has_any_type(x)) *out = x;
    return AG_OK;
}
