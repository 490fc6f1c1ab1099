/* SPDX-License-Identifier: Apache-2.0 */
/* Options from a JSON file. */
#include "options.h"

#include "../command.h"
#include "../support/input.h"
#include "../terminal/output.h"
#include "suggest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file ---- */

/* Returns the line of a key of the outermost object; 1 for a key with escape sequences. The text is
 * valid JSON that has the key. */
static size_t line_of_key(const char *text, const char *key) {
    const size_t n = strlen(key);
    size_t line = 1, found = 1;
    int depth = 0;
    for (const char *at = text; *at; at++) {
        if (*at == '\n') line++;
        if (*at == '{' || *at == '[') depth++;
        if (*at == '}' || *at == ']') depth--;
        if (*at != '"') continue;
        const char *begin = ++at;
        while (*at && *at != '"') at += *at == '\\' && at[1] ? 2 : 1;
        if (!*at) return found;
        const char *after = at + 1 + strspn(at + 1, " \t\r\n");
        if (depth == 1 && *after == ':' && (size_t)(at - begin) == n && !strncmp(begin, key, n))
            found = line;
    }
    return found;
}

/* A file while its keys are applied. */
typedef struct options_file {
    const command_line *line;
    const char *path, *text;
} options_file;

static int fail_at(const options_file *f, const char *key, const char *reason) {
    return complain_usage("%s:%zu: \"%s\": %s", f->path, line_of_key(f->text, key), key, reason);
}

/* ---- values ---- */

static const char *kind_name(const option_def *def) {
    if (!def->value) return "true or false";
    switch (def->kind) {
    case OPTION_U32:
    case OPTION_I64:
        return "a whole number";
    case OPTION_REAL:
        return "a number";
    case OPTION_SIZE:
        return "a number of bytes or a text such as \"2G\"";
    case OPTION_LIST:
        return "a list of whole numbers";
    case OPTION_CALL:
        return "a text, a number or a list of them";
    default:
        return "a text";
    }
}

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

/* Returns whether the row accepts a value of this JSON type. */
static bool accepts(const option_def *def, const json_t *value) {
    if (!def->value) return json_is_boolean(value);
    switch (def->kind) {
    case OPTION_U32:
    case OPTION_I64:
        return json_is_integer(value);
    case OPTION_REAL:
        return json_is_number(value);
    case OPTION_SIZE:
        return json_is_string(value) || json_is_integer(value);
    case OPTION_LIST:
        return json_is_array(value);
    case OPTION_CALL:
        return json_is_string(value) || json_is_number(value) || json_is_object(value);
    default:
        return json_is_string(value);
    }
}

/* Returns the value as it would be typed: a string of `owner`, which keeps it; NULL without
 * memory. */
static const char *typed_text(const json_t *value, json_t *owner) {
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    if (json_is_string(value)) return json_string_value(value);
    const size_t n = json_dumpb(value, NULL, 0, flags);
    char *text = malloc(n + 1);
    if (!text) return NULL;
    json_dumpb(value, text, n, flags);
    const size_t brackets = json_is_array(value); /* "[1,2]" */
    json_t *copy = json_stringn(text + brackets, n - 2 * brackets);
    free(text);
    return json_array_append_new(owner, copy) == 0 ? json_string_value(copy) : NULL;
}

/* Sets one value of a row. `owner` keeps texts. */
static int set_value(const options_file *f, const option_def *def, void *target, const char *key,
                     const json_t *value, json_t *owner) {
    char message[MESSAGE_SIZE];
    if (!accepts(def, value)) {
        snprintf(message, sizeof message, "is %s; it must be %s", type_name(value), kind_name(def));
        return fail_at(f, key, message);
    }
    if (json_is_false(value)) return OPTIONS_RUN;
    const char *text = def->value ? typed_text(value, owner) : NULL;
    if (def->value && !text) return complain_no_memory();
    return option_set(def, target, text, message) ? OPTIONS_RUN : fail_at(f, key, message);
}

/* Finds the row of a key. Rows that name a file of options are not among them. */
static const option_def *find_key(const command_line *line, const char *key, void **target) {
    for (size_t g = 0; g < MAX_GROUPS && line->groups[g].defs; g++) {
        *target = line->groups[g].target;
        for (size_t i = 0; i < line->groups[g].n; i++) {
            const option_def *def = &line->groups[g].defs[i];
            if (def->kind != OPTION_FILE && option_is_called(def, key)) return def;
        }
    }
    return NULL;
}

static int unknown_key(const options_file *f, const char *key) {
    char message[MESSAGE_SIZE];
    suggestion s = suggestion_for(key);
    for (size_t g = 0; g < MAX_GROUPS && f->line->groups[g].defs; g++)
        for (size_t i = 0; i < f->line->groups[g].n; i++)
            suggestion_try(&s, f->line->groups[g].defs[i].name);
    snprintf(message, sizeof message, "unknown option%s%s%s", s.best ? "; did you mean \"" : "",
             s.best ? s.best : "", s.best ? "\"?" : "; --help lists them");
    return fail_at(f, key, message);
}

/* Sets the row of a key. A list gives an option several times. */
static int set_key(const options_file *f, const char *key, const json_t *value, json_t *owner) {
    void *target;
    const option_def *def = find_key(f->line, key, &target);
    if (!def) return unknown_key(f, key);
    const bool repeats = def->kind == OPTION_CALL && def->value && json_is_array(value);
    if (!repeats) return set_value(f, def, target, key, value, owner);
    int code = OPTIONS_RUN;
    for (size_t i = 0; code == OPTIONS_RUN && i < json_array_size(value); i++)
        code = set_value(f, def, target, key, json_array_get(value, i), owner);
    return code;
}

/* Returns the list of values that options may borrow, until the process ends. */
static json_t *borrowed_values(void) {
    static json_t *list;
    if (!list) list = json_array();
    return list;
}

static int apply_text(const options_file *f) {
    json_error_t error;
    json_t *root = json_loads(f->text, JSON_REJECT_DUPLICATES, &error);
    if (!root) return complain_usage("%s:%d:%d: %s", f->path, error.line, error.column, error.text);
    json_t *owner = borrowed_values();
    if (json_array_append_new(owner, root) != 0) return complain_no_memory();
    if (!json_is_object(root))
        return complain_usage("%s: is %s; it must be an object of options", f->path,
                              type_name(root));
    int code = OPTIONS_RUN;
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        if (code == OPTIONS_RUN) code = set_key(f, key, value, owner);
    }
    return code;
}

int options_read_file(const command_line *line, const char *path) {
    size_t len;
    char *text;
    int code = input_read_text(path, &text, &len);
    if (code != EXIT_DONE) return code;
    code = apply_text(&(options_file){line, path, text});
    free(text);
    return code;
}
