/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to a parsed tokenizer.json. `place` is the JSON path of `object` for messages
 * ("decoder.decoders[2]"); a missing key and null are the same, as in the tokenizers library. */
#ifndef AG_TEXT_JSON_GET_H
#define AG_TEXT_JSON_GET_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { AG_JSON_PATH_BYTES = 160 };

/* AG_FORMAT unless v is an object. */
ag_status ag_json_expect_object(const json_t *v, const char *path, ag_error *err);
/* *out is NULL when the key is absent or null; AG_FORMAT if it has another type than `type`. */
ag_status ag_json_optional(const json_t *object, const char *path, const char *key, json_type type,
                           json_t **out, ag_error *err);
/* AG_FORMAT when the key is absent. */
ag_status ag_json_required(const json_t *object, const char *path, const char *key, json_type type,
                           json_t **out, ag_error *err);
ag_status ag_json_bool(const json_t *object, const char *path, const char *key, bool default_value,
                       bool *out, ag_error *err);
/* The required string "type" of a component; borrowed from object. */
ag_status ag_json_component(const json_t *object, const char *path, const char **type,
                            ag_error *err);
/* AG_UNSUPPORTED that names the component. */
ag_status ag_json_unsupported(const char *path, const char *type, ag_error *err);

#endif
