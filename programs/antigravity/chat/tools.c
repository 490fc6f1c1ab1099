/* SPDX-License-Identifier: Apache-2.0 */
/* --tools: tools that the model may call. The program shows a call and asks the user for its
 * result. */
#include "chat.h"

#include "../command.h"
#include "../support/input.h"
#include "../support/json_out.h"
#include "../terminal/output.h"

#include <stdlib.h>
#include <string.h>

int chat_open_tools(chat *c) {
    ag_error err;
    size_t len;
    if (!c->o.tools_file) return EXIT_DONE;
    /* Read once: the file may be a pipe. */
    int code = c->tools_text ? EXIT_DONE : input_check("tools", c->o.tools_file, NULL);
    if (code == EXIT_DONE && !c->tools_text)
        code = input_read_text(c->o.tools_file, &c->tools_text, &len);
    if (code != EXIT_DONE) return code;
    if (ag_chat_set_tools(c->transcript.chat, c->tools_text, strlen(c->tools_text), &err) != AG_OK)
        return complain_failure("%s: %s", c->o.tools_file, err.msg);
    if (!(ag_chat_format_features(c->transcript.format) & AG_CHAT_TOOLS))
        return complain_usage("--tools: the chat template does not support tools");
    return EXIT_DONE;
}

/* Returns the call whose result comes next, borrowed; NULL if none. */
static const json_t *next_call(const chat *c) {
    const transcript *t = &c->transcript;
    size_t n_results = 0, at = t->n;
    while (at && !strcmp(transcript_role(t, at - 1), "tool")) n_results++, at--;
    if (!at) return NULL;
    return json_array_get(json_object_get(t->messages[at - 1].json, "tool_calls"), n_results);
}

bool chat_awaits_result(const chat *c) { return next_call(c) != NULL; }

static const char *name_of(const json_t *call) {
    const char *name =
        json_string_value(json_object_get(json_object_get(call, "function"), "name"));
    return name ? name : "?";
}

void chat_show_call(const chat *c) {
    const json_t *call = next_call(c);
    const json_t *arguments = json_object_get(json_object_get(call, "function"), "arguments");
    if (!call) return;
    char *text = json_is_string(arguments) ? strdup(json_string_value(arguments))
                                           : json_dumps(arguments, JSON_COMPACT | JSON_ENCODE_ANY);
    output_flush();
    fprintf(stderr, "  the model calls %s(%s); what does it return?\n", name_of(call),
            text ? make_printable(text) : "");
    free(text);
}

int chat_give_result(chat *c, const char *text) {
    const json_t *call = next_call(c);
    const json_t *id = json_object_get(call, "id");
    json_t *message = JSON_OBJECT(
        {"role", json_string("tool")},
        {"tool_call_id", id ? json_incref((json_t *)(uintptr_t)id) : json_string("")},
        {"name", json_string(name_of(call))}, {"content", json_text(text, strlen(text))});
    const size_t n = c->transcript.n;
    int code = message ? transcript_add_json(&c->transcript, message) : complain_no_memory();
    if (code == EXIT_DONE && !chat_awaits_result(c)) {
        code = chat_answer(c);
        if (code != EXIT_DONE && c->transcript.n == n + 1) transcript_truncate(&c->transcript, n);
    }
    chat_show_call(c);
    return code;
}
