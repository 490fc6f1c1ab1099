/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/conversation.h"

#include "chat/interrupt.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "formats/json.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

ag_status ag_chat_create(const ag_chat_format *f, ag_chat **out, ag_error *err) {
    ag_chat *c = *out = ag_calloc(1, sizeof *c);
    if (!c) return AG_FAIL(err, NOMEM, "conversation");
    c->format = f;
    c->messages = json_array();
    c->variables = json_object();
    if (c->messages && c->variables) return AG_OK;
    ag_chat_destroy(c);
    *out = NULL;
    return AG_FAIL(err, NOMEM, "conversation");
}

void ag_chat_destroy(ag_chat *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_answers; i++) { ag_chat_answer_free(&c->answers[i]); }
    ag_free(c->answers);
    json_decref(c->messages);
    json_decref(c->tools);
    json_decref(c->variables);
    ag_text_free(&c->call_prefix);
    ag_free(c);
}

static ag_status append_message(ag_chat *c, json_t *message, ag_error *err) {
    if (json_array_append_new(c->messages, message) == 0) return AG_OK;
    return AG_FAIL(err, NOMEM, "message of a conversation");
}

ag_status ag_chat_add_json(ag_chat *c, const char *message, size_t len, ag_error *err) {
    json_t *m;
    AG_TRY(ag_json_parse_value(message, len, "the message", &m, err));
    const ag_status st = ag_chat_check_message(m, "the message", err);
    if (st == AG_OK) return append_message(c, m, err);
    json_decref(m);
    return st;
}

ag_status ag_chat_set_messages(ag_chat *c, const char *messages, size_t len, ag_error *err) {
    json_t *list, *m;
    size_t i;
    AG_TRY(ag_json_parse_value(messages, len, "messages", &list, err));
    ag_status st = json_is_array(list) ? AG_OK : AG_FAIL(err, INVALID, "messages: must be a list");
    json_array_foreach(list, i, m) {
        char path[40];
        snprintf(path, sizeof path, "messages[%zu]", i);
        if (st == AG_OK) st = ag_chat_check_interrupt(path, err);
        if (st == AG_OK) st = ag_chat_check_message(m, path, err);
        if (st != AG_OK) break;
    }
    if (st != AG_OK) {
        json_decref(list);
        return st;
    }
    json_decref(c->messages);
    c->messages = list;
    return AG_OK;
}

ag_status ag_chat_add(ag_chat *c, const char *role, const char *content, ag_error *err) {
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", content);
    if (m) return append_message(c, m, err);
    json_t *text = json_string(content);
    json_decref(text);
    if (!text) return AG_FAIL(err, FORMAT, "content of the message: not UTF-8");
    return AG_FAIL(err, NOMEM, "message of a conversation");
}

size_t ag_chat_n_messages(const ag_chat *c) { return json_array_size(c->messages); }

void ag_chat_truncate(ag_chat *c, size_t n) {
    while (json_array_size(c->messages) > n) {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    }
}

ag_status ag_chat_get_messages(const ag_chat *c, ag_text *json, ag_error *err) {
    return ag_json_text_append(c->messages, json, err);
}

ag_status ag_chat_get_message(const ag_chat *c, size_t i, ag_text *json, ag_error *err) {
    const json_t *m = json_array_get(c->messages, i);
    if (m) return ag_json_text_append(m, json, err);
    return AG_FAIL(err, INVALID, "message %zu does not exist: the conversation has %zu", i,
                   json_array_size(c->messages));
}

ag_status ag_chat_set_tools(ag_chat *c, const char *tools, size_t len, ag_error *err) {
    json_t *list = NULL;
    ag_status st = AG_OK;
    if (tools) AG_TRY(ag_json_parse_value(tools, len, "tools", &list, err));
    if (list && !json_is_array(list)) st = AG_FAIL(err, INVALID, "tools: must be a list");
    if (st == AG_OK) st = ag_chat_check_tools(list, err);
    if (st != AG_OK || json_array_size(list) == 0) {
        json_decref(list);
        list = NULL;
    }
    if (st != AG_OK) return st;
    json_decref(c->tools);
    c->tools = list;
    return AG_OK;
}

ag_status ag_chat_set_variable(ag_chat *c, const char *name, const char *json, size_t len,
                               ag_error *err) {
    static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
    json_t *v = NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (!strcmp(name, own[i])) {
            return AG_FAIL(err, INVALID,
                           "template variable \"%s\" is reserved: ag_chat_render() sets it", name);
        }
    }
    if (!json) {
        json_object_del(c->variables, name);
        return AG_OK;
    }
    AG_TRY(ag_json_parse_value(json, len, name, &v, err));
    if (json_object_set_new(c->variables, name, v) == 0) return AG_OK;
    return AG_FAIL(err, NOMEM, "template variable \"%.80s\"", name);
}

void ag_chat_set_memory_limit(ag_chat *c, size_t bytes) { c->memory_limit = bytes; }

void ag_chat_set_clock(ag_chat *c, int64_t seconds) {
    c->has_clock = true;
    c->clock = seconds;
}

enum { MAX_ANSWERS = 4096 };

ag_status ag_chat_store_answer(ag_chat *c, ag_chat_answer *answer, ag_error *err) {
    if (c->n_answers == MAX_ANSWERS) {
        ag_chat_answer_free(&c->answers[0]);
        memmove(c->answers, c->answers + 1, --c->n_answers * sizeof *c->answers);
    }
    const ag_status st = AG_GROW(c->answers, &c->answers_cap, c->n_answers + 1, err);
    if (st == AG_OK) c->answers[c->n_answers++] = *answer;
    else ag_chat_answer_free(answer);
    *answer = (ag_chat_answer){0};
    return st;
}
