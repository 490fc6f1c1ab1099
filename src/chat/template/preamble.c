/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/template/preamble.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/keyed_hash.h"
#include "text/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Header of a reasoning, of a preamble, and what separates both. */
static const char reasoning_header[] = "analysis<|message|>";
static const char preamble_header[] = "commentary<|message|>";
static const char between[] = "<|end|><|start|>assistant<|channel|>commentary<|message|>";

void ag_preamble_choose(char sentinel[AG_PREAMBLE_SENTINEL]) {
    snprintf(sentinel, AG_PREAMBLE_SENTINEL, "Q7v%016" PRIx64 "p", ag_unpredictable());
}

static ag_status append_value(ag_text *text, const json_t *v, ag_error *err) {
    return ag_text_append(text, json_string_value(v), json_string_length(v), err);
}

ag_status ag_preamble_join(const ag_chat_format *f, const char *sentinel, json_t *message,
                           ag_error *err) {
    const json_t *content = json_object_get(message, "content");
    const char *key = f->reasoning_key;
    if (f->calls.kind != AG_CALLS_HARMONY || !key || !json_string_length(content)) return AG_OK;
    if (!json_array_size(json_object_get(message, "tool_calls"))) return AG_OK;
    ag_text text = {0};
    ag_status st = append_value(&text, json_object_get(message, key), err);
    if (st == AG_OK) st = ag_text_append_string(&text, sentinel, err);
    if (st == AG_OK) st = append_value(&text, content, err);
    const bool is_set =
        st == AG_OK &&
        json_object_set_new(message, key, json_stringn_nocheck(text.data, text.len)) == 0 &&
        json_object_set_new(message, "content", json_string("")) == 0;
    ag_text_free(&text);
    if (st == AG_OK && !is_set) return AG_FAIL(err, NOMEM, "messages of a conversation");
    return st;
}

/* ---- the rendered text ---- */

typedef struct expansion {
    const ag_jinja_output *from;
    ag_text text;
    ag_jinja_span *spans; /* spans in `text` */
    size_t n_spans, cap;
    size_t at;   /* bytes of from->text that have been copied or replaced */
    size_t span; /* first span of `from` that does not end before `at` */
} expansion;

static ag_status add_span(expansion *x, size_t begin, size_t end, ag_error *err) {
    if (begin == end) return AG_OK;
    AG_TRY(AG_GROW(x->spans, &x->cap, x->n_spans + 1, err));
    x->spans[x->n_spans++] = (ag_jinja_span){begin, end};
    return AG_OK;
}

/* Copies the bytes before `end`, with the parts of spans among them. */
static ag_status copy_until(expansion *x, size_t end, ag_error *err) {
    const size_t shift = x->text.len, from = x->at;
    for (; x->span < x->from->n_spans; x->span++) {
        const ag_jinja_span s = x->from->spans[x->span];
        const size_t begin = s.begin > from ? s.begin : from, stop = s.end < end ? s.end : end;
        if (begin < stop) AG_TRY(add_span(x, begin - from + shift, stop - from + shift, err));
        if (s.end > end) break;
    }
    x->at = end;
    return ag_text_append(&x->text, x->from->text + from, end - from, err);
}

/* Returns whether a value of the conversation begins at `at`. */
static bool begins_span(const expansion *x, size_t at) {
    size_t i = x->span;
    while (i < x->from->n_spans && x->from->spans[i].end <= at) i++;
    return i < x->from->n_spans && x->from->spans[i].begin == at;
}

/* Without reasoning before it, the preamble replaces the reasoning. */
static ag_status replace_sentinel(expansion *x, size_t begin, size_t end, ag_error *err) {
    const size_t header = sizeof reasoning_header - 1;
    const bool is_alone = begin >= x->at + header && begins_span(x, begin) &&
                          !memcmp(x->from->text + begin - header, reasoning_header, header);
    AG_TRY(copy_until(x, is_alone ? begin - header : begin, err));
    x->at = end;
    return ag_text_append_string(&x->text, is_alone ? preamble_header : between, err);
}

static ag_status expand_all(expansion *x, const char *sentinel, ag_error *err) {
    const char *text = x->from->text, *next;
    const size_t n = strlen(sentinel), len = x->from->len;
    while ((next = ag_find_bytes(text + x->at, len - x->at, sentinel))) {
        const size_t begin = (size_t)(next - text);
        AG_TRY(replace_sentinel(x, begin, begin + n, err));
    }
    return copy_until(x, len, err);
}

ag_status ag_preamble_expand(const char *sentinel, ag_jinja_output *out, ag_error *err) {
    if (!ag_find_bytes(out->text, out->len, sentinel)) return AG_OK;
    expansion x = {.from = out};
    const ag_status st = expand_all(&x, sentinel, err);
    if (st != AG_OK) {
        ag_text_free(&x.text);
        ag_free(x.spans);
        return st;
    }
    ag_jinja_output_free(out);
    *out = (ag_jinja_output){x.text.data, x.text.len, x.spans, x.n_spans};
    return AG_OK;
}
