/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/json_text.h"

#include "chat/interrupt.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdio.h>
#include <string.h>

enum { STEPS_PER_CHECK = 64 };

ag_status ag_json_text_escape(const char *s, size_t n, ag_text *out, ag_error *err) {
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        char escape[8];
        int len = 2;
        if (c == '"' || c == '\\') snprintf(escape, sizeof escape, "\\%c", c);
        else if (c == '\n') memcpy(escape, "\\n", 3);
        else if (c == '\t') memcpy(escape, "\\t", 3);
        else if (c == '\r') memcpy(escape, "\\r", 3);
        else len = snprintf(escape, sizeof escape, "\\u%04x", c);
        ag_status st = ag_text_append(out, s + done, i - done, err);
        if (st == AG_OK) st = ag_text_append(out, escape, (size_t)len, err);
        if (st != AG_OK) return st;
        done = i + 1;
    }
    return ag_text_append(out, s + done, n - done, err);
}

ag_status ag_json_text_quote(const char *s, size_t n, ag_text *out, ag_error *err) {
    ag_status st = ag_text_append(out, "\"", 1, err);
    if (st == AG_OK) st = ag_json_text_escape(s, n, out, err);
    return st == AG_OK ? ag_text_append(out, "\"", 1, err) : st;
}

typedef struct dump {
    ag_text *out;
    ag_error *err;
    ag_status st; /* jansson ignores some failures of its callback */
    size_t n_pieces;
} dump;

static int append_piece(const char *bytes, size_t n, void *user) {
    dump *d = user;
    if (d->st == AG_OK && ++d->n_pieces % STEPS_PER_CHECK == 0) {
        d->st = ag_chat_check_interrupt("writing JSON", d->err);
    }
    if (d->st == AG_OK) d->st = ag_text_append(d->out, bytes, n, d->err);
    return d->st == AG_OK ? 0 : -1;
}

static ag_status append_with_flags(const json_t *v, size_t flags, ag_text *out, ag_error *err) {
    dump d = {.out = out, .err = err};
    const size_t before = out->len;
    const int failed = json_dump_callback(v, append_piece, &d, flags | JSON_ENCODE_ANY);
    if (d.st == AG_OK && failed) d.st = AG_FAIL(err, NOMEM, "JSON of a value");
    if (d.st != AG_OK) out->len = before;
    return d.st;
}

ag_status ag_json_text_append(const json_t *v, ag_text *out, ag_error *err) {
    return append_with_flags(v, JSON_COMPACT, out, err);
}

ag_status ag_json_text_append_spaced(const json_t *v, ag_text *out, ag_error *err) {
    return append_with_flags(v, 0, out, err);
}

ag_status ag_json_text_append_sorted(const json_t *v, ag_text *out, ag_error *err) {
    return append_with_flags(v, JSON_COMPACT | JSON_SORT_KEYS, out, err);
}

json_t *ag_json_text_string(const json_t *v, size_t flags) {
    ag_text text = {0};
    const ag_status st = append_with_flags(v, flags, &text, NULL);
    json_t *s = st == AG_OK ? json_stringn_nocheck(text.data, text.len) : NULL;
    ag_text_free(&text);
    return s;
}

ag_status ag_json_copy_object(const json_t *object, json_t **out, ag_error *err) {
    json_t *copy = json_object(), *value;
    const char *key;
    size_t n = 0;
    *out = NULL;
    ag_status st = copy ? AG_OK : AG_FAIL(err, NOMEM, "object of a conversation");
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (++n % STEPS_PER_CHECK == 0) st = ag_chat_check_interrupt("copying an object", err);
        if (st == AG_OK && json_object_set_nocheck(copy, key, value) != 0) {
            st = AG_FAIL(err, NOMEM, "object of a conversation");
        }
        if (st != AG_OK) break;
    }
    if (st == AG_OK) *out = copy;
    else json_decref(copy);
    return st;
}
