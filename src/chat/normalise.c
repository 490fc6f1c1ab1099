/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as clients send them become messages as this template takes them. What it takes as it
 * came is left as it came. */
#include "chat/normalise.h"

#include "chat/conversation.h"
#include "core/fail.h"

#include <string.h>

typedef struct normaliser {
    const ag_chat_format *f;
    json_t *out;     /* messages */
    json_t *pending; /* text of the system for the next user's turn; NULL: none */
    bool from_tool;  /* the last of `out` is a user's turn that holds results of tools */
} normaliser;

static bool has(const normaliser *n, uint32_t feature) { return n->f->features & feature; }
static bool bears(const normaliser *n, uint32_t what) { return n->f->bears & what; }

static const char *role_of(const json_t *m) {
    const char *role = json_string_value(json_object_get(m, "role"));
    return role ? role : "";
}

static bool is_role(const json_t *m, const char *role) { return !strcmp(role_of(m), role); }

/* Takes over v, NULL for want of memory. */
static bool set(json_t *m, const char *key, json_t *v) {
    return json_object_set_new(m, key, v) == 0;
}

/* Takes over a, which may be NULL. */
static json_t *join(json_t *a, const char *between, const json_t *b) {
    json_t *v = a ? ag_chat_join(a, between, b) : json_deep_copy(b);
    json_decref(a);
    return v;
}

/* ---- one message ---- */

static json_t *text_part(json_t *text) {
    return json_pack("{s:s, s:o}", "type", "text", "text", text);
}

/* Parts of other spellings become {"type": "text", "text": ...}. */
static json_t *plain_parts(const json_t *parts) {
    json_t *list = json_array(), *part;
    size_t i;
    json_array_foreach(parts, i, part) {
        json_t *one = json_array(), *copy = NULL;
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type && !strcmp(type, "text")) copy = json_copy(part);
        else if (one && json_array_append(one, part) == 0) {
            copy = text_part(ag_chat_content_text(one));
        }
        json_decref(one);
        if (json_array_append_new(list, copy) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static bool set_content(const normaliser *n, json_t *m, json_t *text) {
    if (has(n, AG_CHAT_TEXT) || !has(n, AG_CHAT_PARTS)) return set(m, "content", text);
    json_t *list = json_array();
    if (list && json_array_append_new(list, text_part(text)) == 0) return set(m, "content", list);
    json_decref(list);
    return false;
}

static bool fit_content(const normaliser *n, json_t *m) {
    const json_t *content = json_object_get(m, "content");
    const bool is_call = json_array_size(json_object_get(m, "tool_calls")) > 0;
    if (!content || json_is_null(content)) {
        if (is_call && has(n, AG_CHAT_NULL_CONTENT)) return set(m, "content", json_null());
        return set_content(n, m, json_string(""));
    }
    if (json_is_array(content) && has(n, AG_CHAT_PARTS)) {
        return set(m, "content", plain_parts(content));
    }
    if (json_is_string(content) && has(n, AG_CHAT_TEXT)) return true;
    return set_content(n, m, ag_chat_content_text(content));
}

/* An older interface: one call, and results from "function". */
static bool fit_old_names(json_t *m) {
    json_t *call = json_object_get(m, "function_call");
    if (is_role(m, "function") && !set(m, "role", json_string("tool"))) return false;
    if (!json_is_object(call) || json_object_get(m, "tool_calls")) return true;
    json_t *calls = json_pack("[{s:s, s:O}]", "type", "function", "function", call);
    return set(m, "tool_calls", calls) && json_object_del(m, "function_call") == 0;
}

/* The reasoning under the name that the template reads. */
static bool fit_reasoning(const normaliser *n, json_t *m) {
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};
    const char *wanted = n->f->reasoning_key;
    if (!wanted || json_is_string(json_object_get(m, wanted))) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(m, keys[i]);
        if (json_is_string(v)) return json_object_set(m, wanted, v) == 0;
    }
    return true;
}

/* ---- messages together ---- */

static bool append(normaliser *n, json_t *m) {
    n->from_tool = false;
    return json_array_append_new(n->out, m) == 0;
}

static json_t *last_of(const normaliser *n) {
    const size_t k = json_array_size(n->out);
    return k ? json_array_get(n->out, k - 1) : NULL;
}

static bool add_pending(normaliser *n, const json_t *text) {
    if (json_string_length(text) == 0) return true;
    n->pending = join(n->pending, "\n\n", text);
    return n->pending != NULL;
}

/* Behind what the message's text says already. Takes over text. */
static bool extend(const normaliser *n, json_t *m, const char *between, json_t *text) {
    json_t *old = ag_chat_content_text(json_object_get(m, "content"));
    json_t *all = old && text ? join(old, between, text) : NULL;
    json_decref(text);
    return all && set_content(n, m, all);
}

/* Takes over m. */
static bool put_system(normaliser *n, json_t *m) {
    json_t *text = ag_chat_content_text(json_object_get(m, "content"));
    const json_t *last = last_of(n);
    const bool is_first = !last, is_early = last && is_role(last, "system");
    bool ok = text != NULL;
    if (ok && has(n, AG_CHAT_SYSTEM) &&
        (is_first || (is_early ? bears(n, AG_BEARS_SYSTEMS) : bears(n, AG_BEARS_LATE_SYSTEM)))) {
        json_decref(text);
        return append(n, m);
    }
    if (ok && has(n, AG_CHAT_SYSTEM) && is_early) {
        json_decref(m);
        return extend(n, last_of(n), "\n\n", text);
    }
    if (ok) ok = add_pending(n, text);
    json_decref(text);
    json_decref(m);
    return ok;
}

static bool put_user(normaliser *n, json_t *m) {
    bool ok = true;
    if (n->pending) {
        json_t *text = ag_chat_content_text(json_object_get(m, "content"));
        json_t *all = text ? join(n->pending, "\n\n", text) : NULL;
        if (!text) json_decref(n->pending);
        n->pending = NULL;
        json_decref(text);
        ok = all && set_content(n, m, all);
    }
    if (ok) return append(n, m);
    json_decref(m);
    return false;
}

/* A result, for a template that knows no results: the user says it. */
static bool put_result_as_user(normaliser *n, json_t *m) {
    json_t *text = ag_chat_content_text(json_object_get(m, "content"));
    json_t *said = text ? ag_chat_wrap("<tool_response>\n", text, "\n</tool_response>") : NULL;
    json_decref(text);
    json_decref(m);
    if (said && n->from_tool) return extend(n, last_of(n), "\n", said);
    json_t *user = said ? json_pack("{s:s, s:s}", "role", "user", "content", "") : NULL;
    const bool ok = user && set_content(n, user, said) && put_user(n, user);
    n->from_tool = ok;
    return ok;
}

/* Takes over m, which is the caller's own. */
static bool put(normaliser *n, json_t *m) {
    bool ok = fit_old_names(m);
    if (ok && is_role(m, "developer") && !has(n, AG_CHAT_DEVELOPER)) {
        ok = set(m, "role", json_string("system"));
    }
    ok = ok && fit_content(n, m) && fit_reasoning(n, m) &&
         ag_chat_fit_calls(n->f, m, n->out, json_array_size(n->out));
    if (ok && json_array_size(json_object_get(m, "tool_calls")) && !has(n, AG_CHAT_CALLS)) {
        json_t *text = ag_chat_calls_text(json_object_get(m, "tool_calls"));
        const bool is_alone = !json_string_length(json_object_get(m, "content"));
        ok = text && extend(n, m, is_alone ? "" : "\n", text);
        json_object_del(m, "tool_calls");
    }
    if (!ok) {
        json_decref(m);
        return false;
    }
    if (is_role(m, "system")) return put_system(n, m);
    if (is_role(m, "tool") && !has(n, AG_CHAT_RESULTS)) return put_result_as_user(n, m);
    return is_role(m, "user") ? put_user(n, m) : append(n, m);
}

/* What the system said with no user behind it. */
static bool put_rest(normaliser *n) {
    if (!n->pending) return true;
    json_t *last = last_of(n), *text = n->pending;
    n->pending = NULL;
    if (last && is_role(last, "user")) return extend(n, last, "\n\n", text);
    json_t *m = json_pack("{s:s, s:s}", "role", "user", "content", "");
    if (m && set_content(n, m, text) && append(n, m)) return true;
    return false;
}

static bool put_tools_text(normaliser *n, const json_t *tools) {
    json_t *text = ag_chat_tools_text(tools);
    json_t *m = text ? json_pack("{s:s, s:s}", "role", "system", "content", "") : NULL;
    const bool ok = m && set_content(n, m, text);
    if (ok) return put_system(n, m);
    json_decref(m);
    return false;
}

ag_status ag_chat_normalise(const ag_chat *c, json_t **messages, json_t **tools, ag_error *err) {
    normaliser n = {.f = c->format, .out = json_array()};
    bool ok = n.out != NULL;
    size_t i;
    json_t *m;
    *messages = *tools = NULL;
    /* A template without tools gets them from the system, behind what that says. */
    const bool tell = c->tools && !has(&n, AG_CHAT_TOOLS);
    bool told = !tell;
    json_array_foreach(c->messages, i, m) {
        const bool is_system = is_role(m, "system") || is_role(m, "developer");
        if (ok && !told && !is_system) ok = told = put_tools_text(&n, c->tools);
        json_t *copy = ok ? json_copy(m) : NULL;
        ok = copy && put(&n, copy);
    }
    if (ok && !told) ok = put_tools_text(&n, c->tools);
    ok = ok && put_rest(&n);
    if (ok && c->tools && !tell) ok = (*tools = ag_chat_fit_tools(c->format, c->tools)) != NULL;
    json_decref(n.pending);
    if (ok) {
        *messages = n.out;
        return AG_OK;
    }
    json_decref(n.out);
    return AG_FAIL(err, NOMEM, "a conversation of %zu messages", json_array_size(c->messages));
}
