/* SPDX-License-Identifier: Apache-2.0 */
/* Required calls: the text that begins a call after the prompt, and the grammar of the rest. */
#include "chat/calls/call_grammar.h"
#include "chat/conversation.h"
#include "chat/message.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

/* *out: the array of tools that may be called, all or the one of this name; owned. */
static ag_status find_tools(const ag_chat *c, const char *name, json_t **out, ag_error *err) {
    json_t *tool;
    size_t i;
    *out = NULL;
    if (!c->tools) return AG_FAIL(err, NOT_FOUND, "cannot require a tool call: there are no tools");
    if (!name) {
        *out = json_incref(c->tools);
        return AG_OK;
    }
    json_array_foreach(c->tools, i, tool) {
        const char *own = json_string_value(json_object_get(ag_chat_function(tool), "name"));
        if (!own || strcmp(name, own) != 0) continue;
        *out = json_pack("[O]", tool);
        return *out ? AG_OK : AG_FAIL(err, NOMEM, "tool call");
    }
    return AG_FAIL(err, NOT_FOUND, "cannot require a tool call: no tool is named \"%.80s\"", name);
}

static ag_status encode_prefix(const ag_chat *c, const ag_text *text, ag_ids *ids, ag_error *err) {
    if (!c->format->tokenizer) {
        return AG_FAIL(err, INVALID,
                       "token ids need a tokenizer: the chat format was created without one");
    }
    if (!text->len) return AG_OK;
    return ag_tokenizer_encode(c->format->tokenizer, text->data, text->len, AG_ENCODE_PARSE_SPECIAL,
                               ids, err);
}

ag_status ag_chat_require_call(ag_chat *c, const char *name, unsigned flags, ag_ids *ids,
                               ag_text *grammar, ag_error *err) {
    const size_t n_ids = ids->n, n_grammar = grammar->len;
    ag_text prefix = {0};
    json_t *tools;
    AG_TRY(find_tools(c, name, &tools, err));
    ag_status st = AG_OK;
    if (c->starts_in_reasoning && c->format->calls.kind != AG_CALLS_HARMONY) {
        st = ag_text_append_string(&prefix, c->format->reasoning_close, err);
        if (st == AG_OK) st = ag_text_append_string(&prefix, "\n\n", err);
    }
    if (st == AG_OK) st = ag_call_opening(c->format, &prefix, err);
    if (st == AG_OK) {
        st = ag_call_grammar(c->format, tools, flags & AG_CHAT_SEVERAL_CALLS, grammar, err);
    }
    if (st == AG_OK) st = encode_prefix(c, &prefix, ids, err);
    json_decref(tools);
    if (st == AG_OK) {
        ag_text_free(&c->call_prefix);
        c->call_prefix = prefix;
        c->no_calls = false;
        return AG_OK;
    }
    ids->n = n_ids;
    grammar->len = n_grammar;
    ag_text_free(&prefix);
    return st;
}
