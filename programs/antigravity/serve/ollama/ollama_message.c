/* SPDX-License-Identifier: Apache-2.0 */
/* Converts ollama's messages: calls have no ids, their arguments are objects, and a result names
 * its tool. */
#include "../../support/json_out.h"
#include "../protocol/messages.h"
#include "ollama.h"

#include <stdio.h>
#include <string.h>

/* Numbers the calls of an answer. Their results get the same numbers, in order. */
static json_t *calls_with_ids(const json_t *calls, size_t first) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(calls); i++) {
        char id[32];
        snprintf(id, sizeof id, "call_%zu", first + i);
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        json_append(&list, JSON_OBJECT({"id", json_string(id)}, {"type", json_string("function")},
                                       {"function", json_incref(function)}));
    }
    return list;
}

/* Adds a field unless the value, which is borrowed, is missing or null. */
static json_t *with_field(json_t *object, const char *key, json_t *value) {
    if (!value || json_is_null(value)) return object;
    return JSON_ADD(object, {key, json_incref(value)});
}

static json_t *message_copy(const json_t *message, const char *role, ollama_counts *before) {
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *content = json_object_get(message, "content");
    content = json_is_string(content) ? json_incref(content) : json_string("");
    json_t *copy = JSON_OBJECT({"role", json_string(role)}, {"content", content});
    copy = with_field(copy, "reasoning_content", json_object_get(message, "thinking"));
    if (json_array_size(calls))
        copy = JSON_ADD(copy, {"tool_calls", calls_with_ids(calls, before->n_calls)});
    before->n_calls += json_array_size(calls);
    if (strcmp(role, "tool") != 0) return copy;
    char id[32];
    snprintf(id, sizeof id, "call_%zu", before->n_results++);
    copy = JSON_ADD(copy, {"tool_call_id", json_string(id)});
    return with_field(copy, "name", json_object_get(message, "tool_name"));
}

bool ollama_read_message(const json_t *message, ollama_counts *before, serve_request *r,
                         serve_error *e) {
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!role) return reject_field(e, "messages", "a message has no role");
    if (content && !json_is_null(content) && !json_is_string(content))
        return reject_field(e, "messages", "a content must be a string");
    if (calls && !json_is_null(calls) && !json_is_array(calls))
        return reject_field(e, "messages", "tool_calls must be a list");
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!json_is_object(json_object_get(json_array_get(calls, i), "function")))
            return reject_field(e, "messages", "a call has no function");
    return list_add(r->messages, message_copy(message, role, before), e);
}
