/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a body. Each function leaves *out as it is where the field is missing or null, and
 * refuses (400, param: the field) what is of another type or outside its range. */
#ifndef ANTIGRAVITY_SERVE_PROTOCOL_FIELDS_H
#define ANTIGRAVITY_SERVE_PROTOCOL_FIELDS_H

#include "protocol.h"

bool field_bool(const json_t *object, const char *name, bool *out, serve_error *e);
bool field_number(const json_t *object, const char *name, double min, double max, double *out,
                  serve_error *e);
bool field_integer(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
                   serve_error *e);
/* A string, borrowed from the object; one with a NUL inside is refused. */
bool field_string(const json_t *object, const char *name, const char **out, serve_error *e);
/* A copy of it. */
bool field_copy(const json_t *object, const char *name, char **out, serve_error *e);
/* Borrowed from the object. */
bool field_array(const json_t *object, const char *name, json_t **out, serve_error *e);
bool field_object(const json_t *object, const char *name, json_t **out, serve_error *e);
/* A string, or a list of at most `most` strings: *out is a new array of them. */
bool field_strings(const json_t *object, const char *name, size_t max, json_t **out,
                   serve_error *e);
/* Only an object or nothing may stand there: *out is its text. */
bool field_schema(const json_t *object, const char *name, char **out, serve_error *e);

/* r->suffix; an empty one is none. */
bool field_suffix(const json_t *object, const char *name, serve_request *r, serve_error *e);

/* The value of "type" of a part, an item, a block; "" where there is none. */
const char *field_type(const json_t *object);

/* What is left of a system prompt's first text without the line with which a coding agent begins
 * it: that is another one in each request, and a conversation that began with it would never be
 * found again. */
const char *field_skip_billing(const char *text);

/* Sets the template's variable of that name in r->variables; the value is transferred. */
bool set_variable(serve_request *r, const char *name, json_t *value, serve_error *e);

#endif
