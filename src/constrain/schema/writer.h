/* SPDX-License-Identifier: Apache-2.0 */
/* Schema writer: writes schema sets and value sets as rules of a PDA. */
#ifndef AG_CONSTRAIN_SCHEMA_WRITER_H
#define AG_CONSTRAIN_SCHEMA_WRITER_H

#include "constrain/pda/pda.h"
#include "constrain/schema/schema.h"
#include "constrain/schema/value_set.h"

typedef struct ag_schema_writer {
    ag_schema_compiler s;
    ag_pda *pda;
    const ag_json_rules *json;
    const ag_schema_notation *notation;
    uint32_t *rules; /* by schema set: rule + 1; 0: none */
    size_t n_rules, rules_cap;
    ag_schema_set *queue; /* schema sets whose rule has no start yet */
    size_t n_queue, queue_cap;
    uint32_t comma; /* rule; AG_PDA_UNSET: not written yet */
    /* Rule of any value in delimited notation; AG_PDA_UNSET: not written yet. */
    uint32_t delimited_value;
    /* Texts without the stop; those of them that do not read as another value. NULL: not made. */
    const ag_text_dfa *without_stop, *unambiguous;
    ag_schema_objects objects;
    uint32_t schema; /* number of the current schema, for messages */
    ag_error *err;
} ag_schema_writer;

/* writer.c: writes a call of the rule of `schemas`, then next. AG_SCHEMA_NONE: AG_PDA_FAIL. */
ag_status ag_write_call(ag_schema_writer *w, ag_schema_set schemas, uint32_t next, uint32_t *out);
/* Writes a value of the set, then next. */
ag_status ag_write_values(ag_schema_writer *w, const ag_value_set *x, uint32_t next, uint32_t *out);
/* Returns whether values are in delimited notation. */
bool ag_schema_is_delimited(const ag_schema_writer *w);
/* Writes the space between two parts, then next. */
uint32_t ag_write_space(ag_schema_writer *w, uint32_t next);
/* Returns the rule of a comma and space. */
uint32_t ag_write_comma_rule(ag_schema_writer *w);
/* Writes a comma and space, then next; as a call if there are many. Passes on AG_PDA_FAIL. */
uint32_t ag_write_comma(ag_schema_writer *w, bool many, uint32_t next);
/* Writes a bracket and space, then next. Passes on AG_PDA_FAIL. */
uint32_t ag_write_open(ag_schema_writer *w, char bracket, uint32_t next);
/* Writes a text of the automaton between quotes, then next. */
uint32_t ag_write_quoted(ag_schema_writer *w, const ag_text_dfa *d, uint32_t next);
/* write_array.c, write_unique.c, write_object.c: write a value of the set, then next. */
ag_status ag_write_array(ag_schema_writer *w, const ag_array_set *x, uint32_t next, uint32_t *out);
ag_status ag_write_unique(ag_schema_writer *w, const ag_array_set *x, uint32_t next, uint32_t *out);
ag_status ag_write_object(ag_schema_writer *w, const ag_object_set *x, uint32_t next,
                          uint32_t *out);
/* Returns the set with a limited max lowered to the most characters that are written. */
ag_string_set ag_string_set_shorten(const ag_string_set *x);

/* write_arguments.c: writes the whole text of a notation with arguments. */
ag_status ag_write_arguments(ag_schema_writer *w, ag_schema_set root, uint32_t next, uint32_t *out);
/* In delimited notation: writes a string, an object, any array, any value. */
ag_status ag_write_delimited_string(ag_schema_writer *w, const ag_string_set *x, uint32_t next,
                                    uint32_t *out);
ag_status ag_write_delimited_object(ag_schema_writer *w, const ag_object_set *x, uint32_t next,
                                    uint32_t *out);
ag_status ag_write_delimited_array(ag_schema_writer *w, uint32_t next, uint32_t *out);
ag_status ag_write_delimited_value(ag_schema_writer *w, uint32_t next, uint32_t *out);

/* write_number.c. Writes a number of the set, then next. Returns AG_PDA_FAIL if there is none.
 * *unsupported: the multiples or limits need too many states or digits. */
uint32_t ag_pda_number(ag_pda *pda, const ag_json_rules *json, const ag_number_set *x,
                       uint32_t next, bool *unsupported);

#endif
