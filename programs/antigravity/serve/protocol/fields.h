/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of fields of a JSON body. Each function leaves *out unchanged if the field is missing or
 * null. It fails with 400 and param set to the field if the value has a wrong type or is out of
 * range. */
#ifndef ANTIGRAVITY_SERVE_PROTOCOL_FIELDS_H
#define ANTIGRAVITY_SERVE_PROTOCOL_FIELDS_H

#include "protocol.h"

/* Returns a value, borrowed, null included; NULL if it is missing. */
json_t *field_get(const json_t *object, const char *name);
bool field_bool(const json_t *object, const char *name, bool *out, serve_error *e);
bool field_number(const json_t *object, const char *name, double min, double max, double *out,
                  serve_error *e);
bool field_integer(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
                   serve_error *e);
/* Reads a string, borrowed from the object. Rejects strings with a NUL. */
bool field_string(const json_t *object, const char *name, const char **out, serve_error *e);
/* Reads a copy of a string. Frees the old value of *out. */
bool field_copy(const json_t *object, const char *name, char **out, serve_error *e);
/* The values are borrowed from the object. */
bool field_array(const json_t *object, const char *name, json_t **out, serve_error *e);
bool field_object(const json_t *object, const char *name, json_t **out, serve_error *e);
/* Rejects the field "mirostat" if it is not 0. */
bool field_no_mirostat(const json_t *object, serve_error *e);
/* Reads a string, or a list of at most `max` strings, into a new array. */
bool field_strings(const json_t *object, const char *name, size_t max, json_t **out,
                   serve_error *e);
/* Reads an object as JSON text, which the caller must free. */
bool field_schema(const json_t *object, const char *name, char **out, serve_error *e);

/* Reads r->suffix. An empty string counts as missing. */
bool field_suffix(const json_t *object, const char *name, serve_request *r, serve_error *e);

/* Starts to record which members of the body, and of its "options", the calling thread reads. */
void fields_begin(const json_t *body);
/* Ends the record. Writes the names of the members that were not read, without those that are null,
 * to text[size]: "user, options.num_gpu". Other names than words of letters, digits, '_', '-' and
 * '.' become "?". Names that do not fit become "...". */
void fields_end(const json_t *body, char *text, size_t size);

/* Returns the value of "type", or "". */
const char *field_type(const json_t *object);

/* Returns the text after the billing line with which a coding agent begins its system prompt. That
 * line differs in each request and would prevent prefix reuse. */
const char *field_skip_billing(const char *text);

/* Sets a variable of the template in r->variables. The value is transferred. */
bool set_variable(serve_request *r, const char *name, json_t *value, serve_error *e);

#endif
