/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to a parsed tokenizer.json. `path` is the JSON path of `object` for messages
 * ("decoder.decoders[2]"). A missing key equals null, as in the tokenizers library. */
#ifndef AG_TEXT_JSON_GET_H
#define AG_TEXT_JSON_GET_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { AG_JSON_PATH_BYTES = 160 };

/* Fails with AG_FORMAT unless v is an object. */
ag_status ag_json_expect_object(const json_t *v, const char *path, ag_error *err);
/* Sets *out to the value of key, NULL if it is absent or null. Fails with AG_FORMAT if its type is
 * not `type`. */
ag_status ag_json_optional(const json_t *object, const char *path, const char *key, json_type type,
                           json_t **out, ag_error *err);
/* Fails with AG_FORMAT if the key is absent or has another type. */
ag_status ag_json_required(const json_t *object, const char *path, const char *key, json_type type,
                           json_t **out, ag_error *err);
ag_status ag_json_bool(const json_t *object, const char *path, const char *key, bool default_value,
                       bool *out, ag_error *err);
/* Reads the required string "type" of a component; borrowed from object. */
ag_status ag_json_component(const json_t *object, const char *path, const char **type,
                            ag_error *err);
/* Fails with AG_UNSUPPORTED and names the component. */
ag_status ag_json_unsupported(const char *path, const char *type, ag_error *err);

#endif
