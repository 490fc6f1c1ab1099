/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of gpt-oss: several messages, each with a header that gives its channel or recipient:
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant to=functions.f<|channel|>commentary
 *   <|constrain|>json<|message|>{"a": 1}<|call|>
 * The prompt ends with "<|start|>assistant". */
#include "chat/parse/parser.h"
#include "text/bytes.h"

#include <string.h>

enum { MAX_HEADER = 1024 };

static const char message_tag[] = "<|message|>", to_key[] = "to=", functions[] = "functions.";
static const char *const end_tags[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};

static ag_parser_state message_body, call_body, after_message;

/* Returns the position of the first tag that ends a message, or can when more text arrives; n if
 * there is none. *len: length of the tag; 0 if it is incomplete or missing. */
static size_t find_end_tag(const char *s, size_t n, bool is_final, size_t *len) {
    *len = 0;
    for (size_t i = 0; i < n; i++) {
        const char *next = memchr(s + i, '<', n - i);
        if (!next) return n;
        i = (size_t)(next - s);
        for (size_t k = 0; k < sizeof end_tags / sizeof *end_tags; k++) {
            const size_t tag_len = strlen(end_tags[k]), have = n - i < tag_len ? n - i : tag_len;
            if (memcmp(next, end_tags[k], have) != 0) continue;
            if (have == tag_len) *len = tag_len;
            if (have == tag_len || !is_final) return i;
        }
    }
    return n;
}

/* Returns the name after "to=functions." in a header; *n_name is 0 if there is none. */
static const char *recipient(const char *s, size_t n, size_t *n_name) {
    const char *to = ag_find_bytes(s, n, to_key);
    *n_name = 0;
    if (!to) return NULL;
    to += sizeof to_key - 1;
    size_t left = n - (size_t)(to - s);
    if (left > sizeof functions - 1 && !memcmp(to, functions, sizeof functions - 1)) {
        to += sizeof functions - 1;
        left -= sizeof functions - 1;
    }
    while (*n_name < left && !strchr(" <\t\n", to[*n_name])) ++*n_name;
    return to;
}

/* Returns the kind of text in a message, by the channel in its header. */
static ag_chat_delta_kind kind_of(const char *header, size_t n) {
    static const char analysis[] = "<|channel|>analysis";
    return ag_find_bytes(header, n, analysis) ? AG_CHAT_DELTA_REASONING : AG_CHAT_DELTA_CONTENT;
}

/* State: the header of a message. */
ag_status ag_parse_harmony(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, n_name;
    const char *s = ag_parser_unread(p, &n);
    if (n > MAX_HEADER) n = MAX_HEADER;
    const char *tag = ag_find_bytes(s, n, message_tag);
    if (!tag && !p->is_final && n < MAX_HEADER) return AG_OK;
    *again = n > 0;
    if (!tag) { /* a message without a header is content */
        p->body_kind = AG_CHAT_DELTA_CONTENT;
        p->state = message_body;
        return AG_OK;
    }
    const size_t header = (size_t)(tag - s);
    const char *name = recipient(s, header, &n_name);
    const bool is_call = n_name && p->params.tools;
    p->body_kind = kind_of(s, header);
    if (is_call) {
        const ag_status st = ag_parser_begin_call(p, name, n_name, "", 0, err);
        if (st != AG_OK) return st;
        p->scan = (ag_json_scan){0};
    }
    ag_parser_decide(p, header + sizeof message_tag - 1);
    p->state = is_call ? call_body : message_body;
    return AG_OK;
}

/* State: the text of a message. */
static ag_status message_body(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, len;
    const char *s = ag_parser_unread(p, &n);
    const size_t end = find_end_tag(s, n, p->is_final, &len);
    const ag_status st = ag_parser_emit_text(p, p->body_kind, s, end, err);
    ag_parser_decide(p, end + len);
    if (len) p->state = after_message;
    *again = len > 0;
    return st;
}

/* State: the arguments of a call. JSON that is wrong ends the call, and the rest is content. */
static ag_status call_body(ag_chat_parser *p, bool *again, ag_error *err) {
    size_t n, len, good = 0;
    const char *s = ag_parser_unread(p, &n);
    const size_t end = find_end_tag(s, n, p->is_final, &len);
    while (good < end && ag_json_scan_byte(&p->scan, s[good]) != AG_JSON_SCAN_BAD) good++;
    const ag_status st = ag_parser_emit_arguments(p, s, good, err);
    ag_parser_decide(p, good == end ? end + len : good);
    const bool is_over = len > 0 || good < end || p->is_final;
    if (st != AG_OK || !is_over) return st;
    ag_parser_end_call(p, good == end && ag_json_scan_is_complete(&p->scan));
    p->body_kind = AG_CHAT_DELTA_CONTENT;
    p->state = good < end ? message_body : after_message;
    *again = true;
    return AG_OK;
}

/* State: after a message. Skips "<|start|>assistant", of which the first tag may have ended the
 * message. */
static ag_status after_message(ag_chat_parser *p, bool *again, ag_error *err) {
    (void)err;
    static const char *const expected[] = {"<|start|>", "assistant"};
    size_t n, at = 0;
    const char *s = ag_parser_unread(p, &n);
    while (at < n && ag_is_json_space(s[at])) at++;
    for (size_t i = 0; i < 2; i++) {
        const size_t len = strlen(expected[i]), have = n - at < len ? n - at : len;
        if (memcmp(s + at, expected[i], have) != 0) continue;
        if (have < len && !p->is_final) return AG_OK;
        if (have == len) at += len;
    }
    ag_parser_decide(p, at);
    p->state = ag_parse_harmony;
    *again = at < n;
    return AG_OK;
}
