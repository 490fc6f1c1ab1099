/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/value_set.h"

#include <math.h>

static const ag_name_class any_name[] = {{NULL, AG_SCHEMA_ANY}};
const ag_number_set ag_any_number = {.integer = false};
const ag_string_set ag_any_string = {.max = SIZE_MAX};
const ag_array_set ag_any_array = {.max = SIZE_MAX};
const ag_object_set ag_any_object = {.others = any_name, .n_others = 1, .max = SIZE_MAX};
const ag_value_set ag_any_value = {.null_value = true,
                                   .true_value = true,
                                   .false_value = true,
                                   .number = &ag_any_number,
                                   .string = &ag_any_string,
                                   .array = &ag_any_array,
                                   .object = &ag_any_object};
static const ag_alternative any_alternative[] = {{&ag_any_value, AG_SCHEMA_ANY}};
const ag_alternatives ag_any_alternative = {any_alternative, 1};

ag_schema_set ag_object_other_schemas(const ag_object_set *o, const char *name, size_t n) {
    for (size_t i = 0; i < o->n_others; i++) {
        const ag_name_class *c = &o->others[i];
        if (!c->names || ag_text_dfa_accepts(c->names, name, n)) return c->schemas;
    }
    return AG_SCHEMA_NONE;
}

double ag_number_gcd(double a, double b) {
    while (b != 0) {
        const double remainder = fmod(a, b);
        a = b;
        b = remainder;
    }
    return a;
}

bool ag_number_set_has(const ag_number_set *x, const json_t *value) {
    const double v = json_number_value(value);
    if (x->integer && floor(v) != v) return false;
    if (x->has_min && (v < x->min || (x->min_exclusive && v == x->min))) return false;
    if (x->has_max && (v > x->max || (x->max_exclusive && v == x->max))) return false;
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
