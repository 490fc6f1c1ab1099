/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/shape.h"
#include "core/fail.h"

#include <string.h>

typedef struct opposite {
    ag_shaper *s;
    ag_ways ways;
    bool decidable;
} opposite;

static ag_status add_way(opposite *o, ag_shape shape) {
    ag_shape *kept = ag_shaper_get(o->s, 1, sizeof *kept);
    ag_way *way = ag_shaper_get(o->s, 1, sizeof *way);
    if (!kept || !way) return ag_shaper_no_memory(o->s);
    *kept = shape;
    *way = (ag_way){kept, 0};
    return ag_ways_or(o->s, o->ways, (ag_ways){way, 1}, &o->ways);
}

static ag_status not_number(opposite *o, const ag_number_shape *x) {
    if (!x) return add_way(o, (ag_shape){.number = &ag_any_number});
    if (x->is_list || x->step != 0 || x->whole) {
        o->decidable = false;
        return AG_OK;
    }
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
    ag_shaper *s = o->s;
    ag_text_dfa all, rest;
    AG_TRY(ag_text_dfa_lengths(&all, 0, SIZE_MAX, &s->limits, s->err));
    ag_status st = ag_text_dfa_combine(&rest, &all, x->texts, AG_TEXT_EXCEPT, &s->limits, s->err);
    ag_text_dfa_free(&all);
    if (st == AG_OK) st = ag_shaper_keep(s, &rest, &other[2].texts);
    if (st != AG_OK || !other[2].texts->n_states) return st;
    return add_way(o, (ag_shape){.string = &other[2]});
}

static ag_status not_array(opposite *o, const ag_array_shape *x) {
    if (!x) return add_way(o, (ag_shape){.array = &ag_any_array});
    if (x->n_prefix || x->rest != AG_GOAL_ANY) {
        o->decidable = false;
        return AG_OK;
    }
    ag_array_shape *other = ag_shaper_get(o->s, 2, sizeof *other);
    if (!other) return ag_shaper_no_memory(o->s);
    other[0].most = x->least - 1;
    other[1].least = x->most + 1;
    other[1].most = SIZE_MAX;
    if (x->least) AG_TRY(add_way(o, (ag_shape){.array = &other[0]}));
    return x->most != SIZE_MAX ? add_way(o, (ag_shape){.array = &other[1]}) : AG_OK;
}

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

/* The property is there and breaks its goal, which is one schema. */
static ag_status break_goal(opposite *o, ag_property p) {
    p.required = true;
    if (p.goal == AG_GOAL_ANY) return AG_OK;
    if (p.goal == AG_GOAL_NEVER) {
        p.goal = AG_GOAL_ANY;
        return one_property(o, p);
    }
    size_t n;
    const uint32_t one = ag_interner_list(&o->s->goals, p.goal, &n)[0];
    AG_TRY(ag_goal_of(o->s, one / 2, !(one & 1), &p.goal));
    return p.goal == AG_GOAL_NEVER ? AG_OK : one_property(o, p);
}

static ag_status not_object(opposite *o, const ag_object_shape *x) {
    if (!x) return add_way(o, (ag_shape){.object = &ag_any_object});
    const bool open = x->n_others == 1 && !x->others[0].names && x->others[0].goal == AG_GOAL_ANY;
    if (!open || x->names) {
        o->decidable = false;
        return AG_OK;
    }
    for (size_t i = 0; i < x->n_properties; i++) {
        ag_property p = x->properties[i];
        size_t n_goals = 0;
        if (p.goal != AG_GOAL_ANY && p.goal != AG_GOAL_NEVER) {
            ag_interner_list(&o->s->goals, p.goal, &n_goals);
        }
        if (n_goals > 1) {
            o->decidable = false;
            return AG_OK;
        }
        AG_TRY(break_goal(o, p));
        if (!p.required) continue;
        p.required = false;
        p.goal = AG_GOAL_NEVER;
        AG_TRY(one_property(o, p));
    }
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
    static const ag_way any[] = {{&ag_any_shape, 0}};
    AG_TRY(ag_ways_flatten(s, a, &a));
    *out = (ag_ways){any, 1};
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
