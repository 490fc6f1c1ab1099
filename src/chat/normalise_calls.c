/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/normalise.h"

#include "chat/values.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

json_t *ag_chat_join(const json_t *a, const char *between, const json_t *b) {
    ag_text all = {0};
    ag_status st = ag_text_append(&all, json_string_value(a), json_string_length(a), NULL);
    if (st == AG_OK) st = ag_text_append(&all, between, strlen(between), NULL);
    if (st == AG_OK) st = ag_text_append(&all, json_string_value(b), json_string_length(b), NULL);
    json_t *v = st == AG_OK ? json_stringn_nocheck(all.data, all.len) : NULL;
    ag_text_free(&all);
    return v;
}

json_t *ag_chat_wrap(const char *before, const json_t *text, const char *behind) {
    json_t *a = json_string(before), *b = json_string(behind);
    json_t *v = a && b ? ag_chat_join(a, "", text) : NULL, *all = v ? ag_chat_join(v, "", b) : NULL;
    json_decref(a);
    json_decref(b);
    json_decref(v);
    return all;
}

static bool set(json_t *m, const char *key, json_t *v) {
    return json_object_set_new(m, key, v) == 0;
}

/* As Python writes JSON, which is what models have seen. */
static json_t *dumped(const json_t *v) {
    return ag_value_dumped(v, 0);
}

/* ---- ids ---- */

static bool is_short_id(const char *id) {
    size_t n = 0;
    for (; id[n]; n++) {
        const char c = id[n];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
            return false;
        }
    }
    return n == 9;
}

/* 9 letters and digits that depend on the id alone. */
static json_t *shortened(const char *id) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t h = 14695981039346656037u;
    char text[10] = {0};
    for (const char *p = id; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    h ^= h >> 32;
    for (size_t i = 0; i < 9; i++, h /= 62) text[i] = letters[h % 62];
    return json_string(text);
}

static bool fit_id(const ag_chat_format *f, json_t *m, const char *key) {
    const char *id = json_string_value(json_object_get(m, key));
    if (!id || (f->bears & AG_BEARS_LONG_IDS) || is_short_id(id)) return true;
    return set(m, key, shortened(id));
}

/* ---- calls ---- */

static bool fit_arguments(const ag_chat_format *f, json_t *function) {
    json_t *v = json_object_get(function, "arguments");
    const bool objects = f->features & AG_CHAT_ARGUMENT_OBJECTS;
    const bool texts = f->features & AG_CHAT_ARGUMENT_TEXT;
    if (!v || json_is_null(v)) v = NULL;
    if (!v) return set(function, "arguments", objects ? json_object() : json_string("{}"));
    if (json_is_object(v)) return objects || !texts || set(function, "arguments", dumped(v));
    if (texts || !objects) return true;
    const char *s = json_string_value(v);
    const size_t n = json_string_length(v);
    json_t *object = json_loadb(s, n, JSON_ALLOW_NUL, NULL);
    if (!object && strspn(s, " \t\r\n") == n) object = json_object();
    /* A call that was cut short: what there is of it is not lost. */
    if (!json_is_object(object)) {
        json_decref(object);
        object = json_pack("{s:O}", "arguments", v);
    }
    return set(function, "arguments", object);
}

static json_t *fitted_call(const ag_chat_format *f, json_t *call, size_t place, size_t i) {
    json_t *old = json_object_get(call, "function");
    json_t *copy = json_copy(call), *function = old ? json_copy(old) : json_object();
    char id[24];
    bool ok = copy && function;
    if (ok && !old) {
        ok = json_object_set(function, "name", json_object_get(call, "name")) == 0;
        json_t *args = json_object_get(call, "arguments");
        if (ok && args) ok = json_object_set(function, "arguments", args) == 0;
        json_object_del(copy, "name");
        json_object_del(copy, "arguments");
    }
    snprintf(id, sizeof id, "call%03zu%02zu", place % 1000, i % 100);
    if (ok && !json_object_get(copy, "type")) ok = set(copy, "type", json_string("function"));
    if (ok && !json_is_string(json_object_get(copy, "id"))) ok = set(copy, "id", json_string(id));
    ok = ok && fit_id(f, copy, "id") && fit_arguments(f, function);
    if (ok) {
        ok = set(copy, "function", function);
        function = NULL;
    }
    json_decref(function);
    if (ok) return copy;
    json_decref(copy);
    return NULL;
}

/* The calls that the results behind `before` answer. */
static const json_t *last_calls(const json_t *before, size_t n, size_t *n_results) {
    *n_results = 0;
    while (n-- > 0) {
        const json_t *m = json_array_get(before, n);
        const json_t *calls = json_object_get(m, "tool_calls");
        if (json_array_size(calls)) return calls;
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "tool") != 0) return NULL;
        ++*n_results;
    }
    return NULL;
}

/* A result without an id answers the next call; one without a name has its call's. */
static bool fit_result(const ag_chat_format *f, json_t *m, const json_t *before, size_t n) {
    size_t n_results, i;
    const json_t *calls = last_calls(before, n, &n_results), *call, *mine = NULL;
    if (!fit_id(f, m, "tool_call_id")) return false;
    const char *id = json_string_value(json_object_get(m, "tool_call_id"));
    json_array_foreach(calls, i, call) {
        const char *its = json_string_value(json_object_get(call, "id"));
        if (id ? its && !strcmp(id, its) : i == n_results) mine = call;
    }
    if (!mine) return true;
    json_t *name = json_object_get(json_object_get(mine, "function"), "name");
    if (!id && json_object_set(m, "tool_call_id", json_object_get(mine, "id"))) return false;
    return json_object_get(m, "name") || json_object_set(m, "name", name) == 0;
}

bool ag_chat_fit_calls(const ag_chat_format *f, json_t *m, const json_t *before, size_t n) {
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *calls = json_object_get(m, "tool_calls");
    size_t i;
    json_t *call;
    if (role && !strcmp(role, "tool")) return fit_result(f, m, before, n);
    if (!calls) return true;
    if (json_array_size(calls) == 0) return json_object_del(m, "tool_calls") == 0;
    json_t *list = json_array();
    json_array_foreach(calls, i, call) {
        if (json_array_append_new(list, fitted_call(f, call, n, i)) == 0) continue;
        json_decref(list);
        return false;
    }
    return set(m, "tool_calls", list);
}

/* ---- tools ---- */

static bool add_description(json_t *object) {
    return json_is_string(json_object_get(object, "description")) ||
           set(object, "description", json_string(""));
}

/* Everything that has a type gets a description. `function` is a deep copy. */
static bool describe_all(json_t *function) {
    if (!add_description(function)) return false;
    json_t *schema = json_object_get(function, "parameters"), *property;
    const char *key;
    if (!json_is_object(schema)) {
        schema = json_pack("{s:s, s:{}}", "type", "object", "properties");
        if (!set(function, "parameters", schema)) return false;
    }
    if (!json_object_get(schema, "properties") && !set(schema, "properties", json_object())) {
        return false;
    }
    json_object_foreach(json_object_get(schema, "properties"), key, property) {
        if (json_is_object(property) && !add_description(property)) return false;
    }
    return true;
}

static json_t *fitted_tool(const ag_chat_format *f, const json_t *tool) {
    json_t *function = json_object_get(tool, "function");
    const bool is_wrapped = function != NULL;
    json_t *copy = is_wrapped ? json_deep_copy(tool) : NULL;
    if (!is_wrapped) {
        copy = json_pack("{s:s, s:o}", "type", "function", "function", json_deep_copy(tool));
    } else if (copy && !json_object_get(copy, "type") &&
               !set(copy, "type", json_string("function"))) {
        json_decref(copy);
        return NULL;
    }
    function = json_object_get(copy, "function");
    if (!copy || (f->bears & AG_BEARS_BARE_TOOLS) || describe_all(function)) return copy;
    json_decref(copy);
    return NULL;
}

json_t *ag_chat_fit_tools(const ag_chat_format *f, const json_t *tools) {
    json_t *list = json_array();
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool) {
        if (json_array_append_new(list, fitted_tool(f, tool)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* ---- as text ---- */

static bool add_line(ag_text *text, const json_t *v) {
    json_t *line = ag_value_dumped(v, 0);
    const bool ok = line &&
                    ag_text_append(text, json_string_value(line), json_string_length(line), NULL) ==
                        AG_OK &&
                    ag_text_append(text, "\n", 1, NULL) == AG_OK;
    json_decref(line);
    return ok;
}

static bool add(ag_text *text, const char *s) {
    return ag_text_append(text, s, strlen(s), NULL) == AG_OK;
}

static json_t *string_of(ag_text *text, bool ok) {
    json_t *v = ok ? json_stringn_nocheck(text->data, text->len) : NULL;
    ag_text_free(text);
    return v;
}

json_t *ag_chat_tools_text(const json_t *tools) {
    ag_text text = {0};
    const json_t *tool;
    size_t i;
    bool ok =
        add(&text, "You may call functions to answer. These there are, one a line:\n<tools>\n");
    json_array_foreach(tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        ok = ok && add_line(&text, function ? function : tool);
    }
    ok =
        ok && add(&text, "</tools>\nFor each call write a JSON object with the function's name and "
                         "its arguments between these tags:\n<tool_call>\n{\"name\": NAME, "
                         "\"arguments\": {...}}\n</tool_call>");
    return string_of(&text, ok);
}

json_t *ag_chat_calls_text(const json_t *calls) {
    ag_text text = {0};
    const json_t *call;
    size_t i;
    bool ok = true;
    json_array_foreach(calls, i, call) {
        const json_t *function = json_object_get(call, "function");
        json_t *args = json_object_get(function, "arguments");
        json_t *parsed = json_is_string(args) ? json_loadb(json_string_value(args),
                                                           json_string_length(args), 0, NULL)
                                              : NULL;
        json_t *object = json_pack("{s:O, s:O}", "name", json_object_get(function, "name"),
                                   "arguments", parsed ? parsed : args);
        ok = ok && object && add(&text, i ? "\n<tool_call>\n" : "<tool_call>\n") &&
             add_line(&text, object) && add(&text, "</tool_call>");
        json_decref(object);
        json_decref(parsed);
    }
    return string_of(&text, ok);
}
