/* SPDX-License-Identifier: Apache-2.0 */
/* Splits messages with several calls. The results of a message are collected until another message
 * follows, because clients may send them in any order. */
#include "chat/interrupt.h"
#include "chat/message.h"
#include "chat/template/normalise.h"
#include "core/fail.h"

typedef struct splitter {
    json_t *out;
    json_t *message; /* the last message with several calls, borrowed; NULL: none */
    json_t *results; /* its results: one array per call; owned */
    json_t *by_id;   /* id -> index of the call; owned */
    size_t n_results;
} splitter;

static json_t *calls_of(const json_t *message) { return json_object_get(message, "tool_calls"); }

static bool has_several_calls(const json_t *message) {
    return json_is_array(calls_of(message)) && json_array_size(calls_of(message)) > 1;
}

/* Starts to collect the results of a message. */
static ag_status begin_message(splitter *s, json_t *message, ag_error *err) {
    json_t *call;
    size_t i;
    s->message = message;
    s->n_results = 0;
    s->results = json_array();
    s->by_id = json_object();
    AG_TRY(ag_normalise_check(s->results && s->by_id, err));
    json_array_foreach(calls_of(message), i, call) {
        const char *id = json_string_value(json_object_get(call, "id"));
        json_t *index = id ? json_integer((json_int_t)i) : NULL;
        AG_TRY(ag_chat_check_interrupt("splitting calls", err));
        AG_TRY(ag_normalise_check(json_array_append_new(s->results, json_array()) == 0, err));
        if (id) AG_TRY(ag_normalise_check(json_object_set_new(s->by_id, id, index) == 0, err));
    }
    return AG_OK;
}

/* Adds a result to its call, by id or else by order. The last call gets a result without one. */
static ag_status add_result(splitter *s, json_t *result, ag_error *err) {
    const char *id = json_string_value(json_object_get(result, "tool_call_id"));
    const json_t *index = id ? json_object_get(s->by_id, id) : NULL;
    const size_t last = json_array_size(s->results) - 1, nth = s->n_results++;
    size_t i = index ? (size_t)json_integer_value(index) : id ? last : nth;
    if (i > last) i = last;
    return ag_normalise_check(json_array_append(json_array_get(s->results, i), result) == 0, err);
}

/* Returns a message with the ith call alone; the first one keeps the text and the reasoning. NULL:
 * out of memory. */
static json_t *message_with(const splitter *s, size_t i) {
    json_t *m = i ? json_pack("{s:s}", "role", "assistant") : json_copy(s->message);
    json_t *calls = json_pack("[O]", json_array_get(calls_of(s->message), i));
    if (json_object_set_new(m, "tool_calls", calls) == 0) return m;
    json_decref(m);
    return NULL;
}

/* Writes the collected message and its results. */
static ag_status end_message(splitter *s, ag_error *err) {
    const size_t n = s->message ? json_array_size(calls_of(s->message)) : 0;
    for (size_t i = 0; i < n; i++) {
        AG_TRY(ag_chat_check_interrupt("splitting calls", err));
        AG_TRY(ag_normalise_check(json_array_append_new(s->out, message_with(s, i)) == 0, err));
        const int failed = json_array_extend(s->out, json_array_get(s->results, i));
        AG_TRY(ag_normalise_check(!failed, err));
    }
    json_decref(s->results);
    json_decref(s->by_id);
    *s = (splitter){.out = s->out};
    return AG_OK;
}

static ag_status add_message(splitter *s, json_t *m, ag_error *err) {
    AG_TRY(ag_chat_check_interrupt("splitting calls", err));
    if (s->message && ag_chat_has_role(m, "tool")) return add_result(s, m, err);
    AG_TRY(end_message(s, err));
    if (has_several_calls(m)) return begin_message(s, m, err);
    return ag_normalise_check(json_array_append(s->out, m) == 0, err);
}

ag_status ag_split_calls(const ag_chat_format *f, json_t *messages, json_t **out, ag_error *err) {
    const bool splits = f->calls.kind == AG_CALLS_HARMONY && f->features & AG_CHAT_CALLS &&
                        !(f->features & AG_CHAT_PARALLEL_CALLS);
    splitter s = {.out = splits ? json_array() : json_incref(messages)};
    json_t *m;
    size_t i;
    *out = NULL;
    ag_status st = ag_normalise_check(s.out != NULL, err);
    json_array_foreach(messages, i, m) {
        if (splits && st == AG_OK) st = add_message(&s, m, err);
    }
    if (st == AG_OK) st = end_message(&s, err);
    json_decref(s.results);
    json_decref(s.by_id);
    if (st == AG_OK) *out = s.out;
    else json_decref(s.out);
    return st;
}
