/* SPDX-License-Identifier: Apache-2.0 */
/* Keywords that apply to a single type. They become one value set. */
#include "constrain/schema/keywords.h"
#include "core/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Puts the path of `keyword` in front of the message, unless st is AG_OK. */
static ag_status with_path(ag_schema_compiler *s, uint32_t id, const char *keyword, ag_status st) {
    char path[AG_SCHEMA_PATH_BYTES];
    if (st == AG_OK) return st;
    return ag_error_prefix(s->err, st, "schema: %s",
                           ag_schema_doc_path(&s->doc, id, keyword, path));
}

typedef struct types {
    ag_schema_compiler *s;
    uint32_t id;
    const json_t *v;
} types;

static const json_t *get_keyword(const types *t, const char *keyword) {
    return json_object_get(t->v, keyword);
}

static ag_status unsupported_value(types *t, const char *keyword, const char *value) {
    char message[120];
    snprintf(message, sizeof message, "\"%.80s\" is not supported", value);
    return ag_schema_unsupported(t->s, t->id, keyword, message);
}

/* Reads a count. Leaves *out as it is if the keyword is absent. */
static ag_status read_count(types *t, const char *keyword, size_t *out) {
    const json_t *v = get_keyword(t, keyword);
    if (!v) return AG_OK;
    const double n = json_number_value(v);
    if (!json_is_number(v) || n < 0 || n != floor(n)) {
        return ag_schema_malformed(t->s, t->id, keyword, "not a non-negative integer");
    }
    *out = n < 1e15 ? (size_t)n : SIZE_MAX;
    return AG_OK;
}

/* ---- numbers ---- */

static ag_status read_limit(types *t, const char *keyword, const char *open_keyword, bool *has,
                            bool *open, double *limit, int direction) {
    const json_t *closed = get_keyword(t, keyword), *opened = get_keyword(t, open_keyword);
    if (closed && !json_is_number(closed)) {
        return ag_schema_malformed(t->s, t->id, keyword, "not a number");
    }
    if (opened && !json_is_number(opened) && !json_is_boolean(opened)) {
        return ag_schema_malformed(t->s, t->id, open_keyword, "not a number");
    }
    if (closed) {
        *has = true;
        *limit = json_number_value(closed);
        *open = json_is_true(opened); /* a flag up to draft 4 */
    }
    if (!json_is_number(opened)) return AG_OK;
    const double other = json_number_value(opened);
    if (*has && (direction > 0 ? other < *limit : other > *limit)) return AG_OK;
    *has = *open = true;
    *limit = other;
    return AG_OK;
}

static ag_status read_number(types *t, const ag_number_set **out) {
    static const char *const keywords[] = {"minimum", "maximum", "exclusiveMinimum",
                                           "exclusiveMaximum", "multipleOf"};
    bool any = false;
    for (size_t i = 0; i < 5; i++) any |= get_keyword(t, keywords[i]) != NULL;
    *out = &ag_any_number;
    if (!any) return AG_OK;
    ag_number_set *x = ag_schema_alloc(t->s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(t->s);
    AG_TRY(
        read_limit(t, "minimum", "exclusiveMinimum", &x->has_min, &x->min_exclusive, &x->min, 1));
    AG_TRY(
        read_limit(t, "maximum", "exclusiveMaximum", &x->has_max, &x->max_exclusive, &x->max, -1));
    const json_t *step = get_keyword(t, "multipleOf");
    if (step) {
        x->step = json_number_value(step);
        if (!(x->step > 0)) {
            return ag_schema_malformed(t->s, t->id, "multipleOf", "not a positive number");
        }
    }
    *out = x;
    if (x->has_min && x->has_max && x->min > x->max) *out = NULL;
    return AG_OK;
}

/* ---- strings ---- */

/* Compiles a "pattern" or a key of patternProperties. */
static ag_status compile_pattern(ag_schema_compiler *s, uint32_t id, const char *keyword,
                                 const char *pattern, size_t n, const ag_text_dfa **out) {
    return with_path(s, id, keyword, ag_schema_regex(s, pattern, n, true, out));
}

static ag_status read_format(types *t, const ag_text_dfa **out) {
    const char *name = json_string_value(get_keyword(t, "format"));
    bool unsupported;
    if (!name) return AG_OK;
    const char *regex = ag_schema_format_regex(name, &unsupported);
    if (unsupported) return unsupported_value(t, "format", name);
    if (!regex) return AG_OK;
    return with_path(t->s, t->id, "format",
                     ag_schema_regex(t->s, regex, strlen(regex), false, out));
}

static ag_status read_string(types *t, const ag_string_set **out) {
    ag_schema_compiler *s = t->s;
    ag_string_set *x = ag_schema_alloc(s, 2, sizeof *x);
    if (!x) return ag_schema_no_memory(s);
    x->max = SIZE_MAX;
    AG_TRY(read_count(t, "minLength", &x->min));
    AG_TRY(read_count(t, "maxLength", &x->max));
    const json_t *pattern = get_keyword(t, "pattern");
    if (pattern && !json_is_string(pattern)) {
        return ag_schema_malformed(s, t->id, "pattern", "not a string");
    }
    if (pattern) {
        AG_TRY(compile_pattern(s, t->id, "pattern", json_string_value(pattern),
                               json_string_length(pattern), &x->texts));
    }
    const ag_text_dfa *format = NULL;
    AG_TRY(read_format(t, &format));
    AG_TRY(with_path(s, t->id, "format", ag_texts_intersect(s, format, x->texts, &x->texts)));
    *out = x;
    if (!x->min && x->max == SIZE_MAX && !x->texts) *out = &ag_any_string;
    if (x->min > x->max || (x->texts && !x->texts->n_states)) *out = NULL;
    return AG_OK;
}

/* ---- arrays ---- */

static ag_status child_schemas(types *t, const char *key, const char *sub, size_t index,
                               const json_t *v, ag_schema_set *out) {
    uint32_t child;
    AG_TRY(ag_schema_doc_child(&t->s->doc, t->id, key, sub, index, v, &child, t->s->err));
    return ag_schema_set_of(t->s, child, false, out);
}

static ag_status read_prefix(types *t, const char *key, const json_t *list, ag_array_set *x) {
    const size_t n = json_array_size(list);
    ag_schema_set *prefix = ag_schema_alloc(t->s, n, sizeof *prefix);
    if (!prefix) return ag_schema_no_memory(t->s);
    for (size_t i = 0; i < n; i++) {
        AG_TRY(child_schemas(t, key, NULL, i, json_array_get(list, i), &prefix[i]));
        if (prefix[i] == AG_SCHEMA_NONE && x->max > i) x->max = i;
    }
    x->prefix = prefix;
    x->n_prefix = n;
    return AG_OK;
}

/* minContains and maxContains exist since draft 2019-09. *possible false: certainly no array
 * matches. */
static ag_status read_contains(types *t, ag_array_set *x, bool *possible) {
    const json_t *v = get_keyword(t, "contains");
    if (!v) return AG_OK;
    ag_contains *c = ag_schema_alloc(t->s, 1, sizeof *c);
    if (!c) return ag_schema_no_memory(t->s);
    c->min = 1;
    c->max = SIZE_MAX;
    if (!t->s->doc.old_ref) {
        AG_TRY(read_count(t, "minContains", &c->min));
        AG_TRY(read_count(t, "maxContains", &c->max));
    }
    if (!c->min && c->max == SIZE_MAX) return AG_OK;
    uint32_t child;
    AG_TRY(
        ag_schema_doc_child(&t->s->doc, t->id, "contains", NULL, SIZE_MAX, v, &child, t->s->err));
    AG_TRY(ag_schema_set_of(t->s, child, false, &c->schemas));
    AG_TRY(ag_schema_set_of(t->s, child, true, &c->negation));
    if (c->schemas == AG_SCHEMA_ANY) { /* every item counts */
        if (c->min > x->min) x->min = c->min;
        if (c->max < x->max) x->max = c->max;
        return AG_OK;
    }
    *possible = c->min <= c->max && (c->schemas != AG_SCHEMA_NONE || !c->min) && c->min <= x->max;
    if (c->schemas == AG_SCHEMA_NONE) return AG_OK;
    x->contains = c;
    x->n_contains = 1;
    return AG_OK;
}

static ag_status read_array(types *t, const ag_array_set **out) {
    static const char *const keywords[] = {"items",    "prefixItems", "additionalItems", "minItems",
                                           "maxItems", "uniqueItems", "contains"};
    bool any = false;
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        any |= get_keyword(t, keywords[i]) != NULL;
    }
    *out = &ag_any_array;
    if (!any) return AG_OK;
    ag_array_set *x = ag_schema_alloc(t->s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(t->s);
    x->max = SIZE_MAX;
    AG_TRY(read_count(t, "minItems", &x->min));
    AG_TRY(read_count(t, "maxItems", &x->max));
    const json_t *items = get_keyword(t, "items"), *prefix = get_keyword(t, "prefixItems");
    const char *other_keyword = "items";
    if (json_is_array(items)) {
        AG_TRY(read_prefix(t, "items", items, x));
        other_keyword = "additionalItems";
    } else if (prefix) {
        if (!json_is_array(prefix)) {
            return ag_schema_malformed(t->s, t->id, "prefixItems", "not an array");
        }
        AG_TRY(read_prefix(t, "prefixItems", prefix, x));
    }
    const json_t *other = get_keyword(t, other_keyword);
    if (other) AG_TRY(child_schemas(t, other_keyword, NULL, SIZE_MAX, other, &x->items));
    if (x->items == AG_SCHEMA_NONE && x->max > x->n_prefix) x->max = x->n_prefix;
    x->unique = json_is_true(get_keyword(t, "uniqueItems")) && x->max > 1;
    x->unique_at = t->id;
    bool possible = true;
    AG_TRY(read_contains(t, x, &possible));
    *out = possible && x->min <= x->max ? x : NULL;
    return AG_OK;
}

/* ---- objects ---- */

typedef struct name_group {
    const ag_text_dfa *names; /* NULL: all */
    ag_schema_set schemas;
    bool matched; /* a pattern matches these names */
} name_group;

enum { NAME_GROUPS_MAX = 64 };

/* Splits each group into names that match and names that do not. */
static ag_status split_groups(types *t, name_group *groups, size_t *n, const ag_text_dfa *names,
                              ag_schema_set schemas) {
    const size_t before = *n;
    for (size_t i = 0; i < before; i++) {
        name_group in = groups[i], out = groups[i];
        AG_TRY(ag_texts_intersect(t->s, groups[i].names, names, &in.names));
        if (!in.names->n_states) continue;
        AG_TRY(ag_texts_subtract(t->s, groups[i].names, names, &out.names));
        AG_TRY(ag_schema_set_and(t->s, in.schemas, schemas, &in.schemas));
        in.matched = true;
        groups[i] = in;
        if (!out.names->n_states) continue;
        if (*n == NAME_GROUPS_MAX) {
            return ag_schema_unsupported(t->s, t->id, "patternProperties",
                                         "too many overlapping patterns");
        }
        groups[(*n)++] = out;
    }
    return AG_OK;
}

static ag_status read_others(types *t, ag_object_set *x) {
    const json_t *patterns = get_keyword(t, "patternProperties");
    const char *other_keyword = "additionalProperties";
    if (!get_keyword(t, other_keyword) && get_keyword(t, "unevaluatedProperties")) {
        other_keyword = "unevaluatedProperties";
    }
    const json_t *other = get_keyword(t, other_keyword);
    name_group groups[NAME_GROUPS_MAX] = {{.schemas = AG_SCHEMA_ANY}};
    size_t n = 1;
    if (patterns) {
        json_t *object = (json_t *)(uintptr_t)patterns, *v; /* iterating changes nothing */
        const char *pattern;
        json_object_foreach(object, pattern, v) {
            const ag_text_dfa *names;
            ag_schema_set schemas;
            AG_TRY(compile_pattern(t->s, t->id, "patternProperties", pattern, strlen(pattern),
                                   &names));
            AG_TRY(child_schemas(t, "patternProperties", pattern, SIZE_MAX, v, &schemas));
            AG_TRY(split_groups(t, groups, &n, names, schemas));
        }
    }
    ag_schema_set schemas = AG_SCHEMA_ANY;
    if (other) AG_TRY(child_schemas(t, other_keyword, NULL, SIZE_MAX, other, &schemas));
    ag_name_class *list = ag_schema_alloc(t->s, n, sizeof *list);
    if (!list) return ag_schema_no_memory(t->s);
    for (size_t i = 0; i < n; i++) {
        const ag_schema_set of_group = groups[i].matched ? groups[i].schemas : schemas;
        if (of_group != AG_SCHEMA_NONE)
            list[x->n_others++] = (ag_name_class){groups[i].names, of_group};
    }
    x->others = list;
    return AG_OK;
}

static bool has_nul(const json_t *string) {
    return strlen(json_string_value(string)) != json_string_length(string);
}

/* Returns the names of "required" as keys of an object, in their order. The caller releases it. A
 * name that contains NUL cannot be a key and is left out. */
static ag_status read_required(types *t, json_t **out) {
    const json_t *required = get_keyword(t, "required"), *v;
    size_t i;
    *out = json_object();
    if (!*out) return AG_FAIL(t->s->err, NOMEM, "schema compiler");
    if (!json_is_array(required)) return AG_OK; /* a boolean in draft 3 */
    json_array_foreach(required, i, v) {
        if (!json_is_string(v))
            return ag_schema_malformed(t->s, t->id, "required", "not a list of strings");
        json_t *shared = (json_t *)(uintptr_t)v; /* counted, not changed */
        if (!has_nul(v) && json_object_set_nocheck(*out, json_string_value(v), shared)) {
            return AG_FAIL(t->s->err, NOMEM, "schema compiler");
        }
    }
    return AG_OK;
}

/* Adds the schemas of all matching patterns to a property. */
static ag_status and_patterns(types *t, ag_property *p) {
    const json_t *patterns = get_keyword(t, "patternProperties");
    json_t *object = (json_t *)(uintptr_t)patterns, *v; /* iterating changes nothing */
    const char *pattern;
    json_object_foreach(object, pattern, v) {
        const ag_text_dfa *names;
        ag_schema_set schemas;
        AG_TRY(compile_pattern(t->s, t->id, "patternProperties", pattern, strlen(pattern), &names));
        if (!ag_text_dfa_accepts(names, p->name, p->len)) continue;
        AG_TRY(child_schemas(t, "patternProperties", pattern, SIZE_MAX, v, &schemas));
        AG_TRY(ag_schema_set_and(t->s, p->schemas, schemas, &p->schemas));
    }
    return AG_OK;
}

/* Adds a property that only "required" names. The document owns the string. */
static ag_status add_required(types *t, const ag_object_set *x, const json_t *name,
                              ag_property *list, size_t *n) {
    ag_property p = {json_string_value(name), json_string_length(name), true, AG_SCHEMA_ANY};
    p.schemas = ag_object_other_schemas(x, p.name, p.len);
    list[(*n)++] = p;
    return ag_schema_charge(t->s, 1 + x->n_others / 16);
}

/* required: its names as keys of an object. */
static ag_status list_properties(types *t, json_t *required, ag_object_set *x) {
    const json_t *properties = get_keyword(t, "properties");
    const size_t n_patterns = json_object_size(get_keyword(t, "patternProperties"));
    if (properties && !json_is_object(properties)) {
        return ag_schema_malformed(t->s, t->id, "properties", "not an object");
    }
    const json_t *all = get_keyword(t, "required");
    const size_t max = json_object_size(properties) + json_array_size(all);
    ag_property *list = ag_schema_alloc(t->s, max, sizeof *list);
    if (!list) return ag_schema_no_memory(t->s);
    size_t n = 0;
    json_t *object = (json_t *)(uintptr_t)properties, *v; /* iterating changes nothing */
    const char *name;
    json_object_foreach(object, name, v) {
        ag_property *p = &list[n++];
        *p = (ag_property){.name = name, .len = strlen(name)};
        p->required = json_object_get(required, name) != NULL;
        AG_TRY(ag_schema_charge(t->s, 1 + n_patterns / 16));
        AG_TRY(child_schemas(t, "properties", name, SIZE_MAX, v, &p->schemas));
        AG_TRY(and_patterns(t, p));
    }
    json_object_foreach(required, name, v) {
        if (json_object_get(properties, name)) continue;
        AG_TRY(add_required(t, x, v, list, &n));
    }
    const size_t keys = n;
    size_t i;
    const json_t *r;
    json_array_foreach(all, i, r) {
        if (!json_is_string(r) || !has_nul(r)) continue;
        bool known = false;
        for (size_t k = keys; k < n; k++) {
            known |= list[k].len == json_string_length(r) &&
                     !memcmp(list[k].name, json_string_value(r), list[k].len);
        }
        AG_TRY(ag_schema_charge(t->s, (n - keys) / 128));
        if (!known) AG_TRY(add_required(t, x, r, list, &n));
    }
    x->properties = list;
    x->n_properties = n;
    return AG_OK;
}

static ag_status read_properties(types *t, ag_object_set *x) {
    json_t *required;
    ag_status st = read_required(t, &required);
    if (st == AG_OK) st = list_properties(t, required, x);
    json_decref(required);
    return st;
}

/* Makes an automaton of all strings that the schemas allow. */
static ag_status names_allowed_by(types *t, ag_schema_set schemas, const ag_text_dfa **out) {
    ag_schema_compiler *s = t->s;
    ag_alternatives alternatives;
    *out = NULL;
    if (schemas == AG_SCHEMA_ANY) return AG_OK;
    AG_TRY(ag_schema_set_values(s, schemas, &alternatives));
    const ag_text_dfa *uncovered = NULL; /* names that no alternative so far allows; NULL: all */
    for (size_t i = 0; i < alternatives.n; i++) {
        const ag_string_set *x = alternatives.list[i].values->string;
        if (!x) continue;
        const ag_text_dfa *texts;
        AG_TRY(ag_string_dfa(s, x, &texts));
        AG_TRY(ag_texts_subtract(s, uncovered, texts, &uncovered));
    }
    return ag_texts_subtract(s, NULL, uncovered, out);
}

static ag_status apply_names(types *t, ag_object_set *x) {
    const json_t *v = get_keyword(t, "propertyNames");
    if (!v) return AG_OK;
    ag_schema_set schemas;
    AG_TRY(child_schemas(t, "propertyNames", NULL, SIZE_MAX, v, &schemas));
    AG_TRY(names_allowed_by(t, schemas, &x->names));
    if (!x->names) return AG_OK;
    for (size_t i = 0; i < x->n_properties; i++) {
        ag_property *p =
            (ag_property *)(uintptr_t)&x->properties[i]; /* allocated by list_properties() */
        if (!ag_text_dfa_accepts(x->names, p->name, p->len)) p->schemas = AG_SCHEMA_NONE;
    }
    return AG_OK;
}

static ag_status read_object(types *t, const ag_object_set **out) {
    static const char *const keywords[] = {
        "properties",    "patternProperties", "additionalProperties", "required",
        "minProperties", "maxProperties",     "propertyNames",        "unevaluatedProperties"};
    bool any = false;
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        any |= get_keyword(t, keywords[i]) != NULL;
    }
    *out = &ag_any_object;
    if (!any) return AG_OK;
    ag_object_set *x = ag_schema_alloc(t->s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(t->s);
    x->max = SIZE_MAX;
    x->has_properties = get_keyword(t, "properties") != NULL;
    x->has_rule_for_others = get_keyword(t, "additionalProperties") ||
                             get_keyword(t, "unevaluatedProperties") ||
                             get_keyword(t, "patternProperties");
    AG_TRY(read_count(t, "minProperties", &x->min));
    AG_TRY(read_count(t, "maxProperties", &x->max));
    AG_TRY(read_others(t, x));
    AG_TRY(read_properties(t, x));
    AG_TRY(apply_names(t, x));
    *out = x;
    for (size_t i = 0; i < x->n_properties; i++) {
        const ag_property *p = &x->properties[i];
        if (p->required && p->schemas == AG_SCHEMA_NONE) *out = NULL;
    }
    return AG_OK;
}

/* ---- all types ---- */

enum { NULL_TYPE = 1, BOOLEAN = 2, NUMBER = 4, INTEGER = 8, STRING = 16, ARRAY = 32, OBJECT = 64 };

static ag_status add_type(types *t, const json_t *v, unsigned *set) {
    static const char *const names[] = {"null",   "boolean", "number", "integer",
                                        "string", "array",   "object"};
    const char *name = json_string_value(v);
    for (unsigned i = 0; name && i < 7; i++) {
        if (strcmp(name, names[i])) continue;
        *set |= 1u << i;
        return AG_OK;
    }
    if (!name) return ag_schema_malformed(t->s, t->id, "type", "not the name of a type");
    return unsupported_value(t, "type", name);
}

static ag_status read_types(types *t, unsigned *set) {
    const json_t *v = get_keyword(t, "type"), *one;
    size_t i;
    *set = ~0u;
    if (!v) return AG_OK;
    *set = 0;
    if (!json_is_array(v)) return add_type(t, v, set);
    json_array_foreach(v, i, one) AG_TRY(add_type(t, one, set));
    return AG_OK;
}

ag_status ag_schema_read_types(ag_schema_compiler *s, uint32_t id, const ag_value_set **out) {
    types t = {s, id, s->doc.schemas[id].value};
    unsigned set;
    *out = NULL;
    AG_TRY(read_types(&t, &set));
    ag_value_set *x = ag_schema_alloc(s, 1, sizeof *x);
    if (!x) return ag_schema_no_memory(s);
    x->null_value = set & NULL_TYPE;
    x->true_value = x->false_value = set & BOOLEAN;
    if (set & (NUMBER | INTEGER)) AG_TRY(read_number(&t, &x->number));
    if (x->number && !(set & NUMBER)) {
        ag_number_set *integers = ag_schema_alloc(s, 1, sizeof *integers);
        if (!integers) return ag_schema_no_memory(s);
        *integers = *x->number;
        integers->integer = true;
        x->number = integers;
    }
    if (set & STRING) AG_TRY(read_string(&t, &x->string));
    if (set & ARRAY) AG_TRY(read_array(&t, &x->array));
    if (set & OBJECT) AG_TRY(read_object(&t, &x->object));
    const bool any = set == ~0u && x->number == &ag_any_number && x->string == &ag_any_string &&
                     x->array == &ag_any_array && x->object == &ag_any_object;
    *out = any ? &ag_any_value : x;
    return AG_OK;
}
