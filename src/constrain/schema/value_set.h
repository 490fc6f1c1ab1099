/* SPDX-License-Identifier: Apache-2.0 */
/* What a schema allows, type by type: a value obeys if it obeys what stands for its type. Schemas
 * become lists of shapes, of which one must hold; "and" and "not" of shapes are shapes again. */
#ifndef AG_CONSTRAIN_SCHEMA_VALUE_SET_H
#define AG_CONSTRAIN_SCHEMA_VALUE_SET_H

#include "constrain/schema/compiler.h"

typedef struct ag_number_set {
    bool integer;                                        /* integers */
    bool has_min, has_max, min_exclusive, max_exclusive; /* above: the limit itself is out */
    double min, max;
    double step;         /* multiples of; 0: any */
    const double *avoid; /* [n_avoid] no multiples of; of 1: no whole number */
    size_t n_avoid;
    const json_t *const *values; /* [n_values] only these, if is_list */
    size_t n_values;
    bool is_list;
} ag_number_set;

typedef struct ag_string_set {
    size_t min, max;          /* characters; SIZE_MAX: no end */
    const ag_text_dfa *texts; /* NULL: any; lengths hold besides */
} ag_string_set;

/* How many of an array's items, those before `from` left out, obey a goal. */
typedef struct ag_contains {
    ag_schema_set schemas, negation; /* where there is a maximum, the others obey the opposite */
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
    uint32_t unique_at; /* the schema that says so, for messages */
} ag_array_set;

/* Returns the schemas of item i. */
static inline ag_schema_set ag_array_item_schemas(const ag_array_set *x, size_t i) {
    return i < x->n_prefix ? x->prefix[i] : x->items;
}

typedef struct ag_property {
    const char *name;
    size_t len;
    bool required;
    ag_schema_set schemas; /* NEVER: it may not be there */
} ag_property;

/* Names that are no property's. Those of one object have no name in common. */
typedef struct ag_name_class {
    const ag_text_dfa *names; /* NULL: all */
    ag_schema_set schemas;
} ag_name_class;

/* A property of any of these names obeys the goal. */
typedef struct ag_required_match {
    const ag_text_dfa *names; /* NULL: all */
    ag_schema_set schemas;
} ag_required_match;

typedef struct ag_object_set {
    const ag_property *properties; /* [n_properties] in the order in which they are written */
    size_t n_properties;
    const ag_name_class *others; /* [n_others]; names in none are not allowed */
    size_t n_others;
    size_t min, max;          /* properties */
    const ag_text_dfa *names; /* NULL: any: what names must be, properties' names included */
    const ag_required_match *required_matches; /* [n_some] each of them */
    size_t n_required_matches;
} ag_object_set;

typedef struct ag_value_set {
    bool null_value, true_value, false_value; /* null, true, false */
    const ag_number_set *number;              /* NULL: not of this type */
    const ag_string_set *string;
    const ag_array_set *array;
    const ag_object_set *object;
} ag_value_set;

/* One of several ways: a shape, or a goal that has not been looked into. */
typedef struct ag_alternative {
    const ag_value_set *values;
    ag_schema_set schemas; /* where shape is NULL */
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
    AG_CONTAINS_MAX = 3,         /* of an array */
    AG_OBJECT_CHOICES_MAX = 256, /* of an object: which properties are those that must be there */
};

/* intersect.c: what both allow; NULL: nothing. */
ag_status ag_value_set_intersect(ag_schema_compiler *s, const ag_value_set *a,
                                 const ag_value_set *b, const ag_value_set **out);
/* Texts of both; NULL: all. */
ag_status ag_texts_intersect(ag_schema_compiler *s, const ag_text_dfa *a, const ag_text_dfa *b,
                             const ag_text_dfa **out);
/* Texts of a that are not in b; NULL: all. */
ag_status ag_texts_subtract(ag_schema_compiler *s, const ag_text_dfa *a, const ag_text_dfa *b,
                            const ag_text_dfa **out);
/* The names of an object's properties. *out is the caller's. */
ag_status ag_object_names(ag_schema_compiler *s, const ag_object_set *x, ag_text_dfa *out);
ag_status ag_alternatives_intersect(ag_schema_compiler *s, ag_alternatives a, ag_alternatives b,
                                    ag_alternatives *out);
ag_status ag_alternatives_add(ag_schema_compiler *s, ag_alternatives a, ag_alternatives b,
                              ag_alternatives *out);
/* Adds a copy of the shape. */
ag_status ag_alternatives_add_set(ag_schema_compiler *s, ag_alternatives *alternatives,
                                  ag_value_set values);
/* Without goals that have not been looked into. */
ag_status ag_alternatives_expand(ag_schema_compiler *s, ag_alternatives a, ag_alternatives *out);
/* Whether nothing obeys, as far as can be seen without looking into goals. */
bool ag_object_is_empty(const ag_object_set *x);
/* Whether surely nothing obeys, looking `depth` levels into objects and arrays. */
ag_status ag_schema_set_is_empty(ag_schema_compiler *s, ag_schema_set schemas, int depth,
                                 bool *empty);
ag_status ag_value_set_is_empty(ag_schema_compiler *s, const ag_value_set *x, int depth,
                                bool *empty);
ag_status ag_string_dfa(ag_schema_compiler *s, const ag_string_set *x, const ag_text_dfa **out);
/* Whether a number of the document obeys. */
bool ag_number_set_has(const ag_number_set *x, const json_t *value);
/* The goal of the names' class that a name is in, or NEVER. */
ag_schema_set ag_object_other_schemas(const ag_object_set *o, const char *name, size_t n);

/* complement.c: all that does not obey. *decidable false: there is no list of shapes for it. */
ag_status ag_alternatives_complement(ag_schema_compiler *s, ag_alternatives a, bool *decidable,
                                     ag_alternatives *out);

/* expand.c */
ag_status ag_schema_set_expand(ag_schema_compiler *s, ag_schema_set schemas, ag_alternatives *out);
bool ag_schema_set_is_expanding(const ag_schema_compiler *s,
                                ag_schema_set schemas); /* it is being expanded */

#endif
