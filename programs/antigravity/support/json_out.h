/* SPDX-License-Identifier: Apache-2.0 */
/* JSON on standard output. */
#ifndef ANTIGRAVITY_JSON_OUT_H
#define ANTIGRAVITY_JSON_OUT_H

#include <jansson.h>
#include <stdint.h>

/* Constructors return NULL without memory; what takes a value takes NULL for one that could not be
 * made and gives NULL, or prints nothing, in turn. */

typedef struct json_field {
    const char *key;
    json_t *value; /* transferred */
} json_field;
json_t *json_object_of(const json_field *fields, size_t n);
#define JSON_OBJECT(fields) json_object_of(fields, sizeof(fields) / sizeof *(fields))
/* Returns a list with one item, which is transferred. */
json_t *json_list_of(json_t *item);
/* Appends to *list, which becomes NULL if that fails. */
void json_append(json_t **list, json_t *item);

/* A string of any bytes: those that are not UTF-8 become U+FFFD. */
json_t *json_text(const char *text, size_t len);
json_t *json_ids(const int32_t *ids, size_t n);
/* 0.8f as 0.8, not as 0.800000011920929; what is not finite becomes null. */
json_t *json_float(float v);

/* Prints the value and a newline; releases it. Returns an exit code. */
int json_print(json_t *value);

#endif
