/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the input of a response to messages. Reasoning, text and calls of one turn are separate
 * items in the input, and one message here. */
#include "../../support/json_out.h"
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "responses.h"

#include <string.h>

/* Converts a part of a content. *part is new. */
static bool read_part(const json_t *item, json_t **part, serve_error *e) {
    const char *type = field_type(item);
    const char *key = strcmp(type, "refusal") == 0 ? "refusal" : "text";
    json_t *text = json_object_get(item, key);
    if (strcmp(type, "input_image") == 0)
        return reject_field(e, "input", "images are not supported: the model reads text only");
    if (strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0 &&
        strcmp(type, "text") != 0 && strcmp(type, "refusal") != 0)
        return reject_field(e, "input", "a part of type \"%s\" is not supported", type);
    if (!json_is_string(text))
        return reject_field(e, "input", "a part of type %s has no %s", type, key);
    *part = message_text_part(json_incref(text));
    return *part != NULL || reject_no_memory(e);
}

/* Reads a string or a list of parts. A single part becomes a string. *content is a new
 * reference. */
static bool read_content(json_t *from, json_t **content, serve_error *e) {
    *content = NULL;
    if (json_is_string(from)) {
        *content = json_incref(from);
        return true;
    }
    if (!json_is_array(from))
        return reject_field(e, "input", "a content must be a string or a list of parts");
    json_t *parts = json_array();
    bool ok = parts != NULL || reject_no_memory(e);
    for (size_t i = 0; ok && i < json_array_size(from); i++) {
        json_t *part = NULL;
        ok = read_part(json_array_get(from, i), &part, e);
        ok = ok && list_add(parts, part, e);
    }
    if (ok && json_array_size(parts) == 1)
        *content = json_incref(json_object_get(json_array_get(parts, 0), "text"));
    else if (ok) *content = json_incref(parts);
    json_decref(parts);
    return ok;
}

/* Returns the assistant's last message if it can still get calls or, with new_text, a text; else
 * appends a new one. Borrowed. NULL: out of memory. */
static json_t *open_assistant_message(serve_request *r, bool new_text, serve_error *e) {
    json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (last && role && strcmp(role, "assistant") == 0 &&
        (!new_text ||
         (json_is_null(json_object_get(last, "content")) && !json_object_get(last, "tool_calls"))))
        return last;
    if (!message_add(r, "assistant", json_null(), e)) return NULL;
    return json_array_get(r->messages, json_array_size(r->messages) - 1);
}

static bool read_message_item(const json_t *item, size_t i, serve_request *r, serve_error *e) {
    static const char *const roles[] = {"user", "assistant", "system", "developer", NULL};
    const char *role = json_string_value(json_object_get(item, "role"));
    json_t *content;
    if (!message_check_role(role, "input", i, roles, e)) return false;
    if (!read_content(json_object_get(item, "content"), &content, e)) return false;
    if (strcmp(role, "assistant") == 0) {
        json_t *message = open_assistant_message(r, true, e);
        if (message)
            return json_object_set_new(message, "content", content) == 0 || reject_no_memory(e);
        json_decref(content);
        return false;
    }
    return message_add(r, role, content, e);
}

static bool read_call_item(const json_t *item, serve_request *r, serve_error *e) {
    const char *id = NULL, *name = NULL, *arguments = NULL;
    if (!field_string(item, "call_id", &id, e) || !field_string(item, "name", &name, e) ||
        !field_string(item, "arguments", &arguments, e))
        return false;
    if (!id || !name || !arguments)
        return reject_field(e, "input", "a function_call needs call_id, name and arguments");
    json_t *message = open_assistant_message(r, false, e);
    if (!message) return false;
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) {
        calls = json_array();
        if (json_object_set_new(message, "tool_calls", calls) != 0) return reject_no_memory(e);
    }
    return list_add(calls, message_tool_call(id, name, json_string(arguments)), e);
}

static bool read_output_item(const json_t *item, serve_request *r, serve_error *e) {
    const char *id = NULL;
    json_t *content;
    if (!field_string(item, "call_id", &id, e)) return false;
    if (!id) return reject_field(e, "input", "a function_call_output needs a call_id");
    if (!read_content(json_object_get(item, "output"), &content, e)) return false;
    return list_add(r->messages,
                    JSON_OBJECT({"role", json_string("tool")}, {"tool_call_id", json_string(id)},
                                {"content", content}),
                    e);
}

/* Reads the text of a reasoning item. Encrypted or summarised reasoning is ignored. */
static bool read_reasoning_item(const json_t *item, serve_request *r, serve_error *e) {
    json_t *content = NULL;
    if (!field_array(item, "content", &content, e)) return false;
    json_t *text = json_object_get(json_array_get(content, 0), "text");
    if (!json_is_string(text)) return true;
    return list_add(r->messages,
                    JSON_OBJECT({"role", json_string("assistant")}, {"content", json_null()},
                                {"reasoning_content", json_incref(text)}),
                    e);
}

static bool read_item(const json_t *item, size_t i, serve_request *r, serve_error *e) {
    const char *type = field_type(item);
    if (!json_is_object(item)) return reject_field(e, "input", "an item must be an object");
    if (!*type || strcmp(type, "message") == 0) return read_message_item(item, i, r, e);
    if (strcmp(type, "function_call") == 0) return read_call_item(item, r, e);
    if (strcmp(type, "function_call_output") == 0) return read_output_item(item, r, e);
    if (strcmp(type, "reasoning") == 0) return read_reasoning_item(item, r, e);
    return reject_field(e, "input", "an item of type \"%s\" is not supported", type);
}

bool responses_read_input(json_t *input, serve_request *r, serve_error *e) {
    if (json_is_string(input)) return message_add(r, "user", json_incref(input), e);
    if (!json_is_array(input))
        return reject_field(e, "input", "must be a string or a list of items");
    for (size_t i = 0; i < json_array_size(input); i++)
        if (!read_item(json_array_get(input, i), i, r, e)) return false;
    return true;
}
