/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of the body of /v1/responses. It rejects fields that need other stored objects than
 * responses. */
#include "../../support/json_out.h"
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "openai_fields.h"
#include "responses.h"

#include <antigravity/serving.h>
#include <string.h>

static bool reject_unknown_stores(const json_t *body, serve_error *e) {
    static const struct {
        const char *name, *reason;
    } stored[] = {
        {"conversation", "conversations are not stored; send the conversation as input"},
        {"prompt", "prompts are not stored; send the text as input"},
    };
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        const json_t *value = field_get(body, stored[i].name);
        if (value && !json_is_null(value))
            return reject_field(e, stored[i].name, "%s", stored[i].reason);
    }
    if (json_is_true(field_get(body, "background")))
        return reject_field(e, "background",
                            "not supported; wait for the response, or let it stream");
    return true;
}

static bool read_instructions(const json_t *body, serve_request *r, serve_error *e) {
    const char *text = NULL;
    if (!field_string(body, "instructions", &text, e)) return false;
    return !text || !*text || message_add(r, "system", json_string(text), e);
}

/* Copies the fields of these names that are neither missing nor null. Returns NULL without
 * memory. */
static json_t *copy_fields(const json_t *from, const char *const *names, size_t n) {
    json_t *to = json_object();
    for (size_t i = 0; i < n; i++) {
        json_t *value = field_get(from, names[i]);
        if (value && !json_is_null(value)) to = JSON_ADD(to, {names[i], json_incref(value)});
    }
    return to;
}

/* Tools of other types run on OpenAI's servers. They are hidden from the model. */
static bool read_function_tool(const json_t *tool, json_t *tools, serve_error *e) {
    static const char *const names[] = {"name", "description", "parameters", "strict"};
    if (strcmp(field_type(tool), "function") != 0) return true;
    if (!json_is_string(json_object_get(tool, "name")))
        return reject_field(e, "tools", "a function has no name");
    json_t *function = copy_fields(tool, names, sizeof names / sizeof names[0]);
    return list_add(tools, JSON_OBJECT({"type", json_string("function")}, {"function", function}),
                    e);
}

static bool read_tools(const json_t *body, serve_request *r, serve_error *e) {
    json_t *tools = NULL;
    bool parallel = true;
    if (!field_array(body, "tools", &tools, e) ||
        !field_bool(body, "parallel_tool_calls", &parallel, e))
        return false;
    r->one_call = !parallel;
    if (json_array_size(tools)) r->tools = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!read_function_tool(json_array_get(tools, i), r->tools, e)) return false;
    return openai_read_tool_choice(body, false, r, e);
}

static bool read_format(const json_t *body, serve_request *r, serve_error *e) {
    json_t *text = NULL, *format = NULL;
    if (!field_object(body, "text", &text, e)) return false;
    if (text && !field_object(text, "format", &format, e)) return false;
    const char *type = format ? field_type(format) : "text";
    if (strcmp(type, "text") == 0) return true;
    r->constrained = true;
    r->constraint = AG_CONSTRAINT_JSON_OBJECT;
    if (strcmp(type, "json_object") == 0) return true;
    if (strcmp(type, "json_schema") != 0)
        return reject_field(e, "text.format", "type must be text, json_object or json_schema");
    r->constraint = AG_CONSTRAINT_JSON_SCHEMA;
    if (!field_schema(format, "schema", &r->constraint_text, e)) return false;
    return r->constraint_text || reject_field(e, "text.format", "schema is missing");
}

static bool read_reasoning(const json_t *body, serve_request *r, serve_error *e) {
    json_t *reasoning = NULL;
    const char *effort = NULL;
    if (!field_object(body, "reasoning", &reasoning, e)) return false;
    if (reasoning && !field_string(reasoning, "effort", &effort, e)) return false;
    if (!effort) return true;
    bool thinks = strcmp(effort, "none") != 0;
    if (thinks && !set_variable(r, "reasoning_effort", json_string(effort), e)) return false;
    return set_variable(r, "enable_thinking", json_boolean(thinks), e);
}

static bool read_logprobs(const json_t *body, serve_request *r, serve_error *e) {
    json_t *include = NULL;
    int64_t n_top = 0;
    if (!field_array(body, "include", &include, e) ||
        !field_integer(body, "top_logprobs", 0, 20, &n_top, e))
        return false;
    r->n_top = (uint32_t)n_top;
    r->logprobs = n_top > 0;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *name = json_string_value(json_array_get(include, i));
        if (name && strcmp(name, "message.output_text.logprobs") == 0) r->logprobs = true;
    }
    return true;
}

/* Adds the model's sampling defaults to the fields, which are transferred. */
static json_t *with_default_sampling(const serve_request *r, json_t *fields) {
    serve_error ignored; /* an unknown model is reported later */
    const ag_served_model *model = http_model(r->http, r->model, &ignored);
    if (!model) return fields;
    const ag_sampler_params *own = ag_served_model_sampling(model);
    return JSON_ADD(fields, {"temperature", json_float(own->temperature)},
                    {"top_p", json_float(own->top_p)});
}

/* Stores the fields that the response repeats. */
static bool save_echoed_fields(const json_t *body, serve_request *r, serve_error *e) {
    static const char *const echoed[] = {"instructions",
                                         "tools",
                                         "tool_choice",
                                         "text",
                                         "metadata",
                                         "reasoning",
                                         "user",
                                         "parallel_tool_calls",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "previous_response_id"};
    r->writer_fields =
        with_default_sampling(r, copy_fields(body, echoed, sizeof echoed / sizeof echoed[0]));
    return r->writer_fields || reject_no_memory(e);
}

static bool read_input(const json_t *body, serve_request *r, serve_error *e) {
    json_t *input = field_get(body, "input");
    if (input && !json_is_null(input)) return responses_read_input(input, r, e);
    /* Without input the user's turn is empty. */
    return json_array_size(r->messages) || message_add(r, "user", json_string(""), e);
}

/* Reads the conversation of previous_response_id and the input, and keeps both to be stored. */
static bool read_items(const json_t *body, json_t *items, serve_request *r, serve_error *e) {
    const char *previous = NULL;
    bool store = true;
    if (!field_string(body, "previous_response_id", &previous, e) ||
        !field_bool(body, "store", &store, e))
        return false;
    if (previous && !responses_read_history(previous, r, items, e)) return false;
    if (!responses_read_input(items, r, e) || !read_input(body, r, e)) return false;
    return !store || r->count_only ||
           responses_keep_conversation(field_get(body, "input"), items, r, e);
}

static bool read_conversation(const json_t *body, serve_request *r, serve_error *e) {
    r->kind = SERVE_CHAT;
    r->messages = json_array();
    if (!r->messages) return reject_no_memory(e);
    if (!field_copy(body, "model", &r->model, e) || !reject_unknown_stores(body, e) ||
        !read_instructions(body, r, e))
        return false;
    json_t *items = json_array();
    const bool ok = items ? read_items(body, items, r, e) : reject_no_memory(e);
    json_decref(items);
    return ok && read_tools(body, r, e) && read_reasoning(body, r, e);
}

bool responses_parse_count(const json_t *body, serve_request *r, serve_error *e) {
    r->count_only = true;
    return read_conversation(body, r, e);
}

bool responses_parse(const json_t *body, serve_request *r, serve_error *e) {
    serve_sampling *s = &r->sampling;
    return read_conversation(body, r, e) && read_format(body, r, e) && read_logprobs(body, r, e) &&
           field_integer(body, "max_output_tokens", 1, INT32_MAX, &r->max_tokens, e) &&
           field_number(body, "temperature", 0, 2, &s->temperature, e) &&
           field_number(body, "top_p", 0, 1, &s->top_p, e) &&
           field_bool(body, "stream", &r->stream, e) && save_echoed_fields(body, r, e);
}
