/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/calls/call_trigger.h"

#include "chat/detect/sentinels.h"
#include "chat/json_scan.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

static const char *const harmony_opens[] = {
    "<|channel|>commentary to=functions.",
    "<|channel|>analysis to=functions.",
    "<|start|>assistant to=functions.",
    "to=functions.",
};
enum { N_HARMONY_OPENS = sizeof harmony_opens / sizeof *harmony_opens };

size_t ag_call_harmony_opens(const char *const **out) {
    *out = harmony_opens;
    return N_HARMONY_OPENS;
}

static ag_status no_memory(const ag_call_writer *w) {
    return AG_FAIL(w->err, NOMEM, "trigger of tool calls");
}

/* Adds a text to a list of delimiters: with special tokens by their ids, and spelled. */
static ag_status add_delimiter(const ag_call_writer *w, json_t *list, const char *s) {
    ag_text text = {0}, spelled = {0};
    ag_call_writer own = *w;
    if (!s || !*s) return AG_OK;
    own.out = &text;
    ag_status st = ag_call_put_delimiter(&own, s, strlen(s));
    own.out = &spelled;
    if (st == AG_OK) st = ag_call_put_quoted(&own, s, strlen(s));
    const bool differ = st == AG_OK && strcmp(text.data, spelled.data) != 0;
    if (st == AG_OK && json_array_append_new(list, json_string(text.data)) != 0) st = no_memory(w);
    if (differ && json_array_append_new(list, json_string(spelled.data)) != 0) st = no_memory(w);
    ag_text_free(&text);
    ag_text_free(&spelled);
    return st;
}

/* ---- starts ---- */

/* Returns the length of the scalar, sign or white space at the start of JSON. */
static size_t piece_len(const char *s) {
    size_t i = 1;
    if (*s != '"') return strchr("{}[]:, \n\r\t", *s) ? 1 : strcspn(s, "{}[]:, \n\r\t");
    while (s[i] && s[i] != '"') i += s[i] == '\\' && s[i + 1] ? 2 : 1;
    return s[i] ? i + 1 : i;
}

/* Fills `start` with the pieces of a call of the tool as the template writes it, up to the tool's
 * name. */
static ag_status fill_start(const ag_call_writer *w, json_t *start, const char *name) {
    static const char sentinel[] = "\"" AG_PROBE_TOOL "\"";
    for (const char *s = w->c->object; *s;) {
        const size_t n = piece_len(s);
        const bool is_name = n == sizeof sentinel - 1 && !memcmp(s, sentinel, n);
        ag_text text = {0};
        const ag_status st = is_name ? ag_json_text_quote(name, strlen(name), &text, w->err)
                                     : ag_text_append(&text, s, n, w->err);
        const int failed = st == AG_OK && !ag_is_json_space(*s) &&
                           json_array_append_new(start, json_stringn(text.data, text.len));
        ag_text_free(&text);
        AG_TRY(st);
        if (failed) return no_memory(w);
        if (is_name) break;
        s += n;
    }
    return AG_OK;
}

static ag_status add_start(ag_call_writer *w, json_t *starts, const json_t *tool) {
    const char *name = json_string_value(json_object_get(ag_chat_function(tool), "name"));
    json_t *start =
        w->c->kind == AG_CALLS_JSON ? json_array() : json_pack("[s, s+]", "[", name, "(");
    if (json_array_append_new(starts, start) != 0) return no_memory(w);
    return w->c->kind == AG_CALLS_JSON ? fill_start(w, start, name) : AG_OK;
}

/* Adds what a call without a delimiter begins with, at the start of the answer. */
static ag_status add_starts(ag_call_writer *w, json_t *starts, const json_t *tools, bool is_bare) {
    const ag_call_format *c = w->c;
    const char *object = c->kind == AG_CALLS_JSON ? c->object : NULL;
    const char *name = object ? strstr(object, AG_PROBE_TOOL) : NULL;
    const char *arguments = object ? strstr(object, AG_PROBE_KEY) : NULL;
    const json_t *tool;
    size_t i;
    if (c->kind == AG_CALLS_HARMONY) {
        json_t *start = json_pack("[s]", harmony_opens[N_HARMONY_OPENS - 1]);
        return json_array_append_new(starts, start) == 0 ? AG_OK : no_memory(w);
    }
    const bool has_starts =
        object ? name && arguments && name < arguments : is_bare && c->kind == AG_CALLS_PYTHON;
    if (!has_starts) return AG_OK;
    json_array_foreach(tools, i, tool) AG_TRY(add_start(w, starts, tool));
    return AG_OK;
}

/* ---- triggers ---- */

static ag_status add_anywhere(const ag_call_writer *w, json_t *anywhere) {
    if (w->c->kind == AG_CALLS_HARMONY) {
        for (size_t i = 0; i + 1 < N_HARMONY_OPENS; i++)
            AG_TRY(add_delimiter(w, anywhere, harmony_opens[i]));
        return AG_OK;
    }
    for (size_t i = 0; i < AG_CALL_TRIGGERS && w->c->triggers[i]; i++)
        AG_TRY(add_delimiter(w, anywhere, w->c->triggers[i]));
    return AG_OK;
}

/* Adds the texts that the parser skips before a call without a delimiter, and between two. */
static ag_status add_before(const ag_call_writer *w, json_t *before) {
    static const char *const usual[] = {"```json", "```", "[", "]", ","};
    for (size_t i = 0; w->c->kind == AG_CALLS_JSON && i < sizeof usual / sizeof *usual; i++)
        AG_TRY(add_delimiter(w, before, usual[i]));
    return add_delimiter(w, before, w->f->content_open);
}

static ag_status fill(ag_call_writer *w, json_t *v, const json_t *tools, bool is_bare,
                      bool in_reasoning) {
    static const char *const keys[] = {"anywhere", "before", "starts", "reasoning_open",
                                       "reasoning_close"};
    json_t *lists[5];
    const bool has_reasoning = w->c->kind != AG_CALLS_HARMONY;
    for (size_t i = 0; i < 5; i++) {
        if (json_object_set_new(v, keys[i], json_array()) != 0) return no_memory(w);
        lists[i] = json_object_get(v, keys[i]);
    }
    AG_TRY(add_anywhere(w, lists[0]));
    AG_TRY(add_before(w, lists[1]));
    AG_TRY(add_starts(w, lists[2], tools, is_bare));
    if (!has_reasoning) return AG_OK;
    AG_TRY(add_delimiter(w, lists[3], w->f->reasoning_open));
    AG_TRY(add_delimiter(w, lists[4], w->f->reasoning_close));
    AG_TRY(add_delimiter(w, lists[1], w->f->reasoning_close)); /* reasoning may have no start */
    const int failed = json_object_set_new(v, "in_reasoning", json_boolean(in_reasoning));
    return failed ? no_memory(w) : AG_OK;
}

ag_status ag_call_trigger(ag_call_writer *w, const json_t *tools, bool is_bare, bool in_reasoning) {
    json_t *v = json_object();
    ag_status st = v ? fill(w, v, tools, is_bare, in_reasoning) : no_memory(w);
    if (st == AG_OK) st = ag_call_put(w, "%trigger ");
    if (st == AG_OK) st = ag_json_text_append(v, w->out, w->err);
    json_decref(v);
    return st == AG_OK ? ag_call_put(w, "\n") : st;
}
