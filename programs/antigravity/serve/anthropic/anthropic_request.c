/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of the body of /v1/messages. It ignores other fields: cache_control, metadata,
 * service_tier, container, ... */
#include "../../support/json_out.h"
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "anthropic.h"

#include <string.h>

enum { MAX_STOPS = 64 };

static bool append_system(json_t *parts, const char *text, serve_error *e) {
    return !*text || list_add(parts, message_text_part(json_string(text)), e);
}

static bool read_system_parts(const json_t *system, json_t *parts, serve_error *e) {
    if (json_is_string(system))
        return append_system(parts, field_skip_billing(json_string_value(system)), e);
    if (!json_is_array(system))
        return reject_field(e, "system", "must be a string or a list of text blocks");
    for (size_t i = 0; i < json_array_size(system); i++) {
        const json_t *block = json_array_get(system, i);
        const char *text = json_string_value(json_object_get(block, "text"));
        if (strcmp(field_type(block), "text") != 0 || !text)
            return reject_field(e, "system", "block %zu must be a text block", i);
        if (!append_system(parts, i ? text : field_skip_billing(text), e)) return false;
    }
    return true;
}

static bool read_system(const json_t *body, serve_request *r, serve_error *e) {
    const json_t *system = field_get(body, "system");
    if (!system || json_is_null(system)) return true;
    json_t *parts = json_array();
    bool ok = parts ? read_system_parts(system, parts, e) : reject_no_memory(e);
    size_t n = json_array_size(parts);
    if (ok && n) {
        json_t *content = n == 1 ? json_object_get(json_array_get(parts, 0), "text") : parts;
        ok = message_add(r, "system", json_incref(content), e);
    }
    json_decref(parts);
    return ok;
}

static bool read_messages(const json_t *body, serve_request *r, serve_error *e) {
    json_t *messages = NULL;
    if (!field_array(body, "messages", &messages, e)) return false;
    size_t n = json_array_size(messages);
    if (!n) return reject_field(e, "messages", "must have at least one message");
    for (size_t i = 0; i < n; i++)
        if (!anthropic_read_message(json_array_get(messages, i), i, r, e)) return false;
    /* The model continues a last message of the assistant, unless it ends with calls. */
    const json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    r->continue_last = strcmp(role, "assistant") == 0 && !json_object_get(last, "tool_calls");
    return true;
}

/* Returns whether a tool runs on Anthropic's servers: it has a type of its own and no schema. Such
 * tools are hidden from the model. */
static bool is_server_tool(const json_t *tool) {
    const char *type = field_type(tool);
    return *type && strcmp(type, "custom") != 0;
}

static bool read_tool(const json_t *tool, json_t *tools, serve_error *e) {
    const char *name = json_string_value(json_object_get(tool, "name"));
    json_t *schema = json_object_get(tool, "input_schema");
    json_t *description = json_object_get(tool, "description");
    if (!name) return reject_field(e, "tools", "a tool has no name");
    if (!json_is_object(schema)) return reject_field(e, "tools", "%s has no input_schema", name);
    json_t *function = JSON_OBJECT({"name", json_string(name)});
    if (json_is_string(description))
        function = JSON_ADD(function, {"description", json_incref(description)});
    function = JSON_ADD(function, {"parameters", json_incref(schema)});
    return list_add(tools, JSON_OBJECT({"type", json_string("function")}, {"function", function}),
                    e);
}

static bool read_tool_choice(const json_t *body, serve_request *r, serve_error *e) {
    json_t *choice = NULL;
    bool one_call = false;
    if (!field_object(body, "tool_choice", &choice, e)) return false;
    if (!choice) return true;
    const char *type = field_type(choice);
    if (!field_bool(choice, "disable_parallel_tool_use", &one_call, e)) return false;
    r->one_call = one_call;
    if (strcmp(type, "auto") == 0) return true;
    if (strcmp(type, "none") == 0) {
        r->tool_choice = SERVE_TOOLS_NONE;
        return true;
    }
    if (strcmp(type, "any") == 0) {
        r->tool_choice = SERVE_TOOLS_REQUIRED;
        return true;
    }
    if (strcmp(type, "tool") != 0)
        return reject_field(e, "tool_choice", "type must be auto, any, tool or none");
    r->tool_choice = SERVE_TOOLS_NAMED;
    if (!field_copy(choice, "name", &r->tool_name, e)) return false;
    return r->tool_name || reject_field(e, "tool_choice", "name is missing");
}

static bool read_tools(const json_t *body, serve_request *r, serve_error *e) {
    json_t *tools = NULL;
    if (!field_array(body, "tools", &tools, e)) return false;
    if (json_array_size(tools)) r->tools = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        if (!is_server_tool(tool) && !read_tool(tool, r->tools, e)) return false;
    }
    return read_tool_choice(body, r, e);
}

static bool read_thinking_switch(const json_t *body, serve_request *r, serve_error *e) {
    json_t *thinking = NULL;
    const char *display = NULL;
    if (!field_object(body, "thinking", &thinking, e)) return false;
    if (!thinking) return true; /* the template's default */
    if (!field_string(thinking, "display", &display, e)) return false;
    r->hide_reasoning = display && strcmp(display, "omitted") == 0;
    bool thinks = strcmp(field_type(thinking), "disabled") != 0;
    return set_variable(r, "enable_thinking", json_boolean(thinks), e);
}

static bool read_format(const json_t *body, serve_request *r, serve_error *e) {
    json_t *config = NULL, *format = NULL;
    if (!field_object(body, "output_config", &config, e)) return false;
    if (!field_object(config ? config : body, config ? "format" : "output_format", &format, e))
        return false;
    if (!format) return true;
    if (strcmp(field_type(format), "json_schema") != 0)
        return reject_field(e, "output_config", "format: type must be json_schema");
    if (!field_schema(format, "schema", &r->constraint_text, e)) return false;
    if (!r->constraint_text) return reject_field(e, "output_config", "format: schema is missing");
    r->constrained = true;
    r->constraint = AG_CONSTRAINT_JSON_SCHEMA;
    return true;
}

/* Reads the fields that a request and the counting of its tokens share. */
static bool read_prompt(const json_t *body, serve_request *r, serve_error *e) {
    r->kind = SERVE_CHAT;
    r->messages = json_array();
    if (!r->messages) return reject_no_memory(e);
    return field_copy(body, "model", &r->model, e) && read_system(body, r, e) &&
           read_messages(body, r, e) && read_tools(body, r, e) && read_thinking_switch(body, r, e);
}

bool anthropic_parse_count(const json_t *body, serve_request *r, serve_error *e) {
    r->count_only = true;
    return read_prompt(body, r, e);
}

bool anthropic_parse(const json_t *body, serve_request *r, serve_error *e) {
    serve_sampling *s = &r->sampling;
    if (!read_prompt(body, r, e) || !read_format(body, r, e) ||
        !field_integer(body, "max_tokens", 1, INT32_MAX, &r->max_tokens, e))
        return false;
    if (r->max_tokens < 0) return reject_field(e, "max_tokens", "missing");
    return field_strings(body, "stop_sequences", MAX_STOPS, &r->stop, e) &&
           field_number(body, "temperature", 0, 2, &s->temperature, e) &&
           field_number(body, "top_p", 0, 1, &s->top_p, e) &&
           field_integer(body, "top_k", 0, INT32_MAX, &s->top_k, e) &&
           field_bool(body, "stream", &r->stream, e);
}
