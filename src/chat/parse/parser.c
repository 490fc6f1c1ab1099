/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/parse/parser.h"

#include "chat/conversation.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/keyed_hash.h"
#include "text/bytes.h"

#include <string.h>

ag_status ag_parser_create(const ag_parser_params *params, ag_chat_parser **out, ag_error *err) {
    ag_chat_parser *p = *out = ag_calloc(1, sizeof *p);
    if (!p) return AG_FAIL(err, NOMEM, "parser of answers");
    p->params = *params;
    json_incref(p->params.tools);
    const bool is_harmony = params->format && params->format->kind == AG_CALLS_HARMONY;
    p->state = is_harmony                    ? ag_parse_harmony
               : params->starts_in_reasoning ? ag_parse_reasoning
                                             : ag_parse_start;
    return AG_OK;
}

ag_status ag_chat_parser_create(ag_chat *c, ag_chat_parser **out, ag_error *err) {
    const ag_chat_format *f = c->format;
    const ag_call_format *calls = &f->calls;
    json_t *tools = c->no_calls ? NULL : c->tools;
    const ag_parser_params params = {
        .format = tools || calls->kind == AG_CALLS_HARMONY ? calls : NULL,
        .headers = calls->header_close ? calls : NULL,
        .reasoning_open = f->reasoning_open,
        .reasoning_close = f->reasoning_close,
        .content_open = f->content_open,
        .starts_in_reasoning = c->starts_in_reasoning,
        .short_id = !(f->accepts & AG_ACCEPTS_LONG_IDS),
        .tools = tools,
    };
    AG_TRY(ag_parser_create(&params, out, err));
    if (c->call_prefix.len == 0) return AG_OK;
    const ag_status st = ag_chat_parser_push(*out, c->call_prefix.data, c->call_prefix.len, err);
    if (st == AG_OK) return st;
    ag_chat_parser_destroy(*out);
    *out = NULL;
    return st;
}

void ag_chat_parser_destroy(ag_chat_parser *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_calls; i++) {
        ag_free(p->calls[i].id);
        ag_free(p->calls[i].name);
        ag_text_free(&p->calls[i].arguments);
    }
    json_decref(p->params.tools);
    ag_free(p->calls);
    ag_free(p->queue);
    ag_text_free(&p->pending);
    ag_text_free(&p->content);
    ag_text_free(&p->reasoning);
    ag_free(p);
}

/* ---- deltas ---- */

static ag_status enqueue(ag_chat_parser *p, ag_queued_delta d, ag_error *err) {
    if (p->next == p->n_queue) p->next = p->n_queue = 0;
    ag_queued_delta *last = p->n_queue ? &p->queue[p->n_queue - 1] : NULL;
    if (last && last->kind == d.kind && last->call == d.call && last->end == d.begin) {
        last->end = d.end;
        return AG_OK;
    }
    AG_TRY(AG_GROW(p->queue, &p->queue_cap, p->n_queue + 1, err));
    p->queue[p->n_queue++] = d;
    return AG_OK;
}

ag_status ag_parser_emit_text(ag_chat_parser *p, ag_chat_delta_kind kind, const char *text,
                              size_t n, ag_error *err) {
    ag_text *to = kind == AG_CHAT_DELTA_REASONING ? &p->reasoning : &p->content;
    if (n == 0) return AG_OK;
    const size_t begin = to->len;
    AG_TRY(ag_text_append(to, text, n, err));
    return enqueue(p, (ag_queued_delta){kind, 0, begin, to->len}, err);
}

ag_status ag_parser_emit_arguments(ag_chat_parser *p, const char *text, size_t n, ag_error *err) {
    if (n == 0) return AG_OK;
    const size_t call = p->n_calls - 1;
    ag_text *to = &p->calls[call].arguments;
    const size_t begin = to->len;
    AG_TRY(ag_text_append(to, text, n, err));
    return enqueue(p, (ag_queued_delta){AG_CHAT_DELTA_ARGUMENTS, call, begin, to->len}, err);
}

/* Makes an id of random letters, so that with high probability no other call has it. */
static void make_id(char id[32], bool is_short) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t x = ag_unpredictable();
    size_t at = 0;
    if (!is_short) memcpy(id, "call_", at = 5);
    for (size_t i = 0; i < 9; i++, x /= 62) id[at++] = letters[x % 62];
    id[at] = '\0';
}

ag_status ag_parser_begin_call(ag_chat_parser *p, const char *name, size_t n_name, const char *id,
                               size_t n_id, ag_error *err) {
    char made_id[32];
    if (n_id == 0) {
        make_id(made_id, p->params.short_id);
        id = made_id;
        n_id = strlen(id);
    }
    AG_TRY(AG_GROW(p->calls, &p->calls_cap, p->n_calls + 1, err));
    ag_parsed_call call = {.id = ag_strndup(id, n_id), .name = ag_strndup(name, n_name)};
    if (!call.id || !call.name) {
        ag_free(call.id);
        ag_free(call.name);
        return AG_FAIL(err, NOMEM, "tool call");
    }
    p->calls[p->n_calls++] = call;
    p->decided = p->at;
    return enqueue(p, (ag_queued_delta){AG_CHAT_DELTA_CALL, p->n_calls - 1, 0, 0}, err);
}

bool ag_chat_parser_next(ag_chat_parser *p, ag_chat_delta *delta) {
    *delta = (ag_chat_delta){.text = ""};
    if (p->next == p->n_queue) return false;
    const ag_queued_delta d = p->queue[p->next++];
    const ag_parsed_call *call = p->n_calls ? &p->calls[d.call] : NULL;
    const ag_text *of = d.kind == AG_CHAT_DELTA_CONTENT     ? &p->content
                        : d.kind == AG_CHAT_DELTA_REASONING ? &p->reasoning
                                                            : &call->arguments;
    delta->kind = d.kind;
    delta->call = d.call;
    delta->len = d.end - d.begin;
    if (delta->len) delta->text = of->data + d.begin;
    if (d.kind == AG_CHAT_DELTA_CALL) {
        delta->id = call->id;
        delta->name = call->name;
    }
    return true;
}

size_t ag_chat_parser_n_calls(const ag_chat_parser *p) { return p->n_calls; }

/* ---- tools ---- */

static const json_t *tool_of(const ag_chat_parser *p, const char *name, size_t n) {
    size_t i;
    json_t *tool;
    json_array_foreach(p->params.tools, i, tool) {
        const json_t *f = ag_chat_function(tool), *v = json_object_get(f, "name");
        if (v && json_string_length(v) == n && !memcmp(json_string_value(v), name, n)) { return f; }
    }
    return NULL;
}

bool ag_parser_has_tool(const ag_chat_parser *p, const char *name, size_t n) {
    return tool_of(p, name, n) != NULL;
}

const json_t *ag_parser_param_schema(const ag_chat_parser *p, const char *key) {
    const char *name = p->calls[p->n_calls - 1].name;
    const json_t *schema = json_object_get(tool_of(p, name, strlen(name)), "parameters");
    return json_object_get(json_object_get(schema, "properties"), key);
}

/* ---- text ---- */

static ag_status run(ag_chat_parser *p, ag_error *err) {
    for (bool again = true; again;) {
        again = false;
        AG_TRY(p->state(p, &again, err));
    }
    return AG_OK;
}

/* Drops decided text once it is at least half of `pending`, so that each byte moves at most once.
 */
static void compact(ag_chat_parser *p) {
    const size_t done = p->decided;
    if (done == 0 || done < p->pending.len - done) return;
    memmove(p->pending.data, p->pending.data + done, p->pending.len - done);
    p->pending.len -= done;
    p->pending.data[p->pending.len] = '\0';
    p->at -= done;
    p->decided = 0;
    p->searched = p->searched > done ? p->searched - done : 0;
}

ag_status ag_chat_parser_push(ag_chat_parser *p, const char *text, size_t len, ag_error *err) {
    if (p->is_final) return AG_FAIL(err, INVALID, "cannot push text: the answer was finished");
    compact(p);
    AG_TRY(ag_text_append(&p->pending, text, len, err));
    return run(p, err);
}

ag_status ag_chat_parser_finish(ag_chat_parser *p, ag_error *err) {
    p->is_final = true;
    return run(p, err);
}

/* ---- the message ---- */

/* Returns a JSON string in which bytes that are not UTF-8 are U+FFFD. */
static json_t *utf8_string_of(const char *s, size_t size) {
    json_t *v = json_stringn(s ? s : "", size);
    if (v) return v;
    char *copy = ag_malloc(3 * size + 1);
    size_t n = 0;
    for (size_t i = 0; copy && i < size;) {
        size_t len = 1;
        json_t *one = NULL;
        while (len <= 4 && i + len <= size && !(one = json_stringn(s + i, len))) len++;
        if (one) memcpy(copy + n, s + i, len), n += len, i += len;
        else memcpy(copy + n, "\xef\xbf\xbd", 3), n += 3, i++;
        json_decref(one);
    }
    v = copy ? json_stringn(copy, n) : NULL;
    ag_free(copy);
    return v;
}

static json_t *calls_of(const ag_chat_parser *p) {
    json_t *calls = json_array();
    for (size_t i = 0; calls && i < p->n_calls; i++) {
        const ag_parsed_call *c = &p->calls[i];
        json_t *call = json_pack("{s:o, s:s, s:{s:o, s:o}}", "id",
                                 utf8_string_of(c->id, strlen(c->id)), "type", "function",
                                 "function", "name", utf8_string_of(c->name, strlen(c->name)),
                                 "arguments", utf8_string_of(c->arguments.data, c->arguments.len));
        if (json_array_append_new(calls, call) == 0) continue;
        json_decref(calls);
        calls = NULL;
    }
    return calls;
}

static json_t *message_of(const ag_chat_parser *p) {
    const bool no_content = p->n_calls && p->content.len == 0;
    json_t *m =
        json_pack("{s:s, s:o}", "role", "assistant", "content",
                  no_content ? json_null() : utf8_string_of(p->content.data, p->content.len));
    bool ok = m != NULL;
    if (ok && p->reasoning.len) {
        ok = json_object_set_new(m, "reasoning_content",
                                 utf8_string_of(p->reasoning.data, p->reasoning.len)) == 0;
    }
    if (ok && p->n_calls) ok = json_object_set_new(m, "tool_calls", calls_of(p)) == 0;
    if (ok) return m;
    json_decref(m);
    return NULL;
}

ag_status ag_chat_parser_message(const ag_chat_parser *p, ag_text *json, ag_error *err) {
    json_t *m = message_of(p);
    if (!m) return AG_FAIL(err, NOMEM, "JSON of an answer of %zu bytes", p->content.len);
    const ag_status st = ag_json_text_append(m, json, err);
    json_decref(m);
    return st;
}
