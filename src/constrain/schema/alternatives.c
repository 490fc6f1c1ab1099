/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of alternatives. */
#include "constrain/schema/value_set.h"
#include "core/fail.h"

#include <string.h>

ag_status ag_ways_or(ag_shaper *s, ag_ways a, ag_ways b, ag_ways *out) {
    if (!a.n || !b.n) {
        *out = a.n ? a : b;
        return AG_OK;
    }
    const size_t n = a.n + b.n;
    if (n > AG_MOST_WAYS) {
        return AG_FAIL(s->err, LIMIT, "schema: more than %d alternatives", AG_MOST_WAYS);
    }
    ag_way *list = ag_shaper_get(s, n, sizeof *list);
    if (!list) return ag_shaper_no_memory(s);
    memcpy(list, a.list, a.n * sizeof *list);
    memcpy(list + a.n, b.list, b.n * sizeof *list);
    *out = (ag_ways){list, n};
    return AG_OK;
}

ag_status ag_ways_add(ag_shaper *s, ag_ways *ways, ag_shape shape) {
    ag_shape *kept = ag_shaper_get(s, 1, sizeof *kept);
    ag_way *way = ag_shaper_get(s, 1, sizeof *way);
    if (!kept || !way) return ag_shaper_no_memory(s);
    *kept = shape;
    *way = (ag_way){kept, 0};
    return ag_ways_or(s, *ways, (ag_ways){way, 1}, ways);
}

ag_status ag_ways_flatten(ag_shaper *s, ag_ways a, ag_ways *out) {
    bool flat = true;
    for (size_t i = 0; i < a.n; i++) flat &= a.list[i].shape != NULL;
    *out = a;
    if (flat) return AG_OK;
    ag_ways all = {0};
    for (size_t i = 0; i < a.n; i++) {
        ag_ways part = {&a.list[i], 1};
        if (!a.list[i].shape) {
            AG_TRY(ag_goal_expand(s, a.list[i].goal, &part));
            if (++s->depth > 200) return AG_FAIL(s->err, LIMIT, "schema: nested too deeply");
            AG_TRY(ag_ways_flatten(s, part, &part));
            s->depth--;
        }
        AG_TRY(ag_ways_or(s, all, part, &all));
    }
    *out = all;
    return AG_OK;
}

static bool is_anything(ag_ways a) {
    return a.n == 1 && (a.list[0].shape == &ag_any_shape ||
                        (!a.list[0].shape && a.list[0].goal == AG_GOAL_ANY));
}

ag_status ag_ways_and(ag_shaper *s, ag_ways a, ag_ways b, ag_ways *out) {
    *out = is_anything(a) ? b : a;
    if (is_anything(a) || is_anything(b)) return AG_OK;
    AG_TRY(ag_ways_flatten(s, a, &a));
    AG_TRY(ag_ways_flatten(s, b, &b));
    *out = (ag_ways){0};
    if (!a.n || !b.n) return AG_OK;
    ag_way *list = ag_shaper_get(s, a.n * b.n, sizeof *list);
    if (!list) return ag_shaper_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a.n; i++) {
        for (size_t k = 0; k < b.n; k++) {
            const ag_shape *both;
            AG_TRY(ag_shape_and(s, a.list[i].shape, b.list[k].shape, &both));
            if (both) list[n++] = (ag_way){both, 0};
        }
    }
    if (n > AG_MOST_WAYS) {
        return AG_FAIL(s->err, LIMIT, "schema: more than %d alternatives", AG_MOST_WAYS);
    }
    *out = (ag_ways){list, n};
    return AG_OK;
}

/* ---- emptiness ---- */

static ag_status object_is_empty(ag_shaper *s, const ag_object_shape *x, int depth, bool *empty) {
    *empty = ag_object_is_empty(x);
    for (size_t i = 0; i < x->n_properties && !*empty && depth > 0; i++) {
        const ag_property *p = &x->properties[i];
        if (p->required) AG_TRY(ag_goal_is_empty(s, p->goal, depth - 1, empty));
    }
    return AG_OK;
}

static ag_status array_is_empty(ag_shaper *s, const ag_array_shape *x, int depth, bool *empty) {
    *empty = x->least > x->most;
    for (size_t i = 0; i < x->least && i <= x->n_prefix && !*empty && depth > 0; i++) {
        AG_TRY(ag_goal_is_empty(s, ag_array_item(x, i), depth - 1, empty));
    }
    return AG_OK;
}

ag_status ag_shape_is_empty(ag_shaper *s, const ag_shape *x, int depth, bool *empty) {
    *empty = false;
    if (x->null || x->yes || x->no || x->number) return AG_OK;
    if (x->string) {
        if (!x->string->texts || (!x->string->least && x->string->most == SIZE_MAX)) return AG_OK;
        const ag_text_dfa *texts;
        AG_TRY(ag_string_dfa(s, x->string, &texts));
        if (texts->n_states) return AG_OK;
    }
    bool none = true;
    if (x->array) AG_TRY(array_is_empty(s, x->array, depth, &none));
    if (none && x->object) AG_TRY(object_is_empty(s, x->object, depth, &none));
    *empty = none;
    return AG_OK;
}

ag_status ag_goal_is_empty(ag_shaper *s, ag_goal goal, int depth, bool *empty) {
    *empty = goal == AG_GOAL_NEVER;
    if (goal == AG_GOAL_NEVER || goal == AG_GOAL_ANY || depth <= 0) return AG_OK;
    if (ag_goal_is_running(s, goal)) return AG_OK; /* nobody knows yet */
    ag_ways ways;
    AG_TRY(ag_goal_expand(s, goal, &ways));
    AG_TRY(ag_ways_flatten(s, ways, &ways));
    for (size_t i = 0; i < ways.n; i++) {
        AG_TRY(ag_shape_is_empty(s, ways.list[i].shape, depth, empty));
        if (!*empty) return AG_OK;
    }
    *empty = true;
    return AG_OK;
}
