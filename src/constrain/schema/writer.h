/* SPDX-License-Identifier: Apache-2.0 */
/* What turns goals of a schema into rules, shared by the ways to write values. */
#ifndef AG_CONSTRAIN_SCHEMA_WRITER_H
#define AG_CONSTRAIN_SCHEMA_WRITER_H

#include "constrain/schema/schema.h"
#include "constrain/schema/value_set.h"

typedef struct ag_schema_writer {
    ag_schema_compiler s;
    ag_pda *pda;
    const ag_json_rules *json;
    const ag_schema_notation *notation;
    uint32_t *rules; /* by goal: rule + 1 */
    size_t n_rules, rules_cap;
    ag_schema_set *queue; /* goals with a rule that has no start yet */
    size_t n_queue, queue_cap;
    uint32_t comma;           /* a rule; NOWHERE: not yet */
    uint32_t delimited_value; /* a rule, any value in marked notation; NOWHERE: not yet */
    const ag_text_dfa *without_stop,
        *unambiguous; /* texts without the stop; and those that read as text */
    bool any_order;   /* of properties */
    uint32_t schema;  /* that is being written, for messages */
    ag_error *err;
} ag_schema_writer;

/* schema_rules.c: a value that obeys the goal, then next. */
ag_status ag_write_call(ag_schema_writer *w, ag_schema_set schemas, uint32_t next, uint32_t *out);
ag_status ag_write_values(ag_schema_writer *w, const ag_value_set *x, uint32_t next, uint32_t *out);
/* Whether values stand in marked notation. */
bool ag_schema_is_delimited(const ag_schema_writer *w);
/* The space between parts, then next. */
uint32_t ag_write_space(ag_schema_writer *w, uint32_t next);
/* A rule: a comma and space. */
uint32_t ag_write_comma_rule(ag_schema_writer *w);
/* The same, then next; as a call where there are many. */
uint32_t ag_write_comma(ag_schema_writer *w, bool many, uint32_t next);
/* A text of the automaton, between quotes, then next. */
uint32_t ag_write_quoted(ag_schema_writer *w, const ag_text_dfa *d, uint32_t next);
/* array_rules.c, unique_rules.c, object_rules.c */
ag_status ag_write_array(ag_schema_writer *w, const ag_array_set *x, uint32_t next, uint32_t *out);
ag_status ag_write_unique(ag_schema_writer *w, const ag_array_set *x, uint32_t next, uint32_t *out);
ag_status ag_write_object(ag_schema_writer *w, const ag_object_set *x, uint32_t next,
                          uint32_t *out);
/* The same with at most as many characters as are written of a string whose states are counted. */
ag_string_set ag_string_set_shorten(const ag_string_set *x);

/* schema_arguments.c: the whole text, where the notation has arguments. */
ag_status ag_write_arguments(ag_schema_writer *w, ag_schema_set root, uint32_t next, uint32_t *out);
/* In marked notation: a string, an object, any array, any value. */
ag_status ag_write_delimited_string(ag_schema_writer *w, const ag_string_set *x, uint32_t next,
                                    uint32_t *out);
ag_status ag_write_delimited_object(ag_schema_writer *w, const ag_object_set *x, uint32_t next,
                                    uint32_t *out);
ag_status ag_write_delimited_array(ag_schema_writer *w, uint32_t next, uint32_t *out);
ag_status ag_write_delimited_value(ag_schema_writer *w, uint32_t next, uint32_t *out);

#endif
