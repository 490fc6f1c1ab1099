/* SPDX-License-Identifier: Apache-2.0 */
/* Trigger: finds where a constraint begins in a text that is free until then. Matching reads bytes
 * only, so texts on several threads may share a trigger. */
#ifndef AG_CONSTRAIN_TRIGGER_H
#define AG_CONSTRAIN_TRIGGER_H

#include "constrain/grammar_atoms.h"

#include <jansson.h>

typedef struct ag_trigger ag_trigger;

typedef enum ag_trigger_where {
    AG_TRIGGER_START, /* white space and texts that may precede a start */
    AG_TRIGGER_REASONING,
    AG_TRIGGER_TEXT,
} ag_trigger_where;

/* Position of a text in its trigger. */
typedef struct ag_trigger_state {
    ag_text seen; /* owned; the newest bytes */
    size_t start; /* seen[start..) belongs to `where` */
    /* START: length of the white space and the texts before a start that were read there. */
    size_t n_skipped;
    ag_trigger_where where;
    bool may_reason; /* nothing but white space precedes: reasoning may open */
} ag_trigger_state;

/* Reads a trigger, a JSON object: see docs/reference/json-schema.md. Fails with AG_FORMAT. */
ag_status ag_trigger_parse(const ag_grammar_scope *scope, const json_t *v, ag_trigger **out,
                           ag_error *err);
ag_trigger *ag_trigger_retain(ag_trigger *t);
void ag_trigger_release(ag_trigger *t);

/* Returns to the start of a text. */
void ag_trigger_begin(const ag_trigger *t, ag_trigger_state *s);
/* Continues after the end of a constrained part. */
void ag_trigger_resume(ag_trigger_state *s);
/* Appends a token's bytes. *fires: the constrained part has begun, at seen[*begin], and the other
 * members of *s are undefined. */
ag_status ag_trigger_push(const ag_trigger *t, ag_trigger_state *s, const unsigned char *bytes,
                          size_t n, bool *fires, size_t *begin, ag_error *err);
/* Removes the n bytes of the newest ag_trigger_push(). *before: copy of *s from before it. */
void ag_trigger_undo(ag_trigger_state *s, const ag_trigger_state *before, size_t n);
ag_status ag_trigger_copy(ag_trigger_state *to, const ag_trigger_state *from, ag_error *err);

#endif
