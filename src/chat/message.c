/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/message.h"

#include "chat/interrupt.h"
#include "chat/json_text.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

const json_t *ag_chat_function(const json_t *tool_or_call) {
    const json_t *f = json_object_get(tool_or_call, "function");
    return f ? f : tool_or_call;
}

bool ag_chat_has_role(const json_t *m, const char *role) {
    const char *own = json_string_value(json_object_get(m, "role"));
    return own && !strcmp(own, role);
}

static bool is_text_part(const char *type) {
    static const char *const types[] = {"text", "input_text", "output_text", "refusal"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!strcmp(type, types[i])) return true;
    }
    return false;
}

static const json_t *part_text(const json_t *part) {
    const json_t *text = json_object_get(part, "text");
    return text ? text : json_object_get(part, "refusal");
}

static ag_status check_part(const json_t *part, const char *path, size_t i, ag_error *err) {
    const char *type = json_string_value(json_object_get(part, "type"));
    if (json_is_string(part)) return AG_OK;
    if (!type) return AG_FAIL(err, INVALID, "%s: content[%zu] has no \"type\"", path, i);
    if (!is_text_part(type)) {
        return AG_FAIL(err, UNSUPPORTED,
                       "%s: content[%zu] has type \"%.40s\"; only text is supported", path, i,
                       type);
    }
    if (json_is_string(part_text(part))) return AG_OK;
    return AG_FAIL(err, INVALID, "%s: content[%zu] has no \"text\"", path, i);
}

static ag_status check_content(const json_t *content, const char *path, ag_error *err) {
    size_t i;
    const json_t *part;
    if (!content || json_is_null(content) || json_is_string(content)) return AG_OK;
    if (!json_is_array(content)) {
        return AG_FAIL(err, INVALID, "%s: \"content\" must be a string, a list of parts or null",
                       path);
    }
    json_array_foreach(content, i, part) {
        AG_TRY(ag_chat_check_interrupt(path, err));
        AG_TRY(check_part(part, path, i, err));
    }
    return AG_OK;
}

static ag_status check_call(const json_t *call, const char *path, size_t i, ag_error *err) {
    const json_t *f = ag_chat_function(call);
    if (!json_is_string(json_object_get(f, "name"))) {
        return AG_FAIL(err, INVALID, "%s: tool_calls[%zu] has no function name", path, i);
    }
    const json_t *args = json_object_get(f, "arguments");
    if (!args || json_is_null(args) || json_is_string(args) || json_is_object(args)) return AG_OK;
    return AG_FAIL(err, INVALID, "%s: arguments of tool_calls[%zu] must be a string or an object",
                   path, i);
}

ag_status ag_chat_check_message(const json_t *m, const char *path, ag_error *err) {
    size_t i;
    const json_t *call;
    if (!json_is_object(m)) return AG_FAIL(err, INVALID, "%s: not an object", path);
    if (!json_string_length(json_object_get(m, "role"))) {
        return AG_FAIL(err, INVALID, "%s: no \"role\"", path);
    }
    AG_TRY(check_content(json_object_get(m, "content"), path, err));
    const json_t *calls = json_object_get(m, "tool_calls");
    if (calls && !json_is_null(calls) && !json_is_array(calls)) {
        return AG_FAIL(err, INVALID, "%s: \"tool_calls\" must be a list", path);
    }
    json_array_foreach(calls, i, call) {
        AG_TRY(ag_chat_check_interrupt(path, err));
        AG_TRY(check_call(call, path, i, err));
    }
    return AG_OK;
}

ag_status ag_chat_check_tools(const json_t *tools, ag_error *err) {
    size_t i;
    const json_t *tool;
    json_array_foreach(tools, i, tool) {
        AG_TRY(ag_chat_check_interrupt("tools", err));
        if (!json_string_length(json_object_get(ag_chat_function(tool), "name"))) {
            return AG_FAIL(err, INVALID, "tools[%zu] has no function name", i);
        }
    }
    return AG_OK;
}

ag_status ag_chat_append_part(const json_t *part, ag_text *out, ag_error *err) {
    const json_t *text = json_is_string(part) ? part : part_text(part);
    return ag_text_append(out, json_string_value(text), json_string_length(text), err);
}

ag_status ag_chat_append_content(const json_t *content, ag_text *out, ag_error *err) {
    size_t i;
    const json_t *part;
    if (!content || json_is_null(content)) return AG_OK;
    if (json_is_string(content)) return ag_chat_append_part(content, out, err);
    if (!json_is_array(content)) return ag_json_text_append(content, out, err);
    json_array_foreach(content, i, part) {
        AG_TRY(ag_chat_check_interrupt("reading a message", err));
        AG_TRY(ag_chat_append_part(part, out, err));
    }
    return AG_OK;
}
