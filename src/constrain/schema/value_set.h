/* SPDX-License-Identifier: Apache-2.0 */
/* What a schema allows, type by type: a value obeys if it obeys what stands for its type. Schemas
 * become lists of shapes, of which one must hold; "and" and "not" of shapes are shapes again. */
#ifndef AG_CONSTRAIN_SCHEMA_VALUE_SET_H
#define AG_CONSTRAIN_SCHEMA_VALUE_SET_H

#include "constrain/schema/compiler.h"

typedef struct ag_number_shape {
    bool whole;                                        /* integers */
    bool has_least, has_most, above_least, below_most; /* above: the limit itself is out */
    double least, most;
    double step;         /* multiples of; 0: any */
    const double *avoid; /* [n_avoid] no multiples of; of 1: no whole number */
    size_t n_avoid;
    const json_t *const *values; /* [n_values] only these, if is_list */
    size_t n_values;
    bool is_list;
} ag_number_shape;

typedef struct ag_string_shape {
    size_t least, most;       /* characters; SIZE_MAX: no end */
    const ag_text_dfa *texts; /* NULL: any; lengths hold besides */
} ag_string_shape;

/* How many of an array's items, those before `from` left out, obey a goal. */
typedef struct ag_contains {
    ag_goal goal, opposite; /* where there is a maximum, the others obey the opposite */
    size_t from, least, most;
} ag_contains;

typedef struct ag_array_shape {
    const ag_goal *prefix; /* [n_prefix] */
    size_t n_prefix;
    ag_goal rest;
    size_t least, most;
    const ag_contains *contains; /* [n_contains] */
    size_t n_contains;
    bool unique;        /* no two items are equal */
    uint32_t unique_at; /* the schema that says so, for messages */
} ag_array_shape;

/* Returns the schemas of item i. */
static inline ag_goal ag_array_item(const ag_array_shape *x, size_t i) {
    return i < x->n_prefix ? x->prefix[i] : x->rest;
}

typedef struct ag_property {
    const char *name;
    size_t len;
    bool required;
    ag_goal goal; /* NEVER: it may not be there */
} ag_property;

/* Names that are no property's. Those of one object have no name in common. */
typedef struct ag_name_class {
    const ag_text_dfa *names; /* NULL: all */
    ag_goal goal;
} ag_name_class;

/* A property of any of these names obeys the goal. */
typedef struct ag_some_property {
    const ag_text_dfa *names; /* NULL: all */
    ag_goal goal;
} ag_some_property;

typedef struct ag_object_shape {
    const ag_property *properties; /* [n_properties] in the order in which they are written */
    size_t n_properties;
    const ag_name_class *others; /* [n_others]; names in none are not allowed */
    size_t n_others;
    size_t least, most;           /* properties */
    const ag_text_dfa *names;     /* NULL: any: what names must be, properties' names included */
    const ag_some_property *some; /* [n_some] each of them */
    size_t n_some;
} ag_object_shape;

typedef struct ag_shape {
    bool null, yes, no;            /* null, true, false */
    const ag_number_shape *number; /* NULL: not of this type */
    const ag_string_shape *string;
    const ag_array_shape *array;
    const ag_object_shape *object;
} ag_shape;

/* One of several ways: a shape, or a goal that has not been looked into. */
typedef struct ag_way {
    const ag_shape *shape;
    ag_goal goal; /* where shape is NULL */
} ag_way;

typedef struct ag_ways {
    const ag_way *list;
    size_t n;
} ag_ways;

extern const ag_number_shape ag_any_number;
extern const ag_string_shape ag_any_string;
extern const ag_array_shape ag_any_array;
extern const ag_object_shape ag_any_object;
extern const ag_shape ag_any_shape;
extern const ag_ways ag_any_way; /* any value */

enum {
    AG_MOST_WAYS = 1024,
    AG_MOST_CONTAINS = 3,       /* of an array */
    AG_MOST_ALTERNATIVES = 256, /* of an object: which properties are those that must be there */
};

/* intersect.c: what both allow; NULL: nothing. */
ag_status ag_shape_and(ag_shaper *s, const ag_shape *a, const ag_shape *b, const ag_shape **out);
/* Texts of both; NULL: all. */
ag_status ag_texts_and(ag_shaper *s, const ag_text_dfa *a, const ag_text_dfa *b,
                       const ag_text_dfa **out);
/* Texts of a that are not in b; NULL: all. */
ag_status ag_texts_except(ag_shaper *s, const ag_text_dfa *a, const ag_text_dfa *b,
                          const ag_text_dfa **out);
/* The names of an object's properties. *out is the caller's. */
ag_status ag_object_names(ag_shaper *s, const ag_object_shape *x, ag_text_dfa *out);
ag_status ag_ways_and(ag_shaper *s, ag_ways a, ag_ways b, ag_ways *out);
ag_status ag_ways_or(ag_shaper *s, ag_ways a, ag_ways b, ag_ways *out);
/* Adds a copy of the shape. */
ag_status ag_ways_add(ag_shaper *s, ag_ways *ways, ag_shape shape);
/* Without goals that have not been looked into. */
ag_status ag_ways_flatten(ag_shaper *s, ag_ways a, ag_ways *out);
/* Whether nothing obeys, as far as can be seen without looking into goals. */
bool ag_object_is_empty(const ag_object_shape *x);
/* Whether surely nothing obeys, looking `depth` levels into objects and arrays. */
ag_status ag_goal_is_empty(ag_shaper *s, ag_goal goal, int depth, bool *empty);
ag_status ag_shape_is_empty(ag_shaper *s, const ag_shape *x, int depth, bool *empty);
ag_status ag_string_dfa(ag_shaper *s, const ag_string_shape *x, const ag_text_dfa **out);
/* Whether a number of the document obeys. */
bool ag_number_obeys(const ag_number_shape *x, const json_t *value);
/* The goal of the names' class that a name is in, or NEVER. */
ag_goal ag_object_other(const ag_object_shape *o, const char *name, size_t n);

/* complement.c: all that does not obey. *decidable false: there is no list of shapes for it. */
ag_status ag_ways_not(ag_shaper *s, ag_ways a, bool *decidable, ag_ways *out);

/* expand.c */
ag_status ag_goal_expand(ag_shaper *s, ag_goal goal, ag_ways *out);
bool ag_goal_is_running(const ag_shaper *s, ag_goal goal); /* it is being expanded */

#endif
