/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/interrupt.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "chat/template/normalise.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

static ag_status check_interrupt(ag_error *err) {
    return ag_chat_check_interrupt("normalising the tools", err);
}

/* ---- tools ---- */

static ag_status add_description(json_t *object, ag_error *err) {
    if (json_is_string(json_object_get(object, "description"))) return AG_OK;
    return ag_normalise_set(object, "description", json_string(""), err);
}

/* Sets object[key] to `copy` if st is AG_OK; takes `copy` over in any case. */
static ag_status replace(json_t *object, const char *key, json_t *copy, ag_status st,
                         ag_error *err) {
    if (st == AG_OK) return ag_normalise_set(object, key, copy, err);
    json_decref(copy);
    return st;
}

static ag_status describe_property(json_t *properties, const char *key, const json_t *property,
                                   ag_error *err) {
    json_t *copy;
    if (!json_is_object(property) || json_is_string(json_object_get(property, "description"))) {
        return AG_OK;
    }
    AG_TRY(ag_json_copy_object(property, &copy, err));
    return replace(properties, key, copy, add_description(copy, err), err);
}

static ag_status describe_properties(json_t *schema, ag_error *err) {
    json_t *properties = json_object_get(schema, "properties"), *copy, *property;
    const char *key;
    if (!properties) return ag_normalise_set(schema, "properties", json_object(), err);
    if (!json_is_object(properties)) return AG_OK;
    AG_TRY(ag_json_copy_object(properties, &copy, err));
    ag_status st = AG_OK;
    json_object_foreach(properties, key, property) {
        if (st == AG_OK) st = check_interrupt(err);
        if (st == AG_OK) st = describe_property(copy, key, property, err);
        if (st != AG_OK) break;
    }
    return replace(schema, "properties", copy, st, err);
}

/* Adds a description to the function, its parameters and their properties if they have none.
 * `function` is a shallow copy. */
static ag_status describe_all(json_t *function, ag_error *err) {
    json_t *schema = json_object_get(function, "parameters"), *copy;
    AG_TRY(add_description(function, err));
    if (!json_is_object(schema)) {
        return ag_normalise_set(function, "parameters",
                                json_pack("{s:s, s:{}}", "type", "object", "properties"), err);
    }
    AG_TRY(ag_json_copy_object(schema, &copy, err));
    return replace(function, "parameters", copy, describe_properties(copy, err), err);
}

/* *out: a new object {"type": "function", "function": ...}; the function is shared. */
static ag_status wrapped_tool(json_t *tool, json_t **out, ag_error *err) {
    if (json_object_get(tool, "function")) {
        AG_TRY(ag_json_copy_object(tool, out, err));
        if (json_object_get(*out, "type")) return AG_OK;
        return ag_normalise_set(*out, "type", json_string("function"), err);
    }
    *out = json_pack("{s:s, s:O}", "type", "function", "function", tool);
    return ag_normalise_check(*out != NULL, err);
}

static ag_status fit_tool(const ag_chat_format *f, json_t *tool, ag_error *err) {
    json_t *copy;
    if (f->accepts & AG_ACCEPTS_BARE_TOOLS) return AG_OK;
    AG_TRY(ag_json_copy_object(json_object_get(tool, "function"), &copy, err));
    return replace(tool, "function", copy, describe_all(copy, err), err);
}

static ag_status fitted_tool(const ag_chat_format *f, json_t *tool, json_t **out, ag_error *err) {
    *out = NULL;
    ag_status st = wrapped_tool(tool, out, err);
    if (st == AG_OK) st = fit_tool(f, *out, err);
    if (st == AG_OK) return AG_OK;
    json_decref(*out);
    *out = NULL;
    return st;
}

ag_status ag_normalise_tools(const ag_chat_format *f, const json_t *tools, json_t **out,
                             ag_error *err) {
    json_t *list = json_array(), *tool;
    ag_status st = ag_normalise_check(list != NULL, err);
    size_t i;
    *out = NULL;
    json_array_foreach(tools, i, tool) {
        json_t *fitted = NULL;
        if (st == AG_OK) st = check_interrupt(err);
        if (st == AG_OK) st = fitted_tool(f, tool, &fitted, err);
        if (st != AG_OK) break;
        st = ag_normalise_check(json_array_append_new(list, fitted) == 0, err);
    }
    if (st == AG_OK) *out = list;
    else json_decref(list);
    return st;
}

/* ---- as text ---- */

static ag_status append_line(const json_t *v, ag_text *out, ag_error *err) {
    AG_TRY(check_interrupt(err));
    AG_TRY(ag_json_text_append_spaced(v, out, err));
    return ag_text_append(out, "\n", 1, err);
}

ag_status ag_chat_append_tools(const json_t *tools, ag_text *out, ag_error *err) {
    const json_t *tool;
    size_t i;
    AG_TRY(ag_text_append_string(
        out, "You may call functions to answer. These there are, one a line:\n<tools>\n", err));
    json_array_foreach(tools, i, tool) { AG_TRY(append_line(ag_chat_function(tool), out, err)); }
    return ag_text_append_string(
        out,
        "</tools>\nFor each call write a JSON object with the function's name and "
        "its arguments between these tags:\n<tool_call>\n{\"name\": NAME, "
        "\"arguments\": {...}}\n</tool_call>",
        err);
}

/* Appends {"name": ..., "arguments": ...}. Arguments that are the text of a JSON object are written
 * as that object. */
static ag_status append_call_as_text(const json_t *call, ag_text *out, ag_error *err) {
    const json_t *function = json_object_get(call, "function");
    json_t *args = json_object_get(function, "arguments");
    json_t *parsed = json_is_string(args)
                         ? json_loadb(json_string_value(args), json_string_length(args), 0, NULL)
                         : NULL;
    json_t *object = json_pack("{s:O, s:O}", "name", json_object_get(function, "name"), "arguments",
                               parsed ? parsed : args);
    ag_status st = ag_normalise_check(object != NULL, err);
    if (st == AG_OK) st = append_line(object, out, err);
    json_decref(object);
    json_decref(parsed);
    return st;
}

ag_status ag_chat_append_calls(const json_t *calls, ag_text *out, ag_error *err) {
    const json_t *call;
    size_t i;
    json_array_foreach(calls, i, call) {
        AG_TRY(ag_text_append_string(out, i ? "\n<tool_call>\n" : "<tool_call>\n", err));
        AG_TRY(append_call_as_text(call, out, err));
        AG_TRY(ag_text_append_string(out, "</tool_call>", err));
    }
    return AG_OK;
}
