/* SPDX-License-Identifier: Apache-2.0 */
/* Builds JSON and prints it to standard output. */
#ifndef ANTIGRAVITY_JSON_OUT_H
#define ANTIGRAVITY_JSON_OUT_H

#include <jansson.h>
#include <stdint.h>

/* Constructors return NULL if out of memory. Functions that take a value accept NULL, and then
 * return NULL or report the failure. */

typedef struct json_field {
    const char *key;
    json_t *value; /* ownership is transferred */
} json_field;
/* Adds fields to an object, which is transferred. */
json_t *json_add_fields(json_t *object, const json_field *fields, size_t n);
#define JSON_FIELDS(fields) \
    json_add_fields(json_object(), fields, sizeof(fields) / sizeof *(fields))
/* Returns the object of pairs: JSON_OBJECT({"id", json_string(id)}, {"n", json_integer(n)}). */
#define JSON_OBJECT(...) JSON_ADD(json_object(), __VA_ARGS__)
/* Adds pairs to an object, which is transferred. */
#define JSON_ADD(object, ...)                                  \
    json_add_fields(object, (const json_field[]){__VA_ARGS__}, \
                    sizeof((const json_field[]){__VA_ARGS__}) / sizeof(json_field))
/* Returns a list with one item, which is transferred. */
json_t *json_list_of(json_t *item);
/* Appends to *list. On failure releases the list and sets it to NULL. */
void json_append(json_t **list, json_t *item);

/* Returns a string; bytes that are not UTF-8 become U+FFFD. */
json_t *json_text(const char *text, size_t len);
json_t *json_ids(const int32_t *ids, size_t n);
/* Returns null if the number is not finite. */
json_t *json_number(double v);
/* Returns 0.8f as 0.8, not as 0.800000011920929; null if not finite. */
json_t *json_float(float v);

/* Prints the value and a newline, and releases it. Returns an exit code. */
int json_print(json_t *value);

#endif
