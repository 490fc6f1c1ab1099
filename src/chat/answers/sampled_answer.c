/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/answers/sampled_answer.h"

#include "chat/interrupt.h"
#include "chat/json_scan.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

/* ---- canonical messages ---- */

/* Appends [id, name, arguments]. Arguments that are the text of a JSON value are that value. */
static ag_status append_call(const json_t *call, ag_text *canonical, ag_error *err) {
    const json_t *f = ag_chat_function(call);
    json_t *arguments = json_object_get(f, "arguments");
    json_t *value = json_loadb(json_is_string(arguments) ? json_string_value(arguments) : "",
                               json_string_length(arguments), JSON_DECODE_ANY, NULL);
    json_t *list = json_pack("[O?O?O?]", json_object_get(call, "id"), json_object_get(f, "name"),
                             value ? value : arguments);
    const ag_status st = list ? ag_json_text_append_sorted(list, canonical, err)
                              : AG_FAIL(err, NOMEM, "tool call of a message");
    json_decref(list);
    json_decref(value);
    return st;
}

ag_status ag_chat_canonical_message(const json_t *m, ag_text *canonical, ag_error *err) {
    ag_text text = {0};
    const json_t *call;
    size_t i;
    ag_status st = ag_chat_append_content(json_object_get(m, "content"), &text, err);
    if (st == AG_OK) st = ag_json_text_quote(text.data ? text.data : "", text.len, canonical, err);
    ag_text_free(&text);
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        if (st == AG_OK) st = ag_chat_check_interrupt("reading calls", err);
        if (st == AG_OK) st = append_call(call, canonical, err);
    }
    return st;
}

/* ---- answers ---- */

/* Returns whether the text begins with the delimiter of reasoning. The reasoning can be empty: then
 * the message has none. */
static bool begins_reasoning(const ag_chat_format *f, const ag_text *text) {
    const char *s = text->data;
    if (!s || !f->reasoning_open) return false;
    while (ag_is_json_space(*s)) s++;
    return strncmp(s, f->reasoning_open, strlen(f->reasoning_open)) == 0;
}

/* *count: the leading ids that are the reasoning, its delimiters and the white space after it;
 * SIZE_MAX if no token ends there, 0 without reasoning. */
static ag_status count_reasoning(const ag_chat_format *f, const int32_t *ids, size_t n,
                                 bool has_reasoning, size_t *count, ag_error *err) {
    ag_decoder *d;
    ag_text text = {0};
    *count = 0;
    AG_TRY(ag_tokenizer_decode(f->tokenizer, ids, n, true, &text, err));
    if (!has_reasoning && !begins_reasoning(f, &text)) {
        ag_text_free(&text);
        return AG_OK;
    }
    const char *close = text.data ? strstr(text.data, f->reasoning_close) : NULL;
    size_t end = close ? (size_t)(close - text.data) + strlen(f->reasoning_close) : SIZE_MAX;
    while (close && ag_is_json_space(text.data[end])) end++;
    text.len = 0;
    *count = SIZE_MAX;
    ag_status st = ag_decoder_create(f->tokenizer, true, false, &d, err);
    for (size_t i = 0; st == AG_OK && i < n && text.len <= end; i++) {
        if (text.len == end && *count == SIZE_MAX) *count = i;
        st = ag_decoder_push(d, ids[i], &text, err);
    }
    ag_decoder_destroy(d);
    ag_text_free(&text);
    return st;
}

void ag_chat_answer_free(ag_chat_answer *t) {
    ag_text_free(&t->canonical);
    json_decref(t->reasoning);
    ag_ids_free(&t->ids);
    *t = (ag_chat_answer){0};
}

json_t *ag_chat_message_reasoning(const json_t *message) {
    json_t *text = json_object_get(message, "reasoning_content");
    return json_string_length(text) ? text : NULL;
}

ag_status ag_chat_answer_init(const ag_chat_format *f, const json_t *message, const int32_t *ids,
                              size_t n, ag_chat_answer *t, ag_error *err) {
    AG_TRY(ag_chat_canonical_message(message, &t->canonical, err));
    t->has_content = strncmp(t->canonical.data, "\"\"", 2) != 0;
    t->n_calls = json_array_size(json_object_get(message, "tool_calls"));
    t->reasoning = json_incref(ag_chat_message_reasoning(message));
    AG_TRY(ag_ids_reserve(&t->ids, n, err));
    memcpy(t->ids.data, ids, n * sizeof *ids);
    t->ids.n = n;
    return count_reasoning(f, ids, n, t->reasoning || t->starts_in_reasoning, &t->n_reasoning, err);
}
