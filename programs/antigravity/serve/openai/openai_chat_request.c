/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of the body of POST /v1/chat/completions. */
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "openai.h"
#include "openai_fields.h"

#include <string.h>

/* Checks the roles that are texts. ag_chat_set_messages() reports those that are not. */
static bool check_roles(const json_t *messages, serve_error *e) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", NULL};
    /* Older roles, and those of some models' templates. */
    static const char *const more[] = {"function",      "ipython",     "tool_results",
                                       "tool_response", "observation", "environment",
                                       "control",       NULL};
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        if (role && *role && !message_role_is_in(role, more) &&
            !message_check_role(role, "messages", i, roles, e))
            return false;
    }
    return true;
}

static bool read_messages(const json_t *body, serve_request *r, serve_error *e) {
    json_t *messages = NULL;
    if (!field_array(body, "messages", &messages, e)) return false;
    if (!messages || !json_array_size(messages))
        return reject_field(e, "messages", "must be an array of at least one message");
    if (!check_roles(messages, e) || !openai_check_parts(messages, e)) return false;
    r->messages = json_incref(messages);
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    bool begin = true;
    if (!field_bool(body, "continue_final_message", &r->continue_last, e) ||
        !field_bool(body, "add_generation_prompt", &begin, e))
        return false;
    r->no_generation = !begin && !r->continue_last;
    if (r->continue_last && json_is_true(field_get(body, "add_generation_prompt")))
        return reject_field(e, "continue_final_message", "add_generation_prompt excludes it");
    return !r->continue_last || json_is_object(last) ||
           reject_field(e, "messages", "the last message must be an object");
}

static bool read_tools(const json_t *body, serve_request *r, serve_error *e) {
    json_t *tools = NULL;
    bool parallel = true;
    if (!field_array(body, "tools", &tools, e) ||
        !field_bool(body, "parallel_tool_calls", &parallel, e) ||
        !openai_read_tool_choice(body, true, r, e))
        return false;
    if (tools && json_array_size(tools)) r->tools = json_incref(tools);
    r->one_call = !parallel;
    return true;
}

/* "none" disables thinking if the template has a switch; other values are passed to the
 * template. */
static bool read_effort(const json_t *body, serve_request *r, serve_error *e) {
    const char *effort = NULL;
    if (!field_string(body, "reasoning_effort", &effort, e)) return false;
    if (!effort) return true;
    if (!strcmp(effort, "none")) return set_variable(r, "enable_thinking", json_false(), e);
    return set_variable(r, "reasoning_effort", json_string(effort), e);
}

static bool read_variables(const json_t *body, serve_request *r, serve_error *e) {
    json_t *variables = NULL, *thinking = field_get(body, "enable_thinking");
    if (!field_object(body, "chat_template_kwargs", &variables, e)) return false;
    if (variables) r->variables = json_copy(variables);
    if (variables && !r->variables) return reject_no_memory(e);
    if (json_is_boolean(thinking) &&
        !set_variable(r, "enable_thinking", json_incref((json_t *)(uintptr_t)thinking), e))
        return false;
    const json_t *documents = field_get(body, "documents");
    if (json_is_array(documents) &&
        !set_variable(r, "documents", json_incref((json_t *)(uintptr_t)documents), e))
        return false;
    return read_effort(body, r, e);
}

static bool read_logprobs(const json_t *body, serve_request *r, serve_error *e) {
    int64_t top = 0;
    if (!field_bool(body, "logprobs", &r->logprobs, e) ||
        !field_integer(body, "top_logprobs", 0, 20, &top, e))
        return false;
    if (top && !r->logprobs) return reject_field(e, "top_logprobs", "needs logprobs");
    r->n_top = (uint32_t)top;
    return true;
}

bool openai_chat_parse(const json_t *body, serve_request *r, serve_error *e) {
    r->kind = SERVE_CHAT;
    return openai_read_common(body, r, e) && read_messages(body, r, e) && read_tools(body, r, e) &&
           read_variables(body, r, e) && read_logprobs(body, r, e) &&
           field_integer(body, "max_tokens", -1, INT32_MAX, &r->max_tokens, e) &&
           field_integer(body, "max_completion_tokens", -1, INT32_MAX, &r->max_tokens, e) &&
           openai_read_format(body, r, e);
}
