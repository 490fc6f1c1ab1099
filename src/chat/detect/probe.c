/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/detect/probe.h"

#include "chat/json_text.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

json_t *ag_probe_message(const char *role, const char *content) {
    return json_pack("{s:s, s:s*}", "role", role, "content", content);
}

static json_t *probe_tool(const char *name) {
    return json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}, s:{s:s, s:s}}, s:[s]}}}", "type",
                     "function", "function", "name", name, "description", "Does it.", "parameters",
                     "type", "object", "properties", AG_PROBE_KEY, "type", "string", "description",
                     "One.", AG_PROBE_KEY_2, "type", "integer", "description", "Two.", "required",
                     AG_PROBE_KEY);
}

json_t *ag_probe_question(void) { return ag_probe_message("user", AG_PROBE_QUESTION); }

json_t *ag_probe_answered(void) {
    return json_pack("[o, o]", ag_probe_question(), ag_probe_message("assistant", AG_PROBE_ANSWER));
}

void ag_probe_set_reasoning(json_t *messages, const char *key) {
    json_object_set_new(json_array_get(messages, 1), key, json_string(AG_PROBE_REASONING));
}

json_t *ag_probe_tools(void) {
    return json_pack("[o, o]", probe_tool(AG_PROBE_TOOL), probe_tool(AG_PROBE_TOOL_2));
}

json_t *ag_probe_call(const char *name, const char *id, bool has_two, bool as_text) {
    json_t *args = json_pack("{s:s}", AG_PROBE_KEY, AG_PROBE_VALUE);
    if (args && has_two) {
        json_object_set_new(args, AG_PROBE_KEY_2, json_integer(atoll(AG_PROBE_NUMBER)));
    }
    if (args && as_text) {
        json_t *text = ag_json_text_string(args, 0);
        json_decref(args);
        args = text;
    }
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name",
                     name, "arguments", args);
}

json_t *ag_probe_calls(json_t *calls, json_t *content) {
    json_t *m =
        json_pack("{s:s, s:o, s:o}", "role", "assistant", "content", content, "tool_calls", calls);
    return json_pack("[o, o]", ag_probe_question(), m);
}

/* Turns contents into lists of parts if the template accepts only those. Returns false if out of
 * memory. */
static bool fit_contents(const ag_chat_format *f, json_t *messages) {
    size_t i;
    json_t *m;
    if ((f->features & (AG_CHAT_TEXT | AG_CHAT_PARTS)) != AG_CHAT_PARTS) return true;
    json_array_foreach(messages, i, m) {
        json_t *content = json_object_get(m, "content");
        if (!json_is_string(content)) continue;
        json_t *parts = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
        if (json_object_set_new(m, "content", parts) != 0) return false;
    }
    return true;
}

/* Renders within the rest of the budget. */
static ag_status render_within(const ag_chat_format *f, const json_t *variables,
                               const struct tm *now, ag_jinja_output *out, ag_error *err) {
    ag_probe_budget *b = f->budget;
    ag_jinja_usage usage = {0};
    const ag_jinja_limits limits = {.steps = b->steps, .memory_bytes = AG_PROBE_MEMORY_BYTES};
    if (b->steps == 0) b->over_steps = true;
    if (b->over_steps || b->over_memory) return AG_LIMIT;
    const ag_status st = ag_chat_format_render(f, variables, now, limits, &usage, out, err);
    b->steps -= usage.steps;
    b->over_steps = usage.over_steps;
    b->over_memory = usage.over_memory;
    return st;
}

ag_status ag_probe_render(const ag_chat_format *f, json_t *messages, json_t *tools,
                          json_t *variables, bool prompt, ag_jinja_output *out, bool *ok,
                          ag_error *err) {
    static const struct tm now = {.tm_year = 126, .tm_mon = 0, .tm_mday = 2, .tm_wday = 5};
    const bool null_tools = f->accepts & AG_ACCEPTS_NULL_TOOLS;
    *out = (ag_jinja_output){0};
    *ok = false;
    if (!variables) variables = json_object();
    const bool is_complete =
        variables && messages && ag_chat_format_add_aliases(f, tools, variables, &now) &&
        fit_contents(f, messages) && json_object_set(variables, "messages", messages) == 0 &&
        json_object_set_new(variables, "tools",
                            tools        ? json_incref(tools)
                            : null_tools ? json_null()
                                         : json_array()) == 0 &&
        json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt)) == 0;
    ag_error render_err = {0};
    ag_status st = is_complete ? render_within(f, variables, &now, out, &render_err) : AG_NOMEM;
    json_decref(messages);
    json_decref(tools);
    json_decref(variables);
    *ok = st == AG_OK;
    if (st == AG_NOMEM) return AG_FAIL(err, NOMEM, "probe of the chat template");
    if (st == AG_CANCELLED && err) *err = render_err;
    if (st == AG_CANCELLED) return st;
    if (!f->budget->over_steps && !f->budget->over_memory) return AG_OK;
    return AG_FAIL(err, LIMIT, "chat template: its probes exceed their budget");
}

ag_status ag_probe_tail(const ag_chat_format *f, json_t *messages, json_t *tools, bool prompt,
                        char **tail, ag_error *err) {
    ag_jinja_output out;
    bool ok;
    *tail = NULL;
    ag_status st = ag_probe_render(f, messages, tools, NULL, prompt, &out, &ok, err);
    const char *at = st == AG_OK && ok ? strstr(out.text, AG_PROBE_QUESTION) : NULL;
    if (at) {
        *tail = ag_strdup(at + strlen(AG_PROBE_QUESTION));
        if (!*tail) st = AG_FAIL(err, NOMEM, "rendered text of a chat template");
    }
    ag_jinja_output_free(&out);
    return st;
}
