/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of several messages, each with a header that says what it is:
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant to=functions.f<|channel|>commentary
 *   <|constrain|>json<|message|>{"a": 1}<|call|>
 * The prompt ends behind "<|start|>assistant". */
#include "chat/parse/parser.h"
#include "text/bytes.h"

#include <string.h>

enum { MAX_HEADER = 1024 };

static const char message_mark[] = "<|message|>", to_mark[] = "to=", functions[] = "functions.";
static const char *const end_marks[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};

static ag_stream_state body, call_body, between;

/* The first mark that ends a message, or may once there is more; n if there is none. *len: of one
 * that does. */
static size_t find_end(const char *s, size_t n, bool is_final, size_t *len) {
    *len = 0;
    for (size_t i = 0; i < n; i++) {
        const char *next = memchr(s + i, '<', n - i);
        if (!next) return n;
        i = (size_t)(next - s);
        for (size_t k = 0; k < sizeof end_marks / sizeof *end_marks; k++) {
            const size_t wanted = strlen(end_marks[k]), have = n - i < wanted ? n - i : wanted;
            if (memcmp(next, end_marks[k], have) != 0) continue;
            if (have == wanted) *len = wanted;
            if (have == wanted || !is_final) return i;
        }
    }
    return n;
}

/* The name behind "to=functions." in a header, or n == 0. */
static const char *recipient(const char *s, size_t n, size_t *n_name) {
    const char *to = ag_find_bytes(s, n, to_mark);
    *n_name = 0;
    if (!to) return NULL;
    to += sizeof to_mark - 1;
    size_t left = n - (size_t)(to - s);
    if (left > sizeof functions - 1 && !memcmp(to, functions, sizeof functions - 1)) {
        to += sizeof functions - 1;
        left -= sizeof functions - 1;
    }
    while (*n_name < left && !strchr(" <\t\n", to[*n_name])) ++*n_name;
    return to;
}

static ag_chat_delta_kind kind_of(const char *header, size_t n) {
    return ag_find_bytes(header, n, "analysis") ? AG_CHAT_DELTA_REASONING : AG_CHAT_DELTA_CONTENT;
}

/* The header of a message. */
ag_status ag_stream_harmony(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, n_name;
    const char *s = ag_stream_rest(p, &n), *mark = ag_find_bytes(s, n, message_mark);
    if (!mark && !p->is_final && n <= MAX_HEADER) return AG_OK;
    *again = n > 0;
    if (!mark) { /* no header at all */
        const ag_status st = ag_stream_put(p, AG_CHAT_DELTA_CONTENT, s, n, err);
        ag_stream_take(p, n);
        p->held = p->at;
        return st;
    }
    const size_t header = (size_t)(mark - s);
    const char *name = recipient(s, header, &n_name);
    const bool is_call = n_name && p->params.tools;
    p->body_kind = kind_of(s, header);
    if (is_call) {
        const ag_status st = ag_stream_begin_call(p, name, n_name, "", 0, err);
        if (st != AG_OK) return st;
        p->scan = (ag_json_scan){0};
    }
    ag_stream_take(p, header + sizeof message_mark - 1);
    p->held = p->at;
    p->state = is_call ? call_body : body;
    return AG_OK;
}

static ag_status body(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, len;
    const char *s = ag_stream_rest(p, &n);
    const size_t end = find_end(s, n, p->is_final, &len);
    const ag_status st = ag_stream_put(p, p->body_kind, s, end, err);
    ag_stream_take(p, end + len);
    p->held = p->at;
    if (len) p->state = between;
    *again = len > 0;
    return st;
}

static ag_status call_body(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, len, good = 0;
    const char *s = ag_stream_rest(p, &n);
    const size_t end = find_end(s, n, p->is_final, &len);
    while (good < end && ag_json_scan_byte(&p->scan, s[good]) != AG_JSON_SCAN_BAD) good++;
    const ag_status st = ag_stream_arguments(p, s, good, err);
    ag_stream_take(p, good == end ? end + len : good);
    p->held = p->at;
    const bool is_over = len > 0 || good < end || p->is_final;
    if (st != AG_OK || !is_over) return st;
    ag_stream_end_call(p, good == end && ag_json_scan_is_whole(&p->scan));
    p->body_kind = AG_CHAT_DELTA_CONTENT;
    p->state = good < end ? body : between;
    *again = true;
    return AG_OK;
}

/* Behind a message: "<|start|>assistant", of which the first may have ended it already. */
static ag_status between(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    static const char *const words[] = {"<|start|>", "assistant"};
    size_t n, at = 0;
    const char *s = ag_stream_rest(p, &n);
    while (at < n && ag_is_json_space(s[at])) at++;
    for (size_t i = 0; i < 2; i++) {
        const size_t wanted = strlen(words[i]), have = n - at < wanted ? n - at : wanted;
        if (memcmp(s + at, words[i], have) != 0) continue;
        if (have < wanted && !p->is_final) return AG_OK;
        if (have == wanted) at += wanted;
    }
    ag_stream_take(p, at);
    p->held = p->at;
    p->state = ag_stream_harmony;
    *again = at < n;
    return AG_OK;
}
