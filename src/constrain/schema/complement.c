/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/value_set.h"
#include "core/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct complement {
    ag_schema_compiler *s;
    ag_alternatives alternatives;
    bool decidable;
} complement;

static ag_status add_values(complement *o, ag_value_set values) {
    return ag_alternatives_add_set(o->s, &o->alternatives, values);
}

enum { GAPS_MAX = 64 };

static int compare_values(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Adds the numbers between those of a list. */
static ag_status complement_list(complement *o, const ag_number_set *x) {
    double values[GAPS_MAX];
    o->decidable = x->n_values <= GAPS_MAX;
    for (size_t i = 0; i < x->n_values && o->decidable; i++) {
        values[i] = json_number_value(x->values[i]);
        o->decidable = fabs(values[i]) < 0x1p53; /* beyond, a double stands for several integers */
    }
    if (!o->decidable) return AG_OK;
    qsort(values, x->n_values, sizeof *values, compare_values);
    for (size_t i = 0; i <= x->n_values; i++) {
        if (i > 0 && i < x->n_values && values[i - 1] == values[i]) continue;
        ag_number_set *gap = ag_schema_alloc(o->s, 1, sizeof *gap);
        if (!gap) return ag_schema_no_memory(o->s);
        gap->has_min = gap->min_exclusive = i > 0;
        gap->has_max = gap->max_exclusive = i < x->n_values;
        if (i > 0) gap->min = values[i - 1];
        if (i < x->n_values) gap->max = values[i];
        AG_TRY(add_values(o, (ag_value_set){.number = gap}));
    }
    return AG_OK;
}

/* Adds the numbers that are not multiples of the step, and those that are not integers if the set
 * has integers only. The step is 0 or an integer. */
static ag_status complement_multiple(complement *o, const ag_number_set *x) {
    const double steps[2] = {x->integer ? 1 : 0, x->step};
    for (int i = 0; i < 2; i++) {
        if (steps[i] == 0) continue;
        ag_number_set *other = ag_schema_alloc(o->s, 1, sizeof *other);
        double *avoid = ag_schema_alloc(o->s, 1, sizeof *avoid);
        if (!other || !avoid) return ag_schema_no_memory(o->s);
        *avoid = steps[i];
        other->avoid = avoid;
        other->n_avoid = 1;
        AG_TRY(add_values(o, (ag_value_set){.number = other}));
    }
    return AG_OK;
}

static ag_status complement_number(complement *o, const ag_number_set *x) {
    if (!x) return add_values(o, (ag_value_set){.number = &ag_any_number});
    if (x->is_list) return complement_list(o, x);
    if (x->n_avoid || x->step != floor(x->step) || x->step > 1000) {
        o->decidable = false;
        return AG_OK;
    }
    AG_TRY(complement_multiple(o, x));
    ag_number_set *below = ag_schema_alloc(o->s, 2, sizeof *below), *above = below + 1;
    if (!below) return ag_schema_no_memory(o->s);
    below->has_max = above->has_min = true;
    below->max = x->min;
    below->max_exclusive = !x->min_exclusive;
    above->min = x->max;
    above->min_exclusive = !x->max_exclusive;
    if (x->has_min) AG_TRY(add_values(o, (ag_value_set){.number = below}));
    return x->has_max ? add_values(o, (ag_value_set){.number = above}) : AG_OK;
}

static ag_status complement_string(complement *o, const ag_string_set *x) {
    if (!x) return add_values(o, (ag_value_set){.string = &ag_any_string});
    ag_string_set *other = ag_schema_alloc(o->s, 3, sizeof *other);
    if (!other) return ag_schema_no_memory(o->s);
    other[0].max = x->min - 1;
    other[1].min = x->max + 1;
    other[1].max = other[2].max = SIZE_MAX;
    if (x->min) AG_TRY(add_values(o, (ag_value_set){.string = &other[0]}));
    if (x->max != SIZE_MAX) AG_TRY(add_values(o, (ag_value_set){.string = &other[1]}));
    if (!x->texts) return AG_OK;
    AG_TRY(ag_texts_subtract(o->s, NULL, x->texts, &other[2].texts));
    if (!other[2].texts->n_states) return AG_OK;
    return add_values(o, (ag_value_set){.string = &other[2]});
}

/* ---- schema sets ---- */

/* Lists the schema sets of which at least one holds if `schemas` does not: the negation of each
 * member. */
static ag_status negations_of(complement *o, ag_schema_set schemas, ag_schema_set **out,
                              size_t *n) {
    ag_schema_compiler *s = o->s;
    *n = 0;
    if (schemas == AG_SCHEMA_ANY) return AG_OK;
    size_t n_list = 1;
    if (schemas != AG_SCHEMA_NONE) ag_interner_list(&s->sets, schemas, &n_list);
    *out = ag_schema_alloc(s, n_list, sizeof **out);
    if (!*out) return ag_schema_no_memory(s);
    if (schemas == AG_SCHEMA_NONE) {
        (*out)[(*n)++] = AG_SCHEMA_ANY;
        return AG_OK;
    }
    for (size_t i = 0; i < n_list; i++) {
        size_t all;
        const uint32_t one = ag_interner_list(&s->sets, schemas, &all)[i];
        ag_schema_set negations;
        AG_TRY(ag_schema_set_of(s, one / 2, !(one & 1), &negations));
        if (negations != AG_SCHEMA_NONE) (*out)[(*n)++] = negations;
    }
    return AG_OK;
}

/* ---- arrays ---- */

/* Adds the arrays in which item `at` exists and matches. */
static ag_status add_item(complement *o, size_t at, ag_schema_set schemas) {
    ag_array_set *x = ag_schema_alloc(o->s, 1, sizeof *x);
    ag_schema_set *prefix = ag_schema_alloc(o->s, at + 1, sizeof *prefix);
    if (!x || !prefix) return ag_schema_no_memory(o->s);
    for (size_t i = 0; i < at; i++) prefix[i] = AG_SCHEMA_ANY;
    prefix[at] = schemas;
    *x = (ag_array_set){.prefix = prefix, .n_prefix = at + 1, .min = at + 1, .max = SIZE_MAX};
    return add_values(o, (ag_value_set){.array = x});
}

/* Adds the arrays in which one of the items from index `from` on matches. */
static ag_status add_contained_item(complement *o, size_t from, ag_schema_set schemas) {
    ag_array_set *x = ag_schema_alloc(o->s, 1, sizeof *x);
    ag_contains *c = ag_schema_alloc(o->s, 1, sizeof *c);
    if (!x || !c) return ag_schema_no_memory(o->s);
    *c = (ag_contains){.schemas = schemas, .from = from, .min = 1, .max = SIZE_MAX};
    *x = (ag_array_set){.min = from + 1, .max = SIZE_MAX, .contains = c, .n_contains = 1};
    return add_values(o, (ag_value_set){.array = x});
}

static ag_status complement_array(complement *o, const ag_array_set *x) {
    if (!x) return add_values(o, (ag_value_set){.array = &ag_any_array});
    if (x->n_contains || x->unique) {
        o->decidable = false;
        return AG_OK;
    }
    ag_schema_set *negations;
    size_t n;
    for (size_t i = 0; i < x->n_prefix; i++) {
        AG_TRY(negations_of(o, x->prefix[i], &negations, &n));
        for (size_t k = 0; k < n; k++) AG_TRY(add_item(o, i, negations[k]));
    }
    AG_TRY(negations_of(o, x->items, &negations, &n));
    for (size_t k = 0; k < n; k++) AG_TRY(add_contained_item(o, x->n_prefix, negations[k]));
    ag_array_set *other = ag_schema_alloc(o->s, 2, sizeof *other);
    if (!other) return ag_schema_no_memory(o->s);
    other[0].max = x->min - 1;
    other[1].min = x->max + 1;
    other[1].max = SIZE_MAX;
    if (x->min) AG_TRY(add_values(o, (ag_value_set){.array = &other[0]}));
    return x->max != SIZE_MAX ? add_values(o, (ag_value_set){.array = &other[1]}) : AG_OK;
}

/* ---- objects ---- */

/* Adds the objects that satisfy one property. */
static ag_status add_property(complement *o, ag_property p) {
    ag_object_set *x = ag_schema_alloc(o->s, 1, sizeof *x);
    ag_property *copy = ag_schema_alloc(o->s, 1, sizeof *copy);
    if (!x || !copy) return ag_schema_no_memory(o->s);
    *x = ag_any_object;
    *copy = p;
    x->properties = copy;
    x->n_properties = 1;
    return add_values(o, (ag_value_set){.object = x});
}

/* Adds the objects that have a matching property with one of these names. */
static ag_status add_required_match(complement *o, const ag_text_dfa *names,
                                    ag_schema_set schemas) {
    if (names && !names->n_states) return AG_OK;
    ag_object_set *x = ag_schema_alloc(o->s, 1, sizeof *x);
    ag_required_match *match = ag_schema_alloc(o->s, 1, sizeof *match);
    if (!x || !match) return ag_schema_no_memory(o->s);
    *x = ag_any_object;
    *match = (ag_required_match){names, schemas};
    x->required_matches = match;
    x->n_required_matches = 1;
    return add_values(o, (ag_value_set){.object = x});
}

/* Adds the objects in which the property violates its schemas, or is absent although required. */
static ag_status violate_property(complement *o, ag_property p) {
    ag_schema_set *negations;
    size_t n;
    const bool required = p.required;
    AG_TRY(negations_of(o, p.schemas, &negations, &n));
    for (size_t i = 0; i < n; i++) {
        p.required = true;
        p.schemas = negations[i];
        AG_TRY(add_property(o, p));
    }
    if (!required) return AG_OK;
    p.required = false;
    p.schemas = AG_SCHEMA_NONE;
    return add_property(o, p);
}

/* Adds the objects with a name that is not allowed, or an undeclared property that violates its
 * schemas. */
static ag_status violate_others(complement *o, const ag_object_set *x) {
    const ag_text_dfa *declared, *uncovered = NULL;
    ag_text_dfa declared_dfa;
    AG_TRY(ag_object_names(o->s, x, &declared_dfa));
    AG_TRY(ag_schema_adopt(o->s, &declared_dfa, &declared));
    if (x->names) {
        const ag_text_dfa *other;
        AG_TRY(ag_texts_subtract(o->s, NULL, x->names, &other));
        AG_TRY(add_required_match(o, other, AG_SCHEMA_ANY));
    }
    bool all = false;
    if (x->n_properties) AG_TRY(ag_texts_subtract(o->s, uncovered, declared, &uncovered));
    for (size_t i = 0; i < x->n_others; i++) {
        const ag_name_class *c = &x->others[i];
        const ag_text_dfa *names = c->names;
        ag_schema_set *negations;
        size_t n;
        AG_TRY(negations_of(o, c->schemas, &negations, &n));
        if (n && x->n_properties) AG_TRY(ag_texts_subtract(o->s, names, declared, &names));
        for (size_t k = 0; k < n; k++) AG_TRY(add_required_match(o, names, negations[k]));
        all |= !c->names;
        if (c->names) AG_TRY(ag_texts_subtract(o->s, uncovered, c->names, &uncovered));
    }
    return all ? AG_OK : add_required_match(o, uncovered, AG_SCHEMA_ANY);
}

static ag_status complement_object(complement *o, const ag_object_set *x) {
    if (!x) return add_values(o, (ag_value_set){.object = &ag_any_object});
    if (x->n_required_matches) {
        o->decidable = false;
        return AG_OK;
    }
    for (size_t i = 0; i < x->n_properties; i++) AG_TRY(violate_property(o, x->properties[i]));
    AG_TRY(violate_others(o, x));
    ag_object_set *other = ag_schema_alloc(o->s, 2, sizeof *other);
    if (!other) return ag_schema_no_memory(o->s);
    other[0] = other[1] = ag_any_object;
    other[0].max = x->min - 1;
    other[1].min = x->max + 1;
    if (x->min) AG_TRY(add_values(o, (ag_value_set){.object = &other[0]}));
    return x->max != SIZE_MAX ? add_values(o, (ag_value_set){.object = &other[1]}) : AG_OK;
}

static ag_status complement_values(complement *o, const ag_value_set *x) {
    const ag_value_set simple = {
        .null_value = !x->null_value, .true_value = !x->true_value, .false_value = !x->false_value};
    if (simple.null_value || simple.true_value || simple.false_value) AG_TRY(add_values(o, simple));
    AG_TRY(complement_number(o, x->number));
    AG_TRY(complement_string(o, x->string));
    AG_TRY(complement_array(o, x->array));
    return complement_object(o, x->object);
}

ag_status ag_alternatives_complement(ag_schema_compiler *s, ag_alternatives a, bool *decidable,
                                     ag_alternatives *out) {
    AG_TRY(ag_alternatives_expand(s, a, &a));
    *out = ag_any_alternative;
    *decidable = true;
    for (size_t i = 0; i < a.n; i++) {
        complement o = {.s = s, .decidable = true};
        AG_TRY(complement_values(&o, a.list[i].values));
        *decidable &= o.decidable;
        if (!*decidable) return AG_OK;
        AG_TRY(ag_alternatives_intersect(s, *out, o.alternatives, out));
    }
    return AG_OK;
}
