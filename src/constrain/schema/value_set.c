/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/value_set.h"

#include <math.h>

static const ag_name_class any_name[] = {{NULL, AG_GOAL_ANY}};
const ag_number_shape ag_any_number = {.whole = false};
const ag_string_shape ag_any_string = {.most = SIZE_MAX};
const ag_array_shape ag_any_array = {.most = SIZE_MAX};
const ag_object_shape ag_any_object = {.others = any_name, .n_others = 1, .most = SIZE_MAX};
const ag_shape ag_any_shape = {.null = true,
                               .yes = true,
                               .no = true,
                               .number = &ag_any_number,
                               .string = &ag_any_string,
                               .array = &ag_any_array,
                               .object = &ag_any_object};
static const ag_way any_way[] = {{&ag_any_shape, AG_GOAL_ANY}};
const ag_ways ag_any_way = {any_way, 1};

ag_goal ag_object_other(const ag_object_shape *o, const char *name, size_t n) {
    for (size_t i = 0; i < o->n_others; i++) {
        const ag_name_class *c = &o->others[i];
        if (!c->names || ag_text_dfa_accepts(c->names, name, n)) return c->goal;
    }
    return AG_GOAL_NEVER;
}

bool ag_number_obeys(const ag_number_shape *x, const json_t *value) {
    const double v = json_number_value(value);
    if (x->whole && floor(v) != v) return false;
    if (x->has_least && (v < x->least || (x->above_least && v == x->least))) return false;
    if (x->has_most && (v > x->most || (x->below_most && v == x->most))) return false;
    if (x->step != 0) {
        const double q = v / x->step;
        if (floor(q) != q) return false;
    }
    for (size_t i = 0; i < x->n_avoid; i++) {
        if (fmod(v, x->avoid[i]) == 0) return false;
    }
    if (!x->is_list) return true;
    for (size_t i = 0; i < x->n_values; i++) {
        if (json_number_value(x->values[i]) == v) return true;
    }
    return false;
}
