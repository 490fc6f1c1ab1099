/* SPDX-License-Identifier: Apache-2.0 */
/* Adds sampled answers to a conversation, and saves and restores them as JSON. */
#include "chat/conversation.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "chat/parse/parser.h"
#include "core/fail.h"
#include "formats/json.h"
#include "text/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

ag_status ag_chat_add_answer(ag_chat *c, const ag_chat_parser *p, const int32_t *ids, size_t n,
                             ag_error *err) {
    ag_text message = {0};
    ag_status st = ag_chat_parser_message(p, &message, err);
    if (st == AG_OK) st = ag_chat_add_json(c, message.data, message.len, err);
    ag_text_free(&message);
    if (st != AG_OK || !ids || n == 0 || !c->format->tokenizer) return st;
    const json_t *newest = json_array_get(c->messages, json_array_size(c->messages) - 1);
    ag_chat_answer answer = {.starts_in_reasoning = p->params.starts_in_reasoning};
    st = ag_chat_answer_init(c->format, newest, ids, n, &answer, err);
    if (st == AG_OK) st = ag_chat_store_answer(c, &answer, err);
    else ag_chat_answer_free(&answer);
    if (st != AG_OK) ag_chat_truncate(c, ag_chat_n_messages(c) - 1);
    return st;
}

/* ---- saved answers ---- */

enum { CHECKSUM_TEXT = 17 };

/* Writes the format's checksum as text: JSON numbers of some clients have fewer than 64 bits. */
static void write_checksum(const ag_chat *c, char text[CHECKSUM_TEXT]) {
    snprintf(text, CHECKSUM_TEXT, "%016" PRIx64, c->format->checksum);
}

/* ---- save ---- */

/* Appends the ids of what ag_chat_require_call() put after the prompt, and the sampled ids. */
static ag_status append_all_ids(const ag_chat *c, const int32_t *ids, size_t n, ag_ids *all,
                                ag_error *err) {
    if (c->call_prefix.len) {
        AG_TRY(ag_tokenizer_encode(c->format->tokenizer, c->call_prefix.data, c->call_prefix.len,
                                   AG_ENCODE_PARSE_SPECIAL, all, err));
    }
    AG_TRY(ag_ids_reserve(all, n, err));
    if (n) memcpy(all->data + all->n, ids, n * sizeof *ids);
    all->n += n;
    return AG_OK;
}

/* Fails with AG_UNSUPPORTED unless the ids of an answer without calls spell its content, in
 * ordinary tokens. A message with the same text from a client must not get special tokens. Harmony
 * needs no check: its bodies are compared with the text that their ids spell. */
static ag_status check_spelling(const ag_chat *c, const json_t *message, const ag_chat_answer *t,
                                ag_error *err) {
    const json_t *content = json_object_get(message, "content");
    const char *content_text = json_string_value(content);
    ag_text text = {0};
    if (json_object_get(message, "tool_calls") || c->format->calls.kind == AG_CALLS_HARMONY)
        return AG_OK;
    if (t->n_reasoning > t->ids.n || !content_text)
        return AG_FAIL(err, UNSUPPORTED,
                       "cannot reuse the answer's token ids: it has reasoning but no text");
    for (size_t i = t->n_reasoning; i < t->ids.n; i++) {
        if (ag_tokenizer_is_special(c->format->tokenizer, t->ids.data[i]))
            return AG_FAIL(
                err, UNSUPPORTED,
                "cannot reuse the answer's token ids: its text holds the special token %d",
                t->ids.data[i]);
    }
    AG_TRY(ag_tokenizer_decode(c->format->tokenizer, t->ids.data + t->n_reasoning,
                               t->ids.n - t->n_reasoning, true, &text, err));
    const char *spelled = text.data ? text.data : "";
    size_t n = text.len, n_content = json_string_length(content);
    ag_json_trim(&spelled, &n);
    ag_json_trim(&content_text, &n_content);
    const bool is_equal = n == n_content && !memcmp(spelled, content_text, n);
    ag_text_free(&text);
    return is_equal ? AG_OK
                    : AG_FAIL(err, UNSUPPORTED,
                              "cannot reuse the answer's token ids: they spell %zu bytes, its "
                              "content has %zu",
                              n, n_content);
}

static json_t *json_of_ids(const ag_ids *ids) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < ids->n; i++) {
        if (json_array_append_new(list, json_integer(ids->data[i])) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Appends the answer as JSON: message, ids, whether it starts in reasoning, and the checksum. */
static ag_status save(const ag_chat *c, const json_t *message, ag_chat_answer *t, const ag_ids *ids,
                      ag_text *json, ag_error *err) {
    AG_TRY(ag_chat_answer_init(c->format, message, ids->data, ids->n, t, err));
    AG_TRY(check_spelling(c, message, t, err));
    char format[CHECKSUM_TEXT];
    write_checksum(c, format);
    json_t *saved = json_pack("{s:O, s:o, s:b, s:s}", "message", message, "ids", json_of_ids(ids),
                              "opened", (int)t->starts_in_reasoning, "format", format);
    if (!saved) return AG_FAIL(err, NOMEM, "JSON of an answer of %zu tokens", ids->n);
    const ag_status st = ag_json_text_append(saved, json, err);
    json_decref(saved);
    return st;
}

ag_status ag_chat_keep_answer(const ag_chat *c, const ag_chat_parser *p, const int32_t *ids,
                              size_t n, ag_text *json, ag_error *err) {
    ag_text text = {0};
    ag_ids all = {0};
    json_t *message = NULL;
    ag_chat_answer t = {.starts_in_reasoning = p->params.starts_in_reasoning};
    if (!c->format->tokenizer)
        return AG_FAIL(err, INVALID,
                       "token ids need a tokenizer: the chat format was created without one");
    ag_status st = ag_chat_parser_message(p, &text, err);
    if (st == AG_OK) st = ag_json_parse(text.data, text.len, "the answer", &message, err);
    if (st == AG_OK) st = append_all_ids(c, ids, n, &all, err);
    if (st == AG_OK && !all.n)
        st = AG_FAIL(err, UNSUPPORTED, "cannot reuse the answer's token ids: there are none");
    if (st == AG_OK) st = save(c, message, &t, &all, json, err);
    ag_chat_answer_free(&t);
    json_decref(message);
    ag_ids_free(&all);
    ag_text_free(&text);
    return st;
}

/* ---- restore ---- */

static ag_status read_ids(const ag_tokenizer *t, const json_t *list, ag_ids *ids, ag_error *err) {
    const int32_t n_vocab = ag_tokenizer_vocab_size(t);
    json_t *id;
    size_t i;
    AG_TRY(ag_ids_reserve(ids, json_array_size(list), err));
    json_array_foreach((json_t *)(uintptr_t)list, i, id) {
        const json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= n_vocab)
            return AG_FAIL(err, FORMAT, "saved answer: ids[%zu] is not a token id of this model",
                           i);
        ids->data[ids->n++] = (int32_t)v;
    }
    return ids->n ? AG_OK : AG_FAIL(err, FORMAT, "saved answer: \"ids\" is missing or empty");
}

/* Fails with AG_FORMAT if the answer was saved with another tokenizer or template. */
static ag_status check_format(const ag_chat *c, const json_t *saved, ag_error *err) {
    char here[CHECKSUM_TEXT];
    const char *format = json_string_value(json_object_get(saved, "format"));
    write_checksum(c, here);
    if (format && !strcmp(format, here)) return AG_OK;
    return AG_FAIL(err, FORMAT,
                   "saved answer: made with another tokenizer or template (checksum %.20s, not %s)",
                   format ? format : "missing", here);
}

/* Checks the ids against the message, and adds the answer to the conversation. */
static ag_status restore(ag_chat *c, const json_t *message, const ag_ids *ids,
                         bool starts_in_reasoning, ag_error *err) {
    ag_chat_answer answer = {.starts_in_reasoning = starts_in_reasoning};
    ag_status st = ag_chat_answer_init(c->format, message, ids->data, ids->n, &answer, err);
    if (st == AG_OK) st = check_spelling(c, message, &answer, err);
    if (st == AG_OK) return ag_chat_store_answer(c, &answer, err);
    ag_chat_answer_free(&answer);
    return st == AG_UNSUPPORTED
               ? AG_FAIL(err, FORMAT, "saved answer: \"ids\" do not spell \"message\"")
               : st;
}

ag_status ag_chat_restore_answer(ag_chat *c, const char *json, size_t len, ag_error *err) {
    json_t *saved = NULL;
    ag_ids ids = {0};
    if (!c->format->tokenizer)
        return AG_FAIL(err, INVALID,
                       "token ids need a tokenizer: the chat format was created without one");
    AG_TRY(ag_json_parse(json, len, "saved answer", &saved, err));
    const json_t *message = json_object_get(saved, "message");
    const bool starts_in_reasoning = json_is_true(json_object_get(saved, "opened"));
    ag_status st = read_ids(c->format->tokenizer, json_object_get(saved, "ids"), &ids, err);
    if (st == AG_OK) st = check_format(c, saved, err);
    if (st == AG_OK && !json_is_object(message))
        st = AG_FAIL(err, FORMAT, "saved answer: \"message\" is missing or not an object");
    if (st == AG_OK) st = ag_chat_check_message(message, "saved answer", err);
    if (st == AG_OK) st = restore(c, message, &ids, starts_in_reasoning, err);
    ag_ids_free(&ids);
    json_decref(saved);
    return st;
}
