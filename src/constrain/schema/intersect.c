/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/value_set.h"
#include "core/fail.h"

#include <math.h>
#include <string.h>

/* ---- numbers ---- */

/* Returns the least common multiple of two integers, or of two steps of which one divides the
 * other; 0 if they are neither. */
static double common_step(double a, double b) {
    if (a == 0 || b == 0) return a + b;
    if (fmod(a, b) == 0) return a;
    if (fmod(b, a) == 0) return b;
    if (a != floor(a) || b != floor(b) || a > 1e9 || b > 1e9) return 0;
    return a / ag_number_gcd(a, b) * b;
}

static ag_status intersect_avoided(ag_schema_compiler *s, const ag_number_set *a,
                                   const ag_number_set *b, ag_number_set *x) {
    if (!a->n_avoid && !b->n_avoid) return AG_OK;
    double *list = ag_schema_alloc(s, a->n_avoid + b->n_avoid, sizeof *list);
    if (!list) return ag_schema_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a->n_avoid; i++) list[n++] = a->avoid[i];
    for (size_t i = 0; i < b->n_avoid; i++) {
        bool known = false;
        for (size_t k = 0; k < a->n_avoid; k++) known |= list[k] == b->avoid[i];
        if (!known) list[n++] = b->avoid[i];
    }
    x->avoid = list;
    x->n_avoid = n;
    return ag_schema_charge(s, n);
}

static ag_status intersect_numbers(ag_schema_compiler *s, const ag_number_set *a,
                                   const ag_number_set *b, const ag_number_set **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    ag_number_set *x = ag_schema_alloc(s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(s);
    const ag_number_set *list = a->is_list ? a : b, *other = a->is_list ? b : a;
    if (list->is_list) {
        const json_t **values = ag_schema_alloc(s, list->n_values, sizeof *values);
        if (!values) return ag_schema_no_memory(s);
        for (size_t i = 0; i < list->n_values; i++) {
            if (ag_number_set_has(other, list->values[i])) values[x->n_values++] = list->values[i];
        }
        x->is_list = true;
        x->values = values;
        *out = x->n_values ? x : NULL;
        return AG_OK;
    }
    *x = *a;
    x->integer |= b->integer;
    if (b->has_min && (!a->has_min || b->min > a->min || (b->min == a->min && b->min_exclusive))) {
        x->has_min = true;
        x->min = b->min;
        x->min_exclusive = b->min_exclusive;
    }
    if (b->has_max && (!a->has_max || b->max < a->max || (b->max == a->max && b->max_exclusive))) {
        x->has_max = true;
        x->max = b->max;
        x->max_exclusive = b->max_exclusive;
    }
    AG_TRY(intersect_avoided(s, a, b, x));
    x->step = common_step(a->step, b->step);
    if (a->step != 0 && b->step != 0 && x->step == 0) {
        return AG_FAIL(s->err, UNSUPPORTED,
                       "schema: multipleOf %g and %g: this combination is not supported", a->step,
                       b->step);
    }
    bool avoided = false;
    for (size_t i = 0; i < x->n_avoid; i++) {
        avoided |= fmod(x->step, x->avoid[i]) == 0 && x->step != 0;
        avoided |= x->integer && x->avoid[i] == 1;
    }
    const bool none =
        avoided ||
        (x->has_min && x->has_max &&
         (x->min > x->max || (x->min == x->max && (x->min_exclusive || x->max_exclusive))));
    if (!none) *out = x;
    return AG_OK;
}

/* ---- strings ---- */

ag_status ag_texts_intersect(ag_schema_compiler *s, const ag_text_dfa *a, const ag_text_dfa *b,
                             const ag_text_dfa **out) {
    *out = a ? a : b;
    if (!a || !b || a == b) return AG_OK;
    ag_text_dfa both;
    AG_TRY(ag_text_dfa_combine(&both, a, b, AG_TEXT_AND, &s->limits, s->err));
    return ag_schema_adopt(s, &both, out);
}

ag_status ag_texts_subtract(ag_schema_compiler *s, const ag_text_dfa *a, const ag_text_dfa *b,
                            const ag_text_dfa **out) {
    ag_text_dfa all = {0}, remaining = {0};
    if (!b) return ag_schema_adopt(s, &remaining, out);
    if (!a) AG_TRY(ag_text_dfa_lengths(&all, 0, SIZE_MAX, &s->limits, s->err));
    ag_status st =
        ag_text_dfa_combine(&remaining, a ? a : &all, b, AG_TEXT_EXCEPT, &s->limits, s->err);
    ag_text_dfa_free(&all);
    return st == AG_OK ? ag_schema_adopt(s, &remaining, out) : st;
}

static ag_status intersect_strings(ag_schema_compiler *s, const ag_string_set *a,
                                   const ag_string_set *b, const ag_string_set **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    ag_string_set *x = ag_schema_alloc(s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(s);
    x->min = a->min > b->min ? a->min : b->min;
    x->max = a->max < b->max ? a->max : b->max;
    AG_TRY(ag_texts_intersect(s, a->texts, b->texts, &x->texts));
    if (x->min <= x->max && (!x->texts || x->texts->n_states)) *out = x;
    return AG_OK;
}

ag_status ag_string_dfa(ag_schema_compiler *s, const ag_string_set *x, const ag_text_dfa **out) {
    *out = x->texts;
    if (x->texts && !x->min && x->max == SIZE_MAX) return AG_OK;
    ag_text_dfa lengths, both;
    AG_TRY(ag_text_dfa_lengths(&lengths, x->min, x->max, &s->limits, s->err));
    if (!x->texts) return ag_schema_adopt(s, &lengths, out);
    ag_status st = ag_text_dfa_combine(&both, x->texts, &lengths, AG_TEXT_AND, &s->limits, s->err);
    ag_text_dfa_free(&lengths);
    return st == AG_OK ? ag_schema_adopt(s, &both, out) : st;
}

/* ---- arrays ---- */

/* Joins both lists. Counts of the same items become one. */
static ag_status intersect_contains(ag_schema_compiler *s, const ag_array_set *a,
                                    const ag_array_set *b, ag_array_set *x) {
    if (!a->n_contains && !b->n_contains) return AG_OK;
    ag_contains *list = ag_schema_alloc(s, a->n_contains + b->n_contains, sizeof *list);
    if (!list) return ag_schema_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a->n_contains; i++) list[n++] = a->contains[i];
    for (size_t i = 0; i < b->n_contains; i++) {
        const ag_contains *c = &b->contains[i];
        size_t k = 0;
        while (k < n && (list[k].schemas != c->schemas || list[k].from != c->from)) k++;
        if (k == n) {
            list[n++] = *c;
            continue;
        }
        if (c->min > list[k].min) list[k].min = c->min;
        if (c->max < list[k].max) list[k].max = c->max;
        list[k].negation = c->negation;
    }
    if (n > AG_CONTAINS_MAX) {
        return AG_FAIL(s->err, LIMIT, "schema: too many kinds of counted items; the maximum is %d",
                       AG_CONTAINS_MAX);
    }
    x->contains = list;
    x->n_contains = n;
    return AG_OK;
}

static bool is_impossible_count(const ag_array_set *x, const ag_contains *c) {
    const size_t n_items = x->max > c->from ? x->max - c->from : 0;
    return c->min > c->max || c->min > n_items || (c->min && c->schemas == AG_SCHEMA_NONE);
}

static ag_status intersect_arrays(ag_schema_compiler *s, const ag_array_set *a,
                                  const ag_array_set *b, const ag_array_set **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    ag_array_set *x = ag_schema_alloc(s, 1, sizeof *x);
    const size_t n = a->n_prefix > b->n_prefix ? a->n_prefix : b->n_prefix;
    ag_schema_set *prefix = ag_schema_alloc(s, n, sizeof *prefix);
    if (!x || !prefix) return ag_schema_no_memory(s);
    for (size_t i = 0; i < n; i++) {
        AG_TRY(ag_schema_set_and(s, ag_array_item_schemas(a, i), ag_array_item_schemas(b, i),
                                 &prefix[i]));
    }
    x->prefix = prefix;
    x->n_prefix = n;
    AG_TRY(ag_schema_set_and(s, a->items, b->items, &x->items));
    x->min = a->min > b->min ? a->min : b->min;
    x->max = a->max < b->max ? a->max : b->max;
    for (size_t i = 0; i < n && i < x->max; i++) {
        if (prefix[i] == AG_SCHEMA_NONE) x->max = i;
    }
    if (x->items == AG_SCHEMA_NONE && x->max > n) x->max = n;
    x->unique = a->unique || b->unique;
    x->unique_at = a->unique ? a->unique_at : b->unique_at;
    AG_TRY(intersect_contains(s, a, b, x));
    bool none = x->min > x->max;
    for (size_t i = 0; i < x->n_contains; i++) none |= is_impossible_count(x, &x->contains[i]);
    if (!none) *out = x;
    return AG_OK;
}

/* ---- objects ---- */

static const ag_property *find_property(const ag_object_set *o, const ag_property *p) {
    for (size_t i = 0; i < o->n_properties; i++) {
        const ag_property *x = &o->properties[i];
        if (x->len == p->len && !memcmp(x->name, p->name, p->len)) return x;
    }
    return NULL;
}

/* Returns what o requires of a name that it does not declare. */
static ag_schema_set schemas_of_other(const ag_object_set *o, const ag_property *p) {
    if (o->names && !ag_text_dfa_accepts(o->names, p->name, p->len)) return AG_SCHEMA_NONE;
    return ag_object_other_schemas(o, p->name, p->len);
}

static ag_status intersect_properties(ag_schema_compiler *s, const ag_object_set *a,
                                      const ag_object_set *b, ag_object_set *x) {
    ag_property *list = ag_schema_alloc(s, a->n_properties + b->n_properties, sizeof *list);
    if (!list) return ag_schema_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a->n_properties; i++) {
        ag_property p = a->properties[i];
        const ag_property *q = find_property(b, &p);
        AG_TRY(
            ag_schema_set_and(s, p.schemas, q ? q->schemas : schemas_of_other(b, &p), &p.schemas));
        p.required |= q && q->required;
        list[n++] = p;
    }
    for (size_t i = 0; i < b->n_properties; i++) {
        ag_property p = b->properties[i];
        if (find_property(a, &p)) continue;
        AG_TRY(ag_schema_set_and(s, schemas_of_other(a, &p), p.schemas, &p.schemas));
        list[n++] = p;
    }
    x->properties = list;
    x->n_properties = n;
    /* Finding a name is fast, but each one is compared with all. */
    return ag_schema_charge(s, n + a->n_properties * b->n_properties / 128);
}

ag_status ag_object_names(ag_schema_compiler *s, const ag_object_set *x, ag_text_dfa *out) {
    *out = (ag_text_dfa){0};
    const char **texts = ag_schema_alloc(s, x->n_properties, sizeof *texts);
    size_t *lens = ag_schema_alloc(s, x->n_properties, sizeof *lens);
    if (!texts || !lens) return ag_schema_no_memory(s);
    for (size_t i = 0; i < x->n_properties; i++) {
        texts[i] = x->properties[i].name;
        lens[i] = x->properties[i].len;
    }
    return ag_text_dfa_texts(out, texts, lens, x->n_properties, &s->limits, s->err);
}

static ag_status intersect_others(ag_schema_compiler *s, const ag_object_set *a,
                                  const ag_object_set *b, ag_object_set *x) {
    if (a->n_others * b->n_others > AG_ALTERNATIVES_MAX) {
        return AG_FAIL(s->err, LIMIT, "schema: too many kinds of property names; the maximum is %d",
                       AG_ALTERNATIVES_MAX);
    }
    ag_name_class *list = ag_schema_alloc(s, a->n_others * b->n_others, sizeof *list);
    if (!list) return ag_schema_no_memory(s);
    for (size_t i = 0; i < a->n_others; i++) {
        for (size_t k = 0; k < b->n_others; k++) {
            ag_name_class c;
            AG_TRY(ag_schema_set_and(s, a->others[i].schemas, b->others[k].schemas, &c.schemas));
            if (c.schemas == AG_SCHEMA_NONE) continue;
            AG_TRY(ag_texts_intersect(s, a->others[i].names, b->others[k].names, &c.names));
            if (!c.names || c.names->n_states) list[x->n_others++] = c;
        }
    }
    x->others = list;
    return ag_texts_intersect(s, a->names, b->names, &x->names);
}

/* Returns whether no property could be the required match. */
static bool is_impossible_match(const ag_object_set *x, const ag_required_match *match) {
    if (match->schemas == AG_SCHEMA_NONE) return true;
    bool any = x->n_others > 0;
    for (size_t i = 0; i < x->n_properties && !any; i++) {
        const ag_property *p = &x->properties[i];
        any = p->schemas != AG_SCHEMA_NONE &&
              (!match->names || ag_text_dfa_accepts(match->names, p->name, p->len));
    }
    return !any;
}

static ag_status join_required_matches(ag_schema_compiler *s, const ag_object_set *a,
                                       const ag_object_set *b, ag_object_set *x) {
    const size_t n = a->n_required_matches + b->n_required_matches;
    ag_required_match *list = ag_schema_alloc(s, n, sizeof *list);
    if (!list) return ag_schema_no_memory(s);
    for (size_t i = 0; i < a->n_required_matches; i++) list[i] = a->required_matches[i];
    for (size_t i = 0; i < b->n_required_matches; i++)
        list[a->n_required_matches + i] = b->required_matches[i];
    x->required_matches = list;
    x->n_required_matches = n;
    return ag_schema_charge(s, n);
}

bool ag_object_is_empty(const ag_object_set *x) {
    size_t required = 0, possible = 0;
    for (size_t i = 0; i < x->n_properties; i++) {
        const bool never = x->properties[i].schemas == AG_SCHEMA_NONE;
        if (x->properties[i].required && never) return true;
        required += x->properties[i].required;
        possible += !never;
    }
    for (size_t i = 0; i < x->n_required_matches; i++) {
        if (is_impossible_match(x, &x->required_matches[i])) return true;
    }
    return required > x->max || x->min > x->max || (!x->n_others && possible < x->min);
}

ag_status ag_object_is_closed(ag_schema_compiler *s, const ag_object_set *x, bool *closed) {
    size_t possible = 0;
    *closed = x->has_properties && !x->has_rule_for_others && !x->n_required_matches;
    for (size_t i = 0; i < x->n_properties && *closed && x->min; i++) {
        bool empty;
        AG_TRY(ag_schema_set_is_empty(s, x->properties[i].schemas, 4, &empty));
        possible += !empty;
    }
    *closed = *closed && possible >= x->min;
    return AG_OK;
}

static ag_status intersect_objects(ag_schema_compiler *s, const ag_object_set *a,
                                   const ag_object_set *b, const ag_object_set **out) {
    *out = NULL;
    if (!a || !b) return AG_OK;
    if (a == &ag_any_object || b == &ag_any_object) {
        *out = a == &ag_any_object ? b : a;
        return AG_OK;
    }
    ag_object_set *x = ag_schema_alloc(s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(s);
    AG_TRY(intersect_properties(s, a, b, x));
    AG_TRY(intersect_others(s, a, b, x));
    if (a->n_required_matches || b->n_required_matches) AG_TRY(join_required_matches(s, a, b, x));
    x->min = a->min > b->min ? a->min : b->min;
    x->max = a->max < b->max ? a->max : b->max;
    x->has_properties = a->has_properties || b->has_properties;
    x->has_rule_for_others = a->has_rule_for_others || b->has_rule_for_others;
    if (!ag_object_is_empty(x)) *out = x;
    return AG_OK;
}

/* ---- value sets ---- */

static bool has_any_type(const ag_value_set *x) {
    return x->null_value || x->true_value || x->false_value || x->number || x->string || x->array ||
           x->object;
}

ag_status ag_value_set_intersect(ag_schema_compiler *s, const ag_value_set *a,
                                 const ag_value_set *b, const ag_value_set **out) {
    *out = NULL;
    AG_TRY(ag_schema_charge(s, 1));
    if (a == &ag_any_value || b == &ag_any_value) {
        *out = a == &ag_any_value ? b : a;
        return AG_OK;
    }
    ag_value_set *x = ag_schema_alloc(s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(s);
    x->null_value = a->null_value && b->null_value;
    x->true_value = a->true_value && b->true_value;
    x->false_value = a->false_value && b->false_value;
    AG_TRY(intersect_numbers(s, a->number, b->number, &x->number));
    AG_TRY(intersect_strings(s, a->string, b->string, &x->string));
    AG_TRY(intersect_arrays(s, a->array, b->array, &x->array));
    AG_TRY(intersect_objects(s, a->object, b->object, &x->object));
    if (has_any_type(x)) *out = x;
    return AG_OK;
}
