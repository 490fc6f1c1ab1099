/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a JSON table that the program printed. The test fails if a number or a row is missing. */
#ifndef AG_TESTS_CLI_JSON_ROWS_H
#define AG_TESTS_CLI_JSON_ROWS_H

#include "cli.h"

static inline double number(const json_t *object, const char *key) {
    json_t *v = json_object_get(object, key);
    if (!json_is_number(v)) fail_msg("no number \"%s\"", key);
    return json_number_value(v);
}

/* Returns "" if the string is missing. */
static inline const char *word(json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static inline json_t *row_of(json_t *root, size_t i) {
    json_t *row = json_array_get(json_object_get(root, "rows"), i);
    if (!row) fail_msg("no row %zu", i);
    return row;
}

static inline size_t n_rows(json_t *root) { return json_array_size(json_object_get(root, "rows")); }

#endif
