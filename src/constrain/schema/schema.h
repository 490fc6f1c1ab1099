/* SPDX-License-Identifier: Apache-2.0 */
/* From a JSON schema to rules. */
#ifndef AG_CONSTRAIN_SCHEMA_SCHEMA_H
#define AG_CONSTRAIN_SCHEMA_SCHEMA_H

#include "constrain/pda/json_rules.h"

#include <jansson.h>

typedef enum ag_value_spelling {
    AG_SPELL_JSON,
    AG_SPELL_PYTHON,    /* JSON with True, False and None */
    AG_SPELL_DELIMITED, /* strings between marks, names of properties bare */
} ag_value_spelling;

typedef struct ag_delimiter {
    const char *s; /* [n] bytes; special tokens as token_tree.h spells them */
    size_t n;
} ag_delimiter;

/* How what obeys a schema is written, where that is not JSON: the properties of the object that it
 * describes one by one, as models write arguments of calls:
 *   open NAME before_text TEXT close between open NAME before_value VALUE close ... */
typedef struct ag_schema_notation {
    ag_value_spelling values;
    bool raw_texts; /* strings stand behind before_text, without quotes; else they are values */
    ag_delimiter open, before_text, before_value, close, between;
    ag_delimiter quote; /* MARKED: around strings */
    ag_delimiter
        stop; /* a regular expression: strings without quotes in which it is found are out */
} ag_schema_notation;

/* *start: what the text begins with. notation NULL: JSON. AG_UNSUPPORTED names the keyword and its
 * place. */
ag_status ag_schema_compile(ag_pda *pda, const ag_json_rules *json, const char *text, size_t n,
                            const ag_schema_notation *notation, bool any_order, uint32_t *start,
                            ag_error *err);

/* Whether a schema says by itself that nothing but strings obeys: its text needs no quotes to be
 * known for one. */
bool ag_schema_is_text(const json_t *schema);

#endif
