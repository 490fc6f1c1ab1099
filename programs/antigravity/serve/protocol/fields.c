/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include "../threads/account.h"

#include <stdio.h>
#include <string.h>

static const char *type_name(const json_t *value) {
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
    };
    return names[json_typeof(value)];
}

static bool wrong_type(const char *name, const char *wanted, const json_t *found, serve_error *e) {
    return reject_field(e, name, "must be %s, not %s", wanted, type_name(found));
}

/* ---- record of the members that were read ---- */

enum { MAX_READ = 128 };

static _Thread_local struct {
    const json_t *body, *options; /* NULL: no record */
    size_t n;
    struct {
        const json_t *object;
        const char *name; /* a literal of the reader */
    } read[MAX_READ];
} record;

static bool was_read(const json_t *object, const char *name) {
    for (size_t i = 0; i < record.n; i++)
        if (record.read[i].object == object && !strcmp(record.read[i].name, name)) return true;
    return false;
}

json_t *field_get(const json_t *object, const char *name) {
    const bool is_recorded = object && (object == record.body || object == record.options);
    if (is_recorded && record.n < MAX_READ && !was_read(object, name)) {
        record.read[record.n].object = object;
        record.read[record.n++].name = name;
    }
    return json_object_get(object, name);
}

void fields_begin(const json_t *body) {
    record.body = body;
    record.options = json_object_get(body, "options");
    record.n = 0;
}

static bool is_word(const char *name) {
    const size_t n = strlen(name);
    return n && n <= 64 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n;
}

/* Appends the names of the object's members that were not read. Returns false if they do not fit.
 */
static bool append_unread(const json_t *object, const char *prefix, char *text, size_t size) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        const size_t n = strlen(text);
        if (json_is_null(value) || was_read(object, name)) continue;
        const char *shown = is_word(name) ? name : "?", *comma = n ? ", " : "";
        if (n + strlen(prefix) + strlen(shown) + sizeof ", , ..." > size) {
            snprintf(text + n, size - n, "%s...", comma);
            return false;
        }
        snprintf(text + n, size - n, "%s%s%s", comma, prefix, shown);
    }
    return true;
}

void fields_end(const json_t *body, char *text, size_t size) {
    const json_t *options = record.options;
    text[0] = '\0';
    const bool is_options_read = options && was_read(body, "options");
    if (append_unread(body, "", text, size) && is_options_read)
        append_unread(options, "options.", text, size);
    record.body = record.options = NULL;
}

/* ---- readers ---- */

/* Returns NULL if the field is missing or null. */
static json_t *given_field(const json_t *object, const char *name) {
    json_t *value = field_get(object, name);
    return json_is_null(value) ? NULL : value;
}

static bool get_typed(const json_t *object, const char *name, json_type type, const char *wanted,
                      json_t **out, serve_error *e) {
    json_t *value = given_field(object, name);
    if (!value) return true;
    if (json_typeof(value) != type) return wrong_type(name, wanted, value, e);
    *out = value;
    return true;
}

bool field_no_mirostat(const json_t *object, serve_error *e) {
    const json_t *value = given_field(object, "mirostat");
    if (!value || (json_is_number(value) && json_number_value(value) == 0)) return true;
    return reject_field(e, "mirostat", "not supported; use top_n_sigma, min_p or typical_p");
}

bool field_bool(const json_t *object, const char *name, bool *out, serve_error *e) {
    const json_t *value = given_field(object, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return wrong_type(name, "a boolean", value, e);
    *out = json_is_true(value);
    return true;
}

bool field_number(const json_t *object, const char *name, double min, double max, double *out,
                  serve_error *e) {
    const json_t *value = given_field(object, name);
    if (!value) return true;
    if (!json_is_number(value)) return wrong_type(name, "a number", value, e);
    double number = json_number_value(value);
    if (!(number >= min && number <= max))
        return reject_field(e, name, "%g is out of range: must be from %g to %g", number, min, max);
    *out = number;
    return true;
}

bool field_integer(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
                   serve_error *e) {
    const json_t *value = given_field(object, name);
    if (!value) return true;
    if (!json_is_integer(value)) return wrong_type(name, "an integer", value, e);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return reject_field(e, name, "%lld is out of range: must be from %lld to %lld",
                            (long long)number, (long long)min, (long long)max);
    *out = number;
    return true;
}

bool field_string(const json_t *object, const char *name, const char **out, serve_error *e) {
    json_t *value = NULL;
    if (!get_typed(object, name, JSON_STRING, "a string", &value, e)) return false;
    if (!value) return true;
    if (strlen(json_string_value(value)) != json_string_length(value))
        return reject_field(e, name, "must not contain NUL");
    *out = json_string_value(value);
    return true;
}

bool field_copy(const json_t *object, const char *name, char **out, serve_error *e) {
    const char *text = NULL;
    if (!field_string(object, name, &text, e)) return false;
    if (!text) return true;
    char *copy = account_strdup(text);
    if (!copy) return reject_no_memory(e);
    account_free(*out);
    *out = copy;
    return true;
}

bool field_array(const json_t *object, const char *name, json_t **out, serve_error *e) {
    return get_typed(object, name, JSON_ARRAY, "a list", out, e);
}

bool field_object(const json_t *object, const char *name, json_t **out, serve_error *e) {
    return get_typed(object, name, JSON_OBJECT, "an object", out, e);
}

bool field_strings(const json_t *object, const char *name, size_t max, json_t **out,
                   serve_error *e) {
    json_t *value = given_field(object, name);
    if (!value) return true;
    bool single = json_is_string(value);
    if (!single && !json_is_array(value))
        return wrong_type(name, "a string or a list of strings", value, e);
    size_t n = single ? 1 : json_array_size(value);
    if (n > max) return reject_field(e, name, "%zu strings; at most %zu", n, max);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *item = single ? value : json_array_get(value, i);
        if (!json_is_string(item)) {
            json_decref(list);
            return wrong_type(name, "a list of strings", value, e);
        }
        if (json_array_append(list, item) != 0) {
            json_decref(list);
            return reject_no_memory(e);
        }
    }
    if (!list) return reject_no_memory(e);
    json_decref(*out);
    *out = list;
    return true;
}

bool field_schema(const json_t *object, const char *name, char **out, serve_error *e) {
    json_t *schema = NULL;
    if (!field_object(object, name, &schema, e)) return false;
    if (!schema) return true;
    char *text = json_dumps(schema, JSON_COMPACT);
    if (!text) return reject_no_memory(e);
    account_free(*out);
    *out = text;
    return true;
}

bool field_suffix(const json_t *object, const char *name, serve_request *r, serve_error *e) {
    if (!field_copy(object, name, &r->suffix, e)) return false;
    if (!r->suffix || r->suffix[0]) return true;
    account_free(r->suffix);
    r->suffix = NULL;
    return true;
}

const char *field_type(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

const char *field_skip_billing(const char *text) {
    static const char header[] = "x-anthropic-billing-header:";
    if (strncmp(text, header, sizeof header - 1) != 0) return text;
    const char *end = strchr(text, '\n');
    return end ? end + 1 : "";
}

bool set_variable(serve_request *r, const char *name, json_t *value, serve_error *e) {
    if (!r->variables) r->variables = json_object();
    return json_object_set_new(r->variables, name, value) == 0 || reject_no_memory(e);
}
