/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles JSON schemas into rules of a PDA. */
#ifndef AG_CONSTRAIN_SCHEMA_SCHEMA_H
#define AG_CONSTRAIN_SCHEMA_SCHEMA_H

#include "constrain/pda/json_rules.h"

#include <jansson.h>

typedef enum ag_value_spelling {
    AG_SPELL_JSON,
    AG_SPELL_PYTHON,    /* JSON with True, False and None */
    AG_SPELL_DELIMITED, /* strings between delimiters, property names without quotes */
} ag_value_spelling;

typedef struct ag_delimiter {
    const char *s; /* [n] bytes; special tokens as token_tree.h spells them */
    size_t n;
} ag_delimiter;

/* Notation of a value that is not plain JSON: the properties of an object one by one, as models
 * write the arguments of calls:
 *   open NAME before_text TEXT close between open_value NAME before_value VALUE close ... */
typedef struct ag_schema_notation {
    ag_value_spelling values;
    bool raw_texts; /* strings follow before_text without quotes; false: strings are values */
    ag_delimiter open, before_text, open_value, before_value, close, between;
    ag_delimiter quote; /* DELIMITED: around strings */
    ag_delimiter stop;  /* regular expression that must not be found in a string without quotes */
} ag_schema_notation;

/* Form of written objects. */
typedef struct ag_schema_objects {
    bool any_order; /* properties may come in any order */
    bool closed;    /* closed_objects of ag_constraint_params */
} ag_schema_objects;

/* Writes the rules of a schema into pda. *start: the first instruction. notation NULL: JSON.
 * AG_UNSUPPORTED names the keyword and its path. */
ag_status ag_schema_compile(ag_pda *pda, const ag_json_rules *json, const char *text, size_t n,
                            const ag_schema_notation *notation, ag_schema_objects objects,
                            uint32_t *start, ag_error *err);

/* Returns whether the schema itself allows strings only, so that a text without quotes is known to
 * be a string. */
bool ag_schema_is_text(const json_t *schema);

#endif
