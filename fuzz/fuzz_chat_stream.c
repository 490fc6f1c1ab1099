/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of answers. Input: a call format, the size of a piece, then text. Pieces must give the
 * same result as the whole text, and complete arguments must be JSON. */
#include "chat/json_text.h"
#include "chat/parse/parser.h"
#include "fuzz.h"
#include "support/call_formats.h"

#include <stdlib.h>
#include <string.h>

static ag_chat_parser *parse(const ag_call_format *format, bool opened, json_t *tools,
                             const char *text, size_t n, size_t step) {
    const ag_parser_params params = {.format = format,
                                     .headers = format->header_close ? format : NULL,
                                     .reasoning_open = "<think>",
                                     .reasoning_close = "</think>",
                                     .starts_in_reasoning = opened,
                                     .tools = tools};
    ag_chat_parser *p;
    ag_chat_delta d;
    if (ag_parser_create(&params, &p, NULL) != AG_OK) abort();
    for (size_t at = 0; at < n; at += step) {
        const size_t left = n - at;
        if (ag_chat_parser_push(p, text + at, step < left ? step : left, NULL) != AG_OK) abort();
        while (ag_chat_parser_next(p, &d)) {}
    }
    if (ag_chat_parser_finish(p, NULL) != AG_OK) abort();
    while (ag_chat_parser_next(p, &d)) {}
    return p;
}

static void same_text(const ag_text *a, const ag_text *b) {
    if (a->len != b->len || (a->len && memcmp(a->data, b->data, a->len) != 0)) abort();
}

static void compare(const ag_chat_parser *a, const ag_chat_parser *b) {
    same_text(&a->content, &b->content);
    same_text(&a->reasoning, &b->reasoning);
    if (a->n_calls != b->n_calls) abort();
    for (size_t i = 0; i < a->n_calls; i++) {
        same_text(&a->calls[i].arguments, &b->calls[i].arguments);
        if (strcmp(a->calls[i].name, b->calls[i].name) != 0) abort();
        const ag_text *arguments = &a->calls[i].arguments;
        if (a->calls[i].is_complete && !ag_is_json_value(arguments->data, arguments->len)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    char *text = malloc(n - 1);
    json_t *tools = json_loads(tools_json, 0, NULL);
    if (!text || !tools) abort();
    memcpy(text, data + 2, n - 2);
    const ag_call_format *format = all_call_formats[data[0] % N_CALL_FORMATS];
    const bool opened = data[0] & 128;
    ag_chat_parser *whole = parse(format, opened, tools, text, n - 2, n);
    ag_chat_parser *pieces = parse(format, opened, tools, text, n - 2, 1 + data[1] % 16);
    compare(whole, pieces);
    ag_text json = {0};
    if (ag_chat_parser_message(whole, &json, NULL) != AG_OK) abort();
    ag_text_free(&json);
    ag_chat_parser_destroy(whole);
    ag_chat_parser_destroy(pieces);
    json_decref(tools);
    free(text);
    return 0;
}
