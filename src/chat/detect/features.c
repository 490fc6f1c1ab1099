/* SPDX-License-Identifier: Apache-2.0 */
/* Detects features: renders small conversations and looks for their sentinels in the output. */
#include "chat/detect/detect.h"
#include "chat/detect/probe.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

typedef struct prober {
    ag_chat_format *f;
    ag_error *err;
    ag_status st; /* status of the first probe that failed */
    ag_jinja_output out;
    bool ok;
} prober;

/* Renders a conversation, which is taken over; p->ok and p->out hold the result. Does nothing after
 * a failure. */
static bool run_probe(prober *p, json_t *messages, json_t *tools, json_t *more) {
    ag_jinja_output_free(&p->out);
    if (p->st != AG_OK) {
        json_decref(messages);
        json_decref(tools);
        json_decref(more);
        return false;
    }
    /* No generation prompt after an answer: some templates take it for a message to be continued.
     */
    const size_t n = json_array_size(messages);
    const char *last = json_string_value(json_object_get(json_array_get(messages, n - 1), "role"));
    const bool prompt = !last || strcmp(last, "assistant") != 0;
    p->st = ag_probe_render(p->f, messages, tools, more, prompt, &p->out, &p->ok, p->err);
    return p->ok;
}

static bool output_has(const prober *p, const char *text) {
    return p->ok && p->out.text && strstr(p->out.text, text);
}

static json_t *with_content(json_t *content) {
    return json_pack("[{s:s, s:o}]", "role", "user", "content", content);
}

static json_t *two_messages(const char *role, const char *content) {
    return json_pack("[o, o]", ag_probe_message(role, content), ag_probe_question());
}

static uint32_t probe_roles(prober *p) {
    uint32_t found = 0;
    run_probe(p, two_messages("system", "Q7vs"), NULL, NULL);
    if (output_has(p, "Q7vs") && output_has(p, AG_PROBE_QUESTION)) found |= AG_CHAT_SYSTEM;
    run_probe(p, two_messages("developer", "Q7vs"), NULL, NULL);
    if (!output_has(p, "Q7vs") || !output_has(p, AG_PROBE_QUESTION)) return found;
    /* A template that writes any role does not know this one. */
    run_probe(p, two_messages("q7r", "Q7vs"), NULL, NULL);
    const bool writes_any = output_has(p, "q7r") && output_has(p, "Q7vs");
    return writes_any ? found : found | AG_CHAT_DEVELOPER;
}

static void probe_systems(prober *p) {
    if (!(p->f->features & AG_CHAT_SYSTEM)) return;
    run_probe(p,
              json_pack("[o, o, o]", ag_probe_message("system", "Q7vs"),
                        ag_probe_message("system", "Q7vt"), ag_probe_question()),
              NULL, NULL);
    if (output_has(p, "Q7vs") && output_has(p, "Q7vt")) p->f->accepts |= AG_ACCEPTS_SYSTEMS;
    run_probe(p,
              json_pack("[o, o, o, o]", ag_probe_question(),
                        ag_probe_message("assistant", AG_PROBE_ANSWER),
                        ag_probe_message("system", "Q7vs"), ag_probe_question()),
              NULL, NULL);
    if (output_has(p, "Q7vs")) p->f->accepts |= AG_ACCEPTS_LATE_SYSTEM;
}

static uint32_t probe_contents(prober *p) {
    uint32_t found = 0;
    run_probe(p, with_content(json_string(AG_PROBE_QUESTION)), NULL, NULL);
    if (output_has(p, AG_PROBE_QUESTION)) found |= AG_CHAT_TEXT;
    run_probe(p,
              with_content(json_pack("[{s:s, s:s}, {s:s, s:s}]", "type", "text", "text", "Q7vp",
                                     "type", "text", "text", "Q7vr")),
              NULL, NULL);
    /* A list that the template printed as Python does shows its keys. */
    if (output_has(p, "Q7vp") && output_has(p, "Q7vr") && !output_has(p, "'type'") &&
        !output_has(p, "\"type\"")) {
        found |= AG_CHAT_PARTS;
    }
    return found;
}

/* ---- tools ---- */

static uint32_t probe_tools(prober *p) {
    json_t *bare = json_pack("[{s:s, s:{s:s, s:{s:s, s:{s:{s:s}}}}}]", "type", "function",
                             "function", "name", AG_PROBE_TOOL, "parameters", "type", "object",
                             "properties", AG_PROBE_KEY, "type", "string");
    run_probe(p, json_pack("[o]", ag_probe_question()), bare, NULL);
    if (output_has(p, AG_PROBE_TOOL)) p->f->accepts |= AG_ACCEPTS_BARE_TOOLS;
    if (output_has(p, AG_PROBE_TOOL)) return AG_CHAT_TOOLS;
    run_probe(p, json_pack("[o]", ag_probe_question()), ag_probe_tools(), NULL);
    return output_has(p, AG_PROBE_TOOL) ? AG_CHAT_TOOLS : 0;
}

/* Returns the output after the question: tools are listed before it, calls come after it. */
static const char *after_question(const prober *p) {
    const char *at = p->ok && p->out.text ? strstr(p->out.text, AG_PROBE_QUESTION) : NULL;
    return at ? at + strlen(AG_PROBE_QUESTION) : "";
}

static json_t *tools_if_accepted(const prober *p) {
    return p->f->features & AG_CHAT_TOOLS ? ag_probe_tools() : NULL;
}

/* Returns whether arguments are written as JSON or in a format of their own, not as a Python dict
 * or as JSON inside a JSON string. */
static bool are_arguments_readable(const char *s) {
    return strstr(s, AG_PROBE_KEY) && strstr(s, AG_PROBE_VALUE) && !strstr(s, "{'" AG_PROBE_KEY) &&
           !strstr(s, "\\\"" AG_PROBE_KEY);
}

/* Returns the forms of arguments that calls with this id can have; 0 if calls are not written. */
static uint32_t probe_arguments(prober *p, const char *id) {
    uint32_t found = 0;
    char *from_object = NULL;
    for (int as_text = 0; as_text < 2; as_text++) {
        json_t *call = ag_probe_call(AG_PROBE_TOOL, id, true, as_text);
        run_probe(p, ag_probe_calls(json_pack("[o]", call), json_string("")), tools_if_accepted(p),
                  NULL);
        if (!are_arguments_readable(after_question(p))) continue;
        /* Text counts too if the output is the same. */
        if (as_text && from_object && strcmp(from_object, after_question(p)) != 0) continue;
        if (!as_text && !(from_object = ag_strdup(after_question(p)))) {
            p->st = AG_FAIL(p->err, NOMEM, "probe of the chat template");
        }
        found |= AG_CHAT_CALLS | (as_text ? AG_CHAT_ARGUMENT_TEXT : AG_CHAT_ARGUMENT_OBJECTS);
    }
    ag_free(from_object);
    return found;
}

static json_t *call_for(const prober *p, const char *name, const char *id) {
    const bool as_text = !(p->f->features & AG_CHAT_ARGUMENT_OBJECTS);
    return ag_probe_call(name, id, true, as_text);
}

static json_t *result(const char *id, const char *content) {
    return json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "tool_call_id", id, "name",
                     AG_PROBE_TOOL, "content", content);
}

static bool writes_call(const prober *p) {
    return strstr(after_question(p), AG_PROBE_VALUE) && !strstr(after_question(p), "None");
}

/* Returns whether calls can have null content, in the newest turn and in an earlier one. */
static bool accepts_null_content(prober *p, const char *id) {
    run_probe(p, ag_probe_calls(json_pack("[o]", call_for(p, AG_PROBE_TOOL, id)), json_null()),
              tools_if_accepted(p), NULL);
    if (!writes_call(p)) return false;
    json_t *messages =
        ag_probe_calls(json_pack("[o]", call_for(p, AG_PROBE_TOOL, id)), json_null());
    if (messages) {
        json_array_append_new(messages, result(id, "Q7vr"));
        json_array_append_new(messages, ag_probe_message("assistant", AG_PROBE_ANSWER));
        json_array_append_new(messages, ag_probe_message("user", "Q7vu"));
    }
    run_probe(p, messages, tools_if_accepted(p), NULL);
    return writes_call(p);
}

/* Sets the features of calls and AG_ACCEPTS_LONG_IDS; returns the features of calls and results. */
static uint32_t probe_calls(prober *p) {
    static const char *const ids[] = {"call_Q7vq7vq7vq7v", AG_PROBE_ID};
    uint32_t found = 0;
    const char *id = ids[0];
    for (size_t i = 0; i < 2 && !found; i++) found = probe_arguments(p, id = ids[i]);
    if (!found || id == ids[0]) p->f->accepts |= AG_ACCEPTS_LONG_IDS;
    p->f->features |= found;
    if (found) {
        if (accepts_null_content(p, id)) { found |= AG_CHAT_NULL_CONTENT; }
        run_probe(p,
                  ag_probe_calls(json_pack("[o, o]", call_for(p, AG_PROBE_TOOL, id),
                                           call_for(p, AG_PROBE_TOOL_2, "q7v000002")),
                                 json_string("")),
                  tools_if_accepted(p), NULL);
        const char *first = strstr(after_question(p), AG_PROBE_VALUE);
        if (first && strstr(first + 1, AG_PROBE_VALUE)) found |= AG_CHAT_PARALLEL_CALLS;
    }
    json_t *messages =
        ag_probe_calls(json_pack("[o]", call_for(p, AG_PROBE_TOOL, id)), json_string(""));
    if (messages) json_array_append_new(messages, result(id, "Q7vr"));
    run_probe(p, messages, tools_if_accepted(p), NULL);
    if (strstr(after_question(p), "Q7vr")) found |= AG_CHAT_RESULTS;
    return found;
}

/* ---- reasoning, documents ---- */

static uint32_t probe_reasoning(prober *p) {
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};
    const size_t n_keys = sizeof keys / sizeof *keys;
    /* Some templates write the reasoning only before calls. */
    const size_t n = p->f->features & AG_CHAT_CALLS ? 2 * n_keys : n_keys;
    for (size_t i = 0; i < n; i++) {
        const bool has_call = i >= n_keys;
        json_t *messages =
            has_call ? ag_probe_calls(json_pack("[o]", call_for(p, AG_PROBE_TOOL, AG_PROBE_ID)),
                                      json_string(""))
                     : ag_probe_answered();
        ag_probe_set_reasoning(messages, keys[i % n_keys]);
        run_probe(p, messages, has_call ? tools_if_accepted(p) : NULL, NULL);
        if (!output_has(p, AG_PROBE_REASONING)) continue;
        p->f->reasoning_key = keys[i % n_keys];
        return AG_CHAT_REASONING;
    }
    return 0;
}

/* Returns the features AG_CHAT_THINKING_SWITCH and AG_CHAT_DOCUMENTS. */
static uint32_t probe_switches(prober *p) {
    uint32_t found = 0;
    run_probe(p, json_pack("[o]", ag_probe_question()), NULL,
              json_pack("{s:b}", "enable_thinking", 1));
    const bool can = output_has(p, AG_PROBE_QUESTION);
    char *on = can ? ag_strdup(p->out.text) : NULL;
    if (can && !on) p->st = AG_FAIL(p->err, NOMEM, "probe of the chat template");
    run_probe(p, json_pack("[o]", ag_probe_question()), NULL,
              json_pack("{s:b}", "enable_thinking", 0));
    if (on && output_has(p, AG_PROBE_QUESTION) && strcmp(on, p->out.text) != 0) {
        found |= AG_CHAT_THINKING_SWITCH;
    }
    ag_free(on);
    run_probe(p, json_pack("[o]", ag_probe_question()), NULL,
              json_pack("{s:[{s:s, s:s}]}", "documents", "title", "Q7vt", "text", "Q7vd"));
    if (output_has(p, "Q7vd")) found |= AG_CHAT_DOCUMENTS;
    return found;
}

ag_status ag_detect_features(ag_chat_format *f, ag_error *err) {
    prober p = {.f = f, .err = err};
    f->accepts = AG_ACCEPTS_NULL_TOOLS;
    run_probe(&p, json_pack("[o]", ag_probe_question()), NULL, NULL);
    if (!output_has(&p, AG_PROBE_QUESTION)) {
        f->accepts = 0;
        run_probe(&p, json_pack("[o]", ag_probe_question()), NULL, NULL);
        if (!output_has(&p, AG_PROBE_QUESTION)) f->accepts = AG_ACCEPTS_NULL_TOOLS;
    }
    f->features |= probe_contents(&p);
    f->features |= probe_roles(&p);
    probe_systems(&p);
    f->features |= probe_tools(&p);
    f->features |= probe_calls(&p);
    f->features |= probe_reasoning(&p);
    f->features |= probe_switches(&p);
    ag_jinja_output_free(&p.out);
    return p.st;
}
