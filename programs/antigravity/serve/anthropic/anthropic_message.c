/* SPDX-License-Identifier: Apache-2.0 */
/* Converts Anthropic's messages, lists of blocks, to messages of chat templates. There each tool
 * result is a message, and calls and thinking are fields. */
#include "../../support/json_out.h"
#include "../protocol/fields.h"
#include "../protocol/messages.h"
#include "../threads/account.h"
#include "../threads/account_text.h"
#include "anthropic.h"

#include <string.h>

/* The blocks of one message. All members are owned. */
typedef struct message_parts {
    json_t *texts;   /* text parts */
    json_t *calls;   /* tool calls */
    json_t *results; /* messages with the role "tool" */
    ag_text thinking;
} message_parts;

static void message_parts_free(message_parts *p) {
    json_decref(p->texts);
    json_decref(p->calls);
    json_decref(p->results);
    account_free(p->thinking.data);
}

static bool get_text(const json_t *block, const char *key, json_t **text, serve_error *e) {
    *text = json_object_get(block, key);
    if (json_is_string(*text)) return true;
    return reject_field(e, "messages", "a block of type %s has no %s", field_type(block), key);
}

static bool read_text(const json_t *block, json_t *texts, serve_error *e) {
    json_t *text;
    return get_text(block, "text", &text, e) &&
           list_add(texts, message_text_part(json_incref(text)), e);
}

/* Only plain text documents are supported. */
static bool read_document(const json_t *block, json_t *texts, serve_error *e) {
    const json_t *source = json_object_get(block, "source");
    json_t *data = json_object_get(source, "data");
    if (strcmp(field_type(source), "text") != 0 || !json_is_string(data))
        return reject_field(e, "messages", "documents must be plain text");
    return list_add(texts, message_text_part(json_incref(data)), e);
}

static bool read_image(serve_error *e) {
    return reject_field(e, "messages", "images are not supported: the model reads text only");
}

static bool read_call(const json_t *block, json_t *calls, serve_error *e) {
    json_t *id, *name;
    if (!get_text(block, "id", &id, e) || !get_text(block, "name", &name, e)) return false;
    const json_t *input = json_object_get(block, "input");
    if (!json_is_object(input))
        return reject_field(e, "messages", "the input of a tool_use must be an object");
    char *arguments = json_dumps(input, JSON_COMPACT);
    json_t *call = message_tool_call(json_string_value(id), json_string_value(name),
                                     arguments ? json_string(arguments) : NULL);
    account_free(arguments);
    return list_add(calls, call, e);
}

static bool append_string(ag_text *text, const json_t *string, serve_error *e) {
    return account_text_append(text, json_string_value(string), json_string_length(string)) ||
           reject_no_memory(e);
}

/* Reads the content of a tool result: nothing, a string, or blocks, which are joined. */
static bool read_result_content(const json_t *content, bool failed, ag_text *joined,
                                serve_error *e) {
    static const char prefix[] = "Error: ";
    if (!account_text_append(joined, prefix, failed ? sizeof prefix - 1 : 0))
        return reject_no_memory(e);
    if (!content || json_is_null(content)) return true;
    if (json_is_string(content)) return append_string(joined, content, e);
    if (!json_is_array(content))
        return reject_field(e, "messages",
                            "the content of a tool_result must be a string or a list");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        json_t *text;
        if (strcmp(field_type(block), "image") == 0) return read_image(e);
        if (strcmp(field_type(block), "text") != 0)
            return reject_field(e, "messages",
                                "a block of type \"%s\" in a tool_result is not supported",
                                field_type(block));
        if (!get_text(block, "text", &text, e)) return false;
        if (i && !account_text_append(joined, "\n", 1)) return reject_no_memory(e);
        if (!append_string(joined, text, e)) return false;
    }
    return true;
}

static bool read_result(const json_t *block, json_t *results, serve_error *e) {
    json_t *id;
    if (!get_text(block, "tool_use_id", &id, e)) return false;
    ag_text joined = {0};
    bool failed = json_is_true(json_object_get(block, "is_error"));
    bool ok = read_result_content(json_object_get(block, "content"), failed, &joined, e);
    if (ok) {
        ok = list_add(results,
                      JSON_OBJECT({"role", json_string("tool")}, {"tool_call_id", json_incref(id)},
                                  {"content", json_stringn(joined.data, joined.len)}),
                      e);
    }
    account_free(joined.data);
    return ok;
}

static bool read_thinking(const json_t *block, message_parts *p, serve_error *e) {
    json_t *text;
    return get_text(block, "thinking", &text, e) && append_string(&p->thinking, text, e);
}

static bool read_block(const json_t *block, bool is_assistant, message_parts *p, serve_error *e) {
    const char *type = field_type(block);
    if (strcmp(type, "text") == 0) return read_text(block, p->texts, e);
    if (is_assistant) {
        if (strcmp(type, "tool_use") == 0) return read_call(block, p->calls, e);
        if (strcmp(type, "thinking") == 0) return read_thinking(block, p, e);
        if (strcmp(type, "redacted_thinking") == 0) return true; /* only Anthropic can decrypt it */
    } else {
        if (strcmp(type, "image") == 0) return read_image(e);
        if (strcmp(type, "document") == 0) return read_document(block, p->texts, e);
        if (strcmp(type, "tool_result") == 0) return read_result(block, p->results, e);
    }
    return reject_field(e, "messages", "a block of type \"%s\" is not supported", type);
}

/* Joins all texts of an answer, so that the answer memory finds it again. */
static json_t *join_texts(const json_t *texts) {
    ag_text all = {0};
    bool ok = account_text_append(&all, "", 0);
    for (size_t i = 0; ok && i < json_array_size(texts); i++) {
        const json_t *text = json_object_get(json_array_get(texts, i), "text");
        ok = account_text_append(&all, json_string_value(text), json_string_length(text));
    }
    json_t *value = ok ? json_stringn(all.data, all.len) : NULL;
    account_free(all.data);
    return value;
}

static json_t *message_content(const message_parts *p, bool is_assistant) {
    if (json_array_size(p->texts) > 1 && !is_assistant) return json_incref(p->texts);
    return join_texts(p->texts);
}

static bool add_assistant_message(const message_parts *p, serve_request *r, serve_error *e) {
    json_t *message =
        JSON_OBJECT({"role", json_string("assistant")}, {"content", message_content(p, true)});
    if (p->thinking.data)
        message = JSON_ADD(message,
                           {"reasoning_content", json_stringn(p->thinking.data, p->thinking.len)});
    if (json_array_size(p->calls))
        message = JSON_ADD(message, {"tool_calls", json_incref(p->calls)});
    return list_add(r->messages, message, e);
}

/* Adds the results first: templates expect them directly after the calls. */
static bool add_user_message(const message_parts *p, const char *role, serve_request *r,
                             serve_error *e) {
    if (json_array_extend(r->messages, p->results) != 0) return reject_no_memory(e);
    if (json_array_size(p->results) && !json_array_size(p->texts)) return true;
    return message_add(r, role, message_content(p, false), e);
}

bool anthropic_read_message(const json_t *message, size_t i, serve_request *r, serve_error *e) {
    static const char *const roles[] = {"user", "assistant", "system", NULL};
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = json_object_get(message, "content");
    if (!message_check_role(role, "messages", i, roles, e)) return false;
    bool is_assistant = strcmp(role, "assistant") == 0;
    if (json_is_string(content)) return message_add(r, role, json_incref(content), e);
    if (!json_is_array(content))
        return reject_field(e, "messages", "a content must be a string or a list of blocks");
    message_parts p = {.texts = json_array(), .calls = json_array(), .results = json_array()};
    bool ok = (p.texts && p.calls && p.results) || reject_no_memory(e);
    for (size_t k = 0; ok && k < json_array_size(content); k++)
        ok = read_block(json_array_get(content, k), is_assistant, &p, e);
    if (ok) ok = is_assistant ? add_assistant_message(&p, r, e) : add_user_message(&p, role, r, e);
    message_parts_free(&p);
    return ok;
}
