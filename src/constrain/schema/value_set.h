/* SPDX-License-Identifier: Apache-2.0 */
/* Value sets: the JSON values that a schema allows, as one set per JSON type. A schema becomes a
 * list of alternatives, the union of their value sets. Intersections and complements are value sets
 * again. */
#ifndef AG_CONSTRAIN_SCHEMA_VALUE_SET_H
#define AG_CONSTRAIN_SCHEMA_VALUE_SET_H

#include "constrain/schema/compiler.h"

typedef struct ag_number_set {
    bool integer; /* integers only */
    /* exclusive: the limit itself is excluded. */
    bool has_min, has_max, min_exclusive, max_exclusive;
    double min, max;
    double step;         /* multiples of `step` only; 0: any */
    const double *avoid; /* [n_avoid] no multiples of these; 1: no integers */
    size_t n_avoid;
    const json_t *const *values; /* [n_values] exactly these numbers, if is_list */
    size_t n_values;
    bool is_list;
} ag_number_set;

typedef struct ag_string_set {
    size_t min, max;          /* characters; max SIZE_MAX: unlimited */
    const ag_text_dfa *texts; /* NULL: any text; min and max hold too */
} ag_string_set;

/* Limits how many of an array's items, from index `from` on, match the schemas. */
typedef struct ag_contains {
    ag_schema_set schemas, negation; /* if max is limited, the other items match the negation */
    size_t from, min, max;
} ag_contains;

typedef struct ag_array_set {
    const ag_schema_set *prefix; /* [n_prefix] */
    size_t n_prefix;
    ag_schema_set items;
    size_t min, max;
    const ag_contains *contains; /* [n_contains] */
    size_t n_contains;
    bool unique;        /* no two items are equal */
    uint32_t unique_at; /* schema with "uniqueItems", for messages */
} ag_array_set;

/* Returns the schemas of item i. */
static inline ag_schema_set ag_array_item_schemas(const ag_array_set *x, size_t i) {
    return i < x->n_prefix ? x->prefix[i] : x->items;
}

typedef struct ag_property {
    const char *name;
    size_t len;
    bool required;
    ag_schema_set schemas; /* AG_SCHEMA_NONE: the property must be absent */
} ag_property;

/* Names that are not declared as properties. The classes of one object are disjoint. */
typedef struct ag_name_class {
    const ag_text_dfa *names; /* NULL: all */
    ag_schema_set schemas;
} ag_name_class;

/* At least one property with one of these names must match the schemas. */
typedef struct ag_required_match {
    const ag_text_dfa *names; /* NULL: all */
    ag_schema_set schemas;
} ag_required_match;

typedef struct ag_object_set {
    const ag_property *properties; /* [n_properties] in the order in which they are written */
    size_t n_properties;
    const ag_name_class *others; /* [n_others]; names outside all classes are not allowed */
    size_t n_others;
    size_t min, max;          /* number of properties */
    const ag_text_dfa *names; /* all names must be in it, declared ones too; NULL: any */
    const ag_required_match *required_matches; /* [n_required_matches] all must hold */
    size_t n_required_matches;
    /* A schema of the set has "properties"; one says which other properties there may be. */
    bool has_properties, has_rule_for_others;
} ag_object_set;

typedef struct ag_value_set {
    bool null_value, true_value, false_value; /* null, true, false */
    const ag_number_set *number;              /* NULL: no value of this type */
    const ag_string_set *string;
    const ag_array_set *array;
    const ag_object_set *object;
} ag_value_set;

/* One alternative of a union: a value set, or a schema set that is not expanded yet. */
typedef struct ag_alternative {
    const ag_value_set *values;
    ag_schema_set schemas; /* if values is NULL */
} ag_alternative;

typedef struct ag_alternatives {
    const ag_alternative *list;
    size_t n;
} ag_alternatives;

extern const ag_number_set ag_any_number;
extern const ag_string_set ag_any_string;
extern const ag_array_set ag_any_array;
extern const ag_object_set ag_any_object;
extern const ag_value_set ag_any_value;
extern const ag_alternatives ag_any_alternative; /* any value */

enum {
    AG_ALTERNATIVES_MAX = 1024,
    AG_CONTAINS_MAX = 3,         /* counted kinds of items per array */
    AG_OBJECT_CHOICES_MAX = 256, /* ways to assign an object's required matches to properties */
};

/* intersect.c: returns the values of both sets; NULL if there are none. */
ag_status ag_value_set_intersect(ag_schema_compiler *s, const ag_value_set *a,
                                 const ag_value_set *b, const ag_value_set **out);
/* Intersects two automata; NULL: all texts. *out may be a or b itself. */
ag_status ag_texts_intersect(ag_schema_compiler *s, const ag_text_dfa *a, const ag_text_dfa *b,
                             const ag_text_dfa **out);
/* Removes the texts of b from a; NULL: all texts. */
ag_status ag_texts_subtract(ag_schema_compiler *s, const ag_text_dfa *a, const ag_text_dfa *b,
                            const ag_text_dfa **out);
/* Makes an automaton of an object's declared names. The caller frees *out. */
ag_status ag_object_names(ag_schema_compiler *s, const ag_object_set *x, ag_text_dfa *out);
/* Intersects each value set of a with each of b. */
ag_status ag_alternatives_intersect(ag_schema_compiler *s, ag_alternatives a, ag_alternatives b,
                                    ag_alternatives *out);
/* Joins two lists. AG_LIMIT beyond AG_ALTERNATIVES_MAX. */
ag_status ag_alternatives_add(ag_schema_compiler *s, ag_alternatives a, ag_alternatives b,
                              ag_alternatives *out);
/* Adds a copy of the value set to the list. */
ag_status ag_alternatives_add_set(ag_schema_compiler *s, ag_alternatives *alternatives,
                                  ag_value_set values);
/* Expands all schema sets in the list to value sets. */
ag_status ag_alternatives_expand(ag_schema_compiler *s, ag_alternatives a, ag_alternatives *out);
/* Returns the value sets of a schema set. */
ag_status ag_schema_set_values(ag_schema_compiler *s, ag_schema_set schemas, ag_alternatives *out);
/* Returns whether the set has its properties only, where objects are closed. A set that would be
 * empty without others stays open. */
ag_status ag_object_is_closed(ag_schema_compiler *s, const ag_object_set *x, bool *closed);
/* Returns whether the object set is empty, as far as its own limits show. Expands no schema
 * sets. */
bool ag_object_is_empty(const ag_object_set *x);
/* Sets *empty if certainly no value is in the set. Looks `depth` levels into objects and arrays. */
ag_status ag_schema_set_is_empty(ag_schema_compiler *s, ag_schema_set schemas, int depth,
                                 bool *empty);
ag_status ag_value_set_is_empty(ag_schema_compiler *s, const ag_value_set *x, int depth,
                                bool *empty);
/* Returns the automaton of a string set, its lengths included. */
ag_status ag_string_dfa(ag_schema_compiler *s, const ag_string_set *x, const ag_text_dfa **out);
/* Returns whether the set contains a number of the document. */
bool ag_number_set_has(const ag_number_set *x, const json_t *value);
/* Returns the greatest common divisor of two positive numbers. */
double ag_number_gcd(double a, double b);
/* Returns the schemas of an undeclared name's class, or AG_SCHEMA_NONE. */
ag_schema_set ag_object_other_schemas(const ag_object_set *o, const char *name, size_t n);

/* complement.c: returns the values that no alternative of a contains. *decidable false: the
 * complement cannot be expressed, and *out is not valid. */
ag_status ag_alternatives_complement(ag_schema_compiler *s, ag_alternatives a, bool *decidable,
                                     ag_alternatives *out);

/* expand.c: returns the alternatives of a schema set. */
ag_status ag_schema_set_expand(ag_schema_compiler *s, ag_schema_set schemas, ag_alternatives *out);
/* Returns whether ag_schema_set_expand() is working on the set. */
bool ag_schema_set_is_expanding(const ag_schema_compiler *s, ag_schema_set schemas);

#endif
