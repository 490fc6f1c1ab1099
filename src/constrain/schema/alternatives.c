/* SPDX-License-Identifier: Apache-2.0 */
/* Alternatives: union, intersection and expansion of lists, and whether they are empty. */
#include "constrain/schema/value_set.h"
#include "core/fail.h"

#include <string.h>

ag_status ag_alternatives_add(ag_schema_compiler *s, ag_alternatives a, ag_alternatives b,
                              ag_alternatives *out) {
    if (!a.n || !b.n) {
        *out = a.n ? a : b;
        return AG_OK;
    }
    const size_t n = a.n + b.n;
    if (n > AG_ALTERNATIVES_MAX) {
        return AG_FAIL(s->err, LIMIT, "schema: too many alternatives; the maximum is %d",
                       AG_ALTERNATIVES_MAX);
    }
    ag_alternative *list = ag_schema_alloc(s, n, sizeof *list);
    if (!list) return ag_schema_no_memory(s);
    memcpy(list, a.list, a.n * sizeof *list);
    memcpy(list + a.n, b.list, b.n * sizeof *list);
    *out = (ag_alternatives){list, n};
    return AG_OK;
}

ag_status ag_alternatives_add_set(ag_schema_compiler *s, ag_alternatives *alternatives,
                                  ag_value_set values) {
    ag_value_set *copy = ag_schema_alloc(s, 1, sizeof *copy);
    ag_alternative *alternative = ag_schema_alloc(s, 1, sizeof *alternative);
    if (!copy || !alternative) return ag_schema_no_memory(s);
    *copy = values;
    *alternative = (ag_alternative){copy, 0};
    return ag_alternatives_add(s, *alternatives, (ag_alternatives){alternative, 1}, alternatives);
}

ag_status ag_alternatives_expand(ag_schema_compiler *s, ag_alternatives a, ag_alternatives *out) {
    bool flat = true;
    for (size_t i = 0; i < a.n; i++) flat &= a.list[i].values != NULL;
    *out = a;
    if (flat) return AG_OK;
    ag_alternatives all = {0};
    for (size_t i = 0; i < a.n; i++) {
        ag_alternatives one = {&a.list[i], 1};
        if (!a.list[i].values) {
            AG_TRY(ag_schema_set_expand(s, a.list[i].schemas, &one));
            if (++s->depth > 200) return AG_FAIL(s->err, LIMIT, "schema: nested too deeply");
            AG_TRY(ag_alternatives_expand(s, one, &one));
            s->depth--;
        }
        AG_TRY(ag_alternatives_add(s, all, one, &all));
    }
    *out = all;
    return AG_OK;
}

ag_status ag_schema_set_values(ag_schema_compiler *s, ag_schema_set schemas, ag_alternatives *out) {
    AG_TRY(ag_schema_set_expand(s, schemas, out));
    return ag_alternatives_expand(s, *out, out);
}

static bool is_anything(ag_alternatives a) {
    return a.n == 1 && (a.list[0].values == &ag_any_value ||
                        (!a.list[0].values && a.list[0].schemas == AG_SCHEMA_ANY));
}

ag_status ag_alternatives_intersect(ag_schema_compiler *s, ag_alternatives a, ag_alternatives b,
                                    ag_alternatives *out) {
    *out = is_anything(a) ? b : a;
    if (is_anything(a) || is_anything(b)) return AG_OK;
    AG_TRY(ag_alternatives_expand(s, a, &a));
    AG_TRY(ag_alternatives_expand(s, b, &b));
    *out = (ag_alternatives){0};
    if (!a.n || !b.n) return AG_OK;
    ag_alternative *list = ag_schema_alloc(s, a.n * b.n, sizeof *list);
    if (!list) return ag_schema_no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < a.n; i++) {
        for (size_t k = 0; k < b.n; k++) {
            const ag_value_set *both;
            AG_TRY(ag_value_set_intersect(s, a.list[i].values, b.list[k].values, &both));
            if (both) list[n++] = (ag_alternative){both, 0};
        }
    }
    if (n > AG_ALTERNATIVES_MAX) {
        return AG_FAIL(s->err, LIMIT, "schema: too many alternatives; the maximum is %d",
                       AG_ALTERNATIVES_MAX);
    }
    *out = (ag_alternatives){list, n};
    return AG_OK;
}

/* ---- emptiness ---- */

static ag_status object_is_empty(ag_schema_compiler *s, const ag_object_set *x, int depth,
                                 bool *empty) {
    *empty = ag_object_is_empty(x);
    for (size_t i = 0; i < x->n_properties && !*empty && depth > 0; i++) {
        const ag_property *p = &x->properties[i];
        if (p->required) AG_TRY(ag_schema_set_is_empty(s, p->schemas, depth - 1, empty));
    }
    return AG_OK;
}

static ag_status array_is_empty(ag_schema_compiler *s, const ag_array_set *x, int depth,
                                bool *empty) {
    *empty = x->min > x->max;
    for (size_t i = 0; i < x->min && i <= x->n_prefix && !*empty && depth > 0; i++) {
        AG_TRY(ag_schema_set_is_empty(s, ag_array_item_schemas(x, i), depth - 1, empty));
    }
    return AG_OK;
}

ag_status ag_value_set_is_empty(ag_schema_compiler *s, const ag_value_set *x, int depth,
                                bool *empty) {
    *empty = false;
    if (x->null_value || x->true_value || x->false_value || x->number) return AG_OK;
    if (x->string) {
        if (!x->string->texts || (!x->string->min && x->string->max == SIZE_MAX)) return AG_OK;
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

ag_status ag_schema_set_is_empty(ag_schema_compiler *s, ag_schema_set schemas, int depth,
                                 bool *empty) {
    *empty = schemas == AG_SCHEMA_NONE;
    if (schemas == AG_SCHEMA_NONE || schemas == AG_SCHEMA_ANY || depth <= 0) return AG_OK;
    if (ag_schema_set_is_expanding(s, schemas)) return AG_OK; /* not known yet */
    ag_alternatives alternatives;
    AG_TRY(ag_schema_set_values(s, schemas, &alternatives));
    for (size_t i = 0; i < alternatives.n; i++) {
        AG_TRY(ag_value_set_is_empty(s, alternatives.list[i].values, depth, empty));
        if (!*empty) return AG_OK;
    }
    *empty = true;
    return AG_OK;
}
