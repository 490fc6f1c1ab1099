/* SPDX-License-Identifier: Apache-2.0 */
/* Keywords that combine schemas, and the expansion of schema sets. */
#include "constrain/schema/keywords.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

struct ag_schema_expansion {
    ag_alternatives alternatives;
    bool is_known, is_expanding;
};

typedef struct schema {
    ag_schema_compiler *s;
    uint32_t id;
    const json_t *v;
    const ag_value_set *types; /* from keywords of a single type; NULL: not read yet */
    bool types_applied;
    ag_alternatives alternatives; /* result of the keywords so far */
} schema;

static ag_status alternatives_of_set(ag_schema_compiler *s, ag_schema_set schemas,
                                     ag_alternatives *out) {
    *out = (ag_alternatives){0};
    if (schemas == AG_SCHEMA_NONE) return AG_OK;
    ag_alternative *alternative = ag_schema_alloc(s, 1, sizeof *alternative);
    if (!alternative) return ag_schema_no_memory(s);
    *alternative = (ag_alternative){schemas == AG_SCHEMA_ANY ? &ag_any_value : NULL, schemas};
    *out = (ag_alternatives){alternative, 1};
    return AG_OK;
}

static ag_status alternatives_of_values(ag_schema_compiler *s, const ag_value_set *values,
                                        ag_alternatives *out) {
    ag_alternative *alternative = ag_schema_alloc(s, 1, sizeof *alternative);
    if (!alternative) return ag_schema_no_memory(s);
    *alternative = (ag_alternative){values, 0};
    *out = (ag_alternatives){alternative, 1};
    return AG_OK;
}

static ag_status sub_schema(schema *x, const char *key, const char *sub, size_t index,
                            const json_t *v, ag_schema_set *out) {
    uint32_t child;
    AG_TRY(ag_schema_doc_child(&x->s->doc, x->id, key, sub, index, v, &child, x->s->err));
    return ag_schema_set_of(x->s, child, false, out);
}

static ag_status intersect_with(schema *x, ag_alternatives alternatives) {
    return ag_alternatives_intersect(x->s, x->alternatives, alternatives, &x->alternatives);
}

static ag_status intersect_with_set(schema *x, ag_schema_set schemas) {
    ag_alternatives alternatives;
    AG_TRY(alternatives_of_set(x->s, schemas, &alternatives));
    return intersect_with(x, alternatives);
}

/* Returns the value set of single types, which is read on first use. */
static ag_status type_alternatives(schema *x, ag_alternatives *out) {
    if (!x->types) AG_TRY(ag_schema_read_types(x->s, x->id, &x->types));
    return alternatives_of_values(x->s, x->types, out);
}

static ag_status apply_types(schema *x) {
    if (x->types_applied) return AG_OK;
    x->types_applied = true;
    ag_alternatives alternatives;
    AG_TRY(type_alternatives(x, &alternatives));
    return intersect_with(x, alternatives);
}

/* ---- allOf, anyOf, oneOf ---- */

static ag_status read_list(schema *x, const char *key, const json_t *v, ag_schema_set **out,
                           size_t *n) {
    *n = json_array_size(v);
    if (!*n) return ag_schema_malformed(x->s, x->id, key, "not a list of schemas");
    *out = ag_schema_alloc(x->s, *n, sizeof **out);
    if (!*out) return ag_schema_no_memory(x->s);
    for (size_t i = 0; i < *n; i++) {
        AG_TRY(sub_schema(x, key, NULL, i, json_array_get(v, i), &(*out)[i]));
    }
    return AG_OK;
}

static ag_status apply_all_of(schema *x, const json_t *v) {
    ag_schema_set *sets;
    size_t n;
    AG_TRY(read_list(x, "allOf", v, &sets, &n));
    for (size_t i = 0; i < n; i++) AG_TRY(intersect_with_set(x, sets[i]));
    return AG_OK;
}

static ag_status union_of_sets(schema *x, const ag_schema_set *sets, size_t n,
                               ag_alternatives *out) {
    *out = (ag_alternatives){0};
    for (size_t i = 0; i < n; i++) {
        ag_alternatives one;
        AG_TRY(alternatives_of_set(x->s, sets[i], &one));
        AG_TRY(ag_alternatives_add(x->s, *out, one, out));
    }
    return AG_OK;
}

static ag_status apply_any_of(schema *x, const json_t *v) {
    ag_schema_set *sets;
    size_t n;
    ag_alternatives alternatives;
    AG_TRY(read_list(x, "anyOf", v, &sets, &n));
    AG_TRY(union_of_sets(x, sets, n, &alternatives));
    return intersect_with(x, alternatives);
}

/* Sets *disjoint if certainly no value matches both schema sets and the schema's own types. */
static ag_status are_disjoint(schema *x, ag_schema_set a, ag_schema_set b, bool *disjoint) {
    ag_alternatives types, one, other;
    AG_TRY(type_alternatives(x, &types));
    AG_TRY(alternatives_of_set(x->s, a, &one));
    AG_TRY(alternatives_of_set(x->s, b, &other));
    AG_TRY(ag_alternatives_intersect(x->s, one, other, &one));
    AG_TRY(ag_alternatives_intersect(x->s, types, one, &one));
    AG_TRY(ag_alternatives_expand(x->s, one, &one));
    *disjoint = true;
    for (size_t i = 0; i < one.n && *disjoint; i++) {
        AG_TRY(ag_value_set_is_empty(x->s, one.list[i].values, 4, disjoint));
    }
    return AG_OK;
}

static ag_status negate(schema *x, ag_schema_set schemas, bool *decidable, ag_alternatives *out) {
    ag_alternatives alternatives;
    AG_TRY(alternatives_of_set(x->s, schemas, &alternatives));
    return ag_alternatives_complement(x->s, alternatives, decidable, out);
}

/* Returns the values of sets[i] that match no other set. Disjoint sets are skipped. */
static ag_status only_set(schema *x, const ag_schema_set *sets, size_t n, size_t i,
                          const bool *disjoint, ag_alternatives *out) {
    AG_TRY(alternatives_of_set(x->s, sets[i], out));
    for (size_t k = 0; k < n; k++) {
        if (k == i || disjoint[i < k ? i * n + k : k * n + i]) continue;
        bool decidable;
        ag_alternatives other;
        AG_TRY(negate(x, sets[k], &decidable, &other));
        if (!decidable) {
            char message[120];
            snprintf(message, sizeof message,
                     "schemas %zu and %zu overlap and cannot be separated; use anyOf",
                     i < k ? i : k, i < k ? k : i);
            return ag_schema_unsupported(x->s, x->id, "oneOf", message);
        }
        AG_TRY(ag_alternatives_intersect(x->s, *out, other, out));
    }
    return AG_OK;
}

static ag_status apply_one_of(schema *x, const json_t *v) {
    ag_schema_set *sets;
    size_t n;
    AG_TRY(read_list(x, "oneOf", v, &sets, &n));
    bool *disjoint = ag_schema_alloc(x->s, n * n, sizeof *disjoint);
    if (!disjoint) return ag_schema_no_memory(x->s);
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            AG_TRY(are_disjoint(x, sets[i], sets[k], &disjoint[i * n + k]));
            all &= disjoint[i * n + k];
        }
    }
    ag_alternatives alternatives = {0};
    if (all) AG_TRY(union_of_sets(x, sets, n, &alternatives));
    for (size_t i = 0; i < n && !all; i++) {
        ag_alternatives one;
        AG_TRY(only_set(x, sets, n, i, disjoint, &one));
        AG_TRY(ag_alternatives_add(x->s, alternatives, one, &alternatives));
    }
    return intersect_with(x, alternatives);
}

/* ---- not, if ---- */

static ag_status apply_not(schema *x, const json_t *v) {
    ag_schema_set schemas;
    bool decidable;
    ag_alternatives alternatives;
    const json_t *inner = json_object_get(v, "not");
    AG_TRY(sub_schema(x, "not", NULL, SIZE_MAX, v, &schemas));
    if (inner && json_object_size(v) == 1) { /* two negations cancel out */
        uint32_t child;
        AG_TRY(ag_schema_doc_child(&x->s->doc, x->id, "not", NULL, SIZE_MAX, v, &child, x->s->err));
        AG_TRY(ag_schema_doc_child(&x->s->doc, child, "not", NULL, SIZE_MAX, inner, &child,
                                   x->s->err));
        AG_TRY(ag_schema_set_of(x->s, child, false, &schemas));
        return intersect_with_set(x, schemas);
    }
    AG_TRY(negate(x, schemas, &decidable, &alternatives));
    if (!decidable) {
        return ag_schema_unsupported(x->s, x->id, "not",
                                     "the negation of this schema is not supported");
    }
    return intersect_with(x, alternatives);
}

static ag_status optional_schemas(schema *x, const char *key, ag_schema_set *out) {
    const json_t *v = json_object_get(x->v, key);
    *out = AG_SCHEMA_ANY;
    return v ? sub_schema(x, key, NULL, SIZE_MAX, v, out) : AG_OK;
}

static ag_status apply_if(schema *x, const json_t *v) {
    ag_schema_set condition, then, otherwise;
    AG_TRY(optional_schemas(x, "then", &then));
    AG_TRY(optional_schemas(x, "else", &otherwise));
    if (then == AG_SCHEMA_ANY && otherwise == AG_SCHEMA_ANY) return AG_OK;
    AG_TRY(sub_schema(x, "if", NULL, SIZE_MAX, v, &condition));
    bool decidable;
    ag_alternatives then_branch, else_branch, alternative;
    AG_TRY(negate(x, condition, &decidable, &else_branch));
    if (!decidable) {
        return ag_schema_unsupported(x->s, x->id, "if",
                                     "the negation of this schema is not supported");
    }
    AG_TRY(alternatives_of_set(x->s, condition, &then_branch));
    AG_TRY(alternatives_of_set(x->s, then, &alternative));
    AG_TRY(ag_alternatives_intersect(x->s, then_branch, alternative, &then_branch));
    AG_TRY(alternatives_of_set(x->s, otherwise, &alternative));
    AG_TRY(ag_alternatives_intersect(x->s, else_branch, alternative, &else_branch));
    AG_TRY(ag_alternatives_add(x->s, then_branch, else_branch, &then_branch));
    return intersect_with(x, then_branch);
}

/* ---- dependencies ---- */

/* Returns the objects with these properties. others: and all values that are not objects. */
static ag_status object_alternative(schema *x, const ag_property *list, size_t n, bool others,
                                    ag_alternatives *out) {
    ag_object_set *object = ag_schema_alloc(x->s, 1, sizeof *object);
    ag_value_set *values = ag_schema_alloc(x->s, 1, sizeof *values);
    if (!object || !values) return ag_schema_no_memory(x->s);
    *object = ag_any_object;
    object->properties = list;
    object->n_properties = n;
    if (others) *values = ag_any_value;
    values->object = object;
    return alternatives_of_values(x->s, values, out);
}

static ag_status apply_dependency(schema *x, const char *key, const char *name, const json_t *v) {
    const size_t n = json_array_size(v);
    ag_property *list = ag_schema_alloc(x->s, n + 2, sizeof *list);
    if (!list) return ag_schema_no_memory(x->s);
    ag_alternatives absent, present, more;
    list[0] = (ag_property){name, strlen(name), false, AG_SCHEMA_NONE};
    AG_TRY(object_alternative(x, list, 1, true, &absent));
    size_t n_list = 1;
    list[1] = (ag_property){name, strlen(name), true, AG_SCHEMA_ANY};
    for (size_t i = 0; i < n; i++) {
        const json_t *other = json_array_get(v, i);
        if (!json_is_string(other))
            return ag_schema_malformed(x->s, x->id, key, "not a list of strings");
        const ag_property p = {json_string_value(other), json_string_length(other), true,
                               AG_SCHEMA_ANY};
        bool is_known = false;
        for (size_t k = 1; k <= n_list; k++) {
            is_known |= list[k].len == p.len && !memcmp(list[k].name, p.name, p.len);
        }
        AG_TRY(ag_schema_charge(x->s, n_list / 128));
        if (!is_known) list[1 + n_list++] = p;
    }
    AG_TRY(object_alternative(x, list + 1, n_list, false, &present));
    if (!json_is_array(v)) {
        ag_schema_set schemas;
        AG_TRY(sub_schema(x, key, name, SIZE_MAX, v, &schemas));
        AG_TRY(alternatives_of_set(x->s, schemas, &more));
        AG_TRY(ag_alternatives_intersect(x->s, present, more, &present));
    }
    AG_TRY(ag_alternatives_add(x->s, absent, present, &absent));
    return intersect_with(x, absent);
}

static ag_status apply_dependencies(schema *x, const char *key, const json_t *v) {
    if (!json_is_object(v)) return ag_schema_malformed(x->s, x->id, key, "not an object");
    json_t *object = (json_t *)(uintptr_t)v, *member; /* iterating changes nothing */
    const char *name;
    json_object_foreach(object, name, member) {
        const json_t *one = json_is_string(member) ? NULL : member;
        if (!one) return ag_schema_malformed(x->s, x->id, key, "neither a list nor a schema");
        AG_TRY(apply_dependency(x, key, name, one));
    }
    return AG_OK;
}

/* ---- values ---- */

static ag_status apply_values(schema *x, const char *key, const json_t *v) {
    const bool one = !strcmp(key, "const");
    const size_t n = one ? 1 : json_array_size(v);
    if (!one && !json_is_array(v)) return ag_schema_malformed(x->s, x->id, key, "not a list");
    const json_t **values = ag_schema_alloc(x->s, n, sizeof *values);
    if (!values) return ag_schema_no_memory(x->s);
    for (size_t i = 0; i < n; i++) values[i] = one ? v : json_array_get(v, i);
    ag_alternatives alternatives;
    AG_TRY(ag_schema_read_values(x->s, x->id, key, values, n, &alternatives));
    return intersect_with(x, alternatives);
}

/* ---- all keywords ---- */

static bool is_one_of(const char *key, const char *const *list) {
    while (*list && strcmp(*list, key)) list++;
    return *list != NULL;
}

static const char *const type_keywords[] = {
    "type",        "minimum",       "maximum",         "exclusiveMinimum",  "exclusiveMaximum",
    "multipleOf",  "minLength",     "maxLength",       "pattern",           "format",
    "items",       "prefixItems",   "additionalItems", "minItems",          "maxItems",
    "uniqueItems", "contains",      "properties",      "patternProperties", "additionalProperties",
    "required",    "minProperties", "maxProperties",   "propertyNames",     "unevaluatedProperties",
    NULL};
static const char *const unsupported_keywords[] = {
    "unevaluatedItems", "$dynamicRef", "$recursiveRef", "disallow", "extends", NULL};
static const char *const combining_keywords[] = {
    "allOf", "anyOf", "oneOf", "not", "if", "$ref", "dependentSchemas", "dependencies", NULL};

static ag_status check_unevaluated(schema *x) {
    const json_t *v = json_object_get(x->v, "unevaluatedProperties");
    if (!v || json_is_true(v)) return AG_OK;
    for (size_t i = 0; combining_keywords[i]; i++) {
        if (!json_object_get(x->v, combining_keywords[i])) continue;
        return ag_schema_unsupported(x->s, x->id, "unevaluatedProperties",
                                     "not supported together with keywords that combine schemas");
    }
    return AG_OK;
}

static ag_status apply_keyword(schema *x, const char *key, const json_t *v) {
    if (is_one_of(key, type_keywords)) return apply_types(x);
    if (!strcmp(key, "allOf")) return apply_all_of(x, v);
    if (!strcmp(key, "anyOf")) return apply_any_of(x, v);
    if (!strcmp(key, "oneOf")) return apply_one_of(x, v);
    if (!strcmp(key, "not")) return apply_not(x, v);
    if (!strcmp(key, "if")) return apply_if(x, v);
    if (!strcmp(key, "const") || !strcmp(key, "enum")) return apply_values(x, key, v);
    if (!strcmp(key, "dependentRequired") || !strcmp(key, "dependentSchemas") ||
        !strcmp(key, "dependencies")) {
        return apply_dependencies(x, key, v);
    }
    if (is_one_of(key, unsupported_keywords)) {
        return ag_schema_unsupported(x->s, x->id, key, "not supported");
    }
    return AG_OK; /* an annotation */
}

static ag_status apply_ref(schema *x, const json_t *v) {
    uint32_t target;
    ag_schema_set schemas;
    if (!json_is_string(v)) return ag_schema_malformed(x->s, x->id, "$ref", "not a string");
    AG_TRY(ag_schema_doc_ref(&x->s->doc, x->id, json_string_value(v), &target, x->s->err));
    AG_TRY(ag_schema_set_of(x->s, target, false, &schemas));
    return intersect_with_set(x, schemas);
}

static ag_status expand_schema(ag_schema_compiler *s, uint32_t id, ag_alternatives *out) {
    schema x = {
        .s = s, .id = id, .v = s->doc.schemas[id].value, .alternatives = ag_any_alternative};
    if (json_is_boolean(x.v)) {
        *out = json_is_true(x.v) ? x.alternatives : (ag_alternatives){0};
        return AG_OK;
    }
    const json_t *ref = json_object_get(x.v, "$ref");
    if (ref && s->doc.old_ref) {
        AG_TRY(apply_ref(&x, ref));
        *out = x.alternatives;
        return AG_OK;
    }
    AG_TRY(check_unevaluated(&x));
    json_t *object = (json_t *)(uintptr_t)x.v, *member; /* iterating changes nothing */
    const char *key;
    json_object_foreach(object, key, member) {
        if (!strcmp(key, "$ref")) AG_TRY(apply_ref(&x, member));
        else AG_TRY(apply_keyword(&x, key, member));
    }
    *out = x.alternatives;
    return AG_OK;
}

/* ---- schema sets ---- */

static ag_status expand_members(ag_schema_compiler *s, ag_schema_set schemas,
                                ag_alternatives *out) {
    *out = ag_any_alternative;
    size_t n;
    ag_interner_list(&s->sets, schemas, &n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t one = ag_interner_list(&s->sets, schemas, &n)[i];
        ag_alternatives alternatives;
        if (n > 1 && !(one & 1)) {
            ag_schema_set alone;
            AG_TRY(ag_schema_set_of(s, one / 2, false, &alone));
            AG_TRY(alternatives_of_set(s, alone, &alternatives));
        } else {
            AG_TRY(expand_schema(s, one / 2, &alternatives));
        }
        if (one & 1) {
            bool decidable;
            AG_TRY(ag_alternatives_complement(s, alternatives, &decidable, &alternatives));
            if (!decidable) {
                return ag_schema_unsupported(
                    s, one / 2, NULL,
                    "not, oneOf or if needs its negation, which is not supported");
            }
        }
        AG_TRY(ag_alternatives_intersect(s, *out, alternatives, out));
    }
    return AG_OK;
}

bool ag_schema_set_is_expanding(const ag_schema_compiler *s, ag_schema_set schemas) {
    return schemas < s->n_expanded && s->expanded[schemas].is_expanding;
}

ag_status ag_schema_set_expand(ag_schema_compiler *s, ag_schema_set schemas, ag_alternatives *out) {
    *out = (ag_alternatives){0};
    if (schemas == AG_SCHEMA_NONE) return AG_OK;
    if (schemas >= s->n_expanded) {
        AG_TRY(AG_GROW(s->expanded, &s->expanded_cap, schemas + 1, s->err));
        memset(s->expanded + s->n_expanded, 0, (schemas + 1 - s->n_expanded) * sizeof *s->expanded);
        s->n_expanded = schemas + 1;
    }
    if (s->expanded[schemas].is_known) {
        *out = s->expanded[schemas].alternatives;
        return AG_OK;
    }
    size_t n;
    const uint32_t *list = ag_interner_list(&s->sets, schemas, &n);
    if (s->expanded[schemas].is_expanding) {
        return ag_schema_unsupported(s, n ? list[0] / 2 : 0, NULL,
                                     "infinite recursion: the schema is combined with itself");
    }
    if (++s->depth > 200) return AG_FAIL(s->err, LIMIT, "schema: nested too deeply");
    s->expanded[schemas].is_expanding = true;
    ag_status st = expand_members(s, schemas, out);
    s->depth--;
    s->expanded[schemas].is_expanding = false;
    s->expanded[schemas].is_known = st == AG_OK;
    s->expanded[schemas].alternatives = *out;
    return st;
}
