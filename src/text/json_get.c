/* SPDX-License-Identifier: Apache-2.0 */
#include "text/json_get.h"

#include "core/fail.h"

static const char *type_name(json_type type) {
    switch (type) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    case JSON_NULL:
        break;
    }
    return "null";
}

ag_status ag_json_expect_object(const json_t *v, const char *path, ag_error *err) {
    if (json_is_object(v)) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s is %s, it must be an object", path,
                   v ? type_name(json_typeof(v)) : "missing");
}

ag_status ag_json_optional(const json_t *object, const char *path, const char *key, json_type type,
                           json_t **out, ag_error *err) {
    json_t *v = json_object_get(object, key);
    *out = NULL;
    if (!v || json_is_null(v)) return AG_OK;
    if (json_typeof(v) != type && !(type == JSON_TRUE && json_is_boolean(v))) {
        return AG_FAIL(err, FORMAT, "%s.%s is %s, it must be %s", path, key,
                       type_name(json_typeof(v)), type_name(type));
    }
    *out = v;
    return AG_OK;
}

ag_status ag_json_required(const json_t *object, const char *path, const char *key, json_type type,
                           json_t **out, ag_error *err) {
    AG_TRY(ag_json_optional(object, path, key, type, out, err));
    if (*out) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s.%s is missing, it must be %s", path, key, type_name(type));
}

ag_status ag_json_bool(const json_t *object, const char *path, const char *key, bool default_value,
                       bool *out, ag_error *err) {
    json_t *v;
    AG_TRY(ag_json_optional(object, path, key, JSON_TRUE, &v, err));
    *out = v ? json_is_true(v) : default_value;
    return AG_OK;
}

ag_status ag_json_component(const json_t *object, const char *path, const char **type,
                            ag_error *err) {
    json_t *v;
    AG_TRY(ag_json_expect_object(object, path, err));
    AG_TRY(ag_json_required(object, path, "type", JSON_STRING, &v, err));
    *type = json_string_value(v);
    return AG_OK;
}

ag_status ag_json_unsupported(const char *path, const char *type, ag_error *err) {
    return AG_FAIL(err, UNSUPPORTED, "%s: \"%.60s\" is not supported", path, type);
}
