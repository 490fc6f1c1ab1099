/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/value_set.h"
#include "core/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct opposite {
    ag_shaper *s;
    ag_ways ways;
    bool decidable;
} opposite;

static ag_status add_way(opposite *o, ag_shape shape) { return ag_ways_add(o->s, &o->ways, shape); }

enum { MOST_GAPS = 64 };

static int compare_values(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* All numbers between those of a list. */
static ag_status not_listed(opposite *o, const ag_number_shape *x) {
    double values[MOST_GAPS];
    o->decidable = x->n_values <= MOST_GAPS;
    for (size_t i = 0; i < x->n_values && o->decidable; i++) {
        values[i] = json_number_value(x->values[i]);
        o->decidable = fabs(values[i]) < 0x1p53; /* beyond, doubles stand for several */
    }
    if (!o->decidable) return AG_OK;
    qsort(values, x->n_values, sizeof *values, compare_values);
    for (size_t i = 0; i <= x->n_values; i++) {
        if (i > 0 && i < x->n_values && values[i - 1] == values[i]) continue;
        ag_number_shape *gap = ag_shaper_get(o->s, 1, sizeof *gap);
        if (!gap) return ag_shaper_no_memory(o->s);
        gap->has_least = gap->above_least = i > 0;
        gap->has_most = gap->below_most = i < x->n_values;
        if (i > 0) gap->least = values[i - 1];
        if (i < x->n_values) gap->most = values[i];
        AG_TRY(add_way(o, (ag_shape){.number = gap}));
    }
    return AG_OK;
}

/* Of the step and of integers; a step that is not whole cannot be told from others. */
static ag_status not_multiple(opposite *o, const ag_number_shape *x) {
    const double steps[2] = {x->whole ? 1 : 0, x->step};
    for (int i = 0; i < 2; i++) {
        if (steps[i] == 0) continue;
        ag_number_shape *other = ag_shaper_get(o->s, 1, sizeof *other);
        double *avoid = ag_shaper_get(o->s, 1, sizeof *avoid);
        if (!other || !avoid) return ag_shaper_no_memory(o->s);
        *avoid = steps[i];
        other->avoid = avoid;
        other->n_avoid = 1;
        AG_TRY(add_way(o, (ag_shape){.number = other}));
    }
    return AG_OK;
}

static ag_status not_number(opposite *o, const ag_number_shape *x) {
    if (!x) return add_way(o, (ag_shape){.number = &ag_any_number});
    if (x->is_list) return not_listed(o, x);
    if (x->n_avoid || x->step != floor(x->step) || x->step > 1000) {
        o->decidable = false;
        return AG_OK;
    }
    AG_TRY(not_multiple(o, x));
    ag_number_shape *below = ag_shaper_get(o->s, 2, sizeof *below), *above = below + 1;
    if (!below) return ag_shaper_no_memory(o->s);
    below->has_most = above->has_least = true;
    below->most = x->least;
    below->below_most = !x->above_least;
    above->least = x->most;
    above->above_least = !x->below_most;
    if (x->has_least) AG_TRY(add_way(o, (ag_shape){.number = below}));
    return x->has_most ? add_way(o, (ag_shape){.number = above}) : AG_OK;
}

static ag_status not_string(opposite *o, const ag_string_shape *x) {
    if (!x) return add_way(o, (ag_shape){.string = &ag_any_string});
    ag_string_shape *other = ag_shaper_get(o->s, 3, sizeof *other);
    if (!other) return ag_shaper_no_memory(o->s);
    other[0].most = x->least - 1;
    other[1].least = x->most + 1;
    other[1].most = other[2].most = SIZE_MAX;
    if (x->least) AG_TRY(add_way(o, (ag_shape){.string = &other[0]}));
    if (x->most != SIZE_MAX) AG_TRY(add_way(o, (ag_shape){.string = &other[1]}));
    if (!x->texts) return AG_OK;
    AG_TRY(ag_texts_except(o->s, NULL, x->texts, &other[2].texts));
    if (!other[2].texts->n_states) return AG_OK;
    return add_way(o, (ag_shape){.string = &other[2]});
}

/* ---- goals ---- */

/* What breaks a goal: one of several goals, each the opposite of a schema. */
static ag_status goals_against(opposite *o, ag_goal goal, ag_goal **out, size_t *n) {
    ag_shaper *s = o->s;
    *n = 0;
    if (goal == AG_GOAL_ANY) return AG_OK;
    size_t n_list = 1;
    if (goal != AG_GOAL_NEVER) ag_interner_list(&s->goals, goal, &n_list);
    *out = ag_shaper_get(s, n_list, sizeof **out);
    if (!*out) return ag_shaper_no_memory(s);
    if (goal == AG_GOAL_NEVER) {
        (*out)[(*n)++] = AG_GOAL_ANY;
        return AG_OK;
    }
    for (size_t i = 0; i < n_list; i++) {
        size_t all;
        const uint32_t one = ag_interner_list(&s->goals, goal, &all)[i];
        ag_goal against;
        AG_TRY(ag_goal_of(s, one / 2, !(one & 1), &against));
        if (against != AG_GOAL_NEVER) (*out)[(*n)++] = against;
    }
    return AG_OK;
}

/* ---- arrays ---- */

/* An array in which item `at` is there and obeys the goal. */
static ag_status one_item(opposite *o, size_t at, ag_goal goal) {
    ag_array_shape *x = ag_shaper_get(o->s, 1, sizeof *x);
    ag_goal *prefix = ag_shaper_get(o->s, at + 1, sizeof *prefix);
    if (!x || !prefix) return ag_shaper_no_memory(o->s);
    for (size_t i = 0; i < at; i++) prefix[i] = AG_GOAL_ANY;
    prefix[at] = goal;
    *x = (ag_array_shape){.prefix = prefix, .n_prefix = at + 1, .least = at + 1, .most = SIZE_MAX};
    return add_way(o, (ag_shape){.array = x});
}

/* An array in which one of the items from `from` on obeys the goal. */
static ag_status some_item(opposite *o, size_t from, ag_goal goal) {
    ag_array_shape *x = ag_shaper_get(o->s, 1, sizeof *x);
    ag_contains *c = ag_shaper_get(o->s, 1, sizeof *c);
    if (!x || !c) return ag_shaper_no_memory(o->s);
    *c = (ag_contains){.goal = goal, .from = from, .least = 1, .most = SIZE_MAX};
    *x = (ag_array_shape){.least = from + 1, .most = SIZE_MAX, .contains = c, .n_contains = 1};
    return add_way(o, (ag_shape){.array = x});
}

static ag_status not_array(opposite *o, const ag_array_shape *x) {
    if (!x) return add_way(o, (ag_shape){.array = &ag_any_array});
    if (x->n_contains || x->unique) {
        o->decidable = false;
        return AG_OK;
    }
    ag_goal *against;
    size_t n;
    for (size_t i = 0; i < x->n_prefix; i++) {
        AG_TRY(goals_against(o, x->prefix[i], &against, &n));
        for (size_t k = 0; k < n; k++) AG_TRY(one_item(o, i, against[k]));
    }
    AG_TRY(goals_against(o, x->rest, &against, &n));
    for (size_t k = 0; k < n; k++) AG_TRY(some_item(o, x->n_prefix, against[k]));
    ag_array_shape *other = ag_shaper_get(o->s, 2, sizeof *other);
    if (!other) return ag_shaper_no_memory(o->s);
    other[0].most = x->least - 1;
    other[1].least = x->most + 1;
    other[1].most = SIZE_MAX;
    if (x->least) AG_TRY(add_way(o, (ag_shape){.array = &other[0]}));
    return x->most != SIZE_MAX ? add_way(o, (ag_shape){.array = &other[1]}) : AG_OK;
}

/* ---- objects ---- */

/* An object of which one property is said something. */
static ag_status one_property(opposite *o, ag_property p) {
    ag_object_shape *x = ag_shaper_get(o->s, 1, sizeof *x);
    ag_property *kept = ag_shaper_get(o->s, 1, sizeof *kept);
    if (!x || !kept) return ag_shaper_no_memory(o->s);
    *x = ag_any_object;
    *kept = p;
    x->properties = kept;
    x->n_properties = 1;
    return add_way(o, (ag_shape){.object = x});
}

/* An object in which a property of any of these names obeys the goal. */
static ag_status some_property(opposite *o, const ag_text_dfa *names, ag_goal goal) {
    if (names && !names->n_states) return AG_OK;
    ag_object_shape *x = ag_shaper_get(o->s, 1, sizeof *x);
    ag_some_property *some = ag_shaper_get(o->s, 1, sizeof *some);
    if (!x || !some) return ag_shaper_no_memory(o->s);
    *x = ag_any_object;
    *some = (ag_some_property){names, goal};
    x->some = some;
    x->n_some = 1;
    return add_way(o, (ag_shape){.object = x});
}

/* The property is there and breaks its goal, or is not there although it must be. */
static ag_status break_property(opposite *o, ag_property p) {
    ag_goal *against;
    size_t n;
    const bool required = p.required;
    AG_TRY(goals_against(o, p.goal, &against, &n));
    for (size_t i = 0; i < n; i++) {
        p.required = true;
        p.goal = against[i];
        AG_TRY(one_property(o, p));
    }
    if (!required) return AG_OK;
    p.required = false;
    p.goal = AG_GOAL_NEVER;
    return one_property(o, p);
}

/* A name that may not be there, or one that is not declared whose value breaks its goal. */
static ag_status break_others(opposite *o, const ag_object_shape *x) {
    const ag_text_dfa *declared, *left = NULL;
    ag_text_dfa names_of_properties;
    AG_TRY(ag_object_names(o->s, x, &names_of_properties));
    AG_TRY(ag_shaper_keep(o->s, &names_of_properties, &declared));
    if (x->names) {
        const ag_text_dfa *other;
        AG_TRY(ag_texts_except(o->s, NULL, x->names, &other));
        AG_TRY(some_property(o, other, AG_GOAL_ANY));
    }
    bool all = false;
    if (x->n_properties) AG_TRY(ag_texts_except(o->s, left, declared, &left));
    for (size_t i = 0; i < x->n_others; i++) {
        const ag_name_class *c = &x->others[i];
        const ag_text_dfa *names = c->names;
        ag_goal *against;
        size_t n;
        AG_TRY(goals_against(o, c->goal, &against, &n));
        if (n && x->n_properties) AG_TRY(ag_texts_except(o->s, names, declared, &names));
        for (size_t k = 0; k < n; k++) AG_TRY(some_property(o, names, against[k]));
        all |= !c->names;
        if (c->names) AG_TRY(ag_texts_except(o->s, left, c->names, &left));
    }
    return all ? AG_OK : some_property(o, left, AG_GOAL_ANY);
}

static ag_status not_object(opposite *o, const ag_object_shape *x) {
    if (!x) return add_way(o, (ag_shape){.object = &ag_any_object});
    if (x->n_some) {
        o->decidable = false;
        return AG_OK;
    }
    for (size_t i = 0; i < x->n_properties; i++) AG_TRY(break_property(o, x->properties[i]));
    AG_TRY(break_others(o, x));
    ag_object_shape *other = ag_shaper_get(o->s, 2, sizeof *other);
    if (!other) return ag_shaper_no_memory(o->s);
    other[0] = other[1] = ag_any_object;
    other[0].most = x->least - 1;
    other[1].least = x->most + 1;
    if (x->least) AG_TRY(add_way(o, (ag_shape){.object = &other[0]}));
    return x->most != SIZE_MAX ? add_way(o, (ag_shape){.object = &other[1]}) : AG_OK;
}

static ag_status not_shape(opposite *o, const ag_shape *x) {
    const ag_shape simple = {.null = !x->null, .yes = !x->yes, .no = !x->no};
    if (simple.null || simple.yes || simple.no) AG_TRY(add_way(o, simple));
    AG_TRY(not_number(o, x->number));
    AG_TRY(not_string(o, x->string));
    AG_TRY(not_array(o, x->array));
    return not_object(o, x->object);
}

ag_status ag_ways_not(ag_shaper *s, ag_ways a, bool *decidable, ag_ways *out) {
    AG_TRY(ag_ways_flatten(s, a, &a));
    *out = ag_any_way;
    *decidable = true;
    for (size_t i = 0; i < a.n; i++) {
        opposite o = {.s = s, .decidable = true};
        AG_TRY(not_shape(&o, a.list[i].shape));
        *decidable &= o.decidable;
        if (!*decidable) return AG_OK;
        AG_TRY(ag_ways_and(s, *out, o.ways, out));
    }
    return AG_OK;
}
