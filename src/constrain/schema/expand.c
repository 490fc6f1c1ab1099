/* SPDX-License-Identifier: Apache-2.0 */
/* Keywords that combine schemas. */
#include "constrain/schema/keywords.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

struct ag_goal_ways {
    ag_ways ways;
    bool known, running;
};

typedef struct schema {
    ag_shaper *s;
    uint32_t id;
    const json_t *v;
    const ag_shape *types; /* what the keywords of single types say; NULL: not known yet */
    bool types_applied;
    ag_ways ways; /* so far */
} schema;

static ag_status goal_way(ag_shaper *s, ag_goal goal, ag_ways *out) {
    *out = (ag_ways){0};
    if (goal == AG_GOAL_NEVER) return AG_OK;
    ag_way *way = ag_shaper_get(s, 1, sizeof *way);
    if (!way) return ag_shaper_no_memory(s);
    *way = (ag_way){goal == AG_GOAL_ANY ? &ag_any_shape : NULL, goal};
    *out = (ag_ways){way, 1};
    return AG_OK;
}

static ag_status shape_way(ag_shaper *s, const ag_shape *shape, ag_ways *out) {
    ag_way *way = ag_shaper_get(s, 1, sizeof *way);
    if (!way) return ag_shaper_no_memory(s);
    *way = (ag_way){shape, 0};
    *out = (ag_ways){way, 1};
    return AG_OK;
}

static ag_status sub_goal(schema *x, const char *key, const char *sub, size_t index,
                          const json_t *v, ag_goal *out) {
    uint32_t child;
    AG_TRY(ag_schema_doc_child(&x->s->doc, x->id, key, sub, index, v, &child, x->s->err));
    return ag_goal_of(x->s, child, false, out);
}

static ag_status and_ways(schema *x, ag_ways ways) {
    return ag_ways_and(x->s, x->ways, ways, &x->ways);
}

static ag_status and_goal(schema *x, ag_goal goal) {
    ag_ways ways;
    AG_TRY(goal_way(x->s, goal, &ways));
    return and_ways(x, ways);
}

/* The shape of the single types, when somebody wants to know. */
static ag_status type_ways(schema *x, ag_ways *out) {
    if (!x->types) AG_TRY(ag_schema_types(x->s, x->id, &x->types));
    return shape_way(x->s, x->types, out);
}

static ag_status apply_types(schema *x) {
    if (x->types_applied) return AG_OK;
    x->types_applied = true;
    ag_ways ways;
    AG_TRY(type_ways(x, &ways));
    return and_ways(x, ways);
}

/* ---- allOf, anyOf, oneOf ---- */

static ag_status read_list(schema *x, const char *key, const json_t *v, ag_goal **out, size_t *n) {
    *n = json_array_size(v);
    if (!*n) return ag_schema_malformed(x->s, x->id, key, "not a list of schemas");
    *out = ag_shaper_get(x->s, *n, sizeof **out);
    if (!*out) return ag_shaper_no_memory(x->s);
    for (size_t i = 0; i < *n; i++) {
        AG_TRY(sub_goal(x, key, NULL, i, json_array_get(v, i), &(*out)[i]));
    }
    return AG_OK;
}

static ag_status apply_all_of(schema *x, const json_t *v) {
    ag_goal *goals;
    size_t n;
    AG_TRY(read_list(x, "allOf", v, &goals, &n));
    for (size_t i = 0; i < n; i++) AG_TRY(and_goal(x, goals[i]));
    return AG_OK;
}

static ag_status or_goals(schema *x, const ag_goal *goals, size_t n, ag_ways *out) {
    *out = (ag_ways){0};
    for (size_t i = 0; i < n; i++) {
        ag_ways one;
        AG_TRY(goal_way(x->s, goals[i], &one));
        AG_TRY(ag_ways_or(x->s, *out, one, out));
    }
    return AG_OK;
}

static ag_status apply_any_of(schema *x, const json_t *v) {
    ag_goal *goals;
    size_t n;
    ag_ways ways;
    AG_TRY(read_list(x, "anyOf", v, &goals, &n));
    AG_TRY(or_goals(x, goals, n, &ways));
    return and_ways(x, ways);
}

/* Whether nothing obeys both, among what the schema's own types allow. */
static ag_status are_apart(schema *x, ag_goal a, ag_goal b, bool *apart) {
    ag_ways types, one, other;
    AG_TRY(type_ways(x, &types));
    AG_TRY(goal_way(x->s, a, &one));
    AG_TRY(goal_way(x->s, b, &other));
    AG_TRY(ag_ways_and(x->s, one, other, &one));
    AG_TRY(ag_ways_and(x->s, types, one, &one));
    AG_TRY(ag_ways_flatten(x->s, one, &one));
    *apart = true;
    for (size_t i = 0; i < one.n && *apart; i++) {
        AG_TRY(ag_shape_is_empty(x->s, one.list[i].shape, 4, apart));
    }
    return AG_OK;
}

static ag_status not_goal(schema *x, ag_goal goal, bool *decidable, ag_ways *out) {
    ag_ways ways;
    AG_TRY(goal_way(x->s, goal, &ways));
    return ag_ways_not(x->s, ways, decidable, out);
}

/* goals[i], and none of the others that overlap with it. */
static ag_status only_goal(schema *x, const ag_goal *goals, size_t n, size_t i, const bool *apart,
                           ag_ways *out) {
    AG_TRY(goal_way(x->s, goals[i], out));
    for (size_t k = 0; k < n; k++) {
        if (k == i || apart[i < k ? i * n + k : k * n + i]) continue;
        bool decidable;
        ag_ways other;
        AG_TRY(not_goal(x, goals[k], &decidable, &other));
        if (!decidable) {
            char why[120];
            snprintf(why, sizeof why,
                     "schemas %zu and %zu overlap, which cannot be told apart: use anyOf",
                     i < k ? i : k, i < k ? k : i);
            return ag_schema_unsupported(x->s, x->id, "oneOf", why);
        }
        AG_TRY(ag_ways_and(x->s, *out, other, out));
    }
    return AG_OK;
}

static ag_status apply_one_of(schema *x, const json_t *v) {
    ag_goal *goals;
    size_t n;
    AG_TRY(read_list(x, "oneOf", v, &goals, &n));
    bool *apart = ag_shaper_get(x->s, n * n, sizeof *apart);
    if (!apart) return ag_shaper_no_memory(x->s);
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            AG_TRY(are_apart(x, goals[i], goals[k], &apart[i * n + k]));
            all &= apart[i * n + k];
        }
    }
    ag_ways ways = {0};
    if (all) AG_TRY(or_goals(x, goals, n, &ways));
    for (size_t i = 0; i < n && !all; i++) {
        ag_ways one;
        AG_TRY(only_goal(x, goals, n, i, apart, &one));
        AG_TRY(ag_ways_or(x->s, ways, one, &ways));
    }
    return and_ways(x, ways);
}

/* ---- not, if ---- */

static ag_status apply_not(schema *x, const json_t *v) {
    ag_goal goal;
    bool decidable;
    ag_ways ways;
    const json_t *twice = json_object_get(v, "not");
    AG_TRY(sub_goal(x, "not", NULL, SIZE_MAX, v, &goal));
    if (twice && json_object_size(v) == 1) { /* what is not not so is so */
        uint32_t child;
        AG_TRY(ag_schema_doc_child(&x->s->doc, x->id, "not", NULL, SIZE_MAX, v, &child, x->s->err));
        AG_TRY(ag_schema_doc_child(&x->s->doc, child, "not", NULL, SIZE_MAX, twice, &child,
                                   x->s->err));
        AG_TRY(ag_goal_of(x->s, child, false, &goal));
        return and_goal(x, goal);
    }
    AG_TRY(not_goal(x, goal, &decidable, &ways));
    if (!decidable) {
        return ag_schema_unsupported(x->s, x->id, "not", "cannot be decided for this schema");
    }
    return and_ways(x, ways);
}

static ag_status optional_goal(schema *x, const char *key, ag_goal *out) {
    const json_t *v = json_object_get(x->v, key);
    *out = AG_GOAL_ANY;
    return v ? sub_goal(x, key, NULL, SIZE_MAX, v, out) : AG_OK;
}

static ag_status apply_if(schema *x, const json_t *v) {
    ag_goal condition, then, otherwise;
    AG_TRY(optional_goal(x, "then", &then));
    AG_TRY(optional_goal(x, "else", &otherwise));
    if (then == AG_GOAL_ANY && otherwise == AG_GOAL_ANY) return AG_OK;
    AG_TRY(sub_goal(x, "if", NULL, SIZE_MAX, v, &condition));
    bool decidable;
    ag_ways yes, no, way;
    AG_TRY(not_goal(x, condition, &decidable, &no));
    if (!decidable) {
        return ag_schema_unsupported(x->s, x->id, "if", "cannot be decided for this schema");
    }
    AG_TRY(goal_way(x->s, condition, &yes));
    AG_TRY(goal_way(x->s, then, &way));
    AG_TRY(ag_ways_and(x->s, yes, way, &yes));
    AG_TRY(goal_way(x->s, otherwise, &way));
    AG_TRY(ag_ways_and(x->s, no, way, &no));
    AG_TRY(ag_ways_or(x->s, yes, no, &yes));
    return and_ways(x, yes);
}

/* ---- dependencies ---- */

/* An object with these properties required, or with one that may not be there. */
static ag_status object_way(schema *x, const ag_property *list, size_t n, bool others,
                            ag_ways *out) {
    ag_object_shape *object = ag_shaper_get(x->s, 1, sizeof *object);
    ag_shape *shape = ag_shaper_get(x->s, 1, sizeof *shape);
    if (!object || !shape) return ag_shaper_no_memory(x->s);
    *object = ag_any_object;
    object->properties = list;
    object->n_properties = n;
    if (others) *shape = ag_any_shape;
    shape->object = object;
    return shape_way(x->s, shape, out);
}

static ag_status apply_dependency(schema *x, const char *key, const char *name, const json_t *v) {
    const size_t n = json_array_size(v);
    ag_property *list = ag_shaper_get(x->s, n + 2, sizeof *list);
    if (!list) return ag_shaper_no_memory(x->s);
    ag_ways absent, present, more;
    list[0] = (ag_property){name, strlen(name), false, AG_GOAL_NEVER};
    AG_TRY(object_way(x, list, 1, true, &absent));
    size_t n_list = 1;
    list[1] = (ag_property){name, strlen(name), true, AG_GOAL_ANY};
    for (size_t i = 0; i < n; i++) {
        const json_t *other = json_array_get(v, i);
        if (!json_is_string(other)) return ag_schema_malformed(x->s, x->id, key, "not strings");
        const ag_property p = {json_string_value(other), json_string_length(other), true,
                               AG_GOAL_ANY};
        bool known = false;
        for (size_t k = 1; k <= n_list; k++) {
            known |= list[k].len == p.len && !memcmp(list[k].name, p.name, p.len);
        }
        AG_TRY(ag_shaper_charge(x->s, n_list / 128));
        if (!known) list[1 + n_list++] = p;
    }
    AG_TRY(object_way(x, list + 1, n_list, false, &present));
    if (!json_is_array(v)) {
        ag_goal goal;
        AG_TRY(sub_goal(x, key, name, SIZE_MAX, v, &goal));
        AG_TRY(goal_way(x->s, goal, &more));
        AG_TRY(ag_ways_and(x->s, present, more, &present));
    }
    AG_TRY(ag_ways_or(x->s, absent, present, &absent));
    return and_ways(x, absent);
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
    const json_t **values = ag_shaper_get(x->s, n, sizeof *values);
    if (!values) return ag_shaper_no_memory(x->s);
    for (size_t i = 0; i < n; i++) values[i] = one ? v : json_array_get(v, i);
    ag_ways ways;
    AG_TRY(ag_schema_values(x->s, x->id, key, values, n, &ways));
    return and_ways(x, ways);
}

/* ---- keywords ---- */

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
                                     "not supported beside keywords that combine schemas");
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
    ag_goal goal;
    if (!json_is_string(v)) return ag_schema_malformed(x->s, x->id, "$ref", "not a string");
    AG_TRY(ag_schema_doc_ref(&x->s->doc, x->id, json_string_value(v), &target, x->s->err));
    AG_TRY(ag_goal_of(x->s, target, false, &goal));
    return and_goal(x, goal);
}

static ag_status expand_schema(ag_shaper *s, uint32_t id, ag_ways *out) {
    schema x = {.s = s, .id = id, .v = s->doc.schemas[id].value, .ways = ag_any_way};
    if (json_is_boolean(x.v)) {
        *out = json_is_true(x.v) ? x.ways : (ag_ways){0};
        return AG_OK;
    }
    const json_t *ref = json_object_get(x.v, "$ref");
    if (ref && s->doc.old_ref) {
        AG_TRY(apply_ref(&x, ref));
        *out = x.ways;
        return AG_OK;
    }
    AG_TRY(check_unevaluated(&x));
    json_t *object = (json_t *)(uintptr_t)x.v, *member; /* iterating changes nothing */
    const char *key;
    json_object_foreach(object, key, member) {
        if (!strcmp(key, "$ref")) AG_TRY(apply_ref(&x, member));
        else AG_TRY(apply_keyword(&x, key, member));
    }
    *out = x.ways;
    return AG_OK;
}

/* ---- goals ---- */

static ag_status expand_set(ag_shaper *s, ag_goal goal, ag_ways *out) {
    *out = ag_any_way;
    size_t n;
    ag_interner_list(&s->goals, goal, &n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t one = ag_interner_list(&s->goals, goal, &n)[i];
        ag_ways ways;
        if (n > 1 && !(one & 1)) {
            ag_goal alone;
            AG_TRY(ag_goal_of(s, one / 2, false, &alone));
            AG_TRY(goal_way(s, alone, &ways));
        } else {
            AG_TRY(expand_schema(s, one / 2, &ways));
        }
        if (one & 1) {
            bool decidable;
            AG_TRY(ag_ways_not(s, ways, &decidable, &ways));
            if (!decidable) {
                return ag_schema_unsupported(
                    s, one / 2, NULL,
                    "not, oneOf or if asks for its opposite, which cannot be decided");
            }
        }
        AG_TRY(ag_ways_and(s, *out, ways, out));
    }
    return AG_OK;
}

bool ag_goal_is_running(const ag_shaper *s, ag_goal goal) {
    return goal < s->n_expanded && s->expanded[goal].running;
}

ag_status ag_goal_expand(ag_shaper *s, ag_goal goal, ag_ways *out) {
    *out = (ag_ways){0};
    if (goal == AG_GOAL_NEVER) return AG_OK;
    if (goal >= s->n_expanded) {
        void *p = s->expanded;
        ag_status st = ag_array_grow(&p, &s->expanded_cap, goal + 1, sizeof *s->expanded, s->err);
        s->expanded = p;
        if (st != AG_OK) return st;
        memset(s->expanded + s->n_expanded, 0, (goal + 1 - s->n_expanded) * sizeof *s->expanded);
        s->n_expanded = goal + 1;
    }
    if (s->expanded[goal].known) {
        *out = s->expanded[goal].ways;
        return AG_OK;
    }
    size_t n;
    const uint32_t *list = ag_interner_list(&s->goals, goal, &n);
    if (s->expanded[goal].running) {
        return ag_schema_unsupported(s, n ? list[0] / 2 : 0, NULL,
                                     "is combined with itself without an end");
    }
    if (++s->depth > 200) return AG_FAIL(s->err, LIMIT, "schema: nested too deeply");
    s->expanded[goal].running = true;
    ag_status st = expand_set(s, goal, out);
    s->depth--;
    s->expanded[goal].running = false;
    s->expanded[goal].known = st == AG_OK;
    s->expanded[goal].ways = *out;
    return st;
}
