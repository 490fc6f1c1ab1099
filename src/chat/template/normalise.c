/* SPDX-License-Identifier: Apache-2.0 */
/* A message that the template accepts is left unchanged. Texts of several messages that become one
 * are collected in a buffer, so that each byte is copied a bounded number of times. */
#include "chat/template/normalise.h"

#include "chat/interrupt.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

typedef struct normaliser {
    const ag_chat_format *f;
    const char *preamble; /* sentinel */
    json_t *out;          /* normalised messages */
    ag_text pending;      /* system text for the next user message; empty: none */
    ag_text tail; /* if has_tail: text of the last message of `out`, which does not have it yet */
    bool has_tail;
    bool from_tool; /* the last message of `out` is the user's and holds tool results */
    ag_call_table calls;
} normaliser;

static bool has(const normaliser *n, uint32_t feature) { return n->f->features & feature; }
static bool accepts(const normaliser *n, uint32_t form) { return n->f->accepts & form; }

ag_status ag_normalise_check(bool ok, ag_error *err) {
    return ok ? AG_OK : AG_FAIL(err, NOMEM, "messages of a conversation");
}

ag_status ag_normalise_set(json_t *m, const char *key, json_t *v, ag_error *err) {
    return ag_normalise_check(json_object_set_new(m, key, v) == 0, err);
}

static ag_status append_content(const json_t *m, ag_text *text, ag_error *err) {
    return ag_chat_append_content(json_object_get(m, "content"), text, err);
}

/* ---- one message ---- */

static json_t *json_of_text(const ag_text *text) {
    return json_stringn_nocheck(text->data ? text->data : "", text->len);
}

static json_t *text_part(const ag_text *text) {
    return json_pack("{s:s, s:o}", "type", "text", "text", json_of_text(text));
}

/* Turns parts of other types into {"type": "text", "text": ...}. */
static ag_status fit_parts(json_t *m, const json_t *parts, ag_error *err) {
    json_t *list = json_array(), *part;
    ag_text text = {0};
    ag_status st = ag_normalise_check(list != NULL, err);
    size_t i;
    json_array_foreach(parts, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const bool fits = type && !strcmp(type, "text");
        text.len = 0;
        if (st == AG_OK) st = ag_chat_check_interrupt("normalising the conversation", err);
        if (st == AG_OK && !fits) st = ag_chat_append_part(part, &text, err);
        if (st != AG_OK) break;
        json_t *copy = fits ? json_copy(part) : text_part(&text);
        st = ag_normalise_check(json_array_append_new(list, copy) == 0, err);
    }
    ag_text_free(&text);
    if (st == AG_OK) return ag_normalise_set(m, "content", list, err);
    json_decref(list);
    return st;
}

static ag_status set_content(const normaliser *n, json_t *m, const ag_text *text, ag_error *err) {
    if (has(n, AG_CHAT_TEXT) || !has(n, AG_CHAT_PARTS)) {
        return ag_normalise_set(m, "content", json_of_text(text), err);
    }
    return ag_normalise_set(m, "content", json_pack("[o]", text_part(text)), err);
}

/* Converts the content to null, a string or a list of parts, as the template accepts it. */
static ag_status fit_content(const normaliser *n, json_t *m, ag_error *err) {
    const json_t *content = json_object_get(m, "content");
    const bool is_call = json_array_size(json_object_get(m, "tool_calls")) > 0;
    ag_text text = {0};
    if (!content || json_is_null(content)) {
        if (is_call && has(n, AG_CHAT_NULL_CONTENT))
            return ag_normalise_set(m, "content", json_null(), err);
        return set_content(n, m, &text, err);
    }
    if (json_is_array(content) && has(n, AG_CHAT_PARTS)) return fit_parts(m, content, err);
    if (json_is_string(content) && has(n, AG_CHAT_TEXT)) return AG_OK;
    ag_status st = ag_chat_append_content(content, &text, err);
    if (st == AG_OK) st = set_content(n, m, &text, err);
    ag_text_free(&text);
    return st;
}

/* Copies the reasoning to the key that the template reads. */
static ag_status fit_reasoning(const normaliser *n, json_t *m, ag_error *err) {
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};
    const char *key = n->f->reasoning_key;
    if (!key || json_is_string(json_object_get(m, key))) return AG_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(m, keys[i]);
        if (json_is_string(v)) return ag_normalise_set(m, key, json_incref(v), err);
    }
    return AG_OK;
}

/* Appends the calls of a message to its content as text. */
static ag_status calls_to_text(const normaliser *n, json_t *m, ag_error *err) {
    const bool is_alone = !json_string_length(json_object_get(m, "content"));
    ag_text text = {0};
    ag_status st = append_content(m, &text, err);
    if (st == AG_OK && !is_alone) st = ag_text_append_string(&text, "\n", err);
    if (st == AG_OK) st = ag_chat_append_calls(json_object_get(m, "tool_calls"), &text, err);
    if (st == AG_OK) st = set_content(n, m, &text, err);
    ag_text_free(&text);
    json_object_del(m, "tool_calls");
    return st;
}

static ag_status fit_message(normaliser *n, json_t *m, ag_error *err) {
    if (ag_chat_has_role(m, "developer") && !has(n, AG_CHAT_DEVELOPER)) {
        AG_TRY(ag_normalise_set(m, "role", json_string("system"), err));
    }
    AG_TRY(fit_content(n, m, err));
    AG_TRY(fit_reasoning(n, m, err));
    AG_TRY(ag_normalise_calls(n->f, m, json_array_size(n->out), &n->calls, err));
    AG_TRY(ag_preamble_join(n->f, n->preamble, m, err));
    const bool has_calls = json_array_size(json_object_get(m, "tool_calls")) > 0;
    return has_calls && !has(n, AG_CHAT_CALLS) ? calls_to_text(n, m, err) : AG_OK;
}

/* ---- messages together ---- */

static json_t *last_of(const normaliser *n) {
    const size_t k = json_array_size(n->out);
    return k ? json_array_get(n->out, k - 1) : NULL;
}

/* Writes `tail` to the last message. */
static ag_status flush(normaliser *n, ag_error *err) {
    if (!n->has_tail) return AG_OK;
    n->has_tail = false;
    return set_content(n, last_of(n), &n->tail, err);
}

static ag_status push_message(normaliser *n, json_t *m, ag_error *err) {
    AG_TRY(flush(n, err));
    n->from_tool = false;
    AG_TRY(ag_normalise_check(json_array_append(n->out, m) == 0, err));
    ag_call_table_follow(&n->calls, m);
    return AG_OK;
}

/* Reads the text of the last message into `tail`, to be extended. */
static ag_status open_tail(normaliser *n, ag_error *err) {
    if (n->has_tail) return AG_OK;
    n->tail.len = 0;
    AG_TRY(append_content(last_of(n), &n->tail, err));
    n->has_tail = true;
    return AG_OK;
}

static ag_status extend_last(normaliser *n, const char *between, const json_t *m, ag_error *err) {
    AG_TRY(open_tail(n, err));
    AG_TRY(ag_text_append_string(&n->tail, between, err));
    return append_content(m, &n->tail, err);
}

/* Appends a system message's text to the pending text. */
static ag_status add_pending(normaliser *n, const json_t *m, ag_error *err) {
    const size_t before = n->pending.len;
    if (before) AG_TRY(ag_text_append_string(&n->pending, "\n\n", err));
    const size_t begin = n->pending.len;
    AG_TRY(append_content(m, &n->pending, err));
    if (n->pending.len == begin) n->pending.len = before;
    return AG_OK;
}

static ag_status add_system(normaliser *n, json_t *m, ag_error *err) {
    const json_t *last = last_of(n);
    const bool is_first = !last, is_early = last && ag_chat_has_role(last, "system");
    if (!has(n, AG_CHAT_SYSTEM)) return add_pending(n, m, err);
    if (is_first || accepts(n, is_early ? AG_ACCEPTS_SYSTEMS : AG_ACCEPTS_LATE_SYSTEM)) {
        return push_message(n, m, err);
    }
    return is_early ? extend_last(n, "\n\n", m, err) : add_pending(n, m, err);
}

static ag_status add_user(normaliser *n, json_t *m, ag_error *err) {
    if (n->pending.len) {
        AG_TRY(ag_text_append_string(&n->pending, "\n\n", err));
        AG_TRY(append_content(m, &n->pending, err));
        AG_TRY(set_content(n, m, &n->pending, err));
        n->pending.len = 0;
    }
    return push_message(n, m, err);
}

static ag_status append_result(const json_t *m, ag_text *text, ag_error *err) {
    AG_TRY(ag_text_append_string(text, "<tool_response>\n", err));
    AG_TRY(append_content(m, text, err));
    return ag_text_append_string(text, "\n</tool_response>", err);
}

/* Adds a message with this role and text by `add_as`, which can put pending system text before it.
 */
static ag_status add_text(normaliser *n, const char *role, const ag_text *text,
                          ag_status (*add_as)(normaliser *, json_t *, ag_error *), ag_error *err) {
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", "");
    ag_status st = ag_normalise_check(m != NULL, err);
    if (st == AG_OK) st = set_content(n, m, text, err);
    if (st == AG_OK) st = add_as(n, m, err);
    json_decref(m);
    return st;
}

/* Adds a tool result as text of the user. */
static ag_status add_result_as_user(normaliser *n, const json_t *m, ag_error *err) {
    if (n->from_tool) {
        AG_TRY(open_tail(n, err));
        AG_TRY(ag_text_append_string(&n->tail, "\n", err));
        return append_result(m, &n->tail, err);
    }
    ag_text text = {0};
    ag_status st = append_result(m, &text, err);
    if (st == AG_OK) st = add_text(n, "user", &text, add_user, err);
    ag_text_free(&text);
    n->from_tool = st == AG_OK;
    return st;
}

static ag_status add_message(normaliser *n, json_t *m, ag_error *err) {
    AG_TRY(fit_message(n, m, err));
    if (ag_chat_has_role(m, "system")) return add_system(n, m, err);
    if (ag_chat_has_role(m, "tool") && !has(n, AG_CHAT_RESULTS))
        return add_result_as_user(n, m, err);
    return ag_chat_has_role(m, "user") ? add_user(n, m, err) : push_message(n, m, err);
}

/* Adds system text that no user message follows. */
static ag_status add_rest(normaliser *n, ag_error *err) {
    const json_t *last = last_of(n);
    if (!n->pending.len) return AG_OK;
    if (!last || !ag_chat_has_role(last, "user"))
        return add_text(n, "user", &n->pending, push_message, err);
    AG_TRY(open_tail(n, err));
    AG_TRY(ag_text_append_string(&n->tail, "\n\n", err));
    return ag_text_append(&n->tail, n->pending.data, n->pending.len, err);
}

static ag_status add_tools(normaliser *n, const json_t *tools, ag_error *err) {
    ag_text text = {0};
    ag_status st = ag_chat_append_tools(tools, &text, err);
    if (st == AG_OK) st = add_text(n, "system", &text, add_system, err);
    ag_text_free(&text);
    return st;
}

/* Adds all messages. Tools become a system message after the leading ones if the template does not
 * take them. */
static ag_status add_all(normaliser *n, const ag_chat *c, const json_t *messages, ag_error *err) {
    bool lacks_tools = c->tools && !has(n, AG_CHAT_TOOLS);
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m) {
        const bool is_system = ag_chat_has_role(m, "system") || ag_chat_has_role(m, "developer");
        AG_TRY(ag_chat_check_interrupt("normalising the conversation", err));
        if (lacks_tools && !is_system) {
            AG_TRY(add_tools(n, c->tools, err));
            lacks_tools = false;
        }
        json_t *copy;
        AG_TRY(ag_json_copy_object(m, &copy, err));
        const ag_status st = add_message(n, copy, err);
        json_decref(copy);
        AG_TRY(st);
    }
    if (lacks_tools) AG_TRY(add_tools(n, c->tools, err));
    AG_TRY(add_rest(n, err));
    return flush(n, err);
}

ag_status ag_chat_normalise(const ag_chat *c, json_t **messages, json_t **tools, ag_error *err) {
    normaliser n = {.f = c->format, .preamble = c->preamble, .out = json_array()};
    json_t *split = NULL;
    *messages = *tools = NULL;
    ag_status st = ag_normalise_check(n.out != NULL, err);
    if (st == AG_OK) st = ag_split_calls(c->format, c->messages, &split, err);
    if (st == AG_OK) st = add_all(&n, c, split, err);
    json_decref(split);
    if (st == AG_OK && c->tools && has(&n, AG_CHAT_TOOLS)) {
        st = ag_normalise_tools(c->format, c->tools, tools, err);
    }
    if (st == AG_OK) *messages = n.out;
    else json_decref(n.out);
    ag_call_table_free(&n.calls);
    ag_text_free(&n.pending);
    ag_text_free(&n.tail);
    return st;
}
